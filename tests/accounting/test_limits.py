"""Limits of filters and what is added up under them: exact, but for known roundings."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from support.accounting_strategies import gaussian_curve
from support.filter_oracle import conversion, number

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
    gaussian_epsilon,
    limits,
)
from langchain_dpicl.accounting.renyi import divergence
from langchain_dpicl.errors import InvalidParameterError

TERMS = [
    (epsilon, delta)
    for epsilon in (0.01, 0.3, 1.0, 8.0, 60.0)
    for delta in (1e-12, 1e-6, 1e-2, 0.3)
]
RHOS: list[tuple[Event, Fraction]] = [
    (Gaussian(0.5, count=9), Fraction(2)),
    (Gaussian(3.0, 0.25), Fraction(1, 18)),
    (FixedSampleGaussianEvent(3.0, 0.25), Fraction(1, 18)),
    (Exponential(0.5, 9), Fraction(1, 32)),
    (Pure(0.5, 9), Fraction(1, 8)),
    (ZCDPEvent(0.1, 9), Fraction(0.1)),
    (Pure(1e-300), Fraction(1e-300) ** 2 / 2),
]


@pytest.mark.parametrize(("event", "rho"), RHOS)
def test_rho_of_one_use_is_exact(event: Event, rho: Fraction) -> None:
    assert limits.exact_rho(event) == rho


def test_what_has_no_rho_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="only a plan"):
        limits.exact_rho(RenyiEvent(8.0, 0.1))
    for event in (Failure(0.1), Parallel(((Pure(0.1),),))):
        name = type(event).__name__
        with pytest.raises(
            InvalidParameterError, match=f"A {name} has no loss that can be"
        ):
            limits.exact_rho(event)


@pytest.mark.parametrize("event", [ZCDPEvent(0.1, 9), Gaussian(1.7, count=9)], ids=str)
def test_a_line_is_exact_at_every_order(event: Event) -> None:
    for order in (1.1, 2.0, 97.3):
        expected = Fraction(order) * limits.exact_rho(event)
        assert limits.renyi_loss(event, order) == expected


@pytest.mark.parametrize(
    "event",
    [
        Gaussian(1.7, 0.02, 9),
        FixedSampleGaussianEvent(1.7, 0.02, 9),
        Pure(3.0, 9),
        Exponential(3.0, 9),
    ],
    ids=str,
)
@pytest.mark.parametrize("order", [1.5, 8.0])
def test_what_is_saved_under_the_line_is_rounded_up(event: Event, order: float) -> None:
    value = Fraction(float(divergence(event, np.array([order - 1]))[0]))
    line = Fraction(order) * limits.exact_rho(event)
    expected = min(line, value * Fraction(1_000_000_001, 1_000_000_000))
    assert limits.renyi_loss(event, order) == expected
    assert value <= expected <= line


def test_a_loss_at_the_ends_of_the_doubles_is_the_line() -> None:
    for event in (Pure(1e-145), Pure(1e-200), Gaussian(1e-200, 0.5)):
        line = 2 * limits.exact_rho(event)
        assert limits.renyi_loss(event, 2.0) == line
    # One that is just large enough is known to the double.
    event = Pure(1.1e-145)
    assert limits.renyi_loss(event, 2.0) <= 2 * limits.exact_rho(event)


def test_of_a_renyi_event_its_own_order_and_below_are_known() -> None:
    event = RenyiEvent(6.0, 0.1, 9)
    assert limits.renyi_loss(event, 6.0) == Fraction(0.1)
    assert limits.renyi_loss(event, 1.5) == Fraction(0.1)
    with pytest.raises(
        InvalidParameterError, match=r"RenyiEvent\(.*\) at order 6\.00000000"
    ):
        limits.renyi_loss(event, math.nextafter(6.0, 7.0))


def terms_of(x: float, epsilon: float, delta: float) -> float:
    """The sum of what is added up in a conversion, of which a part may be rounded."""
    gain, log = math.log1p(1 / x), math.log1p(x)
    return epsilon + gain + (log - math.log(delta)) / x


@pytest.mark.parametrize(("epsilon", "delta"), TERMS)
@pytest.mark.parametrize("order", [1.001, 1.5, 2.0, 20.0, 5000.0])
def test_a_limit_at_an_order_is_exact_but_for_its_slack(
    order: float, epsilon: float, delta: float
) -> None:
    with mp.workdps(50):
        x = number(order) - 1
        exact = epsilon - conversion(x, number(delta))
        gap = float(exact - number(limits.renyi_budget(order, epsilon, delta)))
        terms = terms_of(order - 1, epsilon, delta)
        assert gap == pytest.approx(4e-15 * terms, abs=8e-16 * terms)
        total = 0.37
        exact = max(mp.mpf(0), number(total) + conversion(x, number(delta)))
        found = number(limits.renyi_epsilon_at(order, total, delta))
        terms = terms_of(order - 1, total, delta)
        assert float(found - exact) >= 0
        if exact:
            gap = float(found - exact)
            assert gap == pytest.approx(4e-15 * terms, abs=8e-16 * terms)


@pytest.mark.parametrize(("epsilon", "delta"), TERMS)
def test_the_default_order_solves_its_equation(epsilon: float, delta: float) -> None:
    with mp.workdps(50):
        target = -mp.log(number(delta))

        def excess(t: mp.mpf) -> mp.mpf:
            x = mp.exp(t)
            rho = (epsilon + mp.log(1 + 1 / x)) / (1 + 2 * x)
            return rho * x * x + mp.log1p(x) - target

        low, high = mp.mpf(-40), mp.mpf(40)
        for _ in range(120):
            middle = (low + high) / 2
            low, high = (middle, high) if excess(middle) < 0 else (low, middle)
        exact = mp.exp(high)
        found = limits.default_order(epsilon, delta)
        assert found - 1 == pytest.approx(float(exact), rel=1e-12)
        # There the most of a line fits into the limit.
        budget = number(limits.zcdp_budget(epsilon, delta))
        most = (epsilon - conversion(exact, number(delta))) / (1 + exact)
        slack = 5e-15 * terms_of(float(exact), epsilon, delta) / float(1 + exact)
        assert 0 <= float(most - budget) <= slack + 5e-15 * float(most)
        assert float(most - budget) >= slack / 2


def test_the_default_order_at_its_ends() -> None:
    assert limits.default_order(1e300, 1e-6) == math.nextafter(1.0, 2.0)
    assert limits.default_order(1e-12, 5e-324) > 700
    assert limits.default_order(1e-300, 0.999) > 1
    assert 1e12 < limits.default_order(1e-12, 1e-30) < 1e14
    # Beyond e^700 no order is looked for.
    assert limits.default_order(5e-324, 5e-324) == pytest.approx(math.exp(700))


@pytest.mark.parametrize(("epsilon", "delta"), [*TERMS, (1e6, 0.9), (1e6, 1e-300)])
def test_the_largest_mu_is_the_one_whose_figure_is_epsilon(
    epsilon: float, delta: float
) -> None:
    found = limits.gdp_budget(epsilon, delta)
    assert gaussian_epsilon(found, delta) <= epsilon
    assert gaussian_epsilon(found * (1 + 1e-13), delta) >= epsilon * (1 - 1e-12)
    assert gaussian_epsilon(found * (1 + 1e-9), delta) > epsilon
    with mp.workdps(40):
        assert gaussian_curve(found, epsilon) <= delta


@pytest.mark.parametrize("delta", [1e-12, 1e-3, 0.1])
def test_hardly_any_epsilon_leaves_the_mu_that_delta_pays_for(delta: float) -> None:
    with mp.workdps(30):
        exact = float(mp.erfinv(number(delta)) * mp.sqrt(8))
    found = limits.gdp_budget(1e-300, delta)
    assert found == pytest.approx(exact, rel=2e-11)
    assert found < exact


@pytest.mark.parametrize(("epsilon", "delta"), [(1e-3, 0.1), (1.0, 0.5), (3.0, 0.01)])
def test_the_largest_pure_loss_but_for_a_billionth_of_what_delta_adds(
    epsilon: float, delta: float
) -> None:
    with mp.workdps(40):
        e, d = number(epsilon), number(delta)
        # (e^t - e^epsilon) / (1 + e^t) = delta
        most = mp.log((mp.exp(e) + d) / (1 - d))
        expected = e + (most - e) * (1 - mp.mpf("1e-9"))
    found = limits.pure_budget(epsilon, delta)
    assert found == pytest.approx(float(expected), rel=1e-15)
    assert found < float(most)
    assert limits.pure_budget(epsilon, 1e-30) == epsilon
    assert limits.pure_budget(1e300, 1e-6) == 1e300
