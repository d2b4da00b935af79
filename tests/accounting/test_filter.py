"""A filter adds up at its one order, in whole steps, and never admits more."""

from __future__ import annotations

import math
from typing import Any

import pytest
from mpmath import mp, mpf
from test_calibrate import charge
from true_losses import E, G, P, amplified

from langchain_dpicl.accounting import (
    UNITS,
    Charge,
    Cost,
    Failure,
    Filter,
    Parallel,
    best_order,
    compose,
)
from langchain_dpicl.errors import InvalidParameterError

ORDER = 9.0
ACCOUNT = Filter(epsilon=3.0, delta=1e-6, order=ORDER)


def limit(account: Filter) -> mpf:
    """The divergence that the conversion leaves for losses."""
    a, rest = mpf(account.order), mpf(account.delta) * (1 - mpf(account.failure_share))
    return (
        mpf(account.epsilon) - mp.log1p(-1 / a) + (mp.log(rest) + mp.log(a)) / (a - 1)
    )


def lost(event: Any, order: float) -> mpf:
    """The divergence of an event's use, by its formula or by integration."""
    a = mpf(order)
    if event.kind == "gaussian" and event.sampling_rate == 1:
        return a / (2 * mpf(event.noise_multiplier) ** 2)
    if event.kind == "gaussian":
        z, q = mpf(event.noise_multiplier), mpf(event.sampling_rate)

        def density(x: mpf) -> mpf:
            ratio = 1 - q + q * mp.exp((2 * x - 1) / (2 * z * z))
            return mp.npdf(x, 0, z) * ratio**a

        grid = [-20 * z, -5 * z, 0, 5 * z, 5 * z + a, 20 * z + a]
        return mp.log(mp.quad(density, grid)) / (a - 1)
    loss = amplified(event.epsilon, event.sampling_rate)
    ends = mp.exp(a * loss) + mp.exp((1 - a) * loss)
    exact = mp.log(ends / (1 + mp.exp(loss))) / (a - 1)
    return min(exact, a * loss**2 / 8) if event.kind == "exponential" else exact


@pytest.mark.parametrize(
    "event",
    [
        G(12.0),
        G(0.3),
        G(1.5, 0.1),
        G(4.0, 0.5),
        E(0.3),
        E(1.0, 0.1),
        P(0.1),
        P(1.0, 0.1),
    ],
)
@pytest.mark.parametrize("order", [2.0, 5.5, ORDER, 33.0])
def test_a_cost_is_the_divergence_rounded_up(event: Any, order: float) -> None:
    account = ACCOUNT.model_copy(update={"order": order, "epsilon": 30.0})
    exact = lost(event, order) / limit(account) * UNITS
    between = 1.0 if event.kind != "gaussian" or order == int(order) else 1.03
    cost = account.cost([event])
    assert exact <= cost.loss <= exact * between * (1 + mpf(10) ** -8) + 2
    assert cost.failure == 0


def test_failures_are_counted_on_their_sample_and_every_time() -> None:
    cost = ACCOUNT.cost([Failure(delta0=1e-8, sampling_rate=0.25, count=20)])
    assert cost.failure == math.ceil(1e-8 * 0.25 * 20 / 5e-7 * UNITS)
    assert cost.loss == 0
    none = ACCOUNT.model_copy(update={"failure_share": 0.0})
    assert none.cost([Failure(delta0=1e-30)]).failure == UNITS + 1
    assert none.cost([G(2.0)]).failure == 0


def test_disjoint_classes_cost_the_largest_of_each() -> None:
    classes = ((G(2.0),), (G(3.0), Failure(delta0=1e-9)))
    cost = ACCOUNT.cost([Parallel(branches=classes, count=2)])
    assert cost.loss == ACCOUNT.cost([G(2.0, n=2)]).loss
    assert cost.failure == ACCOUNT.cost([Failure(delta0=1e-9, count=2)]).failure


@pytest.mark.parametrize(
    "asked",
    [charge("G"), charge("GF", 0.25), charge("EGF"), charge("P"), charge("E", 0.1)],
)
def test_open_noise_lasts_for_its_uses(asked: Charge) -> None:
    events = ACCOUNT.fill(asked, 7)
    assert asked.fits(events)
    cost = ACCOUNT.cost(events)
    assert UNITS // cost.loss == 7
    assert not cost.failure or UNITS // cost.failure == 7


def test_what_a_filter_fills() -> None:
    fixed = Charge(name="x", parts=(G(2.0), Failure(delta0=None)))
    assert ACCOUNT.fill(fixed, 5)[0] == G(2.0)
    classes = Parallel(branches=(charge("G").parts, charge("G", n=4).parts))
    (found,) = ACCOUNT.fill(Charge(name="x", parts=(classes,)), 7)
    assert found.branches == tuple(ACCOUNT.fill(charge("G", n=n), 7) for n in (1, 4))
    none = ACCOUNT.model_copy(update={"failure_share": 0.0})
    with pytest.raises(InvalidParameterError, match="aside"):
        none.fill(fixed, 5)
    small = Filter(epsilon=1e-4, delta=1e-6, order=best_order(1e-4, 5e-7))
    with pytest.raises(InvalidParameterError, match="largest noise"):
        small.fill(charge("G"), 10**4)


def test_what_was_spent_is_a_bound_within_the_limits() -> None:
    assert ACCOUNT.epsilon_spent(Cost(0, 0)) == 0
    most = ACCOUNT.epsilon_spent(Cost(UNITS, UNITS))
    assert most <= ACCOUNT.epsilon == pytest.approx(most)
    assert math.isinf(ACCOUNT.epsilon_spent(Cost(UNITS + 1, 0)))
    spent = [ACCOUNT.epsilon_spent(Cost(UNITS * n // 20, 0)) for n in range(21)]
    assert spent == sorted(spent)
    for n in (1, 5, 20):
        cost = ACCOUNT.cost([G(20.0, n=n)])
        assert compose([G(20.0, n=n)], 1e-6) <= ACCOUNT.epsilon_spent(cost)


def test_the_best_order_is_best_near_itself() -> None:
    x = best_order(2.0, 1e-6) - 1
    here, *beside = (
        Filter(epsilon=2.0, delta=1e-6, order=1 + y, failure_share=0).cost([G(1.0)])
        for y in (x, 0.8 * x, 1.25 * x)
    )
    assert all(here.loss <= other.loss + 1 for other in beside)


@pytest.mark.parametrize(
    "terms", [{"order": 1.0}, {"order": 2.0}, {"epsilon": 0.0}, {"failure_share": 1.0}]
)
def test_a_filter_that_can_pay_for_nothing_is_refused(terms: dict[str, Any]) -> None:
    terms = {"epsilon": 1.0, "delta": 1e-6, "order": 30.0, **terms}
    with pytest.raises(InvalidParameterError):
        Filter(**terms)
