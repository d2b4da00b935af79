"""Reading and writing an account's rows, inside somebody's transaction.

Whatever is read is checked against the journal's head before it is used: this costs the
same however long the journal is. `ledger/sql/verification.py` checks the whole of it.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from sqlalchemy import Connection, insert, update

from langchain_dpicl import accounting
from langchain_dpicl._version import __version__
from langchain_dpicl.accounting import Cost
from langchain_dpicl.accounting.events import Event
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import hash_chain
from langchain_dpicl.ledger.balances import KEY_BYTES, new_key
from langchain_dpicl.ledger.base import AccountState, AccountTerms, Charge, Plan
from langchain_dpicl.ledger.charging import (
    charged,
    require_salt,
    require_unit_known,
    require_unused,
    unknown_account,
)
from langchain_dpicl.ledger.corpus import require_corpus_terms
from langchain_dpicl.ledger.sql import statements
from langchain_dpicl.ledger.sql.schema import (
    UNREADABLE,
    account_table,
    text,
    whole,
)

_ACCOUNTING = ("plan", "renyi")
_SCOPES = ("corpus", "unit")

# Where and why an account is `damaged`.
IMPOSSIBLE = (
    "in its units' balances",
    "one of them is not what a unit can have spent",
)
Opening = tuple[Any, ...]
"""The columns of an account that its chain starts with, as they are stored."""


@dataclass(frozen=True)
class Account:
    """An account's row.

    `opening` is what is fixed before the first charge, as stored; `head` is
    `hash_chain.head_of` what its row and its journal say. The keys of its tags and the
    digest of its balances are None where the whole corpus is charged; the digest of
    what its charges released in steps is None without any.
    """

    number: int
    state: AccountState
    opening: Opening
    head: str
    unit_key: bytes | None
    balances: str | None
    releases: str | None

    @property
    def start(self) -> str:
        """The journal's digest before the first charge."""
        return _start(self.state.terms, self.unit_key, self.opening[-1])

    def head_after(self, last: str, state: AccountState) -> str:
        """Return the head of a journal that ends with a digest, in a state."""
        return hash_chain.head_of(last, state, self.balances, self.releases)


@dataclass(frozen=True)
class Last:
    """The end of an account's journal: sequence 0 and the start before any charge."""

    sequence: int
    digest: str
    at: datetime | None


def corpus_of(opening: Opening) -> str | None:
    """Return the name of the corpus that an account belongs to; None without one."""
    return None if opening[8] is None else text(opening[8])


def damaged(name: str, where: str, why: str) -> LedgerError:
    """Return the error for an account whose rows can't be trusted."""
    return LedgerError(
        f"Account {name!r} is damaged {where}: {why}. Nothing is released from it. "
        "Restore the ledger, or open an account with another name: a new promise."
    )


def find_account(
    connection: Connection, name: str, *, lock: bool = False
) -> Account | None:
    """Return an account as its row says, or None; lock the row if it can be."""
    statement = statements.LOCK_ACCOUNT if lock else statements.READ_ACCOUNT
    row = connection.execute(statement, {"name": name}).one_or_none()
    return None if row is None else account_of(row)


def account_of(row: Any) -> Account:
    """Return the account that a row tells of."""
    opening = (
        row.name,
        row.epsilon,
        row.delta,
        row.queries,
        row.accounting,
        row.scope,
        row.renyi_order,
        row.delta0_share,
        row.corpus,
        row.period,
        row.purpose,
        row.unit_key,
        row.plan,
    )
    try:
        terms, plan = _read_opening(opening)
        spent = Cost(whole(row.spent_loss), whole(row.spent_failure))
        used = whole(row.used)
        closed_at = None if row.closed_at is None else hash_chain.utc(row.closed_at)
        salt = None if row.salt is None else text(row.salt)
    except (LedgerError, *UNREADABLE):
        raise damaged(
            row.name,
            "in its terms or plan",
            "they can't be read; another version wrote them, or somebody edited them",
        ) from None
    return Account(
        number=row.id,
        state=AccountState(terms, plan, used, bool(row.closed), spent, closed_at, salt),
        opening=opening,
        head=str(row.head),
        unit_key=row.unit_key,
        balances=row.balances_digest,
        releases=row.releases_digest,
    )


def read_account(
    connection: Connection, name: str, *, lock: bool = False
) -> tuple[Account, Last]:
    """Return an account whose row and journal's end agree."""
    account = require_account(connection, name, lock=lock)
    return account, require_end(connection, account)


def require_account(
    connection: Connection, name: str, *, lock: bool = False
) -> Account:
    """Return an account as its row alone says."""
    account = find_account(connection, name, lock=lock)
    if account is None:
        raise unknown_account(name)
    return account


def require_end(connection: Connection, account: Account) -> Last:
    """Return the end of an account's journal, if its row agrees with it."""
    row = connection.execute(
        statements.LAST_CHARGE, {"number": account.number}
    ).one_or_none()
    return end_of(account, row)


def end_of(account: Account, row: Any) -> Last:
    """Return the end of an account's journal, given the last row of it or None.

    The account's counter and head must agree with it.
    """
    state = account.state
    last = (
        Last(0, account.start, None)
        if row is None
        else Last(whole(row.sequence), row.digest, hash_chain.utc(row.charged_at))
    )
    if state.used != last.sequence:
        raise damaged(
            state.terms.name,
            f"at charge {min(state.used, last.sequence) + 1}",
            f"its counter says {state.used} charges, its journal ends at "
            f"{last.sequence}",
        )
    head = account.head_after(last.digest, state)
    if account.head != head:
        raise damaged(
            state.terms.name,
            f"at charge {last.sequence}",
            "its journal does not end where its head says, or a sum was edited",
        )
    return last


def write_account(connection: Connection, terms: AccountTerms) -> None:
    """Write a new account's row."""
    key = new_key() if terms.scope == "unit" else None
    balances = None if key is None else hash_chain.NO_BALANCES
    state = AccountState(terms, None, 0, closed=False)
    try:
        start = hash_chain.after_terms(terms, key)
        columns = {
            "name": terms.name,
            "epsilon": float(terms.epsilon).hex(),
            "delta": float(terms.delta).hex(),
            "queries": terms.queries,
            "accounting": terms.accounting,
            "scope": terms.scope,
            "renyi_order": _hex(terms.order),
            "delta0_share": _hex(terms.delta0_share),
            "corpus": terms.corpus,
            "period": terms.period,
            "purpose": terms.purpose,
            "head": hash_chain.head_of(start, state, balances, None),
        }
    except (TypeError, ValueError, OverflowError):
        raise LedgerError(
            f"Account {terms.name!r} can't be opened: its terms are not finite numbers."
        ) from None
    connection.execute(
        insert(account_table).values(
            **columns,
            plan=None,
            used=0,
            spent_loss=0,
            spent_failure=0,
            closed=False,
            unit_key=key,
            balances_digest=balances,
            releases_digest=None,
            library=__version__,
            created_at=datetime.now(timezone.utc),
        )
    )


def write_plan(connection: Connection, account: Account, plan: Plan) -> None:
    """Write an account's plan, once, before it is charged or closed."""
    require_unused(account.state)
    written = hash_chain.canonical(plan.to_dict())
    start = hash_chain.after_plan(account.start, written)
    connection.execute(
        update(account_table)
        .where(account_table.c.id == account.number)
        .values(plan=written, head=account.head_after(start, account.state))
    )


def write_charge(
    connection: Connection,
    account: Account,
    last: Last,
    events: Sequence[Event] | None,
) -> Charge:
    """Check, count and write one charge; the commit is the caller's."""
    charge, values = next_charge(account, last, events)
    counted = connection.execute(statements.COUNT_CHARGE, values).rowcount
    require_counted(charge, counted)
    connection.execute(statements.WRITE_CHARGE, values)
    return charge


def require_counted(charge: Charge, rows: int) -> None:
    """Refuse a charge that did not change exactly its account's row."""
    if rows != 1:
        raise LedgerError(
            f"The ledger did not count the charge of account {charge.account!r}."
        )


def next_charge(
    account: Account, last: Last, events: Sequence[Event] | None
) -> tuple[Charge, dict[str, Any]]:
    """Return the next charge of an account, and the values that its statements bind."""
    require_unit_known(account.state)
    state, charge = charged(account.state, events)
    written = _events_text(charge.events)
    # Several hosts have several clocks; their order is that of the charges.
    now = account.state.at or datetime.now(timezone.utc)
    at = now if last.at is None else max(now, last.at)
    name = state.terms.name
    digest = hash_chain.after_charge(
        last.digest, name, charge.sequence, written, charge.cost, at
    )
    return charge, {
        "number": account.number,
        "now": charge.sequence,
        "loss": state.spent.loss,
        "failure": state.spent.failure,
        "digest": digest,
        "head": account.head_after(digest, state),
        "events": written,
        "cost_loss": charge.cost.loss,
        "cost_failure": charge.cost.failure,
        "charged_at": at,
    }


def close_account(connection: Connection, account: Account, last: Last) -> None:
    """Close an account, once; its journal ends here."""
    if not account.state.closed:
        closed = replace(account.state, closed=True, closed_at=account.state.at)
        connection.execute(
            update(account_table)
            .where(account_table.c.id == account.number)
            .values(
                closed=True,
                closed_at=closed.closed_at,
                head=account.head_after(last.digest, closed),
            )
        )


def bind_salt(
    connection: Connection, account: Account, last: Last, fingerprint: str
) -> None:
    """Bind a per-unit account to a salt, once; its journal goes on."""
    require_salt(account.state, fingerprint)
    if account.state.salt is None:
        bound = replace(account.state, salt=fingerprint)
        connection.execute(
            update(account_table)
            .where(account_table.c.id == account.number)
            .values(salt=fingerprint, head=account.head_after(last.digest, bound))
        )


@functools.lru_cache(maxsize=4096)
def read_events(stored: str) -> tuple[Event, ...]:
    """Return the events of a stored charge."""
    try:
        return accounting.read_events(json.loads(stored))
    except UNREADABLE:
        raise LedgerError(
            "A charge can't be read: it was written by another version or damaged."
        ) from None


@functools.lru_cache(maxsize=4096)
def _events_text(events: tuple[Event, ...]) -> str:
    return hash_chain.events_text(events)


@functools.lru_cache(maxsize=1024)
def _read_opening(opening: Opening) -> tuple[AccountTerms, Plan | None]:
    name, epsilon, delta, queries, accounting, scope, order, share = opening[:8]
    corpus, period, purpose, key, plan = opening[8:]
    if accounting not in _ACCOUNTING or scope not in _SCOPES:
        raise ValueError
    is_key = isinstance(key, bytes) and len(key) == KEY_BYTES
    if is_key != (scope == "unit") or is_key != (key is not None):
        raise ValueError
    terms = AccountTerms(
        name=name,
        epsilon=float.fromhex(epsilon),
        delta=float.fromhex(delta),
        queries=None if queries is None else whole(queries),
        accounting=accounting,
        scope=scope,
        order=None if order is None else float.fromhex(order),
        delta0_share=None if share is None else float.fromhex(share),
        corpus=None if corpus is None else text(corpus),
        period=None if period is None else text(period),
        purpose=None if purpose is None else text(purpose),
    )
    require_corpus_terms(terms)
    if terms.filter is None and queries is None:
        raise ValueError
    return terms, None if plan is None else Plan.from_dict(json.loads(plan))


@functools.lru_cache(maxsize=1024)
def _start(terms: AccountTerms, unit_key: bytes | None, plan: str | None) -> str:
    try:
        start = hash_chain.after_terms(terms, unit_key)
    except UNREADABLE:
        raise damaged(terms.name, "in its terms", "they are no numbers") from None
    return start if plan is None else hash_chain.after_plan(start, plan)


def _hex(number: float | None) -> str | None:
    return None if number is None else float(number).hex()
