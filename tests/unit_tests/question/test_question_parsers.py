"""What each parser releases, alone and in a chain, and the faces around a chain.

Groups that agree have an answer. Groups that do not tell, or do not agree, have none:
a refusal with its reason. A parser alone charges the budget that it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from faces import (
    BudgetExhaustedError,
    DPRetriever,
    ESAOutputParser,
    InvalidParameterError,
    KSAJointOutputParser,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    NoBudgetError,
    PrivacyBudgetHandler,
    VoteOutputParser,
    chain,
    create_dp_tool,
    record,
)
from langchain_core.output_parsers import BaseGenerationOutputParser, StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_core.tools import StructuredTool
from questions import ASK, ASKED, clinic, group_prompts, stored
from scripted import AsyncScriptedModel, ScriptedEmbeddings, ScriptedModel
from suite import pairs

GROUPS = stored(clinic(150), n_groups=40)
EMBEDDING = ScriptedEmbeddings()
CANDIDATES = ["dry cough", "skin rash", "no effect"]
DOMAIN = ["cough", "rash", "fever"]
SILENT = "I don't know."

PARSERS: dict[str, Callable[..., Any]] = {
    "vote": lambda **terms: VoteOutputParser(labels=["cough", "rash"], **terms),
    "draft": lambda **terms: VoteOutputParser(labels="draft", **terms),
    "esa": lambda **t: ESAOutputParser(embedding=EMBEDDING, candidates=CANDIDATES, **t),
    "ptr": lambda **terms: KSAPTROutputParser(k=1, **terms),
    "ptr range": lambda **terms: KSAPTROutputParser(k=(1, 3), **terms),
    "threshold": KSAThresholdOutputParser,
    "joint": lambda **terms: KSAJointOutputParser(k=1, domain=DOMAIN, **terms),
    "joint callable": lambda **t: KSAJointOutputParser(
        k=1, domain=lambda q: DOMAIN, **t
    ),
}
ALONE = [name for name in PARSERS if name != "draft"]
EACH = pytest.mark.parametrize("name", PARSERS)


def rich(queries: int = 4) -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(
        epsilon=100, delta=1e-6, queries=queries, ledger=":memory:"
    )


def says(inside: Callable[[int], str]) -> Callable[[str], str]:
    """Return a script: groups say what their first person's number makes them say."""

    def script(prompt: str) -> str:
        if "word suggestions" in prompt:
            return "It was " + prompt.partition("suggestions")[2].partition("\n")[0]
        if "Possible answers:" in prompt:
            return "cough\nrash\nfever"
        number = prompt.partition("<")[2].partition(">")[0]
        return inside(int(number)) if number else SILENT

    return script


@pytest.mark.promise("agreement-is-answered")
@pytest.mark.parametrize(("name", "way"), pairs(PARSERS, ASK))
async def test_groups_that_agree_have_an_answer(name: str, way: str) -> None:
    """All but a few say cough: that comes out, with its record."""
    script = says(lambda number: "rash" if number % 40 == 0 else "cough")
    model = AsyncScriptedModel(script=script)
    answer = await ASK[way](chain(GROUPS, model, PARSERS[name](), rich()), ASKED)
    told = record(answer)
    assert "cough" in answer.content.lower()
    assert "rash" not in answer.content.lower()
    assert told["status"] == "released"
    assert told["relation"] == "replace"
    assert told["unit_key"] == "patient"
    assert told["account"]["queries_spent"] == 1
    assert told["events"]


DISAGREEING: dict[str, dict[str, Any]] = {
    "vote": {"min_lead": 30.0},
    "draft": {"min_lead": 30.0},
    "ptr": {},
    "ptr range": {},
    "threshold": {},
}
"""Parsers of which other words, or a close race, are no answer."""


async def check_refused(parser: Any, script: Any) -> None:
    """Most of a few askings have no answer: noise has one in 1 % of cases."""
    model, budget = AsyncScriptedModel(script=script), rich(queries=20)
    made = chain(GROUPS, model, parser, budget, cache=False)
    found = [await made.ainvoke(ASKED) for _ in range(5)]
    refused = [one for one in found if record(one)["status"] == "abstained"]
    assert len(refused) >= 3
    assert all(record(one)["details"]["reason"] for one in refused)
    assert not any("cough" in one.content for one in refused)
    assert budget.spent().queries == 5


@pytest.mark.promise("silence-is-refused")
@EACH
async def test_groups_that_do_not_tell_have_no_answer(name: str) -> None:
    await check_refused(PARSERS[name](), says(lambda number: SILENT))


@pytest.mark.promise("disagreement-is-refused")
@pytest.mark.parametrize("name", DISAGREEING)
async def test_groups_that_do_not_agree_have_no_answer(name: str) -> None:
    """Each group says a word of its own, or one of three options."""

    def other(number: int) -> str:
        is_choice = name in {"vote", "draft"}
        return DOMAIN[number % 2] if is_choice else f"word{number}x"

    await check_refused(PARSERS[name](**DISAGREEING[name]), says(other))
    with pytest.raises(AssertionError):  # Groups that agree are no such case.
        await check_refused(PARSERS[name](), says(lambda number: "cough"))


@pytest.mark.promise("drafted-labels-are-public")
@pytest.mark.promise("drafted-labels-are-public", twin=True)
async def test_labels_are_drafted_from_the_question_alone() -> None:
    """Before the charge, by one call in which no record takes part."""
    budget, seen = rich(), list[tuple[str, int]]()

    def script(prompt: str) -> str:
        seen.append((prompt, budget.spent().queries))
        return says(lambda number: "cough")(prompt)

    made = chain(GROUPS, AsyncScriptedModel(script=script), PARSERS["draft"](), budget)
    answer = await made.ainvoke(ASKED)
    drafts = [(prompt, paid) for prompt, paid in seen if "Possible answers:" in prompt]
    check_draft(drafts)
    # The twin: labels that a group's prompt is asked for, after the charge.
    with pytest.raises(AssertionError):
        check_draft([next((prompt, paid) for prompt, paid in seen if "<" in prompt)])
    assert {paid for prompt, paid in seen if "<" in prompt} == {1}
    assert set(record(answer)["details"]["noisy_votes"]) == {"cough", "rash", "fever"}


def check_draft(drafts: list[tuple[str, int]]) -> None:
    """One call, with the question and without a record, before the charge."""
    ((prompt, paid),) = drafts
    assert ASKED in prompt
    assert "<" not in prompt
    assert paid == 0


@pytest.mark.promise("vote-rules")
def test_aliases_and_least_leads_decide_as_they_say() -> None:
    """An alias is its label; a lead below the least one is none."""
    slots = ["tussis"] * 60 + ["rash"] * 20
    aliases = {"cough": ["tussis", "a dry cough"]}
    for terms, expected in (
        ({"aliases": aliases}, "cough"),
        ({"aliases": aliases, "min_lead": 20.0}, "cough"),
        ({"aliases": aliases, "min_lead": 70.0}, None),
        ({}, None),
    ):
        said = PARSERS["vote"](budget=rich(), **terms).invoke(slots)
        assert (said == "cough") == (expected == "cough")
        assert said == expected or said.startswith("No answer")


@pytest.mark.promise("parser-alone-pays")
@pytest.mark.parametrize("name", ALONE)
async def test_a_parser_alone_answers_for_its_budget(name: str) -> None:
    """Given to it, or in the config; without one, NoBudgetError."""
    slots, budget = ["cough"] * 70 + ["rash"] * 5, rich(queries=3)
    parser = PARSERS[name]
    assert isinstance(parser(), BaseGenerationOutputParser)
    assert parser().get_format_instructions()
    for ask in (
        lambda: parser(budget=budget).invoke(slots),
        lambda: parser().invoke(slots, {"callbacks": [budget]}),
    ):
        assert "cough" in ask().lower()
    assert "cough" in (await parser(budget=budget).ainvoke(slots)).lower()
    assert budget.spent().queries == 3
    with pytest.raises(BudgetExhaustedError):
        parser(budget=budget).invoke(slots)
    with pytest.raises(NoBudgetError):
        parser().invoke(slots)


# ---- the faces around ----------------------------------------------------------------


@pytest.mark.promise("inputs")
@pytest.mark.parametrize("way", ASK)
async def test_a_question_comes_in_several_forms(way: str) -> None:
    """A text, or a mapping with what else the prompt needs; and who takes part."""
    prompt = ChatPromptTemplate.from_template(
        "In {language}. {format_instructions}\nQuestion: {question}\n{context}"
    )
    script = says(lambda number: "cough")
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (ASKED, {}, ""),
        ({"question": ASKED}, {}, ""),
        ({"input": ASKED}, {}, ""),
        ({"question": ASKED, "language": "French"}, {"prompt": prompt}, "In French."),
        ({"input": ASKED, "filter": {"ward": "1"}}, {"filter_keys": ("ward",)}, ""),
    ]
    for asked, terms, text in cases:
        model = AsyncScriptedModel(script=script)
        made = chain(GROUPS, model, PARSERS["vote"](), rich(), **terms)
        assert (await ASK[way](made, asked)).content == "cough"
        prompts = group_prompts(model)
        assert all(text in one and ASKED in one for one in prompts)
        numbers = {
            int(piece.partition(">")[0]) % 2
            for one in prompts
            for piece in one.split("<")[1:]
        }
        assert numbers == ({1} if "filter" in asked else {0, 1})


@pytest.mark.promise("inputs")
@pytest.mark.parametrize("way", ASK)
async def test_what_is_no_question_is_refused_before_a_charge(way: str) -> None:
    """No text, none at all, an unknown filter, a question too long: typed, and free."""
    model, budget = AsyncScriptedModel(script=says(lambda number: "cough")), rich()
    made = chain(GROUPS, model, PARSERS["vote"](), budget, filter_keys=("ward",))
    for wrong in (
        "",
        "  \n",
        7,
        {},
        {"text": ASKED},
        {"question": 7},
        {"question": ASKED, "filter": {"town": "3"}},
        {"question": ASKED, "filter": "ward"},
        {"question": ASKED, "filter": {"ward": {"$ne": "3"}}},
        "cough " * 20_000,
    ):
        with pytest.raises(InvalidParameterError):
            await ASK[way](made, wrong)
    assert budget.spent().queries == 0
    assert group_prompts(model) == []


@pytest.mark.promise("retriever-answers-with-record")
async def test_a_retriever_gives_released_documents() -> None:
    """An existing chain takes it; the k best candidates come for one charge."""
    budget = rich()
    model = AsyncScriptedModel(
        script=says(lambda number: "dry cough" if number % 3 else "skin rash")
    )
    retriever = DPRetriever(chain=chain(GROUPS, model, PARSERS["esa"](), budget), k=2)
    for found in (retriever.invoke(ASKED), await retriever.ainvoke(f"{ASKED} rash")):
        assert found[0].page_content == "dry cough"
        assert {one.page_content for one in found} <= set(CANDIDATES)
        assert len(found) == 2
        assert found[0].metadata["privacy"]["status"] == "released"
    assert budget.spent().queries == 2
    prompt = ChatPromptTemplate.from_template("{context} {question}")
    parts = {"context": retriever, "question": RunnablePassthrough()}
    public = ScriptedModel(
        script=lambda prompt: "dry" if "dry cough" in prompt else "?"
    )
    assert (parts | prompt | public | StrOutputParser()).invoke(f"{ASKED}!") == "dry"
    assert not any("<" in prompt for prompt in public.prompts)
    with pytest.raises(NoBudgetError):
        DPRetriever(chain=chain(GROUPS, model, PARSERS["esa"]())).invoke(ASKED)


@pytest.mark.promise("tool-answers-with-record")
async def test_a_tool_answers_and_its_artifact_is_the_record() -> None:
    """A budget that is spent is told to the model, and asks nobody."""
    budget, model = rich(queries=2), AsyncScriptedModel(script=says(lambda n: "cough"))
    made = chain(GROUPS, model, PARSERS["vote"](), budget, cache=False)
    tool = create_dp_tool(made, name="ask_notes", description="Notes of a clinic.")
    assert isinstance(tool, StructuredTool)
    call = {
        "name": "ask_notes",
        "args": {"question": ASKED},
        "id": "1",
        "type": "tool_call",
    }
    for message in (tool.invoke(call), await tool.ainvoke(call)):
        assert message.content == "cough"
        assert message.artifact["status"] == "released"
        assert "<" not in str(message)
    model.prompts.clear()
    told = tool.invoke(call)
    assert told.status == "error"
    assert "budget" in told.content.lower()
    assert group_prompts(model) == []
