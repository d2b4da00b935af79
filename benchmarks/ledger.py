"""A charge, a draw and a look-up in accounts that hold ever more stored answers.

At each size stand the medians of `budget.buy` for an answer that nobody has asked for
(a charge), of `paid.once` (its draw) and of `budget.buy` for a stored one (a look-up),
beside the same at ten stored answers: an answer should not cost more as the account
grows. One per cent of a question that waits a second for its model is 10 ms. Two bare
one-row transactions with the ledger's settings are the least that a durable charge and
its draw can take.

Answers are filled in by the thousand in one transaction, as copies of the first.
"""

from __future__ import annotations

import itertools
import sqlite3
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.common import (
    Line,
    Options,
    account,
    in_turn,
    postgres,
    seconds,
    show,
)
from langchain_dpicl.accounting import Cost
from langchain_dpicl.budget import Paid, place_of
from langchain_dpicl.ledger.book import CHARGED, Transaction
from langchain_dpicl.mechanisms import voting

SIZES, QUICK_SIZES = (10, 1_000, 100_000), (10, 100)
FILLED_AT_ONCE = 1_000
ROW = "x" * 500
"""About as long as a charge or a stored draw."""


class Answers:
    """An account, and the answers that it has stored."""

    def __init__(self, ledger: str) -> None:
        self._budget = account(
            *(1e9, 1e-6), queries=200_000, ledger=ledger, account=uuid4().hex
        )
        self.stored = 0
        self._numbers = itertools.count()
        self._paid = self._buy(f"question {next(self._numbers)}")
        self.draw()
        entries = self._budget.ledger.entries(self._budget.account)
        self._bodies = {entry["kind"]: entry["body"] for entry in entries}

    def charge(self) -> None:
        self._paid = self._buy(f"question {next(self._numbers)}")

    def draw(self) -> None:
        self._paid.once(lambda: {"status": "released", "text": "yes", "votes": [40, 3]})
        self.stored += 1

    def look_up(self) -> None:
        assert self._buy("question 0").is_again

    def fill(self, size: int) -> None:
        while self.stored < size:
            count = min(FILLED_AT_ONCE, size - self.stored)
            self._budget.ledger.run(partial(self._copy, count))

    def _buy(self, key: str) -> Paid:
        return self._budget.buy(voting.charge(), key=key)

    def _copy(self, count: int, transaction: Transaction) -> None:
        book = transaction.load("account", self._budget.account, "alone")
        charge, drawn = self._bodies["charge"], self._bodies["draw"]
        for _ in range(count):
            place = {"charge": book.used + 1, "at": book.at}
            key = place_of(f"question {next(self._numbers)}")
            paid: dict[str, Any] = {**place, "step": CHARGED, "key": key}
            cost = Cost(*charge["cost"])
            book = transaction.append(book, "charge", charge, cost=cost, **paid)
            book = transaction.append(book, "draw", drawn, step=0, **place)
            self.stored += 1


def lines(where: str, ledger: str, sizes: tuple[int, ...], runs: int) -> Iterator[Line]:
    """Yield the figures of one ledger, size by size."""
    answers = Answers(ledger)
    first: list[float] = []
    for size in sizes:
        answers.fill(size)
        taken = [
            [seconds(answers.charge), seconds(answers.draw), seconds(answers.look_up)]
            for _ in range(runs)
        ]
        medians = [statistics.median(times) for times in zip(*taken, strict=True)]
        first = first or medians
        for what, time, before in zip(
            ("charge", "draw", "look-up"), medians, first, strict=True
        ):
            label = f"{where}, {size:,} stored: {what}"
            yield Line(label, time, "at 10 stored", before, "flat, <= 10 ms")


def bare_sqlite(folder: Path, runs: int) -> Line:
    """Return the time of two one-row transactions with the ledger's settings."""
    with closing(sqlite3.connect(folder / "bare.db", isolation_level=None)) as bare:
        bare.execute("PRAGMA journal_mode=PERSIST")
        bare.execute("PRAGMA synchronous=EXTRA")
        bare.execute("CREATE TABLE row (id INTEGER PRIMARY KEY, text TEXT)")
        return two_rows(bare, "INSERT INTO row (text) VALUES (?)", runs)


def bare_postgres(url: str, runs: int) -> Line:
    """Return the time of two one-row transactions that are synced."""
    import psycopg

    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as bare:
        bare.execute("CREATE TABLE bare (id bigserial PRIMARY KEY, text text)")
        return two_rows(bare, "INSERT INTO bare (text) VALUES (%s)", runs)


def two_rows(bare: Any, insert: str, runs: int) -> Line:
    (taken,) = in_turn(runs, lambda: [bare.execute(insert, [ROW]) for _ in range(2)])
    return Line("two bare rows, durable", taken)


def run(options: Options) -> None:
    """Print a table for each kind of ledger."""
    sizes, runs = (QUICK_SIZES, 15) if options.quick else (SIZES, 51)
    show("In memory", *lines("memory", ":memory:", sizes, runs))
    with tempfile.TemporaryDirectory() as folder:
        bare = bare_sqlite(Path(folder), runs)
        file = f"sqlite:///{Path(folder, 'ledger.db')}"
        show("SQLite", *lines("SQLite", file, sizes, runs), bare)
    with postgres() as url:
        if url is not None:
            bare = bare_postgres(url, runs)
            show("PostgreSQL", *lines("PostgreSQL", url, sizes, runs), bare)
