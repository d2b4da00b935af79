"""What a plan with a threshold release can answer."""

from __future__ import annotations

import math

import pytest
from scipy import stats
from support.release_templates import template

from langchain_dpicl.accounting import GaussianPart
from langchain_dpicl.budget import forecast
from langchain_dpicl.common.parameters import ParameterError
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.parsers import KSAThresholdOutputParser

THRESHOLD = template("ksa/threshold", (GaussianPart(),), needs_delta0=True)
TERMS = {"epsilon": 8.0, "delta": 1e-6, "queries": 20, "groups": 100}


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
    sigma = found.noise_multiplier * math.sqrt(moved)
    assert found.noise == pytest.approx(sigma)
    quantiles = stats.norm.isf(found.delta0 / items_per_answer) + stats.norm.ppf(0.95)
    assert found.required_lead == pytest.approx(1 + sigma * quantiles, abs=0.05)
    assert found.is_possible
    assert f"{math.ceil(found.required_lead)} of 100 groups" in found.advice()
    assert "next one" not in found.advice()


def test_it_is_that_of_the_parser_as_it_comes() -> None:
    parser = KSAThresholdOutputParser()
    found = forecast(parser.event_template(), **TERMS)
    asked = forecast(THRESHOLD, items_per_answer=parser.items_per_answer, **TERMS)
    assert found == asked


def test_more_words_than_groups_can_carry_are_hopeless() -> None:
    found = forecast(THRESHOLD, items_per_answer=50, **TERMS)
    assert not found.is_possible
    assert "more groups" in found.advice()


@pytest.mark.parametrize("items_per_answer", [0, 1.5, None])
def test_numbers_of_words_are_checked(items_per_answer: object) -> None:
    with pytest.raises(ParameterError, match="items_per_answer"):
        forecast(THRESHOLD, items_per_answer=items_per_answer, **TERMS)
