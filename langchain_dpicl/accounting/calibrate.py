"""Calibration: the least noise that keeps a fixed plan within its budget."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from langchain_dpicl.accounting.compose import bound
from langchain_dpicl.accounting.events import (
    Charge,
    Event,
    Failure,
    Gaussian,
    Parallel,
    Pure,
    failure_of,
    is_open,
    merge,
)
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError

FAILURE_SHARE = 0.5
"""Part of delta that a plan sets aside for open failures."""

LEAST_SCALE, LARGEST_SCALE = 1e-6, 1e6
_LEAST_DELTA0 = 1e-290  # Of a release; a share of it is a word's. See `Gate`.
_EXACT, _NEAR, _EVEN = 1e-10, 2e-4, 2e-5  # Tolerances of the logarithm of a scale.


def noise_multiplier(
    epsilon: float,
    delta: float,
    *,
    uses: int,
    sampling_rate: float = 1.0,
    delta0: float = 0.0,
) -> float:
    """Return the least noise multiplier for `uses` equal Gaussian releases.

    The other arguments are those of `epsilon`, which is at most the budget.

    Returns:
        z with `epsilon(z, ...) <= epsilon`, at most 4e-4 above the least one (1e-9
        without sampling), from 1e-6 to 1e6.

    Raises:
        InvalidParameterError: If an argument is out of its range, or no noise
            multiplier up to 1e6 is enough.

    Example:
        >>> round(noise_multiplier(1.0, 1e-6, uses=20), 4)
        18.8933
    """
    gaussian = Gaussian(noise_multiplier=None, sampling_rate=sampling_rate)
    failure = Failure(delta0=delta0, sampling_rate=sampling_rate)
    charge = Charge(name="gaussian", parts=(gaussian, failure))
    event: Any = calibrate(charge, uses, epsilon, delta)[0]
    return float(event.noise_multiplier)


def calibrate(
    charge: Charge, uses: int, epsilon: float, delta: float
) -> tuple[Event, ...]:
    """Return the events of one of `uses` equal releases: the least scale in the budget.

    Args:
        charge: What each release costs, with holes.
        uses: How many releases there are.
        epsilon: Budget; finite and above 0.
        delta: Total failure probability, above 0 and below 1. Open failures get half
            of it together, equal ones each.

    Returns:
        The events, in the order of the charge's parts. The bound at the scale that was
        taken was computed, and is at most epsilon. The scale is at most 4e-4 above the
        least one (1e-9 without sampled Gaussians). Of disjoint classes each gets the
        least scale by itself.

    Raises:
        InvalidParameterError: If an argument is out of its range, or no scale is within
            the budget.

    Example:
        >>> vote = Charge(name="vote", parts=(Gaussian(noise_multiplier=None),))
        >>> round(calibrate(vote, 20, 1.0, 1e-6)[0].noise_multiplier, 4)
        18.8933
    """
    parameters.epsilon(epsilon)
    parameters.delta(delta)
    parameters.count(uses, "uses")
    return by_class(charge, lambda part: _calibrated(part, uses, epsilon, delta))


def _calibrated(
    charge: Charge, uses: int, epsilon: float, delta: float
) -> tuple[Event, ...]:
    """Return `calibrate` of a charge without open classes."""
    delta0 = _open_failure(charge, uses, delta)

    def loss_at(scale: float, *, is_fine: bool = True) -> float:
        return bound(merge(charge.at(scale, delta0), uses), delta, is_fine=is_fine)

    def excess(log_scale: float, *, is_fine: bool) -> float:
        loss = loss_at(math.exp(log_scale), is_fine=is_fine)
        return min(math.log(loss / epsilon), 700.0) if loss > 0 else -700.0

    log_scale = _least_scale(excess, charge)
    if log_scale is None:
        raise InvalidParameterError(
            f"No noise up to {LARGEST_SCALE:g} keeps the plan within epsilon "
            f"{epsilon:g} at delta {delta:g}. Raise epsilon, or lower the uses."
        )
    scale = math.exp(log_scale)
    if all(part == Pure(epsilon=None, count=part.count) for part in charge.parts):
        # Pure losses that add up to epsilon, not to a hair more at this delta.
        whole = sum(part.count for part in charge.parts) * uses / epsilon
        for even in (whole, math.nextafter(whole, math.inf)):
            if even <= scale * (1 + _EVEN) and loss_at(even) <= epsilon:
                return charge.at(even, delta0)
    return charge.at(scale, delta0)


def by_class(
    charge: Charge, fill: Callable[[Charge], tuple[Event, ...]]
) -> tuple[Event, ...]:
    """Return a charge's events, filled; each of its disjoint classes by itself."""
    only = charge.parts[0]
    if not (isinstance(only, Parallel) and is_open(only)):
        return fill(charge)
    filled = {
        branch: fill(Charge(name=charge.name, parts=branch))
        for branch in dict.fromkeys(only.branches)
    }
    branches = tuple(filled[branch] for branch in only.branches)
    return (only.model_copy(update={"branches": branches}),)


def scale_range(charge: Charge) -> tuple[float, float]:
    """Return the logarithms of the scales at which each open part is in its range."""
    shares = charge.shares or (1.0,)
    low, high = math.log(LEAST_SCALE), math.log(LARGEST_SCALE)
    # A little inside of the range: the events' fields are rounded.
    return (
        low + math.log(max(shares)) / 2 + 1e-12,
        high + math.log(min(shares)) / 2 - 1e-12,
    )


def _open_failure(charge: Charge, uses: int, delta: float) -> float:
    """Return the delta0 of each open failure."""
    taken = uses * failure_of(part for part in charge.parts if not is_open(part))
    rest = delta - float(taken)
    if rest <= 0:
        raise InvalidParameterError(
            f"The failure probabilities of the plan add up to {float(taken):g}; delta "
            f"is {delta:g}. Lower delta0 or the number of uses."
        )
    weights = [
        part.sampling_rate * part.count * uses
        for part in charge.parts
        if isinstance(part, Failure) and is_open(part)
    ]
    delta0 = min(0.5, FAILURE_SHARE * rest / sum(weights)) if weights else 0.0
    if weights and delta0 < _LEAST_DELTA0:
        raise InvalidParameterError(
            f"Each release would fail with probability {delta0:g}, which is too small "
            "to draw with. Give a larger delta, or fewer uses."
        )
    return delta0


def _least_scale(excess: Callable[..., float], charge: Charge) -> float | None:
    """Return the logarithm of the least scale within the budget, if there is one.

    A quick bound, without loss distributions, gives the upper end of the search.
    """
    least, largest = scale_range(charge)
    parts = charge.parts
    if not charge.is_open:
        return 0.0 if excess(0.0, is_fine=True) <= 0 else None
    is_sampled = any(isinstance(e, Gaussian) and e.sampling_rate < 1 for e in parts)
    quick = functools.partial(excess, is_fine=False)
    fine = functools.partial(excess, is_fine=True)
    scale = _root(quick, least, largest, _NEAR if is_sampled else _EXACT)
    is_closed = all(isinstance(part, (Gaussian, Failure)) for part in parts)
    if scale == least or (is_closed and not is_sampled):
        return scale
    high = largest if scale is None else scale
    low = max(high - 0.1, least)
    while low > least and fine(low) <= 0:
        low = max(low - 0.2, least)
    result = _root(fine, low, high, _NEAR)
    return result if result is None or scale is None else min(result, scale)


def _root(
    excess: Callable[[float], float], low: float, high: float, tolerance: float
) -> float | None:
    """Return a point within twice the tolerance of the least without excess.

    The excess at the point was computed. None if there is none up to `high`.
    """
    from scipy import optimize

    if excess(high) > 0:
        return None
    if excess(low) <= 0:
        return low
    point = float(optimize.brentq(excess, low, high, xtol=tolerance))
    while excess(point) > 0:
        point += tolerance
    return min(point, high)
