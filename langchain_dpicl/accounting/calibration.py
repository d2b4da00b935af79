"""Calibration: the least noise that keeps a fixed plan within its budget.

The loss of a plan falls as its scale grows. The search keeps a bracket: at its upper
end the bound was computed and is within the budget, at its lower end it was computed
and is not. It starts from a cheap upper bound, which gives the upper end at once,
proposes by the secant on logarithms (where the loss is nearly a straight line), and
ends with the loss at the fine resolution on both sides. What is returned is always
the bracket's upper end, so a jump of the bound by a rounding never matters.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from langchain_dpicl.accounting.composition import (
    CHEAP,
    bound,
    gaussian_bundle,
    own_events,
)
from langchain_dpicl.accounting.discretization import COARSE, FINE
from langchain_dpicl.accounting.events import (
    Event,
    Failure,
    Gaussian,
    repeat,
    total_delta0,
)
from langchain_dpicl.common import parameters
from langchain_dpicl.common.parameters import MAX_NOISE_MULTIPLIER, MIN_NOISE_MULTIPLIER
from langchain_dpicl.errors import InvalidParameterError

# Relative slack of a calibrated scale where a numerical bound is involved.
TOLERANCE = 1e-3
EXACT_TOLERANCE = 1e-9  # The same where the closed form is.
_LOWEST, _HIGHEST = math.log(MIN_NOISE_MULTIPLIER), math.log(MAX_NOISE_MULTIPLIER)


def noise_multiplier(
    epsilon: float,
    delta: float,
    *,
    uses: int,
    sampling_rate: float = 1.0,
    delta0: float = 0.0,
) -> float:
    """Return the smallest noise multiplier for `uses` equal Gaussian releases.

    The other arguments are those of `epsilon`, which is at most the budget.

    Returns:
        z with `epsilon(z, ...) <= epsilon`, at most a thousandth above the smallest
        one (a billionth without sampling), from 1e-6 to 1e6.

    Raises:
        InvalidParameterError: If an argument is out of its range, or no noise
            multiplier up to 1e6 is enough.

    Example:
        >>> z = noise_multiplier(1.0, 1e-6, uses=20)
        >>> round(z, 4)
        18.8933
    """
    uses = parameters.count(uses, "uses")

    def events_at(scale: float) -> tuple[Event, ...]:
        return gaussian_bundle(scale, sampling_rate, delta0)

    return calibrate(events_at, epsilon, delta, uses=uses)


def calibrate(
    events_at: Callable[[float], Sequence[Event]],
    epsilon: float,
    delta: float,
    *,
    uses: int,
) -> float:
    """Return the smallest scale at which `uses` releases stay within the budget.

    Args:
        events_at: The events that one release costs at a scale t, from 1e-6 to 1e6.
            Their loss must fall as t grows: noise multipliers in proportion to t,
            epsilons to 1 / t. For example `lambda t: (Gaussian(t),
            Exponential(0.5 / t), Failure(1e-9))`.
        epsilon: Budget; finite and above 0.
        delta: Total failure probability, strictly between 0 and 1.
        uses: Number of releases.

    Returns:
        t with `spent(events_at(t), uses, delta) <= epsilon`, at most a thousandth above
        the smallest such scale (a billionth if all events are Gaussians without
        sampling); 1e-6 if every scale will do.

    Raises:
        InvalidParameterError: If an argument is out of its range, or no scale up to 1e6
            is enough.

    Example:
        >>> t = calibrate(lambda t: [Gaussian(t)], 1.0, 1e-6, uses=20)
        >>> round(t, 4)
        18.8933
    """
    target = parameters.epsilon(epsilon)
    delta = parameters.delta(delta)
    uses = parameters.count(uses, "uses")
    last = repeat(own_events(events_at(MAX_NOISE_MULTIPLIER)), uses)
    failure = total_delta0(last)
    if failure >= delta:
        raise InvalidParameterError(
            f"The failure probabilities of {uses} uses add up to {failure:g}; delta is "
            f"{delta:g}. Lower delta0 or the number of uses."
        )

    def excess(log_scale: float, resolution: float) -> float:
        events = repeat(own_events(events_at(_scale(log_scale))), uses)
        loss = bound(events, delta, resolution)
        return math.log(loss / target) if loss > 0 else -math.inf

    if all(_closed_form(event) for event in last):
        # Resolutions are those of loss distributions, and none is computed.
        stages = [(FINE, EXACT_TOLERANCE)]
    else:
        stages = [(CHEAP, 0.05), (COARSE, 4 * TOLERANCE), (FINE, TOLERANCE)]
    log_scale = 0.0
    for resolution, tolerance in stages:
        log_scale = _root(
            functools.partial(excess, resolution=resolution), log_scale, tolerance
        )
        if math.isinf(log_scale) and resolution == FINE:
            raise InvalidParameterError(
                f"No noise up to {MAX_NOISE_MULTIPLIER:g} keeps {uses} uses within "
                f"epsilon {target:g} at delta {delta:g}. Raise epsilon, or lower the "
                "number of uses."
            )
        log_scale = min(log_scale, _HIGHEST)
    return _scale(log_scale)


def _scale(log_scale: float) -> float:
    """Return exp, with the ends of the range met exactly."""
    if log_scale >= _HIGHEST:
        return MAX_NOISE_MULTIPLIER
    if log_scale <= _LOWEST:
        return MIN_NOISE_MULTIPLIER
    return math.exp(log_scale)


def _closed_form(event: Event) -> bool:
    if isinstance(event, Gaussian):
        return event.sampling_rate == 1
    return isinstance(event, Failure)


def _root(excess: Callable[[float], float], start: float, tolerance: float) -> float:
    """Return an x with excess(x) <= 0, and > 0 somewhere in (x - tolerance, x).

    The excess falls with x. `_LOWEST` is returned if it is 0 or below there, infinity
    if it is above 0 at `_HIGHEST`.
    """
    values = {start: excess(start)}
    low = high = start
    sign = 1 if values[start] > 0 else -1
    # A scale of noise changes the loss by a power between 1 and 2: a step of a bit
    # more than the excess crosses the root most of the time.
    stride = max(1.3 * abs(values[start]), tolerance / 2)
    stride = stride if math.isfinite(stride) else 2.0
    while True:
        x = min(max(start + sign * stride, _LOWEST), _HIGHEST)
        values[x] = excess(x)
        low, high = (high, x) if sign > 0 else (x, low)
        if (values[x] > 0) != (sign > 0):
            break
        if sign < 0 and x == _LOWEST:
            return _LOWEST
        if sign > 0 and x == _HIGHEST:
            return math.inf
        stride *= 2
    step = 0
    while high - low > tolerance:
        middle = (low + high) / 2
        x, rise = middle, values[low] - values[high]
        if step % 3 < 2 and math.isfinite(rise):  # noqa: PLR2004 - every third halves
            x = low + (high - low) * values[low] / rise
            # Aim beside the root, so that it ends up between two close points.
            x += tolerance / 3 if x + tolerance / 3 < high else -tolerance / 3
            x = x if low < x < high else middle
        values[x] = excess(x)
        low, high = (x, high) if values[x] > 0 else (low, x)
        step += 1
    return high
