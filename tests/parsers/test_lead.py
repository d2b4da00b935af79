"""When the winner of a noisy vote is an answer: each bound on both sides."""

from __future__ import annotations

import math
from typing import Any

import pytest

from langchain_dpicl.common.outcome import CALLS_FAILED, NO_LEAD, UNREADABLE
from langchain_dpicl.mechanisms.voting import lead_over_a_tie, least_votes
from langchain_dpicl.parsers import lead
from langchain_dpicl.parsers.lead import NONE, verdict

SIGMA = 2.0
OVER = lead_over_a_tie(SIGMA, labels=1)


def found(votes: list[int], none: int = 0, *more: int, **terms: Any) -> lead.Verdict:
    others = [none, *more, *[0] * (2 - len(more))]
    return verdict(votes, others, **{"sigma": SIGMA, "min_lead": 0, **terms})


def said(votes: list[int], none: int = 0, *more: int, **terms: Any) -> tuple[Any, str]:
    said = found(votes, none, *more, **terms)
    return said.winner, said.reason


@pytest.mark.parametrize("labels", [1, 2, 5])
def test_a_winner_has_the_least_votes(labels: int) -> None:
    least = least_votes(SIGMA, labels)
    others, low = [-9] * (labels - 1), [-9] * 3
    assert said([*others, least], *low) == (labels - 1, "")
    assert said([*others, least - 1], *low) == (None, NO_LEAD)


@pytest.mark.parametrize("place", range(3))
def test_a_bin_that_is_no_label_is_the_reason_if_it_leads_clearly(place: int) -> None:
    reason = [NONE, UNREADABLE, CALLS_FAILED][place]
    least = least_votes(SIGMA, 2)

    def of(votes: list[int], count: int, second: int = 0) -> tuple[Any, str]:
        others = [second] * 3
        others[place] = count
        return said(votes, *others)

    assert of([50, 1], 50 + OVER) == (None, reason)
    assert of([50, 1], 50 + OVER - 1) == (None, NO_LEAD)
    assert of([1, 1], 60, second=60 - OVER) == (None, reason)
    assert of([1, 1], 60, second=61 - OVER) == (None, NO_LEAD)
    assert of([-9, -9], least, second=-9) == (None, reason)
    assert of([-9, -9], least - 1, second=-9) == (None, NO_LEAD)


@pytest.mark.parametrize("place", range(3))
def test_a_winner_leads_the_others_and_none_by_enough(place: int) -> None:
    assert said([50, 40], min_lead=10) == (0, "")
    assert said([40, 49], min_lead=10) == (None, NO_LEAD)
    others = [0] * 3
    others[place] = 50 - OVER
    assert said([50, 0], *others) == (0, "")
    assert said([50, 0], *others, min_lead=OVER + 1) == (None, NO_LEAD)
    others[place] += 1
    assert said([50, 0], *others) == (None, NO_LEAD)
    # Of labels with the same votes the first one wins, if no lead is asked for.
    assert said([50, 50, 50]) == (0, "")
    assert said([0, 50, 50]) == (1, "")
    assert said([0, 1, 50]) == (2, "")


@pytest.mark.parametrize(
    ("votes", "others", "lead"),
    [
        ([50, 40, 5], (20,), 10),
        ([40, 5, 50], (20,), 10),
        ([50, 10], (45, 20), 5),
        ([10, 3], (45, 9), 35),
        ([10, 3], (9, 25, 45), 20),
        ([50], (20, 30), 20),
    ],
)
def test_the_confidence_is_the_lead_of_the_first_bin_over_the_second(
    votes: list[int], others: tuple[int, ...], lead: int
) -> None:
    said = found(votes, *others)
    assert said.confidence == round(lead / (SIGMA * math.sqrt(2)), 2)


def test_a_verdict_can_not_be_changed() -> None:
    with pytest.raises(AttributeError):
        found([50]).winner = 1  # type: ignore[misc]
