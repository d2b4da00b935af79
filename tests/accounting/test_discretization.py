"""The loss of one use on a grid: in both orders of the neighbors, and never too low."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
from scipy import optimize

from langchain_dpicl.accounting import GaussianEvent, PureEvent, compose


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
    figure = compose([GaussianEvent(z, q), PureEvent(pure)], delta)
    assert adding <= figure <= adding * 1.002
