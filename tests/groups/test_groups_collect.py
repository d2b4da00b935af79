"""What a draw asks of `collect`, and what it makes of the answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from support.groups_fakes import (
    QUESTION,
    SALT,
    Till,
    contents,
    note,
    retrieved,
)
from support.paying_parts import NAMES, SHARD, Slots, Spread, draw

from langchain_dpicl.errors import InvalidParameterError, LedgerError
from langchain_dpicl.groups import (
    Collect,
    GroupSource,
    SampledGroups,
    shards,
)
from langchain_dpicl.mechanisms.random import SeededRandom


def test_a_unit_is_asked_under_its_one_spelling() -> None:
    documents = [note(7, "rash"), note(" 7 ", "cough"), note("7", QUESTION)]
    assert draw(documents, (), {**SHARD, "n_groups": 1})[1] == ["7"]


@pytest.mark.parametrize("terms", [SHARD])
def test_a_failing_ledger_stops_the_draw(terms: Any) -> None:
    def down(unit_ids: Iterable[str]) -> set[str]:
        raise LedgerError("The ledger is down.")

    groups = retrieved([note(i, QUESTION) for i in range(6)], **terms)
    with pytest.raises(LedgerError, match="is down"):
        groups.draw_prepared(groups.prepare(QUESTION), collect=down)


@pytest.mark.parametrize("terms", [SHARD])
def test_a_draw_sees_one_snapshot(terms: Any) -> None:
    documents = [note(f"p{i}", f"rash {i}") for i in range(6)]
    terms = {**terms, "docs_per_group": 9, "random": SeededRandom(1)}
    expected = retrieved(documents, **terms).draw(QUESTION)
    groups = retrieved(documents, **terms)

    def meanwhile(unit_ids: Iterable[str]) -> set[str]:
        groups.add_documents([note("new", QUESTION), note("p1", QUESTION)])
        groups.delete_unit("p2")
        return {*unit_ids}

    drawn = groups.draw_prepared(groups.prepare(QUESTION), collect=meanwhile)
    assert drawn == expected
    assert groups.n_units == 6


def test_threads_find_the_same(monkeypatch: Any) -> None:
    documents = [note(i % 20, f"text {i}") for i in range(80)]

    def drawn(terms: dict[str, Any]) -> Slots:
        terms = {**terms, "score_threshold": 0.0, "n_groups": 7, "embedding": Spread()}
        return draw(documents, {"3", "4", "5"}, {"random": SeededRandom(1), **terms})[0]

    sequential = drawn(SHARD)
    monkeypatch.setattr(shards, "_PARALLEL_FROM", 0)
    monkeypatch.setattr(shards, "_cores", lambda: 3)
    assert drawn(SHARD) == sequential


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from([1, 2, 3, 7, 8, 31, 384]),
    st.integers(1, 40),
    st.integers(0, 2**32 - 1),
)
def test_all_searches_compute_the_same_scores(size: Any, n: Any, seed: Any) -> None:
    # Eligibility comes from one FAISS routine, the order in a slot from another.
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((n, size)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    documents = [note(i, "text") for i in range(n)]
    ids = [str(i) for i in range(n)]
    index = shards.ShardIndex.from_vectors(
        vectors, documents, ids, n_shards=1, salt=SALT
    )
    question = rng.standard_normal((1, size)).astype(np.float32)
    question /= np.linalg.norm(question)
    [shard] = index.shards
    scores, rows = shard.index.search(question, n)
    whole = dict(zip(rows[0], scores[0], strict=True))
    hits = shard.hits(question, -1.0)
    assert dict(zip(hits.rows, hits.scores, strict=True)) == whole


class OldSource(GroupSource):
    """A source from before there were per-unit accounts."""

    relation = None
    n_groups = 1
    unit_key = "unit"
    description: dict[str, Any] = {}  # noqa: RUF012  # as short as a source can be

    def prepare(self, question: str) -> str:
        return question

    def draw_prepared(self, prepared: str) -> list[list[Document]]:
        return [[Document(prepared)]]


class NewSource(OldSource):
    charges_units = True

    def draw_prepared(
        self, prepared: str, *, collect: Collect | None = None
    ) -> list[list[Document]]:
        assert collect is not None
        return [[Document(f"{prepared} {collect(['a'])}")]]


async def test_custom_sources_of_the_old_signature_go_on_working() -> None:
    source = OldSource()
    assert source.charges_units is False
    assert contents_of(source.draw("q")) == ["q"]
    assert contents_of(await source.adraw("q")) == ["q"]
    assert contents_of(await source.adraw_prepared("q")) == ["q"]


async def test_the_async_twin_hands_collect_on() -> None:
    drawn = await NewSource().adraw_prepared("q", collect=Till())
    assert contents_of(drawn) == ["q {'a'}"]
    groups = retrieved([note(name, QUESTION) for name in NAMES], **SHARD)
    till = Till(NAMES[1:])
    prepared = await groups.aprepare(QUESTION)
    slots = await groups.adraw_prepared(prepared, collect=till)
    assert [slot for slot in contents(slots) if slot] == [(("p0", QUESTION),)]
    assert till.asked == [NAMES]


def contents_of(slots: list[list[Document]]) -> list[str]:
    return [document.page_content for slot in slots for document in slot]


@pytest.mark.parametrize(
    ("terms", "charges"),
    [
        ({}, False),
        (SHARD, True),
    ],
)
def test_a_threshold_is_what_lets_units_be_charged(terms: Any, charges: Any) -> None:
    groups = retrieved([note(i, "rash") for i in range(6)], **terms)
    assert groups.charges_units is charges


def test_sources_that_cannot_charge_units_refuse() -> None:
    documents = [note(i, "rash") for i in range(6)]
    sampled = SampledGroups.from_documents(
        documents, unit_key="unit", n_groups=2, sampling_rate=0.5
    )
    assert sampled.charges_units is False
    till = Till()
    for groups in (retrieved(documents), sampled):
        prepared = groups.prepare(QUESTION)
        with pytest.raises(InvalidParameterError, match="cannot charge units"):
            groups.draw_prepared(prepared, collect=till)
        assert len(groups.draw_prepared(prepared, collect=None)) == groups.n_groups
    assert till.asked == []
