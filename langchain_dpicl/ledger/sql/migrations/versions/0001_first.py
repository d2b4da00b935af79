"""Accounts, their charges, units, answers and releases: schema version 1."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables of schema version 1, and the registry of no accounts."""
    op.create_table(
        "dpicl_schema",
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("library", sa.String(40), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "dpicl_account",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
        sa.Column("epsilon", sa.String(40), nullable=False),
        sa.Column("delta", sa.String(40), nullable=False),
        sa.Column("queries", sa.Integer, nullable=True),
        sa.Column("accounting", sa.String(20), nullable=False),
        sa.Column("scope", sa.String(20), nullable=False),
        sa.Column("renyi_order", sa.String(40), nullable=True),
        sa.Column("delta0_share", sa.String(40), nullable=True),
        sa.Column("plan", sa.Text, nullable=True),
        sa.Column("used", sa.Integer, nullable=False),
        sa.Column("spent_loss", sa.BigInteger, nullable=False),
        sa.Column("spent_failure", sa.BigInteger, nullable=False),
        sa.Column("closed", sa.Boolean, nullable=False),
        sa.Column("head", sa.String(64), nullable=False),
        sa.Column("unit_key", sa.LargeBinary, nullable=True),
        sa.Column("balances_digest", sa.String(64), nullable=True),
        sa.Column("releases_digest", sa.String(64), nullable=True),
        sa.Column("library", sa.String(40), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    registry = op.create_table(
        "dpicl_registry",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("accounts", sa.Integer, nullable=False),
        sa.Column("head", sa.String(64), nullable=False),
    )
    op.bulk_insert(registry, [{"id": 1, "accounts": 0, "head": ""}])
    op.create_table(
        "dpicl_release",
        _account_key(),
        sa.Column("charge", sa.Integer, primary_key=True),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("header", sa.Text, nullable=False),
        sa.Column("steps", sa.Integer, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
    )
    op.create_table(
        "dpicl_step",
        _account_key(),
        sa.Column("charge", sa.Integer, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("drawn", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "dpicl_charge",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column(
            "account_id", sa.Integer, sa.ForeignKey("dpicl_account.id"), nullable=False
        ),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("events", sa.Text, nullable=False),
        sa.Column("cost_loss", sa.BigInteger, nullable=False),
        sa.Column("cost_failure", sa.BigInteger, nullable=False),
        sa.Column("charged_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.UniqueConstraint("account_id", "sequence", name="dpicl_charge_once"),
    )
    op.create_table(
        "dpicl_unit",
        _account_key(),
        sa.Column("tag", sa.LargeBinary, primary_key=True),
        sa.Column("loss", sa.Integer, nullable=False),
        sa.Column("failure", sa.Integer, nullable=False),
        sqlite_with_rowid=False,
    )


def _account_key() -> sa.Column[int]:
    return sa.Column(
        "account_id", sa.Integer, sa.ForeignKey("dpicl_account.id"), primary_key=True
    )
