"""The noisy threshold test: exact frequencies, and an audit of both worlds."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from langchain_dpicl.common.relation import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import (
    SeededRandom,
    agreement,
    exceeds,
    exceeds_pass_rate,
    sensitivity,
)
from langchain_dpicl.mechanisms.rounded_gaussian import RoundedGaussian

RELATIONS = list(Relation)


def drawn(count: int, threshold: float, relation: Relation) -> list[bool]:
    source = SeededRandom(1)
    return [
        exceeds(
            count, threshold, noise_multiplier=4.0, relation=relation, random=source
        )
        for _ in range(6000)
    ]


def law(count: int, threshold: float) -> dict[bool, float]:
    rate = float(stats.norm.sf((threshold - count) / 4.0))
    return {True: rate, False: 1 - rate}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("count", "threshold"), [(50, 50.0), (53, 50.5), (0, 4.0)])
def test_it_is_true_as_often_as_the_formula_says(
    fits: Callable[..., bool], relation: Relation, count: int, threshold: float
) -> None:
    expected = law(count, threshold)
    rate = exceeds_pass_rate(count, threshold, noise_multiplier=4.0, relation=relation)
    assert rate == pytest.approx(expected[True], abs=1e-3)
    assert fits(drawn(count, threshold, relation), expected)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("factor", [0.5, math.sqrt(2)])
def test_noise_of_another_scale_is_caught(
    fits: Callable[..., bool],
    monkeypatch: pytest.MonkeyPatch,
    relation: Relation,
    factor: float,
) -> None:
    monkeypatch.setattr(sensitivity, "agreement_count", lambda _relation: factor)
    assert not fits(drawn(54, 50.0, relation), law(54, 50.0))


def worst_excess(relation: Relation, z: float) -> float:
    """Return the largest divergence beyond the Gaussian's, over neighboring counts."""
    rates = [
        exceeds_pass_rate(count, 6.0, noise_multiplier=z, relation=relation)
        for count in range(40)
    ]
    worst = -1.0
    for epsilon in (-1.0, 0.0, 0.5, 2.0, 6.0):
        growth, shift = math.exp(epsilon), epsilon * z
        allowed = stats.norm.cdf(0.5 / z - shift)
        allowed -= growth * stats.norm.cdf(-0.5 / z - shift)
        for one, two in itertools.pairwise(rates):
            for p, q in ((one, two), (two, one)):
                found = max(p - growth * q, 0) + max(1 - p - growth * (1 - q), 0)
                worst = max(worst, found - float(allowed))
    return worst


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("z", [0.4, 1.5, 5.0])
def test_one_slot_moves_the_answer_no_more_than_is_charged(
    relation: Relation, z: float
) -> None:
    assert worst_excess(relation, z) <= 1e-12


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("z", [0.4, 1.5, 5.0])
def test_half_the_noise_breaks_that(
    monkeypatch: pytest.MonkeyPatch, relation: Relation, z: float
) -> None:
    monkeypatch.setattr(sensitivity, "agreement_count", lambda _relation: 0.5)
    assert worst_excess(relation, z) > 0.05


def test_reaching_the_threshold_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    class Still(RoundedGaussian):
        def draw_one(self, random: object) -> int:
            return 0

    monkeypatch.setattr(agreement, "count_grid", lambda sigma: (4, Still(sigma)))
    found = [
        exceeds(n, 2.25, noise_multiplier=1.0, relation="replace") for n in range(4)
    ]
    assert found == [False, False, False, True]
    assert exceeds(2, 2.0, noise_multiplier=1.0, relation="replace")


@settings(deadline=None, max_examples=100)
@given(
    st.integers(0, 2**32),
    st.floats(-(2**32), 2**32),
    st.floats(1e-6, 1e6),
    st.sampled_from(RELATIONS),
)
def test_rates_are_probabilities_that_grow_with_the_count(
    count: int, threshold: float, z: float, relation: Relation
) -> None:
    terms = {"noise_multiplier": z, "relation": relation}
    rate = exceeds_pass_rate(count, threshold, **terms)
    assert 0.0 <= rate <= 1.0
    assert exceeds_pass_rate(max(count - 1, 0), threshold, **terms) <= rate
    assert isinstance(exceeds(count, threshold, **terms), bool)


@pytest.mark.parametrize(
    "count", [-31337, 31337.5, math.nan, True, "31337", 31337 * 2**20, None]
)
def test_a_count_that_is_none_is_refused_and_not_quoted(count: object) -> None:
    with pytest.raises(InvalidParameterError, match="count") as caught:
        exceeds(count, 5.0, noise_multiplier=1.0, relation="replace")
    assert "31337" not in str(caught.value)


def test_counts_of_numpy_are_counts() -> None:
    assert exceeds(np.int64(90), 5, noise_multiplier=1.0, relation="replace") is True
