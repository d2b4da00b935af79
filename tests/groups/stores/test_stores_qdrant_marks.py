"""Qdrant: what others do to a marked point takes it out of the corpus, and no more."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from langchain_core.documents import Document
from pydantic import TypeAdapter, ValidationError
from qdrant_client import models
from qdrant_client.http.exceptions import ResponseHandlingException
from support.qdrant_parts import Server, store_of

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.errors import GroupCallError, UnitError, UnsoundStoreError
from langchain_dpicl.groups.stores import check_shard_store
from langchain_dpicl.groups.stores.known_corpus import KnownEmbedding, known_corpus
from langchain_dpicl.groups.stores.qdrant.store import QdrantShards
from langchain_dpicl.groups.units import keyed_slot

SALT = bytes(range(32))
ASKED = "Who coughs?"
TERMS: dict[str, Any] = {
    "unit_key": "unit",
    "n_groups": 4,
    "docs_per_group": 2,
    "salt": SALT,
}
WAYS: list[dict[str, Any]] = [
    {},
    {"score_threshold": 0.2},
    {"score_threshold": -1.0},
    {"score_threshold": 0.2, "grouping": "unit"},
    {"score_threshold": -1.0, "grouping": "unit"},
]
FEW = known_corpus()[:40]
NAN = [math.nan] * 8
every_way = pytest.mark.parametrize("how", WAYS, ids=str)


def target(number: int = 0) -> Document:
    """Return a document that is the best one for the question."""
    name = f"00000000-0000-0000-0000-{number:012}"
    return Document(ASKED, metadata={"unit": "target"}, id=name)


def drawn(groups: RetrievedGroups) -> list[list[Any]]:
    """Return the ids in each slot; the order of units' slots is random."""
    slots = [[one.id for one in slot] for slot in groups.draw(ASKED)]
    return slots if groups._terms.grouping == "shard" else sorted(slots)


def opened(store: Any, **changes: Any) -> RetrievedGroups:
    return RetrievedGroups.from_vectorstore(store, **{**TERMS, **changes})


@cache
def without(**how: Any) -> list[list[Any]]:
    """Return what is drawn where nobody has been changed."""
    return drawn(opened(store_of(FEW), **how))


def shard_of(unit_id: str) -> int:
    return keyed_slot(SALT, unit_id, TERMS["n_groups"])


HOME = shard_of("target")
UNITS = {one.metadata["unit"] for one in FEW}
ELSEWHERE = next(unit for unit in sorted(UNITS) if shard_of(unit) != HOME)
NEIGHBOR = next(unit for unit in sorted(UNITS) if shard_of(unit) == HOME)
CHANGES: dict[str, dict[str, Any]] = {
    "a unit of another shard": {"unit": ELSEWHERE},
    "a unit of the same shard": {"unit": NEIGHBOR},
    "a new unit": {"unit": "merged-target"},
    "another type": {"unit": 7},
    "emptied": {},
    "a list": {"unit": ["target"]},
}


@every_way
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_point_whose_unit_was_changed(
    change: dict[str, Any], how: dict[str, Any]
) -> None:
    check_changed(1, change, how)


@every_way
def test_more_changed_points_than_a_group_takes(how: dict[str, Any]) -> None:
    check_changed(9, CHANGES["a unit of another shard"], how)


def check_changed(number: int, change: dict[str, Any], how: dict[str, Any]) -> None:
    """The mark stays in the payload, and counts no more."""
    targets = [target(i) for i in range(number)]
    store = store_of([*FEW, *targets])
    groups = opened(store, **how)
    ids = [str(one.id) for one in targets]
    assert any(own in str(drawn(groups)) for own in ids)
    store.client.set_payload("notes", {"metadata": change}, ids)
    assert drawn(groups) == without(**how)
    assert drawn(groups) == without(**how)
    if isinstance(change.get("unit"), str | int):
        groups.refresh()
        assert any(own in str(drawn(groups)) for own in ids)
    else:
        with pytest.raises(UnitError):
            groups.refresh()


def test_a_changed_point_is_asked_about_once() -> None:
    store = store_of([*FEW, target()])
    groups = opened(store)
    store.client.set_payload("notes", {"metadata": {"unit": ELSEWHERE}}, [target().id])
    groups.draw(ASKED)
    store.client.calls.clear()
    groups.draw(ASKED)
    assert store.client.calls.count("query_points_groups") == 1
    assert not {"scroll", "delete_payload", "retrieve"} & {*store.client.calls}


def test_a_changed_point_joins_its_new_unit() -> None:
    store = store_of([*FEW, target()])
    groups = opened(store)
    store.client.set_payload("notes", {"metadata": {"unit": ELSEWHERE}}, [target().id])
    groups.refresh()
    slots = drawn(groups)
    assert target().id in slots[shard_of(ELSEWHERE)]
    assert target().id not in slots[HOME]


def test_a_mark_that_a_known_unit_kept() -> None:
    """Another process assigned a unit that this one does not know."""
    store = store_of([*FEW, target()])
    shards = QdrantShards(store, "unit")
    shards.assign(dict.fromkeys(shards.unit_values(), 0), 1)
    shards.assign({"p-1": 0}, 1)
    assert shards.sizes(1) == [41]
    store.client.set_payload("notes", {"metadata": {"unit": "new"}}, [target().id])
    shards.assign({"p-1": 0}, 1)
    assert shards.sizes(1) == [40]


class KeepsChanging(Server):
    """Another writer marks the point as it likes, again and again."""

    def delete_payload(self, *args: Any, **kwargs: Any) -> None:
        pass


def test_a_point_that_stays_under_another_shard_stops_the_draw() -> None:
    store = store_of([*FEW, target()], server=KeepsChanging)
    groups = opened(store)
    store.client.set_payload("notes", {"metadata": {"unit": ELSEWHERE}}, [target().id])
    with pytest.raises(UnsoundStoreError):
        groups.draw(ASKED)


@every_way
@pytest.mark.parametrize("vector", [NAN, [0.0] * 8, None], ids=str)
@pytest.mark.parametrize("name", ["", "dense"])
def test_a_vector_that_cannot_be_compared(
    name: str, vector: Any, how: dict[str, Any]
) -> None:
    """A server takes them; NaN comes before everything that it finds."""
    store = store_of([*FEW, target()], name=name)
    store.client.vectors[target().id] = vector
    assert drawn(opened(store, **how)) == without(**how)


def test_only_what_can_be_compared_is_marked() -> None:
    store = store_of([*FEW, *(target(i) for i in range(3))])
    for i, vector in enumerate([NAN, [0.0] * 8, None]):
        store.client.vectors[target(i).id] = vector
    shards = QdrantShards(store, "unit")
    shards.assign(dict.fromkeys(shards.unit_values(), 0), 1)
    assert shards.sizes(1) == [40]


@every_way
@pytest.mark.parametrize("vector", [NAN, None], ids=str)
def test_a_vector_spoiled_later(vector: Any, how: dict[str, Any]) -> None:
    store = store_of([*FEW, target()])
    groups = opened(store, **how)
    store.client.vectors[target().id] = vector
    assert drawn(groups) == without(**how)


class OverREST(Server):
    """A client that can't read what a server answers for NaN: null."""

    def retrieve(self, collection: str, ids: list[Any], **kwargs: Any) -> Any:
        points = super().retrieve(collection, ids, **kwargs)
        if any(
            point.vector and not np.isfinite(point.vector).all() for point in points
        ):
            try:
                TypeAdapter(list[float]).validate_python([None])
            except ValidationError as error:
                raise ResponseHandlingException(error) from error
        return points


def test_vectors_that_the_client_cannot_read() -> None:
    store = store_of([*FEW, target()], server=OverREST)
    store.client.vectors[target().id] = NAN
    assert drawn(opened(store)) == without()


class NotThere(Server):
    def retrieve(self, collection: str, ids: list[Any], **kwargs: Any) -> Any:
        raise ResponseHandlingException(OSError("refused"))


def test_a_server_that_fails_is_no_spoiled_vector() -> None:
    with pytest.raises(GroupCallError):
        opened(store_of(FEW, server=NotThere))


def test_twin_marks_of_no_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Marks that are bound to nobody: one changed record fails whoever finds it."""
    monkeypatch.setattr(
        "langchain_dpicl.groups.stores.qdrant.marks.value_digest", lambda _: "same"
    )
    monkeypatch.setattr(
        "langchain_dpicl.groups.stores.qdrant.marks.value_digest", lambda _: "same"
    )
    store = store_of([*FEW, target()])
    groups = opened(store)
    store.client.set_payload("notes", {"metadata": {"unit": ELSEWHERE}}, [target().id])
    with pytest.raises(UnsoundStoreError):
        groups.draw(ASKED)


def test_a_server_that_hides_points() -> None:
    class Hides(Server):
        def answer(self, request: models.QueryRequest) -> Any:
            found = super().answer(request)
            return found.model_copy(update={"points": found.points[:5]})

    with pytest.raises(UnsoundStoreError):
        opened(store_of(FEW, server=Hides), score_threshold=-1.0, grouping="unit").draw(
            ASKED
        )
    with pytest.raises((AssertionError, UnsoundStoreError)):
        check_shard_store(
            lambda documents, embedding: QdrantShards(
                store_of(documents, embedding or KnownEmbedding(), server=Hides), "unit"
            )
        )
