"""Privacy loss distributions: what is composed, what its errors may hide, its bound."""

from __future__ import annotations

import math

import numpy as np
import pytest

from langchain_dpicl.accounting import (
    Event,
    Exponential,
    Gaussian,
    Pure,
    ZCDPEvent,
)
from langchain_dpicl.accounting.discretization import (
    COARSE,
    FINE,
    grid_step,
)
from langchain_dpicl.accounting.loss import (
    _Composed,
    _epsilon_at,
    loss_epsilon,
)

# -- figures --------------------------------------------------------------------------

LISTS: dict[str, list[Event]] = {
    "plain": [Gaussian(6.0, count=30)],
    "sampled": [Gaussian(1.1, 0.02, 100)],
    "often": [Gaussian(40.0, 0.1, 20_000)],
    "pure": [Pure(0.3, 20)],
    "large and pure": [Pure(3.0, 5)],
    "exponential": [Exponential(0.1, 300)],
    "both orders": [Gaussian(0.5, 0.4), Pure(0.9)],
    "mixed": [Gaussian(2.0, 0.05, 50), Pure(0.2, 3), Exponential(0.4)],
    "hardly any noise": [Gaussian(0.02, 0.3, 2)],
}
RECORDED: dict[tuple[str, float, float], float] = {
    ("plain", 1e-06, FINE): 4.406589760794814,
    ("plain", 1e-06, COARSE): 4.410025728908382,
    ("sampled", 1e-06, FINE): 1.3875541864572307,
    ("sampled", 1e-06, COARSE): 1.387853603316375,
    ("sampled", 1e-10, FINE): 2.52264475383963,
    ("sampled", 1e-10, COARSE): 2.5229076164736286,
    ("sampled", 1e-13, FINE): math.inf,
    ("sampled", 1e-13, COARSE): math.inf,
    ("often", 1e-06, FINE): 1.5445427887537317,
    ("pure", 1e-06, FINE): 5.932445435086922,
    ("pure", 1e-10, FINE): 6.052532641580657,
    ("pure", 1e-13, FINE): 6.0777748416737944,
    ("large and pure", 1e-06, FINE): 14.999998725027591,
    ("large and pure", 0.9, FINE): 8.092426780872083,
    ("exponential", 1e-06, FINE): 9.16663357440966,
    ("both orders", 0.45, FINE): 0.08839902367727866,
    ("both orders", 0.001, FINE): 6.764124903472066,
    ("mixed", 1e-06, FINE): 1.7824457719572049,
    ("mixed", 1e-10, FINE): 2.2894357520808803,
    ("mixed", 1e-13, FINE): 2.682879784281776,
    ("hardly any noise", 1e-06, FINE): 2814.9803595293256,
}


@pytest.mark.parametrize(("name", "delta", "resolution"), RECORDED)
def test_recorded_figures(name: str, delta: float, resolution: float) -> None:
    found = loss_epsilon(LISTS[name], delta, resolution=resolution)
    expected = RECORDED[name, delta, resolution]
    # Processors round Fourier transforms differently.
    assert found == pytest.approx(expected, rel=1e-7, abs=0)


def test_what_has_no_distribution_has_no_bound() -> None:
    event = ZCDPEvent(1e-9)
    assert loss_epsilon([event], 0.5) == math.inf
    assert loss_epsilon([Pure(0.1), event], 0.5) == math.inf
    assert loss_epsilon([event, Pure(0.1)], 0.5) == math.inf


def test_a_million_uses_are_the_most() -> None:
    often = [Gaussian(100.0, 0.01, 999_999), Pure(1e-4)]
    assert 0.3 < loss_epsilon(often, 1e-6) < 0.6
    assert loss_epsilon([*often, Pure(1e-5)], 1e-6) == math.inf


def test_a_step_of_sixteen_is_the_longest() -> None:
    least = [Gaussian(2.0**-9)]
    assert grid_step(least, FINE) == 16.0
    assert 131_072 < loss_epsilon(least, 1e-6) < 140_000
    assert grid_step([Gaussian(2.0**-10)], FINE) == 32.0
    assert loss_epsilon([Gaussian(2.0**-10)], 1e-6) == math.inf
    assert loss_epsilon([Gaussian(1e-200)], 1e-6) == math.inf


# -- one order ------------------------------------------------------------------------


# -- the convolution ------------------------------------------------------------------


# -- the figure -----------------------------------------------------------------------

LOSSES = 0.1 * np.arange(40)
MASS = np.exp(-LOSSES) / np.exp(-LOSSES).sum()


def curve(epsilon: float, start: float = 0.0) -> float:
    losses = start + LOSSES
    return float((MASS * np.maximum(0.0, -np.expm1(epsilon - losses))).sum())


def test_points_below_no_loss_are_not_looked_at() -> None:
    composed = _Composed(-0.05, MASS, 0.0, 0.0, allowance=0.0, noise=0.0)
    found = _epsilon_at(composed, 0.9, 0.1)
    assert found == pytest.approx(0.05 * (1 + 1e-12), rel=1e-14)
    composed = composed._replace(start=-0.1)
    assert _epsilon_at(composed, 0.9, 0.1) == 0.0
