"""The calls that a question may take are counted beforehand, and never too low."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from support.chain_parts import EMBEDDING, PARSERS, QUESTION, record
from support.fakes import AsyncScriptedModel, notes

from langchain_dpicl import (
    DPChain,
    KSAPTROutputParser,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.chain.checking import most_calls

NOTES = notes(200)


def groups(**terms: Any) -> RetrievedGroups:
    given = {"n_groups": 40, "docs_per_group": 3, "score_threshold": 0.2, **terms}
    return RetrievedGroups.from_documents(NOTES, EMBEDDING, unit_key="patient", **given)


GROUPS = groups()


def account(**terms: Any) -> PrivacyBudgetHandler:
    given: dict[str, Any] = {"epsilon": 60, "delta": 1e-6, "queries": 20}
    named = {"accounting": "renyi", "ledger": ":memory:"}
    return PrivacyBudgetHandler(**{**given, **named, **terms})


def reply(text: str) -> str:
    if "suggestions" in text:
        return "They coughed."
    if "Lisinopril" in text:
        return "cough"
    return "rash\ncough\nnausea" if "list" in text.lower() else "rash"


def make(**parts: Any) -> DPChain:
    given: dict[str, Any] = {
        "groups": GROUPS,
        "model": AsyncScriptedModel(reply=reply),
        "parser": PARSERS["vote"](),
        "budget": account(),
    }
    return DPChain(**{**given, **parts})


def chains() -> Iterator[Any]:
    """Yield chains, and the calls of a question as they must be counted."""
    drafted = VoteOutputParser(labels="draft")
    yield pytest.param({}, 41, id="vote")
    yield pytest.param({"parser": drafted}, 42, id="draft")
    yield pytest.param({"parser": KSAPTROutputParser(k=1)}, 42, id="words")


@pytest.mark.parametrize(("parts", "most"), list(chains()))
@pytest.mark.parametrize("awaited", [False, True])
def test_no_question_takes_more_than_is_counted(
    parts: dict[str, Any], most: int, awaited: bool
) -> None:
    chain = make(**parts)
    model: Any = chain.model
    answer = asyncio.run(chain.ainvoke(QUESTION)) if awaited else chain.invoke(QUESTION)
    assert 0 < len(model.asked) <= most
    assert record(answer)["calls"] == len(model.asked)
    assert sum(most_calls(chain._query.private)) == most


def test_the_count_is_reached() -> None:
    """The question alone, all groups, and the wording of the words."""
    parser = KSAPTROutputParser(k=1)
    chain = make(parser=parser, model=AsyncScriptedModel(reply=lambda _: "I cough."))
    chain.invoke(QUESTION)
    asked: Any = chain.model
    assert len(asked.asked) == 42
