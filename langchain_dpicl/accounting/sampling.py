"""What Poisson sampling of units makes of a pure epsilon, and back."""

from __future__ import annotations

import math

from langchain_dpicl.common import parameters

# Units in the last place that cover a figure's rounding errors: expm1, log1p, log and
# the products between them are each off by one at most, and none is magnified.
_STEPS_UP = 6
_LARGE = 600.0  # From here on e^x is nearly beyond a double, and 1 is nothing beside it
_BELOW = 1 - 1e-12
"""Rounds an undone amplification toward more noise: amplified again it is no more."""


def sampled_epsilon(epsilon: float, sampling_rate: float) -> float:
    """Return the pure epsilon of a mechanism run on a Poisson sample, rounded up.

    log(1 + q (e^epsilon - 1)) for add/remove of one unit, each sampled with probability
    q (Balle, Barthe and Gaboardi 2018, Theorem 8). It is never below the true value,
    and at most a dozen units in the last place above it, however small it is. An
    argument that is out of its range is a `InvalidParameterError`.

    Example:
        >>> round(sampled_epsilon(1.0, 0.1), 4), sampled_epsilon(2.0, 1.0)
        (0.1586, 2.0)
        >>> round(sampled_epsilon(2000.0, 0.1), 2)  # No overflow.
        1997.7
        >>> sampled_epsilon(2.0, 1e-20) > 6.389e-20  # No cancellation.
        True
    """
    epsilon = parameters.epsilon(epsilon)
    q = parameters.sampling_rate(sampling_rate)
    if epsilon < _LARGE:
        amplified = math.log1p(q * math.expm1(epsilon))
    elif epsilon + math.log(q) < _LARGE:
        # e^epsilon in two halves: it may be beyond a double where q e^epsilon is not.
        half = math.exp(epsilon / 2)
        amplified = math.log1p(q * half * half)
    else:
        amplified = epsilon + math.log(q)
    for _ in range(_STEPS_UP):
        amplified = math.nextafter(amplified, math.inf)
    return min(amplified, epsilon)


def unsampled_epsilon(charged: float, sampling_rate: float) -> float:
    """Return an epsilon that costs at most `charged` on a Poisson sample.

    The inverse of `sampled_epsilon`, rounded down: a mechanism run with it spends no
    more than what was charged.

    Example:
        >>> used = unsampled_epsilon(sampled_epsilon(3.0, 0.2), 0.2)
        >>> 3.0 * (1 - 1e-9) < used <= 3.0
        True
    """
    charged = parameters.epsilon(charged)
    q = parameters.sampling_rate(sampling_rate)
    if q == 1:
        return charged
    if charged >= 1:
        # log(1 + (e^x - 1) / q) = x + log((e^-x (q - 1) + 1) / q), without overflow.
        used = charged - math.log(q) + math.log1p((q - 1) * math.exp(-charged))
    elif math.isfinite(odds := math.expm1(charged) / q):
        used = math.log1p(odds)
    else:
        used = math.log(math.expm1(charged)) - math.log(q)
    return math.nextafter(used * _BELOW, 0.0)
