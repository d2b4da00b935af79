"""What Poisson sampling of units makes of a pure epsilon, and back."""

from __future__ import annotations

import math

from langchain_dpicl import parameters

_ROUNDING = 1e-13


def sampled_epsilon(epsilon: float, sampling_rate: float) -> float:
    """Return the pure epsilon of a mechanism run on a Poisson sample, rounded up.

    log(1 + q (e^epsilon - 1)) for add/remove of one unit (Balle, Barthe and Gaboardi
    2018, Theorem 8).

    Args:
        epsilon: Pure epsilon on the sample, greater than 0.
        sampling_rate: Probability q of each unit, in (0, 1].

    Returns:
        The epsilon that is charged.

    Raises:
        ParameterError: If an argument is out of its range.

    Example:
        >>> round(sampled_epsilon(1.0, 0.1), 4), sampled_epsilon(2.0, 1.0)
        (0.1586, 2.0)
        >>> round(sampled_epsilon(2000.0, 0.1), 2)  # No overflow.
        1997.7
    """
    epsilon = parameters.epsilon(epsilon)
    q = parameters.sampling_rate(sampling_rate)
    if q == 1:
        return epsilon
    if epsilon < 1:
        amplified = math.log1p(q * math.expm1(epsilon))
    else:
        amplified = epsilon + math.log(q + (1 - q) * math.exp(-epsilon))
    return amplified * (1 + _ROUNDING)


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
    if charged < 1:
        used = math.log1p(math.expm1(charged) / q)
    else:
        # log(1 + (e^x - 1) / q) = x + log((e^-x (q - 1) + 1) / q), without overflow.
        used = charged + math.log((1 - (1 - q) * math.exp(-charged)) / q)
    return used * (1 - 10 * _ROUNDING)
