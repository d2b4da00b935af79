"""Qdrant stores for tests: the local mode, and a stand-in for a server."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_qdrant import QdrantVectorStore
from qdrant_client import QdrantClient, models
from qdrant_client.http.models import QueryResponse

from langchain_dpicl.groups.stores.known_corpus import DIMENSION, KnownEmbedding
from langchain_dpicl.groups.stores.qdrant.marks import vector_of

COSINE = models.Distance.COSINE
ALL = 10**6


class Server:
    """A client as of a server.

    The local mode keeps the points and is never asked to search: scores are computed
    here, record by record, so that each depends on its own vector alone. As a server,
    it ranks NaN before everything and stops at the first score below a threshold.

    Attributes:
        calls: Names of the methods called, in order.
        searches: The search parameters of every search.
        changes: What a test says of the collection's configuration.
        vectors: By id; a test may spoil them.
    """

    def __init__(self, local: QdrantClient, using: str) -> None:
        self._local = local
        self._client = self  # What a client asks; a local one would be found there.
        self._using = using
        self.calls: list[str] = []
        self.searches: list[models.SearchParams | None] = []
        self.changes: dict[str, Any] = {}
        self.vectors: dict[Any, list[float] | None] = {}

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._local, name)
        assert not name.startswith(("query", "search")), name
        if not callable(method):
            return method

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls.append(name)
            return method(*args, **kwargs)

        return call

    def upsert(self, *args: Any, **kwargs: Any) -> Any:
        done = self._local.upsert(*args, **kwargs)
        points, _ = self._local.scroll("notes", limit=ALL, with_vectors=True)
        for point in points:
            self.vectors.setdefault(point.id, vector_of(point, self._using or None))
        return done

    def retrieve(self, collection: str, ids: list[Any], **kwargs: Any) -> Any:
        self.calls.append("retrieve")
        points = self._local.retrieve(collection, ids, with_payload=True)
        for point in points:
            own = self.vectors[point.id]
            if self._using:
                point.vector = {} if own is None else {self._using: own}
            else:
                point.vector = own
        return points

    def create_payload_index(self, *args: Any, **kwargs: Any) -> None:
        self.calls.append("create_payload_index")

    def query_points(self, collection_name: str, query: Any, **kwargs: Any) -> Any:
        self.calls.append("query_points")
        request = models.QueryRequest(
            query=query,
            filter=kwargs["query_filter"],
            params=kwargs["search_params"],
            limit=kwargs["limit"],
        )
        return self.answer(request)

    def query_batch_points(self, collection: str, requests: list[Any]) -> Any:
        self.calls.append("query_batch_points")
        return [self.answer(request) for request in requests]

    def query_points_groups(
        self, collection: str, group_by: str, **kwargs: Any
    ) -> models.GroupsResult:
        self.calls.append("query_points_groups")
        self.searches.append(kwargs["search_params"])
        groups: dict[Any, list[models.ScoredPoint]] = {}
        for point in self.ranked(kwargs["query"], None):
            if group_by in point.payload:
                groups.setdefault(point.payload[group_by], []).append(point)
        return models.GroupsResult(
            groups=[
                models.PointGroup(id=key, hits=hits[: kwargs["group_size"]])
                for key, hits in list(groups.items())[: kwargs["limit"]]
            ]
        )

    def answer(self, request: models.QueryRequest) -> QueryResponse:
        self.searches.append(request.params)
        points = []
        for point in self.ranked(request.query, request.filter)[: request.limit]:
            least = request.score_threshold
            if least is not None and not point.score >= least:
                break
            points.append(point)
        return QueryResponse(points=points)

    def ranked(
        self, question: list[float], condition: models.Filter | None
    ) -> list[models.ScoredPoint]:
        points, _ = self._local.scroll("notes", scroll_filter=condition, limit=ALL)
        scored = [
            models.ScoredPoint(
                id=point.id,
                version=0,
                score=float(np.sum(np.asarray(vector, np.float64) * question)),
                payload=point.payload,
            )
            for point in points
            if (vector := self.vectors[point.id]) is not None
        ]
        return sorted(
            scored,
            key=lambda one: -math.inf if math.isnan(one.score) else -one.score,
        )

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


def store_of(
    documents: Sequence[Document] = (),
    embedding: Embeddings | None = None,
    *,
    name: str = "",
    distance: models.Distance = COSINE,
    server: type[Server] | None = Server,
    client: QdrantClient | None = None,
    **keys: Any,
) -> QdrantVectorStore:
    """Return a store that holds some documents; of the local mode without a server."""
    local = client or QdrantClient(":memory:")
    params = models.VectorParams(size=DIMENSION, distance=distance)
    local.create_collection("notes", vectors_config={name: params} if name else params)
    given: Any = local if server is None else server(local, name)
    store = QdrantVectorStore(
        given,
        "notes",
        embedding or KnownEmbedding(),
        vector_name=name,
        distance=distance,
        **keys,
    )
    if documents:
        store.add_documents(list(documents))
    return store
