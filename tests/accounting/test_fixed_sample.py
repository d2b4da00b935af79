"""The curve of a sample of fixed size, and its moments, against many digits."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from support.accounting_strategies import gaussian_curve
from support.filter_oracle import number

from langchain_dpicl.accounting.fixed_sample import (
    curve,
    further_moments,
    probabilities,
)

PAIRS = [(0.4, 0.3), (1.0, 0.01), (1.3, 0.9), (20.0, 0.2)]


def above(z: float, q: float, epsilon: mp.mpf) -> mp.mpf:
    """Advanced joint convexity: q times the Gaussian's curve further out."""
    further = mp.log(1 + (mp.exp(epsilon) - 1) / number(q))
    return number(q) * gaussian_curve(1 / number(z), further)


def adding(z: float, q: float, epsilon: mp.mpf) -> mp.mpf:
    """The curve of N(0, z^2) against its mixture with N(1, z^2)."""
    rest = 1 - (1 - number(q)) * mp.exp(epsilon)
    if rest <= 0:
        return mp.mpf(0)
    return rest * gaussian_curve(1 / number(z), epsilon + mp.log(number(q) / rest))


@pytest.mark.parametrize(("z", "q"), PAIRS)
def test_the_curve_against_many_digits(z: float, q: float) -> None:
    epsilons = np.array([-30.0, -2.0, -0.1, -1e-6, 0.0, 1e-6, 0.03, 0.4, 2.0])
    found = curve(z, q, epsilons)
    with mp.workdps(60):
        exact = []
        for epsilon in epsilons.tolist():
            other = above(z, q, number(abs(epsilon)))
            shrunk = mp.exp(-number(abs(epsilon)))
            exact.append(other if epsilon >= 0 else 1 - shrunk + shrunk * other)
    assert found.tolist() == pytest.approx([float(d) for d in exact], rel=1e-9, abs=0)


def test_a_curve_is_a_probability_however_far_out() -> None:
    found = curve(0.05, 0.5, np.array([-800.0, 0.0, 700.0, 5000.0]))
    assert found.tolist() == pytest.approx([1.0, 0.5, 0.0, 0.0], abs=1e-12)
    assert curve(1e-3, 0.999, np.array([-1e-9])).max() <= 1.0


@pytest.mark.parametrize(("z", "q"), PAIRS)
def test_masses_on_the_grid_have_the_curve_at_its_points(z: float, q: float) -> None:
    step, top = 2.0**-5, 3.1
    lowest, masses, infinity = probabilities(z, q, step, top)
    losses = (lowest + np.arange(len(masses))) * step
    # As many points above 0 as below.
    assert lowest == -math.ceil(top / step)
    assert len(masses) == 2 * math.ceil(top / step) + 1
    for k in (0, 1, 40, len(masses) // 2, len(masses) - 2, len(masses) - 1):
        beyond = losses > losses[k]
        weighed = masses[beyond] @ -np.expm1(losses[k] - losses[beyond]) + infinity
        expected = float(curve(z, q, losses[k : k + 1])[0])
        assert weighed == pytest.approx(expected, rel=1e-9, abs=1e-14)
    assert masses.sum() + infinity == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(("z", "q"), PAIRS)
def test_further_moments_are_the_integral_of_what_the_curve_has_more(
    z: float, q: float
) -> None:
    orders = (2, 17)
    found = further_moments(z, q, orders)
    ends = [0, 1e-3, 0.01, 0.05, 0.2, 0.5, 1, 2, 4, 8, 16, 40]
    end = -math.log1p(-q)
    if end < 40:
        ends = sorted({*ends, end})
    with mp.workdps(20):
        for order, most in zip(orders, found.tolist(), strict=True):

            def weighed(epsilon: mp.mpf, order: int = order) -> mp.mpf:
                more = above(z, q, epsilon) - adding(z, q, epsilon)
                return mp.exp(-order * epsilon) * more

            exact = order * (order - 1) * mp.quad(weighed, ends)
            assert exact <= most <= exact * 1.25


def test_recorded_moments() -> None:
    """Just above the integrals of the test above."""
    found = [further_moments(z, q, (2, 9, 300)).tolist() for z, q in PAIRS]
    for each, moments in zip(
        found,
        [
            [0.13277129074837224, 0.5007621819318597, 0.5578986684231378],
            [0.00010934705150469155, 0.0032450985448289455, 0.28571440229246137],
            [0.010237241382558252, 0.029648442766554952, 0.0323986712202687],
            [3.437568995028134e-06, 0.00011367699819274478, 0.014143357284616596],
        ],
        strict=True,
    ):
        assert each == pytest.approx(moments, rel=1e-11, abs=0)
