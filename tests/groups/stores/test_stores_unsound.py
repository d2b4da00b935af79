"""What a store must not return: the draw fails, the charge stays, nothing is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.documents import Document
from support.chain_parts import PARSERS, QUESTION, reply
from support.fakes import AsyncScriptedModel
from support.list_store import ListStore
from support.store_parts import (
    account,
    ids,
    opened,
    records,
    searching,
    shared,
    spoiled,
)

from langchain_dpicl import DPChain, GroupCallError, UnsoundStoreError
from langchain_dpicl.budget import charges
from langchain_dpicl.groups.stores import StoredHit
from langchain_dpicl.groups.stores.checking import Hit
from langchain_dpicl.groups.stores.searching import StoreSearch

CANARY = "canary-7f3a"

Spoil = Callable[[list[StoredHit], ListStore], Any]


def documents() -> list[Document]:
    return [
        Document(f"{one.page_content} {CANARY}", metadata=one.metadata, id=one.id)
        for one in records(60, 0)
    ]


def elsewhere(hits: list[StoredHit], store: ListStore) -> Any:
    """Tell a record's place wrongly, as a store does whose shards were changed."""
    return [hits[0]._replace(shard=(hits[0].shard + 1) % 5), *hits[1:]]


def ignores_the_filter(hits: list[StoredHit], store: ListStore) -> Any:
    """Give the same best of all for every shard."""
    best = sorted(hits, key=lambda hit: -hit.score)[:5]
    return [hit._replace(shard=shard) for shard in range(5) for hit in best]


def late_filter(hits: list[StoredHit], store: ListStore) -> Any:
    """Keep the best of all, and filter those: shards come back short."""
    return sorted(hits, key=lambda hit: -hit.score)[:12]


def twice(hits: list[StoredHit], store: ListStore) -> Any:
    return [hits[0], hits[0], *hits[2:]]


def one_more(hits: list[StoredHit], store: ListStore) -> Any:
    known = {hit.document.id for hit in hits}
    more = [
        StoredHit(document, -0.5, shard)
        for document, shard, _ in store.assigned()
        if document.id not in known and shard == hits[0].shard
    ]
    return [*hits, *more[:1]]


def scored(score: Any) -> Spoil:
    return lambda hits, store: [hits[0]._replace(score=score), *hits[1:]]


def renamed(unit: Any) -> Spoil:
    def spoil(hits: list[StoredHit], store: ListStore) -> Any:
        other = Document(CANARY, metadata={"patient": unit}, id="other")
        return [hits[0]._replace(document=other), *hits[1:]]

    return spoil


def without_id(hits: list[StoredHit], store: ListStore) -> Any:
    other = Document(CANARY, metadata=hits[0].document.metadata)
    return [hits[0]._replace(document=other), *hits[1:]]


EVERYWHERE: dict[str, Spoil] = {
    "another shard": elsewhere,
    "twice": twice,
    "NaN": scored(float("nan")),
    "infinity": scored(float("inf")),
    "no cosine": scored(1.01),
    "no number": scored(CANARY),
    "a unit of another shard": renamed("unit-0 of nowhere"),
    "no unit": renamed(None),
    "a unit that is no id": renamed(1.5),
    "no id": without_id,
    "no list": lambda hits, store: None,
    "no hits": lambda hits, store: [CANARY],
    "no document": lambda hits, store: [hits[0]._replace(document=CANARY)],
    "a shard that is no number": lambda hits, store: [hits[0]._replace(shard=CANARY)],
    "no such shard": lambda hits, store: [hits[0]._replace(shard=99)],
}
ONLY_BEST: dict[str, Spoil] = {
    "filter ignored": ignores_the_filter,
    "short": late_filter,
    "empty": lambda hits, store: [],
    "one more": one_more,
}


def chain_over(groups: Any, budget: Any) -> DPChain:
    model = AsyncScriptedModel(reply=reply)
    return DPChain(groups=groups, model=model, parser=PARSERS["vote"](), budget=budget)


async def refused(store: Any, error: type[Exception], **terms: Any) -> None:
    """Ask a chain twice: it fails, has paid, and says nothing of why."""
    budget = account("unit" if "score_threshold" in terms else "corpus")
    chain = chain_over(opened(store, n_groups=5, **terms), budget)
    chain.groups.draw(QUESTION)
    store.spoil = store.later
    for paid in (1, 2):
        with pytest.raises(error) as caught:
            if paid == 1:
                chain.invoke(QUESTION)
            else:
                await chain.ainvoke(QUESTION)
        assert type(caught.value) is error
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
        assert CANARY not in repr(caught.value)
        assert "unit-" not in repr(caught.value)
        if error is UnsoundStoreError:
            assert caught.value.args[0].startswith("BadStore returned")
        assert len(charges(budget.ledger, "default")) == paid


@pytest.mark.parametrize("name", [*EVERYWHERE, *ONLY_BEST])
async def test_a_spoiled_search_of_shards(name: str) -> None:
    store = spoiled(documents())
    store.later = {**EVERYWHERE, **ONLY_BEST}[name]
    await refused(store, UnsoundStoreError)


@pytest.mark.parametrize("name", list(EVERYWHERE))
async def test_a_spoiled_search_by_threshold(name: str) -> None:
    store = spoiled(documents())
    store.later = EVERYWHERE[name]
    await refused(store, UnsoundStoreError, score_threshold=0.1)


async def test_an_error_of_the_store_is_not_told() -> None:
    def fails(hits: list[StoredHit], store: ListStore) -> Any:
        raise RuntimeError(CANARY, *hits)

    for terms in ({}, {"score_threshold": 0.1}):
        store = spoiled(documents())
        store.later = fails
        await refused(store, GroupCallError, **terms)


def test_a_store_that_answers_short_once_is_asked_again() -> None:
    """Others wrote between the search and the count."""
    store = spoiled(documents())
    groups = opened(store, n_groups=5)
    expected = ids(groups.draw(QUESTION))
    spoils = [late_filter]
    store.spoil = lambda hits, _: spoils.pop()(hits, _) if spoils else hits
    assert ids(groups.draw(QUESTION)) == expected
    assert not spoils


class Late(ListStore):
    """An index of all records appears after the store was opened."""

    indexed = False

    def refuse_unsound(self, *, exact: bool) -> None:
        if self.indexed and not exact:
            raise UnsoundStoreError("There is an HNSW index.")


def test_an_index_that_appears_later_is_refused_at_the_next_draw() -> None:
    store = searching(documents(), Late)
    plain, threshold = opened(store), opened(store, score_threshold=0.1)
    store.indexed = True
    for call in (plain.draw, threshold.draw, lambda _: plain.refresh()):
        with pytest.raises(UnsoundStoreError, match="HNSW"):
            call(QUESTION)
    with pytest.raises(UnsoundStoreError, match="HNSW"):
        opened(store)
    assert opened(store, exact=True).draw(QUESTION)


def test_two_assignments_of_one_store_do_not_mix() -> None:
    """The later one took the shards over: the earlier fails, and says what to do."""
    store = searching(documents())
    earlier, later = opened(store, n_groups=5), opened(store, n_groups=6)
    assert len(later.draw(QUESTION)) == 6
    with pytest.raises(UnsoundStoreError, match=r"build the groups again"):
        earlier.draw(QUESTION)
    earlier.refresh()
    assert len(earlier.draw(QUESTION)) == 5


def trusting(self: StoreSearch, vector: Any, n: int) -> list[list[Hit]]:
    """Believe the store: the twin of the check."""
    slots: list[list[Hit]] = [[] for _ in range(5)]
    for document, score, shard in self.store.best(vector, n, 5):
        unit = document.metadata["patient"]
        slots[shard].append(Hit(document, document.id, unit, unit, shard, score))
    return slots


@pytest.mark.parametrize("name", ["filter ignored", "twice"])
def test_without_the_check_the_same_stores_spoil_the_groups(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = spoiled(documents())
    groups = opened(store, n_groups=5)
    assert not tangled(groups.draw(QUESTION))
    store.spoil = {**EVERYWHERE, **ONLY_BEST}[name]
    with pytest.raises(UnsoundStoreError):
        groups.draw(QUESTION)
    monkeypatch.setattr(StoreSearch, "_best", trusting)
    assert tangled(groups.draw(QUESTION))


def tangled(slots: list[list[Document]]) -> bool:
    """Tell whether a unit is in two slots, or a document twice in one."""
    found = [document for slot in ids(slots) for document in slot]
    return bool(shared(slots)) or len(set(found)) < len(found)


def test_without_the_count_a_late_filter_ties_units_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Removing one unit changes several slots: what comes back short must fail."""

    def drawn(corpus: list[Document]) -> list[list[str | None]]:
        store = spoiled(corpus)
        groups = opened(store, n_groups=5)
        store.spoil = lambda hits, _: sorted(hits, key=by_score)[:12]
        return ids(groups.draw(QUESTION))

    with pytest.raises(UnsoundStoreError, match="fewer"):
        drawn(documents())
    monkeypatch.setattr(StoreSearch, "_best", trusting)
    before = drawn(documents())
    gone = {one.metadata["patient"] for one in documents() if one.id == before[0][0]}
    rest = [one for one in documents() if one.metadata["patient"] not in gone]
    changed = sum(one != two for one, two in zip(before, drawn(rest), strict=True))
    assert changed > 1


def by_score(hit: StoredHit) -> tuple[float, str]:
    return -hit.score, hit.document.id or ""
