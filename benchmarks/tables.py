"""A table of 10,000,000 rows and 20 columns into a `GDPTable`, part by part.

Ten Parquet files are made in a temporary folder; every third row is of the person
before it. Two worker processes, as an engine has, tally a file at a time, and the
tallies add up to one release. Beside it stands the least that a count without privacy
takes: the same workers read the same files with pyarrow and count each column's values.
"""

from __future__ import annotations

import multiprocessing
import secrets
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.common import Line, Options, account, peak_mib, seconds, show
from langchain_dpicl import tabular

ROWS, QUICK_ROWS, PARTS, WORKERS = 10_000_000, 500_000, 10, 2
WORDS = ("clerk", "nurse", "driver", "teacher")
TEXTS = [f"job_{i}" for i in range(10)]
NUMBERS = [f"amount_{i}" for i in range(10)]
UPPER = 1_000


def write(path: Path, part: int, rows: int) -> None:
    """Write one part, whose people are in no other."""
    rng = np.random.default_rng(part)
    words = np.array(WORDS)
    person = np.arange(rows) + part * rows
    person[np.arange(rows) % 3 == 2] -= 1
    columns: dict[str, Any] = {"person": person}
    columns |= {name: words[rng.integers(len(WORDS), size=rows)] for name in TEXTS}
    columns |= {name: rng.integers(UPPER, size=rows) for name in NUMBERS}
    pq.write_table(pa.table(columns), path)


def schema() -> tabular.TableSchema:
    """Return the public schema: the first column of words is the label."""
    words = [tabular.CategoricalColumn(name=name, values=WORDS) for name in TEXTS]
    numbers = [
        tabular.NumericColumn(name=name, kind="integer", lower=0, upper=UPPER, bins=4)
        for name in NUMBERS
    ]
    return tabular.TableSchema(label=TEXTS[0], columns=[*words, *numbers])


def tallied(key: bytes, path: Path) -> tuple[tabular.Tally, float]:
    """Tally a part; return the peak memory of this worker, too."""
    rows = pq.ParquetFile(path).iter_batches()
    stream = pa.RecordBatchReader.from_batches(pq.read_schema(path), rows)
    return tabular.tally(stream, schema(), key, unit_key="person"), peak_mib()


def counted(path: Path) -> tuple[int, float]:
    """Count each column's values in a part, without privacy."""
    read = pq.read_table(path, columns=[*TEXTS, *NUMBERS])
    return sum(len(pc.value_counts(column)) for column in read.columns), peak_mib()


def by_workers(work: Callable[[Path], Any], paths: list[Path]) -> list[Any]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(WORKERS, mp_context=context) as pool:
        return list(pool.map(work, paths))


def run(options: Options) -> None:
    """Print time and memory of both."""
    rows = QUICK_ROWS if options.quick else ROWS
    budget = account(4.0, 1e-9)
    found: dict[str, list[Any]] = {}

    def release() -> None:
        key = secrets.token_bytes(32)
        found["ours"] = by_workers(partial(tallied, key), paths)
        tallies = [one for one, _ in found["ours"]]
        table = tabular.GDPTable.from_tallies(
            tallies, schema(), budget=budget
        ).release()
        found["people"] = [table.statistics.total()[0]]

    def plain() -> None:
        found["theirs"] = by_workers(counted, paths)

    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{part}.parquet") for part in range(PARTS)]
        for part, path in enumerate(paths):
            write(path, part, rows // PARTS)
        ours, theirs = seconds(release), seconds(plain)
    # A fast wrong table is no figure: one row of each person takes part.
    people = PARTS * len(set(range(rows // PARTS)) - set(range(2, rows // PARTS, 3)))
    assert abs(found["people"][0] - people) < 1_000, (found["people"], people)
    ours_mib, theirs_mib = (max(mib for _, mib in found[x]) for x in ("ours", "theirs"))
    what = f"{rows:,} rows x 20, {PARTS} parts, {WORKERS} workers"
    show(
        "Tables",
        Line(f"{what}: time", ours, "pyarrow counts", theirs, "<= 60 s"),
        Line(
            f"{what}: peak of a worker",
            *(ours_mib, "pyarrow counts", theirs_mib),
            "<= 1,024 MiB",
            "MiB",
        ),
    )
