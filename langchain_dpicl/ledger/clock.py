"""The database's time: what the ledger's time follows, which never goes back."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection


def database_time(connection: Connection | None = None) -> datetime:
    """Return the time of a PostgreSQL server, else that of this machine, in UTC.

    The server's time is that of the statement and not of the transaction, which may
    have waited for a lock.
    """
    if connection is None or connection.dialect.name == "sqlite":
        return datetime.now(timezone.utc)
    now: datetime = connection.exec_driver_sql("SELECT clock_timestamp()").scalar_one()
    return now.astimezone(timezone.utc)
