"""From what a user passes as `ledger=` to a `Ledger`."""

from __future__ import annotations

from langchain_dpicl.exceptions import LedgerError
from langchain_dpicl.ledger.base import Ledger
from langchain_dpicl.ledger.memory import MemoryLedger

IN_MEMORY = ":memory:"


def open_ledger(ledger: object) -> Ledger:
    """Return the ledger that a `ledger=` argument names.

    Args:
        ledger: A `Ledger`; a SQLAlchemy URL such as `"sqlite:///clinic.db"` or
            `"postgresql+psycopg://user@host/db"`; or `":memory:"`.

    Returns:
        The ledger, ready for use.

    Raises:
        LedgerError: If it is none of these, or can't be opened.

    Example:
        >>> open_ledger(":memory:")
        MemoryLedger()
    """
    if isinstance(ledger, Ledger):
        return ledger
    if ledger == IN_MEMORY:
        return MemoryLedger()
    if isinstance(ledger, str) and "://" in ledger:
        from langchain_dpicl.ledger.sql import SQLLedger

        return SQLLedger(ledger)
    raise LedgerError(
        "ledger must be a SQLAlchemy URL such as 'sqlite:///clinic.db', a Ledger, or "
        "':memory:' for an account that ends with this process. There is no default: "
        "where charges are kept decides what the guarantee is worth."
    )
