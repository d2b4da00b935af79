"""The statements of a ledger's daily work, built once.

SQLAlchemy spends more on building a statement than SQLite on running it; a statement
that is kept is also compiled only once.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    DateTime,
    Integer,
    String,
    Text,
    bindparam,
    insert,
    select,
    update,
)

from langchain_dpicl.ledger.sql.schema import (
    account_table,
    charge_table,
    release_table,
    step_table,
    unit_table,
)

# An account by `name`.
READ_ACCOUNT = select(account_table).where(account_table.c.name == bindparam("name"))
# The same; its row stays locked until the transaction ends.
LOCK_ACCOUNT = READ_ACCOUNT.with_for_update()
LAST_CHARGE = (
    select(charge_table.c.sequence, charge_table.c.digest, charge_table.c.charged_at)
    .where(charge_table.c.account_id == bindparam("number"))
    .order_by(charge_table.c.sequence.desc())
    .limit(1)
)
"""The last charge in the journal of account `number`.

A statement of its own, after the account's row is locked: in PostgreSQL a subquery of
the locking statement would see the journal as it was before the wait for the lock.
"""

_number_of_name = (
    select(account_table.c.id)
    .where(account_table.c.name == bindparam("name"))
    .scalar_subquery()
)
# The same, of the account called `name`.
LAST_CHARGE_OF = (
    select(charge_table.c.sequence, charge_table.c.digest, charge_table.c.charged_at)
    .where(charge_table.c.account_id == _number_of_name)
    .order_by(charge_table.c.sequence.desc())
    .limit(1)
)
# Count the charge `now` of account `number`; write the new sums and head.
COUNT_CHARGE = (
    update(account_table)
    .where(
        account_table.c.id == bindparam("number"),
        account_table.c.used == bindparam("now") - 1,
    )
    .values(
        used=bindparam("now"),
        spent_loss=bindparam("loss"),
        spent_failure=bindparam("failure"),
        head=bindparam("head"),
    )
)
_counted = COUNT_CHARGE.returning(account_table.c.id).cte("counted")
_WRITTEN = {
    "account_id": bindparam("number", type_=Integer),
    "sequence": bindparam("now", type_=Integer),
    "events": bindparam("events", type_=Text),
    "cost_loss": bindparam("cost_loss", type_=BigInteger),
    "cost_failure": bindparam("cost_failure", type_=BigInteger),
    "charged_at": bindparam("charged_at", type_=DateTime(timezone=True)),
    "digest": bindparam("digest", type_=String),
}

# Write the same charge into the journal.
WRITE_CHARGE = insert(charge_table).values(_WRITTEN)
_values: list[Any] = list(_WRITTEN.values())

# Both at once, for a database that can: nothing is written if nothing was counted.
COUNT_AND_WRITE_CHARGE = insert(charge_table).from_select(
    list(_WRITTEN), select(*_values).where(_counted.c.id.is_not(None))
)
# The charges of account `number`, oldest first.
JOURNAL = (
    select(charge_table)
    .where(charge_table.c.account_id == bindparam("number"))
    .order_by(charge_table.c.sequence)
)
# What the charge `sequence` of account `number` costs: each unit, or all at once.
PRICE = select(charge_table.c.cost_loss, charge_table.c.cost_failure).where(
    charge_table.c.account_id == bindparam("number"),
    charge_table.c.sequence == bindparam("sequence"),
)
# Write the digest of all balances of account `number`, and its head.
DIGEST_BALANCES = (
    update(account_table)
    .where(account_table.c.id == bindparam("number"))
    .values(balances_digest=bindparam("digest"), head=bindparam("head"))
)
# All balances of account `number`, in no order.
BALANCES = select(unit_table.c.tag, unit_table.c.loss, unit_table.c.failure).where(
    unit_table.c.account_id == bindparam("number")
)
# The first `size` balances of account `number` with a tag beyond `after`.
BALANCES_PAGE = (
    BALANCES.where(unit_table.c.tag > bindparam("after"))
    .order_by(unit_table.c.tag)
    .limit(bindparam("size"))
)
# How far each release of account `number` is, by the order of their charges.
RELEASES = (
    select(release_table.c.charge, release_table.c.steps, release_table.c.digest)
    .where(release_table.c.account_id == bindparam("number"))
    .order_by(release_table.c.charge)
)
# What each release of account `number` was started with, in no order.
HEADERS = select(
    release_table.c.charge, release_table.c.kind, release_table.c.header
).where(release_table.c.account_id == bindparam("number"))
# What all steps of account `number` drew, in order.
STEPS = (
    select(step_table.c.charge, step_table.c.number, step_table.c.drawn)
    .where(step_table.c.account_id == bindparam("number"))
    .order_by(step_table.c.charge, step_table.c.number)
)
# Start a release of charge `sequence` of account `number`.
START_RELEASE = insert(release_table).values(
    account_id=bindparam("number", type_=Integer),
    charge=bindparam("sequence", type_=Integer),
    kind=bindparam("kind", type_=String),
    header=bindparam("header", type_=Text),
    steps=0,
    digest=bindparam("digest", type_=String),
)
# Write what `step` of the same release drew.
WRITE_STEP = insert(step_table).values(
    account_id=bindparam("number", type_=Integer),
    charge=bindparam("sequence", type_=Integer),
    number=bindparam("step", type_=Integer),
    drawn=bindparam("drawn", type_=Text),
)
# Count it: the release now has `now` steps and ends with `digest`.
COUNT_STEP = (
    update(release_table)
    .where(
        release_table.c.account_id == bindparam("number"),
        release_table.c.charge == bindparam("sequence"),
        release_table.c.steps == bindparam("step"),
    )
    .values(steps=bindparam("now"), digest=bindparam("digest"))
)
NOTE_RELEASES = (
    update(account_table)
    .where(account_table.c.id == bindparam("number"))
    .values(releases_digest=bindparam("releases"), head=bindparam("head"))
)
"""Write the digest of all releases of account `number`, and its head."""
