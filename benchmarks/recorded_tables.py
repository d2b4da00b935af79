"""Run a benchmark, and keep the tables that it prints as JSON, with the versions.

python benchmarks/recorded_tables.py [--record FILE] NAME [OPTION ...]
"""

from __future__ import annotations

import json
import platform
import runpy
import subprocess
import sys
import time
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from typing_extensions import Self

FOLDER = Path(__file__).parent
PACKAGES = (
    *("langchain-dpicl", "langchain-core", "langchain-openai", "numpy", "scipy"),
    *("faiss-cpu", "SQLAlchemy", "dp-accounting", "prv-accountant", "torch"),
)


def versions() -> dict[str, Any]:
    """Return what a figure depends on: code, packages, machine."""
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "commit": _commit(),
    }
    return {**found, **{package: _version(package) for package in PACKAGES}}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    command = ["git", "-C", str(FOLDER), "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - git
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def table_of(table: Table) -> dict[str, Any]:
    """Return a printed table as its title, columns and rows of text."""
    columns = [list(map(_plain, column.cells)) for column in table.columns]
    return {
        "title": _plain(table.title or ""),
        "columns": [_plain(column.header) for column in table.columns],
        "rows": [list(row) for row in zip(*columns, strict=True)],
    }


def _plain(cell: Any) -> str:
    return cell.plain if isinstance(cell, Text) else Text.from_markup(str(cell)).plain


class Recorder:
    """Keeps each table that `rich` prints, beside printing it."""

    def __init__(self) -> None:
        self.tables: list[dict[str, Any]] = []
        self._print = Console.print

    def __enter__(self) -> Self:
        def kept(console: Console, *shown: Any, **options: Any) -> None:
            self._keep(shown)
            self._print(console, *shown, **options)

        Console.print = kept  # type: ignore[method-assign]  # put back at the end
        return self

    def __exit__(self, *_: object) -> None:
        Console.print = self._print  # type: ignore[method-assign]

    def _keep(self, shown: Iterable[Any]) -> None:
        self.tables += [table_of(each) for each in shown if isinstance(each, Table)]


def main() -> None:
    words = sys.argv[1:]
    file = None
    if words and words[0] == "--record":
        file, words = Path(words[1]), words[2:]
    name, *options = words
    path = FOLDER / f"{name}.py"
    sys.argv = [str(path), *options]
    start = time.perf_counter()
    with Recorder() as recorder:
        runpy.run_path(str(path), run_name="__main__")
    if file is not None:
        found = {
            "benchmark": name,
            "command": f"python benchmarks/{name}.py {' '.join(options)}".strip(),
            "seconds": round(time.perf_counter() - start, 1),
            "versions": versions(),
            "tables": recorder.tables,
        }
        file.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
