"""A question with a filter: only who matches takes part, and one account pays."""

from __future__ import annotations

import asyncio
from dataclasses import replace
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
    NoBudgetError,
    PrivacyBudgetHandler,
    RetrievedGroups,
    SampledGroups,
    VoteOutputParser,
    create_dp_tool,
)
from langchain_dpicl.audit import snapshot
from langchain_dpicl.budget import charges
from langchain_dpicl.groups.filtering import RecordFilter
from langchain_dpicl.groups.index import PreparedQuestion, ShardIndex
from langchain_dpicl.mechanisms.random import SeededRandom, use

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


def make(source: Any = None, **parts: Any) -> DPChain:
    given: dict[str, Any] = {
        "groups": source or groups(),
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


@pytest.mark.parametrize("nothing", [None, {}])
def test_no_filter_asks_everybody(nothing: Any) -> None:
    chain = make(filter_keys=())
    answer = chain.invoke({"question": QUESTION, "filter": nothing})
    assert "filter" not in record(answer)["groups"]


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


def test_without_filter_keys_no_question_may_filter() -> None:
    with pytest.raises(InvalidParameterError, match=r"filter_keys= are \[\]"):
        make(filter_keys=()).invoke(asking("1"))
    with pytest.raises(NoBudgetError):
        make(budget=None).invoke(asking("1"))


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
    chain = make(groups().where({"ward": ["1", "3"]}))
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
    fixed = make(groups().where({"ward": "1"}), cache=True, budget=budget)
    assert record(fixed.invoke(QUESTION))["status"] == "cached"


def test_twin_a_key_without_the_filter_gives_anothers_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = property(lambda self: {**self._terms.description()})
    monkeypatch.setattr(RetrievedGroups, "description", plain)
    chain = make(cache=True)
    first, second = chain.invoke(asking("1")), chain.invoke(asking("2"))
    assert record(second)["status"] == "cached"
    assert first.content == second.content == "cough"


@pytest.mark.parametrize("awaited", [False, True])
def test_only_who_matches_pays_in_a_per_unit_account(awaited: bool) -> None:
    budget = account(scope="unit")
    chain = make(groups(score_threshold=0.2), budget=budget)
    for ward, paid in (("1", {"1"}), ("2", {"1", "2"})):
        if awaited:
            answer = asyncio.run(chain.ainvoke(asking(ward)))
        else:
            answer = chain.invoke(asking(ward))
        assert answer.content == {"1": "cough", "2": "rash"}[ward]
        tag = budget.ledger.unit_tag
        balances = {one.tag for one in budget.ledger.unit_balances("default")}
        units = {note.metadata["patient"] for note in NOTES}
        found = {unit[0] for unit in units if tag("default", unit) in balances}
        assert found == paid
        assert len(balances) == 150 * len(paid)


def test_twin_a_filter_after_the_charge_lets_everybody_pay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    units = ShardIndex.units

    def everybody(index: ShardIndex, question: PreparedQuestion) -> list[str]:
        return units(index, replace(question, only=None))

    monkeypatch.setattr(ShardIndex, "units", everybody)
    budget = account(scope="unit")
    make(groups(score_threshold=0.2), budget=budget).invoke(asking("1"))
    assert len(list(budget.ledger.unit_balances("default"))) == 300


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


def test_sampled_groups_are_filtered_too() -> None:
    source = SampledGroups.from_documents(
        NOTES, unit_key="patient", n_groups=30, sampling_rate=0.8
    )
    chain = make(source)
    assert [chain.invoke(asking(ward)).content for ward in SAID] == ["cough", "rash"]


def test_a_check_looks_at_the_filter() -> None:
    chain = make()
    assert chain.check(asking("1")).ok
    with pytest.raises(InvalidParameterError, match="lets no question filter"):
        chain.check({"question": QUESTION, "filter": {"floor": 1}})


def test_audits_measure_a_filtered_chain() -> None:
    only = groups().where({"ward": "1"})
    made_up = [
        Document("A rash.", metadata={"patient": f"new-{ward}", "ward": ward})
        for ward in SAID
    ]
    chain = make(only, filter_keys=())
    report = snapshot(chain, made_up, [QUESTION], progress=False)
    assert report.is_sound
    reached = {row[0]: row[1] for row in report.rows}
    assert reached == {"new-1": reached["new-1"], "new-2": 0}
    with pytest.raises(InvalidParameterError, match=r"groups\.where"):
        snapshot(make(), made_up, [asking("1")], progress=False)


def test_audits_sample_among_those_who_match() -> None:
    only = groups(sampling_rate=0.5).where({"ward": "1"})
    made_up = Document("A rash.", metadata={"patient": "new", "ward": "2"})
    report = snapshot(
        make(only, filter_keys=()), [made_up], [QUESTION], repeats=3, progress=False
    )
    assert report.is_sound
    assert [row[1] for row in report.rows] == [0]


def test_a_tool_takes_no_filter() -> None:
    tool = create_dp_tool(make(), name="ask", description="Notes.")
    assert set(tool.args) == {"question"}


def test_what_holds_a_filter_shows_no_record() -> None:
    chain = make(groups().where({"ward": "1"}))
    assert "filter={'ward': ['1']}" in repr(chain.groups)
    assert not any(note.page_content in repr(chain) for note in NOTES)


def test_a_question_prepared_for_one_filter_is_drawn_by_its_own_groups() -> None:
    source = groups()
    only = source.where(RecordFilter.of({"ward": "1"}))
    prepared = source.prepare(QUESTION)
    assert isinstance(prepared, PreparedQuestion)
    drawn = only.draw_prepared(prepared)
    assert {one.metadata["ward"] for slot in drawn for one in slot} == {"1"}
