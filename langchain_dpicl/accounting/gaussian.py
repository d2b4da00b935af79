"""Closed form of composed Gaussian releases without sampling.

Releases with noise multipliers z_1, z_2, ... are together exactly as private as one
with 1 / z^2 = sum of 1 / z_i^2, that is mu-GDP with mu = 1 / z (Dong, Roth, Su 2022,
Corollary 3.3), and the tight curve is (Balle, Wang 2018, Theorem 8)

    delta(epsilon) = Phi(-a) - exp(epsilon) Phi(-b),
    a = epsilon / mu - mu / 2,  b = a + mu.

Everything is written in `a`, where nothing cancels and nothing overflows:
exp(epsilon - b^2 / 2) = exp(-a^2 / 2), so with the scaled function
erfcx(x) = exp(x^2) erfc(x)

    delta = exp(-a^2 / 2) / 2 * (erfcx(a / sqrt 2) - erfcx(b / sqrt 2)).

Only the standard library is needed; one call of `gaussian_epsilon` takes about ten
microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import NormalDist

from langchain_dpicl.accounting.events import (
    Event,
    Failure,
    Gaussian,
    Parallel,
)
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError

_SQRT_HALF = math.sqrt(0.5)
_SQRT_PI = math.sqrt(math.pi)
_ASYMPTOTIC_FROM = 10.0
_NARROW = 0.05
_QUADRATURE = (
    (0.06943184420297371, 0.17392742256872692),
    (0.33000947820757187, 0.32607257743127307),
    (0.6699905217924281, 0.32607257743127307),
    (0.9305681557970262, 0.17392742256872692),
)
# Bounds the rounding errors of `_log_delta` (checked against 60-digit arithmetic
# in the tests, where the largest seen is below a tenth of it).
_LOG_ERROR = 1e-11
_ROUND_UP = 1 + 1e-12
_MAX_STEPS = 100
_NORMAL = NormalDist()


def _erfcx(x: float) -> float:
    """Return exp(x^2) erfc(x) for x > -6, to a relative error of about 1e-14."""
    if x < _ASYMPTOTIC_FROM:
        return math.exp(x * x) * math.erfc(x)
    # The asymptotic series; at x = 10 the first term that is left out is below 1e-14.
    step = -0.5 / (x * x)
    term = total = 1.0
    for k in range(1, 18, 2):
        term *= k * step
        total += term
    return total / (x * _SQRT_PI)


def _erfcx_slope(x: float) -> float:
    """Return -erfcx'(x), which is positive."""
    if x < _ASYMPTOTIC_FROM:
        return 2 / _SQRT_PI - 2 * x * _erfcx(x)
    # The series of `_erfcx`, its leading term canceled by hand.
    step = -0.5 / (x * x)
    term, total = 1.0, 0.0
    for k in range(1, 18, 2):
        term *= k * step
        total += term
    return -2 * total / _SQRT_PI


def _log_delta(a: float, mu: float) -> tuple[float, float]:
    """Return log delta and its derivative by a, at epsilon = mu (a + mu / 2)."""
    x, width = a * _SQRT_HALF, mu * _SQRT_HALF
    right = _erfcx(x + width)
    if a < -1:
        # Near delta = 1 the scaled form would overflow; this one is exact there.
        scale = math.exp(-a * a / 2) / 2
        missing = math.erfc(-x) / 2 + scale * right
        delta = 1 - missing
        return math.log1p(-missing), -mu * scale * right / delta
    if width < _NARROW:
        # Gauss-Legendre on the slope: the difference itself would cancel. The error
        # is below 1e-9 * width^9 of the largest eighth derivative: under 1e-16.
        gap = width * sum(
            weight * _erfcx_slope(x + width * node) for node, weight in _QUADRATURE
        )
    else:
        gap = _erfcx(x) - right
    if gap <= 0:
        return -math.inf, -math.inf
    return -a * a / 2 + math.log(gap / 2), -mu * right / gap


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the smallest delta of a mu-GDP Gaussian at `epsilon`, rounded up.

    mu is 1 / noise multiplier of all releases together. delta is from 0 to 1; an
    argument that is negative or not finite is a `InvalidParameterError`.

    Example:
        >>> round(gaussian_delta(1.0, 1.0), 6)
        0.126937
    """
    mu = parameters.finite("mu", mu)
    epsilon = parameters.finite("epsilon", epsilon)
    if mu < 0 or epsilon < 0:
        raise InvalidParameterError("mu and epsilon must be 0 or more.")
    if mu == 0:
        return 0.0
    ratio = epsilon / mu
    if math.isinf(ratio):
        return math.nextafter(0.0, 1.0)
    # `a` is a difference of two numbers that may be large and close; delta falls
    # with it, so a smaller value of it is on the safe side.
    a = ratio - mu / 2 - 4e-16 * (ratio + mu / 2)
    if a < -_ASYMPTOTIC_FROM * 2:
        return 1.0
    log_delta, _ = _log_delta(a, mu)
    return min(1.0, math.nextafter(math.exp(log_delta + _LOG_ERROR), 1.0))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon of a mu-GDP Gaussian at `delta`, rounded up.

    mu is 1 / noise multiplier of all releases together, and may be infinite (no noise);
    epsilon is `math.inf` where no double is large enough. An argument that is out of
    its range is a `InvalidParameterError`.

    log delta is a concave function of epsilon (a Gaussian density convolved with the
    log-concave kernel 1 - exp(-t), Prekopa), so every Newton step from any side lands
    where delta(epsilon) is at most the target: each iterate is already an upper bound,
    and the last one is tight to a relative 1e-11.

    Example:
        >>> round(gaussian_epsilon(1.0, 1e-5), 5)
        4.37718
    """
    delta = parameters.delta(delta)
    mu = parameters.extended("mu", mu)
    # delta at epsilon = 0 is erf(mu / sqrt 8).
    if math.erf(mu * _SQRT_HALF / 2) * (1 + _LOG_ERROR) <= delta:
        return 0.0
    if math.isinf(mu * mu):
        return math.inf
    target = math.log(delta) - _LOG_ERROR
    a = -_NORMAL.inv_cdf(delta)
    for _ in range(_MAX_STEPS):
        value, slope = _log_delta(a, mu)
        step = (target - value) / slope
        a += step
        if abs(step) < 1e-13 * (1 + abs(a)):
            break
    # A last safeguard, where rounding kept the last step on the wrong side.
    nudge = 1e-13 * (1 + abs(a))
    while _log_delta(a, mu)[0] > target + _LOG_ERROR / 2:
        a += nudge
        nudge *= 2
    return max(0.0, mu * (mu / 2 + a)) * _ROUND_UP


def gdp_mu(events: Iterable[Event]) -> float:
    """Return mu of Gaussian releases without sampling: sqrt(sum count / z^2).

    `Failure`s are left to the caller, who subtracts them from delta. Of a
    `Parallel` the branch with the largest mu counts. Any other event is a
    `InvalidParameterError`: its trade-off curve is not Gaussian.

    Example:
        >>> gdp_mu([Gaussian(2.0, count=16)])
        2.0
    """
    return math.sqrt(_squares(events))


def _squares(events: Iterable[Event]) -> float:
    total = 0.0
    for event in events:
        if isinstance(event, Parallel):
            total += event.count * max(map(_squares, event.branches))
        elif isinstance(event, Gaussian) and event.sampling_rate == 1:
            total += event.count * inverse_square(event.noise_multiplier)
        elif not isinstance(event, Failure):
            raise InvalidParameterError(
                f"Only Gaussian events without sampling have a mu, not {event!r}."
            )
    return total


def inverse_square(noise_multiplier: float) -> float:
    """Return 1 / z^2, infinite where that overflows."""
    square = noise_multiplier * noise_multiplier
    return 1 / square if square > 0 else math.inf
