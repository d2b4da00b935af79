"""Records: from the caller's documents to lines, unit ids and unit vectors.

A record is kept as a line of JSON, in memory or in a mapped file, and read where a slot
needs it: a line takes its bytes and 16 more, where a `Document` takes a thousand.
Metadata that JSON can't express, such as a date, is kept as its text, and so is what
is nested deeper than `_DEEPEST`.

The embedding is called here with private text. Its errors are passed on unchanged:
ingest is the operator's own act and not part of an answer, and the operator needs to
read the message of the embedding server.

Privacy:
    A record is read by itself: its vector is scaled, and its line written, from its own
    values. An error names a document by its place, or a column, and holds no value.

    A draw must not fail because of one document, or one person could fail a whole
    question, and how deep a line may be nested depends on the caller's stack. So no
    line is nested deeper than `_DEEPEST`, and a search first tries whether there is
    stack for that (`require_stack`), whatever it will read.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langchain_dpicl.common.progress import progress_bar
from langchain_dpicl.embedding_calls import calls_of, each_call, embed_question
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.base import HoldsRecords
from langchain_dpicl.groups.units import unit_id_of

if TYPE_CHECKING:
    from mmap import mmap

Vectors: TypeAlias = NDArray[np.float32]

_BATCH = 8192
_encode = json.JSONEncoder(default=str).encode
_ATOMS = frozenset({str, int, float, bool, type(None)})
_DEEPEST = 20
_DEEPER = "[" * 2 * _DEEPEST + "]" * 2 * _DEEPEST


# ---- lines ---------------------------------------------------------------------------


class Lines(HoldsRecords):
    """Documents as lines of JSON in a buffer: id, text and metadata.

    The buffer holds whole lines, whose lengths are given.
    """

    def __init__(self, buffer: bytes | mmap, lengths: Sequence[int]) -> None:
        self._buffer = buffer
        self._ends = np.cumsum(np.asarray(lengths, np.int64))
        self._starts = self._ends - np.asarray(lengths, np.int64)

    @classmethod
    def of(cls, lines: Iterable[bytes]) -> Lines:
        """Return lines in a buffer of their own."""
        held = list(lines)
        return cls(b"".join(held), list(map(len, held)))

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[bytes]:
        each = zip(self._starts.tolist(), self._ends.tolist(), strict=True)
        return (self._buffer[start:end] for start, end in each)

    def __getitem__(self, row: int) -> bytes:
        return self._buffer[self._starts[row] : self._ends[row]]

    def document(self, row: int) -> Document:
        """Return a document, read from its line."""
        return parsed_line(self[row])

    def documents(self) -> Iterator[Document]:
        """Yield all documents, each read from its line."""
        return map(parsed_line, self)

    def take(self, rows: NDArray[np.int64]) -> Lines:
        """Return some lines; of a mapped file without a copy."""
        taken = Lines(self._buffer, ())
        taken._starts, taken._ends = self._starts[rows], self._ends[rows]
        # What is taken out of memory is not to stay there.
        return Lines.of(taken) if isinstance(self._buffer, bytes) else taken


@dataclass(frozen=True, repr=False, eq=False)
class Rows(HoldsRecords):
    """Records, one a row.

    Attributes:
        vectors: Of norm 1, float32, shape (rows, dimension).
        lines: The documents.
        unit_ids: The canonical id of each one's unit.
    """

    vectors: Vectors
    lines: Lines
    unit_ids: Sequence[str]

    def take(self, rows: NDArray[np.int64]) -> Rows:
        """Return some rows; of a mapped file without a copy, where they are a block."""
        vectors = self.vectors
        is_block = len(rows) > 0 and bool(np.all(np.diff(rows) == 1))
        if is_block and isinstance(vectors, np.memmap):
            vectors = vectors[rows[0] : rows[-1] + 1]
        else:
            vectors = vectors[rows]
        unit_ids = [self.unit_ids[row] for row in rows.tolist()]
        return Rows(vectors, self.lines.take(rows), unit_ids)

    def joined(self, more: Rows) -> Rows:
        """Return these rows and further ones behind them."""
        return Rows(
            np.concatenate([self.vectors, more.vectors]),
            Lines.of([*self.lines, *more.lines]),
            [*self.unit_ids, *more.unit_ids],
        )


def no_rows(dimension: int) -> Rows:
    """Return no records, of vectors of some dimension."""
    return Rows(np.empty((0, dimension), np.float32), Lines(b"", ()), [])


def parsed_line(line: bytes) -> Document:
    """Return the document of a line; one that was not read before raises anything."""
    return Document(**json.loads(line.decode()))


def record_digest(line: bytes) -> bytes:
    """Return a digest of a document's content: its id, text and metadata."""
    return hashlib.blake2b(line, digest_size=16).digest()


def require_stack() -> None:
    """Raise a `RecursionError` where the stack may be too full to read some line."""
    json.loads(_DEEPER)


def is_shallow(value: Any) -> bool:
    """Return whether a value of JSON is nested so little that a draw can read it."""
    level = [value]
    for _ in range(_DEEPEST + 1):
        level = [inner for outer in level for inner in _inner(outer)]
    return not level


def _inner(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, list | tuple) else []


# ---- documents -----------------------------------------------------------------------


def read_documents(
    documents: Iterable[Document], unit_key: str
) -> tuple[Lines, list[str]]:
    """Return the documents as lines, and the unit id of each."""
    unit_ids: list[str] = []
    ids: list[str | None] = []

    def each() -> Iterator[bytes]:
        for position, document in _checked(documents):
            unit_ids.append(unit_id_of(document, unit_key, position=position))
            ids.append(document.id)
            yield _line_of(document, position)

    lines = Lines.of(each())
    check_document_ids(ids)
    return lines, unit_ids


def take_documents(
    documents: Iterable[Document], unit_key: str
) -> tuple[list[Document], list[str]]:
    """Return copies of the documents, and the unit id of each.

    Later changes to the caller's objects must not change a unit's slot.
    """
    copies, unit_ids = [], []
    for position, document in _checked(documents):
        unit_ids.append(unit_id_of(document, unit_key, position=position))
        copies.append(_copy(document, position))
    check_document_ids(document.id for document in copies)
    return copies, unit_ids


def shallow_copy(document: Document) -> Document:
    """Return a copy for a slot, whose metadata values are shared.

    To copy them deeply could exceed the caller's stack.
    """
    metadata = dict(document.metadata)
    return Document(document.page_content, metadata=metadata, id=document.id)


def check_document_ids(
    ids: Iterable[str | None], known: Iterable[str | None] = ()
) -> None:
    """Refuse documents whose id is taken already, here or in `known`.

    They are the same record twice, which would count twice, or two records that could
    not be told apart. Documents without an id are never compared.
    """
    held = set(known) - {None}
    for position, document_id in enumerate(ids):
        if document_id in held:
            raise InvalidParameterError(
                f"The id of document {position} (counted from 0) is taken by another "
                "document. Give each document an id of its own or none; to replace "
                "a unit's documents, delete_unit() it first."
            )
        if document_id is not None:
            held.add(document_id)


def _checked(documents: Iterable[Document]) -> Iterator[tuple[int, Document]]:
    """Yield documents with their places, refusing what is none."""
    if not isinstance(documents, Iterable):
        raise InvalidParameterError(
            f"documents must be a list of Documents, not {type(documents).__name__}."
        )
    for position, document in enumerate(documents):
        if not isinstance(document, Document):
            raise InvalidParameterError(
                f"documents[{position}] is a {type(document).__name__}, not a Document."
            )
        if not isinstance(document.page_content, str):
            raise InvalidParameterError(f"documents[{position}] has no text.")
        yield position, document


def _line_of(document: Document, position: int) -> bytes:
    """Return a document as a line of JSON."""
    fields = {"id": document.id, "page_content": document.page_content}
    metadata = document.metadata
    try:
        if not is_shallow(metadata):
            metadata = {
                key: value if is_shallow({key: value}) else str(value)
                for key, value in metadata.items()
            }
        # Pure ASCII, so that lone surrogates survive as escapes.
        line = f"{_encode({**fields, 'metadata': metadata})}\n".encode()
    except Exception:  # noqa: BLE001  # any object may refuse in its own way
        line = None
    if line is None:
        raise _unusable(position)
    return line


def _copy(document: Document, position: int) -> Document:
    """Return a copy that shares nothing with the document."""
    try:
        metadata = {
            key: value if type(value) in _ATOMS else copy.deepcopy(value)
            for key, value in document.metadata.items()
        }
    except Exception:  # noqa: BLE001  # any object may refuse in its own way
        metadata = None
    if metadata is None:
        raise _unusable(position)
    return Document(document.page_content, metadata=metadata, id=document.id)


def _unusable(position: int) -> InvalidParameterError:
    return InvalidParameterError(
        f"The metadata of document {position} (counted from 0) cannot be kept. Keep "
        "plain values in it."
    )


# ---- vectors -------------------------------------------------------------------------


def check_embedding(embedding: Any) -> Embeddings:
    """Return an embedding, refusing what does not look like LangChain's."""
    for name in ("embed_documents", "embed_query"):
        if not callable(getattr(embedding, name, None)):
            raise InvalidParameterError(
                "embedding must be a LangChain Embeddings, not "
                f"{type(embedding).__name__}."
            )
    checked: Embeddings = embedding
    return checked


def embed_documents(
    embedding: Embeddings,
    lines: Lines,
    unit_ids: Sequence[str],
    batch_size: int | None = None,
    *,
    progress: bool = False,
) -> Rows:
    """Return documents with one vector of norm 1 each.

    `batch_size` documents share a call of the embedding, whatever their units; None:
    those of one unit.

    Privacy:
        By default a row is a function of its own unit's documents, whatever the
        embedding does with the texts of one call. With a `batch_size` it is one only if
        the embedding maps a text to a vector by the text alone. That is an assumption
        of the operator's, and stands in the public description.
    """
    calls = calls_of(unit_ids, batch_size)
    texts = [[lines.document(row).page_content for row in call] for call in calls]
    with progress_bar("Embedding documents", len(lines), shown=progress) as advance:

        def take(vectors: Any, call: int) -> Vectors:
            rows = unit_rows(vectors, calls[call])
            advance(len(rows))
            return rows

        rows = stacked(each_call(embedding, texts, take))
    in_order = np.empty_like(rows)
    if calls:
        in_order[np.concatenate(calls)] = rows
    return Rows(in_order, lines, unit_ids)


def question_vector(embedding: Embeddings, question: Any, dimension: int) -> Vectors:
    """Embed a question; return its vector of norm 1, shape (1, dimension)."""
    if not isinstance(question, str) or not question.strip():
        raise InvalidParameterError("The question must be a non-empty string.")
    rows = scaled([embed_question(embedding, question)])
    if rows is None or rows[0].shape[1] != dimension:
        found = "no vector" if rows is None else f"{rows[0].shape[1]} numbers"
        raise InvalidParameterError(
            f"The embedding returned {found} for the question, and the records have "
            f"vectors of {dimension}. Use the embedding that they were made with."
        )
    if not rows[1].all():
        raise InvalidParameterError(
            "The embedding of the question is zero or not finite: it cannot be "
            "compared. Rephrase the question in words that the embedding covers."
        )
    return rows[0]


def unit_rows(vectors: Any, places: Sequence[int]) -> Vectors:
    """Return vectors scaled to norm 1, float32, one for each place of a document."""
    rows = scaled(vectors)
    if rows is None or len(rows[0]) != len(places):
        raise InvalidParameterError(
            f"There must be one vector of numbers for each of the {len(places)} "
            f"documents from {places[0]} (counted from 0) on, all of one dimension. "
            "Use an embedding that returns them."
        )
    found, good = rows
    if not good.all():
        position = places[int(np.argmin(good))]
        raise InvalidParameterError(
            f"The embedding of document {position} (counted from 0) is zero or not "
            "finite, so that it has no direction to compare. Drop the document or "
            "use an embedding that covers it."
        )
    return found


def scaled(vectors: Any) -> tuple[Vectors, NDArray[np.bool_]] | None:
    """Return vectors scaled to norm 1, float32, and which have a direction.

    None where they are no matrix of numbers.
    """
    try:
        # Each number by itself. Of columns side by side, NumPy would add up a row's
        # squares in another order than of one row alone.
        rows = np.asarray(vectors, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError):
        return None
    if rows.ndim != 2 or rows.shape[1] == 0:  # noqa: PLR2004  # a matrix
        return None
    # NaN and infinity survive the maximum. Divided by it, squares neither overflow nor
    # vanish.
    largest = np.max(np.abs(rows), axis=1, keepdims=True)
    good = (np.isfinite(largest) & (largest > 0))[:, 0]
    with np.errstate(all="ignore"):
        rows = rows / largest
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32), good


def stacked(parts: Sequence[Vectors]) -> Vectors:
    """Return vectors that came in parts as one matrix; of none, one of dimension 1."""
    dimensions = sorted({part.shape[1] for part in parts})
    if len(dimensions) > 1:
        raise InvalidParameterError(
            f"There are vectors of different dimensions: {dimensions[0]}, "
            f"{dimensions[1]}. Use one embedding for all records."
        )
    return np.concatenate(parts) if parts else np.empty((0, 1), np.float32)


# ---- columns -------------------------------------------------------------------------


def read_columns(
    columns: Any,
    unit_key: str,
    *,
    text: str,
    vector: str,
    id_column: str | None,
    metadata: Sequence[str] | None,
    progress: bool,
) -> Rows:
    """Return the rows of columns; see `RetrievedGroups.from_embeddings`."""
    own = [text, vector, *([] if id_column is None else [id_column])]
    _check_columns(columns, [unit_key, *own, *(metadata or ())])
    further = columns if metadata is None else metadata
    keys = [k for k in dict.fromkeys([unit_key, *further]) if k not in own]
    documents = _documents(columns, text, id_column, keys)
    lines, unit_ids = read_documents(documents, unit_key)
    count, parts = len(unit_ids), []
    with progress_bar("Reading embedded records", count, shown=progress) as advance:
        for first in range(0, count, _BATCH):
            places = range(first, min(first + _BATCH, count))
            parts.append(unit_rows(columns[vector][first : first + _BATCH], places))
            advance(len(places))
    return Rows(stacked(parts), lines, unit_ids)


def _check_columns(columns: Any, needed: Sequence[str]) -> None:
    """Refuse what is no mapping of columns of one length, with the named among them."""
    if not isinstance(columns, Mapping):
        raise InvalidParameterError(
            f"Embedded records cannot be a {type(columns).__name__}. Pass a mapping of "
            'column names to arrays or lists: {"text": [...], "embedding": array, ...}.'
        )
    for name in needed:
        if name not in columns:
            raise InvalidParameterError(
                f"There is no column {name!r}. unit_key=, text_column=, "
                "vector_column=, id_column= and metadata_columns= name the columns."
            )
    for name, column in columns.items():
        if not isinstance(column, np.ndarray | Sequence) or isinstance(column, str):
            raise InvalidParameterError(
                f"Column {name!r} must be an array or a list, not a "
                f"{type(column).__name__}."
            )
    lengths = sorted({len(column) for column in columns.values()})
    if len(lengths) > 1:
        raise InvalidParameterError(
            f"The columns have different numbers of rows: {lengths[0]}, {lengths[1]}."
        )


def _documents(
    columns: Mapping[str, Any], text_column: str, id_column: str | None, keys: list[str]
) -> Iterator[Document]:
    """Yield the documents of columns, row by row."""
    texts, *cells = (_cells(columns[name]) for name in (text_column, *keys))
    ids = [None] * len(texts) if id_column is None else _cells(columns[id_column])
    for row, (text, document_id) in enumerate(zip(texts, ids, strict=True)):
        if not isinstance(text, str) or not isinstance(document_id, str | None):
            name = id_column if isinstance(text, str) else text_column
            raise InvalidParameterError(
                f"Column {name!r} holds no string in row {row} (counted from 0)."
            )
        metadata = {key: column[row] for key, column in zip(keys, cells, strict=True)}
        yield Document(text, metadata=metadata, id=document_id)


def _cells(column: Any) -> list[Any]:
    """Return a column's cells as Python objects."""
    return column.tolist() if isinstance(column, np.ndarray) else list(column)
