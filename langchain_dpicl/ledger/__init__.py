"""The durable record of what every account promised and what it has spent.

`Ledger` is the contract; `SQLLedger` keeps it in any SQLAlchemy database (SQLite by
default), `MemoryLedger` in this process for tests and notebooks. `open_ledger` turns
what a user passes as `ledger=` into one of them.
"""

from langchain_dpicl.ledger.base import (
    AccountState,
    AccountTerms,
    Charge,
    Ledger,
    Plan,
)
from langchain_dpicl.ledger.memory import MemoryLedger
from langchain_dpicl.ledger.opening import open_ledger
from langchain_dpicl.ledger.sql import SQLLedger

__all__ = [
    "AccountState",
    "AccountTerms",
    "Charge",
    "Ledger",
    "MemoryLedger",
    "Plan",
    "SQLLedger",
    "open_ledger",
]
