"""Ledgers of older versions are brought up to date, and lose nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, DateTime, TextClause, bindparam, make_url, text
from support.ledgers import PLAN, PLANNED, Database, opened

from langchain_dpicl.accounting import Cost
from langchain_dpicl.exceptions import LedgerError, PlanMismatchError
from langchain_dpicl.ledger import AccountTerms, SQLLedger, hash_chain, upgrade_ledger
from langchain_dpicl.ledger.sql.creation import create_ledger, record_version
from langchain_dpicl.ledger.sql.engine import open_engine
from langchain_dpicl.ledger.sql.schema import (
    SCHEMA_VERSION,
    SQLITE_APPLICATION_ID,
    metadata,
)
from langchain_dpicl.ledger.sql.upgrade import run_migrations

Connect = Callable[[], SQLLedger]

NOON = datetime(2025, 1, 1, 12, tzinfo=timezone.utc)


def in_database(database: Database, work: Callable[[Connection], object]) -> object:
    if database.kind == "sqlite":
        # A file, if there is none yet.
        database.execute("PRAGMA user_version=1")
    engine = open_engine(make_url(database.url))
    try:
        with engine.begin() as connection:
            return work(connection)
    finally:
        engine.dispose()


def timed(statement: str) -> TextClause:
    """Bind `at` as a time, which SQLite's driver knows nothing of."""
    return text(statement).bindparams(bindparam("at", type_=DateTime(timezone=True)))


def first_version(connection: Connection) -> None:
    """Make a ledger as version 1 of the schema had it, with two accounts."""
    run_migrations(connection, 0, "0001")
    connection.execute(
        timed("INSERT INTO dpicl_schema VALUES (1, '0.1.0', :at)"), {"at": NOON}
    )
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA application_id={SQLITE_APPLICATION_ID}")
    plan = json.dumps(PLAN.to_dict(), sort_keys=True)
    for number, (name, used, closed) in enumerate(
        [("notes", 3, False), ("old", 1, True), ("new", 0, False)], start=1
    ):
        connection.execute(
            timed(
                "INSERT INTO dpicl_account VALUES (:number, :name, :epsilon, :delta, 5,"
                " :plan, :used, :closed, '0.1.0', :at)"
            ),
            {
                "number": number,
                "name": name,
                "epsilon": (8.0).hex(),
                "delta": (1e-6).hex(),
                "plan": plan if used else None,
                "used": used,
                "closed": closed,
                "at": NOON,
            },
        )
        for sequence in range(1, used + 1):
            # This host's clock was set back after the second query.
            at = NOON + timedelta(hours=-1 if sequence == 3 else sequence)
            connection.execute(
                timed(
                    "INSERT INTO dpicl_charge VALUES (:id, :number, :n, :events, :at)"
                ),
                {
                    "id": 10 * number + sequence,
                    "number": number,
                    "n": sequence,
                    "events": hash_chain.events_text(PLAN.events),
                    "at": at,
                },
            )
    connection.execute(text("INSERT INTO dpicl_answer VALUES (1, 'key', 'kept')"))


@pytest.fixture
def old(database: Database) -> Database:
    in_database(database, first_version)
    return database


def differences(connection: Connection) -> object:
    options = {"compare_type": True, "compare_server_default": True}
    context = MigrationContext.configure(connection, opts=options)
    return compare_metadata(context, metadata)


def test_new_tables_are_what_all_migrations_make(database: Database) -> None:
    def migrate(connection: Connection) -> None:
        run_migrations(connection, 0)
        record_version(connection)

    in_database(database, migrate)
    assert in_database(database, differences) == []
    ledger = SQLLedger(database.url)
    opened(ledger).charge("notes")
    ledger.verify("notes")
    ledger.dispose()


def test_a_new_ledger_is_of_this_version(database: Database) -> None:
    in_database(database, create_ledger)
    in_database(database, create_ledger)
    assert in_database(database, differences) == []


def test_an_old_ledger_says_how_to_upgrade_and_is_left_alone(old: Database) -> None:
    with pytest.raises(LedgerError, match="dpicl ledger upgrade --ledger") as caught:
        SQLLedger(old.url)
    assert "schema version 1" in str(caught.value)
    assert old.execute("SELECT max(version) FROM dpicl_schema") == [(1,)]


def test_an_upgrade_loses_nothing_and_makes_the_chain(
    old: Database, connect: Connect
) -> None:
    assert upgrade_ledger(old.url) == 1
    assert in_database(old, differences) == []
    ledger = connect()
    assert ledger.accounts() == ["new", "notes", "old"]
    state = ledger.open(PLANNED)
    assert (state.used, state.spent, state.plan) == (3, Cost(3, 0), PLAN)
    records = ledger.charges("notes")
    assert [record.charge.events for record in records] == [PLAN.events] * 3
    hours = [(record.at - NOON) / timedelta(hours=1) for record in records]
    assert hours == [1, 2, 2]
    assert ledger.stored_answer("notes", "key") == "kept"
    assert ledger.verify("old").closed
    for name in ("notes", "new"):
        ledger.fix_plan(name, PLAN)
        ledger.charge(name)
        ledger.verify(name)
    with pytest.raises(PlanMismatchError):
        ledger.open(AccountTerms("notes", 8.0, 1e-6, 6))


def test_what_was_upgraded_can_no_longer_be_edited(
    old: Database, connect: Connect
) -> None:
    upgrade_ledger(old.url)
    old.execute("UPDATE dpicl_account SET queries = 6 WHERE name = 'notes'")
    with pytest.raises(LedgerError, match="damaged at charge 1"):
        connect().open(AccountTerms("notes", 8.0, 1e-6, 6))


def test_upgrading_twice_is_upgrading_once(old: Database, connect: Connect) -> None:
    assert upgrade_ledger(old.url) == 1
    assert upgrade_ledger(old.url) == SCHEMA_VERSION
    connect().verify("notes")


def test_version_2_keeps_its_journal_and_what_lay_among_its_answers(
    database: Database, connect: Connect
) -> None:
    opened(connect()).charge("notes")
    step = "INSERT INTO dpicl_answer VALUES (1, 'step', '[17]')"
    for edit in (
        "DROP TABLE dpicl_registry",
        "DROP TABLE dpicl_step",
        "DROP TABLE dpicl_release",
        "ALTER TABLE dpicl_account DROP COLUMN releases_digest",
        "UPDATE dpicl_schema SET version = 2",
        step,
    ):
        database.execute(edit)
    assert upgrade_ledger(database.url) == 2
    assert in_database(database, differences) == []
    ledger = connect()
    ledger.verify_accounts()
    assert ledger.charge("notes").sequence == 2
    ledger.start_release("notes", 2, "a kind", "{}")
    ledger.store_step("notes", 2, 0, "[18]")
    ledger.verify("notes")
    assert ledger.stored_answer("notes", "step") == "[17]"


@pytest.mark.parametrize(
    "edit",
    [
        "DELETE FROM dpicl_charge WHERE sequence = 2",
        "UPDATE dpicl_account SET used = 1",
        "UPDATE dpicl_account SET epsilon = 'much'",
    ],
)
def test_a_damaged_ledger_stays_as_it_was(old: Database, edit: str) -> None:
    old.execute(edit)
    before = old.execute("SELECT * FROM dpicl_account ORDER BY id")
    with pytest.raises(LedgerError, match="is as it was"):
        upgrade_ledger(old.url)
    assert old.execute("SELECT * FROM dpicl_account ORDER BY id") == before
    assert old.execute("SELECT max(version) FROM dpicl_schema") == [(1,)]


def test_a_newer_ledger_is_neither_used_nor_upgraded(
    database: Database, connect: Connect
) -> None:
    opened(connect())
    database.execute("UPDATE dpicl_schema SET version = 99")
    for use in (SQLLedger, upgrade_ledger):
        with pytest.raises(LedgerError, match="version 99"):
            use(database.url)


def test_there_must_be_something_to_upgrade(database: Database) -> None:
    with pytest.raises(LedgerError, match="no ledger"):
        upgrade_ledger(database.url)


def test_alembic_is_loaded_for_an_upgrade_alone() -> None:
    program = (
        "import sys\n"
        "from langchain_dpicl.ledger import SQLLedger, upgrade_ledger\n"
        "print('alembic' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "False"


def test_accounts_of_an_upgraded_ledger_are_registered(
    old: Database, connect: Connect
) -> None:
    upgrade_ledger(old.url)
    connect().verify_accounts()
    connect().open(AccountTerms("one more", 8.0, 1e-6, 5))
    connect().verify_accounts()
    old.execute("UPDATE dpicl_account SET name = 'other' WHERE name = 'new'")
    with pytest.raises(LedgerError, match="dpicl ledger verify"):
        connect().open(AccountTerms("new", 8.0, 1e-6, 5))
