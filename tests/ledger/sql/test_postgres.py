"""What is special about a server: it stops, comes back, and has habits of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import event, make_url
from sqlalchemy.exc import OperationalError
from support.ledgers import PLANNED, UNIT_PLANNED, Database, opened, postgres_database
from support.postgres import PostgresServer

from langchain_dpicl.errors import BudgetExhaustedError, LedgerError
from langchain_dpicl.ledger import AccountTerms, Charge, SQLLedger
from langchain_dpicl.ledger.sql import (
    engine,
    postgres_pipeline,
    statements,
    unit_charging,
)
from langchain_dpicl.ledger.sql.engine import (
    POSTGRES_BEGIN,
    POSTGRES_LIMITS,
    Mode,
    open_engine,
)
from langchain_dpicl.ledger.sql.transactions import Transactions

Connect = Callable[[], SQLLedger]

MANY = AccountTerms("notes", 8.0, 1e-6, 10_000)


@pytest.fixture
def database(postgres: PostgresServer) -> Database:
    return postgres_database(postgres)


@pytest.fixture
def stoppable(postgres: PostgresServer) -> Iterator[PostgresServer]:
    yield postgres
    postgres.start()


STYLES = {
    "datestyle": ("SQL,DMY", "German", "Postgres,MDY"),
    "timezone": ("Asia/Kolkata",),
    "intervalstyle": ("sql_standard",),
    "bytea_output": ("escape",),
    "extra_float_digits": ("-15",),
    "client_encoding": ("LATIN1",),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, one) for name in STYLES for one in STYLES[name]]
)
def test_a_servers_ways_of_writing_values_change_nothing(
    database: Database, name: str, value: str
) -> None:
    terms = replace(UNIT_PLANNED, name="\u20ac notes")
    ledger = opened(SQLLedger(f"{database.url}%20-c{name}%3D{value}"), terms)
    charge = ledger.charge(terms.name)
    ledger.charge_units(charge, ["one", "two"])
    plain = SQLLedger(database.url)
    assert ledger.state(terms.name) == plain.state(terms.name)
    assert ledger.charges(terms.name) == plain.charges(terms.name)
    assert ledger.verify(terms.name) == plain.verify(terms.name)
    for each in (ledger, plain):
        each.dispose()


def refused_soon(ledger: SQLLedger) -> None:
    start = time.monotonic()
    for use in (ledger.charge, ledger.state, ledger.verify):
        with pytest.raises(LedgerError, match="nothing was released") as caught:
            use("notes")
        assert caught.value.__context__ is None
    # The longest that any of our limits lets pass; on a socket it is at once.
    assert time.monotonic() - start < 30


def test_a_stopped_server_releases_nothing_and_is_used_again_when_it_is_back(
    database: Database, stoppable: PostgresServer, connect: Connect
) -> None:
    ledger = opened(connect(), MANY)
    ledger.charge("notes")
    stoppable.stop()
    refused_soon(ledger)
    with pytest.raises(LedgerError, match="can't be used"):
        SQLLedger(database.url)
    stoppable.start()
    assert ledger.charge("notes").sequence == 2
    ledger.verify("notes")


def test_a_charge_waits_for_no_other_account(connect: Connect) -> None:
    """Shared transactions of two processes would lock accounts in two orders."""
    ledger = opened(opened(connect(), MANY), replace(MANY, name="other"))
    begun, ending = threading.Event(), threading.Event()

    def slow(_charge: Charge) -> str:
        begun.set()
        assert ending.wait(60)
        return "{}"

    charges: list[Charge] = []
    held = threading.Thread(
        target=lambda: charges.append(ledger.charge("notes", starts=("kind", slow)))
    )
    quick = threading.Thread(
        target=lambda: charges.append(
            ledger.charge("other", starts=("kind", lambda _: "{}"))
        )
    )
    held.start()
    assert begun.wait(60)
    quick.start()
    quick.join(20)
    assert [charge.account for charge in charges] == ["other"]
    ending.set()
    held.join(60)
    quick.join(60)
    assert [charge.account for charge in charges] == ["other", "notes"]


def test_a_charge_that_returned_survives_the_servers_death(
    database: Database, stoppable: PostgresServer, connect: Connect
) -> None:
    """Also where the server, by default, lets commits wait in its memory."""
    for setting in ("synchronous_commit = off", "wal_writer_delay = '10s'"):
        database.execute(f"ALTER SYSTEM SET {setting}")
    database.execute("SELECT pg_reload_conf()")
    try:
        ledger = opened(connect(), MANY)
        for _ in range(3):
            last = ledger.charge("notes").sequence
            stoppable.stop()
            stoppable.start()
            assert ledger.state("notes").used == last
        units = opened(connect(), AccountTerms("units", 8.0, 1e-6, 1, scope="unit"))
        charge = units.charge("units")
        assert units.charge_units(charge, ["p-1"]) == [True]
        stoppable.stop()
        stoppable.start()
        assert units.charge_units(charge, ["p-1"]) == [False]
    finally:
        database.execute("ALTER SYSTEM RESET ALL")
        database.execute("SELECT pg_reload_conf()")


def test_a_connection_that_broke_meanwhile_is_replaced(
    database: Database, connect: Connect
) -> None:
    ledger = opened(connect())
    database.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
    assert ledger.charge("notes").sequence == 1


GONE = "SELECT pg_terminate_backend(pg_backend_pid())"


def fails(use: Callable[[], object]) -> None:
    with pytest.raises(LedgerError, match="nothing was released") as caught:
        use()
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    ("moment", "stands"),
    [("before it is written", 0), ("as it is written", 0), ("after the commit", 1)],
)
def test_a_connection_that_breaks_is_an_error_and_never_a_second_charge(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, moment: str, stands: int
) -> None:
    """A charge may stand of which nobody knows; none is lost that was announced."""
    ledger = opened(connect(), MANY)
    ledger.charge("notes")
    bound = postgres_pipeline._bound

    def breaking(statement: Any, values: Any) -> Any:
        text, values = bound(statement, values)
        if statement is not statements.COUNT_AND_WRITE_CHARGE:
            return text, values
        if moment == "before it is written":
            return GONE, {}
        broken = text.replace("WHERE counted", f"WHERE ({GONE}) AND counted")
        assert broken != text
        return broken, values

    with monkeypatch.context() as patched:
        if moment == "after the commit":
            flush = {**engine.POSTGRES_BEGIN, Mode.FLUSH: (GONE,)}
            patched.setattr(postgres_pipeline, "POSTGRES_BEGIN", flush)
        else:
            patched.setattr(postgres_pipeline, "_bound", breaking)
        fails(lambda: ledger.charge("notes"))
    assert ledger.state("notes").used == 1 + stands
    assert ledger.charge("notes").sequence == 2 + stands
    ledger.verify("notes")


@pytest.mark.parametrize("broken", ["SELECT 1 / 0", GONE])
def test_what_may_not_be_on_disk_is_not_announced(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    ledger = opened(connect(), UNIT_PLANNED)
    charge = ledger.charge("notes")
    with monkeypatch.context() as patched:
        flush = {**engine.POSTGRES_BEGIN, Mode.FLUSH: (broken,)}
        for module in (engine, postgres_pipeline):
            patched.setattr(module, "POSTGRES_BEGIN", flush)
        fails(lambda: ledger.charge("notes"))
        fails(lambda: ledger.charge_units(charge, ["p-1"]))
    assert ledger.charge("notes").sequence == 3
    assert [balance.spent.loss for balance in ledger.unit_balances("notes")] == [1]
    ledger.verify("notes")


@pytest.mark.parametrize("state", ["40001", "40P01"])
def test_what_the_server_has_undone_is_tried_again(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    ledger = opened(connect(), MANY)
    failing = [2]
    bound = postgres_pipeline._bound

    def sometimes(statement: Any, values: Any) -> Any:
        if statement is statements.COUNT_AND_WRITE_CHARGE and failing[0]:
            failing[0] -= 1
            text = f"DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '{state}'; END $$"
            return text, {}
        return bound(statement, values)

    monkeypatch.setattr(postgres_pipeline, "_bound", sometimes)
    assert ledger.charge("notes").sequence == 1
    assert failing == [0]
    failing[0] = 99
    fails(lambda: ledger.charge("notes"))
    assert ledger.verify("notes").used == 1


def test_without_the_drivers_pipeline_charges_are_the_same(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psycopg.Pipeline, "is_supported", lambda: False)
    ledger = opened(connect(), AccountTerms("notes", 8.0, 1e-6, 2))
    assert [ledger.charge("notes").sequence for _ in range(2)] == [1, 2]
    with pytest.raises(BudgetExhaustedError):
        ledger.charge("notes")
    ledger.verify("notes")


def test_an_account_that_changes_after_the_check_is_not_charged_quickly(
    database: Database, connect: Connect
) -> None:
    ledger = opened(connect(), MANY)
    ledger.charge("notes")
    database.execute("UPDATE dpicl_account SET queries = 20000")
    with pytest.raises(LedgerError, match="damaged"):
        ledger.charge("notes")
    database.execute("UPDATE dpicl_account SET queries = 10000")
    assert ledger.charge("notes").sequence == 2
    opened(ledger, AccountTerms("gone", 8.0, 1e-6, 2)).charge("gone")
    database.execute("UPDATE dpicl_account SET name = 'renamed' WHERE name = 'gone'")
    with pytest.raises(LedgerError, match="holds no account"):
        ledger.charge("gone")


def test_whoever_holds_the_account_is_waited_for_but_not_for_ever(
    database: Database,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ledger = opened(connect(), UNIT_PLANNED)
    charge = ledger.charge("notes")
    short = {
        mode: tuple(text.replace("'30s'", "'200ms'") for text in statements)
        for mode, statements in engine.POSTGRES_BEGIN.items()
    }
    assert short != engine.POSTGRES_BEGIN
    for module in (engine, postgres_pipeline):
        monkeypatch.setattr(module, "POSTGRES_BEGIN", short)
    with psycopg.connect(database.url.replace("+psycopg", "")) as other:
        other.execute("SELECT * FROM dpicl_account FOR UPDATE")
        for use in (
            lambda: ledger.charge("notes"),
            lambda: ledger.charge_units(charge, []),
            lambda: ledger.close_account("notes"),
        ):
            with pytest.raises(LedgerError, match="LockNotAvailable"):
                use()
        # Readers wait for nobody.
        assert ledger.verify("notes").used == 1
    assert ledger.charge("notes").sequence == 2


def test_two_collections_at_once_never_lose_one_of_the_two(
    database: Database,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second waits at the account's row, not at the units it shares."""
    ledger = opened(connect(), UNIT_PLANNED)
    first, second = ledger.charge("notes"), ledger.charge("notes")
    reached, go = threading.Event(), threading.Event()
    collect = unit_charging.charge_units

    def slowly(
        connection: Any, account: Any, last: Any, charge: Any, units: Any
    ) -> Any:
        if charge is first:
            reached.set()
            go.wait(10)
        return collect(connection, account, last, charge, units)

    monkeypatch.setattr("langchain_dpicl.ledger.sql.ledger.charge_units", slowly)
    one = threading.Thread(target=ledger.charge_units, args=(first, ["p-1"]))
    two = threading.Thread(target=connect().charge_units, args=(second, ["p-2"]))
    one.start()
    reached.wait(10)
    two.start()
    two.join(0.3)
    assert two.is_alive()
    go.set()
    one.join()
    two.join()
    ledger.verify("notes")


def test_a_server_that_is_not_there_is_a_ledger_error(tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(LedgerError, match="can't be used") as caught:
        SQLLedger(f"postgresql://user:hunter2@/db?host={tmp_path}")
    assert time.monotonic() - start < 30
    assert "hunter2" not in str(caught.value)
    assert caught.value.__context__ is None


def test_limits_reach_the_driver_and_the_url_may_change_them() -> None:
    engine = open_engine(make_url("postgresql://host/db?connect_timeout=3"))
    assert engine.url.drivername == "postgresql+psycopg"
    seen: list[dict[str, Any]] = []

    @event.listens_for(engine, "do_connect")
    def stop(_dialect: Any, _record: Any, _args: Any, parameters: Any) -> None:
        seen.append(parameters)
        raise psycopg.OperationalError

    with pytest.raises(OperationalError):
        engine.connect()
    assert seen[0]["connect_timeout"] == "3"
    assert {**POSTGRES_LIMITS, **seen[0]} == {**seen[0]}


@pytest.mark.parametrize("url", ["mysql://u@h/d", "postgresql+psycopg2://h/d"])
def test_other_databases_are_refused(url: str) -> None:
    with pytest.raises(LedgerError, match="SQLite"):
        SQLLedger(url)


def test_other_tables_in_the_database_are_left_alone(
    database: Database, connect: Connect
) -> None:
    database.execute("CREATE TABLE customers (name text)")
    opened(connect(), PLANNED).charge("notes")
    assert database.execute("SELECT * FROM customers") == []


def test_a_connection_can_run_in_a_transaction_of_any_isolation(
    database: Database, postgres: PostgresServer, connect: Connect
) -> None:
    """Our transactions say what they are; the role's default does not matter."""
    role = "ALTER ROLE postgres SET default_transaction_isolation = 'serializable'"
    database.execute(role)
    database.execute("ALTER ROLE postgres SET default_transaction_read_only = on")
    try:
        ledger = opened(connect(), MANY)
        assert [ledger.charge("notes").sequence for _ in range(2)] == [1, 2]
    finally:
        with postgres.connect(database.url) as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute("ALTER ROLE postgres RESET ALL")


def test_a_password_is_not_pickled() -> None:
    url = make_url("postgresql+psycopg://user:hunter2@host/db")
    ledger = SQLLedger.__new__(SQLLedger)
    ledger._database = Transactions(url)
    with pytest.raises(LedgerError, match="password") as caught:
        ledger.__reduce__()
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "used"),
    [
        ("off", "on"),
        ("local", "on"),
        ("remote_write", "on"),
        ("on", "on"),
        ("remote_apply", "remote_apply"),
    ],
)
def test_nothing_makes_a_commit_weaker_and_we_make_none_weaker(
    database: Database, said: str, used: str
) -> None:
    ledger = opened(SQLLedger(database.url))
    database.execute(f"ALTER ROLE postgres SET synchronous_commit = '{said}'")
    ledger.dispose()
    try:
        shown = ledger._database.run(
            lambda c: c.exec_driver_sql("SHOW synchronous_commit").scalar()
        )
        # A flush ends with its own commit: look before it.
        begin = "; ".join(POSTGRES_BEGIN[Mode.FLUSH][:-1])
        with ledger._database.engine.connect() as connection:
            driver = connection.connection.driver_connection
            driver.execute(begin)
            flushed = driver.execute("SHOW synchronous_commit").fetchone()
            driver.rollback()
        assert (shown, flushed) == (used, (used,))
    finally:
        database.execute("ALTER ROLE postgres RESET synchronous_commit")
        ledger.dispose()


def test_a_server_without_standbys_is_used_in_silence_but_waits_for_none(
    database: Database, connect: Connect
) -> None:
    # Warnings are errors here.
    opened(connect()).charge("notes")
    with pytest.raises(LedgerError, match="synchronous_standby_names"):
        SQLLedger(database.url, require_synchronous=True)
