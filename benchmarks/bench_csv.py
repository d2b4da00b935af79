"""Rows a second and peak memory of a private table out of a file of text.

Run `python benchmarks/bench_csv.py [--quick] [--rows N]`. It writes a file of 20
columns and reads it, in a process of its own for each reader: bare, and with every
cell encoded by the schema, as a release does. `pandas.read_csv(dtype=str)` is the sound
way through a frame: text, whose numbers are turned into numbers column by column. Rows
are counted by seconds of the processor, since the machine may be shared.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from bench_tabular_streaming import COLUMNS, NUMBERS, TEXTS, UPPER, WORDS, public_schema
from rich.console import Console
from rich.table import Table

from langchain_dpicl.tabular import CSVRows, JSONRows
from langchain_dpicl.tabular.rows import CHUNK_SIZE, read_chunks

ROWS, QUICK_ROWS = 300_000, 50_000


def make_files(folder: Path, rows: int) -> None:
    rng = np.random.default_rng(1)
    words = np.array(WORDS)
    with (
        (folder / "people.csv").open("w", newline="") as text,
        (folder / "people.jsonl").open("w") as lines,
    ):
        writer = csv.writer(text)
        writer.writerow(COLUMNS)
        for start in range(0, rows, CHUNK_SIZE):
            size = min(CHUNK_SIZE, rows - start)
            cells = [
                *(words[rng.integers(len(WORDS), size=size)].tolist() for _ in TEXTS),
                *(rng.integers(UPPER, size=size).tolist() for _ in NUMBERS),
            ]
            for row in zip(*cells, strict=True):
                writer.writerow(row)
                lines.write(json.dumps(dict(zip(COLUMNS, row, strict=True))) + "\n")


def csv_rows(folder: Path) -> Any:
    return CSVRows(folder / "people.csv")


def csv_lines(folder: Path) -> Any:
    return CSVRows(folder / "people.csv", multiline=False)


def json_rows(folder: Path) -> Any:
    return JSONRows(folder / "people.jsonl")


def pandas_text(folder: Path) -> Any:
    import pandas as pd

    frame = pd.read_csv(folder / "people.csv", dtype=str, keep_default_na=False)
    for name in NUMBERS:
        frame[name] = pd.to_numeric(frame[name])
    return frame


def pandas_chunks(folder: Path) -> Iterator[Any]:
    import pandas as pd

    for frame in pd.read_csv(
        folder / "people.csv", dtype=str, keep_default_na=False, chunksize=CHUNK_SIZE
    ):
        for name in NUMBERS:
            frame[name] = pd.to_numeric(frame[name])
        yield frame


READERS: Mapping[str, Callable[[Path], Any]] = {
    "CSVRows": csv_rows,
    "CSVRows, multiline=False": csv_lines,
    "JSONRows": json_rows,
    "pandas.read_csv(dtype=str)": pandas_text,
    "the same, chunksize=50_000": pandas_chunks,
}


def measure(reader: str, folder: Path) -> None:
    """Read to the end, bare and encoded, and print the figures for the parent."""
    schema = public_schema()
    seconds = []
    for encodes in (False, True):
        start = time.process_time()
        for chunk in read_chunks(READERS[reader](folder), COLUMNS):
            for column in schema.columns if encodes else ():
                column.codes(chunk.columns[column.name])
        seconds.append(time.process_time() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # In KiB on Linux, in bytes on macOS.
    mib = peak / (2**20 if sys.platform == "darwin" else 2**10)
    print(json.dumps({"seconds": seconds, "mib": mib}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="50,000 rows")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--reader", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reader:
        measure(options.reader, Path(options.folder))
        return
    rows = options.rows or (QUICK_ROWS if options.quick else ROWS)
    table = Table(title=f"{rows:,} rows x {len(COLUMNS)} columns")
    for heading in ("reader", "read, rows/s", "and encoded, rows/s", "peak MiB"):
        table.add_column(heading, justify="left" if heading == "reader" else "right")
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder), rows)
        for reader in READERS:
            command = [sys.executable, __file__, "--reader", reader, "--folder", folder]
            done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own file
            found = json.loads(done.stdout.splitlines()[-1])
            speeds = (f"{rows / seconds:,.0f}" for seconds in found["seconds"])
            table.add_row(reader, *speeds, f"{found['mib']:,.0f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
