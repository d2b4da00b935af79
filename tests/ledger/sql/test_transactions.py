"""How transactions begin, how often they are tried, and what becomes of an error."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import event, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    IntegrityError,
    OperationalError,
)
from support.ledgers import PLANNED, made, opened

from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import SQLLedger
from langchain_dpicl.ledger.sql import engine, schema, transactions
from langchain_dpicl.ledger.sql.creation import new_ledger
from langchain_dpicl.ledger.sql.engine import (
    POSTGRES_LIMITS,
    Mode,
    holds_password,
    is_disconnected,
    open_engine,
    parse_url,
    read_url,
    shown,
    was_undone,
)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SQLLedger]:
    ledger = made(tmp_path / "a.db")
    yield ledger
    ledger.dispose()


# -- what a transaction begins with ----------------------------------------------------


def test_a_connection_to_a_file_is_durable_and_bounded(ledger: SQLLedger) -> None:
    asked = {
        "synchronous": 3,  # EXTRA
        "journal_mode": "persist",
        "journal_size_limit": 1_048_576,
        "cache_size": -16_384,
        "foreign_keys": 1,
        "busy_timeout": 60_000,
    }

    def read(connection: Any) -> dict[str, Any]:
        return {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in asked
        }

    for mode in (Mode.READ, Mode.WRITE, Mode.CHARGE):
        assert ledger._database.run(read, mode=mode) == asked


@pytest.mark.parametrize(
    ("mode", "begin"),
    [
        (Mode.READ, "BEGIN"),
        (Mode.WRITE, "BEGIN IMMEDIATE"),
        (Mode.CHARGE, "BEGIN IMMEDIATE"),
    ],
)
def test_a_reader_locks_nobody_out_and_a_writer_begins_as_one(
    ledger: SQLLedger, mode: Mode, begin: str
) -> None:
    seen: list[str] = []
    event.listen(
        ledger._database.engine,
        "before_cursor_execute",
        lambda _c, _cursor, statement, *_: seen.append(statement),
    )
    ledger._database.run(lambda _: None, mode=mode)
    assert seen == [begin]
    seen.clear()
    ledger._database.run(lambda _: None)
    assert seen == ["BEGIN IMMEDIATE"]


def test_a_server_that_is_gone_is_given_up() -> None:
    assert POSTGRES_LIMITS == {
        "connect_timeout": 10,
        "keepalives": 1,
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
    }


# -- what is tried again ---------------------------------------------------------------


def failing(error: type[DatabaseError], **said: Any) -> DatabaseError:
    found = error("x", {}, Exception())
    found.orig = SimpleNamespace(**said)  # type: ignore[assignment] # as a driver's
    return found


UNDONE: list[tuple[Any, bool]] = [
    (failing(IntegrityError), True),
    (failing(IntegrityError, sqlstate="23505"), True),
    (failing(OperationalError, sqlstate="40001"), True),
    (failing(OperationalError, sqlstate="40P01"), True),
    (failing(OperationalError, sqlstate="40002"), False),
    (failing(OperationalError, sqlstate="57014"), False),
    (failing(OperationalError, sqlstate=None), False),
    (failing(OperationalError), False),
]


@pytest.mark.parametrize(("error", "undone"), UNDONE)
def test_what_the_database_has_undone_is_known_by_its_state(
    error: Any, undone: bool
) -> None:
    assert was_undone(error, error.orig) is undone


@pytest.mark.parametrize(
    ("state", "broken"),
    [
        ("08006", True),
        ("57P01", True),
        ("", True),
        (None, True),
        ("57014", False),
        ("42501", False),
        ("40001", False),
    ],
)
def test_a_broken_connection_is_known_by_its_state(
    state: str | None, broken: bool
) -> None:
    error: Any = Exception()
    error.sqlstate = state
    assert is_disconnected(error, error) is broken


@pytest.mark.parametrize("invalid", [True, False])
def test_a_connection_that_the_pool_gave_up_is_broken(invalid: bool) -> None:
    error: Any = failing(OperationalError, sqlstate="57014" if invalid else "08006")
    error.connection_invalidated = invalid
    assert is_disconnected(error, error.orig) is invalid
    assert is_disconnected(ArgumentError(), Exception()) is False


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How long each wait may be at most, in milliseconds; none is waited for."""
    most: list[int] = []

    def below(bound: int) -> int:
        most.append(bound)
        return bound - 1

    def sleep(seconds: float) -> None:
        assert seconds == (most[-1] - 1) / 1000

    monkeypatch.setattr(transactions.secrets, "randbelow", below)
    monkeypatch.setattr(transactions.time, "sleep", sleep)
    return most


def attempts(
    ledger: SQLLedger, errors: list[BaseException], *, begun: bool = True
) -> tuple[int, str]:
    """Return how often a transaction is tried, and what it returns or says."""
    tried = 0

    def use(_connection: Any, has_begun: Callable[[], None]) -> str:
        nonlocal tried
        tried += 1
        if begun:
            has_begun()
        if tried <= len(errors):
            raise errors[tried - 1]
        return "done"

    try:
        said = ledger._database.attempt(use)
    except LedgerError as error:
        said = f"{error}{error.__cause__ or ''}{error.__context__ or ''}"
    return tried, said


def test_what_was_undone_is_tried_six_times_ever_later(
    ledger: SQLLedger, waits: list[int]
) -> None:
    undone = failing(OperationalError, sqlstate="40001")
    for times in range(6):
        waits.clear()
        assert attempts(ledger, [undone] * times) == (times + 1, "done")
        assert waits == [20, 40, 80, 160, 320][:times]
    tried, said = attempts(ledger, [undone] * 6)
    assert tried == 6
    assert "can't be used (SimpleNamespace); nothing was released" in said


@pytest.mark.parametrize(
    "error",
    [
        failing(OperationalError, sqlstate="57014"),
        *(OSError(), PermissionError(), sqlite3.OperationalError()),
        *(one() for one in schema.UNREADABLE),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_may_stand_is_tried_once(
    ledger: SQLLedger, waits: list[int], error: BaseException
) -> None:
    tried, said = attempts(ledger, [error] * 9)
    named = getattr(error, "orig", error)
    assert tried == 1
    assert f"can't be used ({type(named).__name__}); nothing was released." in said
    assert waits == []


@pytest.mark.parametrize("begun", [True, False])
def test_a_connection_that_breaks_before_it_is_used_is_replaced(
    ledger: SQLLedger, waits: list[int], begun: bool
) -> None:
    broken = sqlite3.OperationalError()
    tried, found = attempts(ledger, [broken, broken], begun=begun)
    if begun:
        assert tried == 1
        assert "(OperationalError)" in found
    else:
        assert (tried, found) == (3, "done")
        assert waits == [20, 40]


def test_errors_of_ours_pass_as_they_are(ledger: SQLLedger, waits: list[int]) -> None:
    tried, said = attempts(ledger, [LedgerError("said")] * 9)
    assert (tried, said, waits) == (1, "said", [])


def test_the_file_is_asked_for_after_a_write_alone(
    ledger: SQLLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ledger._database.file
    assert file is not None
    asked: list[int] = []
    inner = file.require
    monkeypatch.setattr(file, "require", lambda: (asked.append(1), inner())[1])
    counts = {}
    for mode in (Mode.READ, Mode.WRITE, Mode.CHARGE):
        asked.clear()
        ledger._database.run(lambda _: None, mode=mode)
        counts[mode] = len(asked)
    assert counts[Mode.WRITE] == counts[Mode.CHARGE] == counts[Mode.READ] + 1


def test_a_child_makes_connections_of_its_own(
    ledger: SQLLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And leaves those of its parent open."""
    closed: list[bool] = []
    inner = ledger._database.engine.dispose
    monkeypatch.setattr(
        ledger._database.engine,
        "dispose",
        lambda close=True: (closed.append(close), inner(close=close))[1],
    )
    ledger._database.run(lambda _: None)
    assert closed == []
    monkeypatch.setattr(transactions.os, "getpid", lambda: -1)
    for _ in range(2):
        ledger._database.run(lambda _: None)
    assert closed == [False]
    assert ledger._database._pid == -1


@pytest.mark.parametrize(("pid", "disposed"), [(0, False), (None, True)])
def test_only_who_opened_connections_closes_them(
    pid: int | None, disposed: bool
) -> None:
    seen: list[int] = []
    kept: Any = SimpleNamespace(dispose=lambda: seen.append(1))
    engine.dispose(kept, os.getpid() if pid is None else pid)
    assert bool(seen) is disposed


# -- URLs ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///", "sqlite:///:memory:", "sqlite+pysqlite://"]
)
def test_a_file_that_forgets_is_refused(url: str) -> None:
    with pytest.raises(LedgerError, match="without a file forgets its charges"):
        parse_url(url)
    assert parse_url("sqlite:///a.db").database == "a.db"
    assert parse_url("postgresql://host").database is None


@pytest.mark.parametrize(
    "url", ["sqlite://host/a.db", "sqlite://ann@/a.db", "sqlite://:x@/a.db"]
)
def test_a_file_has_no_host(url: str) -> None:
    with pytest.raises(LedgerError, match="three slashes and its path"):
        read_url(url)


@pytest.mark.parametrize(
    ("url", "refused"),
    [
        ("postgresql://ann:a@host/db", False),
        ("postgresql://host/db", False),
        ("postgresql://ann:a@b@host/db", True),
        ("sqlite:///a@b@c.db", False),
    ],
)
def test_an_at_sign_too_many_is_refused_for_a_server(url: str, refused: bool) -> None:
    if refused:
        with pytest.raises(LedgerError, match="has an '@' too many"):
            read_url(url)
        return
    assert str(read_url(url).drivername) == url.partition(":")[0]
    assert read_url(make_url(url)) == make_url(url)


@pytest.mark.parametrize(
    ("url", "holds", "said"),
    [
        ("postgresql://host/db", False, "postgresql://host/db"),
        ("postgresql://ann@host/db", False, "postgresql://ann@host/db"),
        ("postgresql://ann:x@host/db", True, "postgresql://ann:***@host/db"),
        ("postgresql://ann:@host/db", True, "postgresql://ann:***@host/db"),
        ("postgresql://host/db?password=x&a=b", True, "postgresql://host/db?a=b"),
        ("postgresql://host/db?sslpassword=x", True, "postgresql://host/db"),
        ("sqlite:///a.db", False, "sqlite:///a.db"),
    ],
)
def test_a_url_is_shown_without_its_passwords(url: str, holds: bool, said: str) -> None:
    assert holds_password(make_url(url)) is holds
    assert shown(make_url(url)) == said


@pytest.mark.parametrize(
    "url", ["mysql://h/d", "postgresql+psycopg2://h/d", "sqlite+aiosqlite:///a.db"]
)
def test_a_driver_that_was_not_tested_is_refused(url: str) -> None:
    name = url.partition(":")[0]
    with pytest.raises(
        LedgerError, match=rf"can't be kept in '{name}'".replace("+", r"\+")
    ):
        open_engine(make_url(url))


@pytest.mark.parametrize("driver", ["postgresql", "postgresql+psycopg"])
def test_a_server_is_reached_by_one_driver(driver: str) -> None:
    found = open_engine(make_url(f"{driver}://host/db"))
    assert found.url.drivername == "postgresql+psycopg"
    assert found.hide_parameters
    found.dispose()


@pytest.mark.parametrize("error", [ArgumentError, ImportError, ModuleNotFoundError])
@pytest.mark.parametrize("url", ["postgresql://ann:x@host/db", "sqlite:///a.db"])
def test_a_driver_that_is_missing_is_named_with_what_installs_it(
    monkeypatch: pytest.MonkeyPatch, url: str, error: type[Exception]
) -> None:
    def missing(*_: Any, **__: Any) -> Any:
        raise error("secret")

    monkeypatch.setattr(engine, "create_engine", missing)
    with pytest.raises(LedgerError) as caught:
        open_engine(make_url(url))
    assert str(caught.value) == (
        f"No driver for the ledger's URL ({error.__name__}). Install one: for "
        "PostgreSQL, pip install 'psycopg[binary]'."
    )
    assert caught.value.__cause__ is None


def test_parameters_are_in_no_log(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch()
    for name in ("sqlite", "sqlite+pysqlite"):
        found = open_engine(make_url(f"{name}:///{tmp_path / 'a.db'}"))
        assert found.hide_parameters
        found.dispose()


# -- ledgers that are there, or not ----------------------------------------------------


def edited(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_a_file_of_ours_is_known_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    made(path).dispose()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA application_id").fetchone() == (0x64706963,)
        assert connection.execute("SELECT version FROM dpicl_schema").fetchall() == [
            (3,)
        ]


FOREIGN = "is not a privacy ledger but some other database"
OLDER = "has schema version 2, this library needs 3. Stop whatever uses it"
NEWER = "has schema version 4, this library knows 3. Use the library version"


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (
            ["PRAGMA application_id=1"],
            FOREIGN,
        ),
        (
            ["DROP TABLE dpicl_schema"],
            FOREIGN,
        ),
        (["DELETE FROM dpicl_schema"], "its version is missing. Restore it."),
        (["DROP TABLE dpicl_unit"], "tables are missing. Restore it."),
        (["DROP TABLE dpicl_corpus"], "tables are missing. Restore it."),
        (
            ["UPDATE dpicl_schema SET version = 2"],
            OLDER,
        ),
        (
            ["UPDATE dpicl_schema SET version = 4"],
            NEWER,
        ),
        (
            ["UPDATE dpicl_schema SET version = 2", "DROP TABLE dpicl_corpus"],
            OLDER,
        ),
        (
            [
                (
                    "INSERT INTO dpicl_schema SELECT 4, library, created_at "
                    "FROM dpicl_schema"
                )
            ],
            NEWER,
        ),
    ],
)
@pytest.mark.parametrize("create", [True, False])
def test_a_file_that_is_no_ledger_of_this_version_is_refused(
    tmp_path: Path, statements: list[str], said: str, create: bool
) -> None:
    path = tmp_path / "a.db"
    made(path).dispose()
    edited(path, *statements)
    with pytest.raises(LedgerError) as caught:
        SQLLedger(f"sqlite:///{path}", create=create)
    assert said in str(caught.value)


def test_other_tables_beside_the_ledgers_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    made(path).dispose()
    edited(path, "CREATE TABLE notes (text TEXT)", "UPDATE dpicl_schema SET library=''")
    ledger = SQLLedger(f"sqlite:///{path}", create=False)
    assert ledger.charge("notes").sequence == 1
    ledger.dispose()


def test_a_new_ledger_is_refused_where_something_is(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    new_ledger(f"sqlite:///{path}")
    ledger = opened(SQLLedger(f"sqlite:///{path}", create=False), PLANNED)
    ledger.dispose()
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=r"There is something at sqlite:///.* alr"):
        new_ledger(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_the_file_of_a_ledger_is_known(tmp_path: Path) -> None:
    ledger = made(tmp_path / "a.db")
    assert ledger.path == tmp_path / "a.db"
    assert repr(ledger) == f"SQLLedger('sqlite:///{tmp_path / 'a.db'}')"
    assert ledger.require_synchronous is False
    ledger.dispose()
    with pytest.raises(LedgerError, match="A SQLite file has no standby"):
        SQLLedger(f"sqlite:///{tmp_path / 'b.db'}", require_synchronous=True)
    assert not (tmp_path / "b.db").exists()
