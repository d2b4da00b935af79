"""Break the code on purpose, one place at a time, and see whether the tests notice.

    make mutations                                      # 100 places, drawn by seed 0
    make mutations MUTATIONS="--sample 40 --seed 7 --parts ledger sealed"

A sample of places is drawn, and at each one of the mutations that Cosmic Ray knows. A
mutation that only touches an annotation or a docstring is not drawn. The tests that
name the broken file or what it defines run first, then those of its folder, then, with
`--whole`, all others. A test that fails, or runs for too long, has caught it.

Each result is written to `--out` at once: a run that was stopped goes on from there. A
survivor that changes no behavior is put into `mutations_equal.json` by hand, with the
reason; it counts neither as caught nor as missed. This takes an hour or more, so it is
no part of the tests.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import hashlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from rich.console import Console
from rich.progress import track

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "langchain_dpicl"
PARTS = ("mechanisms", "accounting", "budget", "ledger", "sealed", "parsers")
EQUAL = Path(__file__).with_name("mutations_equal.json")
LIMIT = 900  # Seconds for one set of tests.
NEAREST = 8  # Files of tests that run first.
NAMED = 100  # A test that names the file is nearer than one that uses it.
Place = tuple[Path, tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Mutation:
    """One change of one file.

    Attributes:
        name: A digest of the change, to name it in `mutations_equal.json`.
        path: The file, from the root.
        diff: What changes.
        code: The file's new text.
    """

    name: str
    path: str
    diff: str
    code: str


@dataclass(frozen=True)
class Result:
    """Whether a mutation was caught: by `tests`, after `seconds`."""

    name: str
    path: str
    diff: str
    caught: bool
    tests: str
    seconds: float


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
        made = mutation(place[0], name, turn)
        if made is not None:
            given += 1
            yield made


def mutation(path: Path, operator: str, turn: int) -> Mutation | None:
    """Return a change, or None where it makes no other program, or none at all."""
    before = path.read_text("utf-8")
    after = mutate_code(before, get_operator(operator)(), turn)
    try:
        if after is None or program(before) == program(after):
            return None
    except SyntaxError:
        return None
    short = str(path.relative_to(ROOT))
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), short, short, lineterm="", n=1
    )
    diff = "\n".join(lines)
    digest = hashlib.sha256(f"{short}\n{diff}".encode()).hexdigest()[:12]
    return Mutation(digest, short, diff, after)


def program(source: str) -> str:
    """Return what of a source is run: without annotations, docstrings, type imports."""

    class Runs(ast.NodeTransformer):
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


def test_sets(path: str, *, whole: bool) -> Iterator[tuple[str, list[str]]]:
    """Yield the tests to run, the nearest first: a name, and pytest's arguments."""
    file = Path(path)
    module = path.removesuffix(".py").replace("/", ".")
    folder = Path("tests", *file.parts[1:2])
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    kinds = ast.FunctionDef | ast.ClassDef
    defined = {node.name for node in tree.body if isinstance(node, kinds)}
    ranked = []
    for test in sorted((ROOT / folder).rglob("test_*.py")):
        text = test.read_text("utf-8")
        words = set(re.findall(r"\w+", text))
        rank = len(defined & words) + NAMED * (module in text or file.stem in test.stem)
        ranked += [(-rank, str(test.relative_to(ROOT)))] if rank else []
    near = [name for _, name in sorted(ranked)[:NEAREST]]
    yield "near", ["-n", "0", path, *near]
    yield "folder", ["-n", "2", str(folder), "tests/system/audit", "tests/chain"]
    if whole:
        yield "whole", ["-n", "2"]


def tried(one: Mutation, tree: Path, *, whole: bool) -> Result:
    """Run the tests on a copy of the tree with one change, until one fails."""
    file = tree / one.path
    before = file.read_text("utf-8")
    start = time.monotonic()
    caught = ""
    file.write_text(one.code, "utf-8")
    try:
        for name, arguments in test_sets(one.path, whole=whole):
            if not passes(tree, arguments):
                caught = name
                break
    finally:
        file.write_text(before, "utf-8")
    seconds = round(time.monotonic() - start, 1)
    return Result(one.name, one.path, one.diff, bool(caught), caught, seconds)


def passes(tree: Path, arguments: Sequence[str]) -> bool:
    """Whether tests pass in a tree, in time."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    # The tree's own package, not the one that is installed.
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    try:
        done = subprocess.run(
            [*command, *arguments],
            cwd=tree,
            env=environment,
            capture_output=True,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def copied(to: Path) -> Path:
    """Copy what git knows of the tree, as it stands."""
    command = [str(shutil.which("git")), "ls-files"]
    listed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)
    return to


def main(arguments: Sequence[str] | None = None) -> int:
    """Try a sample; return 1 where fewer are caught than `--least` says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=100, help="places (100)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--out", type=Path, default=Path(".mutations.json"))
    parser.add_argument("--whole", action="store_true", help="run all tests at last")
    parser.add_argument("--least", type=float, default=0.95)
    options = parser.parse_args(arguments)
    known: dict[str, dict[str, object]] = {}
    if options.out.exists():
        known = {r["name"]: r for r in json.loads(options.out.read_text("utf-8"))}
    mutations = list(sampled(options.parts, options.sample, options.seed))
    with tempfile.TemporaryDirectory() as folder:
        tree = copied(Path(folder))
        folders = [f"tests/{part}" for part in options.parts]
        if not known and not passes(tree, ["-n", "2", *folders]):
            Console().print("The tests fail as the code stands: nothing was tried.")
            return 2
        for one in track(mutations, "Breaking the code", console=Console(stderr=True)):
            if one.name not in known:
                known[one.name] = asdict(tried(one, tree, whole=options.whole))
                options.out.write_text(json.dumps([*known.values()], indent=1), "utf-8")
    return told([known[one.name] for one in mutations], options.least)


def told(results: Sequence[dict[str, object]], least: float) -> int:
    """Print what was caught, and each survivor."""
    console = Console(highlight=False, markup=False)
    equal = json.loads(EQUAL.read_text("utf-8"))
    counted = [r for r in results if r["name"] not in equal]
    missed = [r for r in counted if not r["caught"]]
    for result in missed:
        console.print(f"\nMissed: {result['name']}\n{result['diff']}")
    share = 1 - len(missed) / max(len(counted), 1)
    found = f"{len(counted) - len(missed)} of {len(counted)}"
    console.print(
        f"\n{found} mutations that change behavior were caught ({share:.1%}); "
        f"{len(results) - len(counted)} change none."
    )
    return 0 if share >= least else 1


if __name__ == "__main__":
    sys.exit(main())
