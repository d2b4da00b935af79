"""Renyi divergences against closed forms in many digits, and what is made of them."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from support.filter_oracle import conversion, number, sampled_divergence, smallest
from support.filter_oracle import zcdp_epsilon as exact_zcdp_epsilon

from langchain_dpicl.accounting import (
    Event,
    Exponential,
    Failure,
    FixedSampleGaussianEvent,
    Gaussian,
    Parallel,
    Pure,
    RenyiEvent,
    ZCDPEvent,
    rho,
    zcdp_epsilon,
)
from langchain_dpicl.accounting.fixed_sample import further_moments
from langchain_dpicl.accounting.renyi import divergence, renyi_epsilon
from langchain_dpicl.errors import InvalidParameterError

# The whole orders at which a sampled Gaussian is computed.
WHOLE = sorted({*range(2, 65), *np.geomspace(66, 2048, 50).astype(int).tolist()})
UP = 1 + mp.mpf("1e-10")


def at(event: Event, *orders: float) -> list[float]:
    return [float(r) for r in divergence(event, np.array(orders) - 1)]


# -- one use --------------------------------------------------------------------------


def bent(event: Gaussian | FixedSampleGaussianEvent, order: float) -> mp.mpf:
    """(a - 1) R(a) on a straight line between two whole orders, or between 1 and 2."""
    z, q = event.noise_multiplier, event.sampling_rate
    more = [0.0] * len(WHOLE)
    if isinstance(event, FixedSampleGaussianEvent):
        more = further_moments(z, q, tuple(WHOLE)).tolist()

    def cumulant(whole: int) -> mp.mpf:
        if whole == 1:
            return mp.mpf(0)
        moment = mp.exp((whole - 1) * sampled_divergence(z, q, whole) * UP)
        return mp.log(moment + more[WHOLE.index(whole)])

    below = max(k for k in (1, *WHOLE) if k <= order)
    above = min(k for k in WHOLE if k >= order)
    if below == above:
        return cumulant(below)
    share = (number(order) - below) / (above - below)
    return (1 - share) * cumulant(below) + share * cumulant(above)


SAMPLED = [
    Gaussian(1.1, 0.02),
    Gaussian(0.7, 0.5, 7),
    Gaussian(30.0, 0.001),
    FixedSampleGaussianEvent(1.3, 0.05),
    FixedSampleGaussianEvent(20.0, 0.3, 7),
]


@pytest.mark.parametrize("event", SAMPLED, ids=str)
@pytest.mark.parametrize(
    "order",
    [1.001, 1.5, 2.0, 2.5, 3.0, 17.25, 63.5, 64.0, 65.0, 66.0, 67.3, 75.5, 76.0],
)
def test_a_sampled_gaussian_between_whole_orders_is_on_a_line(
    event: Gaussian | FixedSampleGaussianEvent, order: float
) -> None:
    with mp.workdps(40):
        exact = bent(event, order) / (number(order) - 1)
        plain = number(order) / (2 * number(event.noise_multiplier) ** 2)
        expected = float(min(exact, plain))
    assert at(event, order) == pytest.approx([expected], rel=1e-12, abs=0)


@pytest.mark.parametrize("kind", [Gaussian, FixedSampleGaussianEvent])
def test_sampling_is_ignored_above_the_last_whole_order_and_never_costs(
    kind: type[Gaussian | FixedSampleGaussianEvent],
) -> None:
    event = kind(60.0, 1e-3)
    plain = [order / 7200 for order in (2047.0, 2048.0, 2048.5, 2049.0, 1e6)]
    found = at(event, 2047.0, 2048.0, 2048.5, 2049.0, 1e6)
    assert found[2:] == plain[2:]
    assert all(
        below < 1e-2 * most for below, most in zip(found, plain[:2], strict=False)
    )
    with mp.workdps(40):
        last = float(sampled_divergence(60.0, 1e-3, 2048) * UP)
    if kind is Gaussian:
        assert found[1] == pytest.approx(last, rel=1e-12)
    # With little noise a sample hides nothing, and the plain release is the bound.
    assert at(kind(0.05, 0.999), 1.1) == [pytest.approx(1.1 / (2 * 0.05**2), rel=1e-15)]


def test_losses_beyond_all_doubles_are_infinite_and_no_error() -> None:
    for event in (Gaussian(1e-200, 0.1), FixedSampleGaussianEvent(1e-200, 0.1)):
        assert at(event, 1.5, 30.0) == [math.inf, math.inf]
    assert at(Gaussian(1e-3), 2.0) == [1e6]


def response(epsilon: float, order: float) -> mp.mpf:
    """The divergence of randomized response."""
    e, a = number(epsilon), number(order)
    other = 1 / (1 + mp.exp(e))
    true = mp.exp(e) * other
    both = true**a * other ** (1 - a) + other**a * true ** (1 - a)
    return mp.log(both) / (a - 1)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 2.5, 20.0])
@pytest.mark.parametrize("order", [1.01, 1.5, 2.0, 7.3, 100.0, 1e5])
def test_pure_and_exponential_mechanisms_are_randomized_response_or_less(
    epsilon: float, order: float
) -> None:
    with mp.workdps(60):
        exact = response(epsilon, order)
        lines = [number(order) * number(epsilon) ** 2 / k for k in (2, 8)]
        expected = [float(min(line, exact, epsilon)) for line in lines]
    # Where it cancels, a part in 1e15 of what cancels is added.
    slack = 1e-13 + 3e-15 / ((order - 1) * expected[0])
    found = [
        *at(Pure(epsilon, 3), order),
        *at(Exponential(epsilon, 3), order),
    ]
    assert found == pytest.approx(expected, rel=slack, abs=0)
    assert all(
        mp.mpf(f) >= e * (1 - 1e-16) for f, e in zip(found, expected, strict=True)
    )


def test_the_rounding_of_a_pure_loss_is_upward_by_a_known_part() -> None:
    epsilon, order = 0.5, 1.5
    with mp.workdps(60):
        expected = float(response(epsilon, order)) + 1e-15 * (1 + 0.25) / 0.5
    assert at(Pure(epsilon), order) == pytest.approx([expected], abs=6e-16, rel=0)


def test_a_small_loss_is_bounded_by_its_square_where_the_exact_one_cancels() -> None:
    order, epsilon = 2.0, 1e-9
    for event, share in ((Pure(epsilon), 2), (Exponential(epsilon), 8)):
        line = order * epsilon**2 / share
        assert at(event, order) == pytest.approx([line], rel=1e-12, abs=0)


def test_one_use_of_each_other_kind() -> None:
    assert at(ZCDPEvent(0.25, 9), 1.5, 8.0) == [0.375, 2.0]
    assert at(Gaussian(2.0, count=9), 1.5, 8.0) == [0.1875, 1.0]
    assert at(RenyiEvent(8.0, 0.25, 9), 1.5, 8.0, 8.5) == [0.25, 0.25, math.inf]
    branches = (
        (ZCDPEvent(0.25, 2), Failure(0.5), ZCDPEvent(0.5)),
        (RenyiEvent(4.0, 2.0, 3),),
        (ZCDPEvent(0.25, 2), Failure(0.5), ZCDPEvent(0.5)),
    )
    assert at(Parallel(branches, 9), 2.0, 4.0, 7.0) == [6.0, 6.0, math.inf]
    assert at(Parallel(branches[:1], 9), 2.0, 7.0) == [2.0, 7.0]
    assert at(Parallel(((Failure(0.5),),)), 2.0) == [0.0]


def test_rho_adds_up_every_kind() -> None:
    for event, one in (
        (Gaussian(2.0, count=3), 0.125),
        (Gaussian(2.0, 0.5, 3), 0.125),
        (FixedSampleGaussianEvent(2.0, 0.5, 3), 0.125),
        (Exponential(2.0, 3), 0.5),
        (Pure(2.0, 3), 2.0),
        (ZCDPEvent(0.75, 3), 0.75),
        (Failure(0.5, 3), 0.0),
        (Parallel(((ZCDPEvent(0.25, 5),), (Pure(1.0),)), 3), 1.25),
    ):
        assert rho([event]) == 3 * one
        assert rho([event, Pure(4.0), event]) == 6 * one + 8
    assert rho([]) == 0
    with pytest.raises(InvalidParameterError, match="Not a privacy event: object"):
        rho([object()])  # type: ignore[list-item]


# -- all uses -------------------------------------------------------------------------


@pytest.mark.parametrize("rho_", [1e-9, 1e-3, 0.05, 1.0, 40.0, 1e6])
@pytest.mark.parametrize("delta", [1e-300, 1e-9, 1e-5, 0.1, 0.7])
def test_the_zcdp_conversion_is_the_exact_one_a_known_hair_up(
    rho_: float, delta: float
) -> None:
    with mp.workdps(60):
        exact = exact_zcdp_epsilon(number(rho_), number(delta))

        def at_order(t: mp.mpf) -> mp.mpf:
            return number(rho_) * (1 + mp.exp(t)) + conversion(mp.exp(t), number(delta))

        assert exact == smallest(at_order, -60, 60)
        expected = float(max(mp.mpf(0), exact) * UP)
    found = zcdp_epsilon(rho_, delta)
    if expected == 0 or expected < 1e-8:
        assert expected <= found <= expected + 1e-13
    else:
        assert found == pytest.approx(expected, rel=1e-13, abs=3e-14)


def test_the_zcdp_conversion_at_its_ends() -> None:
    assert zcdp_epsilon(0.0, 0.1) == 0.0
    assert zcdp_epsilon(math.inf, 0.1) == math.inf
    for delta in (5e-324, 1e-305, 1e-303):
        with mp.workdps(60):
            exact = exact_zcdp_epsilon(mp.mpf(1), number(delta)) * UP
        assert zcdp_epsilon(1.0, delta) == pytest.approx(float(exact), rel=1e-13)


LISTS: dict[str, list[Event]] = {
    "Gaussian": [Gaussian(1.5, count=3)],
    "sampled": [Gaussian(1.1, 0.02, 100)],
    "sampled, high orders": [Gaussian(40.0, 0.01, 50_000)],
    "fixed sample": [FixedSampleGaussianEvent(1.3, 0.05, 40)],
    "exponential": [Exponential(0.1, 1000)],
    "pure": [Pure(0.3, 20)],
    "zCDP": [ZCDPEvent(0.01, 7)],
    "Renyi": [RenyiEvent(7.5, 0.2, 3)],
    "Renyi, one order lower": [RenyiEvent(7.5, 0.2), RenyiEvent(3.5, 0.1, 2)],
    "parallel": [
        Parallel(((RenyiEvent(5.0, 0.5), Failure(0.5)), (Gaussian(2.0, count=2),)), 3)
    ],
    "mixed": [
        Gaussian(1.1, 0.02, 100),
        Exponential(0.2, 5),
        Pure(0.1),
        ZCDPEvent(0.003),
    ],
    "tiny": [ZCDPEvent(1e-13)],
    "huge": [ZCDPEvent(1e9)],
}


def best_known(events: list[Event], delta: float) -> float:
    """Return the least conversion over 400,001 orders, by the divergences above."""
    x = np.geomspace(1e-7, 1e9, 400_001)
    lasts = [e.order for e in events if isinstance(e, RenyiEvent)]
    lasts += [
        e.order
        for event in events
        if isinstance(event, Parallel)
        for branch in event.branches
        for e in branch
        if isinstance(e, RenyiEvent)
    ]
    x = np.append(x, [order - 1 for order in lasts])
    with np.errstate(all="ignore"):
        total = sum(event.count * divergence(event, x) for event in events)
        found = total + np.log(x / (1 + x)) - (math.log(delta) + np.log1p(x)) / x
    return max(0.0, float(np.nanmin(found)))


RECORDED: dict[tuple[str, float], float] = {
    ("Gaussian", 1e-05): 5.582659179640462,
    ("Gaussian", 0.05): 2.514935569937781,
    ("Gaussian", 1e-12): 8.78868582048205,
    ("sampled", 1e-05): 1.4905580969343533,
    ("sampled", 0.05): 0.2411066681332719,
    ("sampled", 1e-12): 3.505737560688727,
    ("sampled, high orders", 1e-05): 0.20035176933546814,
    ("sampled, high orders", 1e-12): 0.37131766449612963,
    ("fixed sample", 1e-05): 1.8013650116764,
    ("fixed sample", 0.05): 0.43281607420306295,
    ("fixed sample", 1e-12): 3.8279795183556042,
    ("exponential", 1e-05): 8.078359695461797,
    ("exponential", 0.05): 3.967966015998419,
    ("exponential", 1e-12): 12.434922543083765,
    ("pure", 1e-05): 5.657943111757944,
    ("pure", 0.05): 2.978703986213276,
    ("pure", 1e-12): 5.999999934682652,
    ("zCDP", 1e-05): 1.572948868273083,
    ("zCDP", 0.05): 0.47071289690572626,
    ("zCDP", 1e-12): 2.645093207074333,
    ("Renyi", 1e-05): 1.9181333785812178,
    ("Renyi", 0.05): 0.6077959645158709,
    ("Renyi", 1e-12): 4.397840401808055,
    ("Renyi, one order lower", 1e-05): 4.167592761973572,
    ("Renyi, one order lower", 0.05): 0.7607154854036698,
    ("Renyi, one order lower", 1e-12): 10.614831022363346,
    ("parallel", 1e-05): 5.978524961175951,
    ("parallel", 0.05): 2.738642469375355,
    ("parallel", 1e-12): 10.032252249569881,
    ("mixed", 1e-05): 1.762701657824672,
    ("mixed", 0.05): 0.4315045088890143,
    ("mixed", 1e-12): 3.798108880284165,
    ("tiny", 1e-12): 2.0461938225181786e-06,
    ("huge", 1e-05): 1000214586.5589215,
    ("huge", 0.05): 1000109455.7718126,
    ("huge", 1e-12): 1000332442.0068326,
}


@pytest.mark.parametrize(("name", "delta"), RECORDED)
def test_recorded_bounds(name: str, delta: float) -> None:
    """Each is within two ten-thousandths of the best over many orders."""
    found = renyi_epsilon(LISTS[name], delta)
    assert found == pytest.approx(RECORDED[name, delta], rel=2e-13, abs=0)
    least = best_known(LISTS[name], delta)
    assert least * (1 - 1e-7) - 1e-9 <= found <= least * (1 + 2e-4) + 1e-9


def test_no_events_cost_nothing_and_what_has_no_bound_is_infinite() -> None:
    assert renyi_epsilon([], 1e-6) == 0.0
    # The best order is the first, or the last, that is looked at.
    assert renyi_epsilon([ZCDPEvent(1e15)], 1e-5) == pytest.approx(1e15, rel=1e-5)
    assert 0 <= renyi_epsilon([ZCDPEvent(1e-25)], 1e-12) < 1e-8
    assert renyi_epsilon([Gaussian(1e-200)], 1e-6) == math.inf
    assert renyi_epsilon([ZCDPEvent(1e-15)], 0.5) == 0.0
