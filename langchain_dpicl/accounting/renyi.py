"""Renyi and zCDP bounds: valid for every list, tight for many small events.

A list of events whose Renyi divergence of order a is at most R(a), in both orders of
the neighbors, is (epsilon, delta)-DP for every a > 1 with (Canonne, Kamath, Steinke
2020, Proposition 12)

    epsilon = R(a) + log(1 - 1/a) - (log delta + log a) / (a - 1).

R adds up over adaptively chosen events. The events here are fixed in advance, so the
smallest epsilon over all orders may be taken. R of one use:

    Gaussian, no sampling   a / (2 z^2)
    Gaussian, sampled       log A(a) / (a - 1), A as in Mironov, Talwar, Zhang 2019,
                            section 3.3, at integer orders; (a - 1) R(a) is convex, so
                            a straight line between two orders is an upper bound
    exponential             min(a eps^2 / 8, pure)  (bounded range)
    pure                    log((exp(a eps) + exp((1 - a) eps)) / (1 + exp(eps)))
                            / (a - 1)  (that of randomized response)
    zCDP                    a rho
    parallel                the largest of the branches' sums, at each order by itself

A unit takes part in one branch of a parallel event, so that the largest bounds it,
whichever branch that is and whether or not it is the same in each use.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from langchain_dpicl.accounting.events import (
    Event,
    Exponential,
    Failure,
    Gaussian,
    Parallel,
    Pure,
    ZCDPEvent,
)
from langchain_dpicl.accounting.gaussian import inverse_square
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError

Floats = npt.NDArray[np.float64]

# The integer orders at which a sampled Gaussian is computed; between them it is
# interpolated, above them sampling is ignored.
_INTEGERS = np.unique(
    np.concatenate([np.arange(2, 65), np.geomspace(66, 2048, 50).astype(np.int64)])
)
_LOG_FACTORIAL = np.concatenate(
    [[0.0], np.cumsum(np.log(np.arange(1, _INTEGERS[-1] + 1, dtype=np.float64)))]
)
# Orders minus one.
_GRID: Floats = np.geomspace(1e-6, 1e9, 301)
_REFINED = 101
_ROUND_UP = 1 + 1e-10
_ROUNDING = 1e-12


def rho(events: Iterable[Event]) -> float:
    """Return the zCDP parameter of a list of events, the sum of theirs.

    Gaussian 1 / (2 z^2) (a sampling rate does not lower it), exponential epsilon^2 / 8,
    pure epsilon^2 / 2 (Bun, Steinke 2016, Proposition 1.4), parallel the largest of its
    branches' (whose classes may then change from use to use). `Failure`s are left to
    the caller, who subtracts them from delta. The events may have been chosen
    adaptively; what is not an event of this package is a `InvalidParameterError`.

    Example:
        >>> rho([Gaussian(2.0, count=4), Exponential(1.0)])
        0.625
    """
    total = 0.0
    for event in events:
        if isinstance(event, Gaussian):
            total += event.count * inverse_square(event.noise_multiplier) / 2
        elif isinstance(event, Exponential):
            total += event.count * event.epsilon * event.epsilon / 8
        elif isinstance(event, Pure):
            total += event.count * event.epsilon * event.epsilon / 2
        elif isinstance(event, ZCDPEvent):
            total += event.count * event.rho
        elif isinstance(event, Parallel):
            total += event.count * max(map(rho, event.branches))
        elif not isinstance(event, Failure):
            raise InvalidParameterError(f"Not a privacy event: {type(event).__name__}.")
    return total


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return the epsilon of rho-zCDP at `delta` (the CKS conversion), rounded up.

    rho may be infinite; epsilon is then. With x = a - 1 the bound's derivative by x is
    rho + (log delta + log(1 + x)) / x^2, so the best order solves rho x^2 + log(1 + x)
    = -log delta: one root of an increasing function. Any x > 0 gives a valid bound, so
    an inexact root costs tightness only. An argument that is out of its range is a
    `InvalidParameterError`.

    Example:
        >>> round(zcdp_epsilon(1.25, 1e-5), 4)
        8.0784
    """
    delta = parameters.delta(delta)
    rho = parameters.extended("rho", rho)
    if rho == 0 or math.isinf(rho):
        return rho
    log_delta = math.log(delta)
    # Both are at or above the root, and the function is increasing.
    x = math.sqrt(-log_delta / rho)
    if log_delta > -700:  # noqa: PLR2004 - exp overflows a little above 700.
        x = min(x, math.expm1(-log_delta))
    for _ in range(100):
        value = rho * x * x + math.log1p(x) + log_delta
        lower = x - value / (2 * rho * x + 1 / (1 + x))
        # Newton may step below 0, where log1p ends; halving cannot.
        following = lower if lower > 0 else x / 2
        if abs(following - x) <= 1e-12 * x:
            break
        x = following
    # Where epsilon is tiny its terms cancel, and a relative margin is not enough.
    price, gain = -(log_delta + math.log1p(x)) / x, math.log1p(1 / x)
    slack = 4e-15 * (gain + (math.log1p(x) - log_delta) / x)
    return max(0.0, rho * (1 + x) - gain + price + slack) * _ROUND_UP


@functools.lru_cache(maxsize=256)
def _sampled_cumulants(noise_multiplier: float, sampling_rate: float) -> Floats:
    """Return (a - 1) R(a) of one sampled Gaussian at order 1 and at `_INTEGERS`.

    A(a) = 1 + sum over k >= 2 of C(a, k) q^k (1 - q)^(a - k) (exp(k (k - 1) / 2 z^2)
    - 1): the binomial weights add up to 1, and every term is positive, so that the
    excess over 1 keeps its relative precision however small it is.
    """
    log_q, log_rest = math.log(sampling_rate), math.log1p(-sampling_rate)
    half = inverse_square(noise_multiplier) / 2
    values = [0.0]
    for order in _INTEGERS.tolist():
        k = np.arange(2, order + 1, dtype=np.float64)
        exponent = k * (k - 1) * half
        # With next to no loss the last term is the logarithm of 0.
        with np.errstate(under="ignore", divide="ignore"):
            terms = (
                _LOG_FACTORIAL[order]
                - _LOG_FACTORIAL[2 : order + 1]
                - _LOG_FACTORIAL[: order - 1][::-1]
                + k * log_q
                + (order - k) * log_rest
                + exponent
                + np.log(-np.expm1(-exponent))
            )
            peak = float(terms.max())
            excess = peak + math.log(float(np.exp(terms - peak).sum()))
        values.append(float(np.logaddexp(0, excess)))
    return np.array(values) * _ROUND_UP


def divergence(event: Event, x: Floats) -> Floats:
    """Return R(1 + x) of one use, a `Failure` excepted; rounded either way."""
    order = 1 + x
    if isinstance(event, Gaussian):
        plain = order * (inverse_square(event.noise_multiplier) / 2)
        if event.sampling_rate == 1 or not math.isfinite(float(plain[0])):
            return plain
        cumulants = _sampled_cumulants(event.noise_multiplier, event.sampling_rate)
        bent = np.interp(order, np.concatenate([[1], _INTEGERS]), cumulants) / x
        return np.where(order <= _INTEGERS[-1], np.minimum(bent, plain), plain)
    if isinstance(event, ZCDPEvent):
        return order * event.rho
    if isinstance(event, Parallel):
        branches = dict.fromkeys(event.branches)
        sums = (_branch_divergence(branch, x) for branch in branches)
        return functools.reduce(np.maximum, sums)
    assert isinstance(event, (Exponential, Pure))  # noqa: S101 - narrows
    eps = event.epsilon
    # log((e^(a eps) + e^((1 - a) eps)) / (1 + e^eps)) without overflow. Where it
    # cancels, its rounding error makes it larger than a eps^2 / 2.
    exact = x * eps + np.log1p(np.exp(-(1 + 2 * x) * eps)) - math.log1p(math.exp(-eps))
    randomized = (exact + 1e-15 * (1 + x * eps)) / x
    rate = 1 / 8 if isinstance(event, Exponential) else 1 / 2
    return np.minimum(order * (rate * eps * eps), np.minimum(eps, randomized))


def _branch_divergence(branch: Iterable[Event], x: Floats) -> Floats:
    total = np.zeros_like(x)
    for event in branch:
        if not isinstance(event, Failure):
            total = total + event.count * divergence(event, x)
    return total


def renyi_epsilon(events: Sequence[Event], delta: float) -> float:
    """Return the best Renyi bound, perhaps infinite, of a list fixed in advance.

    The events must not depend on earlier answers: the smallest bound over many orders
    is not valid for a list that grows as answers are seen. There is no `Failure`
    among them: its share is already taken out of `delta`.

    Example:
        >>> round(renyi_epsilon([Exponential(0.1, count=1000)], 1e-5), 2)
        8.08
    """
    if not events:
        return 0.0
    log_delta = math.log(delta)

    def bounds(x: Floats) -> Floats:
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            total = np.zeros_like(x)
            for event in events:
                total = total + event.count * divergence(event, x)
            shift = np.log(x) - np.log1p(x)
            price = (log_delta + np.log1p(x)) / x
            slack = _ROUNDING * (total + np.abs(shift) + np.abs(price))
            value = total + shift - price + slack
        return np.where(np.isfinite(value), value, np.inf)

    coarse = bounds(_GRID)
    best = int(np.argmin(coarse))
    low, high = max(best - 1, 0), min(best + 1, len(_GRID) - 1)
    fine = bounds(np.geomspace(_GRID[low], _GRID[high], _REFINED))
    smallest = float(min(coarse[best], fine.min()))
    return max(0.0, smallest)
