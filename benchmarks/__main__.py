"""List and run every table and figure of the docs.

    python -m benchmarks                                   # what there is
    python -m benchmarks run utility_demo bench_import     # some
    python -m benchmarks run --speed --quick --json out    # all speed, small, as JSON
    python -m benchmarks run --all --data DIR --answers FOLDER --model openai:gpt-5

Each script runs in a process of its own and is given the options that it knows. One
that needs an option which is not there (data sets, recorded answers) is skipped, and
named at the end. With `--json FOLDER` each writes `FOLDER/NAME.json`: the command, the
versions, the seconds, and all tables that it printed.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).parent
DOCS = FOLDER.parent / "docs"
KINDS = {"speed": "bench_", "utility": "utility_", "audit": "audit_"}
PASSED_ON = ("data", "answers", "model", "rows")
"""Options that are handed on to each script that knows them."""


@dataclass(frozen=True)
class Benchmark:
    """A script, read without running it.

    Attributes:
        name: The file's name without its ending.
        about: The first line of its docstring.
        options: The options that it knows.
        required: Those that it can't do without.
    """

    name: str
    about: str
    options: frozenset[str]
    required: frozenset[str]

    @property
    def pages(self) -> list[str]:
        """Return the pages of the docs that name it, from the docs' folder."""
        return [
            str(page.relative_to(DOCS))
            for page in sorted(DOCS.rglob("*.md"))
            if self.name in page.read_text("utf-8")
        ]


def benchmarks() -> list[Benchmark]:
    """Return all scripts that print figures, by name."""
    paths = sorted(FOLDER.glob("*.py"))
    shared = _options(ast.parse((FOLDER / "utility_measures.py").read_text("utf-8")))
    found = []
    for path in paths:
        tree = ast.parse(path.read_text("utf-8"))
        names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        if not path.stem.startswith(tuple(KINDS.values())) or "main" not in names:
            continue
        own = dict(_options(tree))
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
        if any(getattr(call.func, "id", "") == "arguments" for call in calls):
            own = {**shared, **own}
        about = (ast.get_docstring(tree) or "").split("\n")[0]
        required = frozenset(name for name, needed in own.items() if needed)
        found.append(Benchmark(path.stem, about, frozenset(own), required))
    return found


def _options(tree: ast.AST) -> dict[str, bool]:
    """Return the options that a script adds, and whether each is required."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == (
            "add_argument"
        ):
            name = getattr(node.args[0], "value", "")
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            needed = getattr(given.get("required"), "value", False)
            found[name.removeprefix("--")] = bool(needed)
    return found


def commands(
    chosen: Sequence[Benchmark], given: argparse.Namespace
) -> Iterator[tuple[Benchmark, list[str] | str]]:
    """Yield each script with its command, or with what keeps it from running."""
    for one in chosen:
        passed = {
            name: str(value)
            for name in PASSED_ON
            if (value := getattr(given, name)) is not None and name in one.options
        }
        if missing := sorted(one.required - passed.keys()):
            yield one, ", ".join(f"--{name}" for name in missing)
            continue
        command = [sys.executable, str(FOLDER / "recorded_tables.py")]
        if given.json is not None:
            command += ["--record", str(given.json / f"{one.name}.json")]
        command.append(one.name)
        command += [
            word for name, text in passed.items() for word in (f"--{name}", text)
        ]
        if given.quick and "quick" in one.options:
            command.append("--quick")
        yield one, command


def show(found: Sequence[Benchmark]) -> None:
    """Print what there is."""
    table = Table("name", "what it measures", "needs", "stands in docs/")
    for one in found:
        needs = ", ".join(f"--{name}" for name in sorted(one.required))
        pages = "\n".join(one.pages)
        table.add_row(one.name, one.about, needs, pages)
    Console(width=160).print(table)


def run(chosen: Sequence[Benchmark], given: argparse.Namespace) -> int:
    """Run scripts one by one; return the exit status."""
    console, failed, skipped = Console(width=140), [], []
    if given.json is not None:
        given.json.mkdir(parents=True, exist_ok=True)
    for one, command in commands(chosen, given):
        console.rule(one.name)
        if isinstance(command, str):
            console.print(f"Skipped: it needs {command}.")
            skipped.append(f"{one.name} ({command})")
        elif subprocess.run(command, check=False).returncode:  # noqa: S603 - our own
            failed.append(one.name)
    if skipped:
        console.print(f"Skipped: {', '.join(skipped)}.")
    if failed:
        console.print(f"Failed: {', '.join(failed)}.")
    return int(bool(failed))


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line; list or run."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    running = parser.add_subparsers(dest="command").add_parser("run", help="run some")
    running.add_argument("names", nargs="*", metavar="NAME")
    for kind in ("all", *KINDS):
        running.add_argument(f"--{kind}", action="store_true")
    running.add_argument("--quick", action="store_true", help="fewer and smaller runs")
    running.add_argument("--json", type=Path, metavar="FOLDER")
    running.add_argument("--data", type=Path, help="folder of data sets")
    running.add_argument("--answers", type=Path, help="folder of recorded answers")
    running.add_argument("--rows", type=Path, help="a file of rows")
    running.add_argument("--model", help="provider:name, in place of the stand-in")
    given = parser.parse_args(arguments)
    found = benchmarks()
    if given.command is None:
        show(found)
        return 0
    known = {one.name: one for one in found}
    if unknown := [name for name in given.names if name not in known]:
        running.error(f"There is no {', '.join(unknown)}. See python -m benchmarks.")
    kinds = tuple(
        prefix for kind, prefix in KINDS.items() if given.all or getattr(given, kind)
    )
    chosen = [
        one
        for one in found
        if one.name in given.names or (kinds and one.name.startswith(kinds))
    ]
    if not chosen:
        running.error("Name benchmarks, or say --all, --speed, --utility or --audit.")
    return run(chosen, given)


if __name__ == "__main__":
    sys.exit(main())
