"""The ledger's tables. They hold public parameters only.

The numbers that decide (epsilon, delta, the events' scales) are stored as text of
`float.hex` or as JSON, both exact: a guarantee must not change by a rounding in a
database column.
"""

from __future__ import annotations

from sqlalchemy import (
    Boolean,
    Column,
    DateTime,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

SCHEMA_VERSION = 1
SQLITE_APPLICATION_ID = 0x6470_6963  # "dpic": tells our files from foreign ones

metadata = MetaData()

version_table = Table(
    "dpicl_schema",
    metadata,
    Column("version", Integer, primary_key=True),
    Column("library", String(40), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
)

account_table = Table(
    "dpicl_account",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(200), nullable=False, unique=True),
    Column("epsilon", String(40), nullable=False),
    Column("delta", String(40), nullable=False),
    Column("queries", Integer, nullable=False),
    Column("plan", Text, nullable=True),
    Column("used", Integer, nullable=False),
    Column("closed", Boolean, nullable=False),
    Column("library", String(40), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
)

answer_table = Table(
    "dpicl_answer",
    metadata,
    Column("account_id", ForeignKey("dpicl_account.id"), primary_key=True),
    Column("key", String(64), primary_key=True),
    Column("answer", Text, nullable=False),
)

charge_table = Table(
    "dpicl_charge",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("account_id", ForeignKey("dpicl_account.id"), nullable=False),
    Column("sequence", Integer, nullable=False),
    Column("events", Text, nullable=False),
    Column("charged_at", DateTime(timezone=True), nullable=False),
    # Two writers that both believe to be query number n can't both be right: the
    # database itself refuses the second, whatever the isolation level.
    UniqueConstraint("account_id", "sequence", name="dpicl_charge_once"),
)
