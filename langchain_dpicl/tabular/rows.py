"""Rows of a private table, in chunks of columns: `read_chunks`, and `csv_rows`.

A table is an iterable of mappings from column to cell, or anything with an Arrow C
stream (`__arrow_c_stream__`): a pandas or polars frame, a DuckDB relation, a table or
reader of pyarrow. Each cell is read by itself (`tabular.cells`). What was read before
must have been read so, too: a reader that guesses a column's type looks at all its
cells, and with one person's text among them everybody's 1234 becomes "01234". So read
text as text: `pandas.read_csv(dtype=str)`, `polars.read_csv(infer_schema=False)`.
"""

from __future__ import annotations

import csv
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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


_NO_ROW = (
    "has a line {} that is no row of its columns: it needs one cell a column, "
    "quotation marks in pairs, no line break inside a cell, and the encoding that was "
    "named"
)


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
    line, reason = 0, ""
    try:
        with Path(path).open(encoding=encoding, newline="") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            header: list[str] = next(reader, [])
            line = 1
            for cells in reader:
                one_line = reader.line_num == line + 1
                if not one_line or len(cells) not in (0, len(header)):
                    reason = _NO_ROW.format(line + 1)
                    break
                line += 1
                if cells:
                    yield dict(zip(header, cells, strict=True))
    except (OSError, LookupError) as error:
        reason = f"can't be read ({type(error).__name__})"
    except (csv.Error, ValueError, TypeError):
        reason = _NO_ROW.format(line + 1)
    if reason:
        raise InvalidParameterError(f"The CSV file {reason}.")


def require_columns(
    found: Collection[Any], wanted: Sequence[str], what: str, *, only: bool = True
) -> None:
    """Refuse columns that are missing, there twice, or others than the wanted `only`.

    Raises:
        InvalidParameterError: If there are some. It has no cell.
    """
    counted = Counter(found)
    missing = [name for name in wanted if name not in counted]
    doubled = [name for name, times in counted.items() if times > 1]
    others = [name for name in counted if name not in wanted]
    problem = ""
    if missing:
        problem = (
            f"no column {missing[0]!r}. Every row needs all columns of the schema and "
            "the unit_key; a cell may be missing where the column says so"
        )
    elif doubled:
        problem = f"column {_shown(doubled[0])} more than once. Rename one"
    elif others and only:
        problem = (
            f"column {_shown(others[0])}, unknown to the schema. Leave it out, or add "
            "it. A column that says whose a row is must be named with unit_key="
        )
    if problem:
        raise InvalidParameterError(f"{what} has {problem}.")


def read_chunks(
    data: Any, wanted: Sequence[str], *, only: bool = True
) -> Iterator[tuple[Columns, int]]:
    """Yield a table's `wanted` columns, chunk by chunk, each with its number of rows.

    Every row is looked at. `only` refuses a table that has other columns.

    Raises:
        InvalidParameterError: If this is no table, or columns are missing, unknown or
            there twice. What an iterable of the caller's own raises passes through.

    Example:
        >>> rows = [{"age": 37, "job": "clerk"}, {"age": 52, "job": "nurse"}]
        >>> next(read_chunks(rows, ("age", "job")))
        ({'age': [37, 52], 'job': ['clerk', 'nurse']}, 2)
    """
    if hasattr(data, "iloc") and hasattr(data, "columns"):
        return _of_pandas(data, wanted, only=only)
    if hasattr(data, "__arrow_c_stream__"):
        return _of_stream(data, wanted, only=only)
    if isinstance(data, (str, bytes, Mapping)) or not isinstance(data, Iterable):
        raise InvalidParameterError(_not_read("The table", data))
    return _of_mappings(iter(data), wanted, only=only)


def _of_stream(
    data: Any, wanted: Sequence[str], *, only: bool
) -> Iterator[tuple[Columns, int]]:
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
        require_columns(reader.schema.names, wanted, "The table", only=only)
        for batch in reader:
            if len(batch):
                yield {name: batch.column(name) for name in wanted}, len(batch)
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
    frame: Any, wanted: Sequence[str], *, only: bool
) -> Iterator[tuple[Columns, int]]:
    """Yield a frame's columns cell by cell: Arrow refuses columns of mixed types."""
    require_columns(list(frame.columns), wanted, "The frame", only=only)
    for start in range(0, len(frame), CHUNK_SIZE):
        rows = frame.iloc[start : start + CHUNK_SIZE]
        yield {name: rows[name].tolist() for name in wanted}, len(rows)


def _of_mappings(
    rows: Iterator[Any], wanted: Sequence[str], *, only: bool
) -> Iterator[tuple[Columns, int]]:
    start, expected = 0, frozenset(wanted)
    while chunk := list(islice(rows, CHUNK_SIZE)):
        for place, row in enumerate(chunk, start):
            if not isinstance(row, Mapping):
                raise InvalidParameterError(_not_read(f"Row {place} (from 0)", row))
            if row.keys() != expected:
                what = f"Row {place} (counted from 0)"
                require_columns(list(row), wanted, what, only=only)
        start += len(chunk)
        yield {name: [row[name] for row in chunk] for name in wanted}, len(chunk)


def _not_read(what: str, found: Any) -> str:
    return f"{what} is a {type(found).__name__}. What can be read is {ACCEPTED}."


def _shown(name: Any) -> str:
    if not isinstance(name, str):
        # It may be a value: a list of lists that lost its header has such names.
        return f"with a {type(name).__name__} for a name (names are text)"
    return f"{name[:60]!r}"
