"""Filters, per-unit accounts, and the hash chain: schema version 2.

Every account of version 1 is a plan on the whole corpus. Its journal gets the digests
that it would have had; from here on it can't be edited unseen. A charge whose clock was
behind that of the charge before it is given the same time: times never go backwards.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime, timezone
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_NEW_COLUMNS: dict[str, dict[str, Any]] = {
    "dpicl_account": {
        "accounting": sa.String(20),
        "scope": sa.String(20),
        "renyi_order": sa.String(40),
        "delta0_share": sa.String(40),
        "spent_loss": sa.BigInteger(),
        "spent_failure": sa.BigInteger(),
        "head": sa.String(64),
        "unit_key": sa.LargeBinary(),
        "balances_digest": sa.String(64),
    },
    "dpicl_charge": {
        "cost_loss": sa.BigInteger(),
        "cost_failure": sa.BigInteger(),
        "digest": sa.String(64),
    },
}


def upgrade() -> None:
    """Add what version 2 keeps, fill it for the rows that are there, and require it."""
    for table, columns in _NEW_COLUMNS.items():
        for name, kind in columns.items():
            op.add_column(table, sa.Column(name, kind))
    op.create_table(
        "dpicl_unit",
        sa.Column(
            "account_id",
            sa.Integer,
            sa.ForeignKey("dpicl_account.id"),
            primary_key=True,
        ),
        sa.Column("tag", sa.LargeBinary, primary_key=True),
        sa.Column("loss", sa.Integer, nullable=False),
        sa.Column("failure", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )
    _chain_journals(op.get_bind())
    with op.batch_alter_table("dpicl_account") as account:
        account.alter_column("queries", existing_type=sa.Integer, nullable=True)
        for name in ("accounting", "scope", "spent_loss", "spent_failure", "head"):
            account.alter_column(name, nullable=False)
    with op.batch_alter_table("dpicl_charge") as charge:
        for name in ("cost_loss", "cost_failure", "digest"):
            charge.alter_column(name, nullable=False)


def _chain_journals(connection: sa.Connection) -> None:
    reflected = sa.MetaData()
    reflected.reflect(connection, only=["dpicl_account", "dpicl_charge"])
    accounts = reflected.tables["dpicl_account"]
    charges = reflected.tables["dpicl_charge"]
    for account in connection.execute(sa.select(accounts)).all():
        head = _digest(
            "",
            "terms",
            account.name,
            float.fromhex(account.epsilon),
            float.fromhex(account.delta),
            account.queries,
            "plan",
            "corpus",
            None,
            None,
            None,
        )
        if account.plan is not None:
            head = _digest(head, "plan", account.plan)
        at, used = None, 0
        journal = (
            sa.select(charges)
            .where(charges.c.account_id == account.id)
            .order_by(charges.c.sequence)
        )
        for charge in connection.execute(journal).all():
            used += 1
            if charge.sequence != used:
                raise ValueError(
                    f"the journal of account {account.name!r} is damaged at charge "
                    f"{used}"
                )
            at = _later(at, charge.charged_at)
            when = at.isoformat(timespec="microseconds")
            head = _digest(
                head, "charge", account.name, used, charge.events, 1, 0, when
            )
            connection.execute(
                sa.update(charges)
                .where(charges.c.id == charge.id)
                .values(cost_loss=1, cost_failure=0, digest=head, charged_at=at)
            )
        if used != account.used:
            raise ValueError(
                f"the journal of account {account.name!r} ends at charge {used}, its "
                f"counter says {account.used}"
            )
        head = _digest(head, "account", used, used, 0, bool(account.closed), None)
        connection.execute(
            sa.update(accounts)
            .where(accounts.c.id == account.id)
            .values(
                accounting="plan",
                scope="corpus",
                spent_loss=used,
                spent_failure=0,
                head=head,
            )
        )


def _digest(*parts: str | float | None) -> str:
    text = json.dumps(parts, sort_keys=True, allow_nan=False)
    return hashlib.blake2b(
        text.encode(), digest_size=32, person=b"dpicl.journal"
    ).hexdigest()


def _later(before: datetime | None, stored: datetime) -> datetime:
    # SQLite forgets the zone.
    zoned = stored if stored.tzinfo else stored.replace(tzinfo=timezone.utc)
    at = zoned.astimezone(timezone.utc)
    return at if before is None else max(before, at)
