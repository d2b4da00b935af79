"""Accounts under plans, their charges and answers: schema version 1."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables of schema version 1."""
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
        sa.Column("queries", sa.Integer, nullable=False),
        sa.Column("plan", sa.Text, nullable=True),
        sa.Column("used", sa.Integer, nullable=False),
        sa.Column("closed", sa.Boolean, nullable=False),
        sa.Column("library", sa.String(40), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_table(
        "dpicl_answer",
        sa.Column(
            "account_id",
            sa.Integer,
            sa.ForeignKey("dpicl_account.id"),
            primary_key=True,
        ),
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("answer", sa.Text, nullable=False),
    )
    op.create_table(
        "dpicl_charge",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column(
            "account_id", sa.Integer, sa.ForeignKey("dpicl_account.id"), nullable=False
        ),
        sa.Column("sequence", sa.Integer, nullable=False),
        sa.Column("events", sa.Text, nullable=False),
        sa.Column("charged_at", sa.DateTime(timezone=True), nullable=False),
        sa.UniqueConstraint("account_id", "sequence", name="dpicl_charge_once"),
    )
