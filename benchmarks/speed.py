"""The speed table: every target, its figure, its reference, met or missed, in one run.

    python benchmarks/speed.py [--quick] [--only WORD ...] [--json FILE]

Each row of `speed_targets.csv` is read out of the table of the benchmark that measures
it, where figure and reference take turns in one process. The exit status is 1 where a
target is missed, so that a change can be held against the table before it lands.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

FOLDER = Path(__file__).parent
UNITS = {"ns": 1e-9, "us": 1e-6, "\N{MICRO SIGN}s": 1e-6, "ms": 1e-3, "s": 1.0}
HEADINGS = {
    "ours": ("ours", "time", "here", "one draw", "seconds"),
    "ratio": ("ours / theirs", "ratio", "against the faster plain"),
}
"""How the tables head the column of a figure, and that of a ratio."""

NUMBER = re.compile(r"(-?[\d,]*\.?\d+(?:e[+-]?\d+)?)\s*([^\s;]*)")


@dataclass(frozen=True)
class Row:
    """One target.

    Attributes:
        what: The row of the speed table.
        script: The benchmark that measures it.
        line: What the first cell of its line matches.
        column: One of `HEADINGS`, or the heading of the figure's column.
        limit: The target: seconds, a ratio, MiB, or a number a second.
        at_least: Whether more is better.
        options: What the script is given besides.
    """

    what: str
    script: str
    line: str
    column: str
    limit: float
    at_least: bool = False
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Found:
    """What was measured for a row; `figure` is None where no line matched."""

    what: str
    script: str
    line: str
    figure: float | None
    shown: str
    reference: str
    target: str
    met: bool


def targets() -> list[Row]:
    """Return the rows of `speed_targets.csv`."""
    with (FOLDER / "speed_targets.csv").open(encoding="utf-8", newline="") as file:
        return [
            Row(
                line["what"],
                line["script"],
                line["line"],
                line["column"],
                float(line["limit"]),
                at_least=line["sign"] == ">=",
                options=tuple(line["options"].split()),
            )
            for line in csv.DictReader(file)
        ]


def value(text: str) -> float | None:
    """Return the first number of a cell, in seconds where it has a unit of time."""
    match = NUMBER.search(text)
    if match is None:
        return None
    return float(match[1].replace(",", "")) * UNITS.get(match[2].strip(",:"), 1.0)


def lines(table: dict[str, Any], row: Row) -> Iterator[tuple[str, str, str]]:
    """Yield the name, the figure and the reference of each line that fits a row."""
    heads = table["columns"]
    wanted = HEADINGS.get(row.column, (row.column,))
    columns = [at for at, head in enumerate(heads) if head in wanted]
    others = [
        at for at, head in enumerate(heads) if head in {"theirs", "compared with"}
    ]
    for cells in table["rows"]:
        if columns and re.search(row.line, cells[0]):
            reference = " ".join(cells[at] for at in others)
            yield cells[0], cells[columns[0]], reference


def found(row: Row, tables: Sequence[dict[str, Any]]) -> Iterator[Found]:
    """Yield what a benchmark's tables say of a row."""
    sign = ">=" if row.at_least else "<="
    target = f"{sign} {row.limit:g}"
    any_line = False
    for table in tables:
        for name, shown, reference in lines(table, row):
            figure = value(shown)
            if figure is None:
                continue
            any_line = True
            met = figure >= row.limit if row.at_least else figure <= row.limit
            yield Found(
                row.what, row.script, name, figure, shown, reference, target, met
            )
    if not any_line:
        yield Found(row.what, row.script, "", None, "not measured", "", target, False)


def measured(script: str, options: Sequence[str], *, quick: bool) -> dict[str, Any]:
    """Run a benchmark; return what it printed, or no tables where it failed."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "found.json")
        recorder = str(FOLDER / "recorded_tables.py")
        command = [sys.executable, recorder, "--record", str(file), script, *options]
        text = (FOLDER / f"{script}.py").read_text("utf-8")
        if quick and '"--quick"' in text:
            command.append("--quick")
        done = subprocess.run(command, check=False, stdout=subprocess.DEVNULL)  # noqa: S603 - our own
        if done.returncode or not file.exists():
            return {"tables": [], "versions": {}}
        return dict(json.loads(file.read_text("utf-8")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller runs")
    parser.add_argument("--only", nargs="+", help="rows that hold one of these words")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    rows = [
        row
        for row in targets()
        if not options.only or any(word in row.what for word in options.only)
    ]
    results: list[Found] = []
    versions: dict[str, Any] = {}
    console = Console(width=160)
    for asked in dict.fromkeys((row.script, row.options) for row in rows):
        console.print(f"Running {asked[0]} ...", style="dim")
        ran = measured(*asked, quick=options.quick)
        versions = versions or ran["versions"]
        for row in rows:
            if (row.script, row.options) == asked:
                results += found(row, ran["tables"])
    table = Table("what", "figure", "target", "", "compared with", "line")
    for one in results:
        verdict = "met" if one.met else "MISSED"
        table.add_row(one.what, one.shown, one.target, verdict, one.reference, one.line)
    console.print(table)
    if options.json is not None:
        kept = {"versions": versions, "rows": [asdict(one) for one in results]}
        options.json.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")
    return 0 if all(one.met for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
