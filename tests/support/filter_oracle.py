"""Exact limits, losses and conversions of filters, in 60 digits.

Written from the papers alone: limits are found by search on the conversion, never with
the formulas that the package uses to find them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from fractions import Fraction

import mpmath as mp

from langchain_dpicl.accounting import (
    Event,
    Exponential,
    Failure,
    Gaussian,
    PrivacyFilter,
    Pure,
    ZCDPEvent,
)
from support.accounting_strategies import gaussian_curve

DIGITS = 60


def number(value: float | Fraction) -> mp.mpf:
    exact = Fraction(value)
    return mp.mpf(exact.numerator) / exact.denominator


def conversion(x: mp.mpf, delta: mp.mpf) -> mp.mpf:
    """epsilon - R at order 1 + x: Canonne, Kamath, Steinke 2020, Proposition 12."""
    return mp.log(x / (1 + x)) - (mp.log(delta) + mp.log1p(x)) / x


def smallest(f: Callable[[mp.mpf], mp.mpf], low: float, high: float) -> mp.mpf:
    """The smallest value of a function with one valley, by the golden section."""
    ratio = (mp.sqrt(5) - 1) / 2
    a, b = mp.mpf(low), mp.mpf(high)
    c, d = b - ratio * (b - a), a + ratio * (b - a)
    at_c, at_d = f(c), f(d)
    for _ in range(150):
        if at_c < at_d:
            b, d, at_d = d, c, at_c
            c = b - ratio * (b - a)
            at_c = f(c)
        else:
            a, c, at_c = c, d, at_d
            d = a + ratio * (b - a)
            at_d = f(d)
    return min(at_c, at_d)


def zcdp_epsilon(rho: mp.mpf, delta: mp.mpf) -> mp.mpf:
    def at(t: mp.mpf) -> mp.mpf:
        return rho * (1 + mp.exp(t)) + conversion(mp.exp(t), delta)

    return smallest(at, -60, 60)


def left(account: PrivacyFilter) -> mp.mpf:
    share = Fraction(account.delta) * Fraction(account.delta0_share)
    return number(Fraction(account.delta) - share)


@functools.lru_cache(maxsize=512)
def budget(account: PrivacyFilter) -> mp.mpf:
    """The exact limit on the sum of losses."""
    with mp.workdps(DIGITS):
        epsilon, delta = number(account.epsilon), left(account)
        if account.order is not None:
            return epsilon - conversion(number(account.order) - 1, delta)
        if account.method == "zcdp":
            # rho is within it exactly if some order has rho a + conversion <= epsilon.
            def at(t: mp.mpf) -> mp.mpf:
                x = mp.exp(t)
                return -(epsilon - conversion(x, delta)) / (1 + x)

            return -smallest(at, -60, 60)
        low, high = mp.mpf(0), 20 + 3 * mp.sqrt(epsilon)
        for _ in range(90):
            middle = (low + high) / 2
            if gaussian_curve(middle, epsilon) > delta:
                high = middle
            else:
                low = middle
        return high * high


def sampled_divergence(z: float, q: float, order: int) -> mp.mpf:
    """Mironov, Talwar, Zhang 2019, section 3.3, at a whole order."""
    rate, square = number(q), 2 * number(z) ** 2
    return mp.log(
        mp.fsum(
            mp.binomial(order, k)
            * rate**k
            * (1 - rate) ** (order - k)
            * mp.exp((k * k - k) / square)
            for k in range(order + 1)
        )
    ) / (order - 1)


def renyi_loss(event: Event, order: float) -> mp.mpf:
    a = number(order)
    if isinstance(event, Gaussian):
        if event.sampling_rate < 1:
            z, q = event.noise_multiplier, event.sampling_rate
            return sampled_divergence(z, q, int(order))
        return a / (2 * number(event.noise_multiplier) ** 2)
    if isinstance(event, ZCDPEvent):
        return a * number(event.rho)
    assert isinstance(event, (Exponential, Pure))
    e = number(event.epsilon)
    truth = mp.exp(e) / (1 + mp.exp(e))
    randomized = mp.log(
        truth**a * (1 - truth) ** (1 - a) + (1 - truth) ** a * truth ** (1 - a)
    ) / (a - 1)
    if isinstance(event, Exponential):
        return min(randomized, a * e * e / 8)
    return randomized


def loss(account: PrivacyFilter, event: Event) -> mp.mpf:
    """The loss of all uses of an event."""
    if account.order is not None:
        return event.count * renyi_loss(event, account.order)
    if isinstance(event, Gaussian):
        rho = 1 / (2 * number(event.noise_multiplier) ** 2)
        return event.count * (2 * rho if account.method == "gdp" else rho)
    if isinstance(event, Exponential):
        return event.count * number(event.epsilon) ** 2 / 8
    if isinstance(event, Pure):
        return event.count * number(event.epsilon) ** 2 / 2
    assert isinstance(event, ZCDPEvent)
    return event.count * number(event.rho)


def check(account: PrivacyFilter, admitted: Iterable[Event]) -> None:
    """Fail unless what was admitted is within the budget, and (epsilon, delta)-DP."""
    with mp.workdps(DIGITS):
        total, failure = mp.mpf(0), mp.mpf(0)
        for event in admitted:
            if isinstance(event, Failure):
                failure += event.count * number(event.delta0)
            else:
                total += loss(account, event)
        epsilon, delta = number(account.epsilon), number(account.delta)
        assert failure <= delta * number(account.delta0_share) * (1 + mp.mpf(2) ** -52)
        assert total <= budget(account)
        if total == 0:
            return
        remaining = delta - failure
        assert remaining > 0
        if account.method == "gdp":
            assert gaussian_curve(mp.sqrt(total), epsilon) <= remaining
        elif account.method == "zcdp":
            assert zcdp_epsilon(total, remaining) <= epsilon
        else:
            assert account.order is not None
            x = number(account.order) - 1
            assert total + conversion(x, remaining) <= epsilon


def whole(value: mp.mpf) -> int:
    with mp.workdps(DIGITS):
        return int(mp.floor(value))


def relative_gap(account: PrivacyFilter) -> float:
    """How far the limit is below the exact one; negative if above."""
    with mp.workdps(DIGITS):
        own = number(account.budget)
        own = own * own if account.method == "gdp" else own
        gap = 1 - own / budget(account)
        return float(gap) if gap else math.copysign(0.0, 1)
