"""Qdrant is read out, and never asked to search: here its local mode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_qdrant import QdrantVectorStore, RetrievalMode
from qdrant_client import QdrantClient, models
from support.known_corpus import (
    DIMENSION,
    KnownEmbedding,
    known_corpus,
)
from support.store_check import check_vector_reader

from langchain_dpicl import InvalidParameterError, RetrievedGroups
from langchain_dpicl.errors import GroupCallError
from langchain_dpicl.groups.stores.opening import adapter_of
from langchain_dpicl.groups.stores.readers import QdrantReader

SALT = bytes(range(32))
ASKED = "Who coughs?"
FEW = known_corpus()[:80]


def local(
    documents: Sequence[Document] = (),
    embedding: Embeddings | None = None,
    *,
    name: str = "",
    distance: models.Distance = models.Distance.COSINE,
    client: QdrantClient | None = None,
    **keys: Any,
) -> QdrantVectorStore:
    """Return a store of the local mode that holds some documents."""
    own = client or QdrantClient(":memory:")
    params = models.VectorParams(size=DIMENSION, distance=distance)
    own.create_collection("notes", vectors_config={name: params} if name else params)
    store = QdrantVectorStore(
        own,
        "notes",
        embedding or KnownEmbedding(),
        vector_name=name,
        distance=distance,
        **keys,
    )
    if documents:
        store.add_documents(list(documents))
    return store


def slots(store: Any) -> list[list[str | None]]:
    groups = RetrievedGroups.from_vectorstore(
        store, unit_key="unit", n_groups=4, salt=SALT
    )
    return [[one.id for one in slot] for slot in groups.draw(ASKED)]


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"name": "dense", "content_payload_key": "t", "metadata_payload_key": "m.m"},
        *({"distance": one} for one in models.Distance),
    ],
    ids=str,
)
def test_same_groups_as_the_embedded_index(how: dict[str, Any]) -> None:
    check_vector_reader(
        lambda documents, embedding: QdrantReader(local(documents, embedding, **how))
    )


def test_which_adapter() -> None:
    assert isinstance(adapter_of(local(), "unit"), QdrantReader)


def test_a_directory(tmp_path: Path) -> None:
    client = QdrantClient(path=str(tmp_path / "notes"))
    store = local(FEW, client=client)
    assert isinstance(adapter_of(store, "unit"), QdrantReader)
    assert slots(store) == slots(local(FEW))
    client.close()


class NeverSearched(QdrantClient):
    """It fails when it is asked to search."""

    def _search(self, *args: Any, **kwargs: Any) -> Any:
        raise AssertionError("The local mode was searched.")

    query_points = query_points_groups = query_batch_points = _search
    search_matrix_pairs = search_matrix_offsets = _search


def test_it_is_never_asked_to_search() -> None:
    """A search of the local mode changes all stored vectors, so that scores drift."""
    store = local(FEW, client=NeverSearched(":memory:"))
    groups = RetrievedGroups.from_vectorstore(
        store, unit_key="unit", n_groups=4, score_threshold=0.2
    )
    before = stored(store)
    first = groups.draw(ASKED)
    for _ in range(3):
        assert groups.draw(ASKED) == first
    groups.add_documents([Document("Note.", metadata={"unit": "new"})])
    assert groups.delete_unit("new") == 1
    assert stored(store) == before


def stored(store: QdrantVectorStore) -> dict[Any, Any]:
    points, _ = store.client.scroll("notes", limit=1000, with_vectors=True)
    return {point.id: point.vector for point in points}


def test_searches_of_others_change_no_draw() -> None:
    """They scale the stored vectors again; what was read out stays."""
    store = local(FEW)
    groups = RetrievedGroups.from_vectorstore(store, unit_key="unit", n_groups=4)
    before = groups.draw(ASKED)
    for _ in range(3):
        store.similarity_search(ASKED)
    assert groups.draw(ASKED) == before


def test_many_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("langchain_dpicl.groups.stores.readers._PAGE", 7)
    found = list(QdrantReader(local(FEW)).read())
    assert sorted(str(one.id) for one, _ in found) == sorted(str(o.id) for o in FEW)


def test_documents_as_they_were_put_in() -> None:
    given = [one.model_copy(deep=True) for one in FEW]
    found = [one for one, _ in QdrantReader(local(FEW)).read()]
    assert sorted(found, key=lambda one: str(one.id)) == sorted(
        given, key=lambda one: str(one.id)
    )


def test_ids_that_are_numbers() -> None:
    store = local()
    store.add_texts(["Note."] * 2, [{"unit": "p-1"}, {"unit": "p-2"}], ids=[17, 2**63])
    groups = RetrievedGroups.from_vectorstore(store, unit_key="unit", n_groups=1)
    assert {one.id for one in groups.draw(ASKED)[0]} == {"17", str(2**63)}
    assert groups.delete_unit("p-1") == groups.delete_unit("p-2") == 1
    assert stored(store) == {}


def test_points_without_a_vector_are_not_found_and_can_be_erased() -> None:
    store = local(FEW, name="dense")
    empty = {"page_content": "Note.", "metadata": {"unit": "p-1"}}
    store.client.upsert(
        "notes", [models.PointStruct(id=5, vector={}, payload=empty)], wait=True
    )
    assert slots(store) == slots(local(FEW))
    groups = RetrievedGroups.from_vectorstore(store, unit_key="unit", n_groups=1)
    own = sum(one.metadata["unit"] == "p-1" for one in FEW)
    assert groups.delete_unit("p-1") == own + 1


class Zero(KnownEmbedding):
    """Of some texts it makes the zero vector."""

    def embed_query(self, text: str) -> list[float]:
        vector = super().embed_query(text)
        return list(np.zeros(len(vector))) if text == "..." else vector


@pytest.mark.parametrize("distance", [models.Distance.COSINE, models.Distance.DOT])
def test_a_vector_without_a_direction_is_left_out(distance: models.Distance) -> None:
    store = local(FEW, Zero(), distance=distance)
    store.add_documents([Document("...", metadata={"unit": "evil"})])
    assert slots(store) == slots(local(FEW))


def test_infinite_numbers_are_left_out() -> None:
    store = local(FEW)
    point = models.PointStruct(
        id=5, vector=[np.inf] * 8, payload={"metadata": {"unit": "evil"}}
    )
    with np.errstate(invalid="ignore"):
        store.client.upsert("notes", [point])
    assert slots(store) == slots(local(FEW))


def test_what_cannot_be_read() -> None:
    store = local(name="dense")
    sparse = QdrantVectorStore(
        store.client,
        "notes",
        retrieval_mode=RetrievalMode.SPARSE,
        validate_embeddings=False,
        validate_collection_config=False,
    )
    with pytest.raises(InvalidParameterError, match="no dense vector"):
        QdrantReader(sparse)
    store.client.delete_collection("notes")
    with pytest.raises(GroupCallError):
        QdrantReader(store)
