"""A charge, its draw and a look-up in accounts that hold ever more stored answers.

A chain of two groups asks a model that answers at once, in an account that keeps its
answers. At each size stand the median of a question that nobody has asked (a charge, a
draw, both stored) and of one that is stored (a look-up alone), beside the same at ten
stored answers: an answer should not cost more as the account grows. One per cent of a
question that waits a second for its model is 10 ms. Two bare one-row transactions with
the ledger's settings are the least that a durable charge and its draw can take.

Answers are filled in by asking, for three minutes at most.
"""

from __future__ import annotations

import itertools
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel

from benchmarks.common import (
    CONSOLE,
    Line,
    Options,
    account,
    in_turn,
    postgres,
    seconds,
    show,
)
from langchain_dpicl import DPChain, RetrievedGroups, VoteOutputParser
from langchain_dpicl.offline import HashingEmbeddings

SIZES, QUICK_SIZES = (10, 1_000, 100_000), (10, 100, 500)
MOST_SECONDS = 180.0
ROW = "x" * 500
"""About as long as a charge or a stored draw."""


class Questions:
    """A chain that keeps its answers, and questions that nobody has asked it yet."""

    def __init__(self, ledger: str) -> None:
        documents = [Document(f"note {i}", metadata={"unit": i}) for i in range(40)]
        self._chain = DPChain(
            groups=RetrievedGroups.from_documents(
                documents, HashingEmbeddings(), unit_key="unit", n_groups=2
            ),
            model=FakeListChatModel(responses=["yes"]),
            parser=VoteOutputParser(labels=["yes", "no"]),
            budget=account(
                *(1e9, 1e-6), queries=200_000, ledger=ledger, account=uuid4().hex
            ),
            cache=True,
        )
        self.asked = 0
        self._numbers = itertools.count()

    def new(self) -> str:
        self.asked += 1
        return self._ask(f"Question {next(self._numbers)}?")

    def stored(self) -> None:
        assert self._ask("Question 0?") == "cached"

    def _ask(self, question: str) -> str:
        answer: Any = self._chain.invoke(question)
        return str(answer.response_metadata["privacy"]["status"])

    def fill(self, size: int, until: float) -> bool:
        """Ask until so many answers are stored; return whether there was time."""
        while self.asked < size and time.monotonic() < until:
            self.new()
        return self.asked >= size


def lines(where: str, ledger: str, sizes: tuple[int, ...], runs: int) -> Iterator[Line]:
    """Yield the figures of one ledger, size by size."""
    questions = Questions(ledger)
    until = time.monotonic() + MOST_SECONDS
    first: tuple[float, float] | None = None
    for size in sizes:
        if not questions.fill(size, until):
            CONSOLE.print(f"{where}: {questions.asked:,} answers in three minutes.")
            size = questions.asked  # noqa: PLW2901 - what was reached stands there
        new = statistics.median(seconds(questions.new) for _ in range(runs))
        again = statistics.median(seconds(questions.stored) for _ in range(runs))
        first = first or (new, again)
        what = f"{where}, {size:,} stored:"
        yield Line(f"{what} new", new, "at 10 stored", first[0], "flat, <= 10 ms")
        yield Line(f"{what} found", again, "at 10 stored", first[1], "flat, <= 10 ms")
        if size < sizes[-1] and questions.asked < size:
            return


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
