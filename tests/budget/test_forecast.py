"""What a plan can answer, and what it costs."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy import stats

from langchain_dpicl.budget import forecast
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import keyword_threshold, voting

VOTE = voting.charge(name="vote")
THRESHOLD = keyword_threshold.charge()
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
    assert 0 <= found.required_lead - (1 + sigma * quantiles) < 1
    assert found.is_possible
    assert f"{math.ceil(found.required_lead)} of 100 groups" in found.advice()
    assert "next one" not in found.advice()


def test_more_words_than_groups_can_carry_are_hopeless() -> None:
    found = forecast(THRESHOLD, items_per_answer=50, **TERMS)
    assert not found.is_possible
    assert "more groups" in found.advice()


def test_a_drafted_vote_needs_more_than_a_given_one() -> None:
    given, drafted = (
        forecast(VOTE, choices=8, drafted=drafted, **TERMS) for drafted in (False, True)
    )
    assert given.required_lead == 23
    assert drafted.required_lead == 26
    with pytest.raises(InvalidParameterError, match="drafted"):
        forecast(THRESHOLD, drafted=True, **TERMS)


def test_it_says_what_the_questions_cost() -> None:
    found = forecast(VOTE, public_calls=1, **TERMS)
    sizes = {"records_per_group": 8, "tokens_per_record": 50}
    cost = found.cost(**sizes, price_in=2.0, price_out=10.0)
    assert cost.input_tokens == 100 * 8 * 50 + 101 * 200
    assert cost.output_tokens == 101 * 50
    expected = (cost.input_tokens * 2.0 + cost.output_tokens * 10.0) / 1e6
    assert cost.price == pytest.approx(expected)
    assert found.cost(**sizes).price is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"tokens_per_record": 1.5},
        {"price_in": math.inf, "price_out": 1.0},
        {"price_out": 1.0},
    ],
)
def test_costs_of_nothing_known_are_refused(wrong: Any) -> None:
    found = forecast(VOTE, **TERMS)
    terms: Any = {"records_per_group": 8, "tokens_per_record": 50, **wrong}
    with pytest.raises(InvalidParameterError, match=next(iter(wrong))[:5]):
        found.cost(**terms)
