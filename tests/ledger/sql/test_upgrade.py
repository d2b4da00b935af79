"""Ledgers of older versions are brought up to date, and lose nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, make_url
from support.corpora import CLINIC
from support.ledgers import PLAN, PLANNED, Database, opened, spend, sqlite_database

from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import SQLLedger, upgrade_ledger
from langchain_dpicl.ledger.sql import creation, migrations
from langchain_dpicl.ledger.sql import upgrade as upgrading
from langchain_dpicl.ledger.sql.creation import create_ledger, record_version
from langchain_dpicl.ledger.sql.engine import open_engine
from langchain_dpicl.ledger.sql.schema import SCHEMA_VERSION, metadata
from langchain_dpicl.ledger.sql.upgrade import run_migrations

Connect = Callable[[], SQLLedger]

NEXT = SCHEMA_VERSION + 1
SECOND = f"""
import sqlalchemy as sa
from alembic import op

revision, down_revision = "{NEXT:04d}", "{SCHEMA_VERSION:04d}"
branch_labels = depends_on = None


def upgrade():
    op.add_column("dpicl_account", sa.Column("country", sa.String(40)))
    op.execute("UPDATE dpicl_account SET country = 'CH'")
    with op.batch_alter_table("dpicl_account") as account:
        account.alter_column("country", existing_type=sa.String(40), nullable=False)
    rows = op.get_bind().execute(sa.text("SELECT epsilon FROM dpicl_account"))
    [float.fromhex(epsilon) for (epsilon,) in rows]
"""


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


def migrate(connection: Connection) -> None:
    run_migrations(connection, 0)
    record_version(connection)


def differences(connection: Connection) -> object:
    options = {"compare_type": True, "compare_server_default": True}
    context = MigrationContext.configure(connection, opts=options)
    return compare_metadata(context, metadata)


@pytest.fixture
def old(
    database: Database,
    connect: Connect,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Database:
    """A charged ledger of this version, for a library of the next one."""
    ledger = opened(connect())
    for _ in range(3):
        spend(ledger)
    ledger.start_release("notes", 2, "a kind", "{}")
    ledger.store_step("notes", 2, 0, "[18]")
    scripts = tmp_path / "scripts"
    shutil.copytree(Path(migrations.__file__).parent, scripts)
    (scripts / "versions" / "next.py").write_text(SECOND)
    monkeypatch.setattr(upgrading, "SCRIPTS", str(scripts))
    for module in (creation, upgrading):
        monkeypatch.setattr(module, "SCHEMA_VERSION", NEXT)
    return database


@pytest.mark.parametrize("make", [migrate, create_ledger])
def test_new_tables_are_what_all_migrations_make(
    database: Database, connect: Connect, make: Callable[[Connection], None]
) -> None:
    in_database(database, make)
    in_database(database, create_ledger)
    assert in_database(database, differences) == []
    assert opened(connect()).charge("notes").sequence == 1
    connect().verify_accounts()


def test_a_migrated_file_has_the_statements_of_a_new_one(tmp_path: Path) -> None:
    """Also what alembic does not compare: checks, and tables without row numbers."""
    found = []
    for make in (migrate, create_ledger):
        database = sqlite_database(tmp_path / f"{make.__name__}.db")
        in_database(database, make)
        rows = database.execute("SELECT sql FROM sqlite_master ORDER BY name")
        # A column that was added stands last, behind the table's constraints.
        found.append([sorted(re.split(r",\s+", words(sql))) for (sql,) in rows])
    assert found[0] == found[1]


def words(statement: str | None) -> str:
    inner = re.sub(r'[\s"]+', " ", statement or "").partition("(")
    return f"{inner[0]}, {inner[2].rstrip().removesuffix(')').strip()}"


def test_an_old_ledger_says_how_to_upgrade_and_is_left_alone(old: Database) -> None:
    with pytest.raises(LedgerError, match="dpicl ledger upgrade --ledger") as caught:
        SQLLedger(old.url)
    assert f"schema version {SCHEMA_VERSION}," in str(caught.value)
    assert old.execute("SELECT max(version) FROM dpicl_schema") == [(SCHEMA_VERSION,)]


def test_an_upgrade_loses_nothing_and_is_made_once(
    old: Database, connect: Connect
) -> None:
    assert upgrade_ledger(old.url) == SCHEMA_VERSION
    assert upgrade_ledger(old.url) == NEXT
    assert old.execute("SELECT country FROM dpicl_account") == [("CH",)]
    ledger = connect()
    ledger.verify_accounts()
    state = ledger.verify("notes")
    assert (state.terms, state.used, state.plan) == (PLANNED, 3, PLAN)
    assert [found.steps for found in ledger.releases("notes", "a kind")] == [("[18]",)]
    assert ledger.charge("notes").sequence == 4


def test_a_ledger_of_schema_1_goes_on_and_gets_corpora(
    database: Database, connect: Connect
) -> None:
    spend(opened(connect()))
    for column in ("corpus", "period", "purpose", "closed_at", "salt"):
        database.execute(f"ALTER TABLE dpicl_account DROP COLUMN {column}")
    database.execute("DROP TABLE dpicl_corpus")
    database.execute("UPDATE dpicl_schema SET version = 1")
    assert upgrade_ledger(database.url) == 1
    assert in_database(database, differences) == []
    ledger = connect()
    ledger.verify_accounts()
    assert ledger.verify("notes").used == 1
    assert spend(ledger).sequence == 2
    ledger.create_corpus(CLINIC)
    clinic = replace(PLANNED, name="clinic", corpus="clinic")
    ledger.open(clinic)
    assert [one.terms for one in ledger.corpus("clinic").accounts] == [clinic]
    ledger.verify_accounts()


def test_a_ledger_that_a_migration_can_not_read_stays_as_it_was(old: Database) -> None:
    old.execute("UPDATE dpicl_account SET epsilon = 'much'")
    before = old.execute("SELECT * FROM dpicl_account")
    with pytest.raises(LedgerError, match="is as it was"):
        upgrade_ledger(old.url)
    assert old.execute("SELECT * FROM dpicl_account") == before
    assert old.execute("SELECT max(version) FROM dpicl_schema") == [(SCHEMA_VERSION,)]


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
