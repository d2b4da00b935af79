"""The one spelling of a category: declared values and cells are compared by it.

Each function is a function of one value or cell and of public values alone.

* **Missing** is None, NaN, NaT, `pandas.NA`, and text that is blank.
* **Text** is stripped of white space at both ends (databases pad it). Upper and lower
  case are told apart.
* **Numbers** have one spelling: 1, `numpy.int64(1)`, 1.0 and `Decimal("1.00")` are all
  "1". Text that writes a number plainly ("1.0") is that number wherever it is not
  declared as text itself; text that is more than its number ("01", "1e3") stays text.
* **Truth values** are "True" and "False"; a member of an `Enum` is its name, as
  SQLAlchemy stores it.

No error holds a cell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import Any

import numpy as np

_LARGEST_SPELLED = 10**16
_PLAIN_NUMERAL = re.compile(r"-?(?:0|[1-9][0-9]{0,99})(?:\.[0-9]{1,99})?")


class UnreadableError(TypeError):
    """A cell is of a kind that the column can't hold. Its text is always empty."""


def is_missing(cell: Any) -> bool:
    """Say whether a cell holds nothing.

    Example:
        >>> [is_missing(cell) for cell in (None, float("nan"), " ", 0, "no")]
        [True, True, True, False, False]
    """
    if cell is None:
        return True
    if isinstance(cell, str):
        return not cell.strip()
    if isinstance(cell, Decimal):
        return cell.is_nan()
    if isinstance(cell, (float, np.floating)):
        return bool(np.isnan(cell))
    if isinstance(cell, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(cell))
    return is_absent(type(cell))


def spelled(cell: Any) -> str | None:
    """Return the one spelling of a category, or None for a missing cell.

    Args:
        cell: One cell, or a value that a schema declares.

    Returns:
        The text that categories are compared by.

    Raises:
        UnreadableError: If it is no text, number, truth value or member of an Enum.

    Example:
        >>> [spelled(cell) for cell in (" clerk ", 1, 1.0, 0.5, True, None)]
        ['clerk', '1', '1', '0.5', 'True', None]
    """
    if is_missing(cell):
        return None
    if isinstance(cell, Enum):
        return cell.name
    if isinstance(cell, str):
        return str.strip(cell)
    if isinstance(cell, (bool, np.bool_)):
        return str(bool(cell))
    return _figures(cell)


def index_of(values: Sequence[str]) -> dict[str, int]:
    """Return the positions of declared values, by their texts and their numbers.

    Args:
        values: The spellings of the values, each once.

    Returns:
        Each spelling's position; also that of the number that it writes, unless two
        values write the same one: as text they differ, and no number says which it is.

    Example:
        >>> index_of(["1.0", "2.5", "2.50", "01"])
        {'1.0': 0, '2.5': 1, '2.50': 2, '01': 3, '1': 0}
    """
    index = {value: code for code, value in enumerate(values)}
    numerals = [_numeral(value) for value in values]
    times = Counter(numerals)
    for code, numeral in enumerate(numerals):
        if numeral is not None and times[numeral] == 1:
            index.setdefault(numeral, code)
    return index


def find(text: str, index: Mapping[str, int]) -> int | None:
    """Return the position of a value: of its text, or else of the number it writes.

    Args:
        text: What `spelled` returned.
        index: What `index_of` returned.

    Example:
        >>> [find(text, {"1": 0, "01": 1}) for text in ("1.00", "01", "001")]
        [0, 1, None]
    """
    code = index.get(text)
    if code is None and (numeral := _numeral(text)) is not None:
        code = index.get(numeral)
    return code


def declared(value: Any) -> str:
    """Return the spelling of a value that a schema declares.

    Raises:
        ValueError: If it is missing, or of a type that is no category's.
    """
    try:
        text = spelled(value)
    except UnreadableError:
        text = None
    if text is None:
        raise ValueError(
            "a value is text that is not blank, a number or a truth value, not "
            f"{type(value).__name__}"
        )
    return text


def meant(values: Sequence[str] | None, value: Any) -> str:
    """Return the declared value that a field names, or else the value's own spelling.

    Raises:
        ValueError: As `declared`.
    """
    text = declared(value)
    code = find(text, index_of(values or ()))
    return text if code is None or values is None else values[code]


def is_span(cell: Any) -> bool:
    """Say whether this is a span of time, which NumPy derives from its integers."""
    return isinstance(cell, np.timedelta64)


def is_absent(kind: type) -> bool:
    """Say whether values of this type hold nothing: None, NaT and NA of pandas."""
    # Known by name: pandas need not be installed.
    return kind is NoneType or (
        kind.__name__ in {"NAType", "NaTType"} and kind.__module__.startswith("pandas.")
    )


def _numeral(text: str) -> str | None:
    """The spelling of the number that a text writes, if that is all it says."""
    return _figures(Decimal(text)) if _PLAIN_NUMERAL.fullmatch(text) else None


def _figures(cell: Any) -> str:
    """The one spelling of a number: whole numbers below 10^16 have no point."""
    if is_span(cell):
        raise UnreadableError
    if isinstance(cell, (int, np.integer)):
        value = int(cell)
        # Python refuses to write very long integers out, but not as hexadecimals.
        return str(value) if abs(value) < _LARGEST_SPELLED**8 else hex(value)
    if isinstance(cell, (float, np.floating)):
        # Through text: 0.1 in single precision is 0.1, not 0.10000000149.
        number = float(cell if type(cell) is float else str(cell))
        whole = number.is_integer() and abs(number) < _LARGEST_SPELLED
        return str(int(number) if whole else number)
    if not isinstance(cell, Decimal):
        raise UnreadableError
    # `abs` would round, by the thread's context.
    if not cell.is_finite() or cell.copy_abs() >= _LARGEST_SPELLED**8:
        return str(cell)
    if cell == cell.to_integral_value():
        return str(int(cell))
    return str(float(cell)) if cell.copy_abs() < _LARGEST_SPELLED else str(cell)
