"""Opening the database: how SQLite is made durable and serial."""

from __future__ import annotations

import os
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import SQLAlchemyError

from langchain_dpicl.exceptions import LedgerError

SQLITE_WAIT_SECONDS = 60.0
"""How long a writer waits for another one's transaction, a millisecond each."""


def open_engine(url: URL) -> Engine:
    """Return an engine whose transactions are what the ledger needs.

    Raises:
        LedgerError: If there is no driver for the URL.
    """
    try:
        if url.get_backend_name() != "sqlite":
            return create_engine(url, pool_pre_ping=True, hide_parameters=True)
        engine = create_engine(
            url,
            connect_args={"timeout": SQLITE_WAIT_SECONDS},
            hide_parameters=True,
        )
    except (SQLAlchemyError, ImportError) as error:
        raise LedgerError(
            f"No driver for the ledger's URL ({type(error).__name__}). Install "
            "one, for instance langchain-dpicl[postgres] for PostgreSQL."
        ) from None
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def use_write_ahead_log(engine: Engine) -> None:
    """Switch a SQLite file to write-ahead logging, which stays with the file."""
    connection = engine.raw_connection()
    try:
        connection.cursor().execute("PRAGMA journal_mode=WAL").close()
    finally:
        connection.close()


def dispose(engine: Engine, pid: int) -> None:
    """Close what this process opened; a forked child leaves its parent's alone."""
    if os.getpid() == pid:
        engine.dispose()


def _prepare_sqlite(connection: Any, _record: object) -> None:
    # The driver's own transactions begin too late, at the first write: take them over.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # A reader sees one snapshot without the lock, and waits for no writer.
    reads = connection.get_execution_options().get("dpicl_reads", False)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")
