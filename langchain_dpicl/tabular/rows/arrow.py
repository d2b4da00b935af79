"""`ArrowRows`: Parquet files, datasets, relations of DuckDB, tables of Arrow."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar

from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.common.inferred import warn_arrow_types
from langchain_dpicl.errors import DPError, InvalidParameterError
from langchain_dpicl.tabular.rows.frames import frame_library
from langchain_dpicl.tabular.rows.wanted import WantedColumns

_T = TypeVar("_T")


class ArrowRows:
    """The rows of a table in Arrow's form, streamed and encoded column by column.

    Needs pyarrow. Every pass reads the source anew, but for a reader
    or an iterator, which comes once (`come_once`). In memory is one chunk of rows, and
    what a Parquet file decodes with it.

    Args:
        source: Parquet: a path, a folder of files or a list of paths. Or a
            `pyarrow.dataset.Dataset`, `pyarrow.Table`, `RecordBatch` or
            `RecordBatchReader`, an iterator of `RecordBatch`, or a relation of DuckDB:
            anything with `__arrow_c_stream__`. Frames of pandas and polars are given as
            they are, without `ArrowRows`.

    Raises:
        InvalidParameterError: If pyarrow is not installed, the source can't be used,
            and, while rows are read, if it can't be read to its end. What Arrow says
            is not shown, since it may quote cells.

    Example:
        >>> import pyarrow as pa
        >>> ArrowRows(pa.table({"age": [37], "job": ["clerk"]}))
        ArrowRows(Table)

    Privacy:
        Each cell must have been read without regard to the others, as for `SQLRows`.
        Files of Parquet say their columns' types. Readers that infer them from the
        cells are not sound: datasets of CSV and JSON files are refused
        (`CSVRows`, `JSONRows` read them), and DuckDB's `read_csv` needs
        `all_varchar=true`. All files of a dataset must have the same types: Arrow would
        read those of one by the types of another, and fill in columns that one lacks.
        A query must yield each unit's rows whatever the other units are.
    """

    said = "The Arrow table"

    def __init__(self, source: Any) -> None:
        held = Hidden(source)
        # Whatever fails from here on, tracebacks show this frame and no row.
        del source
        try:
            import pyarrow as pa
            import pyarrow.dataset as ds
            from pyarrow.parquet import ParquetFile
        except ImportError:
            raise InvalidParameterError(
                "ArrowRows needs pyarrow: pip install pyarrow."
            ) from None
        self._stream, self._dataset = pa.RecordBatchReader.from_stream, ds.dataset
        self._file = ParquetFile
        self._kind = type(held.value).__name__
        self._is_path = isinstance(held.value, (str, os.PathLike, list, tuple))
        self._is_dataset = isinstance(held.value, ds.Dataset)
        is_frame = frame_library(held.value) is not None
        is_stream = hasattr(held.value, "__arrow_c_stream__") and not is_frame
        if isinstance(held.value, pa.RecordBatch):
            held = Hidden(pa.Table.from_batches([held.value]))
            is_stream = True
        self._is_iterator = isinstance(held.value, Iterator) and not is_stream
        if not (self._is_path or self._is_dataset or is_stream or self._is_iterator):
            raise InvalidParameterError(
                "source must be a path of Parquet files, a pyarrow Dataset, Table, "
                "RecordBatch or RecordBatchReader, an iterator of RecordBatch, or a "
                "relation of DuckDB, not "
                f"{self._kind}. Frames are passed without ArrowRows."
            )
        self.come_once = self._is_iterator or isinstance(
            held.value, pa.RecordBatchReader
        )
        self._source, self._is_spent = held, False

    def __repr__(self) -> str:
        return f"ArrowRows({self._kind})"

    def columns(
        self, size: int, wanted: WantedColumns
    ) -> Generator[Hidden[dict[str, Any]], None, None]:
        """Yield the rows' columns, as arrays, in chunks.

        Args:
            size: Most rows of a chunk.
            wanted: The columns that are read.

        Raises:
            InvalidParameterError: If a column is missing, unknown or there twice, or
                the source can't be read to its end.
        """
        if self._is_spent:
            raise InvalidParameterError(
                "A reader or iterator of Arrow comes once, and this one was read. Pass "
                "a dataset, a table or a path, which can be read again."
            )
        self._is_spent = self.come_once
        batches = self._batches(size, wanted)
        while True:
            batch = _attempt(lambda: next(batches.value, None))
            if batch.value is None:
                return
            for start in range(0, batch.value.num_rows, size):
                part = Hidden(batch.value.slice(start, size))
                yield Hidden({name: part.value[name] for name in wanted.all})
                del part
            del batch

    def _batches(self, size: int, wanted: WantedColumns) -> Hidden[Iterator[Any]]:
        if self._is_iterator:
            return Hidden(_alike(self._source, wanted))
        if not (self._is_path or self._is_dataset):
            stream = _attempt(lambda: self._stream(self._source.value))
            _require(stream.value.schema, wanted)
            return Hidden(iter(stream.value))
        dataset = self._source
        if self._is_path:
            given = self._source.value
            if isinstance(given, tuple):
                given = list(given)
            # Names of folders are no columns: their types would be inferred.
            dataset = _attempt(
                lambda: self._dataset(given, format="parquet", partitioning=None)
            )
        _require_stated(dataset.value)
        _require(dataset.value.schema, wanted)
        types = {name: dataset.value.schema.field(name).type for name in wanted.all}
        parts = _attempt(
            lambda: list(dataset.value.get_fragments()),
            " Of a filtered or projected dataset pass the scanner's to_reader().",
        )
        alike = _attempt(
            lambda: all(
                _types(part.physical_schema, types) == types for part in parts.value
            )
        )
        if not alike.value:
            raise InvalidParameterError(
                "The files of the dataset do not all have the wanted columns with the "
                "same types (columns that stand in names of folders are in none). "
                "Write them with one schema: the cells of one file would be read by "
                "the types of another."
            )
        columns = list(wanted.all)
        return Hidden(
            batch
            for part in parts.value
            for batch in self._batches_of(part, size, columns)
        )

    def _batches_of(self, part: Any, size: int, columns: list[str]) -> Any:
        groups = getattr(part, "row_groups", None)
        if groups is None:
            return part.to_batches(columns=columns, batch_size=size, batch_readahead=0)
        # Batch by batch; a scan decodes whole groups of rows ahead.
        return self._file(part.open(), pre_buffer=False).iter_batches(
            size, columns=columns, row_groups=[group.id for group in groups]
        )


def _require(schema: Any, wanted: WantedColumns) -> None:
    wanted.require(schema.names, ArrowRows.said)
    warn_arrow_types(
        {name: schema.field(name).type for name in wanted.compared}, wanted.compared
    )


def _alike(batches: Hidden[Any], wanted: WantedColumns) -> Iterator[Any]:
    """Yield batches that all have the first one's columns."""
    schema = None
    for batch in batches.value:
        if schema is None:
            schema = batch.schema
            _require(schema, wanted)
        if batch.schema != schema:
            raise TypeError
        yield batch
        del batch


def _types(schema: Any, names: Sequence[str] | dict[str, Any]) -> dict[str, Any]:
    """Return the types of columns that are there once."""
    return {
        name: schema.field(name).type
        for name in names
        if len(schema.get_all_field_indices(name)) == 1
    }


def _require_stated(dataset: Any) -> None:
    """Refuse datasets of files that do not state their columns' types."""
    for part in getattr(dataset, "children", None) or [dataset]:
        if part is not dataset:
            _require_stated(part)
            continue
        name = getattr(getattr(part, "format", None), "default_extname", "")
        if name in ("csv", "json"):
            raise InvalidParameterError(
                f"A dataset of {name.upper()} files has types that were inferred from "
                "everybody's cells. Pass CSVRows or JSONRows, which read each cell by "
                "itself."
            )


def _attempt(step: Callable[[], _T], hint: str = "") -> Hidden[_T]:
    """Run a step of Arrow's; what it says is not shown."""
    kind = ""
    try:
        return Hidden(step())
    except DPError:
        raise
    except Exception as error:  # noqa: BLE001 - readers raise anything
        kind = type(error).__name__
    raise InvalidParameterError(
        f"The Arrow table can't be read ({kind}). The reader's own message may quote "
        f"cells and is not shown: read the table by itself to see it.{hint}"
    )
