"""Reading a vector store out: its documents and their vectors, once.

There are readers for LangChain's in-memory store, `Chroma`, `PGVectorStore` and
`QdrantVectorStore`. Any other object with a method `read` is one itself.

A store's own search is never used. An HNSW graph or the lists of an IVF index are built
from everybody's vectors, so that one person more or less can change which records of
others are found. What is read out is searched exactly, shard by shard.

Privacy:
    A record becomes part of the corpus by itself: its document and vector are the
    store's, and no other record changes them. One that can't be compared (its vector is
    zero or not finite) is left out by itself, too: to refuse it would let one record
    stop everybody's refresh, and keep who was erased in the index.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, islice
from typing import Any, Protocol, TypeAlias, runtime_checkable

from langchain_core.documents import Document

from langchain_dpicl.errors import DPError, InvalidParameterError, UnsoundStoreError
from langchain_dpicl.groups.records import (
    Rows,
    Vectors,
    read_documents,
    scaled,
    stacked,
)

Row: TypeAlias = tuple[Document, Sequence[float]]

_PAGE = 1000


@runtime_checkable
class VectorReader(Protocol):
    """A store that can be read out, vectors included."""

    def read(self) -> Iterable[Row]:
        """Yield every document with its vector, in any order, each once.

        A document has its text, its metadata and its id (where the user gave none, the
        store's own), and nothing added. A vector may have any length but zero.
        """


def _in_memory(store: Any) -> Iterator[Row]:
    # A list: others may add to the store while it is read.
    for one in list(store.store.values()):
        document = Document(one["text"], metadata=one["metadata"], id=one["id"])
        yield document, one["vector"]


def _columns(store: Any) -> Iterator[Row]:
    """Read a `Chroma` or a `PGVectorStore`: `get` returns columns of one moment.

    A record without a text (an image, a vector alone) is left out: there is nothing to
    put into a prompt.
    """
    names = ["documents", "metadatas", "embeddings"]
    found = store.get(include=names)
    columns = [found[name] for name in ["ids", *names]]
    for own, text, metadata, vector in zip(*columns, strict=True):
        if text is not None and vector is not None:
            # PostgreSQL's vectors come as it writes them: '[0.6,0.8]'.
            numbers = json.loads(vector) if isinstance(vector, str) else vector
            yield Document(text, metadata=metadata or {}, id=own), numbers


def _qdrant(store: Any) -> Iterator[Row]:
    """Read the collection of a `QdrantVectorStore`: points with a dense vector."""
    client, collection = store.client, store.collection_name
    before, read, offset = client.count(collection).count, 0, None
    while True:
        points, offset = client.scroll(
            collection, limit=_PAGE, offset=offset, with_vectors=True
        )
        for point in points:
            vector, payload = point.vector, point.payload or {}
            if isinstance(vector, dict):
                vector = vector.get(store.vector_name or "")
            text = payload.get(store.content_payload_key) or ""
            metadata = payload.get(store.metadata_payload_key) or {}
            if isinstance(vector, list) and vector:
                yield Document(text, metadata=metadata, id=str(point.id)), vector
        read += len(points)
        if offset is None:
            break
    # Others may add and delete meanwhile.
    if read < min(before, client.count(collection).count):
        raise _unsound(store, "fewer records than it holds")


# Package and name of a store's class: found by name, so that no library is imported.
_READERS: dict[tuple[str, str], Callable[[Any], Iterator[Row]]] = {
    ("langchain_core", "InMemoryVectorStore"): _in_memory,
    ("langchain_chroma", "Chroma"): _columns,
    ("langchain_postgres", "PGVectorStore"): _columns,
    ("langchain_qdrant", "QdrantVectorStore"): _qdrant,
}


def _rows_of(store: Any) -> Iterable[Row]:
    if isinstance(store, VectorReader) and not isinstance(store, type):
        return store.read()
    for ancestor in type(store).__mro__:
        named = ancestor.__module__.partition(".")[0], ancestor.__name__
        if named in _READERS:
            return _READERS[named](store)
    known = ", ".join(sorted(name for _, name in _READERS))
    raise InvalidParameterError(
        f"There is no reader for {type(store).__name__}. Pass one of {known} (of a "
        "retriever, its .vectorstore), or an object with a method read(), a "
        "VectorReader: docs/guides/stores.md has an example."
    )


def embedding_of(store: Any) -> Any:
    """Return the embedding of the stored vectors, which questions need, too."""
    try:
        found = getattr(store, "embeddings", None)
    except Exception:  # noqa: BLE001  # Qdrant's raises where there is none
        found = None
    if found is None:
        raise InvalidParameterError(
            f"The {type(store).__name__} has no embedding of its own: pass the one "
            "that its vectors were made with as embedding=."
        )
    return found


def read_out(store: Any, unit_key: str) -> Rows:
    """Return the records of a store; see `RetrievedGroups.from_vectorstore`."""
    documents: list[Document] = []
    parts: list[Vectors] = []
    rows = _checked(store)
    while page := list(islice(rows, _PAGE)):
        found = scaled([vector for _, vector in page])
        if found is None:
            raise InvalidParameterError(
                f"The {type(store).__name__} must give one vector of numbers for each "
                "record, all of one dimension: keep the records of each embedding in a "
                "store of their own."
            )
        vectors, good = found
        parts.append(vectors[good])
        documents += compress([document for document, _ in page], good)
    return Rows(stacked(parts), *read_documents(documents, unit_key))


def _checked(store: Any) -> Iterator[Row]:
    """Yield what a store's reader does, each row looked at."""
    seen: set[str | None] = set()
    failure = ""
    try:
        for row in _rows_of(store):
            _check(row, store, seen)
            yield row
    except DPError:
        raise
    except Exception as error:  # noqa: BLE001  # a client's, which may hold a record
        failure = type(error).__name__
    if failure:
        raise InvalidParameterError(
            f"The {type(store).__name__} could not be read ({failure}). Is it running, "
            "and are all of its vectors finite?"
        )


def _check(row: Any, store: Any, seen: set[str | None]) -> None:
    """Refuse what is no pair of a document and its vector, or came before."""
    if not isinstance(row, tuple) or len(row) != 2 or not isinstance(row[0], Document):  # noqa: PLR2004  # a pair
        raise InvalidParameterError("read() must yield pairs (Document, vector).")
    if row[0].id in seen:
        raise _unsound(store, "one record twice")
    if row[0].id is not None:
        seen.add(row[0].id)


def _unsound(store: Any, what: str) -> UnsoundStoreError:
    return UnsoundStoreError(
        f"The {type(store).__name__} returned {what}. Repair it, or give the records "
        "to RetrievedGroups.from_documents()."
    )
