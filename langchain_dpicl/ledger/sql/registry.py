"""The accounts that were ever opened in a ledger, in one digest.

An account's own chain says nothing of an account that is gone. The registry does: its
head follows from the terms and names of all accounts, in the order in which they were
opened. An account whose row was deleted, renamed or given other terms no longer leads
to that head, and then no new account is opened: under its old name it would have all of
its budget again.
"""

from __future__ import annotations

from sqlalchemy import Connection, insert, select, update

from langchain_dpicl.exceptions import LedgerError
from langchain_dpicl.ledger import hash_chain
from langchain_dpicl.ledger.base import AccountTerms
from langchain_dpicl.ledger.sql.rows import (
    Account,
    account_of,
    require_account,
    write_account,
)
from langchain_dpicl.ledger.sql.schema import account_table, registry_table

_ACCOUNTS = select(account_table).order_by(account_table.c.id)
_STREAM = {"yield_per": 2_000}


def add_account(connection: Connection, terms: AccountTerms) -> None:
    """Write a new account's row, if no account is missing or was edited.

    The transaction holds the registry; see `lock_registry`.
    """
    head = require_registry(connection)
    write_account(connection, terms)
    account = require_account(connection, terms.name)
    connection.execute(
        update(registry_table).values(
            accounts=registry_table.c.accounts + 1,
            head=_after(head, account),
        )
    )


def lock_registry(connection: Connection) -> None:
    """Wait until nobody else opens a new account; SQLite has one writer anyway."""
    connection.execute(select(registry_table.c.id).with_for_update())


def require_registry(connection: Connection) -> str:
    """Check that the accounts are those that were opened; return the registry's head.

    It reads every account's terms, and none of their charges.
    """
    kept = connection.execute(
        select(registry_table.c.accounts, registry_table.c.head)
    ).one_or_none()
    head, accounts = hash_chain.NO_ACCOUNTS, 0
    with connection.execute(_ACCOUNTS, execution_options=_STREAM) as rows:
        for row in rows:
            head = _after(head, account_of(row))
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


def _after(head: str, account: Account) -> str:
    first = hash_chain.after_terms(account.state.terms, account.unit_key)
    return hash_chain.after_account(head, first)
