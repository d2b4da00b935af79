"""A store that searches a list: as an adapter should, or with one defect."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from langchain_dpicl.groups.ingest import unit_rows
from langchain_dpicl.groups.stores import ShardStore, StoredHit


class ListStore(ShardStore):
    """Searches by itself, exactly, and keeps the shards of its units."""

    def __init__(
        self,
        documents: Iterable[Document] = (),
        embedding: Embeddings | None = None,
        *,
        unit_key: str = "unit",
        dimension: int = 8,
    ) -> None:
        self.unit_key = unit_key
        self.embeddings = embedding
        self._dimension = dimension
        self.rows: list[tuple[Document, np.ndarray]] = []
        self.shards: dict[Any, int] = {}
        self.calls: list[str] = []
        self.add_documents(list(documents))

    def add_documents(self, documents: list[Document]) -> None:
        texts = [document.page_content for document in documents]
        if texts:
            vectors = unit_rows(
                self.embeddings.embed_documents(texts), range(len(texts))
            )
            named = [
                one.model_copy(update={"id": one.id or uuid.uuid4().hex})
                for one in documents
            ]
            self.rows += zip(named, vectors, strict=True)

    async def aadd_documents(self, documents: list[Document]) -> None:
        self.add_documents(documents)

    def get_by_ids(self, ids: Sequence[str]) -> list[Document]:
        return [document for document, _ in self.rows if document.id in set(ids)]

    async def aget_by_ids(self, ids: Sequence[str]) -> list[Document]:
        return self.get_by_ids(ids)

    def refuse_unsound(self, *, exact: bool) -> None:
        self.calls.append("refuse_unsound")

    @property
    def dimension(self) -> int:
        return self._dimension

    def unit_values(self) -> list[Any]:
        return list(dict.fromkeys(self.value(row) for row, _ in self.rows))

    def assign(self, shard_of: Any, n_shards: int) -> None:
        self.shards = dict(shard_of)

    def sizes(self, n_shards: int) -> list[int]:
        shards = [shard for _, shard, _ in self.assigned()]
        return np.bincount(shards, minlength=n_shards).tolist()

    def best(self, vector: Any, n: int, n_shards: int) -> list[StoredHit]:
        hits = sorted(self.hits(vector), key=lambda hit: -hit.score)
        return [
            hit
            for shard in range(n_shards)
            for hit in [one for one in hits if one.shard == shard][:n]
        ]

    def of_shard(self, vector: Any, shard: int, score: float) -> list[StoredHit]:
        return [hit for hit in self.above(vector, score) if hit.shard == shard]

    def above(self, vector: Any, threshold: float) -> list[StoredHit]:
        return [hit for hit in self.hits(vector) if hit.score >= threshold]

    def delete(self, value: Any) -> int:
        before = len(self.rows)
        self.rows = [row for row in self.rows if self.value(row[0]) != value]
        self.shards.pop(value, None)
        return before - len(self.rows)

    def value(self, document: Document) -> Any:
        return document.metadata.get(self.unit_key)

    def assigned(self) -> list[tuple[Document, int, np.ndarray]]:
        return [
            (document, self.shards[self.value(document)], vector)
            for document, vector in self.rows
            if self.value(document) in self.shards
        ]

    def hits(self, vector: Any) -> list[StoredHit]:
        found = self.assigned()
        if not found:
            return []
        # Rounded: a product's last digits may depend on where a row lies in memory,
        # so on who else is there.
        matrix = np.stack([row[2] for row in found]).astype(np.float64)
        scores = np.round((matrix * vector[0]).sum(axis=1), 9)
        return [
            StoredHit(document, score, shard)
            for (document, shard, _), score in zip(found, scores.tolist(), strict=True)
        ]


class BadStore(ListStore):
    """Spoils what a search returns, with `spoil(hits, store)`, once that is set."""

    spoil: Callable[[list[StoredHit], ListStore], Any] | None = None

    def best(self, vector: Any, n: int, n_shards: int) -> Any:
        return self.spoiled(super().best(vector, n, n_shards))

    def above(self, vector: Any, threshold: float) -> Any:
        return self.spoiled(super().above(vector, threshold))

    def spoiled(self, hits: list[StoredHit]) -> Any:
        return hits if self.spoil is None else self.spoil(hits, self)
