"""Where the code can be changed, and what a change makes of it."""

from __future__ import annotations

import ast
import difflib
import hashlib
import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "langchain_dpicl"
PARTS = ("mechanisms", "accounting", "budget", "ledger", "sealed", "parsers")
KINDS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Place = tuple[Path, tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Mutation:
    """One change of one file, which starts at `line`: `code` is the file's new text.

    `name` is a digest of the change, to name it in `equal.json`.
    """

    name: str
    path: str
    line: int
    diff: str
    code: str


def places(parts: Sequence[str]) -> dict[Place, list[tuple[str, int]]]:
    """Return where the code can be changed: the operators, and which of their turns."""
    found: dict[Place, list[tuple[str, int]]] = defaultdict(list)
    files = sorted(f for part in parts for f in (PACKAGE / part).rglob("*.py"))
    plain = [n for n in operator_names() if not get_operator(n).arguments()]
    for path in files:
        if "migrations" in path.parts:
            continue
        nodes = list(ast_nodes(get_ast(path.read_text("utf-8"))))
        for name in plain:
            operator = get_operator(name)()
            spans = (at for node in nodes for at in operator.mutation_positions(node))
            for turn, span in enumerate(spans):
                start, stop = span[:2]
                found[path, tuple(start), tuple(stop)].append((name, turn))
    return found


def sampled(parts: Sequence[str], size: int, seed: int) -> Iterator[Mutation]:
    """Yield mutations of `size` places; the same ones for the same code and seed."""
    chance = random.Random(seed)
    options = places(parts)
    order = sorted(options)
    chance.shuffle(order)
    given = 0
    for place in order:
        if given == size:
            return
        name, turn = chance.choice(options[place])
        made = mutation(place[0], place[1][0], name, turn)
        if made is not None:
            given += 1
            yield made


def mutation(path: Path, line: int, operator: str, turn: int) -> Mutation | None:
    """Return a change, or None where it makes no other program, or none at all."""
    before = path.read_text("utf-8")
    try:
        after = mutate_code(before, get_operator(operator)(), turn)
        if after is None or program(before) == program(after):
            return None
    except (SyntaxError, AttributeError):  # It knows no starred exceptions.
        return None
    short = str(path.relative_to(ROOT))
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), short, short, lineterm="", n=1
    )
    diff = "\n".join(lines)
    # The name outlives a change elsewhere in the file, which moves the line.
    placed = ".".join(surrounding(ast.parse(before), line))
    stable = "\n".join(row for row in diff.splitlines() if not row.startswith("@@"))
    digest = hashlib.sha256(f"{placed}\n{stable}".encode()).hexdigest()[:12]
    return Mutation(digest, short, line, diff, after)


def program(source: str) -> str:
    """Return what of a source is run: without annotations, docstrings, type imports.

    How many results a cache keeps makes no other program either.
    """

    class Runs(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called == "lru_cache":
                node.keywords = []
            return self.generic_visit(node)

        def visit_arg(self, node: ast.arg) -> ast.arg:
            node.annotation = None
            return node

        def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
            node.returns = None
            node.decorator_list = [
                d for d in node.decorator_list if getattr(d, "id", "") != "override"
            ]
            return self.generic_visit(node)

        def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
            node.returns = None
            return self.generic_visit(node)

        def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
            node.annotation = ast.Constant(None)
            return self.generic_visit(node)

        def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
            is_text = isinstance(node.value, ast.Constant)
            return None if is_text else self.generic_visit(node)

        def visit_If(self, node: ast.If) -> ast.AST | None:
            is_typing = getattr(node.test, "id", "") == "TYPE_CHECKING"
            return None if is_typing else self.generic_visit(node)

    return ast.dump(Runs().visit(ast.parse(source)))


def surrounding(tree: ast.Module, line: int) -> list[str]:
    """Return the functions and classes around a line."""
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, KINDS) and node.lineno <= line <= (node.end_lineno or 0)
    ]
