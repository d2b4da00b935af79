"""How a guess of the groups' answers becomes counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from langchain_dpicl import InvalidParameterError
from langchain_dpicl.planner.crowd import Crowd, occupied


@pytest.mark.parametrize(
    ("people", "groups", "rate"),
    [(1, 3, 1.0), (30, 25, 1.0), (30, 25, 0.25), (400, 50, 0.125), (3000, 25, 0.5)],
)
def test_people_fall_into_groups_as_balls_into_bins(
    people: int, groups: int, rate: float
) -> None:
    random = np.random.default_rng(1)
    sampled = random.binomial(people, rate, size=4000)
    thrown = random.multinomial(sampled, [1 / groups] * groups)
    held = (thrown > 0).sum(axis=1)
    found = occupied(people, groups, rate)
    assert found.sum() == pytest.approx(1)
    mean = float(found @ np.arange(groups + 1))
    deviation = float(np.sqrt(found @ (np.arange(groups + 1) - mean) ** 2))
    assert held.mean() == pytest.approx(mean, abs=0.08 * deviation + 1e-4)
    assert held.std() == pytest.approx(deviation, rel=0.08, abs=0.01)
    # The people of a group are about Poisson(N q / m).
    empty = 1 - mean / groups
    assert empty == pytest.approx(np.exp(-people * rate / groups), abs=0.06)


def test_everybody_in_the_sample_is_no_special_case() -> None:
    nearly = occupied(40, 25, 1 - 1e-9)
    assert np.abs(nearly - occupied(40, 25, 1.0)).max() < 1e-6


def test_very_many_people_leave_no_group_empty() -> None:
    for people in (10**5, 10**9, 10**18):
        for rate in (1.0, 1 / 16):
            assert occupied(people, 50, rate)[-1] > 0.9999
    # Of very many people at a very small rate few are in the sample.
    few = occupied(10**18, 50, 1e-16)
    assert few[0] == pytest.approx(np.exp(-100), rel=1e-3)
    assert few.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("terms", "shares"),
    [
        ((0.5, 0.2, 5), [0.5, 0.2, 0.1, 0.1, 0.1, 0.0]),
        ((0.5, 0.2, 2), [0.5, 0.2, 0.3]),
        ((0.5, 0.1, 3), [0.5, 0.1, 0.1, 0.3]),
        ((0.7, 0.3, 8), [0.7, 0.3, *[0.0] * 7]),
        ((1.0, 0.0, 3), [1.0, 0.0, 0.0, 0.0]),
        ((0.1, 0.2, 2), [0.1, 0.2, 0.7]),
    ],
)
def test_the_rest_is_spread_over_the_others_or_says_nothing(
    terms: Any, shares: list[float]
) -> None:
    assert Crowd.of(100, *terms).shares.tolist() == pytest.approx(shares, abs=1e-12)


@pytest.mark.parametrize("blocks", [(20,), (5, 5, 5, 5), (2, 3, 15)])
def test_blocks_share_out_the_groups_that_have_somebody(blocks: Any) -> None:
    crowd = Crowd.of(30, 0.5, 0.2, 4)
    found = crowd.counts(20, 0.5, blocks, 4000, np.random.default_rng(2))
    total = sum(found)
    assert isinstance(total, np.ndarray)
    expected = occupied(30, 20, 0.5) @ np.arange(21)
    assert total.sum(axis=1).mean() == pytest.approx(expected, rel=0.01)
    assert total.sum(axis=1).max() <= 20
    for size, counts in zip(blocks, found, strict=True):
        held = counts.sum(axis=1)
        assert held.max() <= size
        assert held.mean() == pytest.approx(expected * size / 20, rel=0.05)
        parts = counts.sum(axis=0) / counts.sum()
        assert parts == pytest.approx(crowd.shares, abs=0.02)


@pytest.mark.parametrize(
    ("terms", "named"),
    [
        ((0, 0.5, 0.2, 8), "people_per_question"),
        ((2.5, 0.5, 0.2, 8), "people_per_question"),
        ((10, 0.0, 0.2, 8), "share"),
        ((10, 1.2, 0.0, 8), "share"),
        ((10, float("nan"), 0.0, 8), "share"),
        ((10, 0.5, -0.1, 8), "runner_up"),
        ((10, 0.7, 0.4, 8), "add up to more than 1"),
        ((10, 0.5, 0.2, 1), "choices"),
        ((10, 0.5, 0.2, 10**6), "choices"),
    ],
)
def test_a_guess_that_can_not_be_is_refused(terms: Any, named: str) -> None:
    with pytest.raises(InvalidParameterError, match=named):
        Crowd.of(*terms)
