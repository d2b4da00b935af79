"""Tables of a SQL ledger, and values read out of their columns.

Events and plans are stored as JSON, the floats of the terms as `float.hex()`: a
guarantee must not change by a rounding in a database column. Costs are integers.

A change of these tables is a new `SCHEMA_VERSION`: a ledger of another version is
refused.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.engine import Dialect

SCHEMA_VERSION = 2
SQLITE_APPLICATION_ID = 0x6470_6963  # "dpic": tells our files from foreign ones
# What comes of a value that a column can't hold, or that no ledger wrote there. SQLite
# keeps words, blobs and floats in a column of integers, and the other way round. Only
# an edit puts them there. Whatever it leads to ends as a `LedgerError`:
# `Transactions.attempt` makes one of these, for all that is read inside it.
UNREADABLE = (
    *(TypeError, ValueError, LookupError, AttributeError),
    *(ArithmeticError, RecursionError, MemoryError),
)

metadata = MetaData()

version_table = Table(
    "dpicl_schema",
    metadata,
    Column("version", Integer, primary_key=True),
    Column("library", String(40), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
)


class _Secret(bytes):
    """Bytes whose repr does not show them."""

    def __repr__(self) -> str:
        return "<secret>"


class SecretBytes(TypeDecorator[bytes]):
    """A key or a tag: SQLAlchemy's loggers write every row that they read, at DEBUG."""

    impl = LargeBinary
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> bytes | None:  # noqa: ARG002 - SQLAlchemy's signature
        """Return bytes as they were read, with a repr that says nothing."""
        if not isinstance(value, bytes | None):
            # SQLite keeps a number there too: as many zeros would be made of it.
            raise TypeError
        return None if value is None else _Secret(value)


account_table = Table(
    "dpicl_account",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(200), nullable=False, unique=True),
    Column("epsilon", String(40), nullable=False),
    Column("delta", String(40), nullable=False),
    Column("queries", Integer, nullable=True),
    Column("accounting", String(20), nullable=False),
    Column("scope", String(20), nullable=False),
    Column("renyi_order", String(40), nullable=True),
    Column("delta0_share", String(40), nullable=True),
    Column("plan", Text, nullable=True),
    Column("used", Integer, nullable=False),
    Column("spent_loss", BigInteger, nullable=False),
    Column("spent_failure", BigInteger, nullable=False),
    Column("closed", Boolean, nullable=False),
    # The journal's last digest; see `ledger/hash_chain.py`.
    Column("head", String(64), nullable=False),
    # For per-unit accounts: the key of the tags, and all balances in one digest.
    Column("unit_key", SecretBytes, nullable=True),
    Column("balances_digest", String(64), nullable=True),
    # What its charges released in steps, in one digest.
    Column("releases_digest", String(64), nullable=True),
    Column("library", String(40), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
    # The corpus's name, and what binds an account of one; see `ledger/corpus.py`.
    Column("corpus", String(200), nullable=True),
    Column("period", String(40), nullable=True),
    Column("purpose", Text, nullable=True),
    Column("closed_at", DateTime(timezone=True), nullable=True),
    Column("salt", String(64), nullable=True),
)

corpus_table = Table(
    "dpicl_corpus",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(200), nullable=False, unique=True),
    Column("unit_key", Text, nullable=True),
    Column("epsilon", String(40), nullable=False),
    Column("delta", String(40), nullable=False),
    Column("window_days", Integer, nullable=True),
    # The ledger's time never goes back behind this.
    Column("last_at", DateTime(timezone=True), nullable=False),
    Column("head", String(64), nullable=False),
    Column("library", String(40), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False),
)

# One row: how many accounts there are, and the digest of them all in order.
registry_table = Table(
    "dpicl_registry",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("accounts", Integer, nullable=False),
    Column("head", String(64), nullable=False),
)

# What a charge has drawn: what is deleted here is never drawn again.
release_table = Table(
    "dpicl_release",
    metadata,
    Column("account_id", ForeignKey("dpicl_account.id"), primary_key=True),
    Column("charge", Integer, primary_key=True),
    Column("kind", String(64), nullable=False),
    Column("header", Text, nullable=False),
    Column("steps", Integer, nullable=False),
    Column("digest", String(64), nullable=False),
)

step_table = Table(
    "dpicl_step",
    metadata,
    Column("account_id", ForeignKey("dpicl_account.id"), primary_key=True),
    Column("charge", Integer, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("drawn", Text, nullable=False),
    sqlite_with_rowid=False,
)

charge_table = Table(
    "dpicl_charge",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("account_id", ForeignKey("dpicl_account.id"), nullable=False),
    Column("sequence", Integer, nullable=False),
    Column("events", Text, nullable=False),
    Column("cost_loss", BigInteger, nullable=False),
    Column("cost_failure", BigInteger, nullable=False),
    Column("charged_at", DateTime(timezone=True), nullable=False),
    Column("digest", String(64), nullable=False),
    # Two writers that both believe to be query number n can't both be right: the
    # database itself refuses the second, whatever the isolation level.
    UniqueConstraint("account_id", "sequence", name="dpicl_charge_once"),
)

unit_table = Table(
    "dpicl_unit",
    metadata,
    Column("account_id", ForeignKey("dpicl_account.id"), primary_key=True),
    # A keyed hash of the unit's id: no id is ever in the database.
    Column("tag", SecretBytes, primary_key=True),
    Column("loss", Integer, nullable=False),
    Column("failure", Integer, nullable=False),
    # The rows live in the primary key's tree, not beside it: half the bytes.
    sqlite_with_rowid=False,
)


def whole(value: Any) -> int:
    """Return the integer of a column.

    Raises:
        TypeError: If it is something else, a float or a truth value included.

    Example:
        >>> whole(3)
        3
        >>> whole(3.0)
        Traceback (most recent call last):
        TypeError: a column of integers holds a float
    """
    if type(value) is not int:
        raise TypeError(f"a column of integers holds a {type(value).__name__}")
    return value


def text(value: Any) -> str:
    """Return the text of a column."""
    if type(value) is not str:
        raise TypeError(f"a column of text holds a {type(value).__name__}")
    return value
