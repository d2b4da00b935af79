"""Qdrant stores for tests: the local mode, and the same behind a server's face."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_qdrant import QdrantVectorStore
from qdrant_client import QdrantClient, models

from langchain_dpicl.groups.stores.known_corpus import DIMENSION, KnownEmbedding

COSINE = models.Distance.COSINE


class Server:
    """A client as of a server: it takes what the local mode warns of or has not.

    Attributes:
        calls: Names of the methods called, in order.
        searches: The search parameters of every search.
    """

    def __init__(self, local: QdrantClient) -> None:
        self._local = local
        self._client = self  # What a client asks; a local one would be found there.
        self.calls: list[str] = []
        self.searches: list[models.SearchParams | None] = []
        self.changes: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._local, name)
        if not callable(method):
            return method

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            if not name.startswith("query_points"):
                return method(*args, **kwargs)
            self.searches.append(kwargs.pop("search_params"))
            found = method(*args, **kwargs)
            for some in getattr(found, "groups", [found]):
                rounded(some)
            return found

        return call

    def create_payload_index(self, *args: Any, **kwargs: Any) -> None:
        self.calls.append("create_payload_index")

    def query_batch_points(self, collection: str, requests: list[Any]) -> Any:
        self.calls.append("query_batch_points")
        self.searches += [request.params for request in requests]
        plain = [one.model_copy(update={"params": None}) for one in requests]
        return [rounded(f) for f in self._local.query_batch_points(collection, plain)]

    def get_collection(self, collection_name: str) -> Any:
        info = self._local.get_collection(collection_name)
        # A server that builds no index, unless a test says otherwise.
        info.config.optimizer_config.indexing_threshold = 0
        for path, value in self.changes.items():
            *steps, last = path.split(".")
            at: Any = info
            for step in steps:
                at = getattr(at, step)
            setattr(at, last, value)
        return info


def rounded(found: Any) -> Any:
    """A server's score depends on the point alone, which the local mode's does not."""
    for point in getattr(found, "hits", None) or getattr(found, "points", []):
        point.score = round(point.score, 6)
    return found


def store_of(
    documents: Sequence[Document] = (),
    embedding: Embeddings | None = None,
    *,
    name: str = "",
    distance: models.Distance = COSINE,
    server: type[Server] | None = None,
    **keys: Any,
) -> QdrantVectorStore:
    """Return a store that holds some documents."""
    local = QdrantClient(":memory:")
    params = models.VectorParams(size=DIMENSION, distance=distance)
    local.create_collection("notes", vectors_config={name: params} if name else params)
    client: Any = local if server is None else server(local)
    store = QdrantVectorStore(
        client,
        "notes",
        embedding or KnownEmbedding(),
        vector_name=name,
        distance=distance,
        **keys,
    )
    if documents:
        store.add_documents(list(documents))
    return store
