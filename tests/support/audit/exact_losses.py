"""Exact privacy losses of finite and Gaussian outputs, and the verdict on them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mpmath import mp

SLACK = 1e-9
"""Relative: claims are held against figures that a float can hold."""

_DIGITS = 40
_HALVINGS = 60

Pair = tuple[float, float]
"""An outcome's probability in either world."""


Figure = Callable[[float, float], float]
"""What a transcript of probability p here and q there adds to a figure."""


class PrivacyViolationError(AssertionError):
    """Two worlds can be told apart better than the account claims."""


@functools.cache
def gaussian_delta(squared_mu: float, epsilon: float) -> float:
    """Return the hockey-stick divergence of N(mu, 1) from N(0, 1): both directions.

    It is that of any N(m, S) from N(m', S) with |S^(-1/2) (m - m')|^2 = mu^2.
    """
    if squared_mu == 0:
        return 0.0
    if math.isinf(squared_mu):
        return 1.0
    with mp.workdps(_DIGITS):
        mu, e = mp.sqrt(mp.mpf(squared_mu)), mp.mpf(epsilon)
        found = mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)
        return float(found)


@functools.cache
def above(threshold: float, mean: float, sigma: float) -> float:
    """Return P(N(mean, sigma^2) >= threshold)."""
    return math.erfc((threshold - mean) / sigma / math.sqrt(2)) / 2


def divergence(pairs: Iterable[Pair], epsilon: float) -> float:
    """Return the larger of the two hockey-stick divergences of a finite output."""
    pairs, one = list(pairs), hockey_stick(epsilon)
    return max(
        math.fsum(one(p, q) for p, q in pairs), math.fsum(one(q, p) for p, q in pairs)
    )


def hockey_stick(epsilon: float) -> Figure:
    """Return what adds up to the hockey-stick divergence."""
    factor = math.exp(epsilon)
    return lambda p, q: max(p - factor * q, 0.0)


def renyi_moment(order: float) -> Figure:
    """Return what adds up to exp((order - 1) times the Renyi divergence)."""

    def moment(p: float, q: float) -> float:
        if p == 0:
            return 0.0
        return math.inf if q == 0 else p * (p / q) ** (order - 1)

    return moment


def composed(steps: Sequence[Sequence[Pair]]) -> list[Pair]:
    """Return the joint output of independent steps, outcomes of one loss merged."""
    joint: list[Pair] = [(1.0, 1.0)]
    for step in steps:
        merged: dict[float, Pair] = {}
        for p, q in joint:
            for a, b in step:
                pair = p * a, q * b
                if pair == (0.0, 0.0):
                    continue
                loss = round(_loss(pair), 9)
                known = merged.get(loss, (0.0, 0.0))
                merged[loss] = known[0] + pair[0], known[1] + pair[1]
        joint = list(merged.values())
    return joint


def measured_epsilon(pairs: Sequence[Pair], delta: float) -> float:
    """Return the least epsilon at which a finite output is (epsilon, delta)-DP."""
    if divergence(pairs, 0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while divergence(pairs, high) > delta:
        if high > 1e6:
            return math.inf
        low, high = high, 2 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if divergence(pairs, middle) > delta:
            low = middle
        else:
            high = middle
    return high


def require(measured: float, claimed: float, what: Callable[[], Any]) -> None:
    """Raise `PrivacyViolationError` where a measured delta is above the claimed one."""
    if measured > claimed * (1 + SLACK):
        raise PrivacyViolationError(f"delta {measured:.4g} > {claimed:.4g}: {what()}")


def squared_distance(one: Mapping[Any, int], other: Mapping[Any, int]) -> int:
    """Return the squared L2 distance of two histograms."""
    return sum((one.get(k, 0) - other.get(k, 0)) ** 2 for k in {*one, *other})


def _loss(pair: Pair) -> float:
    p, q = pair
    if p == 0 or q == 0:
        return math.inf if q == 0 else -math.inf
    return math.log(p) - math.log(q)
