"""Callers with their allowances: schema version 3."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the charges' columns; no charge before has a caller."""
    with op.batch_alter_table("dpicl_charge", recreate="auto") as charge:
        charge.add_column(sa.Column("caller", sa.String(200), nullable=True))
        charge.add_column(sa.Column("caller_spent", sa.BigInteger, nullable=True))
    op.create_index(
        "dpicl_charge_caller",
        "dpicl_charge",
        ["account_id", "caller", "sequence"],
        sqlite_where=sa.text("caller IS NOT NULL"),
        postgresql_where=sa.text("caller IS NOT NULL"),
    )
