"""Each bound of a fixed plan is above the true figure, and hardly above it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import true_losses as true
from mpmath import mpf
from true_losses import E, G, P

from langchain_dpicl.accounting import (
    Failure,
    Parallel,
    compose,
    sampled_epsilon,
)
from langchain_dpicl.accounting.compose import divergence, gaussian_epsilon, headroom


@pytest.mark.parametrize("exponent", range(-6, 7, 3))
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12, 1e-30])
def test_the_closed_form_is_the_exact_curve(exponent: int, delta: float) -> None:
    exact = true.gaussian(10.0**exponent, delta)
    ours = gaussian_epsilon(10.0**exponent, delta)
    assert exact <= ours <= exact * (1 + mpf(10) ** -6) + mpf(10) ** -12


@pytest.mark.parametrize("uses", [1, 20, 1000, 100_000])
@pytest.mark.parametrize("delta", [1e-5, 1e-9, 1e-12])
def test_many_sampled_uses_are_above_unsampled_ones_by_rounding_alone(
    uses: int, delta: float
) -> None:
    # A rate just below 1 takes dp-accounting's way: it must not fall short.
    z = 4.0 * math.sqrt(uses)
    exact = true.gaussian(1 / 4.0, delta)
    ours = compose([G(z, 1 - 1e-13, uses)], delta)
    assert exact * (1 - mpf(10) ** -9) <= ours <= exact * (1 + mpf("4e-3"))


# ---- selections on a sample ------------------------------------------------------


def selections(
    seed: int, uses: int
) -> list[tuple[float, float, np.ndarray, np.ndarray]]:
    """Return ranges, rates and pairs of output laws of random sampled selections.

    Each has the law of two outcomes of the others' coins.
    """
    rng, found = np.random.default_rng(seed), []
    for _ in range(uses):
        b, q, d = rng.uniform(0.05, 4), rng.uniform(0.02, 1), rng.integers(2, 6)
        without = rng.dirichlet(np.ones(d) * rng.choice([0.1, 1.0]), size=2) + 1e-12
        without /= without.sum(axis=1, keepdims=True)
        tilted = without * np.exp(rng.choice([0.0, b], size=(2, d)))
        tilted /= tilted.sum(axis=1, keepdims=True)
        coins = rng.dirichlet([1, 1])[:, None]
        mixed = (1 - q) * without + q * tilted
        found.append((b, q, (coins * mixed).ravel(), (coins * without).ravel()))
    return found


def renyi(p: np.ndarray, r: np.ndarray, order: float) -> float:
    return math.log(float(np.sum(p**order * r ** (1 - order)))) / (order - 1)


@pytest.mark.parametrize("order", [1.5, 4.0, 16.0])
def test_a_sampled_selection_keeps_a_bounded_range(order: float) -> None:
    x, is_halved_seen = np.array([order - 1]), False
    for b, q, p, r in selections(3, 1000):
        lost = max(renyi(p, r, order), renyi(r, p, order))
        event = E(b, q)
        assert lost <= float(divergence(event, x)[0]) + 1e-12
        # The twin: the range taken as half of it.
        halved = order * (sampled_epsilon(b, q) / 2) ** 2 / 8
        is_halved_seen |= lost > halved + 0.01
    assert is_halved_seen


def test_an_exponential_range_is_twice_its_utility_sensitivity() -> None:
    # u moves by D = 1 for either outcome, in opposite directions: the loss reaches b.
    b = 1.3
    p, r = (np.exp(np.array([s, -s]) * b / 2) for s in (0.5, -0.5))
    logs = np.log((p / p.sum()) / (r / r.sum()))
    assert np.ptp(logs) == pytest.approx(b)
    lost = renyi(p / p.sum(), r / r.sum(), 1.0001)
    assert lost <= float(divergence(E(b), np.array([1e-4]))[0])
    assert lost > float(divergence(E(b / 2), np.array([1e-4]))[0])


# ---- failures --------------------------------------------------------------------


def hockey(p: np.ndarray, r: np.ndarray, eps: float) -> float:
    return float(np.maximum(p - math.exp(eps) * r, 0).sum())


@pytest.mark.parametrize("q", [0.1, 0.6])
def test_a_failure_on_a_sample_is_q_delta0_in_both_orders(q: float) -> None:
    rng, d0, is_less_seen = np.random.default_rng(5), 0.2, False
    for _ in range(300):
        a, b, f, g = rng.dirichlet(np.ones(4), size=4)
        with_unit, without = (1 - d0) * a + d0 * f, (1 - d0) * b + d0 * g
        pair = (1 - q) * without + q * with_unit, without
        kept = (1 - q) * b + q * a, b
        for eps in (-0.5, 0.0, 0.4, 1.0):
            for i, j in ((0, 1), (1, 0)):
                lost = hockey(pair[i], pair[j], eps)
                w = q * d0
                assert lost <= w + (1 - w) * hockey(kept[i], kept[j], eps) + 1e-12
                w /= 2  # The twin.
                is_less_seen |= lost > w + (1 - w) * hockey(kept[i], kept[j], eps)
    assert is_less_seen


def test_two_releases_on_one_sample_are_not_q_delta0_each() -> None:
    # The twin of a charge with two steps on one sample: it fails more often than the
    # squares say, since both steps see the unit or neither does.
    q, z, eps = 0.1, 1.0, 1.0
    one = true.sampled(z / math.sqrt(2), q, 1e-4)
    assert one > compose([G(z, q, 2)], 1e-4) + 0.3
    assert eps < one


# ---- lists -----------------------------------------------------------------------


def test_disjoint_classes_cost_the_dearest_way() -> None:
    a, b = G(2.0, n=3), G(3.0, n=2)
    d = 1e-6
    alone = max(compose([a], d), compose([b], d))
    assert compose([Parallel(branches=((a,), (b,)))], d) == alone
    twice = Parallel(branches=((a,), (b,)), count=2)
    assert compose([twice], d) == max(compose([a, a], d), compose([b, b], d))
    # The failures of a class are its own.
    risky = (b, Failure(delta0=5e-7))
    both = compose([Parallel(branches=((a,), risky))], d)
    assert both == max(compose([a], d), compose(risky, d))


def test_in_events_that_differ_a_unit_may_be_in_any_class() -> None:
    first = Parallel(branches=((P(2.0),), (G(0.5, 0.01),)))
    second = first.model_copy(update={"partition": "by month"})
    mixed = [P(2.0), G(0.5, 0.01)]
    assert compose([first, second], 1e-7) >= compose(mixed, 1e-7)
    assert compose([first.model_copy(update={"count": 2})], 1e-7) < compose(mixed, 1e-7)


def test_beyond_a_thousand_ways_the_bound_still_holds() -> None:
    many = [
        Parallel(branches=((G(20.0 + i),), (G(40.0 - i),)), partition=str(i))
        for i in range(11)
    ]
    dearest = [G(min(20.0 + i, 40.0 - i)) for i in range(11)]
    assert compose(dearest, 1e-6) <= compose(many, 1e-6) < compose(dearest, 1e-6) * 1.3


def test_the_renyi_conversion_is_below_the_hockey_stick() -> None:
    # One Gaussian at its own divergence: the conversion is above its true curve.
    for order in (1.5, 4.0, 30.0):
        x = np.array([order - 1])
        ours = float(divergence(G(1.0), x)[0] - headroom(x, 1e-5)[0])
        assert ours >= true.gaussian(1.0, 1e-5)
