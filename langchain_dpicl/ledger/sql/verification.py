"""Checking an account from its terms to its last charge, and which accounts there are.

The journal is read once, row by row, whatever its length. An account is checked when it
is opened; its units' balances, of which there may be millions, only by `verify`.

An account's own chain says nothing of an account that is gone. The registry does: its
head follows from the terms and names of all accounts, in the order in which they were
opened. An account whose row was deleted, renamed or given other terms no longer leads
to that head, and then no new account is opened: under its old name it would have all of
its budget again.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from sqlalchemy import Connection, insert, select, update

from langchain_dpicl.accounting import Cost
from langchain_dpicl.errors import InvalidParameterError, LedgerError, PlanMismatchError
from langchain_dpicl.ledger import hash_chain
from langchain_dpicl.ledger.base import NOTHING, AccountState, AccountTerms
from langchain_dpicl.ledger.charging import fits
from langchain_dpicl.ledger.sql import statements
from langchain_dpicl.ledger.sql.corpus_rows import (
    corpus_state,
    read_corpora,
    require_corpus,
)
from langchain_dpicl.ledger.sql.release_rows import require_releases
from langchain_dpicl.ledger.sql.rows import (
    IMPOSSIBLE,
    Account,
    account_of,
    damaged,
    read_events,
    require_account,
    require_end,
    write_account,
)
from langchain_dpicl.ledger.sql.schema import account_table, registry_table

_STREAM = {"yield_per": 2_000}
_KEPT_COSTS = 4_096
_ROUNDING = 10**9

_ACCOUNTS = select(account_table).order_by(account_table.c.id)


def require_chain(connection: Connection, account: Account) -> None:
    """Check the whole journal of an account, and what its charges released in steps.

    The transaction has read the account, and sees one state of the database or holds
    the account's row.
    """
    state = account.state
    name, span = state.terms.name, state.terms.span
    costs: dict[str, Cost] = {}
    head, at = account.start, None
    sequence = loss = failure = 0
    with connection.execute(
        statements.JOURNAL, {"number": account.number}, execution_options=_STREAM
    ) as rows:
        for row in rows:
            sequence += 1
            where = f"at charge {sequence}"
            if row.sequence != sequence:
                raise damaged(name, where, "it is missing from the journal")
            try:
                cost = costs.get(row.events) or _cost(state, row.events)
                stored = Cost(int(row.cost_loss), int(row.cost_failure))
                head = hash_chain.after_charge(
                    head, name, sequence, row.events, stored, row.charged_at
                )
            except (LedgerError, InvalidParameterError, TypeError, ValueError) as error:
                raise damaged(name, where, f"it can't be read ({error})") from None
            if head != row.digest:
                what = "it" if sequence > 1 else "it, the account's terms or its plan"
                raise damaged(name, where, f"{what} was edited")
            if len(costs) < _KEPT_COSTS:
                costs[row.events] = cost
            _require_paid(state, where, cost, stored)
            at = _require_later(name, where, at, row.charged_at)
            if span is not None and not span.start <= at < span.end:
                raise damaged(name, where, "it is not within the account's period")
            loss, failure = loss + stored.loss, failure + stored.failure
    require_end(connection, account)
    spent = Cost(loss, failure)
    if spent != state.spent:
        raise damaged(name, f"at charge {sequence}", "its charges don't add up")
    if state.terms.scope == "corpus" and not fits(spent, state.terms.limit):
        raise damaged(name, f"at charge {sequence}", "more was charged than it has")
    if state.terms.corpus is not None:
        require_corpus(connection, state.terms.corpus)
    require_releases(connection, account)


def require_balances(connection: Connection, account: Account) -> None:
    """Check the balances of all units of an account, in one scan."""
    if account.unit_key is None:
        return
    found = hash_chain.balances_after(
        hash_chain.NO_BALANCES, account.unit_key, _balances(connection, account)
    )
    if found != account.balances:
        raise damaged(
            account.state.terms.name,
            "in its units' balances",
            "one of them was edited, lost or added",
        )


def _balances(
    connection: Connection, account: Account
) -> Iterator[tuple[bytes, Cost, Cost]]:
    terms, spent = account.state.terms, account.state.spent
    most = Cost(
        min(terms.limit.loss, spent.loss), min(terms.limit.failure, spent.failure)
    )
    with connection.execute(
        statements.BALANCES, {"number": account.number}, execution_options=_STREAM
    ) as rows:
        for tag, loss, failure in rows:
            # SQLite would keep a word in a column of numbers.
            if not (
                isinstance(loss, int)
                and isinstance(failure, int)
                and 0 <= loss <= most.loss
                and 0 <= failure <= most.failure
            ):
                raise damaged(terms.name, *IMPOSSIBLE)
            yield tag, NOTHING, Cost(loss, failure)


def _cost(state: AccountState, stored: str) -> Cost:
    """Return what stored events cost under the account's terms, computed anew."""
    try:
        return state.terms.cost(read_events(stored), state.plan)
    except PlanMismatchError:
        raise LedgerError("its events are not the plan's") from None


def _require_paid(state: AccountState, where: str, cost: Cost, stored: Cost) -> None:
    # Another machine's logarithm, or a later and tighter bound, may be one step off a
    # cost that was rounded up; nothing that matters to the guarantee is.
    too_cheap = any(
        charged + 1 + needed // _ROUNDING < needed or charged < 0
        for charged, needed in zip(stored, cost, strict=True)
    )
    if too_cheap:
        raise damaged(
            state.terms.name, where, "it was charged for less than its events cost"
        )


def _require_later(
    name: str, where: str, before: datetime | None, stored: datetime
) -> datetime:
    at = hash_chain.utc(stored)
    if before is not None and at < before:
        raise damaged(name, where, "it is older than the one before it")
    return at


def add_account(connection: Connection, terms: AccountTerms) -> None:
    """Write a new account's row, if no account is missing or was edited.

    The transaction holds the registry; see `lock_registry`.
    """
    head = require_registry(connection)
    corpus = None
    if terms.corpus is not None:
        held = corpus_state(connection, terms.corpus, lock=True)
        held.require_opening(terms)
        corpus = hash_chain.corpus_digest(held.terms)
    write_account(connection, terms)
    account = require_account(connection, terms.name)
    connection.execute(
        update(registry_table).values(
            accounts=registry_table.c.accounts + 1,
            head=_after(head, account, corpus),
        )
    )


def lock_registry(connection: Connection) -> None:
    """Wait until nobody else opens a new account; SQLite has one writer anyway."""
    connection.execute(select(registry_table.c.id).with_for_update())


def require_registry(connection: Connection) -> str:
    """Check that the accounts are those that were opened; return the registry's head.

    A corpus whose cap was edited, or that was replaced, is found too.

    It reads every account's terms, and none of their charges.
    """
    kept = connection.execute(
        select(registry_table.c.accounts, registry_table.c.head)
    ).one_or_none()
    head, accounts = hash_chain.NO_ACCOUNTS, 0
    corpora = {name: one.first for name, one in read_corpora(connection).items()}
    with connection.execute(_ACCOUNTS, execution_options=_STREAM) as rows:
        for row in rows:
            head = _after(head, account_of(row), corpora.get(row.corpus))
            accounts += 1
    if kept is None or (accounts, head) != tuple(kept):
        raise LedgerError(
            "The ledger's accounts are not those that were opened in it: one of them "
            "was deleted, renamed or edited. No new account is opened, for it could be "
            "one that has spent its budget. 'dpicl ledger verify' shows which accounts "
            "are whole; restore the ledger, or begin a new promise in another one."
        )
    return head


def start_registry(connection: Connection) -> None:
    """Write the registry of a ledger without accounts."""
    connection.execute(
        insert(registry_table).values(id=1, accounts=0, head=hash_chain.NO_ACCOUNTS)
    )


def _after(head: str, account: Account, corpus: str | None) -> str:
    first = hash_chain.after_terms(account.state.terms, account.unit_key)
    return hash_chain.after_account(head, first, corpus)
