"""Releases apart from cached answers, and in the account's head: schema version 3.

An account without releases keeps its head. What version 2 stored of releases lies among
the answers, under keys that tell nobody which charge it belongs to; it stays there, and
is neither read nor resumed.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables of releases and steps, and the digest that covers them."""
    op.add_column("dpicl_account", sa.Column("releases_digest", sa.String(64)))
    op.create_table(
        "dpicl_release",
        sa.Column(
            "account_id",
            sa.Integer,
            sa.ForeignKey("dpicl_account.id"),
            primary_key=True,
        ),
        sa.Column("charge", sa.Integer, primary_key=True),
        sa.Column("kind", sa.String(64), nullable=False),
        sa.Column("header", sa.Text, nullable=False),
        sa.Column("steps", sa.Integer, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
    )
    op.create_table(
        "dpicl_step",
        sa.Column(
            "account_id",
            sa.Integer,
            sa.ForeignKey("dpicl_account.id"),
            primary_key=True,
        ),
        sa.Column("charge", sa.Integer, primary_key=True),
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("drawn", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
