"""The four tables of a ledger, and the constraints that the database itself keeps.

    dpicl_meta    the version that made the ledger: one row
    dpicl_book    the books: one of the ledger, one of each corpus and of each account
    dpicl_entry   what happened, in the order in which it did; nothing is changed here
    dpicl_unit    balances of units in per-unit accounts, under keyed hashes

Whole numbers and text alone: a guarantee must not change by a rounding in a column. A
change of these tables is a new `SCHEMA`; a ledger of another version is refused.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

SCHEMA = 1
APPLICATION_ID = 0x6470_6963
"""`dpic` tells SQLite files of ours from foreign ones."""

EARLIER_TABLE = "dpicl_schema"
"""A table of the versions before these tables."""


class _Secret(str):
    """Text whose repr does not show it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<secret>"


class SecretText(sa.TypeDecorator[str]):
    """A key or a tag: SQLAlchemy's loggers write every row that they read, at DEBUG."""

    impl = sa.Text
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's signature
        """Return text as it was read, with a repr that says nothing."""
        return None if value is None else _Secret(value)


metadata = sa.MetaData()
Whole = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _columns(kind: Any, *names: str, **options: Any) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, **{"nullable": False, **options}) for name in names]


def _keys(kind: Any, *names: str) -> list[sa.Column[Any]]:
    return _columns(kind, *names, primary_key=True, autoincrement=False)


def _books(name: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, Whole, sa.ForeignKey("dpicl_book.id"), **options)


meta_table = sa.Table(
    "dpicl_meta",
    metadata,
    *_keys(Whole, "schema"),
    *_columns(sa.Text, "library"),
    *_columns(Whole, "created_at"),
    sqlite_strict=True,
)

book_table = sa.Table(
    "dpicl_book",
    metadata,
    *_keys(Whole, "id"),
    _books("parent", nullable=True, index=True),
    *_columns(sa.Text, "kind", "name", "terms", "balances", "head"),
    *_columns(Whole, "most_loss", "most_failure", "entries", "used", "loss", "failure"),
    *_columns(Whole, "closed_at", "since"),
    *_columns(SecretText, "unit_key"),
    sa.UniqueConstraint("kind", "name"),
    # An account that was over-spent can't be written, whatever writes it.
    sa.CheckConstraint("loss BETWEEN 0 AND most_loss", name="dpicl_loss"),
    sa.CheckConstraint("failure BETWEEN 0 AND most_failure", name="dpicl_failure"),
    sqlite_strict=True,
)

entry_table = sa.Table(
    "dpicl_entry",
    metadata,
    # Two writers of entry n can't both win, whatever the isolation level.
    _books("book", primary_key=True),
    *_keys(Whole, "number"),
    *_columns(sa.Text, "kind", "body", "before", "digest"),
    *_columns(Whole, "used", "loss", "failure", "at"),
    *_columns(Whole, "charge", "step", nullable=True),
    *_columns(sa.Text, "key", nullable=True),
    # A charge is written once, and each of its steps is drawn once.
    sa.UniqueConstraint("book", "charge", "step"),
    # With `number`: else SQLite walks all charges to find the last one of a key.
    sa.Index("dpicl_entry_key", "book", "key", "number"),
    sqlite_strict=True,
)

unit_table = sa.Table(
    "dpicl_unit",
    metadata,
    _books("book", primary_key=True),
    *_keys(SecretText, "tag"),
    *_columns(Whole, "loss", "failure"),
    sa.CheckConstraint("loss >= 0 AND failure >= 0", name="dpicl_unit_sums"),
    sqlite_strict=True,
    # The rows live in the primary key's tree, not beside it: half the bytes.
    sqlite_with_rowid=False,
)
