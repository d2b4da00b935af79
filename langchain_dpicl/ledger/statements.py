"""The statements of a ledger's daily work, built once.

SQLAlchemy spends more on building a statement than SQLite on running it; a statement
that is kept is also compiled only once.
"""

from __future__ import annotations

from sqlalchemy import bindparam, func, insert, select, update

from langchain_dpicl.ledger.schema import account_table, charge_table

FIND_ACCOUNT = (
    select(account_table)
    .where(account_table.c.name == bindparam("name"))
    .with_for_update()
)
"""An account by `name`; its row stays locked until the transaction ends."""

LAST_SEQUENCE = select(func.max(charge_table.c.sequence)).where(
    charge_table.c.account_id == bindparam("number")
)
"""The last charge in the journal of account `number`.

A statement of its own, after the account's row is locked: in PostgreSQL a subquery of
the locking statement would see the journal as it was before the wait for the lock.
"""

COUNT_CHARGE = (
    update(account_table)
    .where(
        account_table.c.id == bindparam("number"),
        account_table.c.used == bindparam("seen"),
    )
    .values(used=bindparam("now"))
)
"""Move the counter of account `number` from `seen` to `now`."""

WRITE_CHARGE = insert(charge_table)
"""Write a charge into the journal."""
