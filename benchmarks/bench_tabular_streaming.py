"""Memory and speed of reading a large private table from SQLite and from Parquet.

    python benchmarks/bench_tabular_streaming.py [--quick] [--rows N] [--parquet]

A SQLite file and a Parquet file of the same 10 million rows and 20 columns (--quick:
500,000), ten of categories and ten of numbers, are made in a temporary directory and
read by each consumer in a process of its own, whose peak of resident memory and CPU
seconds are reported. The targets are 1 GiB, and 60 s from Parquet. --parquet leaves
SQLite out.
"""

from __future__ import annotations

import argparse
import json
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.mechanisms import SecureRandom
from langchain_dpicl.tabular import (
    ArrowRows,
    CategoricalColumn,
    GDPTable,
    LDPTable,
    NumericColumn,
    TableSchema,
)
from langchain_dpicl.tabular.rows import Chunk, RowReader, SQLRows
from langchain_dpicl.tabular.schema import cells

ROWS = 10_000_000
QUICK_ROWS = 500_000
CHUNK = 100_000
WORDS = ("clerk", "nurse", "driver", "teacher")
TEXTS = tuple(f"job_{i}" for i in range(10))
NUMBERS = tuple(f"amount_{i}" for i in range(10))
COLUMNS = (*TEXTS, *NUMBERS)
UNIT = "person"
PARQUET = ".parquet"
TARGET_MIB = 1024.0
TARGET_SECONDS = 60
UPPER = 1000


def parts(rows: int) -> Iterator[list[list[Any]]]:
    """Yield the rows' columns in chunks; every third row is of the person before."""
    rng = np.random.default_rng(0)
    words = np.array(WORDS, dtype=object)
    for start in range(0, rows, CHUNK):
        size = min(CHUNK, rows - start)
        person = np.arange(start, start + size)
        person[person % 3 == 2] -= 1
        yield [
            person.tolist(),
            *(words[rng.integers(len(WORDS), size=size)].tolist() for _ in TEXTS),
            *(rng.integers(UPPER, size=size).tolist() for _ in NUMBERS),
        ]


def make_sqlite(path: Path, rows: int) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(
            f"CREATE TABLE people ({UNIT} INTEGER, "
            f"{', '.join(f'{name} TEXT' for name in TEXTS)}, "
            f"{', '.join(f'{name} INTEGER' for name in NUMBERS)})"
        )
        places = ", ".join("?" for _ in range(1 + len(COLUMNS)))
        for cells in parts(rows):
            connection.executemany(
                f"INSERT INTO people VALUES ({places})",  # noqa: S608 - names of ours
                zip(*cells, strict=True),
            )


def make_parquet(path: Path, rows: int) -> None:
    types = [pa.int64(), *(pa.string() for _ in TEXTS), *(pa.int64() for _ in NUMBERS)]
    schema = pa.schema(list(zip([UNIT, *COLUMNS], types, strict=True)))
    with pq.ParquetWriter(path, schema) as writer:
        for cells in parts(rows):
            writer.write_table(pa.table(cells, schema=schema))


def encode(chunk: Chunk) -> dict[str, NDArray[np.int64]]:
    """Turn words into codes and leave numbers alone: the least that can be done."""
    codes = {word: code for code, word in enumerate(WORDS)}
    encoded = {}
    for name in TEXTS:
        encoded[name] = cells.codes(chunk.columns[name], codes)
    for name in NUMBERS:
        encoded[name] = np.array(chunk.columns[name], dtype=np.int64)
    return encoded


def table_of(path: str, *, with_unit: bool) -> SQLRows | ArrowRows:
    names = [UNIT, *COLUMNS] if with_unit else list(COLUMNS)
    if path.endswith(PARQUET):
        return ArrowRows(path)
    return SQLRows(f"sqlite:///{path}", f"SELECT {', '.join(names)} FROM people")  # noqa: S608 - names of ours


def summed(reader: RowReader) -> int:
    """Read to the end and return how many rows took part."""
    return sum(len(block[COLUMNS[0]]) for block in reader.blocks())


def read_rows(path: str) -> int:
    """Each row is a unit; one in ten takes part."""
    return summed(
        RowReader(
            table_of(path, with_unit=False),
            COLUMNS,
            encode,
            unit_key=None,
            extra_columns="ignore",
            sampling_rate=0.1,
            random=SecureRandom(),
            progress=False,
        )
    )


def read_units(path: str, rate: float = 0.1) -> int:
    """People are units, with one row each; one in ten takes part."""
    return summed(
        RowReader(
            table_of(path, with_unit=True),
            COLUMNS,
            encode,
            unit_key=UNIT,
            sampling_rate=rate,
            random=SecureRandom(),
            progress=False,
        )
    )


def read_all_units(path: str) -> int:
    """The hardest case for memory: the rows of all people wait until the end."""
    return read_units(path, 1.0)


def public_schema() -> TableSchema:
    """Ten columns of words, the first of them the label, and ten of numbers."""
    words = [CategoricalColumn(name=name, values=WORDS) for name in TEXTS]
    numbers = [
        NumericColumn(name=name, kind="integer", lower=0, upper=UPPER, bins=4)
        for name in NUMBERS
    ]
    return TableSchema(label=TEXTS[0], columns=[*words, *numbers])


def account() -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(epsilon=4, delta=1e-9, queries=1, ledger=":memory:")


def gdp_rows(path: str) -> int:
    """Noisy statistics of groups by label; each row is a unit."""
    data = table_of(path, with_unit=False)
    table = GDPTable(
        data,
        public_schema(),
        budget=account(),
        extra_columns="ignore",
        progress=False,
    )
    return round(sum(size.value for size in table.release().statistics.sizes))


def gdp_units(path: str) -> int:
    """The same where people are units, one row of each taking part."""
    data = table_of(path, with_unit=True)
    table = GDPTable(
        data, public_schema(), budget=account(), unit_key=UNIT, progress=False
    )
    return round(sum(size.value for size in table.release().statistics.sizes))


def ldp_rows(path: str) -> int:
    """Every row checked, then randomized and counted: two passes."""
    data = table_of(path, with_unit=False)
    table = LDPTable(
        data,
        public_schema(),
        budget=account(),
        extra_columns="ignore",
        progress=False,
    )
    return table.release().n_reports


def ldp_units(path: str) -> int:
    """The same where people are units, one row of each being reported."""
    data = table_of(path, with_unit=True)
    table = LDPTable(
        data, public_schema(), budget=account(), unit_key=UNIT, progress=False
    )
    return table.release().n_reports


# A further consumer is a function from the file's path to a number of rows.
CONSUMERS: Mapping[str, Callable[[str], int]] = {
    "RowReader, each row a unit, q = 0.1": read_rows,
    "RowReader, people are units, q = 0.1": read_units,
    "RowReader, people are units, q = 1": read_all_units,
    "GDPTable, each row a unit": gdp_rows,
    "GDPTable, people are units": gdp_units,
    "LDPTable, each row a unit": ldp_rows,
    "LDPTable, people are units": ldp_units,
}


def measure(consumer: str, path: str) -> None:
    """Run one consumer here, and print its figures for the parent process."""
    start = time.perf_counter()
    taken = CONSUMERS[consumer](path)
    seconds = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_SELF)
    # In KiB on Linux, in bytes on macOS.
    mib = used.ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    cpu = used.ru_utime + used.ru_stime
    print(json.dumps({"taken": taken, "seconds": seconds, "cpu": cpu, "mib": mib}))


def measured(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for consumer in CONSUMERS:
        command = [sys.executable, __file__, "--consumer", consumer, "--file", path]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own file
        yield consumer, json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="500,000 rows")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--parquet", action="store_true", help="leave SQLite out")
    parser.add_argument("--consumer", help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.consumer:
        measure(options.consumer, options.file)
        return
    rows = options.rows or (QUICK_ROWS if options.quick else ROWS)
    table = Table(title=f"{rows:,} rows x {len(COLUMNS)} columns")
    headings = ("rows/s", "seconds", "CPU s", "took part", "peak MiB", "targets")
    table.add_column("consumer")
    table.add_column("from")
    for heading in headings:
        table.add_column(heading, justify="right")
    sources = [("people.parquet", "Parquet", make_parquet, TARGET_SECONDS)]
    if not options.parquet:
        sources.insert(0, ("people.db", "SQLite", make_sqlite, None))
    for name, source, make, most in sources:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            make(path, rows)
            for consumer, found in measured(path):
                is_slow = most is not None and found["seconds"] > most
                is_met = found["mib"] <= TARGET_MIB and not is_slow
                table.add_row(
                    consumer,
                    source,
                    f"{rows / found['seconds']:,.0f}",
                    f"{found['seconds']:,.1f}",
                    f"{found['cpu']:,.1f}",
                    f"{found['taken']:,}",
                    f"{found['mib']:,.0f}",
                    "met" if is_met else "MISSED",
                )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
