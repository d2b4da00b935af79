"""The loss of one use on a grid: in both orders of the neighbors, and never too low."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from scipy import optimize, special

from langchain_dpicl.accounting import (
    Event,
    Exponential,
    Gaussian,
    Pure,
    compose,
)
from langchain_dpicl.accounting.discretization import (
    FINE,
    MAX_COMPOSED,
    SLOPES,
    Measure,
    _spread,
    discretize,
    grid_step,
    one_use,
)


def sampled_directions(z: float, q: float, epsilon: float) -> tuple[float, float]:
    """The hockey-stick divergences of a sampled Gaussian: removing, adding a unit.

    Unlike `sampled_curve` it keeps them apart, and epsilon may be negative.
    """
    normal = NormalDist().cdf

    def edge(ratio: float) -> float:
        rest = ratio - (1 - q)
        return z * math.log(rest / q) + 0.5 / z if rest > 0 else -math.inf

    def mixture(x: float) -> float:
        return (1 - q) * normal(x) + q * normal(x - 1 / z)

    def both(sign: int, x: float) -> tuple[float, float]:
        if math.isinf(x):
            return (1.0, 1.0) if sign > 0 else (0.0, 0.0)
        below = mixture(x), normal(x)
        return (1 - below[0], 1 - below[1]) if sign > 0 else below

    removing, without = both(1, edge(math.exp(epsilon)))
    sampled, adding = both(-1, edge(math.exp(-epsilon)))
    weight = math.exp(epsilon)
    return removing - weight * without, adding - weight * sampled


@pytest.mark.parametrize(
    ("z", "q", "pure", "delta"),
    [(0.5, 0.4, 0.9, 0.45), (1.0, 0.17, 0.2, 0.1), (0.45, 0.68, 2.75, 0.6)],
)
def test_each_order_of_the_neighbors_counts(
    z: float, q: float, pure: float, delta: float
) -> None:
    """Beside a pure event, adding a unit can cost more than removing one."""

    def exact(direction: int) -> float:
        def curve(epsilon: float) -> float:
            return sum(
                sampled_directions(z, q, epsilon - loss)[direction]
                / (1 + math.exp(-loss))
                for loss in (pure, -pure)
            )

        return float(optimize.brentq(lambda e: curve(e) - delta, 0, 10))

    removing, adding = exact(0), exact(1)
    assert adding > 1.2 * removing
    figure = compose([Gaussian(z, q), Pure(pure)], delta)
    assert adding <= figure <= adding * 1.002


def curve(measure: Measure, step: float, epsilon: float) -> float:
    """Return the hockey-stick divergence of a discretized loss."""
    losses = (np.arange(len(measure.probabilities)) + measure.lowest) * step
    beyond = losses > epsilon
    shares = -np.expm1(epsilon - losses[beyond])
    return measure.infinity + float(measure.probabilities[beyond] @ shares)


@pytest.mark.parametrize(("z", "q"), [(0.5, 0.4), (2.0, 0.01), (1.0, 0.9)])
def test_a_sampled_gaussians_curves_are_bounds_in_both_orders(
    z: float, q: float
) -> None:
    event = Gaussian(z, q)
    step = grid_step([event], FINE)
    measures = discretize(event, step)
    assert len(measures) == 2
    for epsilon in np.linspace(-3, 6, 61):
        exact = sampled_directions(z, q, float(epsilon))
        for found, true in zip(measures, exact, strict=True):
            assert -1e-12 <= curve(found, step, epsilon) - true <= 0.03 * step + 1e-10


@pytest.mark.parametrize("loss", [0.01, 0.7, 5.0])
def test_randomized_responses_curve_is_a_bound(loss: float) -> None:
    step = grid_step([Pure(loss)], FINE)
    (measure,) = discretize(Pure(loss), step)
    assert measure.probabilities.sum() == pytest.approx(1, abs=1e-14)
    for epsilon in np.linspace(-1.5 * loss, 1.5 * loss, 61):
        true = sum(
            max(0.0, -math.expm1(epsilon - value)) / (1 + math.exp(-value))
            for value in (loss, -loss)
        )
        assert -1e-14 <= curve(measure, step, epsilon) - true <= step


def test_cumulants_and_errors_are_those_of_the_measure() -> None:
    event = Gaussian(2.0, 0.1)
    step = grid_step([event], FINE)
    for measure in discretize(event, step):
        losses = (np.arange(len(measure.probabilities)) + measure.lowest) * step
        for slope, cumulant in zip(SLOPES / step, measure.cumulants, strict=True):
            exact = special.logsumexp(slope * losses, b=measure.probabilities)
            assert cumulant == pytest.approx(exact, rel=1e-9, abs=1e-12)
        assert 6 * 2.0**-52 <= measure.error < 1e-13


def test_the_grid_grows_with_the_noise_and_not_with_the_uses() -> None:
    assert grid_step([Gaussian(1.0)], FINE) == 2.0**-5
    assert grid_step([Gaussian(1.0, count=500)], FINE) == 2.0**-5
    assert grid_step([Gaussian(0.1)], FINE) == 2.0**-2
    # Where the losses of all uses together spread far, the points are kept few.
    far = [Gaussian(1.0, count=10**12)]
    step = grid_step(far, FINE)
    assert 17 * 10**6 / MAX_COMPOSED / 2 < step <= 2 * 17 * 10**6 / MAX_COMPOSED


# -- the width of a loss, and the grid -----------------------------------------------


def spread(event: Event) -> tuple[float, float]:
    """Return the deviation and the range that a loss is taken to have."""
    if isinstance(event, Exponential | Pure):
        return event.epsilon, event.epsilon
    assert isinstance(event, Gaussian)
    z, q = event.noise_multiplier, event.sampling_rate
    # The loss is Gaussian, with mean 1 / 2 z^2 and deviation 1 / z.
    top = 1 / (2 * z * z) + 10.2 / z
    if q == 1:
        return 1 / z, top
    variance = q * (1 / z**2 + 1 / (4 * z**4))
    if z > 0.05:
        variance = min(variance, q**2 * math.expm1(1 / z**2))
    least = -math.log1p(-q)
    return math.sqrt(variance), max(least, math.log(1 - q + q * math.exp(top)))


def test_losses_of_hardly_any_noise_spread_far_and_overflow_to_no_grid() -> None:
    for z in (0.0379, 0.0377, 0.02):
        deviation, top = _spread(Gaussian(z, 0.5))
        assert deviation == pytest.approx(math.sqrt(0.5 * (z**-2 + z**-4 / 4)))
        expected = 0.5 / z / z + 10.2 / z - math.log(2)
        assert top == pytest.approx(expected)
    assert grid_step([Gaussian(1e-200)], FINE) == math.inf
    assert grid_step([Gaussian(1e-100, 0.5)], FINE) == math.inf
    assert grid_step([Pure(1e200)], FINE) == math.inf
    assert grid_step([Pure(1e-200)], FINE) == math.inf
    assert grid_step([], FINE) == math.inf


def grid(events: list[Event], share: float) -> float:
    spreads = [spread(event) for event in events]
    uses = sum(event.count for event in events)
    variance = sum(
        event.count * deviation**2
        for event, (deviation, _) in zip(events, spreads, strict=True)
    )
    top = max(top for _, top in spreads)
    step = max(
        share * math.sqrt(variance / uses),
        2 * top * share * 32 / 2**15,
        (17 * math.sqrt(variance) + 2 * top) / 2**22,
    )
    return 2.0 ** math.floor(math.log2(step))


def test_one_use_is_the_key_of_all_of_them() -> None:
    assert one_use(Gaussian(2.0, 0.5, 9)) == Gaussian(2.0, 0.5)
    assert one_use(Pure(0.5, 9)) == Pure(0.5)
    assert one_use(Exponential(0.5, 9)) == Pure(0.5)
    for event in (Gaussian(2.0), Pure(0.5)):
        assert len(discretize(event, 2.0**-6)) == 1
    assert len(discretize(Gaussian(2.0, 0.5), 2.0**-6)) == 2


# -- one loss ------------------------------------------------------------------------
