"""Frames of pandas and polars, sliced into chunks; neither library is imported here."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import Any, Literal

import numpy as np

from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.common.inferred import InferredTypeWarning, warn_inferred
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.rows.wanted import WantedColumns

__all__ = [
    "InferredTypeWarning",
    "frame_columns",
    "frame_library",
    "is_lazy_frame",
    "lazy_batches",
]

Library = Literal["pandas", "polars"]


def frame_library(data: Any) -> Library | None:
    """Return which library's frame this is; None: it is no frame.

    Who passes a frame has imported its library, so that nobody waits for it here.

    Example:
        >>> frame_library([{"age": 37}]) is None
        True
    """
    if _is_a(data, "pandas", "DataFrame"):
        return "pandas"
    return "polars" if _is_a(data, "polars", "DataFrame") else None


def is_lazy_frame(data: Any) -> bool:
    """Say whether this is a query of polars that has not run yet."""
    return _is_a(data, "polars", "LazyFrame")


def frame_columns(
    frame: Hidden[Any], wanted: WantedColumns, size: int
) -> Generator[tuple[dict[str, Any], int], None, None]:
    """Yield a frame's columns, slice by slice, and the slices' sizes.

    A slice is a view where the frame holds plain numbers; other cells are copied for
    one slice at a time. Nothing goes through a frame row by row.

    Args:
        frame: Of pandas or polars.
        wanted: The columns.
        size: Most rows of a slice.

    Raises:
        InvalidParameterError: If the columns are not right.

    Privacy:
        Each cell must have been read without regard to the others. Where a column's
        type says otherwise, an `InferredTypeWarning` names the column.
    """
    library = frame_library(frame.value) or "pandas"
    wanted.require(list(frame.value.columns), f"The {library} frame")
    warn_inferred(frame, library, wanted.compared)
    total = len(frame.value)
    cut = _pandas_cells if library == "pandas" else _polars_cells
    for start in range(0, total, size):
        length = min(size, total - start)
        yield (
            {name: cut(frame, name, start, length) for name in wanted.all},
            length,
        )


def lazy_batches(query: Hidden[Any], size: int) -> Iterator[Hidden[Any]]:
    """Run a lazy query of polars and yield its frames, one batch after the other.

    Raises:
        InvalidParameterError: If this polars can't do so in bounded memory, or the
            query fails. Polars quotes cells in its own errors, so they are not shown.
    """
    if not hasattr(query.value, "collect_batches"):
        raise InvalidParameterError(
            "This version of polars can't collect a LazyFrame in batches. Pass "
            "frame.collect() where it fits into memory, or an iterable of frames."
        )
    batches: Hidden[Any] = Hidden(None)
    while True:
        kind = ""
        try:
            if batches.value is None:
                batches.value = iter(query.value.collect_batches(chunk_size=size))
            batch = Hidden(next(batches.value))
        except StopIteration:
            return
        except Exception as error:  # noqa: BLE001 - whatever a query raises
            kind = type(error).__name__
        if kind:
            raise InvalidParameterError(
                f"The polars LazyFrame could not be collected ({kind}). Its message "
                "may quote cells and is not shown; collect() it yourself to see it."
            )
        yield batch
        del batch


def _is_a(data: Any, library: str, name: str) -> bool:
    kind = getattr(sys.modules.get(library), name, None)
    return isinstance(kind, type) and isinstance(data, kind)


def _pandas_cells(frame: Hidden[Any], name: str, start: int, length: int) -> Any:
    cells = Hidden(frame.value[name].iloc[start : start + length])
    dtype = cells.value.dtype
    # As plain numbers, integers of pandas' own kind with one missing would be floats.
    if isinstance(dtype, np.dtype) or (dtype.kind in "iu" and not cells.value.hasnans):
        return cells.value.to_numpy()
    return cells.value.to_numpy(dtype=object)


def _polars_cells(frame: Hidden[Any], name: str, start: int, length: int) -> Any:
    cells = Hidden(frame.value.get_column(name).slice(start, length))
    dtype = cells.value.dtype
    # Here too.
    if (dtype.is_integer() or dtype.is_float()) and not cells.value.null_count():
        return cells.value.to_numpy()
    return cells.value.to_list()
