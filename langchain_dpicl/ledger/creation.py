"""Making the tables in an empty database, and refusing any that are not ours."""

from __future__ import annotations

from datetime import datetime, timezone

from sqlalchemy import Connection, func, insert, inspect, select

from langchain_dpicl._version import __version__
from langchain_dpicl.exceptions import LedgerError
from langchain_dpicl.ledger.schema import (
    SCHEMA_VERSION,
    SQLITE_APPLICATION_ID,
    metadata,
    version_table,
)


def schema_version(connection: Connection) -> int | None:
    """Return the schema version of a ledger; None for an empty database.

    A PostgreSQL database may hold other tables beside the ledger's; a SQLite file is
    a ledger or it is not.

    Raises:
        LedgerError: If it is some other database, or a damaged ledger.
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
    """Refuse a ledger that this version of the library can't use.

    Args:
        version: The ledger's.
        url: The ledger, as the message may show it.

    Raises:
        LedgerError: If it is older or newer, saying what to do.
    """
    if version < SCHEMA_VERSION:
        raise LedgerError(
            f"The ledger has schema version {version}, this library needs "
            f"{SCHEMA_VERSION}. Stop whatever uses it, make a copy, and run "
            f"'dpicl ledger upgrade --ledger {url}'; nothing that was charged is lost."
        )
    if version > SCHEMA_VERSION:
        raise LedgerError(
            f"The ledger has schema version {version}, this library knows "
            f"{SCHEMA_VERSION}. Use the library version that wrote it, or newer."
        )


def create_ledger(connection: Connection) -> None:
    """Make the tables, unless somebody was faster; the commit is the caller's."""
    if connection.dialect.name == "postgresql":
        # Two that create at once would both see no table; SQLite has one writer.
        connection.execute(select(func.pg_advisory_xact_lock(SQLITE_APPLICATION_ID)))
    if schema_version(connection) is not None:
        return
    metadata.create_all(connection)
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
