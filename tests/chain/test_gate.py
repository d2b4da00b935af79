"""The public-first gate: two charges at most, and each for what it releases."""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.chain_parts import EMBEDDING, QUESTION, every_way, record
from support.fakes import AsyncScriptedModel, ScriptedModel, notes

from langchain_dpicl import (
    BudgetExhaustedError,
    DPChain,
    ESAOutputParser,
    InvalidParameterError,
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    PrivacyBudgetHandler,
    PublicFirstGate,
    RetrievedGroups,
    SampledGroups,
    VoteOutputParser,
)
from langchain_dpicl.accounting import Gaussian
from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import FAILED, answered
from langchain_dpicl.mechanisms import GaussianNoise, SeededRandom
from langchain_dpicl.parsers.base import PublicAnswer, PublicInput

GATE = PublicFirstGate()


def rich(**changes: Any) -> PrivacyBudgetHandler:
    terms: dict[str, Any] = {
        "epsilon": 30,
        "delta": 1e-6,
        "queries": 8,
        "accounting": "zcdp",
        "ledger": ":memory:",
    }
    return PrivacyBudgetHandler(**{**terms, **changes})


def knowing(text: str) -> str:
    """Says the same with records and without."""
    return "They coughed." if "suggestions" in text else "Cough"


def ignorant(text: str) -> str:
    """Is wrong without records."""
    if "suggestions" in text:
        return "They coughed."
    return "cough" if "Lisinopril" in text else "rash"


def silent(text: str) -> str:
    return "cough" if "Lisinopril" in text else "I don't know."


def make(groups: Any, reply: Any, **changes: Any) -> tuple[DPChain, ScriptedModel]:
    model = AsyncScriptedModel(reply=reply)
    parts: dict[str, Any] = {
        "parser": VoteOutputParser(labels=["cough", "rash"]),
        "gate": GATE,
    }
    return DPChain(groups=groups, model=model, **{**parts, **changes}), model


PARSERS = {
    "vote": lambda: VoteOutputParser(labels=["cough", "rash"]),
    "ptr": lambda: KSAPTROutputParser(k=1),
    "threshold": lambda: KSAThresholdOutputParser(items_per_answer=1),
}


@pytest.mark.parametrize("name", list(PARSERS))
async def test_agreement_costs_the_test_alone(
    groups: RetrievedGroups, name: str
) -> None:
    budget = rich()
    chain, model = make(groups, knowing, parser=PARSERS[name]())
    said = await every_way(chain, budget)
    assert {message.content.casefold() for message in said} == {"cough"}
    for message in said:
        found = record(message)
        assert found["status"] == "released"
        assert found["mechanism"] == "gate/threshold"
        assert found["details"] == {"gate": "agreed"}
        assert [event["kind"] for event in found["events"]] == ["gaussian"]
    assert len(budget.ledger.charges("default")) == len(said)
    # A tenth of a query each.
    assert budget.ledger.state("default").spent.loss <= len(said) * (2**31 // 8) / 10
    # One public call and one for each group, and nothing more.
    assert len(model.asked) == len(said) * (1 + groups.n_groups)


async def test_disagreement_goes_on_to_the_release(groups: RetrievedGroups) -> None:
    budget = rich()
    chain, model = make(groups, ignorant)
    said = await every_way(chain, budget)
    assert {message.content for message in said} == {"cough"}
    for message in said:
        found = record(message)
        assert found["mechanism"] == "vote/gaussian"
        assert found["details"]["gate"] == "disagreed"
        assert len(found["events"]) == 2
    assert len(budget.ledger.charges("default")) == 2 * len(said)
    # The answers that were tested are the ones that are merged.
    assert len(model.asked) == len(said) * (1 + groups.n_groups)


@pytest.mark.parametrize(
    ("public", "group", "same"),
    [
        ("Cough", "cough.", True),
        ("It is a cough.", "They report: cough", True),
        ("A dry cough", "cough", False),
        ("A dry cough at night", "A wet cough by day", False),
        ("no cough", "cough", False),
        ("cough", "no cough", False),
        ("cough", "I don't know.", False),
        ("cough", "", False),
    ],
)
def test_agreement_of_texts_is_more_in_common_than_not(
    public: str, group: str, same: bool
) -> None:
    parser = KSAPTROutputParser(k=1)
    answer = parser.public_answer(
        PublicInput("What do they report?", "Use the records.", (public,))
    )
    assert answer is not None
    assert answer.text == public
    assert answer.agrees(group) is same


@pytest.mark.parametrize("said", ["", "I don't know.", "What do they report?", "..."])
def test_an_empty_public_answer_is_none_to_agree_with(said: str) -> None:
    for parser in (KSAPTROutputParser(k=1), VoteOutputParser(labels=["a", "b"])):
        public = PublicInput("What do they report?", "Use the records.", (said,))
        assert parser.public_answer(public) is None


def test_nothing_is_tested_where_the_public_answer_says_nothing(
    groups: RetrievedGroups,
) -> None:
    budget = rich()
    chain, _ = make(groups, silent)
    found = record(chain.invoke(QUESTION, {"callbacks": [budget]}))
    assert "gate" not in found["details"]
    assert len(budget.ledger.charges("default")) == 1


async def test_a_per_unit_account_asks_anew_among_those_who_pay() -> None:
    groups = RetrievedGroups.from_documents(
        notes(200),
        EMBEDDING,
        unit_key="patient",
        n_groups=40,
        score_threshold=0.0,
    )
    budget = rich(scope="unit")
    chain, model = make(groups, ignorant)
    message = await chain.ainvoke(QUESTION, {"callbacks": [budget]})
    assert message.content == "cough"
    assert len(model.asked) == 1 + 2 * 40
    message = chain.invoke(QUESTION, {"callbacks": [budget]})
    assert len(model.asked) == 2 * (1 + 2 * 40)
    spent = {b.spent for b in budget.ledger.unit_balances("default")}
    (total,) = spent
    charges = budget.ledger.charges("default")
    assert len(charges) == 4
    assert total.loss == sum(charge.charge.cost.loss for charge in charges)
    assert "charge_units" not in str(record(message))


def test_who_can_pay_for_the_test_alone_is_not_in_the_release() -> None:
    # So many that no shard is empty, whatever the salt.
    groups = RetrievedGroups.from_documents(
        notes(900), EMBEDDING, unit_key="patient", n_groups=40, score_threshold=0.0
    )
    # Three whole queries fill a balance but for less than one more; the test is cheap.
    budget = rich(scope="unit", queries=3)
    chain, model = make(groups, ignorant)
    said = [chain.invoke(QUESTION, {"callbacks": [budget]}) for _ in range(4)]
    tested = [sum("Lisinopril" in text for text in model.asked[:41])]
    assert tested == [40]
    last = model.asked[-40:]
    assert not any("Lisinopril" in text for text in last)
    before = model.asked[-80:-40]
    assert any("Lisinopril" in text for text in before)
    assert record(said[-1])["details"]["gate"] == "disagreed"


def test_sampled_groups_are_sampled_anew() -> None:
    groups = SampledGroups.from_documents(
        notes(300), unit_key="patient", n_groups=40, sampling_rate=0.5
    )
    budget = rich(accounting="renyi")
    chain, model = make(groups, ignorant)
    chain.invoke(QUESTION, {"callbacks": [budget]})
    assert len(model.asked) == 1 + 2 * 40
    first = set(model.asked[1:41])
    assert first != set(model.asked[41:])
    events = [r.charge.events[0] for r in budget.ledger.charges("default")]
    assert {e.sampling_rate for e in events if isinstance(e, Gaussian)} == {0.5}


def test_a_plan_has_no_place_for_two_kinds_of_release(
    groups: RetrievedGroups, budget: PrivacyBudgetHandler
) -> None:
    chain, model = make(groups, knowing)
    with pytest.raises(InvalidParameterError, match="accounting='zcdp'"):
        chain.invoke(QUESTION, {"callbacks": [budget]})
    assert not model.asked
    assert budget.spent().queries == 0
    # The account is not bound to the gate's shape.
    plain, _ = make(groups, knowing, gate=None)
    assert plain.invoke(QUESTION, {"callbacks": [budget]}).content == "cough"


def test_an_account_that_ends_between_the_two_releases_nothing_more(
    groups: RetrievedGroups,
) -> None:
    budget = rich(queries=1)
    chain, _ = make(groups, ignorant)
    with pytest.raises(BudgetExhaustedError):
        chain.invoke(QUESTION, {"callbacks": [budget]})
    (only,) = budget.ledger.charges("default")
    assert only.charge.cost.loss <= 2**31 / 10


def test_parsers_that_answer_with_public_candidates_refuse_a_gate(
    groups: RetrievedGroups,
) -> None:
    parser = ESAOutputParser(embedding=EMBEDDING, candidates=["A cough.", "A rash."])
    with pytest.raises(InvalidParameterError, match="is public already"):
        make(groups, knowing, parser=parser)


@pytest.mark.parametrize(
    "changes",
    [
        {"agreement": 0},
        {"agreement": 1.1},
        {"agreement": math.nan},
        {"share": 0},
        {"share": 2},
        {"noise_multiplier": 0},
        {"noise_multiplier": math.inf},
    ],
)
def test_a_gate_out_of_range_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError, match=next(iter(changes))):
        PublicFirstGate(**changes)


def test_the_gate_is_part_of_the_question_that_a_cache_knows(
    groups: RetrievedGroups,
) -> None:
    budget = rich()
    first, _ = make(groups, knowing, cache=True, budget=budget)
    again, _ = make(groups, knowing, cache=True, budget=budget)
    other, _ = make(
        groups, knowing, cache=True, budget=budget, gate=PublicFirstGate(agreement=0.6)
    )
    assert record(first.invoke(QUESTION))["status"] == "released"
    assert record(again.invoke(QUESTION))["status"] == "cached"
    assert record(other.invoke(QUESTION))["status"] == "released"


# -- the test itself -----------------------------------------------------------------


def paid(z: float) -> PaidCharge[GaussianNoise]:
    return PaidCharge(GaussianNoise(z), (Gaussian(z),), "a", 1)


def pass_rate(agreeing: int, z: float, runs: int = 4000) -> float:
    random = SeededRandom(7)
    slots = [answered("yes")] * agreeing + [answered("no")] * 20 + [FAILED]
    public = PublicAnswer("yes", lambda text: text == "yes")
    passed = sum(
        PublicFirstGate().passes(
            slots,
            public,
            paid=paid(z),
            relation=Relation.REPLACE,
            slot_count=60,
            random=random,
        )
        for _ in range(runs)
    )
    return passed / runs


def test_the_noise_is_the_one_that_was_charged() -> None:
    # P(N(0, z^2) >= 30 - agreeing); five standard errors of 4,000 runs are 0.04.
    for agreeing, z in ((30, 5.0), (25, 5.0), (38, 8.0), (0, 5.0)):
        exact = 0.5 * math.erfc((30 - agreeing - 0.0) / z / math.sqrt(2))
        assert pass_rate(agreeing, z) == pytest.approx(exact, abs=0.04)
    # The twin: half the noise is seen.
    wrong = 0.5 * math.erfc(5 / 2.5 / math.sqrt(2))
    assert abs(pass_rate(25, 5.0) - wrong) > 0.08


def test_an_answer_that_breaks_the_rule_abstains() -> None:
    def broken(text: str) -> bool:
        raise RuntimeError(text)

    assert not PublicFirstGate().passes(
        [answered("yes")] * 60,
        PublicAnswer("yes", broken),
        paid=paid(1.0),
        relation=Relation.REPLACE,
        slot_count=60,
    )
