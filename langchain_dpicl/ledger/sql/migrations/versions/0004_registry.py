"""The registry of accounts: schema version 4.

It begins with the accounts that are there; one that went before is not seen.
"""

from __future__ import annotations

import hashlib
import json

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the registry, and enter the accounts in the order of their numbers."""
    registry = op.create_table(
        "dpicl_registry",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("accounts", sa.Integer, nullable=False),
        sa.Column("head", sa.String(64), nullable=False),
    )
    connection = op.get_bind()
    reflected = sa.MetaData()
    reflected.reflect(connection, only=["dpicl_account"])
    accounts = reflected.tables["dpicl_account"]
    rows = connection.execute(sa.select(accounts).order_by(accounts.c.id)).all()
    head = ""
    for row in rows:
        head = _digest(head, "registered", _terms(row))
    op.bulk_insert(registry, [{"id": 1, "accounts": len(rows), "head": head}])


def _terms(account: sa.Row[tuple[object, ...]]) -> str:
    key = account.unit_key
    return _digest(
        "",
        "terms",
        account.name,
        float.fromhex(account.epsilon),
        float.fromhex(account.delta),
        account.queries,
        account.accounting,
        account.scope,
        _number(account.renyi_order),
        _number(account.delta0_share),
        None if key is None else hashlib.sha256(key).hexdigest(),
    )


def _number(text: str | None) -> float | None:
    return None if text is None else float.fromhex(text)


def _digest(*parts: str | float | None) -> str:
    text = json.dumps(parts, sort_keys=True, allow_nan=False)
    return hashlib.blake2b(
        text.encode(), digest_size=32, person=b"dpicl.journal"
    ).hexdigest()
