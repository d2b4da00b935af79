"""When the winner of a noisy vote is an answer: each bound on both sides."""

from __future__ import annotations

import math
from typing import Any

import pytest

from langchain_dpicl.common.outcome import CALLS_FAILED, NO_LEAD, UNREADABLE
from langchain_dpicl.mechanisms import lead_over_a_tie, least_votes
from langchain_dpicl.parsers import lead
from langchain_dpicl.parsers.lead import NONE, verdict

SIGMA = 2.0
OVER = lead_over_a_tie(SIGMA, labels=1)


def found(
    votes: list[float], none: float = 0.0, *more: float, **terms: Any
) -> lead.Verdict:
    others = [none, *more, *[0.0] * (2 - len(more))]
    return verdict(votes, others, **{"sigma": SIGMA, "min_lead": 0.0, **terms})


def said(
    votes: list[float], none: float = 0.0, *more: float, **terms: Any
) -> tuple[Any, str]:
    said = found(votes, none, *more, **terms)
    return said.winner, said.reason


@pytest.mark.parametrize("labels", [1, 2, 5])
def test_a_winner_has_the_least_votes(labels: int) -> None:
    least = least_votes(SIGMA, labels)
    others, low = [-9.0] * (labels - 1), [-9.0] * 3
    assert said([*others, least], *low) == (labels - 1, "")
    below = math.nextafter(least, 0)
    assert said([*others, below], *low) == (None, NO_LEAD)


@pytest.mark.parametrize("place", range(3))
def test_a_bin_that_is_no_label_is_the_reason_if_it_leads_clearly(place: int) -> None:
    reason = [NONE, UNREADABLE, CALLS_FAILED][place]
    least = least_votes(SIGMA, 2)

    def of(votes: list[float], count: float, second: float = 0.0) -> tuple[Any, str]:
        others = [second] * 3
        others[place] = count
        return said(votes, *others)

    assert of([50.0, 1.0], 50.0 + OVER) == (None, reason)
    assert of([50.0, 1.0], 50.0 + OVER - 0.01) == (None, NO_LEAD)
    assert of([1.0, 1.0], 60.0, second=60.0 - OVER) == (None, reason)
    assert of([1.0, 1.0], 60.0, second=60.01 - OVER) == (None, NO_LEAD)
    assert of([-9.0, -9.0], least, second=-9.0) == (None, reason)
    assert of([-9.0, -9.0], math.nextafter(least, 0), second=-9.0) == (None, NO_LEAD)


@pytest.mark.parametrize("place", range(3))
def test_a_winner_leads_the_others_and_none_by_enough(place: int) -> None:
    assert said([50.0, 40.0], min_lead=10.0) == (0, "")
    assert said([40.0, 49.5], min_lead=10.0) == (None, NO_LEAD)
    others = [0.0] * 3
    others[place] = 50.0 - OVER
    assert said([50.0, 0.0], *others) == (0, "")
    assert said([50.0, 0.0], *others, min_lead=OVER + 0.1) == (None, NO_LEAD)
    others[place] += 0.01
    assert said([50.0, 0.0], *others) == (None, NO_LEAD)
    # Of labels with the same votes the first one wins, if no lead is asked for.
    assert said([50.0, 50.0, 50.0]) == (0, "")
    assert said([0.0, 50.0, 50.0]) == (1, "")
    assert said([0.0, 1.0, 50.0]) == (2, "")


@pytest.mark.parametrize(
    ("votes", "others", "lead"),
    [
        ([50.0, 40.0, 5.0], (20.0,), 10.0),
        ([40.0, 5.0, 50.0], (20.0,), 10.0),
        ([50.0, 10.0], (45.0, 20.0), 5.0),
        ([10.0, 3.0], (45.0, 9.0), 35.0),
        ([10.0, 3.0], (9.0, 25.0, 45.0), 20.0),
        ([50.0], (20.0, 30.0), 20.0),
    ],
)
def test_the_confidence_is_the_lead_of_the_first_bin_over_the_second(
    votes: list[float], others: tuple[float, ...], lead: float
) -> None:
    said = found(votes, *others)
    assert said.confidence == round(lead / (SIGMA * math.sqrt(2)), 2)


def test_a_verdict_can_not_be_changed() -> None:
    with pytest.raises(AttributeError):
        found([50.0]).winner = 1  # type: ignore[misc]
