"""Raw cells as they come from lists, arrays, frames and databases, read as values.

What a cell *is* must not depend on which library delivered it, nor on the other cells
of its column: every function here is a function of each cell alone.

* **Missing** is None, NaN, NaT, `pandas.NA`, and text that is blank.
* **A category** is text. Text is stripped of white space at both ends (databases pad
  it). Numbers have one spelling, so that 1, `numpy.int64(1)`, 1.0 and `Decimal("1.00")`
  are all "1"; truth values are "True" and "False"; a member of an `Enum` is its name,
  as SQLAlchemy stores it. Upper and lower case are told apart.
* **A number** is anything real: integers of any size, floats, `Decimal`, `Fraction`;
  truth values are 0 and 1. Text is never read as a number: "1,5" and "1e3" mean
  different things in different files.

Nothing here is kept between two calls, and no error holds a cell.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from decimal import Decimal
from enum import Enum
from numbers import Real
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

MISSING = -1
FOREIGN = -2
UNREADABLE = -3

_PLAIN = frozenset({float, int, bool, NoneType})
_NUMERIC = "biuf"
_TIMES = ("m", "M")
_HASHED = (str, int, float, np.number, np.bool_, Enum)
_LARGEST_SPELLED = 10**16


class UnreadableError(TypeError):
    """A cell is of a kind that the column can't hold. Its text is always empty."""


def listed(values: Any) -> list[Any]:
    """Return a column's cells as a list.

    Args:
        values: A list, tuple, array, or a series of pandas, polars or Arrow.

    Returns:
        The cells in order.

    Raises:
        UnreadableError: If this is no one-dimensional sequence of cells.
    """
    if isinstance(values, list):
        return values
    if isinstance(values, (str, bytes, Mapping, AbstractSet)):
        raise UnreadableError
    if not hasattr(values, "__iter__") or getattr(values, "ndim", 1) != 1:
        raise UnreadableError
    if getattr(getattr(values, "dtype", None), "kind", "") in _TIMES:
        # As lists, times in nanoseconds turn into integers.
        return list(values)
    for method in ("to_list", "to_pylist", "tolist"):
        if callable(convert := getattr(values, method, None)):
            return _unwidened(values, list(convert()))
    return list(values)


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
    return _is_absent(type(cell))


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


def codes(values: Any, index: Mapping[str, int]) -> NDArray[np.int64]:
    """Look a column's cells up among its categories.

    Args:
        values: The cells.
        index: Each category's spelling and code, from 0.

    Returns:
        Each cell's code; `MISSING` for missing cells, `FOREIGN` for values that are
        no category, `UNREADABLE` for cells that can't be one.

    Raises:
        UnreadableError: If `values` is no sequence of cells.
    """
    tables = _Tables(index)
    categorical = _categorical(values)
    if categorical is not None:
        positions, categories = categorical
        # Categories that no cell has are looked up too, and never used.
        found = [tables[type(cell)][cell] for cell in categories]
        return np.array([*found, MISSING], dtype=np.int64)[positions]
    cells = listed(values)
    kinds = set(map(type, cells))
    if len(kinds) == 1:
        table = tables[kinds.pop()]
        found = [table[cell] for cell in cells]
    else:
        found = [tables[type(cell)][cell] for cell in cells]
    return np.array(found, dtype=np.int64)


def numbers(values: Any) -> NDArray[np.float64]:
    """Read a column's cells as numbers.

    Args:
        values: The cells.

    Returns:
        The numbers, NaN for missing cells. Numbers too large for a float become
        infinite.

    Raises:
        UnreadableError: If a cell is no number, or `values` no sequence of cells.
    """
    array = _array(values)
    if array is not None:
        with np.errstate(over="ignore"):
            return array.astype(np.float64)
    cells = listed(values)
    if set(map(type, cells)) <= _PLAIN:
        try:
            return np.array(cells, dtype=np.float64)
        except OverflowError:
            pass
    return np.array([number(cell) for cell in cells], dtype=np.float64)


def number(cell: Any) -> float:
    """Read one cell as a number: NaN if missing, infinite if too large for a float.

    Raises:
        UnreadableError: If it is no number.

    Example:
        >>> number(Decimal("1.5")), number(True), number(-(10**400))
        (1.5, 1.0, -inf)
    """
    if type(cell) is float:
        return cell
    if type(cell) is Decimal and cell.is_finite():
        return float(cell)
    if is_missing(cell):
        return math.nan
    # NumPy derives spans of time from its integers.
    if not isinstance(cell, (Real, Decimal, np.bool_)) or _is_span(cell):
        raise UnreadableError
    try:
        return float(cell)
    except OverflowError:
        negative: Any = cell
        return -math.inf if negative < 0 else math.inf


def _unwidened(values: Any, found: list[Any]) -> list[Any]:
    """Take back what lists do to short floats: 0.1 becomes 0.10000000149 in them."""
    name = str(getattr(values, "dtype", "")).lower()
    if name not in {"float16", "float32"}:
        return found
    return list(np.array([number(cell) for cell in found]).astype(name))


class _Table(dict[Any, int]):
    """The codes of the cells of one type: among cells of two types, True equals 1."""

    def __init__(self, index: Mapping[str, int], known: Mapping[Any, int]) -> None:
        super().__init__(known)
        self._index = index

    def __missing__(self, cell: Any) -> int:
        code = _code(cell, self._index)
        if code >= 0:
            # Categories only: free text would be held a second time.
            self[cell] = code
        return code


class _Unhashed(_Table):
    """The same for cells of other types, which may have no hash."""

    @override
    def __getitem__(self, cell: Any) -> int:
        return _code(cell, self._index)


class _Absent(_Table):
    """The same for types that hold nothing: None, and NaT and NA of pandas."""

    @override
    def __getitem__(self, cell: Any) -> int:
        return MISSING


class _Tables(dict[type, _Table]):
    """The tables of all the types that a column's cells have."""

    def __init__(self, index: Mapping[str, int]) -> None:
        super().__init__()
        self._index = index

    def __missing__(self, kind: type) -> _Table:
        make: type[_Table] = _Unhashed
        if _is_absent(kind):
            make = _Absent
        elif issubclass(kind, _HASHED):
            make = _Table
        self[kind] = table = make(self._index, self._index if kind is str else {})
        return table


def _is_span(cell: Any) -> bool:
    return isinstance(cell, np.timedelta64)


def _is_absent(kind: type) -> bool:
    # Known by name: pandas need not be installed.
    return kind is NoneType or (
        kind.__name__ in {"NAType", "NaTType"} and kind.__module__.startswith("pandas.")
    )


def _code(cell: Any, index: Mapping[str, int]) -> int:
    try:
        text = spelled(cell)
    except UnreadableError:
        return UNREADABLE
    return MISSING if text is None else index.get(text, FOREIGN)


def _figures(cell: Any) -> str:
    """The one spelling of a number: whole numbers below 10^16 have no point."""
    if _is_span(cell):
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
    if not cell.is_finite() or abs(cell) >= _LARGEST_SPELLED:
        return str(cell)
    if cell == cell.to_integral_value():
        return str(int(cell))
    return str(float(cell))


def _pandas(values: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(
        values, (pandas.Series, pandas.Index, pandas.api.extensions.ExtensionArray)
    )


def _categorical(values: Any) -> tuple[NDArray[np.int64], list[Any]] | None:
    """A pandas categorical as positions among its categories, -1 for missing."""
    if not _pandas(values) or values.dtype.name != "category":
        return None
    held = getattr(values, "array", values)
    return np.asarray(held.codes, dtype=np.int64), held.categories.tolist()


def _array(values: Any) -> NDArray[Any] | None:
    """An array of numbers or truth values, if the cells lie in one already."""
    if isinstance(values, np.ma.MaskedArray):
        return None
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise UnreadableError
        return values if values.dtype.kind in _NUMERIC else None
    if _pandas(values) and getattr(values.dtype, "kind", "O") in _NUMERIC:
        array: NDArray[Any] = values.to_numpy(dtype=np.float64, na_value=np.nan)
        return array
    return None
