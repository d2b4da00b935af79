"""What a question may take, counted before it is charged and never too low."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from support.chain_parts import EMBEDDING, PARSERS, QUESTION, record
from support.fakes import AsyncScriptedModel, notes

from langchain_dpicl import (
    CostLimit,
    DPChain,
    InvalidParameterError,
    KSAPTROutputParser,
    PrivacyBudgetHandler,
    PublicFirstGate,
    RetrievedGroups,
    SampledGroups,
    VoteOutputParser,
)
from langchain_dpicl.chain import cost_limit
from langchain_dpicl.chain.cost_limit import most_calls
from langchain_dpicl.chain.prompting import Question

NOTES = notes(200)
LIMIT = CostLimit(calls=1)
PRICES: dict[str, Any] = {"price_in": 1.0, "price_out": 4.0, "tokens_per_record": 10}


def groups(**terms: Any) -> RetrievedGroups:
    given = {"n_groups": 40, "docs_per_group": 3, "score_threshold": 0.2, **terms}
    return RetrievedGroups.from_documents(NOTES, EMBEDDING, unit_key="patient", **given)


GROUPS = groups()


def account(**terms: Any) -> PrivacyBudgetHandler:
    given: dict[str, Any] = {"epsilon": 60, "delta": 1e-6, "queries": 20}
    named = {"accounting": "zcdp", "ledger": ":memory:"}
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
    then = VoteOutputParser(labels=["fever", "sleep"], then=KSAPTROutputParser(k=1))
    gate = PublicFirstGate()
    yield pytest.param({}, 41, id="vote")
    yield pytest.param({"parser": drafted}, 42, id="draft")
    yield pytest.param({"parser": KSAPTROutputParser(k=1)}, 42, id="words")
    yield pytest.param({"stages": 2}, 41, id="stages")
    yield pytest.param({"parser": then}, 82, id="then")
    yield pytest.param({"gate": gate}, 41, id="gate")
    units = account(scope="unit")
    yield pytest.param({"gate": gate, "budget": units}, 81, id="gate-units")
    sampled = groups(sampling_rate=0.9)
    renyi = account(accounting="renyi", queries=20)
    parts = {"gate": gate, "groups": sampled, "budget": renyi}
    yield pytest.param(parts, 81, id="gate-sampled")
    capped = groups(grouping="unit", max_groups=20)
    yield pytest.param({"groups": capped}, 41, id="capped")


@pytest.mark.parametrize(("parts", "most"), list(chains()))
@pytest.mark.parametrize("awaited", [False, True])
def test_no_question_takes_more_than_is_counted(
    parts: dict[str, Any], most: int, awaited: bool
) -> None:
    chain = make(**parts, cost_limit=CostLimit(calls=most))
    model: Any = chain.model
    answer = asyncio.run(chain.ainvoke(QUESTION)) if awaited else chain.invoke(QUESTION)
    assert 0 < len(model.asked) <= most
    assert record(answer)["calls"] == len(model.asked)
    assert sum(most_calls(chain._query.private, chain.budget.scope)) == most
    less = make(**parts, cost_limit=CostLimit(calls=most - 1))
    before = len(less.budget.ledger.charges("default"))
    with pytest.raises(InvalidParameterError, match=f"take {most} model calls"):
        asyncio.run(less.ainvoke(QUESTION)) if awaited else less.invoke(QUESTION)
    other: Any = less.model
    assert other.asked == []
    assert len(less.budget.ledger.charges("default")) == before


def test_the_count_is_reached() -> None:
    """The question alone, all groups, and the wording of the words."""
    parser = KSAPTROutputParser(k=1)
    chain = make(parser=parser, model=AsyncScriptedModel(reply=lambda _: "I cough."))
    chain.invoke(QUESTION)
    asked: Any = chain.model
    assert len(asked.asked) == 42


def test_twin_a_gate_that_is_not_counted_passes_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        cost_limit, "most_calls", lambda private, _: (private.groups.n_groups, 1)
    )
    chain = make(
        gate=PublicFirstGate(),
        budget=account(scope="unit"),
        cost_limit=CostLimit(calls=41),
    )
    chain.invoke(QUESTION)
    model: Any = chain.model
    assert len(model.asked) > 41


def test_a_refusal_depends_on_no_record() -> None:
    limit = CostLimit(price=1e-9, **PRICES)
    said = set()
    for corpus in (NOTES, NOTES[:60], notes(90, "Long words. " * 400)):
        own = RetrievedGroups.from_documents(
            corpus, EMBEDDING, unit_key="patient", n_groups=40
        )
        with pytest.raises(InvalidParameterError) as caught:
            make(groups=own, cost_limit=limit).invoke(QUESTION)
        said.add(str(caught.value))
    assert len(said) == 1


def priced(chain: DPChain, question: str) -> float:
    """Return the price that a question is refused for."""
    low = chain.model_copy(update={"cost_limit": CostLimit(price=1e-9, **PRICES)})
    with pytest.raises(InvalidParameterError, match="nothing was charged") as caught:
        low.invoke(question)
    return float(str(caught.value).split(",")[0].split()[-1])


def test_a_price_follows_from_prices_and_public_lengths() -> None:
    chain = make()
    text = chain._query.private.prompting.fixed_text
    tokens = -(-len(text(Question(QUESTION))) // 4) + 200
    sent = 41 * tokens + 40 * 3 * 10
    assert priced(chain, QUESTION) == pytest.approx(
        (sent + 4 * 41 * 50) / 1e6, rel=5e-3
    )
    longer = priced(chain, QUESTION + " Tell me." * 200)
    assert longer > priced(chain, QUESTION) + 41 * 400 / 1e6
    enough = chain.model_copy(update={"cost_limit": CostLimit(price=longer, **PRICES)})
    assert enough.invoke(QUESTION).content == "cough"


def test_what_is_stored_costs_nothing() -> None:
    budget = account()
    make(cache=True, budget=budget).invoke(QUESTION)
    again = make(cache=True, budget=budget, cost_limit=LIMIT)
    assert record(again.invoke(QUESTION))["status"] == "cached"
    with pytest.raises(InvalidParameterError, match="cost_limit"):
        again.invoke("Another question?")


def test_a_check_counts_the_same_calls() -> None:
    report = make(gate=PublicFirstGate(), cost_limit=CostLimit(calls=41)).check(
        QUESTION
    )
    assert report.group_calls + report.public_calls == 41
    assert "cost" not in {finding.code for finding in report.findings}
    report = make(cost_limit=CostLimit(calls=40)).check(QUESTION)
    (found,) = [finding for finding in report.findings if finding.code == "cost"]
    assert "may take 41 model calls" in found.what
    assert not report.ok


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({}, "needs calls= or price="),
        ({"calls": 0}, "calls"),
        ({"calls": 2.5}, "calls"),
        ({"price": 0.0, **PRICES}, "price"),
        ({"price": float("inf"), **PRICES}, "price"),
        ({"price": 1.0}, "needs price_in="),
        ({"price": 1.0, **PRICES, "tokens_per_record": None}, "tokens_per_record="),
        ({"price": 1.0, **PRICES, "tokens_per_record": 0}, "tokens_per_record"),
        ({"price": 1.0, **PRICES, "price_in": -1.0}, "price_in"),
        ({"price": 1.0, **PRICES, "records_per_group": -1}, "records_per_group"),
        ({"price": 1.0, **PRICES, "tokens_per_answer": -1}, "tokens_per_answer"),
    ],
)
def test_other_limits_are_refused(wrong: Any, match: str) -> None:
    with pytest.raises(InvalidParameterError, match=match):
        CostLimit(**wrong)


def test_costs_that_nobody_knows_in_advance_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="max_groups"):
        make(groups=groups(grouping="unit"), cost_limit=LIMIT)
    sampled = SampledGroups.from_documents(
        NOTES, unit_key="patient", n_groups=9, sampling_rate=0.5
    )
    unknown = CostLimit(price=1.0, **PRICES)
    with pytest.raises(InvalidParameterError, match="records_per_group"):
        make(groups=sampled, cost_limit=unknown)
    make(groups=sampled, cost_limit=CostLimit(price=1.0, records_per_group=9, **PRICES))
    with pytest.raises(InvalidParameterError, match="must be a CostLimit"):
        make(cost_limit=300)
