"""One unit more or less changes one slot, when a store searches by itself too."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import pytest
from langchain_core.documents import Document
from support.groups_fakes import (
    QUESTION,
    SALT,
    Till,
    WordEmbedding,
    contents,
)
from support.list_store import ListStore
from support.neighbor_checks import (
    M,
    Slots,
    check_disjoint,
    check_insertion_order,
    check_one_place,
    run,
)
from support.store_check import check_shard_store

from langchain_dpicl import RetrievedGroups, UnsoundStoreError
from langchain_dpicl.groups.stores import StoredHit

EXAMPLES = 60


def named(documents: list[Document]) -> list[Document]:
    """Give each document an id that depends on its own unit's documents alone."""
    seen: Counter[tuple[str, str]] = Counter()
    result = []
    for document in documents:
        own = document.metadata["unit"], document.page_content
        seen[own] += 1
        name = uuid.uuid5(uuid.NAMESPACE_OID, f"{own} {seen[own]}")
        result.append(document.model_copy(update={"id": str(name)}))
    return result


def live(
    documents: list[Document], store: type[ListStore] = ListStore, **terms: Any
) -> RetrievedGroups:
    # Somebody is there in every corpus: an empty store cannot be opened.
    others = [Document("nausea", metadata={"unit": f"o{i}"}) for i in range(M)]
    embedding = WordEmbedding()
    size = embedding.size
    return RetrievedGroups.from_vectorstore(
        store(named([*others, *documents]), embedding, dimension=size),
        **{
            "unit_key": "unit",
            "n_groups": M,
            "docs_per_group": 2,
            "salt": SALT,
            **terms,
        },
    )


def by_shard(documents: list[Document], _: dict[str, int]) -> Slots:
    return contents(live(documents).draw(QUESTION))


def by_threshold(documents: list[Document], _: dict[str, int]) -> Slots:
    return contents(live(documents, score_threshold=0.5).draw(QUESTION))


def by_those_who_pay(documents: list[Document], words: dict[str, int]) -> Slots:
    groups = live(documents, score_threshold=0.5)
    till = Till(unit for unit, word in words.items() if word % 3 == 0)
    return contents(groups.draw_prepared(groups.prepare(QUESTION), collect=till))


REPLACE = [by_shard, by_threshold, by_those_who_pay]


@pytest.mark.parametrize("drawer", REPLACE)
def test_no_unit_sits_in_two_slots(drawer: Any) -> None:
    run(check_disjoint(drawer), examples=EXAMPLES)


@pytest.mark.parametrize("drawer", REPLACE)
def test_one_unit_changes_one_numbered_slot(drawer: Any) -> None:
    run(check_one_place(drawer), examples=EXAMPLES)


@pytest.mark.parametrize("drawer", REPLACE)
def test_slots_do_not_depend_on_insertion_order(drawer: Any) -> None:
    run(check_insertion_order(drawer), examples=EXAMPLES)


class CutsTies(ListStore):
    """Says that nothing ties with the last place."""

    def best(self, vector: Any, n: int, n_shards: int) -> list[StoredHit]:
        hits = super().best(vector, n, n_shards)
        self.last = {hit.document.id for hit in hits}
        return hits

    def of_shard(self, vector: Any, shard: int, score: float) -> list[StoredHit]:
        hits = super().of_shard(vector, shard, score)
        return [hit for hit in hits if hit.document.id in self.last]


class RoundsDown(ListStore):
    """Leaves out who reaches the threshold exactly, if others are above it."""

    def above(self, vector: Any, threshold: float) -> list[StoredHit]:
        hits = super().above(vector, threshold)
        best = max((hit.score for hit in hits), default=0.0)
        return [hit for hit in hits if hit.score > 0.8 * best]


def test_twins_depend_on_others() -> None:
    """Defects that no check at a draw can see: the conformance test does."""

    def cut(documents: list[Document], _: dict[str, int]) -> Slots:
        return contents(live(documents, CutsTies).draw(QUESTION))

    def relative(documents: list[Document], _: dict[str, int]) -> Slots:
        groups = live(documents, RoundsDown, score_threshold=0.5)
        asked = groups.prepare(QUESTION)
        return contents(groups.draw_prepared(asked, collect=Till()))

    with pytest.raises(AssertionError):
        run(check_insertion_order(cut), twin=True, examples=400)
    with pytest.raises(AssertionError):
        run(check_one_place(relative), twin=True, examples=400)


@pytest.mark.parametrize("adapter", [CutsTies, RoundsDown])
def test_the_conformance_test_sees_both(adapter: type[ListStore]) -> None:
    with pytest.raises((AssertionError, UnsoundStoreError), match=adapter.__name__):
        check_shard_store(adapter)
