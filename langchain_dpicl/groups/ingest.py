"""From the caller's documents to checked copies, unit ids and unit vectors.

Documents are embedded here; columns hold vectors that were made elsewhere.

The embedding is called here with private text. Its errors are passed on unchanged:
ingest is the operator's own act and not part of an answer, and the operator needs to
read the message of the embedding server.

Privacy:
    A record is read by itself: its vector is scaled, and its document copied, from its
    own values. An error names a row, a column or a key, and holds no value.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langchain_dpicl.common.progress import progress_bar
from langchain_dpicl.embedding_calls import calls_of, each_call
from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.groups.lines import (
    DocumentLines,
    Documents,
    line_of,
    require_shallow,
)
from langchain_dpicl.groups.units import canonical_ids, unit_id_of

Vectors: TypeAlias = "NDArray[np.float32]"

Rows: TypeAlias = tuple[Vectors, Documents, Sequence[str]]
"""Records: their vectors of norm 1, the documents, the unit id of each. Private."""

_TITLE = "Embedding documents"
_COLUMNS_TITLE = "Reading embedded records"
_BATCH = 8192

_ATOMS = frozenset({str, int, float, bool, type(None)})


def take_documents(
    documents: Iterable[Document], unit_key: str
) -> tuple[list[Document], list[str]]:
    """Return copies of the documents, and the unit id of each.

    Copies, because later changes to the caller's objects must not change a unit's slot.

    Raises:
        InvalidParameterError: If something is not a `Document`, cannot be copied, or
            one `Document.id` comes twice.
        UnitError: If a document has no usable unit id.
    """
    try:
        given = list(documents)
    except TypeError:
        given = None
    if given is None:
        raise InvalidParameterError(
            f"documents must be a list of Documents, not {type(documents).__name__}."
        )
    copies = []
    unit_ids = []
    for position, document in enumerate(given):
        if not isinstance(document, Document):
            raise InvalidParameterError(
                f"documents[{position}] is a {type(document).__name__}, not a Document."
            )
        unit_ids.append(unit_id_of(document, unit_key, position=position))
        copies.append(_copy(document, position))
    check_document_ids(copies)
    return copies, unit_ids


def shallow_copy(document: Document) -> Document:
    """Return a copy for a slot, whose metadata values are shared.

    A draw must not fail because of one document, or one unit could fail a whole query:
    a deep copy of deeply nested metadata raises a `RecursionError`, at a depth that
    depends on the caller's stack.
    """
    return Document(
        page_content=document.page_content,
        metadata=dict(document.metadata),
        id=document.id,
    )


def check_document_ids(
    documents: Iterable[Document], known: Iterable[str] = ()
) -> None:
    """Refuse documents whose `id` is taken already, here or in `known`.

    Two documents with one id are either the same record twice, which would count twice,
    or two records under one name, which could not be told apart. To replace a unit's
    documents, delete the unit and add it again. Documents without an id are never
    compared. The message names the position, not the id.
    """
    taken = set(known)
    for position, document in enumerate(documents):
        if document.id in taken:
            raise InvalidParameterError(
                f"The id of document {position} (counted from 0) is taken by another "
                "document. Give each document an id of its own or none; to replace "
                "a unit's documents, delete_unit() it first."
            )
        if document.id is not None:
            taken.add(document.id)


def embed_documents(
    embedding: Embeddings,
    documents: Sequence[Document],
    unit_ids: Sequence[str],
    batch_size: int | None = None,
    *,
    progress: bool = False,
) -> Vectors:
    """Return one vector of norm 1 a document, shape (documents, dimension).

    `batch_size` documents share a call of the embedding, whatever their units; None:
    those of one unit.

    Raises:
        InvalidParameterError: If it returns anything but one finite, non-zero vector of
            one dimension for each text.

    Privacy:
        By default a row is a function of its own unit's documents, whatever the
        embedding does with the texts of one call. With a `batch_size` it is one only if
        the embedding maps a text to a vector by the text alone. That is an assumption
        of the operator's, and stands in the public description.
    """
    calls = calls_of(unit_ids, batch_size)
    texts = [[documents[place].page_content for place in places] for places in calls]
    with progress_bar(_TITLE, len(documents), shown=progress) as advance:

        def take(vectors: Any, call: int) -> Vectors:
            rows = unit_rows(vectors, calls[call])
            advance(len(rows))
            return rows

        parts: list[Vectors] = each_call(embedding, texts, take)
    dimensions = {part.shape[1] for part in parts}
    if len(dimensions) > 1:
        raise InvalidParameterError(
            "The embedding returned vectors of different dimensions: "
            f"{', '.join(map(str, sorted(dimensions)[:3]))}."
        )
    rows = np.concatenate(parts)
    joined = np.empty_like(rows)
    joined[np.concatenate(calls)] = rows
    return joined


@dataclass(frozen=True)
class ColumnNames:
    """What each column of embedded records is."""

    unit_key: str  # The unit id; also the key of the document's metadata.
    text: str
    vector: str
    id: str | None  # The document's id.
    metadata: Sequence[str] | None  # Further metadata; None: every other column.

    def check(self, columns: Any) -> None:
        """Refuse what is no mapping of columns of one length, with these among them."""
        if not isinstance(columns, Mapping):
            raise InvalidParameterError(
                f"Embedded records cannot be a {type(columns).__name__}. Pass a "
                'mapping of column names to arrays or lists: {"text": [...], '
                '"embedding": array, ...}.'
            )
        if self.unit_key not in columns:
            raise UnitError(
                f"There is no column {self.unit_key!r}, which unit_key= names as the "
                "one that holds each record's unit id."
            )
        needed = [self.text, self.vector, *(self.metadata or ())]
        for name in [*needed, *([] if self.id is None else [self.id])]:
            if name not in columns:
                raise InvalidParameterError(
                    f"There is no column {name!r}. text_column=, vector_column=, "
                    "id_column= and metadata_columns= name the columns."
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
                "The columns have different numbers of rows: "
                f"{', '.join(map(str, lengths[:3]))}."
            )


def read_columns(
    columns: Mapping[str, Any], names: ColumnNames, *, progress: bool
) -> Rows:
    """Return the rows of columns; see `RetrievedGroups.from_embeddings`."""
    names.check(columns)
    unit_ids = canonical_ids(_cells(columns[names.unit_key]), "of the records")
    parts: list[Vectors] = []
    with progress_bar(_COLUMNS_TITLE, len(unit_ids), shown=progress) as advance:
        for first in range(0, len(unit_ids), _BATCH):
            parts.append(_column_vectors(columns, names.vector, first, parts))
            advance(len(parts[-1]))
    vectors = np.concatenate(parts) if parts else np.empty((0, 1), np.float32)
    return vectors, _column_documents(columns, names), unit_ids


def have_direction(vectors: Sequence[Any]) -> list[bool]:
    """Return which vectors are finite and not zero; all, if they are no matrix.

    Example:
        >>> have_direction([[3.0, 4.0], [0.0, 0.0], [float("nan"), 1.0]])
        [True, False, False]
    """
    rows = _read(vectors)
    if rows is None:
        return [True] * len(vectors)
    good: list[bool] = rows[1].tolist()
    return good


def unit_rows(vectors: Any, places: Sequence[int]) -> Vectors:
    """Return the embedding's vectors for one call, scaled to norm 1, float32.

    `places` are the positions of the call's texts, for the message, which holds no
    text.

    Example:
        >>> unit_rows([[3.0, 4.0]], [0]).tolist()
        [[0.6000000238418579, 0.800000011920929]]
    """
    rows = _read(vectors)
    if rows is None or len(rows[0]) != len(places):
        raise InvalidParameterError(
            f"The embedding must return one vector of numbers for each of the "
            f"{len(places)} documents of a call, all of one dimension. It did not for "
            f"the call that begins with document {places[0]} (counted from 0)."
        )
    scaled, good = rows
    if not good.all():
        position = places[int(np.argmin(good))]
        raise InvalidParameterError(
            f"The embedding of document {position} (counted from 0) is zero or not "
            "finite, so that it has no direction to compare. Drop the document or "
            "use an embedding that covers it."
        )
    return scaled


def unit_question(vector: Any, dimension: int) -> Vectors:
    """Return a question's vector scaled to norm 1, shape (1, dimension).

    One that is not finite, zero, or of another dimension is an `InvalidParameterError`.
    """
    rows = _read([vector])
    if rows is None or rows[0].shape[1] != dimension:
        found = "no vector" if rows is None else f"{rows[0].shape[1]} numbers"
        raise InvalidParameterError(
            f"The embedding returned {found} for the question, and the index holds "
            f"vectors of {dimension}. Use the embedding that the index was built with."
        )
    if not rows[1].all():
        raise InvalidParameterError(
            "The embedding of the question is zero or not finite: it cannot be "
            "compared. Rephrase the question in words that the embedding covers."
        )
    return rows[0]


def check_question(question: Any) -> str:
    """Return a question, refusing what is no text."""
    if not isinstance(question, str) or not question.strip():
        raise InvalidParameterError("The question must be a non-empty string.")
    return question


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


def _copy(document: Document, position: int) -> Document:
    """Return a copy that shares nothing with the document."""
    try:
        return Document(
            page_content=document.page_content,
            metadata={
                key: value if type(value) in _ATOMS else copy.deepcopy(value)
                for key, value in document.metadata.items()
            },
            id=document.id,
        )
    except Exception:  # noqa: BLE001  # any object may refuse in its own way
        refused = InvalidParameterError(
            f"The metadata of document {position} (counted from 0) cannot be copied. "
            "Keep plain values in it."
        )
    raise refused


def _read(vectors: Any) -> tuple[Vectors, NDArray[np.bool_]] | None:
    """Return vectors scaled to norm 1, and which have a direction.

    None where they are no matrix of numbers.
    """
    try:
        # Of columns side by side, NumPy would add up a row's squares in another order
        # than of one row alone.
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


def _column_vectors(
    columns: Mapping[str, Any], name: str, first: int, before: Sequence[Vectors]
) -> Vectors:
    """Return a batch of vectors, each scaled to norm 1."""
    batch = columns[name][first : first + _BATCH]
    matrix = None
    with suppress(TypeError, ValueError, OverflowError):
        # Each number by itself: with one row of words NumPy would make words of all.
        matrix = np.asarray(batch, np.float64)
    if matrix is None or matrix.ndim != 2:  # noqa: PLR2004  # a matrix
        raise InvalidParameterError(
            f"Column {name!r} must hold one vector of numbers a row, all of one "
            f"dimension. It does not in rows {first} to {first + len(batch) - 1} "
            "(counted from 0)."
        )
    if before and matrix.shape[1] != before[0].shape[1]:
        raise InvalidParameterError(
            f"The vectors from row {first} on have {matrix.shape[1]} numbers, and "
            f"those before have {before[0].shape[1]}. Use one embedding."
        )
    return unit_rows(matrix, range(first, first + len(matrix)))


def _column_documents(columns: Mapping[str, Any], names: ColumnNames) -> DocumentLines:
    """Return the documents as lines."""
    own = {names.unit_key, names.text, names.vector, names.id}
    wanted = columns if names.metadata is None else names.metadata
    further = [name for name in dict.fromkeys(wanted) if name not in own]
    cells = {name: _cells(columns[name]) for name in (names.unit_key, *further)}
    texts = _cells(columns[names.text])
    ids = [None] * len(texts) if names.id is None else _cells(columns[names.id])
    lines, lengths, known = bytearray(), [], set()
    for row, (text, own_id) in enumerate(zip(texts, ids, strict=True)):
        if not isinstance(text, str) or not (own_id is None or isinstance(own_id, str)):
            name = names.id if isinstance(text, str) else names.text
            raise InvalidParameterError(
                f"Column {name!r} holds no string in row {row} (counted from 0)."
            )
        if own_id is not None and own_id in known:
            raise InvalidParameterError(
                f"The id of row {row} (counted from 0) is taken by another row. "
                "Give each record an id of its own or none."
            )
        known.add(own_id)
        metadata = {name: column[row] for name, column in cells.items()}
        line = line_of(own_id, text, metadata, f"row {row} (counted from 0)")
        require_shallow(metadata, row)
        lengths.append(len(line))
        lines += line
    return DocumentLines.over(bytes(lines), lengths)


def _cells(column: Any) -> list[Any]:
    """Return a column's cells as Python objects."""
    return column.tolist() if isinstance(column, np.ndarray) else list(column)
