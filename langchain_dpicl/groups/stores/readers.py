"""Stores that are read out: LangChain's in-memory store, Chroma and Qdrant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.stores.contract import VectorReader, hiding_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langchain_core.vectorstores import InMemoryVectorStore

from collections.abc import Iterator, Sequence

_PAGE = 1000  # Documents of one call: Chroma has a limit, of 5461 on many machines.
_DIGITS = 20  # Of the largest number that can be Qdrant's id; one of more is a UUID.


class InMemoryReader(VectorReader):
    """Reads an `InMemoryVectorStore`."""

    def __init__(self, store: InMemoryVectorStore) -> None:
        self._store = store

    def read(self) -> Iterator[tuple[Document, Sequence[float]]]:
        """Yield every document with its vector."""
        # A list: others may add to the store while it is read.
        for record in list(self._store.store.values()):
            document = Document(
                page_content=record["text"],
                metadata=record["metadata"],
                id=record["id"],
            )
            yield document, record["vector"]

    def delete(self, document_ids: Sequence[str]) -> None:
        """Delete documents from the store."""
        self._store.delete(list(document_ids))


class ChromaReader(VectorReader):
    """Reads the collection of a `langchain_chroma.Chroma`, which is never searched.

    A collection has one HNSW graph of everybody's vectors, which can't be switched off
    or built for one shard: whom it finds depends on who else is in it.
    """

    def __init__(self, store: Any) -> None:
        self._store = store

    def read(self) -> Iterator[tuple[Document, Sequence[float]]]:
        """Yield every document with its vector.

        A record without a text (an image, a vector alone) is left out, as by
        LangChain's own searches: there is nothing to put into a prompt.
        """
        for page in self._pages(["documents", "metadatas", "embeddings"]):
            for own, text, metadata, vector in zip(
                page["ids"],
                page["documents"],
                page["metadatas"],
                page["embeddings"],
                strict=True,
            ):
                if text is not None:
                    yield _document(own, text, metadata), vector

    def everything(self) -> Iterator[Document]:
        """Yield every record, also one without a text."""
        for page in self._pages(["metadatas"]):
            for own, metadata in zip(page["ids"], page["metadatas"], strict=True):
                yield _document(own, "", metadata)

    def _pages(self, include: list[str]) -> Iterator[dict[str, Any]]:
        # By id, not by offset: with an offset, a deletion meanwhile skips a record.
        ids: list[str] = self._store.get(include=[])["ids"]
        for start in range(0, len(ids), _PAGE):
            yield self._store.get(ids=ids[start : start + _PAGE], include=include)

    def delete(self, document_ids: Sequence[str]) -> None:
        """Delete documents from the collection."""
        for start in range(0, len(document_ids), _PAGE):
            self._store.delete(ids=list(document_ids[start : start + _PAGE]))


def _qdrant_failure(error: Exception) -> str:
    return (
        f"Qdrant could not be asked ({type(error).__name__}); nothing was released. Is "
        "it running, and is the collection there?"
    )


_qdrant_errors = hiding_errors(_qdrant_failure)
"""Turns what the client raises into an error of ours, which holds no private text."""


class QdrantReader(VectorReader):
    """Reads the collection of a `QdrantVectorStore`, which is never searched.

    Its dense vectors may be under any distance: the embedded index compares by cosine.
    A server's collection has one HNSW graph of everybody's vectors. The local mode
    scales all stored vectors to norm 1 again, in place, at every search, so that scores
    depend on how many searches were made before.
    """

    @_qdrant_errors
    def __init__(self, store: Any) -> None:
        self._store = store
        self._client = store.client
        self._collection: str = store.collection_name
        self._using: str | None = store.vector_name or None
        self._check_vectors()

    def read(self) -> Iterator[tuple[Document, Sequence[float]]]:
        """Yield every document with its vector.

        A point without a vector of the store's name is left out: no search finds it.
        """
        for point in self._points():
            vector = point.vector
            if self._using is not None or isinstance(vector, dict):
                vector = (vector or {}).get(self._using or "")
            if isinstance(vector, list) and vector:
                yield self._document(point), vector

    def everything(self) -> Iterator[Document]:
        """Yield every document, also those without a vector."""
        return map(self._document, self._points())

    @_qdrant_errors
    def delete(self, document_ids: Sequence[str]) -> None:
        """Delete documents from the collection."""
        for start in range(0, len(document_ids), _PAGE):
            some = document_ids[start : start + _PAGE]
            ids = [int(own) if _is_number(own) else own for own in some]
            self._client.delete(self._collection, ids)

    def _check_vectors(self) -> None:
        info = self._client.get_collection(self._collection)
        vectors = info.config.params.vectors
        if isinstance(vectors, dict):
            vectors = vectors.get(self._using or "")
        elif self._using is not None:
            vectors = None
        if vectors is None or vectors.multivector_config is not None:
            raise InvalidParameterError(
                f"The collection {self._collection!r} has no dense vector of the name "
                "that the store searches, one for each record."
            )

    def _points(self) -> Iterator[Any]:
        offset: Any = None
        while True:
            points, offset = self._page(offset)
            yield from points
            if offset is None:
                return

    @_qdrant_errors
    def _page(self, offset: Any) -> tuple[list[Any], Any]:
        found: tuple[list[Any], Any] = self._client.scroll(
            self._collection,
            limit=_PAGE,
            offset=offset,
            with_payload=True,
            with_vectors=[self._using] if self._using else True,
        )
        return found

    def _document(self, point: Any) -> Document:
        """Return a point's document as the user put it in, with its id."""
        payload: dict[str, Any] = point.payload or {}
        content = payload.get(self._store.content_payload_key)
        metadata = payload.get(self._store.metadata_payload_key)
        return _document(
            str(point.id),
            content if isinstance(content, str) else "",
            dict(metadata) if isinstance(metadata, dict) else None,
        )


def _is_number(own: str) -> bool:
    return own.isdecimal() and len(own) <= _DIGITS


def _document(own: str, text: str, metadata: dict[str, Any] | None) -> Document:
    return Document(page_content=text, metadata=metadata or {}, id=own)
