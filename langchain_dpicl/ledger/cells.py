"""Values read out of columns: of the type that the column says, or none at all.

SQLite keeps words, blobs and floats in a column of integers, and the other way round.
Only an edit puts them there. Whatever it leads to ends as a `LedgerError`:
`Transactions.attempt` turns `UNREADABLE` into one, for all that is read inside it.
"""

from __future__ import annotations

from typing import Any

UNREADABLE = (
    *(TypeError, ValueError, LookupError, AttributeError),
    *(ArithmeticError, RecursionError, MemoryError),
)
"""What comes of a value that a column can't hold, or that no ledger wrote there."""


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
