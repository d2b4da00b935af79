"""One vote moved costs what was paid; labels without votes and ties rarely come out.

The noise of votes is a whole number of steps, which is read off the released numbers. A
draw of many pairs of labels is as many independent runs of a vote with two labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from faces import accounting, charged, draw, voting
from scipy import stats

RUNS, SURE = 40_000, 1e-6


def runs(z: float, relation: str, coins: int, *, moved: bool) -> Any:
    """Return noisy votes, a row a run, of one vote that is in its place or moved."""
    here = np.zeros((RUNS, 2), dtype=np.int64)
    if not moved:
        here[:, 0] = 1
    elif relation == "replace":
        here[:, 1] = 1
    noisy = draw("votes", here.ravel(), charged("votes", z), coins, relation=relation)
    return noisy.reshape(RUNS, 2)


def check_votes(z: float, relation: str, drawn_at: float, epsilon: float) -> None:
    """Check delta of the best test of the two worlds against what z promises."""
    plain = runs(drawn_at, relation, 1, moved=False)
    moved = runs(drawn_at, relation, 2, moved=True)
    two = relation == "replace"
    distance = math.sqrt(2) if two else 1.0
    sigma = z * distance

    def score(noisy: Any) -> Any:
        # The logarithm of the likelihood ratio.
        along = (noisy[:, 0] - noisy[:, 1]) / distance if two else noisy[:, 0] - 0.5
        return along * distance / sigma**2

    hits = int((score(plain) > epsilon).sum()), int((score(moved) > epsilon).sum())
    mu = 1 / z
    promised = stats.norm.cdf(mu / 2 - epsilon / mu)
    promised -= math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
    low = stats.beta.ppf(SURE / 2, hits[0], RUNS - hits[0] + 1)
    high = stats.beta.ppf(1 - SURE / 2, hits[1] + 1, RUNS - hits[1])
    assert low - math.exp(epsilon) * high <= promised
    found = (hits[0] - math.exp(epsilon) * hits[1]) / RUNS
    assert found >= 0.9 * promised - 0.01
    price = accounting.compose(charged("votes", z), promised)
    assert price == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.promise("vote-price")
@pytest.mark.parametrize("relation", ["replace", "add_remove"])
@pytest.mark.parametrize(("z", "epsilon"), [(3.0, 0.05), (6.0, 0.02)])
def test_one_vote_moved_costs_what_was_paid_and_hardly_less(
    relation: str, z: float, epsilon: float
) -> None:
    check_votes(z, relation, z, epsilon)


@pytest.mark.promise("vote-price", twin=True)
@pytest.mark.parametrize("factor", [0.5, 1 / math.sqrt(2), 2.0])
def test_other_noise_than_was_paid_for_is_found(factor: float) -> None:
    for relation in ("replace", "add_remove"):
        with pytest.raises(AssertionError):
            check_votes(3.0, relation, 3.0 * factor, 0.05)


def steps_of(z: float) -> int:
    """Return how many steps of the noise a vote has, read off a release."""
    zeros = np.zeros(200, dtype=np.int64)
    noisy = draw("votes", zeros, charged("votes", z), 3, relation="add_remove")
    parts = [Fraction(v).limit_denominator(1 << 20).denominator for v in noisy.tolist()]
    return math.lcm(*parts)


def chances(z: float, labels: int, least: float, lead: float) -> tuple[float, float]:
    """Return how often a label that nobody chose, or one of a tie, comes out."""
    steps = steps_of(z)
    scale = steps * z
    at_least = stats.norm.sf((math.ceil(least * steps) - 0.5) / scale)
    blank = -math.expm1(labels * math.log1p(-at_least))
    reach = math.ceil(9 * scale)
    whole = np.arange(-reach, reach + 1)
    law = stats.norm.cdf((whole + 0.5) / scale) - stats.norm.cdf((whole - 0.5) / scale)
    ahead = stats.norm.sf((whole + math.ceil(lead * steps) - 0.5) / scale)
    return blank, 2 * float(law @ ahead)


def check_thresholds(
    least: Callable[[float, int], float], lead: Callable[[float], float]
) -> None:
    """Check the one percent and the five percent, for the noise as it is drawn."""
    for z in (0.8, 1.7, 4.1, 30.3):
        for labels in (1, 2, 5, 40):
            votes, ahead = least(z, labels), lead(z)
            blank, tie = chances(z, labels, votes, ahead)
            assert blank <= 0.01
            assert tie <= 0.05
            # One step less is too little.
            step = 1 / steps_of(z)
            blank, tie = chances(z, labels, votes - step, ahead - step)
            assert blank > 0.01
            assert tie > 0.05


@pytest.mark.promise("blank-label", "tie")
def test_a_label_without_votes_and_one_of_a_tie_rarely_come_out() -> None:
    check_thresholds(voting.least_votes, voting.lead_over_a_tie)


@pytest.mark.promise("blank-label", "tie", twin=True)
def test_quantiles_of_real_noise_are_too_low_for_whole_noise() -> None:
    def least(sigma: float, labels: int) -> float:
        return sigma * float(stats.norm.isf(-math.expm1(math.log1p(-0.01) / labels)))

    def lead(sigma: float) -> float:
        return sigma * math.sqrt(2) * float(stats.norm.isf(0.025))

    ours = voting.least_votes, voting.lead_over_a_tie
    for pair in ((least, ours[1]), (ours[0], lead)):
        with pytest.raises(AssertionError):
            check_thresholds(*pair)
