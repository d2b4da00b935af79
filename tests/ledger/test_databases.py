"""Files, servers and URLs: what is used, what is refused, and how long is waited."""

from __future__ import annotations

import logging
import os
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
from ledger.book_parts import charge, draw, look_up, opened
from support.postgres import PostgresServer
from unit_tests.ledger.faults import listening

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


@pytest.mark.parametrize("change", ["replaced", "gone", "emptied"])
def test_a_file_that_was_moved_is_refused_until_the_process_begins_anew(
    file: Ledger, path: Path, folder: Path, change: str
) -> None:
    opened(file)
    charge(file)
    whole = folder / "whole.db"
    shutil.copyfile(path, whole)
    if change == "emptied":
        path.write_bytes(b"")
    else:
        path.rename(folder / "moved.db")
    if change == "replaced":
        shutil.copyfile(whole, path)
    for action in (charge, Ledger.accounts):
        with pytest.raises(LedgerError, match=f"file .* {change}|was {change}"):
            action(file)
    with pytest.raises(LedgerError):
        Ledger(f"sqlite:///{path}", create=change == "emptied").dispose() or charge(
            file
        )


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


def test_an_earlier_versions_ledger_is_named_and_left(path: Path) -> None:
    execute(
        path,
        "PRAGMA application_id=0x64706963",
        "CREATE TABLE dpicl_schema (version INTEGER, library TEXT)",
        "CREATE TABLE dpicl_account (id INTEGER)",
    )
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=r"earlier version .* name another URL"):
        Ledger(f"sqlite:///{path}")
    assert path.read_bytes() == before


@pytest.mark.parametrize("pragma", ["synchronous", "journal_mode", "foreign_keys"])
def test_a_file_is_written_durably(file: Ledger, pragma: str) -> None:
    wanted = {"synchronous": 3, "journal_mode": "persist", "foreign_keys": 1}

    def read(transaction: Transaction) -> Any:
        return transaction.connection.exec_driver_sql(f"PRAGMA {pragma}").scalar()

    assert file.run(read) == wanted[pragma]


def test_a_copy_is_checked_and_a_server_makes_its_own(
    file: Ledger, path: Path, folder: Path, postgres: PostgresServer
) -> None:
    opened(file)
    charge(file)
    assert backup_ledger(f"sqlite:///{path}", folder / "copy.db") == ["notes"]
    execute(path, "UPDATE dpicl_entry SET body = '{}' WHERE kind = 'charge'")
    with pytest.raises(LedgerError, match=r"No copy was made .* damaged"):
        backup_ledger(f"sqlite:///{path}", folder / "another.db")
    url = postgres.new_database()
    Ledger(url).dispose()
    with pytest.raises(LedgerError, match="pg_dump"):
        backup_ledger(url, folder / "server.db")
    kept = {name.name for name in folder.iterdir()}
    assert not {"another.db", "server.db"} & kept


# ---- Servers -------------------------------------------------------------------------


@pytest.fixture
def server(postgres: PostgresServer) -> Any:
    ledger = Ledger(postgres.new_database())
    opened(ledger, queries=500)
    yield ledger
    ledger.dispose()


def setting(transaction: Transaction, name: str) -> str:
    text = f"SELECT current_setting('{name}')"
    return str(transaction.connection.exec_driver_sql(text).scalar())


@pytest.mark.parametrize(
    ("said", "holds"), [("off", "on"), ("local", "on"), ("remote_apply",) * 2]
)
def test_nothing_makes_a_commit_weaker(
    postgres: PostgresServer, said: str, holds: str
) -> None:
    url = postgres.new_database() + f"%20-csynchronous_commit%3D{said}"
    ledger = Ledger(url)
    assert ledger.run(lambda t: setting(t, "synchronous_commit")) == holds
    ledger.dispose()


def test_every_wait_of_a_server_has_a_limit(server: Ledger) -> None:
    for name, seconds in (("lock_timeout", 30), ("statement_timeout", 60)):
        text = server.run(lambda t, name=name: setting(t, name))
        assert {"30s": 30, "1min": 60}[text] == seconds
    assert engine.POSTGRES_LIMITS["connect_timeout"] <= 10


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
        opened(server, "another")
        assert charge(server, "another") == 1, "other accounts wait for nobody"
        may_end.set()
        holding.result()
    assert charge(server) == 1


def test_openings_charges_and_closings_of_a_corpus_never_block_each_other_for_good(
    place: Callable[[], str],
) -> None:
    ledger = Ledger(place())
    cap = CorpusTerms("clinic", "patient", epsilon=24, delta=1e-5)

    def work(thread: int) -> int:
        count = 0
        for turn in range(4):
            name = f"{(thread + turn) % 6}"
            try:
                opened(ledger, name, cap, queries=200)
                count += charge(ledger, name) > 0
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

WRONG = [
    "postgresql://ann:first@second/third@host/db",
    "postgresql://ann:first@second?third@host/db",
    "postgresql://ann:first@second:third@host/db",
    "postgresql://ann:first@host:second/db",
    "mysql://ann:first@second/third@host/db",
    "sqlite://ann:first@second/third@host/db",
    "sqlite://ann:first@/clinic.db",
    "postgresql+nosuch://ann:first@second/third@host/db",
]
RIGHT = [
    "postgresql://ann:first@127.0.0.1:1/db",
    "postgresql://ann:first%40second%2Fthird@127.0.0.1:1/db",
    "postgresql://ann:first/second#third?x@127.0.0.1:1/db",
    "postgresql://127.0.0.1:1/db?user=ann&password=first",
    "postgresql://ann@127.0.0.1:1/db?sslpassword=first&password=second",
]


@pytest.mark.parametrize("url", WRONG + RIGHT)
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


def test_a_forked_child_uses_connections_of_its_own(place: Callable[[], str]) -> None:
    ledger = Ledger(place())
    opened(ledger)
    draw(ledger, charge(ledger, key="key"), "yes")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if charge(ledger) == 2 else 1
        except LedgerError:
            code = 3
        finally:
            os._exit(code)
    ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ended == (3 if repr(ledger) == "Ledger(':memory:')" else 0)
    assert len(look_up(ledger, "key")) == 2
    assert charge(ledger) == (2 if ended else 3)
    ledger.verify()
    ledger.dispose()
