"""Rates, areas and what DP allows: against direct counts, integrals and simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from random import Random

import numpy as np
import pytest

from langchain_dpicl.audit.bounds import (
    area_under_curve,
    clopper_pearson,
    dp_area,
    dp_true_rate,
    found_at,
)


def pairwise(members: Sequence[float], others: Sequence[float]) -> np.ndarray:
    return np.array(
        [[(a > b) + (a == b) / 2 for b in others] for a in members], dtype=float
    )


def test_an_area_and_its_variance_are_those_of_all_pairs() -> None:
    random = Random(1)
    members = [random.choice([1, 2, 3, 4, 5]) for _ in range(30)]
    others = [random.choice([1, 1, 2, 3, 4]) for _ in range(50)]
    wins = pairwise(members, others)
    found = area_under_curve(members, others, 0.95)
    assert found.value == pytest.approx(wins.mean())
    spread = wins.mean(1).var(ddof=1) / 30 + wins.mean(0).var(ddof=1) / 50
    half = 1.959964 * math.sqrt(spread)
    assert found.high - found.value == pytest.approx(half, rel=1e-6)
    assert found.value - found.low == pytest.approx(half, rel=1e-6)


def test_an_interval_covers_the_truth_as_often_as_it_says() -> None:
    draw = np.random.default_rng(2)
    truth = 0.7602499389065233  # Phi(1 / sqrt 2): normal scores, one apart.
    inside = 0
    for _ in range(400):
        found = area_under_curve(
            draw.normal(1, 1, 60).tolist(), draw.normal(0, 1, 60).tolist(), 0.9
        )
        inside += found.low <= truth <= found.high
    assert 0.85 <= inside / 400 <= 0.95


def test_separated_scores_leave_doubt() -> None:
    found = area_under_curve([2.0] * 40, [1.0] * 90, 0.95)
    assert found == clopper_pearson(40, 40, 0.95)
    assert area_under_curve([1.0] * 40, [2.0] * 90, 0.95).high < 0.1


@pytest.mark.parametrize(("successes", "trials"), [(0, 50), (3, 50), (50, 50)])
def test_a_rate_at_an_end_makes_what_was_seen_rare(successes: int, trials: int) -> None:
    found = clopper_pearson(successes, trials, 0.9)

    def tail(p: float, counts: range) -> float:
        return math.fsum(
            math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in counts
        )

    if successes:
        above = range(successes, trials + 1)
        assert tail(found.low, above) == pytest.approx(0.05)
    if successes < trials:
        assert tail(found.high, range(successes + 1)) == pytest.approx(0.05)


def test_a_threshold_takes_no_more_others_than_allowed() -> None:
    others = [float(score) for score in range(1000)]
    found = found_at([989.0, 990.0, 995.0, 5.0], others, 0.01, 0.95)
    assert found.true_rate.value == 0.5
    assert found.false_rate.value == 0.01
    # Ties among the others move the threshold up, and never take more of them.
    tied = found_at([1.0, 2.0], [1.0] * 100, 0.01, 0.95)
    assert (tied.true_rate.value, tied.false_rate.value) == (0.5, 0.0)


@pytest.mark.parametrize(
    ("epsilon", "delta"), list(product([0.0, 0.3, 2.0, 9.0], [0.0, 1e-6, 0.2]))
)
def test_the_largest_area_is_that_under_the_largest_rates(
    epsilon: float, delta: float
) -> None:
    rates = np.linspace(0, 1, 200_001)
    areas = [dp_true_rate(float(rate), epsilon, delta) for rate in rates[::10]]
    assert dp_area(epsilon, delta) == pytest.approx(
        np.trapezoid(areas, rates[::10]), abs=1e-4
    )


def test_randomized_response_reaches_the_largest_rate() -> None:
    right = math.e / (1 + math.e)
    assert dp_true_rate(1 - right, 1.0, 0.0) == pytest.approx(right)
