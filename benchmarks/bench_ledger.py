"""Speed of charging a query: check, charge, and a charge that survives the process.

    python benchmarks/bench_ledger.py [--quick] [--dir DIR] [--url URL]

A durable charge can't be faster than the disk's sync. The reference is a bare loop of
one-row transactions through Python's own sqlite3 with the ledger's settings (a rollback
journal, synchronous=EXTRA: five syncs a transaction), with as many writers, on the same
disk and in turn with ours; the disk's bare sync is shown too. Threads of one process
share a commit, so that the last row, two processes of 32 threads as two workers of a
service are, can pass the reference. `--dir` says on which disk (default: the folder for
temporary files, which on some systems is memory).

A PostgreSQL server is started for the other rows, with its files where temporary files
go; `--url` names another one, whose tables stay there. Two references: rows of nobody,
whose commits share a sync; and the least that keeps one count for all, a counter and a
row in one statement, which wait for each other as charges of one account do. An account
of a corpus, which locks its corpus too, is compared with one without.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from multiprocessing.synchronize import Barrier
from pathlib import Path

from postgres_server import temporary_postgres
from rich.console import Console
from rich.table import Table

from langchain_dpicl import PrivacyBudgetHandler, VoteOutputParser, accounting
from langchain_dpicl.accounting import EventTemplate
from langchain_dpicl.ledger import CorpusTerms

QUERIES = 1_000_000
ROW = "x" * 120
"""As long as a charge's events."""

LEDGER_SETTINGS = "PRAGMA journal_mode=PERSIST", "PRAGMA synchronous=EXTRA"


@dataclass(frozen=True)
class Line:
    what: str
    ours: str
    against: str
    theirs: str
    ratio: float | None
    target: str = ""


def event_template() -> EventTemplate:
    return VoteOutputParser(labels=["yes", "no"]).event_template()


CORPUS = CorpusTerms("bench", "patient_id", epsilon=8, delta=1e-6)
THREADS = 32


def open_budget(
    url: str, account: str, corpus: CorpusTerms | None = None
) -> PrivacyBudgetHandler:
    """Open an account whose plan is fixed: the first admission calibrates it."""
    budget = PrivacyBudgetHandler(
        epsilon=8,
        delta=1e-6,
        queries=QUERIES,
        ledger=url,
        account=account,
        corpus=corpus,
    )
    budget.charge(event_template(), unit_key="patient_id")
    return budget


def seconds_each(call: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def memory_lines(count: int, rounds: int) -> list[Line]:
    budget = open_budget(":memory:", "bench")
    asked = event_template()
    lock = threading.Lock()
    state = {"used": 0}

    def counter() -> None:
        with lock:
            state["used"] += 1

    uses = iter(range(10, 10**9))

    def closed_form() -> float:
        return accounting.epsilon(40.0, 1e-6, uses=next(uses))

    ours, bare, form = [], [], []
    for _ in range(rounds):
        ours.append(
            seconds_each(
                lambda: budget.charge(asked, unit_key="patient_id"),
                count,
            )
        )
        bare.append(seconds_each(counter, count))
        form.append(seconds_each(closed_form, 200))
    mine = statistics.median(ours)
    what = "charge one query, in memory"
    return [
        Line(
            what,
            micro(mine),
            against,
            micro(theirs),
            mine / theirs,
            "<= 20 \N{MICRO SIGN}s",
        )
        for against, theirs in (
            ("a counter under a lock", statistics.median(bare)),
            ("epsilon of a new number of uses", statistics.median(form)),
        )
    ]


def disk_sync(folder: Path, count: int) -> float:
    """Return seconds for one appended block to reach the disk."""
    descriptor = os.open(folder / "sync", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    sync = getattr(os, "fdatasync", os.fsync)
    block = bytes(4096)
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        os.write(descriptor, block)
        sync(descriptor)
        taken.append(time.perf_counter() - start)
    os.close(descriptor)
    return statistics.median(taken)


def bare_connection(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=60, isolation_level=None)
    for setting in LEDGER_SETTINGS:
        connection.execute(setting)
    return connection


def bare_writer(path: str, count: int) -> Callable[[], None]:
    connection = bare_connection(Path(path))

    def write() -> None:
        for _ in range(count):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO charge (events) VALUES (?)", (ROW,))
            connection.execute("COMMIT")
        connection.close()

    return write


def our_writer(
    url: str, count: int, corpus: CorpusTerms | None = None
) -> Callable[[], None]:
    budget = open_budget(url, "of a corpus" if corpus else "bench", corpus)
    asked = event_template()

    def write() -> None:
        for _ in range(count):
            budget.charge(asked, unit_key="patient_id")

    return write


def our_threads(url: str, count: int) -> Callable[[], None]:
    write = our_writer(url, count // THREADS)

    def all_write() -> None:
        by_threads(write, THREADS)

    return all_write


def by_threads(write: Callable[[], None], writers: int) -> float:
    threads = [threading.Thread(target=write) for _ in range(writers)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - start


def _process(
    make: Callable[..., Callable[[], None]], place: str, count: int, barrier: Barrier
) -> None:
    write = make(place, count)
    barrier.wait()
    write()
    barrier.wait()


def by_processes(
    make: Callable[..., Callable[[], None]], place: str, count: int, writers: int
) -> float:
    """Return the time from when all are ready until all are done."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(writers + 1)
    workers = [
        context.Process(target=_process, args=(make, place, count, barrier))
        for _ in range(writers)
    ]
    for worker in workers:
        worker.start()
    barrier.wait()
    start = time.perf_counter()
    barrier.wait()
    taken = time.perf_counter() - start
    for worker in workers:
        worker.join()
    return taken


def sqlite_lines(folder: Path, count: int, rounds: int) -> list[Line]:
    url, path = f"sqlite:///{folder / 'ledger.db'}", folder / "bare.db"
    open_budget(url, "bench").ledger.dispose()
    connection = bare_connection(path)
    connection.execute("CREATE TABLE charge (id INTEGER PRIMARY KEY, events TEXT)")
    connection.close()

    def bare_by_threads(writers: int) -> float:
        def write() -> None:
            # sqlite3's connections belong to the thread that opens them.
            bare_writer(str(path), count // writers)()

        return by_threads(write, writers)

    kinds: list[tuple[str, Callable[[], float], Callable[[], float]]] = [
        (
            "1 thread",
            lambda: by_threads(our_writer(url, count), 1),
            lambda: bare_by_threads(1),
        ),
        (
            "4 threads",
            lambda: by_threads(our_writer(url, count // 4), 4),
            lambda: bare_by_threads(4),
        ),
        (
            "2 processes",
            lambda: by_processes(our_writer, url, count // 2, 2),
            lambda: by_processes(bare_writer, str(path), count // 2, 2),
        ),
        (
            f"2 processes of {THREADS} threads",
            lambda: by_processes(our_threads, url, -(-count // 64) * 32, 2),
            lambda: by_processes(bare_writer, str(path), count // 2, 2),
        ),
    ]
    lines = []
    for kind, ours, bare in kinds:
        mine, theirs = [], []
        for _ in range(rounds):
            mine.append(count / ours())
            theirs.append(count / bare())
        lines.append(
            rates(
                f"charge, durable in SQLite, {kind}",
                statistics.median(mine),
                "bare sqlite3 INSERT, as many writers",
                statistics.median(theirs),
                ">= 1,000/s",
            )
        )
    return lines


def rates(what: str, ours: float, against: str, theirs: float, target: str) -> Line:
    return Line(
        what, f"{ours:,.0f}/s", against, f"{theirs:,.0f}/s", ours / theirs, target
    )


BARE_TABLES = (
    "CREATE TABLE IF NOT EXISTS bare (id bigserial PRIMARY KEY, events text)",
    "CREATE TABLE IF NOT EXISTS bare_count (id int PRIMARY KEY, used bigint)",
    "INSERT INTO bare_count VALUES (1, 0) ON CONFLICT DO NOTHING",
)
BARE_ROW = "INSERT INTO bare (events) VALUES (%s)"
BARE_COUNT = (
    "WITH counted AS (UPDATE bare_count SET used = used + 1 RETURNING id) "
    "INSERT INTO bare (events) SELECT %s FROM counted"
)


def bare_server_writer(statement: str, url: str, count: int) -> Callable[[], None]:
    import psycopg

    connection = psycopg.connect(url.replace("+psycopg", ""), autocommit=True)
    connection.execute("SET synchronous_commit = on")

    def write() -> None:
        for _ in range(count):
            connection.execute(statement, (ROW,))
        connection.close()

    return write


def server_lines(url: str, count: int, rounds: int) -> list[Line]:
    import psycopg

    open_budget(url, "bench").ledger.dispose()
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        for statement in BARE_TABLES:
            connection.execute(statement)
    makers: dict[str, Callable[..., Callable[[], None]]] = {
        "ours": our_writer,
        "corpus": partial(our_writer, corpus=CORPUS),
        "rows": partial(bare_server_writer, BARE_ROW),
        "counts": partial(bare_server_writer, BARE_COUNT),
    }
    lines = []
    for processes, target in ((1, ""), (8, ">= 500/s in all")):
        found: dict[str, list[float]] = {kind: [] for kind in makers}
        each = count // processes
        for _ in range(rounds):
            for kind, make in makers.items():
                seconds = by_processes(make, url, each, processes)
                found[kind].append(each * processes / seconds)
        ours = statistics.median(found["ours"])
        what = f"charge, durable in PostgreSQL, {processes} on 1 account"
        lines += [
            rates(what, ours, against, statistics.median(found[kind]), target)
            for kind, against in (
                ("rows", "bare INSERT, as many processes"),
                ("counts", "bare counter and INSERT, as many"),
            )
        ]
        corpus = statistics.median(found["corpus"])
        lines.append(
            rates(f"{what} of a corpus", corpus, "the same without one", ours, target)
        )
    return lines


def micro(seconds: float) -> str:
    return f"{1e6 * seconds:,.2f} \N{MICRO SIGN}s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    parser.add_argument("--dir", help="where the SQLite files go")
    parser.add_argument("--url", help="a PostgreSQL database to use")
    arguments = parser.parse_args()
    rounds, memory, durable = (3, 5_000, 400) if arguments.quick else (7, 20_000, 2_000)

    table = Table("figure", "ours", "compared with", "theirs", "ratio", "target")
    lines = memory_lines(memory, rounds)
    with tempfile.TemporaryDirectory(dir=arguments.dir) as name:
        lines += sqlite_lines(Path(name), durable, rounds)
        sync = disk_sync(Path(name), 200)
    with nullcontext(arguments.url) if arguments.url else temporary_postgres() as url:
        if url is not None:
            lines += server_lines(url, durable, rounds)
    for line in lines:
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
        table.add_row(
            line.what, line.ours, line.against, line.theirs, ratio, line.target
        )
    console = Console(width=140)
    console.print(table)
    console.print(
        f"One synced 4 KiB write on this disk: {1e3 * sync:.2f} ms, "
        f"{1 / sync:,.0f}/s at most."
    )


if __name__ == "__main__":
    main()
