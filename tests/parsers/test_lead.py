"""When the winner of a noisy vote is an answer: each bound on both sides."""

from __future__ import annotations

import math
from typing import Any

import pytest

from langchain_dpicl.mechanisms import least_votes
from langchain_dpicl.mechanisms.voting import NOBODY
from langchain_dpicl.parsers.lead import NONE, nobody_score, verdict

SIGMA = 2.0
FEW = "too few groups chose a label"
CLOSE = "no label leads the others by enough"


def said(votes: list[float], none: float = 0.0, **terms: Any) -> tuple[Any, str]:
    terms = {"sigma": SIGMA, "min_lead": 0.0, "over_none": 0.0, **terms}
    found = verdict(votes, none, **terms)
    return found.winner, found.reason


@pytest.mark.parametrize("looks", [1, 3])
@pytest.mark.parametrize("labels", [1, 2, 5])
def test_a_winner_has_the_least_votes(labels: int, looks: int) -> None:
    least = least_votes(SIGMA, labels, looks)
    others = [-9.0] * (labels - 1)
    assert said([*others, least], looks=looks) == (labels - 1, "")
    assert said([*others, math.nextafter(least, 0)], looks=looks) == (None, FEW)


def test_most_chose_none_where_none_has_as_many_as_the_first_and_enough() -> None:
    least = least_votes(SIGMA, 2, 1)
    assert said([50.0, 1.0], 50.0) == (None, NONE)
    assert said([50.0, 1.0], math.nextafter(50.0, 0)) == (0, "")
    assert said([1.0, -3.0], least) == (None, NONE)
    assert said([1.0, -3.0], math.nextafter(least, 0)) == (None, FEW)


def test_a_winner_leads_the_others_and_none_by_enough() -> None:
    assert said([50.0, 40.0], min_lead=10.0) == (0, "")
    assert said([40.0, 49.5], min_lead=10.0) == (None, CLOSE)
    assert said([50.0, 0.0], 40.0, over_none=10.0) == (0, "")
    assert said([50.0, 0.0], 40.5, over_none=10.0) == (None, CLOSE)
    assert said([50.0, 0.0], 49.0, min_lead=10.0) == (0, "")
    assert said([50.0, 49.0], 0.0, over_none=10.0) == (0, "")
    # Of labels with the same votes the first one wins, if no lead is asked for.
    assert said([50.0, 50.0, 50.0]) == (0, "")
    assert said([0.0, 50.0, 50.0]) == (1, "")
    assert said([0.0, 1.0, 50.0]) == (2, "")


@pytest.mark.parametrize(
    ("votes", "none", "lead"),
    [
        ([50.0, 40.0, 5.0], 20.0, 10.0),
        ([40.0, 5.0, 50.0], 20.0, 10.0),
        ([50.0, 10.0], 45.0, 5.0),
        ([10.0, 3.0], 45.0, 35.0),
        ([50.0], 20.0, 30.0),
    ],
)
def test_the_lead_is_that_of_the_first_bin_over_the_second(
    votes: list[float], none: float, lead: float
) -> None:
    found = verdict(votes, none, sigma=SIGMA, min_lead=0.0, over_none=0.0)
    assert found.lead == lead
    assert found.confidence == round(lead / (SIGMA * math.sqrt(2)), 2)


def test_votes_beforehand_decide_among_labels_only() -> None:
    assert said([50.0, 45.0], prior=[0.0, 10.0]) == (1, "")
    assert said([50.0, 45.0], prior=[0.0, 4.0]) == (0, "")
    assert said([50.0, 45.0], 46.0, prior=[0.0, 10.0]) == (None, NONE)
    assert said([50.0, 1.0], prior=[0.0, 100.0]) == (None, FEW)
    assert said([50.0, 45.0], prior=[0.0, 10.0], min_lead=5.0) == (1, "")
    assert said([50.0, 45.0], prior=[0.0, 10.0], min_lead=5.1) == (None, CLOSE)
    assert said([50.0, 45.0], 40.0, prior=[0.0, 10.0], over_none=5.1) == (None, CLOSE)
    with pytest.raises(ValueError, match="zip"):
        said([50.0, 45.0], prior=[1.0])


def test_a_verdict_can_not_be_changed() -> None:
    found = verdict([50.0], 0.0, sigma=SIGMA, min_lead=0.0, over_none=0.0)
    with pytest.raises(AttributeError):
        found.winner = 1  # type: ignore[misc]


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("labels", [1, 2, 8])
def test_some_label_beats_nobody_by_noise_in_one_of_a_hundred(
    epsilon: float, labels: int
) -> None:
    score = nobody_score(epsilon, labels)
    assert labels * math.exp(-epsilon * score / 2) / 2 == pytest.approx(NOBODY)
