"""Cells of a table: what a cell means, read from that cell alone.

* **A category or an id** is text or a whole number. Text is stripped of white space at
  both ends; upper and lower case are told apart. A whole number is its digits, a truth
  value "True" or "False". Any other cell is refused: a float such as 1.0 was a whole
  number before somebody's missing cell made the reader take all of them for floats.
* **A number** is anything real, or text that writes one plainly: "-3", "2.50", "1e3".
* **Missing** is None, NaN, blank text, and NA and NaT of pandas.

An Arrow array is looked up by its distinct cells, whatever their order. No error holds
a cell.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Real
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

MISSING, FOREIGN, UNREADABLE = -1, -2, -3
"""Codes of cells that are missing, no category, or can't be one."""

_PLAIN = frozenset({float, int, bool, NoneType})
_NUMBER = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?i:inf|infinity)"
)


class UnreadableError(TypeError):
    """A cell is of a kind that the column can't hold. Its text is always empty."""


def is_missing(cell: Any) -> bool:
    """Return whether a cell holds nothing.

    Example:
        >>> [is_missing(cell) for cell in (None, float("nan"), " ", 0, "no")]
        [True, True, True, False, False]
    """
    if isinstance(cell, str):
        return not cell.strip()
    if isinstance(cell, (float, np.floating)):
        return bool(np.isnan(cell))
    if isinstance(cell, Decimal):
        return cell.is_nan()
    # Known by name: pandas need not be installed.
    kind = type(cell)
    absent = kind.__name__ in {"NAType", "NaTType"}
    return cell is None or (absent and kind.__module__.startswith("pandas."))


def spelled(cell: Any) -> str | None:
    """Return the text that categories and ids are compared by; None if missing.

    Raises:
        UnreadableError: If the cell is no text, whole number or truth value.

    Example:
        >>> [spelled(cell) for cell in (" clerk ", 1, True, None)]
        ['clerk', '1', 'True', None]
    """
    if isinstance(cell, str):
        return str.strip(cell) or None
    if isinstance(cell, (bool, np.bool_)):
        return str(bool(cell))
    if isinstance(cell, np.timedelta64):
        raise UnreadableError  # NumPy takes spans of time for integers.
    if isinstance(cell, (int, np.integer)):
        # Python refuses to write very long integers out, but not as hexadecimals.
        return str(int(cell)) if abs(int(cell)) < 1 << 256 else hex(int(cell))
    if is_missing(cell):
        return None
    raise UnreadableError


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
            "a value is text that is not blank, a whole number or a truth value, not "
            f"{type(value).__name__}"
        )
    return text


def number(cell: Any) -> float:
    """Return a cell's number; NaN if it is missing.

    Raises:
        UnreadableError: If it is no real number, nor text that writes one plainly.

    Example:
        >>> number(True), number(" 2.50 "), number(None)
        (1.0, 2.5, nan)
    """
    if is_missing(cell):
        return math.nan
    if isinstance(cell, str):
        if not _NUMBER.fullmatch(cell.strip()):
            raise UnreadableError
    elif isinstance(cell, np.timedelta64) or not isinstance(
        cell, (Real, Decimal, np.bool_)
    ):
        raise UnreadableError
    try:
        return float(cell)
    except OverflowError:
        return -math.inf if cell < 0 else math.inf


def codes(cells: Any, index: Mapping[str, int]) -> NDArray[np.int64]:
    """Return each cell's code by the index, or what it is instead of a category."""
    distinct, places = distinct_cells(cells)
    read = (
        index[cell] if type(cell) is str and cell in index else _code(cell, index)
        for cell in distinct
    )
    found = np.fromiter(read, np.int64, len(distinct))
    return found if places is None else np.append(found, MISSING)[places]


def numbers(cells: Any) -> NDArray[np.float64]:
    """Return a column's cells as numbers, NaN where one is missing.

    Raises:
        UnreadableError: If a cell is no number.
    """
    distinct, places = distinct_cells(cells)
    if not _PLAIN.issuperset(map(type, distinct)):
        distinct = [number(cell) for cell in distinct]
    try:
        found = np.array(distinct, dtype=np.float64)
    except OverflowError:
        found = np.array([number(cell) for cell in distinct])
    return found if places is None else np.append(found, np.nan)[places]


def distinct_cells(cells: Any) -> tuple[Sequence[Any], NDArray[np.int64] | None]:
    """Return a list's cells in order, and None; of an array of Arrow distinct ones.

    Then each row's place among them comes too, -1 for a missing cell.
    """
    if isinstance(cells, list):
        return cells, None
    return _arrow_cells(cells, sys.modules["pyarrow"])


def _arrow_cells(
    values: Any, arrow: Any
) -> tuple[Sequence[Any], NDArray[np.int64] | None]:
    types = arrow.types
    is_text = types.is_string(values.type) or types.is_large_string(values.type)
    if is_text or types.is_integer(values.type):
        values = values.dictionary_encode()
    if not types.is_dictionary(values.type):
        return values.to_pylist(), None
    # A dictionary may hold a missing cell, too: None among the cells.
    places = values.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return values.dictionary.to_pylist(), places.astype(np.int64)


def _code(cell: Any, index: Mapping[str, int]) -> int:
    try:
        text = spelled(cell)
    except UnreadableError:
        return UNREADABLE
    return MISSING if text is None else index.get(text, FOREIGN)
