"""Making a ledger where there is none, and refusing databases that are not ours."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import URL, Connection, create_engine, func, insert, inspect, select
from sqlalchemy.exc import SQLAlchemyError

from langchain_dpicl._version import __version__
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger.sql.engine import Mode, parse_url
from langchain_dpicl.ledger.sql.schema import (
    SCHEMA_VERSION,
    SQLITE_APPLICATION_ID,
    metadata,
    version_table,
)
from langchain_dpicl.ledger.sql.sqlite_file import PAGE_BYTES, LedgerFile, place_copy
from langchain_dpicl.ledger.sql.transactions import Transactions
from langchain_dpicl.ledger.sql.verification import start_registry


def schema_version(connection: Connection) -> int | None:
    """Return the schema version of a ledger; None for a database without one.

    A PostgreSQL database may hold other tables beside the ledger's; a SQLite file is a
    ledger, or it is refused.
    """
    tables = set(inspect(connection).get_table_names())
    ours = version_table.name in tables
    if connection.dialect.name == "sqlite":
        application_id = connection.exec_driver_sql("PRAGMA application_id").scalar()
        if tables and (not ours or application_id != SQLITE_APPLICATION_ID):
            raise LedgerError(
                "The SQLite file is not a privacy ledger but some other database. "
                "Name a file of its own."
            )
    if not ours:
        return None
    version = connection.execute(select(func.max(version_table.c.version))).scalar()
    if version is None:
        raise LedgerError("The ledger is damaged: its version is missing. Restore it.")
    if version == SCHEMA_VERSION and set(metadata.tables) - tables:
        raise LedgerError("The ledger is damaged: tables are missing. Restore it.")
    return int(version)


def require_version(version: int, url: str) -> None:
    """Refuse a ledger that this version of the library can't use, saying what to do."""
    if version < SCHEMA_VERSION:
        raise LedgerError(
            f"The ledger {url} has schema version {version}, this library needs "
            f"{SCHEMA_VERSION}. Use the library version that wrote it."
        )
    if version > SCHEMA_VERSION:
        raise LedgerError(
            f"The ledger has schema version {version}, this library knows "
            f"{SCHEMA_VERSION}. Use the library version that wrote it, or newer."
        )


def no_ledger(url: str) -> LedgerError:
    """Return the error for a ledger that has to be there and is not."""
    return LedgerError(
        f"There is no ledger at {url}. Is the URL right? If one was there, it was "
        "deleted or moved: restore it, for a new one would forget its charges. If "
        f"none ever was, 'dpicl ledger create --ledger {url}' makes one."
    )


def new_ledger(url: str | URL) -> None:
    """Make a ledger where there is none; refuse if something is there already."""
    database = Transactions(parse_url(url))
    file = database.file
    try:
        if file is None:
            found = database.run(schema_version, mode=Mode.READ) is not None
        else:
            found = os.path.lexists(file.target)
        if found:
            raise LedgerError(
                f"There is something at {database.name} already; it was left as it is."
            )
        open_tables(database, create=True)
    finally:
        database.engine.dispose()


def open_tables(database: Transactions, *, create: bool) -> None:
    """Find the tables of this version, or make them where none are if `create`."""
    file, failure = database.file, ""
    try:
        if file is not None and not file.exists():
            if not create:
                raise no_ledger(database.name)
            create_file(file)
    except (OSError, SQLAlchemyError, sqlite3.Error) as error:
        failure = type(error).__name__
    if failure:
        raise database.unusable(failure)
    version = database.run(schema_version, mode=Mode.READ)
    if version is None:
        if file is not None:
            raise LedgerError(
                f"The ledger's file {file.path} has no tables: it was emptied, or "
                "never was a ledger. Restore it from a backup; delete it only if there "
                "never was a ledger at this place."
            )
        if not create:
            raise no_ledger(database.name)
        database.run(create_ledger)
        version = database.run(schema_version, mode=Mode.READ)
    require_version(version or 0, database.name)


def create_file(file: LedgerFile) -> None:
    """Make a SQLite ledger that appears complete, unless somebody is faster."""
    engine = create_engine("sqlite://", hide_parameters=True)
    with engine.connect() as connection, suppress(FileExistsError):
        connection.exec_driver_sql(f"PRAGMA page_size={PAGE_BYTES}")
        create_ledger(connection)
        connection.commit()
        driver: Any = connection.connection.driver_connection
        place_copy(driver, file.target, lambda _: None)
    engine.dispose()


def create_ledger(connection: Connection) -> None:
    """Make the tables, unless somebody was faster; the commit is the caller's."""
    if connection.dialect.name == "postgresql":
        # Two that create at once would both see no table; SQLite has one writer.
        connection.execute(select(func.pg_advisory_xact_lock(SQLITE_APPLICATION_ID)))
    if schema_version(connection) is not None:
        return
    metadata.create_all(connection)
    start_registry(connection)
    record_version(connection)


def record_version(connection: Connection) -> None:
    """Note that the tables are now those of this library version."""
    connection.execute(
        insert(version_table).values(
            version=SCHEMA_VERSION,
            library=__version__,
            created_at=datetime.now(timezone.utc),
        )
    )
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA application_id={SQLITE_APPLICATION_ID}")
