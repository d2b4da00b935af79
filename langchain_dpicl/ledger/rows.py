"""Reading and writing the ledger's rows, inside somebody's transaction."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import Connection, func, insert, inspect, select

from langchain_dpicl._version import __version__
from langchain_dpicl.accounting import Event, event_from_dict, event_to_dict
from langchain_dpicl.exceptions import LedgerError
from langchain_dpicl.ledger import statements
from langchain_dpicl.ledger.base import AccountState, AccountTerms, Charge, Plan
from langchain_dpicl.ledger.refusals import require_chargeable, unknown_account
from langchain_dpicl.ledger.schema import (
    SCHEMA_VERSION,
    SQLITE_APPLICATION_ID,
    metadata,
    version_table,
)


def read_events(stored: str) -> tuple[Event, ...]:
    """Return the events of a stored charge.

    Raises:
        LedgerError: If they can't be read.
    """
    try:
        return tuple(event_from_dict(event) for event in json.loads(stored))
    except (ValueError, TypeError):
        raise LedgerError(
            "A charge can't be read: it was written by another version or damaged."
        ) from None


def require_ledger(connection: Connection) -> None:
    """Create the tables in an empty database; refuse any but our own."""
    sqlite = connection.dialect.name == "sqlite"
    tables = set(inspect(connection).get_table_names())
    ours = version_table.name in tables
    if sqlite:
        application_id = connection.exec_driver_sql("PRAGMA application_id").scalar()
        if tables and (not ours or application_id != SQLITE_APPLICATION_ID):
            raise LedgerError(
                "The SQLite file is not a privacy ledger but some other database. "
                "Name a file of its own."
            )
    if not ours:
        metadata.create_all(connection)
        connection.execute(
            insert(version_table).values(
                version=SCHEMA_VERSION,
                library=__version__,
                created_at=datetime.now(timezone.utc),
            )
        )
        if sqlite:
            connection.exec_driver_sql(f"PRAGMA application_id={SQLITE_APPLICATION_ID}")
        return
    missing = set(metadata.tables) - tables
    version = connection.execute(select(func.max(version_table.c.version))).scalar()
    if missing or version is None:
        raise LedgerError("The ledger is damaged: tables are missing. Restore it.")
    if version != SCHEMA_VERSION:
        raise LedgerError(
            f"The ledger has schema version {version}, this library knows "
            f"{SCHEMA_VERSION}. Use the library version that wrote it, or newer."
        )


def find_account(connection: Connection, name: str) -> Any:
    """Return an account's row, locked where the database locks rows, or None."""
    return connection.execute(statements.FIND_ACCOUNT, {"name": name}).one_or_none()


def read_account(connection: Connection, name: str) -> tuple[int, AccountState]:
    """Return an account's number and state.

    Raises:
        LedgerError: If there is no such account, or it is damaged.
    """
    row = find_account(connection, name)
    if row is None:
        raise unknown_account(name)
    try:
        terms = AccountTerms(
            name=row.name,
            epsilon=float.fromhex(row.epsilon),
            delta=float.fromhex(row.delta),
            queries=int(row.queries),
        )
        plan = None if row.plan is None else Plan.from_dict(json.loads(row.plan))
        used = int(row.used)
    except (TypeError, ValueError, AttributeError):
        raise LedgerError(f"Account {name!r} is damaged: it can't be read.") from None
    last = connection.execute(statements.LAST_SEQUENCE, {"number": row.id}).scalar()
    if used != (last or 0) or used < 0:
        raise LedgerError(
            f"Account {name!r} is damaged: its counter says {used} charges, its "
            f"journal ends at {last or 0}. Restore the ledger; nothing is released "
            "from it."
        )
    return row.id, AccountState(terms, plan, used, bool(row.closed))


def write_charge(connection: Connection, name: str) -> Charge:
    """Check, count and write one charge; the commit is the caller's.

    Raises:
        BudgetExhaustedError: If all queries are spent.
        LedgerError: If the account can't be charged.
    """
    number, state = read_account(connection, name)
    plan = require_chargeable(state)
    sequence = state.used + 1
    connection.execute(
        statements.COUNT_CHARGE, {"number": number, "seen": state.used, "now": sequence}
    )
    events = json.dumps([event_to_dict(e) for e in plan.events], sort_keys=True)
    connection.execute(
        statements.WRITE_CHARGE,
        {
            "account_id": number,
            "sequence": sequence,
            "events": events,
            "charged_at": datetime.now(timezone.utc),
        },
    )
    return Charge(account=name, sequence=sequence, events=plan.events)
