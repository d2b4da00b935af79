"""A charge on PostgreSQL in two exchanges with the server.

While a charge holds its account's row, all others wait for it, and for whatever goes to
the server and back. The driver's pipeline sends several statements at once: the first
exchange locks the row, and reads it and the journal's end; the second writes, commits,
and waits for the disk (`Mode.FLUSH`). What is read and written, and by which rule, is
as in `ledger/sql/rows.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.sql import ClauseElement

from langchain_dpicl.accounting.events import Event
from langchain_dpicl.ledger.base import Charge
from langchain_dpicl.ledger.sql import statements
from langchain_dpicl.ledger.sql.engine import POSTGRES_BEGIN, Mode
from langchain_dpicl.ledger.sql.rows import (
    Opening,
    account_of,
    end_of,
    next_charge,
    require_counted,
)
from langchain_dpicl.ledger.sql.standbys import require_confirmed


def charge(
    connection: Connection,
    name: str,
    opening: Opening,
    events: Sequence[Event] | None,
    begun: Callable[[], None],
) -> Charge | None:
    """Charge one release, durably, if all is as it was when the journal was checked.

    The connection is outside a transaction; `opening` is what the account's journal was
    found to start with, and `begun` is called before anything is written. Returns None
    if the account starts with something else or is unknown, or the driver has no
    pipeline: then nothing was done, and the ordinary way is left.
    """
    # A PostgreSQL ledger needs this driver anyway.
    import psycopg
    from psycopg.rows import namedtuple_row

    if not psycopg.Pipeline.is_supported():
        return None
    driver: Any = connection.connection.driver_connection
    try:
        with driver.pipeline():
            for statement in POSTGRES_BEGIN[Mode.CHARGE]:
                driver.execute(statement)
            row, last = driver.cursor(), driver.cursor()
            row.row_factory = last.row_factory = namedtuple_row
            row.execute(*_bound(statements.LOCK_ACCOUNT, {"name": name}))
            # It sees what was committed before it began: after the wait for the row.
            last.execute(*_bound(statements.LAST_CHARGE_OF, {"name": name}))
            found = row.fetchone()
            begun()
            account = None if found is None else account_of(found)
            if account is None or account.opening != opening:
                return None
            end = end_of(account, last.fetchone())
            paid, values = next_charge(account, end, events)
            counted = driver.execute(*_bound(statements.COUNT_AND_WRITE_CHARGE, values))
            driver.execute("COMMIT")
            for statement in POSTGRES_BEGIN[Mode.FLUSH]:
                driver.execute(statement)
        # The end of the block has waited for all of it, and raised what went wrong.
        require_counted(paid, counted.rowcount)
        require_confirmed(connection)
    except psycopg.Error:
        # Whatever state it is in, nobody uses it again.
        connection.invalidate()
        raise
    finally:
        if not connection.invalidated:
            driver.rollback()
    return paid


def _bound(
    statement: ClauseElement, values: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    text, constants = _compiled(statement)
    return text, {**constants, **values}


@functools.cache
def _compiled(statement: ClauseElement) -> tuple[str, dict[str, Any]]:
    from sqlalchemy.dialects.postgresql import psycopg

    compiled = statement.compile(dialect=psycopg.dialect())  # type: ignore[no-untyped-call] # SQLAlchemy's
    return str(compiled), dict(compiled.params)
