"""A filter adds up at one order, fixed before anything was seen.

An adversary chooses each next event by what came before. Whatever is admitted, the sum
of divergences at the filter's order stays under the limit that gives (epsilon, delta).
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from faces import (
    Exponential,
    Failure,
    Filter,
    Gaussian,
    InvalidParameterError,
    Pure,
    accounting,
)
from hypothesis import given
from hypothesis import strategies as st

EPSILON, DELTA = 4.0, 1e-6
RELEASES = st.one_of(
    st.builds(Gaussian, st.floats(0.8, 50.0)),
    st.builds(Pure, st.floats(0.01, 1.0)),
    st.builds(Exponential, st.floats(0.01, 1.0)),
)


def divergence(event: Any, order: float) -> float:
    """Of each kind by its formula (claims of the literature, not of the package)."""
    if isinstance(event, Gaussian):
        return order / (2 * event.noise_multiplier**2)
    eps, x = event.epsilon, order - 1
    odds = math.exp(order * eps) + math.exp(-x * eps)
    pure = math.log(odds / (1 + math.exp(eps))) / x
    return min(pure, order * eps * eps / 8) if isinstance(event, Exponential) else pure


def limit(order: float, delta: float) -> float:
    """The divergence at an order that gives (EPSILON, delta)."""
    return (
        EPSILON
        - math.log1p(-1 / order)
        + (math.log(delta) + math.log(order)) / (order - 1)
    )


def check(admitted: list[Any], orders: list[float]) -> None:
    """What was admitted stays under the limit at one of the orders: the first."""
    losses = [e for e in admitted if not isinstance(e, Failure)]
    failures = [e for e in admitted if isinstance(e, Failure)]
    order = orders[0]
    spent = sum(divergence(e, order) for e in losses)
    assert spent <= limit(order, 0.75 * DELTA) * (1 + 1e-9)
    assert sum(Fraction(e.delta0) for e in failures) <= Fraction(DELTA) / 4


@pytest.mark.promise("filter-one-order")
@given(st.lists(RELEASES, min_size=1, max_size=60), st.sampled_from([None, 5.0, 20.0]))
def test_whatever_is_admitted_stays_under_one_limit(
    events: list[Any], order: float | None
) -> None:
    account = Filter(EPSILON, DELTA, order)
    admitted: list[Any] = []
    for event in events:
        paid = account.pays(event, Failure(1e-9))
        if paid:
            admitted += [event, Failure(1e-9)]
        left = limit(account.order, 0.75 * DELTA) - sum(
            divergence(e, account.order) for e in admitted if not isinstance(e, Failure)
        )
        assert paid or divergence(event, account.order) > left - 1e-6
    check(admitted, [account.order])


@pytest.mark.promise("filter-one-order", twin=True)
def test_a_filter_that_takes_the_best_order_is_noticed() -> None:
    orders = [1.5, 3.0, 6.0, 12.0, 30.0, 100.0]
    admitted: list[Any] = []
    # The wrong rule: an event is admitted while it fits at any order at all.
    for event in [Gaussian(20.0)] * 900 + [Pure(1.0)] * 8:
        trial = [*admitted, event]
        if any(
            sum(divergence(e, o) for e in trial) <= limit(o, 0.75 * DELTA)
            for o in orders
        ):
            admitted = trial
    for order in orders:
        try:
            check(admitted, [order])
        except AssertionError:
            break
    else:
        pytest.fail("every order admits it")


@pytest.mark.promise("filter-one-order")
def test_failures_have_a_limit_of_their_own() -> None:
    account = Filter(EPSILON, DELTA)
    paid = sum(account.pays(Failure(DELTA / 40)) for _ in range(60))
    assert paid in (9, 10)  # Rounding up may cost one.
    assert account.pays(Gaussian(10.0))


@pytest.mark.promise("filter-never-beats-a-plan")
@pytest.mark.parametrize("z", [4.0, 20.0])
def test_a_filter_admits_no_more_than_a_plan_of_equal_releases(z: float) -> None:
    account, uses = Filter(EPSILON, DELTA), 0
    while account.pays(Gaussian(z)):
        uses += 1
    assert accounting.compose([Gaussian(z, count=uses)], DELTA) <= EPSILON
    assert accounting.compose([Gaussian(z, count=2 * uses)], DELTA) > EPSILON


@pytest.mark.promise("unknown-events")
def test_a_filter_refuses_what_it_does_not_know() -> None:
    with pytest.raises(InvalidParameterError):
        Filter(EPSILON, DELTA).pays("an event")
