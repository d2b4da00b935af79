"""A sample of fixed size is not a Poisson sample, and must not be accounted as one.

Exactly n of N units are drawn, and a unit's record is replaced. Where the unit is drawn
the sum has its contribution b or, replaced, c; where it is not, another's contribution
a is there instead, so that the pair of a step is

    (1 - q) N(a, z^2) + q N(b, z^2)   against   (1 - q) N(a, z^2) + q N(c, z^2).

Any two contributions are at most one sensitivity apart. Where a, b and c are all of
them one apart, the two mixtures differ on *both* sides of a. A Poisson step's pair,
N(0, z^2) against (1 - q) N(0, z^2) + q N(1, z^2), differs on one.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import numpy.typing as npt
import pytest
from scipy import fft

from langchain_dpicl.accounting import (
    FixedSampleGaussianEvent,
    Gaussian,
    calibrate,
    compose,
    cross_check,
    event_from_dict,
    event_to_dict,
)
from langchain_dpicl.accounting.fixed_sample import curve
from langchain_dpicl.accounting.renyi import divergence
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import vote_template

Floats = npt.NDArray[np.float64]
Point = tuple[float, float]

Z, Q, BUDGET_UNITS, DELTA = 0.8, 0.005, 20_000, 1e-5
A, B, C = (0.0, math.sqrt(0.75)), (0.5, 0.0), (-0.5, 0.0)


def mixture(z: float, q: float, usual: Point, drawn: Point) -> Floats:
    """The density of one step on a grid in the plane of the three contributions."""
    reach = 7 * z + 1
    x = np.linspace(-reach, reach, 201)
    cell = (x[1] - x[0]) ** 2 / (2 * math.pi * z * z)
    at = {
        point: cell
        * np.exp(-((x[:, None] - point[0]) ** 2) / (2 * z * z))
        * np.exp(-((x[None, :] - point[1]) ** 2) / (2 * z * z))
        for point in (usual, drawn)
    }
    return (1 - q) * at[usual] + q * at[drawn]


def delta_of(left: Floats, right: Floats, steps: int, epsilon: float) -> float:
    """delta(epsilon) of many steps, by convolution; precise to a few percent."""
    reach, step = 40.0, 1e-3
    size = round(2 * reach / step)
    losses = np.log(left / right) / step
    cells = np.floor(losses).astype(np.int64)
    upper = left * (losses - cells)
    masses = np.zeros(size)
    np.add.at(masses, cells % size, left - upper)
    np.add.at(masses, (cells + 1) % size, upper)
    composed = np.maximum(fft.irfft(fft.rfft(masses) ** steps, size), 0.0)
    total = np.arange(size) * step
    total[total >= reach] -= 2 * reach
    above = total > epsilon
    return float((composed[above] * -np.expm1(epsilon - total[above])).sum())


def test_a_sample_of_fixed_size_loses_more_than_poisson_accounting_says() -> None:
    accounted = compose([Gaussian(Z, Q, BUDGET_UNITS)], DELTA)
    poisson = mixture(Z, Q, C, B), mixture(Z, Q, C, C)
    fixed = mixture(Z, Q, A, B), mixture(Z, Q, A, C)
    # The same computation finds the accountant's figure for what it is the figure of.
    assert abs(delta_of(*poisson, BUDGET_UNITS, accounted) / DELTA - 1) < 0.05
    assert delta_of(*fixed, BUDGET_UNITS, accounted) > 5 * DELTA


@pytest.mark.parametrize(("z", "q", "uses"), [(0.8, 0.005, 20_000), (1.1, 0.25, 20)])
def test_its_own_event_covers_it(z: float, q: float, uses: int) -> None:
    accounted = compose([FixedSampleGaussianEvent(z, q, uses)], DELTA)
    fixed = mixture(z, q, A, B), mixture(z, q, A, C)
    # The worst pair of every epsilon is no one pair: a little is given away.
    assert delta_of(*fixed, uses, accounted) < DELTA
    assert accounted < 1.4 * compose([Gaussian(z, q, uses)], DELTA)


@pytest.mark.parametrize("q", [0.01, 0.25, 0.5])
@pytest.mark.parametrize("z", [0.6, 1.5, 4.0])
def test_the_curve_covers_the_worst_pair_at_every_epsilon(z: float, q: float) -> None:
    fixed = mixture(z, q, A, B), mixture(z, q, A, C)
    losses = np.linspace(-2, 2, 41)
    claimed = curve(z, q, losses)
    for epsilon, delta in zip(losses.tolist(), claimed.tolist(), strict=True):
        for left, right in (fixed, fixed[::-1]):
            exact = np.maximum(left - math.exp(epsilon) * right, 0).sum()
            assert exact <= delta + 1e-6
    # Where B' is A, for epsilon of 0 and above, it is the curve.
    pair = mixture(z, q, C, B), mixture(z, q, C, C)
    for epsilon, delta in zip(losses[20:].tolist(), claimed[20:].tolist(), strict=True):
        exact = np.maximum(pair[0] - math.exp(epsilon) * pair[1], 0).sum()
        assert abs(exact - delta) < 3e-4


@pytest.mark.parametrize("q", [0.02, 0.25, 0.5])
@pytest.mark.parametrize("z", [0.7, 2.0])
def test_its_renyi_divergence_covers_the_worst_pair(z: float, q: float) -> None:
    event = FixedSampleGaussianEvent(z, q)
    fixed = mixture(z, q, A, B), mixture(z, q, A, C)
    ratio = np.log(fixed[0] / fixed[1])
    orders = np.array([1.5, 2.0, 3.0, 8.0, 20.5])
    claimed = divergence(event, orders - 1)
    poisson = divergence(Gaussian(z, q), orders - 1)
    assert (claimed >= poisson).all()
    for order, most, least in zip(orders, claimed, poisson, strict=True):
        exact = np.log((fixed[0] * np.exp((order - 1) * ratio)).sum())
        assert exact / (order - 1) <= most * (1 + 1e-6) + 1e-9
        assert most <= 2.1 * least


def test_it_costs_a_little_more_noise_than_a_poisson_sample() -> None:
    for epsilon, uses, q in ((8, 20, 0.25), (3, 100, 0.125), (1, 20, 0.125)):
        poisson = calibrate(lambda t, q=q: [Gaussian(t, q)], epsilon, 1e-6, uses=uses)
        fixed = calibrate(
            lambda t, q=q: [FixedSampleGaussianEvent(t, q)], epsilon, 1e-6, uses=uses
        )
        assert 1 < fixed / poisson < 1.06
        check = cross_check([FixedSampleGaussianEvent(fixed, q, uses)], 1e-6)
        assert check.agrees, check
        # Charged as Poisson samples it would not be: the check sees the difference.
        doubled = cross_check([FixedSampleGaussianEvent(fixed / 1.5, q, uses)], 1e-6)
        assert doubled.pld > 1.3 * epsilon


def test_it_is_stored_and_charged_for_what_it_is() -> None:
    event = FixedSampleGaussianEvent(2.0, 0.25, 3)
    assert event_from_dict(event_to_dict(event)) == event
    with pytest.raises(InvalidParameterError, match="below 1"):
        FixedSampleGaussianEvent(2.0, 1.0)
    poisson = vote_template("vote", 2.0, sampling_rate=0.25)
    fixed = dataclasses.replace(poisson, is_fixed_size=True)
    charged = fixed.events(1.0, 0.0)
    assert charged == (FixedSampleGaussianEvent(2.0, 0.25),)
    assert fixed.read(charged).noise_multiplier == 2.0
    assert fixed.to_dict() != poisson.to_dict()
    for template, events in (
        (fixed, poisson.events(1.0, 0.0)),
        (poisson, charged),
    ):
        with pytest.raises(InvalidParameterError, match="do not fit"):
            template.read(events)
