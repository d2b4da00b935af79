"""Types of a frame's columns that only a reader that guesses types gives.

Such a reader looks at a whole column, or at a chunk of it, to say what one cell is:
with one person's text among them everybody's 1234 becomes "01234", and the ids 1000 and
01000 are one or two. So what one person stored changes what is read of the others, and
no sensitivity holds. How a frame was read can't be seen in it, but for a few types.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from langchain_dpicl.common.hidden import Hidden

_SLICE = 1 << 16
_PADDED = "numbers, and its declared values have zeros in front"


class InferredTypeWarning(UserWarning):
    """A frame's column looks as if its type had been inferred from all its cells.

    It names the column and its type, and nothing that is in it. That it is given says
    something of the cells, like the error about a bad cell: it is for who brings the
    rows, on standard error, before anything is released, and no part of a release.
    """


def warn_inferred(
    frame: Hidden[Any], library: str, columns: Mapping[str, Sequence[str]]
) -> None:
    """Warn of columns of categories or ids whose types only inference gives.

    Of a frame of pandas or polars, each column of categories comes with its declared
    values, and that of the ids with none.
    """
    for name, values in columns.items():
        reason = _reason(frame.value[name], library, values)
        if reason:
            _warn(f"{name!r} of the {library} frame holds {reason}")


def warn_arrow_types(
    types: Mapping[str, Any], columns: Mapping[str, Sequence[str]]
) -> None:
    """Warn of the same by the types of Arrow's columns; no cell is looked at."""
    arrow = sys.modules["pyarrow"].types
    for name, values in columns.items():
        kind = types[name]
        kind = kind.value_type if arrow.is_dictionary(kind) else kind
        is_float = arrow.is_floating(kind)
        if (is_float or arrow.is_integer(kind)) and any(map(_is_padded, values)):
            _warn(f"{name!r} of the Arrow table holds {_PADDED}")
        elif is_float and "." not in "".join(values):
            _warn(f"{name!r} of the Arrow table holds floats for whole values")


def _warn(finding: str) -> None:
    warnings.warn(
        f"Column {finding}. A reader that "
        "infers types makes such columns, and then one person's cell changes "
        "how the cells of all others are read, so that the privacy guarantee "
        "does not hold. Read the file with tabular.CSVRows, or declare the "
        "column as text where it is read (dtype=str, keep_default_na=False).",
        InferredTypeWarning,
        stacklevel=3,
    )


def _reason(column: Any, library: str, values: Sequence[str]) -> str:
    dtype = column.dtype
    if library == "pandas":
        is_float, is_number = dtype.kind == "f", dtype.kind in "iuf"
        cells = column.cat.categories if dtype.name == "category" else column
        if cells.dtype.kind == "O":
            infer = sys.modules["pandas"].api.types.infer_dtype
            # Text beside something else; "mixed-integer-float" is numbers alone.
            if infer(cells, skipna=True) in ("mixed", "mixed-integer"):
                return "text beside other types"
    else:
        is_float = dtype.is_float()
        is_number = is_float or dtype.is_integer()
    if is_number and any(_is_padded(value) for value in values):
        return _PADDED
    if is_float and "." not in "".join(values) and all(_are_whole(column, library)):
        return "whole numbers as floats"
    return ""


def _is_padded(value: str) -> bool:
    return len(value) > 1 and value[0] == "0" and value.isdigit()


def _are_whole(column: Any, library: str) -> Iterator[bool]:
    """Say of each slice whether its numbers are whole, then whether there are any."""
    found = False
    for start in range(0, len(column), _SLICE):
        if library == "pandas":
            part = column.iloc[start : start + _SLICE]
            cells = part.to_numpy(dtype=np.float64, na_value=np.nan)
        else:
            cells = column.slice(start, _SLICE).to_numpy()
        numbers = cells[np.isfinite(cells)]
        found = found or len(numbers) > 0
        yield bool((numbers == np.rint(numbers)).all())
    yield found
