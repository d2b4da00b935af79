"""The database's time: what the ledger's time follows, which never goes back."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy import Connection

SERVER_TIME = "SELECT clock_timestamp()"


def database_time(connection: Connection | None = None) -> datetime:
    """Return the time of a PostgreSQL server, else that of this machine, in UTC.

    The server's time is that of the statement and not of the transaction, which may
    have waited for a lock.
    """
    if connection is None or connection.dialect.name == "sqlite":
        return datetime.now(timezone.utc)
    return server_time(connection.exec_driver_sql(SERVER_TIME).one())


def server_time(row: Any) -> datetime:
    """Return the time that `SERVER_TIME` has found, in UTC."""
    now: datetime = row[0]
    return now.astimezone(timezone.utc)
