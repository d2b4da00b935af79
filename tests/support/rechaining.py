"""Edit rows as someone who knows the hash chain: all digests are made to fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, create_engine, select, text, update

from langchain_dpicl.accounting import Cost
from langchain_dpicl.ledger import hash_chain
from langchain_dpicl.ledger.sql import rows
from langchain_dpicl.ledger.sql.schema import account_table, charge_table


def rechained(url: str, edits: Sequence[str], name: str = "notes") -> None:
    """Edit a ledger, and write an account's digests and its head anew."""
    engine = create_engine(url)
    with engine.begin() as connection:
        for edit in edits:
            connection.execute(text(edit))
        _fit(connection, name)
    engine.dispose()


def _fit(connection: Connection, name: str) -> None:
    found = connection.execute(
        select(account_table).where(account_table.c.name == name)
    ).one()
    account = rows.account_of(found)
    digest = account.start
    journal: Any = connection.execute(
        select(charge_table)
        .where(charge_table.c.account_id == account.number)
        .order_by(charge_table.c.sequence)
    ).all()
    for row in journal:
        digest = hash_chain.after_charge(
            *(digest, name, row.sequence, row.events),
            *(Cost(row.cost_loss, row.cost_failure), row.charged_at),
            *(row.caller, row.caller_spent),
        )
        connection.execute(
            update(charge_table)
            .where(charge_table.c.id == row.id)
            .values(digest=digest)
        )
    head = account.head_after(digest, account.state)
    connection.execute(
        update(account_table)
        .where(account_table.c.id == account.number)
        .values(head=head)
    )
