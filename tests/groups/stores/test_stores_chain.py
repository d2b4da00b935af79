"""A whole chain over a vector store: both kinds, both accounts."""

from __future__ import annotations

from typing import Any

import pytest
from support.chain_parts import PARSERS, QUESTION, every_way, record, reply, rich
from support.fakes import AsyncScriptedModel
from support.store_parts import account, in_memory, opened, records, searching

from langchain_dpicl import DPChain
from langchain_dpicl.budget import charges

STORES = {"read out": in_memory, "searches": searching}
GROUPINGS: dict[str, dict[str, Any]] = {
    "shard": {},
    "threshold": {"score_threshold": 0.3},
}


def chain_over(groups: Any, **changes: Any) -> DPChain:
    model = AsyncScriptedModel(reply=reply)
    return DPChain(groups=groups, model=model, parser=PARSERS["vote"](), **changes)


@pytest.mark.parametrize("grouping", list(GROUPINGS))
@pytest.mark.parametrize("store", list(STORES))
async def test_a_chain_on_an_account_of_the_whole_corpus(
    store: str, grouping: str
) -> None:
    groups = opened(STORES[store](records()), **GROUPINGS[grouping])
    budget = account()
    said = await every_way(chain_over(groups), budget)
    for message in said:
        assert record(message)["status"] == "released"
        assert message.content == "cough"
    assert len(charges(budget.ledger, "default")) >= len(said)


@pytest.mark.parametrize("grouping", ["threshold"])
@pytest.mark.parametrize("store", list(STORES))
async def test_a_chain_on_an_account_of_each_unit(store: str, grouping: str) -> None:
    groups = opened(STORES[store](records()), **GROUPINGS[grouping])
    budget = account("unit")
    chain = chain_over(groups, budget=budget)
    for message in (chain.invoke(QUESTION), await chain.ainvoke(QUESTION)):
        assert record(message)["status"] == "released"
        assert message.content == "cough"
    tag = budget.ledger.unit_tag
    spent = {b.tag: b.spent.loss for b in budget.ledger.unit_balances("default")}
    # Each eligible unit, once a question; the others have nothing to say and don't pay.
    assert all(spent.get(tag("default", f"unit-{i}"), 0) > 1 for i in range(200))
    assert not any(tag("default", f"other-{i}") in spent for i in range(100))


@pytest.mark.parametrize("store", list(STORES))
def test_the_record_names_the_store_and_nothing_of_it(store: str) -> None:
    groups = opened(STORES[store](records()))
    said = chain_over(groups, budget=rich()).invoke(QUESTION)
    assert "unit-" not in str(record(said))
    assert groups.description["store"] in ("InMemoryVectorStore", "ListStore")
    assert "Lisinopril" not in f"{groups!r} {groups.description}"
