from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import DiscreteLaplace, SecureRandom, SeededRandom
from langchain_dpicl.mechanisms.discrete_laplace import MAX_SCALE, MIN_SCALE

Fits = Callable[..., bool]


def law(scale: Fraction, reach: int) -> dict[int, float]:
    """By 60 digits of the sum over all integers: independent of the code under test."""
    with mpmath.workdps(60):
        ratio = mpmath.exp(-mpmath.mpf(scale.denominator) / scale.numerator)
        total = 1 + 2 * ratio / (1 - ratio)
        return {k: float(ratio ** abs(k) / total) for k in range(-reach, reach + 1)}


@pytest.mark.parametrize(
    "scale", ["1/5", "2/3", "1", "7/3", "20", "1099511627777/1099511627776"]
)
def test_draws_follow_the_exact_formula(fits: Fits, scale: str) -> None:
    exact = Fraction(scale)
    draws = DiscreteLaplace(exact).draw(120_000, SeededRandom(1)).tolist()
    assert fits(draws, law(exact, 600))
    assert not fits(draws, law(exact / 2, 600))
    assert not fits(draws, law(exact * Fraction(21, 20), 600))


def test_a_zero_that_counts_twice_is_caught(fits: Fits) -> None:
    """A twin that keeps minus zero: a geometric number with a fair sign."""
    scale = Fraction(3)
    source = SeededRandom(2)
    draws = DiscreteLaplace(scale).draw(100_000, source)
    geometric = draws[draws >= 0]
    signs = 2 * source.integers(geometric.size, 2) - 1
    assert not fits((signs * geometric).tolist(), law(scale, 200))
    # Without the fault the same numbers fit.
    again = geometric[(signs > 0) | (geometric != 0)]
    signs = signs[(signs > 0) | (geometric != 0)]
    assert fits((signs * again).tolist(), law(scale, 200))


def test_a_floor_by_another_divisor_is_caught(fits: Fits) -> None:
    scale = Fraction(7, 3)
    draws = DiscreteLaplace(Fraction(7, 2)).draw(100_000, SeededRandom(3)).tolist()
    assert not fits(draws, law(scale, 200))


@pytest.mark.parametrize("scale", [Fraction(10**6) + Fraction(1, 7), Fraction(2**50)])
def test_large_scales_have_the_shape_of_a_laplace(scale: Fraction) -> None:
    """On a fine grid the law is the continuous one: a KS test can tell."""
    draws = DiscreteLaplace(scale).draw(100_000, SeededRandom(4)) / float(scale)
    assert stats.kstest(draws, "laplace").pvalue > 1e-6
    assert stats.kstest(draws * 1.05, "laplace").pvalue < 1e-6


def test_draws_are_independent_and_symmetric() -> None:
    draws = DiscreteLaplace(Fraction(50)).draw(100_000, SeededRandom(5))
    bound = 5 / np.sqrt(draws.size)
    signs = np.sign(draws)
    assert abs(signs.mean()) < bound
    assert abs(np.corrcoef(signs[1:], signs[:-1])[0, 1]) < bound
    assert abs(np.corrcoef(np.abs(draws[1:]), np.abs(draws[:-1]))[0, 1]) < bound


@pytest.mark.parametrize("count", [0, 1, 5, 70_001])
def test_as_many_draws_as_asked_of_64_bits(count: int) -> None:
    draws = DiscreteLaplace(Fraction(2)).draw(count, SecureRandom())
    assert draws.shape == (count,)
    assert draws.dtype == np.int64


def test_a_huge_epsilon_leaves_no_noise() -> None:
    noise = DiscreteLaplace.calibrated(1, 1e300)
    assert noise.scale == MIN_SCALE
    assert not noise.draw(10_000, SecureRandom()).any()
    assert noise.standard_deviation == 0


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 2**40), st.floats(1e-3, 1e9))
def test_the_scale_is_never_rounded_down(sensitivity: int, epsilon: float) -> None:
    """Exactly, on fractions: P(k) / P(k + sensitivity) <= e^epsilon."""
    noise = DiscreteLaplace.calibrated(sensitivity, epsilon)
    asked = Fraction(sensitivity) / Fraction(epsilon)
    assert sensitivity / noise.scale <= Fraction(epsilon)
    assert noise.scale <= max(asked * (1 + Fraction(1, 2**38)), MIN_SCALE)
    assert noise.scale.numerator <= MAX_SCALE
    assert DiscreteLaplace(noise.scale) == noise


@pytest.mark.parametrize(("sensitivity", "epsilon"), [(1, 1.1), (3, 0.7), (8, 2.5)])
def test_no_ratio_of_probabilities_exceeds_the_bound(
    sensitivity: int, epsilon: float
) -> None:
    """The privacy claim on the law itself, in 60 digits."""

    def worst(scale: Fraction) -> mpmath.mpf:
        decay = mpmath.mpf(scale.denominator) / scale.numerator
        return max(
            mpmath.exp(decay * (abs(k - sensitivity) - abs(k))) for k in range(-40, 41)
        )

    noise = DiscreteLaplace.calibrated(sensitivity, epsilon)
    with mpmath.workdps(60):
        bound = mpmath.exp(mpmath.mpf(epsilon))
        assert bound * (1 - mpmath.mpf(10) ** -9) < worst(noise.scale) <= bound
        assert worst(noise.scale * (1 - Fraction(1, 10**9))) > bound


@pytest.mark.parametrize("scale", ["1/30", "1/2", "3", "200"])
def test_the_formulas_agree_with_the_sum(scale: str) -> None:
    noise = DiscreteLaplace(Fraction(scale))
    reach = int(60 * noise.scale) + 80
    exact = law(noise.scale, reach)
    deviation = math.sqrt(math.fsum(p * k * k for k, p in exact.items()))
    assert noise.standard_deviation == pytest.approx(deviation, rel=1e-12)
    for t in (-70, -3, -1, 0, 1, 5, 40):
        assert noise.probability(t) == pytest.approx(exact[t], rel=1e-12, abs=1e-300)
        beyond = math.fsum(p for k, p in exact.items() if k > t)
        assert noise.tail(t) == pytest.approx(beyond, rel=1e-11, abs=1e-25)


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, math.inf, "1", None, True])
def test_budgets_out_of_range_are_refused(epsilon: object) -> None:
    with pytest.raises(InvalidParameterError, match="epsilon"):
        DiscreteLaplace.calibrated(1, epsilon)


@pytest.mark.parametrize("sensitivity", [0, -2, 1.0, "1", None, True])
def test_sensitivities_out_of_range_are_refused(sensitivity: object) -> None:
    with pytest.raises(InvalidParameterError, match="sensitivity"):
        DiscreteLaplace.calibrated(sensitivity, 1.0)


@pytest.mark.parametrize(("moved", "epsilon"), [(1, 1e-16), (2**51, 1.0), (1, 5e-324)])
def test_noise_too_large_to_draw_is_refused(moved: int, epsilon: float) -> None:
    with pytest.raises(InvalidParameterError, match=r"epsilon.*too small"):
        DiscreteLaplace.calibrated(moved, epsilon)
    assert DiscreteLaplace.calibrated(2**50, 1.0).scale == 2**50
    # Rounded up to a whole number, as a fraction would have too large a numerator.
    assert DiscreteLaplace.calibrated(2**50 - 1, 1 + 3 * 2**-52).scale == 2**50 - 1


@pytest.mark.parametrize(
    "scale",
    [Fraction(0), Fraction(-1), Fraction(2**50 + 1), Fraction(1, 2**62 + 1), 1.5, 2],
)
def test_scales_that_cannot_be_drawn_are_refused(scale: object) -> None:
    with pytest.raises(InvalidParameterError, match="scale"):
        DiscreteLaplace(scale)


def test_a_smallest_possible_scale_is_drawn() -> None:
    assert not DiscreteLaplace(Fraction(1, 2**62)).draw(100, SecureRandom()).any()
