"""A Qdrant server finds the groups that the embedded index finds, by exact search."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from langchain_qdrant import QdrantVectorStore, RetrievalMode
from qdrant_client import QdrantClient, models
from support.qdrant_parts import Server, store_of

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.errors import (
    GroupCallError,
    InvalidParameterError,
    UnsoundStoreError,
)
from langchain_dpicl.groups.stores import check_shard_store
from langchain_dpicl.groups.stores.contract import StoredHit
from langchain_dpicl.groups.stores.known_corpus import KnownEmbedding, known_corpus
from langchain_dpicl.groups.stores.qdrant.store import QdrantShards

QUESTION = np.asarray([KnownEmbedding().embed_query("Who coughs?")], np.float32)
QUESTION /= np.linalg.norm(QUESTION)
SALT = bytes(range(32))
TERMS: dict[str, Any] = {"unit_key": "unit", "n_groups": 4, "salt": SALT}
FEW = known_corpus()[:80]


def people(*units: Any, text: str = "Note.", **more: Any) -> list[Document]:
    return [Document(text, metadata={"unit": unit, **more}) for unit in units]


def everything(shards: QdrantShards) -> list[StoredHit]:
    """Assign every unit to one shard, and return what is found."""
    shards.assign(dict.fromkeys(shards.unit_values(), 0), 1)
    return shards.best(QUESTION, 1000, 1)


def units(hits: list[StoredHit]) -> set[Any]:
    return {hit.document.metadata["unit"] for hit in hits}


def draw(store: Any, **more: Any) -> list[list[Document]]:
    groups = RetrievedGroups.from_vectorstore(store, **{**TERMS, **more})
    return groups.draw("Who coughs?")


@pytest.mark.parametrize(
    "how",
    [
        {"name": "dense", "content_payload_key": "t", "metadata_payload_key": "m.m"},
        {},
    ],
)
def test_same_groups_as_the_embedded_index(how: dict[str, Any]) -> None:
    check_shard_store(
        lambda documents, embedding: QdrantShards(
            store_of(documents, embedding, **how), "unit"
        )
    )


def test_documents_as_they_were_put_in() -> None:
    documents = people("p-1", 7, visit=3, tags=["a", {"b": None}], note="é 🧪")
    documents = [
        one.model_copy(update={"id": f"00000000-0000-0000-0000-00000000000{number}"})
        for number, one in enumerate(documents)
    ]
    found = [
        hit.document for hit in everything(QdrantShards(store_of(documents), "unit"))
    ]
    assert sorted(found, key=lambda one: str(one.id)) == documents


def test_ids_that_are_numbers() -> None:
    store = store_of()
    store.add_texts(["Note."], [{"unit": "p-1"}], ids=[17])
    assert everything(QdrantShards(store, "unit"))[0].document.id == "17"


def test_one_grouped_exact_search() -> None:
    store = store_of(FEW)
    groups = RetrievedGroups.from_vectorstore(store, **TERMS)
    store.client.calls.clear()
    groups.draw("Who coughs?")
    assert store.client.calls == ["query_points_groups"]
    assert all(one.exact for one in store.client.searches)
    assert all(one.quantization.ignore for one in store.client.searches)


def test_every_search_of_a_server_is_exact() -> None:
    store = store_of(FEW)
    shards = QdrantShards(store, "unit")
    everything(shards)
    shards.above(QUESTION, 0)
    shards.of_units(QUESTION, ["p-3"])
    shards.of_shard(QUESTION, 0, 0)
    assert len(store.client.searches) >= 4
    assert all(one.exact for one in store.client.searches)


class ComesBackShort(Server):
    """Its grouped search leaves out groups, and the last points of others."""

    def query_points_groups(self, *args: Any, **kwargs: Any) -> Any:
        found = super().query_points_groups(*args, **kwargs)
        return models.GroupsResult(
            groups=[
                models.PointGroup(id=group.id, hits=group.hits[:2])
                for group in found.groups[:-1]
            ]
        )


def test_groups_that_come_back_short_are_asked_for_again() -> None:
    store = store_of(FEW, server=ComesBackShort)
    assert draw(store) == draw(store_of(FEW))
    assert store.client.calls.count("query_batch_points") == 1


class AlwaysShort(ComesBackShort):
    """It also answers for a single shard with less than there is."""

    def query_batch_points(self, collection: str, requests: list[Any]) -> Any:
        fewer = [one.model_copy(update={"limit": 1}) for one in requests]
        return super().query_batch_points(collection, fewer)


class OtherShards(Server):
    """It finds points that belong to other groups."""

    def query_points_groups(self, *args: Any, **kwargs: Any) -> Any:
        found = super().query_points_groups(*args, **kwargs)
        for group in found.groups:
            for point in group.hits:
                point.payload["langchain_dpicl_shard_4"] = group.id = 0
        return found


class Forgetful(Server):
    """Its points come back without their marks."""

    def query_points_groups(self, *args: Any, **kwargs: Any) -> Any:
        found = super().query_points_groups(*args, **kwargs)
        for group in found.groups:
            for point in group.hits:
                point.payload.pop("langchain_dpicl_shard_4")
        return found


@pytest.mark.parametrize("server", [AlwaysShort, OtherShards, Forgetful])
def test_a_server_that_does_not_keep_to_the_shards(server: type[Server]) -> None:
    with pytest.raises(UnsoundStoreError):
        draw(store_of(FEW, server=server))


@pytest.mark.parametrize(
    "change",
    [
        {"config.optimizer_config.indexing_threshold": 20_000},
        {"config.optimizer_config.indexing_threshold": None},
        {"indexed_vectors_count": 12},
        {
            "config.quantization_config": models.ScalarQuantization(
                scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8)
            )
        },
    ],
)
def test_what_may_have_a_shared_index_is_refused(change: dict[str, Any]) -> None:
    store = store_of(FEW)
    store.client.changes = change
    with pytest.raises(UnsoundStoreError, match="exact=True"):
        draw(store)
    assert draw(store, exact=True) == draw(store_of(FEW))


def test_an_index_that_is_switched_off() -> None:
    store = store_of(FEW)
    store.client.changes = {
        "config.optimizer_config.indexing_threshold": 20_000,
        "config.params.vectors.hnsw_config": models.HnswConfigDiff(m=0),
    }
    draw(store)


def test_an_index_configured_later_is_refused_at_the_next_draw() -> None:
    store = store_of(FEW)
    groups = RetrievedGroups.from_vectorstore(store, **TERMS)
    groups.draw("Who coughs?")
    store.client.changes = {"config.optimizer_config.indexing_threshold": 20_000}
    with pytest.raises(UnsoundStoreError):
        groups.draw("Who coughs?")


def test_what_cannot_be_searched() -> None:
    with pytest.raises(InvalidParameterError, match="by Dot"):
        QdrantShards(store_of(distance=models.Distance.DOT), "unit")
    with pytest.raises(InvalidParameterError, match="quotation mark"):
        QdrantShards(store_of(), 'a"b')
    with pytest.raises(InvalidParameterError, match="not a object"):
        QdrantShards(object(), "unit")
    other = QdrantVectorStore(
        store_of(name="dense").client,
        "notes",
        retrieval_mode=RetrievalMode.SPARSE,
        validate_embeddings=False,
        validate_collection_config=False,
    )
    with pytest.raises(InvalidParameterError, match="no dense vector"):
        QdrantShards(other, "unit")


def test_unit_ids_by_value_and_type() -> None:
    values = [7, "7", -1, 2**62, "a b", " a b", "患者-🧪", ""]
    shards = QdrantShards(store_of(people(*values)), "unit")
    assert set(shards.unit_values()) == set(values)
    everything(shards)
    assert units(shards.of_units(QUESTION, [7, 2**70, True, None])) == {7}
    assert units(shards.of_units(QUESTION, ["7", "a b"])) == {"7", "a b"}
    assert shards.of_units(QUESTION, [2**70]) == []
    assert shards.delete("7") == 1
    assert shards.delete(2**70) == 0
    assert set(shards.unit_values()) == {*values} - {"7"}


@pytest.mark.parametrize("value", [None, True, 7.5, ["p-1"], {"a": 1}])
def test_no_unit_id(value: Any) -> None:
    nobodys = [*people(value), Document("Note.", metadata={"other": 1})]
    shards = QdrantShards(store_of([*people("p-1"), *nobodys]), "unit")
    found = set(shards.unit_values())
    assert "p-1" in found
    assert found & {None, True, 7.5}
    shards.assign({"p-1": 0}, 1)
    assert units(shards.best(QUESTION, 9, 1)) == {"p-1"}
    assert shards.sizes(1) == [1]
    assert units(shards.of_units(QUESTION, ["p-1"])) == {"p-1"}
    assert shards.delete("p-1") == 1


def test_marks() -> None:
    store = store_of(people("p-1", "p-2", "p-3"))
    shards, others = QdrantShards(store, "unit"), QdrantShards(store, "unit")
    shards.assign({"p-1": 0, "p-2": 1, "p-3": 1}, 2)
    others.assign({"p-1": 4, "p-2": 4, "p-3": 0}, 5)
    assert shards.sizes(2) == [1, 2]
    assert others.sizes(5) == [1, 0, 0, 0, 2]
    # A unit in another shard: assigned with another salt, so all are replaced.
    shards.assign({"p-1": 1, "p-2": 1}, 2)
    assert shards.sizes(2) == [0, 2]
    shards.assign({"p-3": 0}, 2)
    assert shards.sizes(2) == [1, 2]
    # LangChain's own search shows nothing of them.
    assert "langchain_dpicl" not in str(store.similarity_search("Note."))


def test_points_written_later_count_after_a_refresh() -> None:
    store = store_of(FEW)
    groups = RetrievedGroups.from_vectorstore(store, **{**TERMS, "n_groups": 1})
    later = QdrantVectorStore(store.client, "notes", KnownEmbedding())
    later.add_documents(people("p-1", text="Who coughs?"))
    assert "Who coughs?" not in str(groups.draw("Who coughs?"))
    groups.refresh()
    assert "Who coughs?" in str(groups.draw("Who coughs?"))


class Broken(Server):
    """It fails, with a record's text in the error."""

    def query_points_groups(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("canary")


def test_errors_say_nothing_of_records() -> None:
    with pytest.raises(GroupCallError, match="RuntimeError") as caught:
        draw(store_of(FEW, server=Broken))
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


def test_a_server_that_is_not_there() -> None:
    store = store_of()
    store._client = QdrantClient("localhost", port=1, check_compatibility=False)
    with pytest.raises(GroupCallError, match="Qdrant could not be asked"):
        QdrantShards(store, "unit")


def test_searching_before_assigning() -> None:
    with pytest.raises(InvalidParameterError, match="assign"):
        QdrantShards(store_of(FEW), "unit").above(QUESTION, 0)
