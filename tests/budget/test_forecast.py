"""What a plan can answer, and what it costs."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
from scipy import stats
from support.release_templates import template

from langchain_dpicl import PrivacyBudgetHandler, VoteOutputParser, mechanisms
from langchain_dpicl.accounting import ExponentialPart, GaussianPart, PurePart
from langchain_dpicl.budget import Cost, Forecast, forecast, plan_queries
from langchain_dpicl.budget.forecast import cost_of
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import answered
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import SeededRandom, sensitivity
from langchain_dpicl.mechanisms.voting import NOBODY
from langchain_dpicl.parsers import KSAThresholdOutputParser

VOTE = template("vote", (GaussianPart(),))
THRESHOLD = template("ksa/threshold", (GaussianPart(),), needs_delta0=True)
TERMS: Any = {"epsilon": 8.0, "delta": 1e-6, "queries": 20, "groups": 100}


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("items_per_answer", [1, 2, 3])
def test_it_states_in_how_many_groups_a_word_must_be(
    relation: Relation, items_per_answer: int
) -> None:
    found = forecast(
        THRESHOLD, relation=relation, items_per_answer=items_per_answer, **TERMS
    )
    moved = (
        items_per_answer if relation is Relation.ADD_REMOVE else 2 * items_per_answer
    )
    assert found.noise_multiplier is not None
    assert found.delta0 is not None
    sigma = found.noise_multiplier * math.sqrt(moved)
    assert found.noise == pytest.approx(sigma)
    quantiles = stats.norm.isf(found.delta0 / items_per_answer) + stats.norm.ppf(0.95)
    assert found.required_lead == pytest.approx(1 + sigma * quantiles, abs=0.05)
    assert found.is_possible
    assert f"{math.ceil(found.required_lead)} of 100 groups" in found.advice()
    assert "next one" not in found.advice()


def test_it_is_that_of_the_parser_as_it_comes() -> None:
    parser = KSAThresholdOutputParser(mechanism="gaussian")
    found = forecast(parser.event_template(), **TERMS)
    asked = forecast(THRESHOLD, items_per_answer=parser.items_per_answer, **TERMS)
    assert found == asked


def test_more_words_than_groups_can_carry_are_hopeless() -> None:
    found = forecast(THRESHOLD, items_per_answer=50, **TERMS)
    assert not found.is_possible
    assert "more groups" in found.advice()


@pytest.mark.parametrize("items_per_answer", [0, 1.5, None])
def test_numbers_of_words_are_checked(items_per_answer: Any) -> None:
    with pytest.raises(InvalidParameterError, match="items_per_answer"):
        forecast(THRESHOLD, items_per_answer=items_per_answer, **TERMS)


def votes_out(parser: VoteOutputParser, counts: list[int], runs: int) -> float:
    """Return how often a vote gives its first label, at the forecast's terms."""
    budget = PrivacyBudgetHandler(
        epsilon=8, delta=1e-6, queries=20, ledger=":memory:", account="a"
    )
    paid = budget.charge(parser.event_template())
    labels = tuple(f"label{n}" for n in range(len(counts)))
    slots = [
        answered(label)
        for label, count in zip(labels, counts, strict=True)
        for _ in range(count)
    ]
    found = [
        parser.release(
            slots,
            paid=paid,
            relation=Relation.REPLACE,
            slot_count=100,
            prepared=labels,
        ).text
        for _ in range(runs)
    ]
    return found.count(labels[0]) / runs


@pytest.mark.parametrize("choices", [2, 8])
@pytest.mark.parametrize("kind", ["given", "drafted", "flip"])
def test_a_vote_comes_out_at_its_required_lead(kind: str, choices: int) -> None:
    random = SeededRandom(7)
    given = [f"label{n}" for n in range(choices)]
    parser = VoteOutputParser(
        labels="draft" if kind == "drafted" else given,
        mechanism="permute_and_flip" if kind == "flip" else "gaussian",
        random=random,
    )
    found = forecast(
        parser.event_template(),
        choices=choices,
        drafted=kind == "drafted",
        **{**TERMS, "groups": 1000},
    )
    lead = math.ceil(found.required_lead)
    # The hardest case: all other groups found no record.
    rate = votes_out(parser, [lead] + [0] * (choices - 1), 600)
    assert rate > 0.92
    if kind != "flip":  # There it is a bound.
        assert rate < 0.98
    # With others voting it is as safe.
    assert votes_out(parser, [lead + 10] + [10] * (choices - 1), 600) > 0.92


def test_a_drafted_vote_needs_more_than_a_given_one() -> None:
    given, drafted = (
        forecast(VOTE, choices=8, drafted=drafted, **TERMS) for drafted in (False, True)
    )
    assert given.required_lead == pytest.approx(21.83, abs=0.1)
    assert drafted.required_lead == pytest.approx(25.75, abs=0.1)
    with pytest.raises(InvalidParameterError, match="drafted"):
        forecast(THRESHOLD, drafted=True, **TERMS)


def test_a_sum_of_vectors_is_known_by_its_noise_and_not_by_its_name() -> None:
    with pytest.raises(InvalidParameterError, match="select='vote'"):
        forecast(mechanisms.sum_template("mine"), **TERMS)
    assert forecast(mechanisms.vote_template("esa/cosine"), **TERMS).is_possible


def test_it_says_what_the_questions_cost() -> None:
    found = forecast(VOTE, public_calls=1, **TERMS)
    cost = found.cost(
        records_per_group=8,
        tokens_per_record=50,
        tokens_per_prompt=100,
        tokens_per_answer=10,
        price_in=2.0,
        price_out=10.0,
    )
    assert cost.input_tokens == 100 * (8 * 50 + 100) + 100
    assert cost.output_tokens == 101 * 10
    expected = (cost.input_tokens * 2.0 + cost.output_tokens * 10.0) / 1e6
    assert cost.price == pytest.approx(expected)
    assert cost.total_input_tokens == 20 * cost.input_tokens
    assert cost.total_output_tokens == 20 * cost.output_tokens
    assert cost.total_price == pytest.approx(20 * expected)
    free = found.cost(records_per_group=8, tokens_per_record=50)
    assert free.price is free.total_price is None
    assert free.input_tokens > 40_000


@pytest.mark.parametrize(
    "wrong",
    [
        {"records_per_group": 0},
        {"tokens_per_record": 1.5},
        {"price_in": -1.0, "price_out": 1.0},
        {"price_in": math.inf, "price_out": 1.0},
        {"price_in": 1e308, "price_out": 1e308},
        {"price_in": 1.0},
        {"price_out": 1.0},
    ],
)
def test_costs_of_nothing_known_are_refused(wrong: Any) -> None:
    found = forecast(VOTE, **TERMS)
    terms: Any = {"records_per_group": 8, "tokens_per_record": 50, **wrong}
    with pytest.raises(InvalidParameterError, match=next(iter(wrong))[:5]):
        found.cost(**terms)


PURE = template("pf", (PurePart(),))
JOINT = template("ksa/joint", (ExponentialPart(),))
PTR = template("ksa/ptr", (GaussianPart(),), needs_delta0=True)


@pytest.mark.parametrize("choices", [2, 3, 50])
@pytest.mark.parametrize("relation", list(Relation))
def test_leads_of_releases_without_a_bell_curve_have_a_closed_form(
    choices: int, relation: Relation
) -> None:
    """A wrong choice at distance g has probability at most exp(-epsilon g / 2 Delta).

    So all of them together stay below 5 % from the lead on. A vote has "nobody" as one
    more, which counts for 1 / 4 of each label; a choice of words moves by 1 or 2.
    """
    terms = {**TERMS, "choices": choices, "relation": relation}
    vote, words = forecast(PURE, **terms), forecast(JOINT, **terms)
    assert vote.epsilon == plan_queries(PURE, **PLAN)[0].epsilon
    assert words.epsilon == plan_queries(JOINT, **PLAN)[0].epsilon
    wrong = choices * (1 + 1 / (2 * NOBODY))
    assert wrong * math.exp(-vote.epsilon * vote.required_lead / 2) == pytest.approx(
        0.05 / 0.95
    )
    moved = sensitivity.joint_utility(relation)
    odds = math.exp(-words.epsilon * words.required_lead / (2 * moved))
    assert choices * odds == pytest.approx(0.05 / 0.95)
    assert vote.noise is words.noise is None


PLAN: Any = {"epsilon": 8.0, "delta": 1e-6, "queries": 20}


def test_it_assumes_two_choices_one_word_given_labels_and_replaced_records() -> None:
    plain = {"public_calls": 0, "choices": 2, "relation": Relation.REPLACE}
    for shape in (VOTE, PURE, JOINT, PTR):
        asked = forecast(shape, drafted=False, **plain, **TERMS)
        assert forecast(shape, **TERMS) == asked
    one = forecast(THRESHOLD, items_per_answer=1, **plain, **TERMS)
    assert forecast(THRESHOLD, **TERMS) == one
    assert forecast(VOTE, **TERMS).required_lead == pytest.approx(21.682, abs=1e-3)
    assert forecast(PURE, choices=3, **TERMS).required_lead == pytest.approx(
        39.745, abs=1e-3
    )


def test_it_names_what_each_query_can_use() -> None:
    found = forecast(VOTE, public_calls=3, **TERMS)
    assert (found.mechanism, found.groups, found.queries) == ("vote", 100, 20)
    assert found.calls_per_query == 103
    assert found.noise_multiplier == plan_queries(VOTE, **PLAN)[0].noise_multiplier
    assert found.noise == found.noise_multiplier * sensitivity.vote_l2(Relation.REPLACE)
    assert (found.epsilon, found.delta0) == (None, None)
    ptr, noise = forecast(PTR, **TERMS), PTR.read(plan_queries(PTR, **PLAN))
    assert (ptr.noise_multiplier, ptr.delta0) == (noise.noise_multiplier, noise.delta0)
    gap = sensitivity.keyword_gap(Relation.REPLACE)
    assert ptr.noise == noise.noise_multiplier * gap
    assert ptr.required_lead == mechanisms.required_gap(
        noise_multiplier=noise.noise_multiplier,
        delta0=noise.delta0,
        relation=Relation.REPLACE,
        pass_rate=0.95,
    )


@pytest.mark.parametrize(
    ("name", "least"), [("groups", 1), ("choices", 2), ("public_calls", 0)]
)
def test_numbers_have_a_least_value(name: str, least: int) -> None:
    assert forecast(VOTE, **{**TERMS, name: least}).queries == 20
    with pytest.raises(InvalidParameterError, match=f"{name} must be at least {least}"):
        forecast(VOTE, **{**TERMS, name: least - 1})


def of_lead(lead: float, mechanism: str = "vote", groups: int = 40) -> Forecast:
    found = forecast(VOTE, **{**TERMS, "groups": groups})
    return dataclasses.replace(found, required_lead=lead, mechanism=mechanism)


def test_a_lead_of_all_groups_is_possible_and_no_larger_one() -> None:
    assert of_lead(40.0).is_possible
    assert of_lead(39.5).is_possible
    assert not of_lead(40.0001).is_possible


@pytest.mark.parametrize(
    ("lead", "mechanism", "advice"),
    [
        (
            19.2,
            "vote",
            "An answer must lead the next one by 20 of 40 groups to",
        ),
        (40, "vote", "An answer must lead the next one by 40 of 40 groups to"),
        (19.2, "ksa/threshold", "A word must be in the answers of 20 of 40 groups to"),
        (19.2, "ksa/threshold curve", "A word must be in the answers of 20 of 40 gro"),
        (
            40.2,
            "vote",
            "Not even a unanimous answer of 40 groups stands out of",
        ),
        (40.2, "ksa/threshold", "Not even a unanimous answer of 40 groups stands out"),
    ],
)
def test_the_advice_names_the_lead(lead: float, mechanism: str, advice: str) -> None:
    found = of_lead(lead, mechanism).advice()
    assert found.startswith(advice)
    assert ("it takes 41." if lead > 40 else "in 95% of cases.") in found


# -- what the questions cost -----------------------------------------------------------


def test_a_question_costs_what_its_prompts_and_answers_hold() -> None:
    """3 groups of 8 records of 50 tokens, 4 calls of 200 and 50 tokens by default."""
    found = cost_of(3, 4, 10, records_per_group=8, tokens_per_record=50)
    assert found == Cost(2000, 200, None, 20_000, 2000, None)
    of_plan = dataclasses.replace(of_lead(1.0, groups=3), calls_per_query=4, queries=10)
    assert of_plan.cost(records_per_group=8, tokens_per_record=50) == found
    given: Any = {"tokens_per_prompt": 7, "tokens_per_answer": 9}
    priced = {"price_in": 3.0, "price_out": 11.0, **given}
    for asked in (
        of_plan.cost(records_per_group=8, tokens_per_record=50, **priced),
        cost_of(3, 4, 10, records_per_group=8, tokens_per_record=50, **priced),
    ):
        sent, back, price = 3 * 400 + 4 * 7, 4 * 9, (1228 * 3 + 36 * 11) / 1e6
        assert asked == Cost(sent, back, price, 10 * sent, 10 * back, 10 * price)


def test_groups_and_calls_may_be_averages() -> None:
    found = cost_of(2.5, 3.1, 2, records_per_group=1, tokens_per_record=3)
    assert (found.input_tokens, found.output_tokens) == (628, 155)
    assert (found.total_input_tokens, found.total_output_tokens) == (1256, 310)


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("records_per_group", 1),
        ("tokens_per_record", 1),
        ("tokens_per_prompt", 0),
        ("tokens_per_answer", 0),
    ],
)
def test_counts_of_tokens_have_a_least_value(name: str, least: int) -> None:
    given: Any = {"records_per_group": 5, "tokens_per_record": 5, name: least}
    assert of_lead(1.0).cost(**given).input_tokens > 0
    with pytest.raises(InvalidParameterError, match=f"{name} must be at least {least}"):
        of_lead(1.0).cost(**{**given, name: least - 1})


def test_a_price_may_be_nothing_and_no_bound_is_no_price() -> None:
    given: Any = {"records_per_group": 1, "tokens_per_record": 1}
    free = of_lead(1.0).cost(price_in=0.0, price_out=0.0, **given)
    assert (free.price, free.total_price) == (0.0, 0.0)
    # The price of one question is a number, and that of all is none.
    with pytest.raises(InvalidParameterError, match="price must be finite"):
        cost_of(1, 1, 10**6, price_in=1e308, price_out=0.0, **given)


def test_a_forecast_and_a_cost_stay_as_they_were_computed() -> None:
    found = of_lead(1.0)
    cost = found.cost(records_per_group=1, tokens_per_record=1)
    for one, name in ((found, "required_lead"), (cost, "price")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(one, name, 0.0)
        assert hash(one) == hash(dataclasses.replace(one))
