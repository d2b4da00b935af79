"""Break the code on purpose, one place at a time, and see whether the tests notice.

    make mutations                                      # 100 places, drawn by seed 0
    make mutations MUTATIONS="--sample 40 --seed 7 --parts ledger sealed"

A sample of places is drawn, and at each one of the mutations that Cosmic Ray knows. A
mutation that only touches an annotation or a docstring is not drawn. The tests that
name the broken file, or a function that leads to the change, run first, then the rest
of its folder with the nearest files of other folders, then, with `--whole`, all others.
All mutations are tried by the first set before those that pass it are by the next.

A mutation is caught by a test that fails, fails again alone, and passes on the code as
it stands. A test that is still running after `HANGS` seconds has failed; that is noted.
Tests that pass so far but need more than `LIMIT` seconds settle nothing, nor does
a test that fails only once: such a mutation is unsettled, is listed by itself, and is
tried again by the next run.

Each result is written to `--out` at once: a run that was stopped goes on from there. A
survivor that changes no behavior is put into `mutations_equal.json` by hand, with the
reason; it counts neither as caught nor as missed. This takes an hour or more, so it is
no part of the tests.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import functools
import hashlib
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from rich.console import Console
from rich.progress import track
from scipy.stats import binomtest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "langchain_dpicl"
PARTS = ("mechanisms", "accounting", "budget", "ledger", "sealed", "parsers")
EQUAL = Path(__file__).with_name("mutations_equal.json")
LIMIT = 1800  # Seconds for one set of tests; reaching it settles nothing.
HANGS = 300  # Seconds for one test; none takes a tenth of it on an idle machine.
MEMORY = 8 << 30  # Bytes of data for one process: a mutation may allocate for ever.
NEAREST = 8  # Files of tests that run first.
NAMED = 1000  # A test that names the file is nearer than one that uses it.
LEADS = (20, 4, 1)  # What a name in a test counts that leads to the change, by steps.
KINDS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
Place = tuple[Path, tuple[int, int], tuple[int, int]]


@dataclass(frozen=True)
class Mutation:
    """One change of one file, which starts at `line`: `code` is the file's new text.

    `name` is a digest of the change, to name it in `mutations_equal.json`.
    """

    name: str
    path: str
    line: int
    diff: str
    code: str


@dataclass(frozen=True)
class Result:
    """Whether a mutation was caught (None: unsettled), and by which test.

    `passed` is how many sets of tests it passed, `seconds` what the last one took.
    """

    name: str
    path: str
    diff: str
    caught: bool | None
    tests: str
    passed: int
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
        made = mutation(place[0], place[1][0], name, turn)
        if made is not None:
            given += 1
            yield made


def mutation(path: Path, line: int, operator: str, turn: int) -> Mutation | None:
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
    # The name outlives a change elsewhere in the file, which moves the line.
    placed = ".".join(surrounding(ast.parse(before), line))
    stable = "\n".join(row for row in diff.splitlines() if not row.startswith("@@"))
    digest = hashlib.sha256(f"{placed}\n{stable}".encode()).hexdigest()[:12]
    return Mutation(digest, short, line, diff, after)


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


def top_level(tree: ast.Module) -> dict[str, set[str]]:
    """Return the names that each top-level function or class of a module uses."""
    return {
        node.name: {getattr(n, "id", getattr(n, "attr", "")) for n in ast.walk(node)}
        for node in tree.body
        if isinstance(node, KINDS)
    }


@functools.cache
def package_names(root: Path) -> list[tuple[str, set[str]]]:
    """Return `top_level` of all modules of the package."""
    trees = (ast.parse(f.read_text("utf-8")) for f in sorted(root.rglob("*.py")))
    return [pair for tree in trees for pair in top_level(tree).items()]


def surrounding(tree: ast.Module, line: int) -> list[str]:
    """Return the functions and classes around a line."""
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, KINDS) and node.lineno <= line <= (node.end_lineno or 0)
    ]


def leading(tree: ast.Module, line: int, root: Path) -> list[set[str]]:
    """Return the names that lead to a line: in its module, a step away, two away."""
    names = set(surrounding(tree, line))
    for node in tree.body:
        if isinstance(node, ast.Assign) and node.lineno <= line <= node.end_lineno:
            names |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    own = top_level(tree)
    while new := {name for name, used in own.items() if used & names} - names:
        names |= new
    steps = [names]
    for _ in range(2):
        found = {name for name, used in package_names(root) if used & steps[-1]}
        steps.append(found.difference(*steps))
    return steps


def test_sets(one: Mutation, root: Path) -> list[list[str]]:
    """Return pytest's arguments for each set of tests: near, folder, and whole."""
    file = Path(one.path)
    module = one.path.removesuffix(".py").replace("/", ".")
    folder = Path("tests", file.parts[1])
    tree = ast.parse((root / one.path).read_text("utf-8"))
    leads = leading(tree, one.line, root / PACKAGE.name)
    home, away = [], []
    for test in sorted((root / "tests").rglob("test_*.py")):
        short = test.relative_to(root)
        text = test.read_text("utf-8")
        words = set(re.findall(r"\w+", text))
        rank = sum(
            w * len(names & words) for w, names in zip(LEADS, leads, strict=True)
        )
        rank += len(words & set(top_level(tree)))
        named = NAMED * (module in text or file.stem in test.stem)
        if folder in short.parents:
            home.append((-rank - named, len(text), str(short)))
        elif rank and ("system" not in short.parts or "audit" in short.parts):
            away.append((-rank - named, len(text), str(short)))
    ranked = [name for *_, name in sorted(home)]
    further = [name for *_, name in sorted(away)[:NEAREST]]
    near = ["-n", "0", one.path, *ranked[:NEAREST]]
    return [near, ["-n", "2", *ranked[NEAREST:], *further], ["-n", "2"]]


def tried(one: Mutation, tree: Path, chosen: int) -> Result:
    """Run one of its sets of tests on a copy of the tree with one change."""
    file = tree / one.path
    arguments = test_sets(one, tree)[chosen]
    before = file.read_text("utf-8")
    start = time.monotonic()
    caught: bool | None = False
    tests, passed = "", chosen
    file.write_text(one.code, "utf-8")
    try:
        is_through, failed = failures(tree, ["-x", *arguments])
        if failed:
            hangs, tests = failed[0].startswith("hangs: "), failed[0]
            caught = hangs or bool(failures(tree, ["-n", "0", tests])[1]) or None
        elif is_through:
            passed += 1
        else:
            caught, tests = None, "timeout"
    finally:
        file.write_text(before, "utf-8")
    seconds = round(time.monotonic() - start, 1)
    return Result(one.name, one.path, one.diff, caught, tests, passed, seconds)


def failures(tree: Path, arguments: Sequence[str]) -> tuple[bool, list[str]]:
    """Run tests in a tree; return whether they came to an end, and which failed."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    command += ["-o", f"faulthandler_timeout={HANGS}"]
    command += ["-o", "faulthandler_exit_on_timeout=true"]
    # The tree's own package, not the one that is installed.
    environment = {**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "200"}
    environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    try:
        done = subprocess.run(
            [*command, *arguments],
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY,) * 2),
        )
    except subprocess.TimeoutExpired:
        return False, []
    found = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    if "\nTimeout (" in f"\n{done.stderr}":
        # The last file that was begun, where one process runs all.
        hung = found[:1] or re.findall(r"^(\S+\.py)\b", done.stdout, re.MULTILINE)[-1:]
        return bool(hung), [f"hangs: {test}" for test in hung]
    if "ERROR: not found: " in done.stdout + done.stderr:
        return False, []
    if done.returncode and not found:  # Nothing could be collected, for one.
        found = [a for a in arguments if a.endswith(".py")][:1]
    return True, found


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


def sound(results: Sequence[dict[str, Any]], tree: Path) -> None:
    """Take back what was caught by tests that fail on the code as it stands."""
    caught = [r for r in results if r["caught"]]
    if not caught:
        return
    tests = {str(r["tests"]).removeprefix("hangs: ") for r in caught}
    is_through, broken = failures(tree, ["-n", "2", *sorted(tests)])
    for result in caught:
        if not is_through or str(result["tests"]).removeprefix("hangs: ") in broken:
            result.update(caught=None, tests=f"fails anyway: {result['tests']}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Try a sample; return 1 where fewer are caught than `--least` says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=100, help="places (100)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--out", type=Path, default=Path(".mutations.json"))
    parser.add_argument("--whole", action="store_true", help="run all tests at last")
    parser.add_argument("--least", type=float, default=0.95)
    parser.add_argument("--report", action="store_true", help="only print --out")
    options = parser.parse_args(arguments)
    known: dict[str, dict[str, Any]] = {}
    error = Console(stderr=True)
    if options.out.exists():
        known = {r["name"]: r for r in json.loads(options.out.read_text("utf-8"))}
    if options.report:
        return told([*known.values()], options.least)
    equal = json.loads(EQUAL.read_text("utf-8"))
    mutations = list(sampled(options.parts, options.sample, options.seed))
    with tempfile.TemporaryDirectory() as folder:
        tree = copied(Path(folder))
        folders = [f"tests/{part}" for part in options.parts]
        if not known and failures(tree, ["-x", "-n", "2", *folders]) != (True, []):
            Console().print("The tests fail as the code stands: nothing was tried.")
            return 2
        turns = [(one, k) for k in range(2 + options.whole) for one in mutations]
        for one, chosen in track(turns, "Breaking the code", console=error):
            untried = Result(one.name, one.path, one.diff, None, "", 0, 0.0)
            found = known.setdefault(one.name, asdict(untried))
            open_yet = not found["caught"] and found["passed"] <= chosen
            if open_yet and one.name not in equal:
                known[one.name] = asdict(tried(one, tree, chosen))
                options.out.write_text(json.dumps([*known.values()], indent=1), "utf-8")
        sound([known[one.name] for one in mutations], tree)
    options.out.write_text(json.dumps([*known.values()], indent=1), "utf-8")
    return told([known[one.name] for one in mutations], options.least)


def told(results: Sequence[dict[str, Any]], least: float) -> int:
    """Print what was caught, with a 95 % interval, and each survivor."""
    console = Console(highlight=False, markup=False)
    equal = json.loads(EQUAL.read_text("utf-8"))
    changing = [r for r in results if r["path"] and r["name"] not in equal]
    unsettled = [r for r in changing if r["caught"] is None]
    counted = [r for r in changing if r["caught"] is not None]
    missed = [r for r in counted if not r["caught"]]
    for result in missed:
        console.print(f"\nMissed: {result['name']}\n{result['diff']}")
    for result in unsettled:
        console.print(f"\nUnsettled: {result['name']}, {result['tests']}")
    caught = len(counted) - len(missed)
    hung = sum(str(r["tests"]).startswith("hangs: ") for r in counted)
    share = caught / max(len(counted), 1)
    exact = binomtest(caught, max(len(counted), 1)).proportion_ci(method="exact")
    console.print(
        f"\n{caught} of {len(counted)} mutations that change behavior were caught "
        f"({share:.1%}; 95 % interval {exact.low:.1%} to {exact.high:.1%}), {hung} of "
        f"them by a test that hangs; {len(unsettled)} are unsettled; "
        f"{len(results) - len(changing)} change no behavior."
    )
    return 0 if share >= least else 1


if __name__ == "__main__":
    sys.exit(main())
