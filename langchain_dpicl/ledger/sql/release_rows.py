"""Releases in a SQL ledger: headers and steps, and whether they are what was stored.

Each release is a chain of its own, from its header to its last step. Its row holds the
number of steps and the last digest, and the account's head covers the rows of all its
releases. A step is stored, counted and put into the head in one transaction that holds
the account's row. So whatever is missing afterwards was there once, and is not drawn
again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection

from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import hash_chain
from langchain_dpicl.ledger.charging import LastCharges
from langchain_dpicl.ledger.release_store import (
    StoredRelease,
    is_next,
    not_charged,
    not_started,
    started_before,
)
from langchain_dpicl.ledger.sql import statements
from langchain_dpicl.ledger.sql.rows import Account, Last, damaged

_STREAM = {"yield_per": 2_000}

Chains = dict[int, tuple[int, str]]
"""For each charge that started a release: its number of steps, and the last digest."""


def start_release(
    connection: Connection,
    account: Account,
    last: Last,
    charge: int,
    kind: str,
    header: str,
) -> None:
    """Write a release's header; the commit is the caller's.

    The transaction holds the account's row. A charge that is not there, or has started
    a release before, is refused, and so are releases that are not what was stored.
    """
    name = account.state.terms.name
    chains = _chains(connection, account)
    if charge in chains:
        raise started_before(name, charge)
    key = {"number": account.number, "sequence": charge}
    if connection.execute(statements.PRICE, key).one_or_none() is None:
        raise not_charged(name, charge)
    digest = hash_chain.after_release(name, charge, kind, header)
    values = {"kind": kind, "header": header, "digest": digest}
    connection.execute(statements.START_RELEASE, {**key, **values})
    _note(connection, account, last, {**chains, charge: (0, digest)})


def store_step(
    connection: Connection,
    account: Account,
    last: Last,
    charge: int,
    number: int,
    drawn: str,
    *,
    known: LastCharges,
) -> str:
    """Write and note what a step drew, or read what is stored; see `start_release`."""
    name = account.state.terms.name
    chains = _chains(connection, account)
    if charge not in chains:
        raise not_started(name, charge)
    steps, digest = chains[charge]
    known.require_drawn(name, charge, steps)
    if not is_next(name, charge, number, steps):
        found = {release.charge: release for release in stored(connection, account)}
        return found[charge].steps[number]
    digest = hash_chain.after_step(digest, number, drawn)
    values = {
        "number": account.number,
        "sequence": charge,
        "step": number,
        "drawn": drawn,
        "now": number + 1,
        "digest": digest,
    }
    connection.execute(statements.WRITE_STEP, values)
    if connection.execute(statements.COUNT_STEP, values).rowcount != 1:
        raise LedgerError(f"The ledger did not count a step of account {name!r}.")
    _note(connection, account, last, {**chains, charge: (number + 1, digest)})
    return drawn


def stored(connection: Connection, account: Account) -> Iterator[StoredRelease]:
    """Yield all releases of an account, each checked from its header to its last step.

    The transaction has read the account, and sees one state of the database or holds
    the account's row.
    """
    chains = _chains(connection, account)
    name, number = account.state.terms.name, {"number": account.number}
    headers = {
        row.charge: (row.kind, row.header)
        for row in connection.execute(statements.HEADERS, number)
    }
    with connection.execute(
        statements.STEPS, number, execution_options=_STREAM
    ) as rows:
        row = rows.fetchone()
        for charge, (steps, expected) in chains.items():
            kind, header = headers[charge]
            drawn: list[str] = []
            try:
                digest = hash_chain.after_release(name, charge, kind, header)
                while row is not None and row.charge == charge:
                    if row.number != len(drawn):
                        break
                    digest = hash_chain.after_step(digest, row.number, row.drawn)
                    drawn.append(row.drawn)
                    row = rows.fetchone()
            except TypeError:
                # SQLite keeps whatever somebody writes into a column.
                digest = ""
            if digest != expected or len(drawn) != steps:
                raise _lost(name, f"at charge {charge}")
            yield StoredRelease(charge, kind, header, tuple(drawn))
        if row is not None:
            raise _lost(name, "in its releases")


def require_releases(connection: Connection, account: Account) -> None:
    """Check all releases of an account; see `stored`."""
    for _ in stored(connection, account):
        """Each is checked as it is read."""


def _chains(connection: Connection, account: Account) -> Chains:
    """Read how far each release is, and check it against the account's own row.

    This is a scan of one short row a release, so that no edit is ever built upon.
    """
    rows: Any = connection.execute(statements.RELEASES, {"number": account.number})
    found = {charge: (steps, digest) for charge, steps, digest in rows}
    try:
        agrees = hash_chain.after_releases(found) == account.releases
    except TypeError:
        agrees = False
    if not agrees:
        raise _lost(account.state.terms.name, "in its releases")
    return found


def _note(connection: Connection, account: Account, last: Last, now: Chains) -> None:
    digest = hash_chain.after_releases(dict(sorted(now.items())))
    head = hash_chain.head_of(last.digest, account.state, account.balances, digest)
    values = {"number": account.number, "releases": digest, "head": head}
    connection.execute(statements.NOTE_RELEASES, values)


def _lost(name: str, where: str) -> LedgerError:
    return damaged(
        name,
        where,
        "what was released was edited, deleted or added. Noise is drawn once for a "
        "charge, and never again",
    )
