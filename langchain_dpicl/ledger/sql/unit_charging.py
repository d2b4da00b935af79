"""Charging many units at once: one statement, whatever their number.

The database decides who can pay. A unit's row is written or raised only while the
result stays within the limit, and the statement names the rows that it has touched.

Privacy:
    The statement holds keyed hashes of unit ids; who pays, and the number of units, are
    private, and so are the database's own logs of statements. All of it happens in the
    transaction that holds the account's row, so that two queries at once can't both
    spend what is left of a unit.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from langchain_dpicl.accounting import Cost
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import hash_chain
from langchain_dpicl.ledger.balances import TAG_BYTES, unit_tag
from langchain_dpicl.ledger.base import NOTHING, Charge
from langchain_dpicl.ledger.charging import fits
from langchain_dpicl.ledger.sql import statements
from langchain_dpicl.ledger.sql.rows import IMPOSSIBLE, Account, Last, damaged

CHUNK = 20_000  # Units a statement: SQLite binds 32,766 values at most.
_UPSERT = """
{wanted} INSERT INTO dpicl_unit (account_id, tag, loss, failure) {rows}
ON CONFLICT (account_id, tag) DO UPDATE SET
    loss = dpicl_unit.loss + {loss}, failure = dpicl_unit.failure + {failure}
WHERE dpicl_unit.loss <= {most_loss} AND dpicl_unit.failure <= {most_failure}
RETURNING tag, loss, failure
"""

_POSTGRES_UPSERT = _UPSERT.format(
    wanted="",
    rows="SELECT %(number)s, tag, %(loss)s, %(failure)s "
    # "WHERE true" keeps a parser from reading ON as part of a join.
    "FROM unnest(%(tags)s::bytea[]) AS tag WHERE true",
    loss="%(loss)s",
    failure="%(failure)s",
    most_loss="%(most_loss)s",
    most_failure="%(most_failure)s",
)


def charge_units(
    connection: Connection,
    account: Account,
    last: Last,
    charge: Charge,
    unit_ids: Sequence[str],
) -> list[bool]:
    """Charge every unit that can pay; return for each whether it has paid.

    The transaction holds the account's row; the commit is the caller's. A charge that
    is not in the account's journal, or a balance that is not what a unit can have
    spent, is a `LedgerError`.
    """
    key = account.unit_key
    if key is None or account.balances is None:
        raise damaged(account.state.terms.name, "in its terms", "its key is missing")
    cost = _price(connection, account, charge)
    # Whoever is eligible, and if nobody is, something is written: a database that can
    # be read and not written must not tell the one from the other.
    _upsert(connection, account, NOTHING, [_nobody(key)])
    tags = [unit_tag(key, unit_id) for unit_id in unit_ids]
    paid: dict[bytes, Cost] = {}
    # In the tree's own order the rows lie on fewer pages.
    wanted = sorted(tags)
    for first in range(0, len(wanted), CHUNK):
        paid.update(_upsert(connection, account, cost, wanted[first : first + CHUNK]))
    changes = [
        (tag, Cost(now.loss - cost.loss, now.failure - cost.failure), now)
        for tag, now in paid.items()
    ]
    _require_possible(account, changes)
    digest = hash_chain.balances_after(account.balances, key, changes)
    connection.execute(
        statements.DIGEST_BALANCES,
        {
            "number": account.number,
            "digest": digest,
            "head": hash_chain.head_of(
                last.digest, account.state, digest, account.releases
            ),
        },
    )
    return [tag in paid for tag in tags]


def _nobody(key: bytes) -> bytes:
    # Not the tag of any id: those have another personalization.
    person = b"dpicl.nobody"
    return hashlib.blake2b(key=key, digest_size=TAG_BYTES, person=person).digest()


def _require_possible(
    account: Account, changes: Sequence[tuple[bytes, Cost, Cost]]
) -> None:
    steps = [one for _tag, before, now in changes for one in (*before, *now)]
    # A driver returns what somebody has written into the column.
    if any(type(one) is not int or one < 0 for one in steps):
        raise damaged(account.state.terms.name, *IMPOSSIBLE)


def _price(connection: Connection, account: Account, charge: Charge) -> Cost:
    row = connection.execute(
        statements.PRICE, {"number": account.number, "sequence": charge.sequence}
    ).one_or_none()
    # What is written for a unit that is new has no limit but this one.
    if (
        row is None
        or Cost(row.cost_loss, row.cost_failure) != charge.cost
        or not fits(charge.cost, account.state.terms.limit)
        or min(charge.cost) < 0
    ):
        raise LedgerError(
            f"Account {charge.account!r} has no charge {charge.sequence} at this "
            "price: no unit was charged."
        )
    return charge.cost


def _upsert(
    connection: Connection, account: Account, cost: Cost, tags: list[bytes]
) -> dict[bytes, Cost]:
    limit = account.state.terms.limit
    values: dict[str, Any] = {
        "number": account.number,
        "loss": cost.loss,
        "failure": cost.failure,
        "most_loss": limit.loss - cost.loss,
        "most_failure": limit.failure - cost.failure,
    }
    if connection.dialect.name == "sqlite":
        found = connection.exec_driver_sql(
            _sqlite_upsert(len(tags)),
            (
                *tags,
                account.number,
                *(cost.loss, cost.failure) * 2,
                *(values["most_loss"], values["most_failure"]),
            ),
        )
    else:
        found = connection.exec_driver_sql(_POSTGRES_UPSERT, {**values, "tags": tags})
    return {bytes(tag): Cost(loss, failure) for tag, loss, failure in found}


@functools.lru_cache(maxsize=64)
def _sqlite_upsert(size: int) -> str:
    tags = ", ".join(["(?)"] * size)
    return _UPSERT.format(
        wanted=f"WITH wanted (tag) AS (VALUES {tags})",
        rows="SELECT ?, tag, ?, ? FROM wanted WHERE true",
        loss="?",
        failure="?",
        most_loss="?",
        most_failure="?",
    )
