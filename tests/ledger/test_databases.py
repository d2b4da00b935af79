"""Files, servers and URLs: what is used, what is refused, and how long is waited."""

from __future__ import annotations

import logging
import pickle
import re
import shutil
import sqlite3
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.ledgers import PLANNED, VOTE, account_of
from support.postgres import PostgresServer
from unit_tests.ledger.faults import listening

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.errors import BudgetExhaustedError, LedgerError
from langchain_dpicl.ledger import (
    CorpusTerms,
    Ledger,
    backup_ledger,
    engine,
    new_ledger,
    open_ledger,
)
from langchain_dpicl.ledger.book import Transaction

# ---- Files ---------------------------------------------------------------------------


def opened(ledger: Ledger, name: str = "notes", **terms: Any) -> PrivacyBudgetHandler:
    return account_of(ledger, PLANNED.model_copy(update={"name": name, **terms}))


def charge(ledger: Ledger, name: str = "notes", **terms: Any) -> int:
    return opened(ledger, name, **terms).buy(VOTE, unit_key="patient").charge


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as beside:
        for statement in statements:
            beside.execute(statement)


def test_an_older_copy_that_has_grown_is_refused_by_who_has_seen_the_newer(
    file: Ledger, path: Path, folder: Path
) -> None:
    opened(file)
    charge(file)
    older = folder / "older.db"
    shutil.copyfile(path, older)
    charge(file)
    heads = file.heads()
    shutil.copyfile(older, path)  # The same file, with an older content.
    with pytest.raises(LedgerError, match="has forgotten"):
        charge(file)
    other = Ledger(f"sqlite:///{path}")
    charge(other)
    charge(other)
    with pytest.raises(LedgerError, match="has forgotten"):
        charge(file)
    other.verify()
    with pytest.raises(LedgerError, match="an older copy of the ledger was put back"):
        other.verify(heads=heads)
    other.dispose()


def test_a_link_to_a_file_is_that_file(file: Ledger, path: Path, folder: Path) -> None:
    opened(file)
    link = folder / "link.db"
    link.symlink_to(path)
    other = Ledger(f"sqlite:///{link}")
    assert charge(other) == 1
    assert charge(file) == 2
    other.dispose()


def test_a_ledger_is_made_once_and_complete(path: Path) -> None:
    url = f"sqlite:///{path}"

    def make(_: int) -> list[str]:
        ledger = Ledger(url)
        try:
            return ledger.accounts()
        finally:
            ledger.dispose()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(make, range(16))) == [[]] * 16
    names = {name.name for name in path.parent.iterdir()}
    assert names <= {path.name, f"{path.name}-journal"}
    with pytest.raises(LedgerError, match="already"):
        new_ledger(url)
    path.unlink()
    path.with_name(f"{path.name}-journal").write_bytes(b"what was to be rolled back")
    for make_new in (Ledger, new_ledger):
        with pytest.raises(LedgerError, match="there is its journal"):
            make_new(url)
    assert not path.exists()


def test_a_write_ahead_log_is_switched_over_or_refused(
    file: Ledger, path: Path
) -> None:
    opened(file)
    execute(path, "PRAGMA journal_mode=WAL")
    file.dispose()
    other = sqlite3.connect(path)
    other.execute("SELECT * FROM dpicl_meta").fetchall()
    with pytest.raises(LedgerError, match="write-ahead log"):
        charge(file)
    other.close()
    assert charge(file) == 1


def test_a_file_is_written_durably(file: Ledger) -> None:
    wanted = {"synchronous": 3, "journal_mode": "persist", "foreign_keys": 1}

    def read(transaction: Transaction) -> dict[str, Any]:
        ask = transaction.connection.exec_driver_sql
        return {name: ask(f"PRAGMA {name}").scalar() for name in wanted}

    assert file.run(read) == wanted


def test_a_server_makes_its_own_copy(folder: Path, postgres: PostgresServer) -> None:
    url = postgres.new_database()
    Ledger(url).dispose()
    with pytest.raises(LedgerError, match="pg_dump"):
        backup_ledger(url, folder / "server.db")
    assert not [*folder.iterdir()]


# ---- Servers -------------------------------------------------------------------------


@pytest.fixture
def server(postgres: PostgresServer) -> Any:
    ledger = Ledger(postgres.new_database())
    opened(ledger)
    yield ledger
    ledger.dispose()


def setting(transaction: Transaction, name: str) -> str:
    text = f"SELECT current_setting('{name}')"
    return str(transaction.connection.exec_driver_sql(text).scalar())


@pytest.mark.parametrize(
    ("asked", "holds"), [("off", "on"), ("local", "on"), ("remote_apply",) * 2]
)
def test_nothing_makes_a_commit_weaker_and_waits_have_limits(
    postgres: PostgresServer, asked: str, holds: str
) -> None:
    ledger = Ledger(postgres.new_database() + f"%20-csynchronous_commit%3D{asked}")
    wanted = {
        "synchronous_commit": holds,
        "lock_timeout": "30s",
        "statement_timeout": "1min",
    }
    assert ledger.run(lambda t: {n: setting(t, n) for n in wanted}) == wanted
    assert engine.POSTGRES_LIMITS["connect_timeout"] <= 10
    ledger.dispose()


def test_no_plan_of_a_small_table_is_kept_for_a_large_one(
    postgres: PostgresServer,
) -> None:
    """A statement that is prepared keeps its plan: it would walk the whole table."""
    ledger = Ledger(postgres.new_database())
    budget = opened(ledger, queries=100)
    for _ in range(8):
        budget.buy(VOTE, unit_key="patient").leave()
    kept = "SELECT count(*) FROM pg_prepared_statements"
    count = ledger.run(lambda t: t.connection.exec_driver_sql(kept).scalar())
    assert count == 0
    ledger.dispose()


def test_an_account_that_is_locked_is_waited_for_a_limited_time(
    server: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_WRITE", engine._WRITE.replace("'30s'", "'300ms'"))
    is_held, may_end = threading.Event(), threading.Event()

    def hold(transaction: Transaction) -> None:
        transaction.load("account", "notes", "alone")
        is_held.set()
        assert may_end.wait(30)

    with ThreadPoolExecutor(1) as pool:
        holding = pool.submit(server.run, hold)
        assert is_held.wait(30)
        start = time.monotonic()
        with pytest.raises(LedgerError, match="LockNotAvailable"):
            charge(server)
        assert time.monotonic() - start < 20
        assert charge(server, "another") == 1, "other accounts wait for nobody"
        may_end.set()
        holding.result()
    assert charge(server) == 1


CAP = CorpusTerms("clinic", "patient", epsilon=24, delta=1e-5)
TERMS: Any = {"epsilon": 8, "delta": 1e-6, "queries": 200, "corpus": CAP}


def test_openings_charges_and_closings_of_a_corpus_never_block_each_other_for_good(
    place: Callable[[], str],
) -> None:
    ledger = Ledger(place())

    def work(thread: int) -> int:
        count = 0
        for turn in range(4):
            name = f"{(thread + turn) % 6}"
            try:
                account = PrivacyBudgetHandler(**TERMS, ledger=ledger, account=name)
                count += account.buy(VOTE, unit_key="patient").charge > 0
                if turn == 3:
                    ledger.close_account(f"{thread}")
            except (LedgerError, BudgetExhaustedError) as error:
                if not re.search("closed|no room|holds no account", str(error)):
                    raise
        return count

    with ThreadPoolExecutor(6) as pool:
        charged = sum(pool.map(work, range(6)))
    books = ledger.corpus("clinic").accounts
    assert sum(book.used for book in books) == charged > 0
    assert sum(book.used > 0 for book in books) <= 3
    ledger.verify()
    ledger.dispose()


def test_a_broken_connection_is_replaced_and_a_commit_that_breaks_is_an_error(
    server: Ledger, postgres: PostgresServer
) -> None:
    kill = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )

    def end(*_: Any) -> None:
        with postgres.connect(repr(server)[8:-2]) as beside:
            beside.execute(kill)

    assert charge(server) == 1
    end()
    assert charge(server) == 2
    with listening("commit", end), pytest.raises(LedgerError):
        charge(server)
    assert charge(server) in (3, 4)
    server.verify()


# ---- URLs ----------------------------------------------------------------------------

PASSWORDS = [
    "postgresql://ann:first@second/third@host/db",
    "postgresql://ann:first@host:second/db",
    "mysql://ann:first@second/third@host/db",
    "sqlite://ann:first@/clinic.db",
    "postgresql+nosuch://ann:first@host/db",
    "postgresql://ann:first%40second%2Fthird@127.0.0.1:1/db",
    "postgresql://ann:first/second#third?x@127.0.0.1:1/db",
    "postgresql://ann@127.0.0.1:1/db?sslpassword=first&password=second",
]


@pytest.mark.parametrize("url", PASSWORDS)
def test_no_part_of_a_password_is_in_an_error(
    url: str, caplog: pytest.LogCaptureFixture, capsys: Any
) -> None:
    for use in (Ledger, new_ledger):
        with caplog.at_level(logging.DEBUG), pytest.raises(LedgerError) as caught:
            use(url)
        text = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
        text += caplog.text + "".join(capsys.readouterr())
        assert not [word for word in ("first", "second", "third") if word in text]


@pytest.mark.parametrize(
    "url",
    [
        *(None, 5, b"sqlite:///x.db", "", "x", "://", "sqlite:/x.db", "sqlite://"),
        *("sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true", ["x"]),
        "mysql://a@b/c",
    ],
)
def test_what_names_no_ledger_is_refused(url: Any) -> None:
    for use in (Ledger, open_ledger):
        with pytest.raises(LedgerError):
            use(url)


def test_a_file_may_have_any_name(folder: Path) -> None:
    for name in ("a@b@c.db", "a b.db", "\N{LATIN SMALL LETTER U WITH DIAERESIS}.db"):
        ledger = Ledger(f"sqlite:///{folder / name}")
        opened(ledger)
        assert charge(ledger) == 1
        ledger.dispose()


def test_a_ledger_goes_to_another_process_unless_it_has_a_password(
    file: Ledger, path: Path, postgres: PostgresServer
) -> None:
    opened(file)
    there = pickle.loads(pickle.dumps(file))
    assert charge(there) == 1
    there.dispose()
    path.rename(path.with_name("moved.db"))
    with pytest.raises(LedgerError, match="There is no ledger"):
        pickle.loads(pickle.dumps(file))
    secret = Ledger(postgres.new_database().replace("postgres@", "postgres:first@"))
    assert "first" not in repr(secret)
    with pytest.raises(LedgerError, match="password"):
        pickle.dumps(secret)
    secret.dispose()
    with pytest.raises(LedgerError, match="in memory"):
        pickle.dumps(Ledger(":memory:"))
