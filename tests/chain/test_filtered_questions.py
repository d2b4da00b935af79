"""A question with a filter: only who matches takes part, and one account pays."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.prompts import PromptTemplate
from support.chain_parts import EMBEDDING, QUESTION, record
from support.fakes import AsyncScriptedModel

from langchain_dpicl import (
    DPChain,
    GroupSource,
    InvalidParameterError,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.budget import charges
from langchain_dpicl.mechanisms.random import SeededRandom, use
from langchain_dpicl.operate.audit import snapshot

SAID = {"1": "Lisinopril gave a dry cough.", "2": "Lisinopril gave a skin rash."}
NOTES = [
    Document(f"{text} Note {i}.", metadata={"patient": f"{ward}-{i}", "ward": ward})
    for ward, text in SAID.items()
    for i in range(150)
]


def reply(text: str) -> str:
    if "rash. Note" in text:
        return "rash"
    return "cough" if "cough. Note" in text else "none of these"


def account(**terms: Any) -> PrivacyBudgetHandler:
    given: dict[str, Any] = {"epsilon": 30, "queries": 6, "delta": 1e-6}
    return PrivacyBudgetHandler(**{**given, "ledger": ":memory:", **terms})


def groups(**terms: Any) -> RetrievedGroups:
    return RetrievedGroups.from_documents(
        NOTES, EMBEDDING, unit_key="patient", n_groups=40, docs_per_group=2, **terms
    )


GROUPS = groups()


def make(source: Any = None, **parts: Any) -> DPChain:
    given: dict[str, Any] = {
        "groups": source or GROUPS,
        "model": AsyncScriptedModel(reply=reply),
        "parser": VoteOutputParser(labels=["cough", "rash"]),
        "budget": account(),
        "filter_keys": ["ward"],
        "cache": False,
    }
    return DPChain(**{**given, **parts})


def asking(ward: Any) -> dict[str, Any]:
    return {"question": QUESTION, "filter": {"ward": ward}}


async def test_each_way_of_asking_asks_only_who_matches() -> None:
    chain = make(budget=account(queries=12))
    model: Any = chain.model
    for ward, answer in (("1", "cough"), (2, "rash")):
        before = len(model.asked)
        streamed = [*chain.stream(asking(ward))]
        astreamed = [chunk async for chunk in chain.astream(asking(ward))]
        said = [
            chain.invoke(asking(ward)),
            await chain.ainvoke({"input": QUESTION, "filter": {"ward": [ward]}}),
            *chain.batch([asking(ward)]),
            *await chain.abatch([asking(ward)]),
        ]
        assert {message.content for message in said} == {answer}
        for chunks in (streamed, astreamed):
            assert "".join(str(chunk.content) for chunk in chunks) == answer
        for message in said:
            assert record(message)["groups"]["filter"] == {"ward": [str(ward)]}
        private = [text for text in model.asked[before:] if "Note" in text]
        assert len(private) > 6 * 20
        assert all(f"{answer}. Note" in text for text in private)
        other = {"cough": "rash", "rash": "cough"}[answer]
        assert not any(f"{other}. Note" in text for text in private)


def test_all_filters_are_charged_to_one_account() -> None:
    chain = make(budget=(budget := account(queries=3)))
    events = [
        record(chain.invoke(asked))["events"]
        for asked in (asking("1"), asking("2"), QUESTION)
    ]
    # Disjoint or not, a filter changes no event, and every charge is everybody's.
    assert events[0] == events[1] == events[2]
    assert budget.remaining().queries == 0
    assert len(charges(budget.ledger, "default")) == 3


def test_a_filter_is_no_variable_of_a_prompt() -> None:
    prompt = PromptTemplate.from_template("{question} {context} {tone}")
    chain = make(prompt=prompt)
    assert chain.invoke({**asking("1"), "tone": "Short."}).content == "cough"
    model: Any = chain.model
    assert not any("ward" in text for text in model.asked)
    taken = PromptTemplate.from_template("{question} {context} {filter}")
    with pytest.raises(InvalidParameterError, match="variable filter"):
        make(prompt=taken)


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"floor": "A"}, "lets no question filter by 'floor'"),
        ({"ward": {"$gt": 1}}, "such as"),
        ({"ward": []}, "such as"),
        ("ward", "such as"),
        ([], "such as"),
    ],
)
async def test_other_filters_are_refused_before_the_charge(
    given: Any, match: str
) -> None:
    chain = make(budget=(budget := account()))
    asked = {"question": QUESTION, "filter": given}
    with pytest.raises(InvalidParameterError, match=match):
        chain.invoke(asked)
    with pytest.raises(InvalidParameterError, match=match):
        await chain.ainvoke(asked)
    model: Any = chain.model
    assert model.asked == []
    assert budget.remaining().queries == 6


def test_keys_that_nobody_has_are_refused_when_the_chain_is_made() -> None:
    with pytest.raises(InvalidParameterError, match="no record has: floor"):
        make(filter_keys=["ward", "floor"])
    with pytest.raises(InvalidParameterError, match="filter_keys"):
        make(filter_keys="ward")

    class Silent(RetrievedGroups):
        metadata_keys = None
        where = GroupSource.where

    silent = Silent.from_documents(NOTES, EMBEDDING, unit_key="patient", n_groups=9)
    with pytest.raises(InvalidParameterError, match="Silent can't be limited"):
        make(silent)


def test_a_questions_filter_is_within_that_of_the_groups() -> None:
    chain = make(GROUPS.where({"ward": ["1", "3"]}))
    assert chain.invoke(QUESTION).content == "cough"
    assert chain.invoke(asking(["1", "2"])).content == "cough"
    with pytest.raises(InvalidParameterError, match="no value of 'ward'"):
        chain.invoke(asking("2"))


def test_cached_answers_know_their_filter() -> None:
    chain = make(cache=True, budget=(budget := account()))
    asked = [QUESTION, asking("1"), asking("2"), asking(["2", "1"])]
    for one in asked:
        assert record(chain.invoke(one))["status"] == "released"
    assert budget.remaining().queries == 2
    for one in (*asked, asking([" 1", 2]), asking(1)):
        assert record(chain.invoke(one))["status"] == "cached"
    assert budget.remaining().queries == 2
    fixed = make(GROUPS.where({"ward": "1"}), cache=True, budget=budget)
    assert record(fixed.invoke(QUESTION))["status"] == "cached"


def test_only_who_matches_pays_in_a_per_unit_account() -> None:
    budget = account(scope="unit")
    chain = make(groups(score_threshold=0.2), budget=budget)
    for ward, paid in (("1", {"1"}), ("2", {"1", "2"})):
        answer = chain.invoke(asking(ward))
        assert answer.content == {"1": "cough", "2": "rash"}[ward]
        tag = budget.ledger.unit_tag
        balances = {one.tag for one in budget.ledger.unit_balances("default")}
        units = {note.metadata["patient"] for note in NOTES}
        found = {unit[0] for unit in units if tag("default", unit) in balances}
        assert found == paid
        assert len(balances) == 150 * len(paid)


def test_nobody_matches_is_a_fallback_and_costs_the_same() -> None:
    notes = [*NOTES, Document("Odd.", metadata={"patient": "odd", "ward": "7"})]
    source = RetrievedGroups.from_documents(
        notes, EMBEDDING, unit_key="patient", n_groups=40
    )
    # Noise alone answers now and then: this noise does not.
    parser = VoteOutputParser(labels=["cough", "rash"])
    chain = make(source, budget=(budget := account()), parser=parser)
    for ward in ("7", "8"):
        before = len(chain.model.asked)
        with use(SeededRandom(1)):
            found = record(chain.invoke(asking(ward)))
        assert found["status"] == "abstained"
        # Groups are padded: how many match shows in no number of calls.
        assert len(chain.model.asked) - before == 40 + (ward == "7")
    assert budget.remaining().queries == 4


def test_audits_measure_a_filtered_chain() -> None:
    only = GROUPS.where({"ward": "1"})
    made_up = [
        Document("A rash.", metadata={"patient": f"new-{ward}", "ward": ward})
        for ward in SAID
    ]
    chain = make(only, filter_keys=())
    report = snapshot(chain, made_up, [QUESTION], progress=False)
    assert report.is_sound
    reached = {one.person: one.reached for one in report.people}
    assert reached == {"new-1": reached["new-1"], "new-2": 0}
    with pytest.raises(InvalidParameterError, match=r"groups\.where"):
        snapshot(make(), made_up, [asking("1")], progress=False)
