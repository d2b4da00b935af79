"""From what a user passes as `ledger=` to a `Ledger`."""

from __future__ import annotations

from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger.base import Ledger
from langchain_dpicl.ledger.charging import no_standby
from langchain_dpicl.ledger.memory import MemoryLedger

IN_MEMORY = ":memory:"


def open_ledger(
    ledger: object, *, create: bool = True, require_synchronous: bool = False
) -> Ledger:
    """Return the ledger that a `ledger=` argument names, ready for use.

    Args:
        ledger: A `Ledger`; a SQLAlchemy URL such as `"sqlite:///clinic.db"` or
            `"postgresql+psycopg://user@host/db"`; or `":memory:"`.
        create: Whether to make a ledger where the URL names none.
        require_synchronous: Whether to refuse a ledger that waits for no standby; see
            `SQLLedger`.

    Raises:
        LedgerError: If it is none of these, can't be opened, is not there and must not
            be made, or waits for no standby and `require_synchronous` asks for it.

    Example:
        >>> open_ledger(":memory:")
        MemoryLedger()
    """
    if isinstance(ledger, Ledger):
        if require_synchronous and not getattr(ledger, "require_synchronous", False):
            raise LedgerError(
                "require_synchronous=True is for a URL. A ledger that is open already "
                "takes it itself: SQLLedger(url, require_synchronous=True)."
            )
        return ledger
    if ledger == IN_MEMORY:
        if not create:
            raise LedgerError(
                "create=False asks for a ledger that is there, and ':memory:' always "
                "begins from nothing. Name the ledger's URL."
            )
        if require_synchronous:
            raise no_standby("A ledger in memory")
        return MemoryLedger()
    if isinstance(ledger, str) and "://" in ledger:
        from langchain_dpicl.ledger.sql.ledger import SQLLedger

        return SQLLedger(ledger, create=create, require_synchronous=require_synchronous)
    raise LedgerError(
        "ledger must be a SQLAlchemy URL such as 'sqlite:///clinic.db', a Ledger, or "
        "':memory:' for an account that ends with this process. There is no default: "
        "where charges are kept decides what the guarantee is worth."
    )
