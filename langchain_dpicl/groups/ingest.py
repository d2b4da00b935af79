"""From the caller's documents to checked copies, unit ids and unit vectors.

The embedding is called here with private text. Its errors are passed on unchanged:
ingest is the operator's own act and not part of an answer, and the operator needs to
read the message of the embedding server.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langchain_dpicl.common.progress import progress_bar
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.units import unit_id_of
from langchain_dpicl.release.flow import Flow
from langchain_dpicl.sealed.embedding_calls import calls_of, embed_call, embed_calls

Vectors: TypeAlias = "NDArray[np.float32]"

_TITLE = "Embedding documents"

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
        copies.append(_checked_copy(document, position))
    check_document_ids(copies, frozenset())
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


def copy_document(document: Document) -> Document:
    """Return a copy that shares nothing with the document."""
    return Document(
        page_content=document.page_content,
        metadata={
            # Hundreds of copies a draw: deepcopy only where it makes a difference.
            key: value if type(value) in _ATOMS else copy.deepcopy(value)
            for key, value in document.metadata.items()
        },
        id=document.id,
    )


def check_document_ids(documents: Iterable[Document], known: Iterable[str]) -> None:
    """Refuse documents whose `id` is taken already, here or in `known`.

    Two documents with one id are either the same record twice, which would count twice,
    or two records under one name, which could not be told apart. To replace a unit's
    documents, delete the unit and add it again. Documents without an id are never
    compared. The message names the position, not the id.
    """
    seen = set(known)
    for position, document in enumerate(documents):
        if document.id is None:
            continue
        if document.id in seen:
            raise InvalidParameterError(
                f"The id of document {position} (counted from 0) is taken by another "
                "document. Give each document an id of its own or none; to replace "
                "a unit's documents, delete_unit() it first."
            )
        seen.add(document.id)


def embed_documents(
    embedding: Embeddings,
    documents: Sequence[Document],
    unit_ids: Sequence[str],
    batch_size: int | None = None,
    *,
    progress: bool,
) -> Flow[Vectors]:
    """Return one vector of norm 1 a document, shape (documents, dimension).

    `batch_size` documents share a call of the embedding, whatever their units; None:
    those of one unit. Anything but one finite, non-zero vector of one dimension for
    each text is an `InvalidParameterError`.

    Privacy:
        By default a row is a function of its own unit's documents, whatever the
        embedding does with the texts of one call. With a `batch_size` it is one only if
        the embedding maps a text to a vector by the text alone.
    """
    calls = calls_of(unit_ids, batch_size)
    with progress_bar(_TITLE, len(documents), shown=progress) as advance:

        def rows(places: list[int], vectors: Any) -> Vectors:
            found = unit_rows(vectors, places)
            advance(len(places))
            return found

        each = [
            embed_call(embedding, _texts(documents, places), partial(rows, places))
            for places in calls
        ]
        parts = yield embed_calls(each, embedding)
    return _joined(parts, calls)


def have_direction(vectors: Sequence[Any]) -> list[bool]:
    """Return which vectors are finite and not zero; all, if they are no matrix.

    Example:
        >>> have_direction([[3.0, 4.0], [0.0, 0.0], [float("nan"), 1.0]])
        [True, False, False]
    """
    rows = _as_matrix(vectors)
    if rows is None or rows.shape[1] == 0:
        return [True] * len(vectors)
    good: list[bool] = _sizes(rows)[1].tolist()
    return good


def unit_rows(vectors: Any, places: Sequence[int]) -> Vectors:
    """Return the embedding's vectors for one call, scaled to norm 1, float32.

    `places` are the positions of the call's texts, for the message, which holds no
    text.

    Example:
        >>> unit_rows([[3.0, 4.0]], [0]).tolist()
        [[0.6000000238418579, 0.800000011920929]]
    """
    rows = _as_matrix(vectors)
    if rows is None or rows.shape[0] != len(places) or rows.shape[1] == 0:
        raise InvalidParameterError(
            f"The embedding must return one vector of numbers for each of the "
            f"{len(places)} documents of a call, all of one dimension. It did not for "
            f"the call that begins with document {places[0]} (counted from 0)."
        )
    largest, good = _sizes(rows)
    if not good.all():
        position = places[int(np.argmin(good))]
        raise InvalidParameterError(
            f"The embedding of document {position} (counted from 0) is zero or not "
            "finite, so that it has no direction to compare. Drop the document or "
            "use an embedding that covers it."
        )
    return _scaled(rows, largest)


def unit_question(vector: Any, dimension: int) -> Vectors:
    """Return a question's vector scaled to norm 1, shape (1, dimension).

    One that is not finite, zero, or of another dimension is an `InvalidParameterError`.
    """
    rows = _as_matrix([vector])
    if rows is None or rows.shape[1] != dimension:
        found = "no vector" if rows is None else f"{rows.shape[1]} numbers"
        raise InvalidParameterError(
            f"The embedding returned {found} for the question, and the index holds "
            f"vectors of {dimension}. Use the embedding that the index was built with."
        )
    largest, good = _sizes(rows)
    if not good.all():
        raise InvalidParameterError(
            "The embedding of the question is zero or not finite: it cannot be "
            "compared. Rephrase the question in words that the embedding covers."
        )
    return _scaled(rows, largest)


def check_question(question: Any) -> None:
    """Refuse a question that is no text."""
    if not isinstance(question, str) or not question.strip():
        raise InvalidParameterError("The question must be a non-empty string.")


def check_embedding(embedding: Any) -> None:
    """Refuse what does not look like a LangChain `Embeddings`."""
    if not callable(getattr(embedding, "embed_documents", None)) or not callable(
        getattr(embedding, "embed_query", None)
    ):
        raise InvalidParameterError(
            f"embedding must be a LangChain Embeddings, not {type(embedding).__name__}."
        )


def _checked_copy(document: Document, position: int) -> Document:
    try:
        return copy_document(document)
    except Exception:  # noqa: BLE001  # any object may refuse in its own way
        refused = InvalidParameterError(
            f"The metadata of document {position} (counted from 0) cannot be copied. "
            "Keep plain values in it."
        )
    raise refused


def _as_matrix(vectors: Any) -> NDArray[np.float64] | None:
    try:
        # Of columns side by side, NumPy would add up a row's squares in another order
        # than of one row alone.
        rows = np.asarray(vectors, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError):
        return None
    return rows if rows.ndim == 2 else None  # noqa: PLR2004  # a matrix


def _sizes(
    rows: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return each row's largest coordinate, and whether it has a direction."""
    # NaN and infinity survive the maximum.
    largest = np.max(np.abs(rows), axis=1, keepdims=True)
    return largest, (np.isfinite(largest) & (largest > 0))[:, 0]


def _scaled(rows: NDArray[np.float64], largest: NDArray[np.float64]) -> Vectors:
    # Divide by the largest coordinate first: squares then neither overflow nor vanish.
    rows = rows / largest
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Vectors = rows.astype(np.float32)
    return scaled


def _texts(documents: Sequence[Document], places: Sequence[int]) -> list[str]:
    return [documents[place].page_content for place in places]


def _joined(parts: list[Vectors], calls: Sequence[Sequence[int]]) -> Vectors:
    """Return the rows of all calls, each at its document's place."""
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
