"""A column of Arrow as cells: what is found of it depends on each cell alone.

Distinct cells are looked up once, whatever their order, and each row gets what was
found for its own. pyarrow is not imported here: the caller of its arrays has done so.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

_UNREADABLE = object()


def is_arrow(values: Any) -> bool:
    """Say whether this is an array of pyarrow.

    Example:
        >>> is_arrow(["clerk"])
        False
    """
    arrow = sys.modules.get("pyarrow")
    return arrow is not None and isinstance(values, (arrow.Array, arrow.ChunkedArray))


def arrow_cells(values: Any) -> tuple[NDArray[np.int64], list[Any]]:
    """Return each row's place among the distinct cells, -1 for a missing one.

    Args:
        values: An array of pyarrow.

    Returns:
        The places, and the cells: those of dictionaries that no row has among them.
        A cell of a type that no column can hold is an object without a value.
    """
    values = _plain(values)
    types = sys.modules["pyarrow"].types
    kind = values.type
    if types.is_dictionary(kind):
        places, cells = values.indices, _listed(values.dictionary)
    elif _is_scalar(kind) or types.is_null(kind):
        encoded = values.dictionary_encode()
        places, cells = encoded.indices, _listed(encoded.dictionary)
    else:
        places = _numpy(values.is_null()).astype(np.int64)
        return -places, [_UNREADABLE]
    found = _numpy(places.fill_null(-1) if places.null_count else places)
    return found.astype(np.int64, copy=False), cells


def arrow_numbers(values: Any) -> NDArray[np.float64] | list[Any] | None:
    """Return an array's numbers, NaN where one is missing.

    Args:
        values: An array of pyarrow.

    Returns:
        The numbers; the cells of decimals and text (blank is missing), which are read
        one by one; None where cells are no numbers.
    """
    values = _plain(values)
    types = sys.modules["pyarrow"].types
    if types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if types.is_decimal(kind) or _is_text(kind):
        return list(values.to_pylist())
    is_number = types.is_integer(kind) or types.is_floating(kind)
    if is_number or types.is_boolean(kind):
        if not values.null_count:
            return _numpy(values).astype(np.float64)
        found = _numpy(values.fill_null(False if types.is_boolean(kind) else 0))
        found = found.astype(np.float64)
        found[_numpy(values.is_null())] = np.nan
        return found
    if values.null_count == len(values):
        return np.full(len(values), np.nan)
    return None


def arrow_list(values: Any) -> list[Any]:
    """Return an array's cells one by one, None for a missing one."""
    places, cells = arrow_cells(values)
    table = [*cells, None]
    return [table[place] for place in places.tolist()]


def _plain(values: Any) -> Any:
    """Return one array, without what only says how it is stored."""
    arrow = sys.modules["pyarrow"]
    if isinstance(values, arrow.ChunkedArray):
        values = values.combine_chunks()
    if arrow.types.is_run_end_encoded(values.type):
        values = sys.modules["pyarrow"].compute.run_end_decode(values)
    return values


def _listed(cells: Any) -> list[Any]:
    types = sys.modules["pyarrow"].types
    if types.is_floating(cells.type):
        # As it was written: 0.1 in single precision is not 0.10000000149.
        return list(_numpy(cells.fill_null(np.nan) if cells.null_count else cells))
    if _is_scalar(cells.type) or types.is_null(cells.type):
        return list(cells.to_pylist())
    return [None if gone else _UNREADABLE for gone in cells.is_null().to_pylist()]


def _is_scalar(kind: Any) -> bool:
    """Say whether cells are text, numbers or truth values."""
    types = sys.modules["pyarrow"].types
    return any(
        (
            _is_text(kind),
            types.is_boolean(kind),
            types.is_integer(kind),
            types.is_floating(kind),
            types.is_decimal(kind),
        )
    )


def _is_text(kind: Any) -> bool:
    types = sys.modules["pyarrow"].types
    is_long = types.is_large_string(kind) or types.is_string_view(kind)
    return bool(types.is_string(kind) or is_long)


def _numpy(values: Any) -> NDArray[Any]:
    found: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return found
