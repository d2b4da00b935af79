"""The durable record of what every account promised and what it has spent.

`Ledger` is the contract; `SQLLedger` keeps it in SQLite or PostgreSQL, `MemoryLedger`
in this process for tests and notebooks. `open_ledger` turns what a user passes as
`ledger=` into one of them; `backup_ledger` copies a SQLite ledger while it is in use.
SQLAlchemy is loaded only when a SQL ledger is opened.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from langchain_dpicl.ledger.base import (
    AccountState,
    AccountTerms,
    Charge,
    Ledger,
    Plan,
)
from langchain_dpicl.ledger.corpus import CorpusState, CorpusTerms
from langchain_dpicl.ledger.memory import MemoryLedger
from langchain_dpicl.ledger.opening import open_ledger
from langchain_dpicl.ledger.periods import next_period, parse_period

if TYPE_CHECKING:
    from langchain_dpicl.ledger.sql.backup import backup_ledger
    from langchain_dpicl.ledger.sql.ledger import SQLLedger

__all__ = [
    "AccountState",
    "AccountTerms",
    "Charge",
    "CorpusState",
    "CorpusTerms",
    "Ledger",
    "MemoryLedger",
    "Plan",
    "SQLLedger",
    "backup_ledger",
    "next_period",
    "open_ledger",
    "parse_period",
]

_LAZY = {
    "SQLLedger": "sql.ledger",
    "backup_ledger": "sql.backup",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
