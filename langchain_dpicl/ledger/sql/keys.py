"""A fresh key for the tags of a per-unit account: its balances move, none is lost.

A tag is hashed once more under the new key (`ledger.balances`): no id is needed, so
that people who are in no index any more keep what they have spent. All of it, tags,
keys, digest and head, is one transaction that holds the account's row: a crash leaves
the old state or the new one, and a charge comes before or after it. Processes that have
the account open read its keys with every charge, and go on.

Privacy:
    Balances don't change, so neither does what anybody may still spend; the release of
    nothing takes part. The journal stays as it is, and digests that were exported
    before are still in it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from sqlalchemy import Connection, delete, insert, update

from langchain_dpicl.accounting import Cost
from langchain_dpicl.ledger import hash_chain
from langchain_dpicl.ledger.balances import new_key, retagged
from langchain_dpicl.ledger.base import NOTHING
from langchain_dpicl.ledger.sql import statements
from langchain_dpicl.ledger.sql.rows import Account, Last
from langchain_dpicl.ledger.sql.schema import account_table, unit_table
from langchain_dpicl.ledger.sql.verification import require_balances

_CHUNK = 10_000


def rotate_key(
    connection: Connection,
    account: Account,
    last: Last,
    former: Collection[str] = (),
    salt: str | None = None,
) -> int:
    """Give an account's tags a fresh key; return how many balances moved.

    An account that is bound to a salt with a fingerprint among `former` is bound to
    that of `salt`. The transaction holds the account's row; the commit is the caller's.
    Balances that don't add up are a `LedgerError`: a rotation must not make them whole.
    """
    require_balances(connection, account)
    fresh = new_key()
    keys = (account.unit_key or b"") + fresh
    rows = connection.execute(statements.BALANCES, {"number": account.number})
    balances = {
        retagged(fresh, tag): Cost(loss, failure)
        for tag, loss, failure in rows
        # Who has spent nothing has none; one such row stands for nobody.
        if loss or failure
    }
    connection.execute(
        delete(unit_table).where(unit_table.c.account_id == account.number)
    )
    # In the order of the table's own tree.
    moved = [
        {"account_id": account.number, "tag": tag, **spent._asdict()}
        for tag, spent in sorted(balances.items())
    ]
    for first in range(0, len(moved), _CHUNK):
        connection.execute(insert(unit_table), moved[first : first + _CHUNK])
    digest = hash_chain.balances_after(
        hash_chain.NO_BALANCES,
        keys,
        ((tag, NOTHING, spent) for tag, spent in balances.items()),
    )
    state = account.state
    if state.salt in former:
        state = replace(state, salt=salt)
    head = hash_chain.head_of(last.digest, state, digest, account.releases, keys)
    connection.execute(
        update(account_table)
        .where(account_table.c.id == account.number)
        .values(unit_key=keys, balances_digest=digest, head=head, salt=state.salt)
    )
    return len(moved)
