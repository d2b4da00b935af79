"""From what a user passes as `ledger=` to a `Ledger`."""

from __future__ import annotations

from langchain_dpicl.exceptions import LedgerError
from langchain_dpicl.ledger.base import Ledger
from langchain_dpicl.ledger.memory import MemoryLedger

IN_MEMORY = ":memory:"


def open_ledger(ledger: object, *, create: bool = True) -> Ledger:
    """Return the ledger that a `ledger=` argument names.

    Args:
        ledger: A `Ledger`; a SQLAlchemy URL such as `"sqlite:///clinic.db"` or
            `"postgresql+psycopg://user@host/db"`; or `":memory:"`.
        create: Whether to make a ledger where the URL names none.

    Returns:
        The ledger, ready for use.

    Raises:
        LedgerError: If it is none of these, can't be opened, or is not there and must
            not be made.

    Example:
        >>> open_ledger(":memory:")
        MemoryLedger()
    """
    if isinstance(ledger, Ledger):
        return ledger
    if ledger == IN_MEMORY:
        if not create:
            raise LedgerError(
                "create=False asks for a ledger that is there, and ':memory:' always "
                "begins from nothing. Name the ledger's URL."
            )
        return MemoryLedger()
    if isinstance(ledger, str) and "://" in ledger:
        from langchain_dpicl.ledger.sql import SQLLedger

        return SQLLedger(ledger, create=create)
    raise LedgerError(
        "ledger must be a SQLAlchemy URL such as 'sqlite:///clinic.db', a Ledger, or "
        "':memory:' for an account that ends with this process. There is no default: "
        "where charges are kept decides what the guarantee is worth."
    )
