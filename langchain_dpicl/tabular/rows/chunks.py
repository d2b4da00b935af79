"""Rows of any kind as chunks of columns: `read_chunks`.

Memory is bounded by the chunk, whatever the length of the table: what was handed on is
forgotten before the next chunk is built.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, NoReturn, TypeAlias

from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.rows.arrow import ArrowRows
from langchain_dpicl.tabular.rows.frames import (
    frame_columns,
    frame_library,
    is_lazy_frame,
    lazy_batches,
)
from langchain_dpicl.tabular.rows.sql import SQLRows
from langchain_dpicl.tabular.rows.text_files import CSVRows
from langchain_dpicl.tabular.rows.wanted import ExtraColumns, WantedColumns

CHUNK_SIZE = 50_000
"""How many rows are in memory at once, unless told otherwise."""

Slices: TypeAlias = "Generator[tuple[dict[str, Any], int], None, None]"
"""Slices of a table: their columns, and how many rows they have."""

ACCEPTED = (
    "CSVRows, JSONRows, SQLRows, ArrowRows, a pandas or polars DataFrame, a polars "
    "LazyFrame, or an iterable of mappings (column name to value) or of frames"
)
"""What can be read, in words."""


Names = Mapping[str, Sequence[str]]
"""By open column, what one row names outside its list. Private."""


class NamedRows(ABC):
    """Rows that come with names; read by the tables of this package alone.

    Names are bound to their row. Were they bound to its cells, or to a mapping that
    others can pass on, whatever merges equal cells (a frame's categories, a dictionary)
    would make one person's names those of everybody with the same cell.
    """

    @property
    @abstractmethod
    def unit_key(self) -> str:
        """The metadata key of the units that the rows are, one row each."""

    @abstractmethod
    def _named_rows(self) -> Iterator[tuple[Mapping[str, Any], Names]]:
        """Yield each row with its names."""


@dataclass(frozen=True, repr=False)
class Chunk:
    """Some rows of a table, column by column. Private; the repr shows nothing.

    Attributes:
        columns: The cells of each column of the schema: a list, tuple or array, as
            long as the chunk.
        size: How many rows there are, at least 1.
        units: The cell of each row that says whose it is, as it was found; None where
            no `unit_key` was given.
        named: What each row names in open columns, beside its cells; None where the
            cells say all.

    Example:
        >>> Chunk({"age": [37]}, 1, None)
        Chunk(<hidden>)
    """

    columns: Mapping[str, Any]
    size: int
    units: Sequence[Any] | None = None
    named: Sequence[Names] | None = None

    def __repr__(self) -> str:
        return "Chunk(<hidden>)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("Private rows are not pickled.")


def read_chunks(
    data: Any,
    names: Iterable[str],
    *,
    unit_key: str | None = None,
    extra_columns: ExtraColumns = "refuse",
    chunk_size: int = CHUNK_SIZE,
    categories: Mapping[str, Sequence[str]] | None = None,
) -> Generator[Chunk, None, None]:
    """Read a table once, from start to end, in chunks.

    Every row must have every column, and every row is looked at: a mapping that lacks
    a column is an error, wherever it stands. Whether a value may be missing is for the
    schema to say. A table without rows yields nothing.

    Args:
        data: `CSVRows`, `JSONRows`, `SQLRows`, `ArrowRows`, a pandas or polars
            `DataFrame`, a polars `LazyFrame`, or an iterable of mappings or of frames.
        names: The columns of the schema.
        unit_key: The column that says whose a row is; it may be one of the schema's.
        extra_columns: What to do with a column that the schema doesn't know:
            "refuse" or "ignore".
        chunk_size: Most rows of a chunk.
        categories: The columns of categories, with their declared values: of these a
            frame's types are looked at (`InferredTypeWarning`).

    Returns:
        A generator of the chunks, in the order of the rows. Who stops before the end
        of a database's rows should close it.

    Raises:
        InvalidParameterError: If this is no table, columns are missing, unknown or
            there twice, or a database or lazy frame can't be read. No message holds a
            cell. What an iterable of the caller's own raises passes through.

    Example:
        >>> rows = [{"age": 37, "job": "clerk"}, {"age": 52, "job": "nurse"}]
        >>> [chunk] = read_chunks(rows, ["age", "job"])
        >>> chunk.columns["age"], chunk.size
        ([37, 52], 2)

    Privacy:
        What is given must have been read without regard to who else is there: each cell
        of a frame by itself. A reader that infers a column's type does not do that; see
        `InferredTypeWarning`. `CSVRows` and `JSONRows` do.

        Nothing is released here. Chunks are cut by position, so which rows share one
        depends on everybody: whatever is computed from a chunk must be computed row by
        row, and put together in a way that forgets the chunks (a sum).
    """
    hidden = Hidden(data)
    # Whatever fails from here on, tracebacks show this frame and no row.
    del data
    wanted = WantedColumns.checked(names, unit_key, extra_columns, categories)
    size = parameters.count(chunk_size, "chunk_size")
    if isinstance(hidden.value, (CSVRows, SQLRows, ArrowRows)):
        return _of_columns(_read_columns(hidden.value, wanted, size), wanted)
    if frame_library(hidden.value) is not None:
        return _of_columns(frame_columns(hidden, wanted, size), wanted)
    if is_lazy_frame(hidden.value):
        return _of_frames(lazy_batches(hidden, size), wanted, size)
    if isinstance(hidden.value, NamedRows):
        return _of_named(hidden, wanted, size)
    if isinstance(hidden.value, (str, bytes, Mapping)) or not isinstance(
        hidden.value, Iterable
    ):
        _refuse("The table", hidden)
    return _of_iterable(hidden, wanted, size)


def _of_iterable(
    rows: Hidden[Any], wanted: WantedColumns, size: int
) -> Generator[Chunk, None, None]:
    items = Hidden(iter(rows.value))
    del rows
    first = Hidden(list(islice(items.value, 1)))
    if not first.value:
        return
    is_frames = frame_library(first.value[0]) is not None
    # An iterator that is at its end lets go of its list; `chain` alone would keep the
    # first frame in memory until the last one is read.
    items.value = chain(iter(first.value), items.value)
    del first
    if is_frames:
        yield from _of_frames(map(Hidden, items.value), wanted, size)
    else:
        yield from _of_mappings(items, wanted, size)


def _of_named(
    source: Hidden[NamedRows], wanted: WantedColumns, size: int
) -> Generator[Chunk, None, None]:
    pairs, place = Hidden(source.value._named_rows()), 0  # noqa: SLF001 - for this reader
    while True:
        held = Hidden(list(islice(pairs.value, size)))
        if not held.value:
            return
        chunk = _mapped(Hidden([row for row, _ in held.value]), wanted, place)
        place += len(held.value)
        yield replace(chunk, named=[named for _, named in held.value])
        del chunk, held


def _of_mappings(
    rows: Hidden[Iterator[Any]], wanted: WantedColumns, size: int
) -> Generator[Chunk, None, None]:
    place = 0
    while True:
        held = Hidden(list(islice(rows.value, size)))
        if not held.value:
            return
        chunk = _mapped(held, wanted, place)
        place += len(held.value)
        del held
        yield chunk
        del chunk


def _mapped(rows: Hidden[list[Any]], wanted: WantedColumns, place: int) -> Chunk:
    problem = _problem(rows.value, wanted, place)
    if problem:
        raise InvalidParameterError(problem)
    columns = {name: [row[name] for row in rows.value] for name in wanted.all}
    return _chunk(columns, len(rows.value), wanted)


def _of_frames(
    frames: Iterator[Hidden[Any]], wanted: WantedColumns, size: int
) -> Generator[Chunk, None, None]:
    for frame in frames:
        if frame_library(frame.value) is None:
            _refuse("After a frame there", frame)
        yield from _of_columns(frame_columns(frame, wanted, size), wanted)
        # While the next frame is read, this one need not be there.
        frame.value = None


def _of_columns(slices: Slices, wanted: WantedColumns) -> Generator[Chunk, None, None]:
    with closing(slices):
        for columns, length in map(_hidden_slice, slices):
            chunk = _chunk(columns.value, length, wanted)
            del columns
            yield chunk
            del chunk


def _read_columns(
    rows: CSVRows | SQLRows | ArrowRows, wanted: WantedColumns, size: int
) -> Slices:
    def check(names: Sequence[str]) -> None:
        wanted.require(names, rows.said)

    chunks: Generator[Hidden[Any], None, None]
    if isinstance(rows, ArrowRows):
        chunks = rows.columns(size, wanted)
    else:
        chunks = rows.columns(size, check)
    with closing(chunks):
        for columns in chunks:
            yield (
                {name: columns.value[name] for name in wanted.all},
                len(columns.value[wanted.all[0]]),
            )
            del columns


def _hidden_slice(part: tuple[dict[str, Any], int]) -> tuple[Hidden[Any], int]:
    return Hidden(part[0]), part[1]


def _chunk(columns: dict[str, Any], length: int, wanted: WantedColumns) -> Chunk:
    if wanted.unit_key is None:
        return Chunk(columns, length)
    units = columns[wanted.unit_key]
    return Chunk({name: columns[name] for name in wanted.names}, length, units)


def _problem(rows: list[Any], wanted: WantedColumns, start: int) -> str:
    """Return what is wrong with the first row that is not right, or no text."""
    for place, row in enumerate(rows, start):
        if not isinstance(row, Mapping):
            return _not_accepted(f"Row {place} (counted from 0)", row)
        if not wanted.fits(row.keys()):
            return wanted.problem(list(row), f"Row {place} (counted from 0)")
    return ""


def _refuse(what: str, found: Hidden[Any]) -> NoReturn:
    raise InvalidParameterError(_not_accepted(what, found.value))


def _not_accepted(what: str, found: Any) -> str:
    return f"{what} is a {type(found).__name__}. What can be read is {ACCEPTED}."
