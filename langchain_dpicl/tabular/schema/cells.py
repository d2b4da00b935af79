"""A column's cells as they come from lists, arrays, frames, databases and files.

What a cell *is* must not depend on which library delivered it, nor on the other cells
of its column: every function here is a function of each cell alone.

* **A category** is compared by its one spelling (`spelling`).
* **A number** is anything real: integers of any size, floats, `Decimal`, `Fraction`;
  truth values are 0 and 1. Text is never read as a number: "1,5" and "1e3" mean
  different things in different files. The exception is a file that has nothing but
  text, whose numbers have one public grammar (`TextCells`).

Nothing here is kept between two calls, and no error holds a cell.
"""

from __future__ import annotations

import math
import re
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

from langchain_dpicl.tabular.schema.arrow_cells import (
    arrow_cells,
    arrow_list,
    arrow_numbers,
    is_arrow,
)
from langchain_dpicl.tabular.schema.spelling import (
    UnreadableError,
    find,
    is_absent,
    is_missing,
    is_span,
    spelled,
)

MISSING = -1
FOREIGN = -2
UNREADABLE = -3

_PLAIN = frozenset({float, int, bool, NoneType})
_NUMERIC = "biuf"
_TIMES = ("m", "M")
_HASHED = (str, int, float, np.number, np.bool_, Enum)
_NUMBER = re.compile(
    r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?i:inf|infinity)"
)
# Of these characters alone, `float` reads what `_NUMBER` matches, and nothing else.
_DIGITS = re.compile(r"[0-9.eE+-]*")


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
    if is_arrow(values):
        return arrow_list(values)
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


class TextCells(list[Any]):
    """Cells of a file that has nothing but text: strings, None where one is missing.

    A column of categories takes them as any text. A column of numbers reads each by
    itself: digits with a point and an exponent ("-3", "2.50", ".5", "1e3"), or "inf".

    Example:
        >>> numbers(TextCells(["37", " 2.5 ", None])).tolist()
        [37.0, 2.5, nan]
    """


def codes(values: Any, index: Mapping[str, int]) -> NDArray[np.int64]:
    """Look a column's cells up among its categories.

    Args:
        values: The cells.
        index: Each category's code, from 0, as of `index_of`.

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
        code = tables[kinds.pop()].__getitem__
        return np.fromiter(map(code, cells), np.int64, len(cells))
    found = [tables[type(cell)][cell] for cell in cells]
    return np.array(found, dtype=np.int64)


def numbers(values: Any) -> NDArray[np.float64]:
    """Read a column's cells as numbers.

    Args:
        values: The cells; text only as `TextCells`.

    Returns:
        The numbers, NaN for missing cells. Numbers too large for a float become
        infinite.

    Raises:
        UnreadableError: If a cell is no number, or `values` no sequence of cells.
    """
    if isinstance(values, TextCells):
        return _text_numbers(values)
    if is_arrow(values):
        values = arrow_numbers(values)
        if values is None:
            raise UnreadableError
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
    if not isinstance(cell, (Real, Decimal, np.bool_)) or is_span(cell):
        raise UnreadableError
    try:
        return float(cell)
    except OverflowError:
        negative: Any = cell
        return -math.inf if negative < 0 else math.inf


def _text_numbers(cells: TextCells) -> NDArray[np.float64]:
    try:
        # At once, where all of them are numbers; one by one it is the same.
        if _DIGITS.fullmatch("".join(cells)):
            return np.fromiter(map(float, cells), np.float64, len(cells))
    except (TypeError, ValueError):
        pass
    return np.array([_text_number(cell) for cell in cells], dtype=np.float64)


def _text_number(cell: str | None) -> float:
    text = "" if cell is None else cell.strip()
    if not text:
        return math.nan
    if not _NUMBER.fullmatch(text):
        raise UnreadableError
    return float(text)


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
        if is_absent(kind):
            make = _Absent
        elif issubclass(kind, _HASHED):
            make = _Table
        self[kind] = table = make(self._index, self._index if kind is str else {})
        return table


def _code(cell: Any, index: Mapping[str, int]) -> int:
    try:
        text = spelled(cell)
    except UnreadableError:
        return UNREADABLE
    if text is None:
        return MISSING
    code = find(text, index)
    return FOREIGN if code is None else code


def _pandas(values: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(
        values, (pandas.Series, pandas.Index, pandas.api.extensions.ExtensionArray)
    )


def _categorical(values: Any) -> tuple[NDArray[np.int64], list[Any]] | None:
    """Positions among distinct cells, -1 for missing: of Arrow, or a categorical."""
    if is_arrow(values):
        return arrow_cells(values)
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
