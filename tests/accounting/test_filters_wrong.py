"""Filters that are none, and terms that are refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from dp_accounting import dp_event
from support.accounting_strategies import gaussian_curve
from support.filter_oracle import (
    DIGITS,
    check,
    conversion,
    loss,
    number,
    renyi_loss,
    zcdp_epsilon,
)
from support.filter_runs import Admission, admit

from langchain_dpicl.accounting import (
    BUDGET_UNITS,
    Cost,
    Event,
    Exponential,
    Failure,
    Gaussian,
    PrivacyFilter,
    Pure,
    ZCDPEvent,
    repeat,
)
from langchain_dpicl.errors import InvalidParameterError


def caught(account: PrivacyFilter, event: Event, wrong: Admission) -> None:
    """Fail unless the oracle sees a wrong cost overspend, and the right one not."""
    check(account, repeat([event], BUDGET_UNITS // account.cost([event]).loss))
    with pytest.raises(AssertionError):
        check(account, repeat([event], BUDGET_UNITS // wrong([event]).loss))


def test_twin_that_rounds_down_is_caught() -> None:
    account = PrivacyFilter("zcdp", 1.0, 1e-6)
    event = ZCDPEvent(account.budget * (1e3 + 0.99) / BUDGET_UNITS)

    def wrong(events: Sequence[Event]) -> Cost:
        return Cost(account.cost(events).loss - 1, 0)

    caught(account, event, wrong)


def test_twin_that_charges_a_pure_event_as_bounded_range_is_caught() -> None:
    account = PrivacyFilter("zcdp", 1.0, 1e-6)
    caught(account, Pure(0.01), lambda _: account.cost([Exponential(0.01)]))


def test_twin_that_adds_up_mu_instead_of_its_square_is_caught() -> None:
    account = PrivacyFilter("gdp", 20.0, 1e-6)

    def wrong(_: Sequence[Event]) -> Cost:
        return Cost(math.ceil(BUDGET_UNITS / account.budget**2 / 0.7), 0)

    caught(account, Gaussian(0.7), wrong)


def test_twin_that_forgets_the_failures_in_delta_is_caught() -> None:
    share = 0.9
    account = PrivacyFilter("zcdp", 1.0, 1e-3, delta0_share=share)
    whole_delta = PrivacyFilter("zcdp", 1.0, 1e-3, delta0_share=0.0)
    events: list[Event] = [
        ZCDPEvent(whole_delta.budget * 0.999),
        Failure(0.899e-3),
    ]

    def wrong(bundle: Sequence[Event]) -> Cost:
        return Cost(whole_delta.cost(bundle[:1]).loss, account.cost(bundle[1:]).failure)

    assert admit(account, [events], account.cost) == []
    admitted = admit(account, [events], wrong)
    assert admitted == events
    with mp.workdps(DIGITS):
        delta = number(account.delta) - number(0.899e-3)
        assert zcdp_epsilon(number(account.budget), delta) <= 1.0
        assert zcdp_epsilon(loss(account, events[0]), delta) > 1.1
    with pytest.raises(AssertionError):
        check(account, admitted)


def responses(epsilon: float) -> list[tuple[mp.mpf, mp.mpf]]:
    """Probability and privacy loss of both outcomes of randomized response."""
    truth = 1 / (1 + mp.exp(-mp.mpf(epsilon)))
    return [(truth, mp.mpf(epsilon)), (1 - truth, -mp.mpf(epsilon))]


def test_a_smallest_bound_over_orders_is_not_a_filter() -> None:
    """One order can't hold both paths of a run that each have an order to hold them.

    The first release, a randomized response, decides between a Gaussian release and a
    pure one. Each path passes "some order is within the budget", but no order holds
    both. The run as a whole has at each order a divergence, an average of the two
    paths', and *no* order brings that within epsilon.
    """
    first, gaussian, pure = Pure(0.1), Gaussian(4.9), Pure(0.899)
    epsilon, delta = 1.0, 1e-6

    def fits(order: float, path: list[Event]) -> bool:
        try:
            account = PrivacyFilter(
                "renyi", epsilon, delta, delta0_share=0, order=order
            )
        except InvalidParameterError:
            return False
        return account.affords(Cost(0, 0), account.cost(path))

    orders = [1 + 10**x for x in np.linspace(-2, 6, 161).tolist()]
    narrow = {order for order in orders if fits(order, [first, gaussian])}
    wide = {order for order in orders if fits(order, [first, pure])}
    assert narrow
    assert wide
    assert not narrow & wide

    with mp.workdps(30):
        bounds = []
        for order in orders:
            x = number(order) - 1
            after = [renyi_loss(pure, order), renyi_loss(gaussian, order)]
            moment = mp.fsum(
                p * mp.exp(x * (gain + divergence))
                for (p, gain), divergence in zip(
                    responses(first.epsilon), after, strict=True
                )
            )
            bounds.append(mp.log(moment) / x + conversion(x, mp.mpf(delta)))
        assert min(bounds) > 1.1


def test_composing_exact_curves_is_not_a_filter() -> None:
    """Both paths of a run are within (epsilon, delta), exactly; the run is not.

    After a first randomized response that came out positive the run takes another
    one, whose bad event is just above what is left of epsilon; after a negative one, a
    Gaussian release, whose bad event is far out. Either list alone spends delta on
    the positive side; the run also spends it on the negative side.
    """
    with mp.workdps(30):
        epsilon, delta = mp.mpf(4), mp.mpf("0.01")
        first = responses(0.1)

        def answer(eps: mp.mpf, at: mp.mpf) -> mp.mpf:
            return mp.fsum(p * max(0, 1 - mp.exp(at - v)) for p, v in responses(eps))

        def after_first(curve: Callable[[mp.mpf], mp.mpf]) -> mp.mpf:
            return mp.fsum(p * curve(epsilon - v) for p, v in first)

        def largest(curve: Callable[[mp.mpf, mp.mpf], mp.mpf]) -> mp.mpf:
            low, high = mp.mpf("0.1"), mp.mpf(8)
            for _ in range(60):
                middle = (low + high) / 2
                if after_first(lambda at, m=middle: curve(m, at)) > delta:
                    high = middle
                else:
                    low = middle
            return low

        eps, mu = largest(answer), largest(gaussian_curve)
        (yes, gain), (no, fall) = first
        run = yes * answer(eps, epsilon - gain)
        run += no * gaussian_curve(mu, epsilon - fall)
        assert after_first(lambda at: answer(eps, at)) <= delta
        assert after_first(lambda at: gaussian_curve(mu, at)) <= delta
        assert run > 1.3 * delta

        # The filter admits the first release and then refuses both.
        account = PrivacyFilter("zcdp", float(epsilon), float(delta), delta0_share=0)
        spent = account.cost([Pure(0.1)])
        assert account.affords(Cost(0, 0), spent)
        assert not account.affords(spent, account.cost([Pure(float(eps))]))
        assert not account.affords(spent, account.cost([Gaussian(float(1 / mu))]))


@pytest.mark.parametrize(
    "change",
    [
        {"method": "pld"},
        {"method": None},
        {"method": ["zcdp"]},
        {"epsilon": 0},
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"epsilon": math.inf},
        {"epsilon": "1"},
        {"epsilon": 1e-300, "delta": 1e-300},
        {"delta": 0},
        {"delta": 1},
        {"delta": -1e-6},
        {"delta": math.nan},
        {"delta": 5e-324, "delta0_share": 0.9},
        {"delta0_share": 1},
        {"delta0_share": -0.1},
        {"delta0_share": math.nan},
        {"delta0_share": None},
        {"order": 2.0},
        {"method": "gdp", "order": 2.0},
        {"method": "renyi", "order": 1},
        {"method": "renyi", "order": 0.5},
        {"method": "renyi", "order": -3},
        {"method": "renyi", "order": math.nan},
        {"method": "renyi", "order": math.inf},
        {"method": "renyi", "order": "8"},
        {"method": "renyi", "order": 1.5},
    ],
)
def test_bad_terms_are_refused(change: dict[str, Any]) -> None:
    terms: dict[str, Any] = {"method": "zcdp", "epsilon": 1.0, "delta": 1e-6, **change}
    with pytest.raises(InvalidParameterError):
        PrivacyFilter(**terms)


@pytest.mark.parametrize("method", ["zcdp", "gdp", "renyi"])
@pytest.mark.parametrize(
    "events", [None, 3, "abc", [None], [1.0], [dp_event.DpEvent()], Gaussian(1.0)]
)
def test_unknown_events_are_refused(method: Any, events: Any) -> None:
    with pytest.raises(InvalidParameterError):
        PrivacyFilter(method, 1.0, 1e-6).cost(events)


@pytest.mark.parametrize(
    "event",
    [Gaussian(9.0, 0.5), Exponential(0.1), Pure(0.1), ZCDPEvent(0.1)],
)
def test_a_gdp_filter_takes_plain_gaussians_only(event: Event) -> None:
    account = PrivacyFilter("gdp", 1.0, 1e-6)
    with pytest.raises(InvalidParameterError, match="'zcdp', or 'renyi'"):
        account.cost([Gaussian(9.0), event])


@pytest.mark.parametrize("spent", [(-1, 0), (0, -1), (0.5, 0), (math.nan, 0)])
def test_what_was_spent_is_counted_in_steps(spent: Any) -> None:
    with pytest.raises(InvalidParameterError):
        PrivacyFilter("zcdp", 1.0, 1e-6).epsilon_spent(spent)
