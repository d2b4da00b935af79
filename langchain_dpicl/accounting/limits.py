"""What privacy filters add up, and what sum stays within (epsilon, delta).

Losses are fractions: exact, or rounded up. Every limit is rounded down, never above
the true one. Renyi: at order a the sum may be (Canonne, Kamath, Steinke 2020,
Proposition 12)

    epsilon - log(1 - 1/a) + (log delta + log a) / (a - 1).

zCDP: the largest of these over all a, divided by a. GDP: the largest mu whose exact
curve (Balle, Wang 2018, Theorem 8) passes (epsilon, delta) or is below it. Pure: see
`pure_budget`.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import numpy as np

from langchain_dpicl.accounting.events import (
    Event,
    Exponential,
    Gaussian,
    Pure,
    ZCDPEvent,
)
from langchain_dpicl.accounting.gaussian import gaussian_epsilon
from langchain_dpicl.accounting.renyi import divergence
from langchain_dpicl.errors import InvalidParameterError

# Covers the rounding of a sum of logarithms, in proportion to its terms: each has at
# most four roundings of 2^-53, and a library's logarithm errs by less than 2^-52.
SLACK = 4e-15
LEAST_ORDER = math.nextafter(1.0, 2.0)  # Smallest order above 1.
LEAST_BUDGET = 1e-290  # Below it a double has lost its precision, and no limit is given
_BISECTIONS = 64
# Covers the rounding of `divergence`: sums of 2048 logarithms below 2e4.
_ROUND_UP = Fraction(1_000_000_001, 1_000_000_000)
_LARGEST_LOG = 700.0


def exact_rho(event: Event) -> Fraction:
    """Return the zCDP loss of one use, exactly; sources as in `accounting.rho`."""
    if isinstance(event, Gaussian):
        return 1 / (2 * Fraction(event.noise_multiplier) ** 2)
    if isinstance(event, Exponential):
        return Fraction(event.epsilon) ** 2 / 8
    if isinstance(event, Pure):
        return Fraction(event.epsilon) ** 2 / 2
    if isinstance(event, ZCDPEvent):
        return Fraction(event.rho)
    raise InvalidParameterError(
        f"A {type(event).__name__} has no loss that can be added up."
    )


def renyi_loss(event: Event, order: float) -> Fraction:
    """Return the Renyi divergence of one use, rounded up.

    It is never above order * rho, which is exact; what sampling, or a bound on the
    loss, saves is a float.
    """
    line = Fraction(order) * exact_rho(event)
    if isinstance(event, ZCDPEvent):
        return line
    if isinstance(event, Gaussian) and event.sampling_rate == 1:
        return line
    with np.errstate(all="ignore"):
        value = float(divergence(event, np.array([order - 1]))[0])
    # Near the ends of the doubles the float has lost its precision.
    if not LEAST_BUDGET < value < math.inf:
        return line
    return min(line, Fraction(value) * _ROUND_UP)


@functools.lru_cache(maxsize=1024)
def zcdp_budget(epsilon: float, delta: float) -> float:
    """Return the largest rho whose conversion at `delta` is within `epsilon`.

    Example:
        >>> round(zcdp_budget(8.0784, 1e-5), 4)
        1.25
    """
    # A run of rho has R(a) <= a rho at the order chosen here, whatever its events.
    x = _best_excess(epsilon, delta)
    return _budget_at(x, epsilon, delta) / (1 + x) * (1 - SLACK)


def renyi_budget(order: float, epsilon: float, delta: float) -> float:
    """Return the largest divergence of an order within (epsilon, delta).

    It is 0 or below where the conversion alone costs epsilon or more.

    Example:
        >>> round(renyi_budget(10.0, 1.0, 1e-5), 4)
        0.082
    """
    return _budget_at(order - 1, epsilon, delta)


def renyi_epsilon_at(order: float, total: float, delta: float) -> float:
    """Return the epsilon of a divergence `total` at one order, rounded up.

    Example:
        >>> round(renyi_epsilon_at(10.0, renyi_budget(10.0, 1.0, 1e-5), 1e-5), 9)
        1.0
    """
    return max(0.0, total * (1 + SLACK) - _headroom(order - 1, math.log(delta)))


def default_order(epsilon: float, delta: float) -> float:
    """Return the best order for a run of many small Gaussian releases.

    Example:
        >>> round(default_order(1.0, 1e-5), 2)
        17.81
    """
    return max(LEAST_ORDER, 1 + _best_excess(epsilon, delta))


@functools.lru_cache(maxsize=1024)
def gdp_budget(epsilon: float, delta: float) -> float:
    """Return the largest mu with gaussian_epsilon(mu, delta) <= epsilon.

    Example:
        >>> round(gdp_budget(4.37718, 1e-5), 5)
        1.0
    """
    # At epsilon = 0 delta is erf(mu / sqrt 8), less than 0.3990 mu; and for every
    # delta epsilon is above mu^2 / 2 - 8.3 mu.
    found = 2.5 * delta
    low, high = math.log(found), math.log(20 + 3 * math.sqrt(epsilon))
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        mu = math.exp(middle)
        if gaussian_epsilon(mu, delta) <= epsilon:
            low, found = middle, mu
        else:
            high = middle
    return found


def pure_budget(epsilon: float, delta: float) -> float:
    """Return the largest pure loss that is (epsilon, delta)-private, rounded down.

    A pure loss t above epsilon fails it with probability (e^t - e^epsilon) / (1 + e^t)
    at most: randomized response on one bit is the worst case (Kairouz, Oh, Viswanath
    2015, Theorem 3.3). So t may be epsilon + log(1 + delta e^-epsilon) - log(1 -
    delta): a hair above epsilon, enough for parts that add up to it to be paid for
    although each is rounded up.

    Example:
        >>> 0 < pure_budget(3.0, 1e-6) - 3.0 < 1.1e-6
        True
    """
    gain = math.log1p(delta * math.exp(-epsilon)) - math.log1p(-delta)
    # Below epsilon only by rounding: that much is private without any delta.
    return max(epsilon, math.nextafter(epsilon + gain * (1 - 1e-9), 0.0))


@functools.lru_cache(maxsize=1024)
def _best_excess(epsilon: float, delta: float) -> float:
    """Return x = a - 1 of the order that is best for a line R(a) = a rho.

    The best order of the conversion solves rho x^2 + log(1 + x) = -log delta. With
    epsilon = rho (1 + 2 x) - log(1 + 1/x), which the conversion is there, rho drops
    out, and an increasing function of x is left. Any x gives a valid budget, so an
    inexact root costs tightness only.
    """
    target = -math.log(delta)
    low, high = math.log(1e-165), min(target, _LARGEST_LOG)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        x = math.exp(middle)
        slope = x * (epsilon + math.log1p(1 / x))
        if x / (1 + 2 * x) * slope + math.log1p(x) < target:
            low = middle
        else:
            high = middle
    return math.exp(low)


def _budget_at(x: float, epsilon: float, delta: float) -> float:
    return epsilon * (1 - SLACK) + _headroom(x, math.log(delta))


def _headroom(x: float, log_delta: float) -> float:
    """Return by how much a limit on R(1 + x) is above epsilon, rounded down."""
    gain = math.log1p(1 / x)
    price = -(log_delta + math.log1p(x)) / x
    return gain - price - SLACK * (gain + (math.log1p(x) - log_delta) / x)
