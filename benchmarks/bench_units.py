"""Speed and size of per-unit accounts: 200 eligible units among 1,000,000.

    python benchmarks/bench_units.py [--quick] [--dir DIR]

A bulk charge in memory, of units that an index hands over by number, is compared with
one by their ids, and that with the bare look-up of the same ids in a dictionary; a
durable one with an upsert of as many rows through the bare driver, on the same table
with the same commit. Sizes are what a unit adds to the process and to the database's
files. `--quick` takes 100,000 units.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psycopg
from bench_ledger import micro
from numpy.typing import NDArray
from postgres_server import temporary_postgres
from rich.console import Console
from rich.table import Table

from langchain_dpicl.accounting import Gaussian
from langchain_dpicl.common.units import NumberedUnits
from langchain_dpicl.ledger import (
    AccountTerms,
    Ledger,
    MemoryLedger,
    Plan,
    SQLLedger,
)
from langchain_dpicl.ledger.balances import unit_tag

ELIGIBLE = 200
CHUNK = 50_000
TERMS = AccountTerms("bench", 8.0, 1e-6, 1_000_000, scope="unit")
PLAN = Plan({"parts": []}, (Gaussian(4.0),))
ROWS = ", ".join(["(1, ?, 1, 0)"] * ELIGIBLE)
BARE = (
    "INSERT INTO dpicl_unit (account_id, tag, loss, failure) {rows} "
    "ON CONFLICT (account_id, tag) DO UPDATE SET loss = dpicl_unit.loss + 1"
)


@dataclass(frozen=True)
class Line:
    what: str
    ours: str
    against: str
    theirs: str
    target: str = ""


def filled(ledger: Ledger, ids: Sequence[str]) -> Ledger:
    """Open an account of which every unit has paid something."""
    ledger.open(TERMS)
    ledger.fix_plan(TERMS.name, PLAN)
    charge = ledger.charge(TERMS.name)
    for first in range(0, len(ids), CHUNK):
        ledger.charge_units(charge, ids[first : first + CHUNK])
    return ledger


def median_seconds(
    uses: Sequence[Callable[[list[str]], object]], ids: Sequence[str], count: int
) -> list[float]:
    """Return what each use takes, in turn and each with other units."""
    chosen = random.Random(7)
    taken: list[list[float]] = [[] for _ in uses]
    for _ in range(count):
        for use, seconds in zip(uses, taken, strict=True):
            eligible = chosen.sample(ids, ELIGIBLE)
            # Whoever found them eligible has just read them.
            set(eligible)
            start = time.perf_counter()
            use(eligible)
            seconds.append(time.perf_counter() - start)
    return [statistics.median(seconds) for seconds in taken]


class Index:
    """What numbers units: one snapshot of an index."""


def numbered(
    index: object, ids: Sequence[str], numbers: NDArray[np.int64]
) -> NumberedUnits:
    """Return units as an index of ours hands them to the ledger."""
    return NumberedUnits(
        index, len(ids), numbers, lambda: [ids[place] for place in numbers.tolist()]
    )


def memory_lines(ids: Sequence[str], count: int) -> list[Line]:
    tracemalloc.start()
    ledger = MemoryLedger()
    before = tracemalloc.get_traced_memory()[0]
    filled(ledger, ids)
    first = tracemalloc.get_traced_memory()[0] - before
    second_terms = AccountTerms("second", 8.0, 1e-6, 1_000_000, scope="unit")
    ledger.open(second_terms)
    ledger.fix_plan("second", PLAN)
    charge = ledger.charge("second")
    before = tracemalloc.get_traced_memory()[0]
    ledger.charge_units(charge, ids)
    second = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    charge = ledger.charge(TERMS.name)
    known = {unit: number for number, unit in enumerate(ids)}
    index = Index()
    ledger.charge_units(charge, numbered(index, ids, np.arange(len(ids))))
    ours, bare = median_seconds(
        [
            lambda units: ledger.charge_units(charge, units),
            lambda units: [known[unit] for unit in units],
        ],
        ids,
        count,
    )
    chosen, taken = np.random.default_rng(7), []
    for _ in range(count):
        places = chosen.choice(len(ids), ELIGIBLE, replace=False)
        units = numbered(index, ids, np.sort(places))
        start = time.perf_counter()
        ledger.charge_units(charge, units)
        taken.append(time.perf_counter() - start)
    return [
        Line(
            "charge 200 units of an index, in memory",
            micro(statistics.median(taken)),
            "the same by their ids",
            micro(ours),
            "<= 50 \N{MICRO SIGN}s",
        ),
        Line(
            "charge 200 units by ids, in memory",
            micro(ours),
            "their look-up in a dictionary",
            micro(bare),
        ),
        Line(
            "bytes a unit, in memory",
            f"{second / len(ids):.1f} an account",
            "the ids' numbers, once for all accounts",
            f"{(first - second) / len(ids):.0f}",
            "a few",
        ),
    ]


def durable_lines(
    name: str,
    ledger: Ledger,
    ids: Sequence[str],
    count: int,
    bare: Callable[[list[bytes]], object],
    size: Callable[[], int],
) -> list[Line]:
    filled(ledger, ids)
    # A neighbor of the same size, so that both meet the same tree.
    bare_key = bytes(32)
    for first in range(0, len(ids), ELIGIBLE):
        bare([unit_tag(bare_key, unit) for unit in ids[first : first + ELIGIBLE]])

    def ours(units: list[str]) -> None:
        ledger.charge_units(charge, units)

    def theirs(units: list[str]) -> None:
        bare(sorted(unit_tag(bare_key, unit) for unit in units))

    charge = ledger.charge(TERMS.name)
    mine, reference, admitted = median_seconds(
        [ours, theirs, lambda _units: ledger.charge(TERMS.name)], ids, count
    )
    start = time.perf_counter()
    ledger.verify(TERMS.name)
    verified = time.perf_counter() - start
    return [
        Line(
            f"charge 200 units, durable in {name}",
            milli(mine),
            "bare upsert of as many rows",
            milli(reference),
            "<= 10 ms",
        ),
        Line(
            f"verify journal and balances, {name}",
            f"{verified:.1f} s",
            "write one charge",
            milli(admitted),
        ),
        Line(f"bytes a unit, {name}", f"{size() / len(ids) / 2:.0f}", "", "", "a few"),
    ]


def milli(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms"


def sqlite_lines(folder: Path, ids: Sequence[str], count: int) -> list[Line]:
    path = folder / "ledger.db"
    ledger = SQLLedger(f"sqlite:///{path}")
    ledger.open(AccountTerms("neighbor", 8.0, 1e-6, 1))  # number 1
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for setting in ("synchronous=EXTRA", "journal_mode=PERSIST"):
            connection.execute(f"PRAGMA {setting}")
        statement = BARE.format(rows=f"VALUES {ROWS}")

        def bare(tags: list[bytes]) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(statement, tags)
            connection.execute("COMMIT")

        def size() -> int:
            return path.stat().st_size

        lines = durable_lines("SQLite", ledger, ids, count, bare, size)
        ledger.dispose()
    return lines


def postgres_lines(url: str, ids: Sequence[str], count: int) -> list[Line]:
    ledger = SQLLedger(url)
    ledger.open(AccountTerms("neighbor", 8.0, 1e-6, 1))  # number 1
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        statement = BARE.format(rows="SELECT 1, unnest(%s::bytea[]), 1, 0")

        def bare(tags: list[bytes]) -> None:
            connection.execute(statement, (tags,))

        def size() -> int:
            found = connection.execute("SELECT pg_total_relation_size('dpicl_unit')")
            row = found.fetchone()
            return int(row[0]) if row else 0

        lines = durable_lines("PostgreSQL", ledger, ids, count, bare, size)
    ledger.dispose()
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100,000 units")
    parser.add_argument("--dir", help="where the SQLite file goes")
    arguments = parser.parse_args()
    units, count = (100_000, 30) if arguments.quick else (1_000_000, 100)
    ids = [f"patient-{number:07}" for number in range(units)]

    lines = memory_lines(ids, 20 * count)
    with tempfile.TemporaryDirectory(dir=arguments.dir) as name:
        lines += sqlite_lines(Path(name), ids, count)
    with temporary_postgres() as url:
        if url is not None:
            lines += postgres_lines(url, ids, count)
    table = Table("figure", "ours", "compared with", "theirs", "target")
    for line in lines:
        table.add_row(line.what, line.ours, line.against, line.theirs, line.target)
    console = Console(width=140)
    console.print(f"{units:,} units, {ELIGIBLE} eligible.")
    console.print(table)


if __name__ == "__main__":
    main()
