"""Samples of units, or of shards, over stores that search by themselves."""

from __future__ import annotations

from typing import Any

import pytest
from support.chain_parts import PARSERS, QUESTION, every_way, record, reply
from support.fakes import AsyncScriptedModel
from support.known_corpus import known_corpus
from support.list_store import ListStore
from support.pgvector_parts import VectorServer, shards_of, table_of
from support.store_check import check_shard_store
from support.store_parts import account, opened, patients, qdrant, records, searching

from langchain_dpicl import DPChain, InvalidParameterError, RetrievedGroups
from langchain_dpicl.groups.sampling import UnitSample
from langchain_dpicl.groups.stores.pgvector import store as pgvector
from langchain_dpicl.mechanisms.random import SecureRandom


def drawn(groups: RetrievedGroups) -> set[str]:
    return set().union(*patients(groups.draw(QUESTION)))


def test_a_store_that_filters_by_shard_alone_needs_a_threshold() -> None:
    with pytest.raises(InvalidParameterError, match="score_threshold"):
        opened(searching(records()), sampling_rate=0.25)


def test_with_a_threshold_any_store_samples_units() -> None:
    groups = opened(
        searching(records()), sampling_rate=0.5, score_threshold=0.3, docs_per_group=99
    )
    sizes = [len(drawn(groups)) for _ in range(20)]
    assert abs(sum(sizes) / 20 - 100) < 12


def test_qdrant_is_read_out_and_samples_units() -> None:
    groups = opened(qdrant(records()), sampling_rate=0.5, docs_per_group=99)
    assert abs(len(drawn(groups)) - 150) < 50


@pytest.mark.parametrize("scope", ["corpus", "unit"])
@pytest.mark.parametrize("accounting", [None, "renyi"])
async def test_a_chain_is_charged_for_the_sample(
    scope: str, accounting: str | None
) -> None:
    groups = opened(
        searching(records(400)),
        sampling_rate=0.5,
        score_threshold=0.3,
    )
    budget = account(scope, accounting)
    model = AsyncScriptedModel(reply=reply)
    chain = DPChain(groups=groups, model=model, parser=PARSERS["vote"]())
    for message in await every_way(chain, budget):
        found = record(message)
        assert found["status"] == "released"
        assert found["groups"]["sampling_rate"] == 0.5
        (event,) = found["events"]
        assert event["kind"] == "gaussian"
        assert event["sampling_rate"] == 0.5
        assert "unit-" not in str(found)
    if scope == "unit":
        tag = budget.ledger.unit_tag
        spent = {b.tag: b.spent.loss for b in budget.ledger.unit_balances("default")}
        each = {spent.get(tag("default", f"unit-{i}")) for i in range(400)}
        # Sampled or not: one price for all.
        assert len(each) == 1
        assert None not in each


def test_postgres_samples_by_the_person_and_keeps_no_nonce(
    vectors: VectorServer,
) -> None:
    store = vectors.by_column(known_corpus())
    with shards_of(store) as shards:
        one = UnitSample(0.5, SecureRandom())
        view = shards.sampled(one)
        assert view is not shards
        assert one.nonce.hex() not in repr(view)
        assert shards._sample is None


def test_a_store_that_samples_by_the_spelling_is_told_so(
    vectors: VectorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin gives each spelling of a person a coin of its own."""
    monkeypatch.setattr(pgvector, "canonical_unit_id", str)
    opened_shards: list[Any] = []

    def make(documents: Any, embedding: Any) -> Any:
        context = shards_of(vectors.by_column(documents, embedding))
        opened_shards.append(context)
        return context.__enter__()

    with pytest.raises(AssertionError, match="in a sample"):
        check_shard_store(make)
    for context in opened_shards:
        context.__exit__(None, None, None)


def test_a_table_of_an_earlier_version_gets_its_persons(vectors: VectorServer) -> None:
    store = vectors.by_column(known_corpus()[:60])
    terms: dict[str, Any] = {"unit_key": "unit", "n_groups": 3, "docs_per_group": 99}
    RetrievedGroups.from_vectorstore(store, **terms)
    table = table_of(store).split(".")[0] + ".langchain_dpicl_shards"
    with shards_of(store) as shards:
        corpus = shards.identity.replace("'", "''")
    old = f"SELECT 1 FROM {table} WHERE person IS NULL AND corpus = '{corpus}'"
    vectors.run(f"ALTER TABLE {table} DROP COLUMN person")
    groups = RetrievedGroups.from_vectorstore(store, sampling_rate=0.5, **terms)
    assert not vectors.run(old)
    sizes = {sum(map(len, groups.draw("Who coughs?"))) for _ in range(12)}
    assert len(sizes) > 3
    # A process of that version writes units without their persons.
    vectors.run(f"UPDATE {table} SET person = NULL")
    assert vectors.run(old)
    RetrievedGroups.from_vectorstore(store, sampling_rate=0.5, **terms)
    assert not vectors.run(old)


def test_list_store_cannot_sample() -> None:
    store = ListStore()
    assert not store.can_sample
    with pytest.raises(InvalidParameterError, match="score_threshold"):
        store.sampled(UnitSample(0.5, SecureRandom()))
