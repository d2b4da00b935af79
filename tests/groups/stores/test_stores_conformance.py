"""Every store gives the groups of the embedded index; a wrong adapter is told so."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import chromadb
import numpy as np
import pytest
from chromadb.config import Settings
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from support.list_store import ListStore
from support.store_parts import chroma_client

from langchain_dpicl.errors import UnsoundStoreError
from langchain_dpicl.groups.stores import (
    StoredHit,
    VectorReader,
    check_shard_store,
    check_vector_reader,
)
from langchain_dpicl.groups.stores.known_corpus import (
    QUESTIONS,
    KnownEmbedding,
    known_corpus,
)
from langchain_dpicl.groups.stores.readers import ChromaReader, InMemoryReader

QUIET = Settings(anonymized_telemetry=False)


def in_memory(documents: Any, embedding: Embeddings) -> InMemoryReader:
    store = InMemoryVectorStore(embedding)
    store.add_documents(list(documents))
    return InMemoryReader(store)


def chroma(client: Any) -> Callable[..., ChromaReader]:
    def make(documents: Any, embedding: Embeddings) -> ChromaReader:
        store = Chroma(f"c{uuid.uuid4().hex}", embedding, client=client)
        store.add_documents(list(documents))
        return ChromaReader(store)

    return make


def test_the_in_memory_store_conforms() -> None:
    check_vector_reader(in_memory)


def test_chroma_in_memory_conforms() -> None:
    check_vector_reader(chroma(chroma_client()))


def test_chroma_on_disk_conforms(tmp_path: Path) -> None:
    check_vector_reader(chroma(chromadb.PersistentClient(str(tmp_path), QUIET)))


def test_chroma_read_page_by_page_conforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langchain_dpicl.groups.stores.readers._PAGE", 50)
    monkeypatch.setattr("langchain_dpicl.groups.stores.snapshot._BATCH", 70)
    check_vector_reader(chroma(chroma_client()))


def test_a_store_that_searches_a_list_conforms() -> None:
    check_shard_store(ListStore)


def test_rounding_decides_nothing_in_the_known_corpus() -> None:
    embedding = KnownEmbedding()
    texts = sorted({document.page_content for document in known_corpus()})
    vectors = np.asarray(embedding.embed_documents(texts), np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for question in QUESTIONS:
        vector = np.asarray(embedding.embed_query(question))
        scores = np.sort(vectors @ vector / np.linalg.norm(vector))
        assert np.diff(scores).min() > 1e-5
        for threshold in (0.0, 0.4, 0.95):
            assert np.abs(scores - threshold).min() > 1e-5
    assert len(texts) < len(known_corpus()) / 3  # They repeat: scores tie.


class Inner(ListStore):
    """Compares by inner products of vectors as they came."""

    def add_documents(self, documents: list[Document]) -> None:
        texts = [document.page_content for document in documents]
        vectors = np.asarray(self.embeddings.embed_documents(texts))
        self.rows += zip(documents, vectors / 4, strict=True)


class Renames(ListStore):
    def hits(self, vector: Any) -> list[StoredHit]:
        return [
            hit._replace(
                document=Document(
                    hit.document.page_content,
                    metadata={**hit.document.metadata, "_score": hit.score},
                    id=hit.document.id,
                )
            )
            for hit in super().hits(vector)
        ]


class OneSpelling(ListStore):
    """Takes 7 and "7" for two units, and forgets one of them."""

    def unit_values(self) -> list[Any]:
        return [value for value in super().unit_values() if value != 7]


class Unassigned(ListStore):
    """Shows records of units that were never assigned."""

    def assigned(self) -> list[tuple[Document, int, np.ndarray]]:
        return [
            (document, self.shards.get(self.value(document), 0), vector)
            for document, vector in self.rows
        ]


class KeepsShards(ListStore):
    """Does not replace what was assigned before."""

    def assign(self, shard_of: Any, n_shards: int) -> None:
        self.shards = {**shard_of, **self.shards}


class DropsNobodys(ListStore):
    def unit_values(self) -> list[Any]:
        return [value for value in super().unit_values() if value is not None]


class LimitBeforeFilter(ListStore):
    def of_shard(self, vector: Any, shard: int, score: float) -> list[StoredHit]:
        return super().of_shard(vector, shard, score)[:5]


class AboveHasALimit(ListStore):
    def above(self, vector: Any, threshold: float) -> list[StoredHit]:
        best = sorted(self.hits(vector), key=lambda hit: -hit.score)
        return [hit for hit in best[:50] if hit.score >= threshold]


class DeletesNothing(ListStore):
    def delete(self, value: Any) -> int:
        return 1


class WrongSizes(ListStore):
    def sizes(self, n_shards: int) -> list[int]:
        return [0] * n_shards


@pytest.mark.parametrize(
    "adapter",
    [
        Inner,
        Renames,
        OneSpelling,
        Unassigned,
        KeepsShards,
        DropsNobodys,
        LimitBeforeFilter,
        AboveHasALimit,
        DeletesNothing,
        WrongSizes,
    ],
)
def test_a_wrong_adapter_is_told_what_differs(adapter: type[ListStore]) -> None:
    with pytest.raises((AssertionError, UnsoundStoreError)):
        check_shard_store(adapter)


class Reads(VectorReader):
    """Reads a list, as it is."""

    def __init__(self, documents: Any, embedding: Embeddings) -> None:
        documents = list(documents)
        texts = [document.page_content for document in documents]
        vectors = embedding.embed_documents(texts)
        self.rows = list(zip(documents, vectors, strict=True))

    def read(self) -> Iterator[tuple[Document, Any]]:
        yield from self.rows

    def delete(self, document_ids: Any) -> None:
        self.rows = [row for row in self.rows if row[0].id not in document_ids]


class ReadsLate(Reads):
    def read(self) -> Iterator[tuple[Document, Any]]:
        yield from self.rows[:-1]


class ReadsOtherVectors(Reads):
    def read(self) -> Iterator[tuple[Document, Any]]:
        yield from ((one, vector[::-1]) for one, vector in self.rows)


class ReadsNoText(Reads):
    def read(self) -> Iterator[tuple[Document, Any]]:
        for one, vector in self.rows:
            yield Document("", metadata=one.metadata, id=one.id), vector


class ReadsForever(Reads):
    def delete(self, document_ids: Any) -> None:
        pass


def test_a_reader_of_a_list_conforms() -> None:
    check_vector_reader(Reads)


@pytest.mark.parametrize(
    "adapter", [ReadsLate, ReadsOtherVectors, ReadsNoText, ReadsForever]
)
def test_a_wrong_reader_is_told_what_differs(adapter: type[Reads]) -> None:
    with pytest.raises(AssertionError, match=adapter.__name__):
        check_vector_reader(adapter)
