"""Which test holds which promise, read from the tests' markers; nothing is imported."""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TESTS = Path(__file__).parent
TABLE = TESTS / "attacks.csv"


class Held(NamedTuple):
    """One marker of a test."""

    id: str
    test: str
    twin: bool


def held() -> Iterator[Held]:
    """Yield each promise that a test is marked with, those of the net first."""
    for folder in ("unit_tests", "integration_tests", "mechanisms", "parsers"):
        for path in sorted((TESTS / folder).rglob("test_*.py")):
            name = path.relative_to(TESTS).as_posix()
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                for mark in getattr(node, "decorator_list", []):
                    if not isinstance(mark, ast.Call) or not ast.unparse(
                        mark.func
                    ).endswith("mark.promise"):
                        continue
                    twin = any(keyword.arg == "twin" for keyword in mark.keywords)
                    for argument in mark.args:
                        test = f"{name}::{getattr(node, 'name', '')}"
                        yield Held(ast.literal_eval(argument), test, twin)


def table() -> list[dict[str, str]]:
    """Read the table of promises and attacks: id, promise, source, test, twin."""
    return list(csv.DictReader(TABLE.read_text("utf-8").splitlines()))


def fill() -> None:
    """Write the first test and twin of each promise into the table."""
    found = list(held())
    rows = table()
    for row in rows:
        for column, twin in (("test", False), ("twin", True)):
            tests = [h.test for h in found if h.id == row["id"] and h.twin is twin]
            row[column] = tests[0] if tests else ""
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    fill()
