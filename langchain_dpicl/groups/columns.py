"""Columns of texts, unit ids and vectors, read batch by batch.

For records that some engine has embedded (Ray Data, Spark, a script) and written to
Parquet. Read twice: first the unit ids alone, which say where each row's place is, and
then everything, so that a vector is written once, to its own place. What is kept is
float32 vectors, lines of JSON, and one number a row.

Privacy:
    A row is read by itself: its vector is scaled, and its document written, from its
    own cells. Column types come from the file's schema, which is public; what made the
    file must not have inferred them from cells (`pandas` does, so its frames are
    refused). An error names a row or a column, and holds no cell.
"""

from __future__ import annotations

import io
import mmap
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import IO, Any, NoReturn

import numpy as np
from langchain_core.documents import Document

from langchain_dpicl.common.progress import progress_bar
from langchain_dpicl.errors import DPError, InvalidParameterError, UnitError
from langchain_dpicl.groups.ingest import Vectors, unit_rows
from langchain_dpicl.groups.lines import DocumentLines, LineIndex, line_of
from langchain_dpicl.groups.terms import RetrievalTerms, check_enough_units
from langchain_dpicl.groups.units import canonical_ids, keyed_slots

_BATCH = 8192
_MATRIX = 2
_TITLE = "Reading embedded records"


@dataclass(frozen=True)
class ColumnNames:
    """What each column of embedded records is."""

    unit_key: str  # The unit id; also the key of the document's metadata.
    text: str
    vector: str
    id: str | None  # The document's id.
    metadata: tuple[str, ...] | None  # Further metadata; None: every other column.

    def further(self, names: Sequence[str]) -> list[str]:
        """Return the columns of further metadata, among all."""
        own = {self.unit_key, self.text, self.vector, self.id}
        wanted = names if self.metadata is None else self.metadata
        return [name for name in dict.fromkeys(wanted) if name not in own]

    def check(self, names: Sequence[str]) -> None:
        """Refuse columns that are not there."""
        if self.unit_key not in names:
            raise UnitError(
                f"There is no column {self.unit_key!r}, which unit_key= names as the "
                "one that holds each record's unit id."
            )
        needed = [self.text, self.vector, *(self.metadata or ())]
        for name in [*needed, *([] if self.id is None else [self.id])]:
            if name not in names:
                raise InvalidParameterError(
                    f"There is no column {name!r}. text_column=, vector_column=, "
                    "id_column= and metadata_columns= name the columns."
                )


@dataclass(frozen=True, repr=False)
class Embedded:
    """Embedded records in the order of their shards. Private."""

    vectors: Vectors  # Norm 1, float32, one row a document.
    documents: DocumentLines
    unit_ids: list[str]  # One a document, canonical.


def read_embedded(
    source: Any,
    names: ColumnNames,
    terms: RetrievalTerms,
    *,
    salt: bytes,
    directory: str | os.PathLike[str] | None,
    progress: bool,
) -> Embedded:
    """Read embedded records; see `RetrievedGroups.from_embeddings`."""
    columns = open_columns(source)
    names.check(columns.names)
    with _hiding():
        unit_ids = _unit_ids(columns, names.unit_key)
    check_enough_units(len(set(unit_ids)), terms.n_groups)
    order = np.argsort(keyed_slots(salt, unit_ids, terms.n_groups), kind="stable")
    with (
        _spool(directory) as spool,
        progress_bar(_TITLE, len(unit_ids), shown=progress) as advance,
    ):
        reading = _Reading(names, unit_ids, order, directory, spool)
        with _hiding():
            for batch in columns.read(_needed(names, columns.names)):
                advance(reading.add(batch))
        vectors = reading.finished()
        documents = reading.lines.over(_buffer(spool)).take(order)
    return Embedded(vectors, documents, [unit_ids[row] for row in order])


class _Reading:
    """The second reading, under way."""

    def __init__(
        self,
        names: ColumnNames,
        unit_ids: Sequence[str],
        order: Any,
        directory: str | os.PathLike[str] | None,
        spool: IO[bytes],
    ) -> None:
        self._names, self._unit_ids, self._directory = names, unit_ids, directory
        self._place = np.empty(len(order), np.int64)
        self._place[order] = np.arange(len(order))
        self._spool = spool
        self._vectors: Vectors | None = None
        self._known: set[str] = set()
        self._done = 0
        self.lines = LineIndex()

    def add(self, batch: Mapping[str, Any]) -> int:
        """Take a batch of rows; return how many."""
        names, first = self._names, self._done
        units = _listed(batch[names.unit_key])
        end = first + len(units)
        if list(canonical_ids(units, _RECORDS, first)) != self._unit_ids[first:end]:
            self._changed()
        rows = self._rows(batch[names.vector], first, len(units))
        if self._vectors is None:
            shape = len(self._unit_ids), rows.shape[1]
            self._vectors = _matrix(shape, self._directory)
        elif rows.shape[1] != self._vectors.shape[1]:
            raise InvalidParameterError(
                f"The vectors from row {first} on have {rows.shape[1]} numbers, and "
                f"those before have {self._vectors.shape[1]}. Use one embedding."
            )
        self._vectors[self._place[first:end]] = rows
        self._write(batch, units, first)
        self._done = end
        return len(units)

    def finished(self) -> Vectors:
        """Return the vectors, of all rows."""
        if self._vectors is None or self._done != len(self._unit_ids):
            self._changed()
        return self._vectors

    def _rows(self, column: Any, first: int, n: int) -> Vectors:
        matrix = None
        with suppress(TypeError, ValueError, OverflowError):
            matrix = _as_vectors(column)
        if matrix is None or matrix.ndim != _MATRIX or matrix.shape[0] != n:
            raise InvalidParameterError(
                f"Column {self._names.vector!r} must hold one vector of numbers a row, "
                f"all of one dimension. It does not in rows {first} to {first + n - 1} "
                "(counted from 0)."
            )
        return unit_rows(matrix, range(first, first + n))

    def _write(self, batch: Mapping[str, Any], units: list[Any], first: int) -> None:
        names = self._names
        further = [name for name in batch if name in names.further(list(batch))]
        cells = [_listed(batch[name]) for name in further]
        texts = _listed(batch[names.text])
        ids = [None] * len(units) if names.id is None else _listed(batch[names.id])
        for number, (text, own, unit, *rest) in enumerate(
            zip(texts, ids, units, *cells, strict=True), first
        ):
            if not isinstance(text, str) or not (own is None or isinstance(own, str)):
                name = names.id if isinstance(text, str) else names.text
                raise InvalidParameterError(
                    f"Column {name!r} holds no string in row {number} (counted from 0)."
                )
            if own is not None and own in self._known:
                raise InvalidParameterError(
                    f"The id of row {number} (counted from 0) is taken by another row. "
                    "Give each record an id of its own or none."
                )
            if own is not None:
                self._known.add(own)
            metadata = {names.unit_key: unit, **dict(zip(further, rest, strict=True))}
            line = line_of(Document(text, metadata=metadata, id=own), number)
            self.lines.add(line)
            self._spool.write(line)

    def _changed(self) -> NoReturn:
        raise InvalidParameterError(
            "The records changed while they were read. Nothing was built: read them "
            "when nobody writes to them."
        )


# -- the sources -------------------------------------------------------------------


class Arrays:
    """Columns of one length in memory, or in a `np.memmap`."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        lengths = set()
        for name, column in columns.items():
            if not isinstance(column, np.ndarray | Sequence) or isinstance(column, str):
                raise InvalidParameterError(
                    f"Column {name!r} must be an array or a list, not a "
                    f"{type(column).__name__}."
                )
            lengths.add(len(column))
        if len(lengths) > 1:
            raise InvalidParameterError(
                "The columns have different numbers of rows: "
                f"{', '.join(map(str, sorted(lengths)[:3]))}."
            )
        self._columns = dict(columns)
        self._n = max(lengths, default=0)

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return list(self._columns)

    def read(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield some columns, batch by batch."""
        for first in range(0, self._n, _BATCH):
            rows = slice(first, first + _BATCH)
            yield {name: self._columns[name][rows] for name in names}


class ArrowColumns:
    """Columns of a `pyarrow.dataset.Dataset`."""

    def __init__(self, dataset: Any, **options: Any) -> None:
        self._dataset = dataset
        self._options = options  # Of the scan.

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return list(self._dataset.schema.names)

    def read(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield some columns, batch by batch, in the order of the files."""
        batches = self._dataset.to_batches(
            columns=list(names),
            batch_size=_BATCH,
            batch_readahead=2,
            fragment_readahead=1,
            **self._options,
        )
        for batch in batches:
            if batch.num_rows:
                yield dict(zip(names, batch.columns, strict=True))


def open_columns(source: Any) -> Arrays | ArrowColumns:
    """Return the columns of a source; see `RetrievedGroups.from_embeddings`."""
    if isinstance(source, Mapping):
        return Arrays(source)
    if type(source).__module__.partition(".")[0] == "pandas":
        raise InvalidParameterError(
            "pandas infers a column's type from all of its cells, so one person's cell "
            "can change another's. Pass the Parquet file itself, or columns: "
            '{"text": [...], "embedding": array, ...}.'
        )
    try:
        import pyarrow as pa
        from pyarrow import dataset as data
    except ImportError:
        refused = InvalidParameterError(
            "Parquet and Arrow need pyarrow: pip install pyarrow. Columns as "
            "NumPy arrays need nothing."
        )
    else:
        with _hiding():
            if isinstance(source, data.Dataset):
                return ArrowColumns(source)
            if isinstance(source, str | os.PathLike):
                return _parquet(data, source)
            if hasattr(source, "__arrow_c_stream__"):
                reader = pa.RecordBatchReader.from_stream(source)
                return ArrowColumns(data.dataset(reader.read_all()))
            if isinstance(source, Sequence) and source:
                if isinstance(source[0], str | os.PathLike):
                    return _parquet(data, [os.fspath(one) for one in source])
                return ArrowColumns(data.dataset(list(source)))
        refused = InvalidParameterError(
            f"Embedded records cannot be a {type(source).__name__}. Pass a Parquet "
            "file or folder, a pyarrow dataset, table or list of record batches, or a "
            "mapping of column names to arrays."
        )
    raise refused


def _parquet(data: Any, source: Any) -> ArrowColumns:
    # Buffered ahead, a whole file would be in memory.
    options = data.ParquetFragmentScanOptions(
        pre_buffer=False, use_buffered_stream=True
    )
    return ArrowColumns(
        data.dataset(source, format="parquet"), fragment_scan_options=options
    )


# -- cells -------------------------------------------------------------------------

_RECORDS = "of the records"


def _unit_ids(columns: Arrays | ArrowColumns, unit_key: str) -> list[str]:
    known: dict[str, str] = {}  # Each id once in memory.
    unit_ids: list[str] = []
    for batch in columns.read([unit_key]):
        units = _listed(batch[unit_key])
        own = canonical_ids(units, _RECORDS, len(unit_ids))
        unit_ids += [known.setdefault(unit_id, unit_id) for unit_id in own]
    return unit_ids


def _needed(names: ColumnNames, given: Sequence[str]) -> list[str]:
    own = [names.unit_key, names.text, names.vector, names.id]
    needed = chain((name for name in own if name is not None), names.further(given))
    return list(dict.fromkeys(needed))


def _listed(column: Any) -> list[Any]:
    """Return a column's cells as Python objects."""
    for method in ("to_pylist", "tolist"):
        if hasattr(column, method):
            cells: list[Any] = getattr(column, method)()
            return cells
    return list(column)


def _as_vectors(column: Any) -> Any:
    column = getattr(column, "storage", column)  # Of a tensor's type.
    if not hasattr(column, "to_pylist"):
        # Each number by itself: with one row of words NumPy would make words of all.
        return np.asarray(column, np.float64)
    if column.null_count:
        return None
    numbers = column.flatten().to_numpy(zero_copy_only=False)
    lengths = set(column.value_lengths().to_pylist())
    # Rows of one length: many numbers in the one could stand for few in the other.
    return numbers.reshape(len(column), -1) if len(lengths) == 1 else None


# -- where they are kept -------------------------------------------------------------


def _matrix(
    shape: tuple[int, int], directory: str | os.PathLike[str] | None
) -> Vectors:
    if directory is None:
        return np.empty(shape, np.float32)
    with _unnamed(directory) as file:
        size = 4 * shape[0] * shape[1]
        if hasattr(os, "posix_fallocate"):
            # A full disk is an error now; later it would end the process.
            os.posix_fallocate(file.fileno(), 0, size)
        matrix: Vectors = np.memmap(file, np.float32, "w+", shape=shape)
        return matrix


@contextmanager
def _spool(directory: str | os.PathLike[str] | None) -> Iterator[IO[bytes]]:
    with io.BytesIO() if directory is None else _unnamed(directory) as file:
        yield file


def _unnamed(directory: str | os.PathLike[str]) -> IO[bytes]:
    """Open a file without a name, for this process alone."""
    try:
        return tempfile.TemporaryFile(dir=directory)
    except OSError as error:
        refused = InvalidParameterError(
            f"directory={os.fspath(directory)!r} can't be written to "
            f"({type(error).__name__})."
        )
    raise refused


def _buffer(spool: IO[bytes]) -> bytes | mmap.mmap:
    if isinstance(spool, io.BytesIO):
        return spool.getvalue()
    spool.flush()
    return mmap.mmap(spool.fileno(), 0, access=mmap.ACCESS_READ)


@contextmanager
def _hiding() -> Iterator[None]:
    """Turn what a reader raises into an error without its message: it quotes cells."""
    try:
        yield
    except DPError:
        raise
    except FileNotFoundError:
        refused = InvalidParameterError("There is no such Parquet file or folder.")
    except Exception as error:  # noqa: BLE001  # any reader's
        refused = InvalidParameterError(
            f"The embedded records can't be read ({type(error).__name__}). Are they "
            "whole Parquet files, with one vector of numbers a row?"
        )
    else:
        return
    raise refused
