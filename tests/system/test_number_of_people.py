"""Nothing that an asker sees depends on how many people the records are of."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from support.chain_parts import EMBEDDING, QUESTION, reply
from support.fakes import ScriptedModel, notes
from support.few_shot_fakes import LABELS, generator_of
from support.few_shot_fakes import budget_of as generation_budget
from support.ldp_parts import ROW, table_of
from support.table_parts import people, people_schema

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    RetrievedGroups,
    SampledGroups,
    VoteOutputParser,
)
from langchain_dpicl.errors import DPError
from langchain_dpicl.mechanisms.random import SeededRandom, use
from langchain_dpicl.tabular import GDPTable

ONE_IN = 100
"""One over delta: nothing may change where there are so many people."""


def account(**terms: Any) -> PrivacyBudgetHandler:
    given = {"epsilon": 30, "delta": 1 / ONE_IN, "queries": 2, "ledger": ":memory:"}
    return PrivacyBudgetHandler(**{**given, **terms})


def ask_retrieved(count: int) -> str:
    groups = RetrievedGroups.from_documents(
        notes(count), EMBEDDING, unit_key="patient", n_groups=20
    )
    return asked(groups)


def ask_sampled(count: int) -> str:
    groups = SampledGroups.from_documents(
        notes(count), unit_key="patient", n_groups=20, sampling_rate=0.9
    )
    return asked(groups, accounting="renyi")


def asked(groups: Any, **terms: Any) -> str:
    parser = VoteOutputParser(labels=["cough", "rash"])
    chain = DPChain(groups=groups, model=ScriptedModel(reply=reply), parser=parser)
    return str(chain.invoke(QUESTION, {"callbacks": [account(**terms)]}).content)


def count_exactly(count: int) -> str:
    table = GDPTable(people(count), people_schema(), budget=account())
    return str(table.release().record()["status"])


def count_reports(count: int) -> str:
    table = table_of([ROW] * count, budget=account()).release()
    return str(table.record()["status"])


def generate(count: int) -> str:
    budget = generation_budget(epsilon=50, delta=1 / ONE_IN, accounting="renyi")
    records = [
        {"text": "red green", "label": LABELS[n % 2], "who": n} for n in range(count)
    ]
    examples = generator_of(budget=budget, unit_key="who").generate(records, 1)
    return str(examples.record["status"])


@pytest.mark.parametrize(
    "ask",
    [
        *(ask_retrieved, ask_sampled, count_exactly, count_reports),
        pytest.param(generate, marks=pytest.mark.whole),
    ],
)
def test_one_over_delta_people_are_no_more_than_others(
    ask: Callable[[int], str],
) -> None:
    found = []
    for count in (ONE_IN - 1, ONE_IN, ONE_IN + 1):
        try:
            found.append(ask(count))
        except DPError as error:
            found.append(str(error))
    assert len(set(found)) == 1, found
    assert found[0] in ("cough", "released")


async def seen(count: int) -> str:
    """Return all that an asker sees but times, tokens' ids and the records' answers."""
    groups = RetrievedGroups.from_documents(
        notes(count), EMBEDDING, unit_key="patient", n_groups=4
    )
    parser = VoteOutputParser(labels=["cough", "rash"])
    budget = account(delta=1 / 50.5, queries=1)
    chain = DPChain(
        groups=groups, model=ScriptedModel(reply=reply), parser=parser, cache=False
    )
    config: Any = {"callbacks": [budget]}
    found: list[Any] = [repr(chain), repr(groups), groups.description, repr(budget)]
    found += [
        [event["event"], event["name"], event["data"]]
        async for event in chain.astream_events(QUESTION, config, version="v2")
    ]
    found += [budget.spent(), budget.remaining(), budget.can_afford()]
    for question in ("What else?", {"question": QUESTION, "filter": {"ward": "9"}}):
        with pytest.raises(DPError) as caught:
            await chain.ainvoke(question, config)
        found.append(str(caught.value))
    text = json.dumps(found, default=repr)
    return re.sub(r"lc_run--[0-9a-f-]+|\d{4}-\d\d-\d\dT[\d:.+Z]+|0x[0-9a-f]+", "", text)


async def test_an_asker_sees_the_same_of_50_people_and_of_51() -> None:
    """Each group has somebody, and all groups say the same: the votes are equal."""
    found = []
    for count in (50, 51):
        with use(SeededRandom(7)):
            found.append(await seen(count))
    assert found[0] == found[1]
