"""Corpora with their caps, and what binds an account to one: schema version 2."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table of corpora, and the accounts' columns; no account has a corpus."""
    op.create_table(
        "dpicl_corpus",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(200), nullable=False, unique=True),
        sa.Column("unit_key", sa.Text, nullable=True),
        sa.Column("epsilon", sa.String(40), nullable=False),
        sa.Column("delta", sa.String(40), nullable=False),
        sa.Column("window_days", sa.Integer, nullable=True),
        sa.Column("last_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("head", sa.String(64), nullable=False),
        sa.Column("library", sa.String(40), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
    )
    with op.batch_alter_table("dpicl_account", recreate="auto") as account:
        account.add_column(sa.Column("corpus", sa.String(200), nullable=True))
        account.add_column(sa.Column("period", sa.String(40), nullable=True))
        account.add_column(sa.Column("purpose", sa.Text, nullable=True))
        account.add_column(
            sa.Column("closed_at", sa.DateTime(timezone=True), nullable=True)
        )
        account.add_column(sa.Column("salt", sa.String(64), nullable=True))
