"""A charge on PostgreSQL in two exchanges with the server.

While a charge holds its account's row, all others wait for it, and for whatever goes to
the server and back. The driver's pipeline sends several statements at once: the first
exchange locks the row, and reads it and the journal's end; the second writes, commits,
and waits for the disk (`Mode.FLUSH`). An account of a corpus locks its corpus in the
same exchange, after its own row, and then reads the server's time. What is read and
written, and by which rule, is as in `ledger/sql/rows.py` and `corpus_rows.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.sql import ClauseElement

from langchain_dpicl.accounting.events import Event
from langchain_dpicl.ledger import clock
from langchain_dpicl.ledger.base import Charge
from langchain_dpicl.ledger.sql import corpus_rows, statements
from langchain_dpicl.ledger.sql.engine import POSTGRES_BEGIN, Mode
from langchain_dpicl.ledger.sql.rows import (
    Account,
    Last,
    Opening,
    account_of,
    corpus_of,
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
    if the account starts with something else or is unknown, its corpus is gone, it is
    the first charge under a corpus's cap, or the driver has no pipeline: then nothing
    was done, and the ordinary way is left.
    """
    # A PostgreSQL ledger needs this driver anyway.
    import psycopg

    if not psycopg.Pipeline.is_supported():
        return None
    driver: Any = connection.connection.driver_connection
    try:
        with driver.pipeline():
            for statement in POSTGRES_BEGIN[Mode.CHARGE]:
                driver.execute(statement)
            found = _read(driver, name, opening, begun)
            if found is None:
                return None
            paid, values = next_charge(found.account, found.last, events)
            if found.kept is not None:
                driver.execute(*_bound(corpus_rows.KEEP_TIME, found.kept))
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


@dataclass(frozen=True, repr=False)
class _Found:
    """What the first exchange has locked and read.

    `kept` is what `KEEP_TIME` binds; None for an account without a corpus.
    """

    account: Account
    last: Last
    kept: dict[str, Any] | None


def _read(
    driver: Any,
    name: str,
    opening: Opening,
    begun: Callable[[], None],
) -> _Found | None:
    from psycopg.rows import namedtuple_row

    def asked(statement: ClauseElement, **values: str) -> Any:
        cursor = driver.cursor(row_factory=namedtuple_row)
        cursor.execute(*_bound(statement, values))
        return cursor

    row = asked(statements.LOCK_ACCOUNT, name=name)
    # It sees what was committed before it began: after the wait for the row.
    last = asked(statements.LAST_CHARGE_OF, name=name)
    corpus = time = None
    if (known_as := corpus_of(opening)) is not None:
        corpus = asked(corpus_rows.LOCK_CORPUS, corpus=known_as)
        time = driver.execute(clock.SERVER_TIME)
    found = row.fetchone()
    begun()
    account = None if found is None else account_of(found)
    if account is None or account.opening != opening:
        return None
    if known_as is not None and not account.state.used:
        return None
    end, kept = end_of(account, last.fetchone()), None
    if corpus is not None and time is not None:
        if (held := corpus.fetchone()) is None:
            return None
        whole = corpus_rows.corpus_of(held)
        now = max(whole.at, clock.server_time(time.fetchone()))
        account = replace(account, state=replace(account.state, at=now))
        kept = corpus_rows.kept_time(whole, now)
    return _Found(account, end, kept)


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
