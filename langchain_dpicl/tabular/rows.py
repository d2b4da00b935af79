"""Rows of a private table, in chunks of columns: `read_chunks`, and `csv_rows`.

A table is an iterable of mappings from column to cell, or anything with an Arrow C
stream (`__arrow_c_stream__`): a pandas or polars frame, a DuckDB relation, a table or
reader of pyarrow. Each cell is read by itself (`schema.cells`). What was read before
must have been read so, too: a reader that guesses a column's type looks at all its
cells, and with one person's text among them everybody's 1234 becomes "01234". So read
text as text: `pandas.read_csv(dtype=str)`, `polars.read_csv(infer_schema=False)`.
"""

from __future__ import annotations

import csv
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from langchain_dpicl.errors import InvalidParameterError

CHUNK_SIZE = 50_000
"""How many rows are in memory as they came."""

Columns = Mapping[str, Any]
"""By column, the cells of some rows: a list, or an array of pyarrow. Private."""

ACCEPTED = (
    "an iterable of mappings (column name to cell), such as csv_rows(path), or "
    "anything with an Arrow C stream: a pandas or polars frame, a DuckDB relation"
)
"""What can be read, in words."""

_MOST_NAMES = 5
_LONGEST_NAME = 60


class UnitRows(ABC):
    """Rows of which each was made of all records of one unit, such as `TextRows`."""

    @property
    @abstractmethod
    def unit_key(self) -> str:
        """The metadata key of the units."""

    @abstractmethod
    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """Yield the rows."""


def csv_rows(
    path: str | os.PathLike[str], *, delimiter: str = ",", encoding: str = "utf-8-sig"
) -> Iterator[dict[str, str]]:
    r"""Yield the rows of a CSV file whose first line names the columns.

    Cells are text, and a blank one is missing. A line is a row: a cell that holds a
    line break is refused, since one open quotation mark would take the rows of other
    people along.

    Args:
        path: The file.
        delimiter: What stands between two cells.
        encoding: How text is written; a byte order mark may be there.

    Raises:
        InvalidParameterError: If the file can't be read, or a line is no row of the
            columns. The message has the number of the line and no cell.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "people.csv")
        >>> _ = path.write_text("age,job\n37,clerk\n52,nurse\n")
        >>> next(csv_rows(path))
        {'age': '37', 'job': 'clerk'}

    Privacy:
        A row is a function of its own line and of the header, which is public.
    """
    problem = line = 0
    reason = ""
    try:
        with Path(path).open(encoding=encoding, newline="") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            header: list[str] = next(reader, [])
            line = 1
            for cells in reader:
                line += 1
                if reader.line_num != line or (cells and len(cells) != len(header)):
                    problem = line
                    break
                if cells:
                    yield dict(zip(header, cells, strict=True))
    except (OSError, LookupError) as error:
        reason = f"can't be read ({type(error).__name__})"
    except (csv.Error, ValueError, TypeError):
        problem = line + 1
    if problem:
        reason = (
            f"has a line {problem} that is no row of its columns: it needs one cell a "
            "column, quotation marks in pairs, no line break inside a cell, and the "
            "encoding that was named"
        )
    if reason:
        raise InvalidParameterError(f"The CSV file {reason}.")


@dataclass(frozen=True)
class WantedColumns:
    """The columns that a table must have: the schema's, and that of the ids."""

    names: tuple[str, ...]
    unit_key: str | None = None
    ignores_others: bool = False

    def __post_init__(self) -> None:
        given = self.names if self.unit_key is None else (*self.names, self.unit_key)
        if not all(isinstance(name, str) and name.strip() for name in given):
            raise InvalidParameterError("unit_key must be the name of a column.")

    @property
    def all(self) -> tuple[str, ...]:
        """Every column that is read, each once."""
        if self.unit_key is None or self.unit_key in self.names:
            return self.names
        return (*self.names, self.unit_key)

    def require(self, found: Collection[Any], what: str) -> None:
        """Refuse columns that are missing, unknown or there twice.

        Args:
            found: Their names, as they are.
            what: What has them, such as "The table".

        Raises:
            InvalidParameterError: If there are some. It has no cell.
        """
        counted = Counter(found)
        missing = [name for name in self.all if name not in counted]
        doubled = [name for name, times in counted.items() if times > 1]
        others = [name for name in counted if name not in self.all]
        if missing:
            problem = f"no {_columns(missing)}"
            way_out = (
                "Every row needs all columns of the schema and the unit_key; a cell "
                "may be missing where the column says so, the column may not"
            )
        elif doubled:
            problem = f"{_columns(doubled)} more than once"
            way_out = "Give every column a name of its own"
        elif others and not self.ignores_others:
            problem = f"{_columns(others)}, unknown to the schema"
            way_out = (
                "Leave it out, or add it to the schema. A column that says whose a "
                "row is must be named with unit_key="
            )
        else:
            return
        raise InvalidParameterError(f"{what} has {problem}. {way_out}.")


def read_chunks(
    data: Any, wanted: WantedColumns, size: int = CHUNK_SIZE
) -> Iterator[tuple[Columns, int]]:
    """Yield a table's columns, chunk by chunk, each with its number of rows.

    Args:
        data: The table; see the module.
        wanted: The columns that it must have. Every row is looked at.
        size: Most rows of a chunk of mappings.

    Raises:
        InvalidParameterError: If this is no table, or columns are missing, unknown or
            there twice. What an iterable of the caller's own raises passes through.

    Example:
        >>> rows = [{"age": 37, "job": "clerk"}, {"age": 52, "job": "nurse"}]
        >>> next(read_chunks(rows, WantedColumns(("age", "job"))))
        ({'age': [37, 52], 'job': ['clerk', 'nurse']}, 2)
    """
    if hasattr(data, "iloc") and hasattr(data, "columns"):
        return _of_pandas(data, wanted, size)
    if hasattr(data, "__arrow_c_stream__"):
        return _of_stream(data, wanted)
    if isinstance(data, (str, bytes, Mapping)) or not isinstance(data, Iterable):
        raise InvalidParameterError(_not_read("The table", data))
    return _of_mappings(iter(data), wanted, size)


def _of_stream(data: Any, wanted: WantedColumns) -> Iterator[tuple[Columns, int]]:
    try:
        import pyarrow as pa
    except ImportError:
        raise InvalidParameterError(
            "A table with an Arrow C stream is read by pyarrow: pip install pyarrow, "
            "or pass an iterable of mappings."
        ) from None
    failure = ""
    try:
        reader = pa.RecordBatchReader.from_stream(data)
        wanted.require(reader.schema.names, "The table")
        for batch in reader:
            if len(batch):
                yield {name: batch.column(name) for name in wanted.all}, len(batch)
    except (InvalidParameterError, GeneratorExit):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a stream raises
        failure = type(error).__name__
    if failure:
        raise InvalidParameterError(
            f"The table's Arrow stream failed ({failure}). Its message may quote cells "
            "and is not shown; read the stream by pyarrow alone to see it."
        )


def _of_pandas(
    frame: Any, wanted: WantedColumns, size: int
) -> Iterator[tuple[Columns, int]]:
    """Yield a frame's columns cell by cell: Arrow refuses columns of mixed types."""
    wanted.require(list(frame.columns), "The frame")
    for start in range(0, len(frame), size):
        rows = frame.iloc[start : start + size]
        yield {name: rows[name].tolist() for name in wanted.all}, len(rows)


def _of_mappings(
    rows: Iterator[Any], wanted: WantedColumns, size: int
) -> Iterator[tuple[Columns, int]]:
    start, expected = 0, frozenset(wanted.all)
    while chunk := list(islice(rows, size)):
        for place, row in enumerate(chunk, start):
            if not isinstance(row, Mapping):
                raise InvalidParameterError(_not_read(f"Row {place} (from 0)", row))
            if row.keys() != expected:
                wanted.require(list(row), f"Row {place} (counted from 0)")
        start += len(chunk)
        yield {name: [row[name] for row in chunk] for name in wanted.all}, len(chunk)


def listed(cells: Any) -> list[Any]:
    """Return a column of a chunk as a list."""
    return cells if isinstance(cells, list) else list(cells.to_pylist())


def _not_read(what: str, found: Any) -> str:
    return f"{what} is a {type(found).__name__}. What can be read is {ACCEPTED}."


def _columns(names: Collection[Any]) -> str:
    shown = ", ".join(_shown(name) for name in list(names)[:_MOST_NAMES])
    more = len(names) - _MOST_NAMES
    return (
        f"column{'s' if len(names) > 1 else ''} {shown}"
        f"{f' and {more} more' if more > 0 else ''}"
    )


def _shown(name: Any) -> str:
    if not isinstance(name, str):
        # It may be a value: a list of lists that lost its header has such names.
        return f"with a {type(name).__name__} for a name (names are text)"
    return repr(f"{name[:_LONGEST_NAME]}..." if len(name) > _LONGEST_NAME else name)
