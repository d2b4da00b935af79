"""Renyi events: what is known at one order, and composed at no other."""

from __future__ import annotations

import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_dpicl.accounting import (
    Event,
    Exponential,
    Failure,
    FixedSampleGaussianEvent,
    Gaussian,
    Parallel,
    PrivacyFilter,
    Pure,
    RenyiEvent,
    ZCDPEvent,
    best_order,
    calibrate,
    compose,
    cross_check,
    crosscheck,
    event_from_dict,
    event_to_dict,
    merge,
    rho,
    to_dp_event,
)
from langchain_dpicl.accounting import composition as composing
from langchain_dpicl.accounting.loss import loss_epsilon
from langchain_dpicl.accounting.renyi import divergence
from langchain_dpicl.errors import InvalidParameterError

orders = st.floats(1.05, 200)
losses = st.floats(1e-6, 3)


def converted(order: float, loss: float, delta: float) -> mp.mpf:
    """Canonne, Kamath, Steinke, Proposition 12, in 50 digits."""
    with mp.workdps(50):
        a, d = mp.mpf(order), mp.mpf(delta)
        return mp.mpf(loss) + mp.log(1 - 1 / a) - (mp.log(d) + mp.log(a)) / (a - 1)


@pytest.mark.parametrize("bad", [1.0, 0.5, -2, math.nan, math.inf, 1e7, True, "8"])
def test_an_order_is_above_one_and_finite(bad: Any) -> None:
    with pytest.raises(InvalidParameterError, match="order"):
        RenyiEvent(bad, 0.1)


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, True, "1"])
def test_a_divergence_is_positive_and_finite(bad: Any) -> None:
    with pytest.raises(InvalidParameterError, match="divergence"):
        RenyiEvent(8.0, bad)


def test_the_stored_form_is_this_one() -> None:
    stored = {"kind": "renyi", "order": 7.5, "divergence": 0.25, "count": 3}
    assert event_to_dict(RenyiEvent(7.5, 0.25, 3)) == stored
    assert event_from_dict(stored) == RenyiEvent(7.5, 0.25, 3)


def test_events_of_different_orders_are_not_merged() -> None:
    one, other = RenyiEvent(8.0, 0.25), RenyiEvent(9.0, 0.25)
    assert merge([one, other, one]) == (RenyiEvent(8.0, 0.25, 2), other)


@given(orders, losses, st.sampled_from([1e-3, 1e-6, 1e-9]), st.integers(1, 40))
@settings(deadline=None)
def test_equal_events_cost_the_conversion_at_their_order(
    order: float, loss: float, delta: float, uses: int
) -> None:
    found = compose([RenyiEvent(order, loss, uses)], delta)
    with mp.workdps(50):
        exact = converted(order, mp.mpf(loss) * uses, delta)
        # With one divergence for all orders below, the last order is the best.
        assert found >= max(0, exact)
        assert found <= max(0, exact) * (1 + 1e-9) + 1e-9


def test_nothing_is_taken_from_orders_above() -> None:
    """The twin: a curve that is read as if its divergence held at every order."""
    event = RenyiEvent(4.0, 0.5)
    assert divergence(event, np.array([2.9, 3.0])).tolist() == [0.5, 0.5]
    above = math.nextafter(3.0, 4.0)
    assert divergence(event, np.array([above, 50.0])).tolist() == [math.inf] * 2
    assert compose([event], 1e-6) > float(converted(40.0, 0.5, 1e-6)) + 2


@given(st.floats(1, 1e6, exclude_min=True))
def test_the_last_order_is_met_exactly(order: float) -> None:
    assert 1 + mp.mpf(order - 1) == mp.mpf(order)


@pytest.mark.parametrize(
    "others",
    [
        [Gaussian(3.0, count=4)],
        [Gaussian(1.5, 0.1, 20)],
        [Exponential(0.3, 5), Pure(0.1)],
        [ZCDPEvent(0.02)],
    ],
)
def test_a_mixed_list_is_bounded_by_each_order_below(others: list[Event]) -> None:
    curve = RenyiEvent(9.0, 0.3, 2)
    found = compose([*others, curve, Failure(2e-7)], 1e-6)
    at_orders = []
    for order in [1.5, 2.0, 4.0, 8.0, 9.0]:
        x = np.array([order - 1])
        total = 0.6 + sum(e.count * float(divergence(e, x)[0]) for e in others)
        at_orders.append(float(converted(order, total, 8e-7)))
    # No order above 9, and none above the best of those looked at here.
    assert found <= min(at_orders) * (1 + 1e-3)
    assert found > compose(others, 8e-7)
    assert found > float(converted(9.0, 0.6, 8e-7))


def test_the_least_order_is_the_last_for_all() -> None:
    low, high = RenyiEvent(3.0, 0.2), RenyiEvent(30.0, 0.4)
    assert compose([low, high], 1e-6) == pytest.approx(
        float(converted(3.0, 0.6, 1e-6)), rel=1e-9
    )


def test_branches_are_composed_with_it() -> None:
    branches = Parallel(((RenyiEvent(5.0, 0.5),), (Gaussian(9.0),)))
    found = compose([branches, RenyiEvent(8.0, 0.1)], 1e-6)
    assert found == pytest.approx(float(converted(5.0, 0.6, 1e-6)), rel=1e-9)


def test_too_many_branches_are_composed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(composing, "MAX_COMBINATIONS", 1)
    composing.bound.cache_clear()
    branches = Parallel(((RenyiEvent(5.0, 0.5),), (RenyiEvent(7.0, 0.2),)))
    found = compose([branches], 1e-6)
    composing.bound.cache_clear()
    assert found == pytest.approx(float(converted(5.0, 0.5, 1e-6)), rel=1e-9)


@pytest.mark.parametrize("event", [RenyiEvent(8.0, 0.1), ZCDPEvent(0.1)])
def test_no_loss_distribution_is_made_of_it(event: Event) -> None:
    assert loss_epsilon([event], 1e-6) == math.inf
    assert loss_epsilon([Gaussian(9.0), event], 1e-6) == math.inf


@pytest.mark.parametrize("delta0", [0.0, 1e-8])
def test_a_scale_is_found_closely(delta0: float) -> None:
    def events_at(t: float) -> list[Event]:
        return [RenyiEvent(6.0, 6.0 / (2 * t * t)), Failure(delta0)]

    t = calibrate(events_at, 3.0, 1e-6, uses=20)
    assert 3.0 * (1 - 1e-6) < compose(events_at(t) * 20, 1e-6) <= 3.0


# -- filters ---------------------------------------------------------------------------


def test_a_renyi_filter_adds_it_up_at_its_order_and_below() -> None:
    account = PrivacyFilter("renyi", 3.0, 1e-6, order=6.0)
    whole = RenyiEvent(6.0, account.budget)
    assert account.affords(account.cost([]), account.cost([whole]))
    more = RenyiEvent(6.0, account.budget * (1 + 1e-8))
    assert not account.affords(account.cost([]), account.cost([more]))
    assert account.cost([RenyiEvent(60.0, 0.01)]) == account.cost(
        [RenyiEvent(6.0, 0.01)]
    )
    with pytest.raises(InvalidParameterError, match="Nothing is known"):
        account.cost([RenyiEvent(math.nextafter(6.0, 1.0), 0.01)])


@pytest.mark.parametrize("method", ["zcdp", "gdp", "pure"])
@pytest.mark.parametrize("is_parallel", [False, True])
def test_the_other_filters_name_the_way_out(method: Any, is_parallel: bool) -> None:
    event: Event = RenyiEvent(6.0, 0.01)
    if is_parallel:
        event = Parallel(((RenyiEvent(6.0, 0.01),),))
    account = PrivacyFilter(method, 3.0, 1e-6)
    with pytest.raises(InvalidParameterError, match="mechanism='gaussian'"):
        account.cost([event])


def test_what_needs_every_order_refuses_it() -> None:
    with pytest.raises(InvalidParameterError, match="mechanism='gaussian'"):
        rho([RenyiEvent(6.0, 0.01)])
    with pytest.raises(InvalidParameterError, match="RenyiEvent"):
        to_dp_event(RenyiEvent(6.0, 0.01))


def test_the_best_order_for_it_is_one_at_which_it_is_known() -> None:
    event = RenyiEvent(6.0, 0.01)
    assert best_order([event], 3.0, 1e-6) <= 6.0


# -- the second accountant -------------------------------------------------------------

MIXES: dict[str, list[Event]] = {
    "curve": [RenyiEvent(7.6, 0.04, 20)],
    "with a Gaussian": [RenyiEvent(7.6, 0.04, 20), Gaussian(9.0, count=20)],
    "sampled": [RenyiEvent(3.4, 0.1, 20), Gaussian(1.5, 0.25, 20)],
    "fixed sample": [
        RenyiEvent(3.4, 0.1, 20),
        FixedSampleGaussianEvent(1.5, 0.25, 20),
    ],
    "near one": [RenyiEvent(1.3, 0.5, 20), Gaussian(1.0, 0.5, 3)],
    "far": [RenyiEvent(120.0, 0.005, 20), Gaussian(90.0, 0.25, 20)],
}


@pytest.mark.parametrize("name", MIXES)
def test_two_accountants_agree_on_curves(name: str) -> None:
    found = cross_check(MIXES[name], 1e-6)
    assert found.agrees, found
    assert found.lower <= found.pld == compose(MIXES[name], 1e-6)


@pytest.mark.parametrize("wrong", ["halved", "doubled", "above"])
@pytest.mark.parametrize("name", MIXES)
def test_a_wrong_figure_of_a_curve_is_caught(
    monkeypatch: pytest.MonkeyPatch, name: str, wrong: str
) -> None:
    factor = {"halved": 0.5, "doubled": 2.0, "above": 1.0}[wrong]

    def other(events: list[Event], delta: float) -> float:
        changed = [
            RenyiEvent(min(e.order * 1e3, 1e6), e.divergence, e.count)
            if wrong == "above" and isinstance(e, RenyiEvent)
            else e
            for e in events
        ]
        return compose(changed, delta) * factor

    monkeypatch.setattr(crosscheck, "compose", other)
    assert not cross_check(MIXES[name], 1e-6).agrees
