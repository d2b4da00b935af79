"""Qdrant's collections: which can be searched, and reading the local mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from langchain_core.documents import Document
from qdrant_client import models

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.stores.contract import VectorReader, hiding_errors
from langchain_dpicl.groups.stores.qdrant.marks import pages, vector_of

_PAGE = 1_000
_DIGITS = 20  # Of the largest number that can be an id; an id of more is a UUID.


def _failure(error: Exception) -> str:
    return (
        f"Qdrant could not be asked ({type(error).__name__}); nothing was released. Is "
        "it running, and is the collection there?"
    )


private_errors = hiding_errors(_failure)
"""Turns what the client raises into an error of ours, which holds no private text."""


class QdrantReader(VectorReader):
    """Reads the collection of a `QdrantVectorStore` whose client is local.

    Its dense vectors may be under any distance: the embedded index compares by cosine.
    The local mode is never asked to search. It scales all stored vectors to norm 1
    again, in place, at every search, so that scores depend on how many searches were
    made before; and it scores by one product of a matrix and a vector, in which the
    last digit depends on the row where a record stands, and so on who else is there.
    """

    @private_errors
    def __init__(self, store: Any) -> None:
        self._store = store
        self._client = store.client
        self._collection: str = store.collection_name
        self._using: str | None = store.vector_name or None
        info = self._client.get_collection(self._collection)
        dense_vectors(info, self._collection, self._using)

    def read(self) -> Iterator[tuple[Document, Sequence[float]]]:
        """Yield every document with its vector.

        A point without a vector of the store's name is left out: no search finds it.
        """
        for point in self._points():
            vector = vector_of(point, self._using)
            if vector is not None:
                yield document_of(point, self._store), vector

    def everything(self) -> Iterator[Document]:
        """Yield every document, also those without a vector."""
        for point in self._points():
            yield document_of(point, self._store)

    @private_errors
    def delete(self, document_ids: Sequence[str]) -> None:
        """Delete documents from the collection."""
        for some in pages(document_ids):
            ids = [int(own) if _is_number(own) else own for own in some]
            self._client.delete(self._collection, ids)

    def _points(self) -> Iterator[Any]:
        offset: Any = None
        while True:
            points, offset = self._page(offset)
            yield from points
            if offset is None:
                return

    @private_errors
    def _page(self, offset: Any) -> tuple[list[Any], Any]:
        found: tuple[list[Any], Any] = self._client.scroll(
            self._collection,
            limit=_PAGE,
            offset=offset,
            with_payload=True,
            with_vectors=[self._using] if self._using else True,
        )
        return found


def is_local(client: Any) -> bool:
    """Return whether a client keeps its collections itself, without a server."""
    inner = getattr(client, "_client", client)
    return any(
        ancestor.__module__.startswith("qdrant_client.local")
        for ancestor in type(inner).__mro__
    )


def document_of(point: Any, store: Any) -> Document:
    """Return a point's document as the user put it in, with its id."""
    payload: dict[str, Any] = point.payload or {}
    content = payload.get(store.content_payload_key)
    metadata = payload.get(store.metadata_payload_key)
    return Document(
        content if isinstance(content, str) else "",
        metadata=dict(metadata) if isinstance(metadata, dict) else {},
        id=str(point.id),
    )


def _is_number(own: str) -> bool:
    return own.isdecimal() and len(own) <= _DIGITS


def dense_vectors(
    info: models.CollectionInfo, collection: str, using: str | None
) -> models.VectorParams:
    """Return what a collection says of its dense vectors, or refuse it.

    `using` names them, None where there is one vector without a name.
    """
    vectors = info.config.params.vectors
    if isinstance(vectors, dict):
        vectors = vectors.get(using or "")
    elif using is not None:
        vectors = None
    if vectors is None or vectors.multivector_config is not None:
        raise InvalidParameterError(
            f"The collection {collection!r} has no dense vector of the name that the "
            "store searches, one for each record."
        )
    return vectors


def cosine_vectors(
    info: models.CollectionInfo, collection: str, using: str | None
) -> models.VectorParams:
    """Return the same of vectors that the server compares by cosine; refuse others."""
    vectors = dense_vectors(info, collection, using)
    if vectors.distance != models.Distance.COSINE:
        raise InvalidParameterError(
            f"The collection {collection!r} compares vectors by "
            f"{vectors.distance.value}, and groups need cosines: make it with "
            "Distance.COSINE."
        )
    return vectors


def shared_index(
    info: models.CollectionInfo, params: models.VectorParams
) -> str | None:
    """Return in words which index a collection may have, None if it can have none."""
    config = info.config
    if config.quantization_config is not None or params.quantization_config is not None:
        return "quantizes its vectors"
    if info.indexed_vectors_count:
        return "has an HNSW graph"
    m = config.hnsw_config.m
    if params.hnsw_config is not None and params.hnsw_config.m is not None:
        m = params.hnsw_config.m
    if m != 0 and config.optimizer_config.indexing_threshold != 0:
        return "builds an HNSW graph as soon as it has enough vectors"
    return None
