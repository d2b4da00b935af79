"""Every store gives the groups of the embedded index."""

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
from support.known_corpus import (
    QUESTIONS,
    KnownEmbedding,
    known_corpus,
)
from support.list_store import ListStore
from support.store_check import check_shard_store, check_vector_reader
from support.store_parts import chroma_client

from langchain_dpicl.errors import UnsoundStoreError
from langchain_dpicl.groups.stores import StoredHit, VectorReader
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


class LimitBeforeFilter(ListStore):
    def of_shard(self, vector: Any, shard: int, score: float) -> list[StoredHit]:
        return super().of_shard(vector, shard, score)[:5]


@pytest.mark.parametrize("adapter", [OneSpelling, Unassigned, LimitBeforeFilter])
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


def test_a_reader_of_a_list_conforms() -> None:
    check_vector_reader(Reads)


def test_a_wrong_reader_is_told_what_differs() -> None:
    with pytest.raises(AssertionError, match="ReadsLate"):
        check_vector_reader(ReadsLate)
