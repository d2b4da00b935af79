"""The second opinion: prv-accountant's interval against our figure.

prv-accountant (Gopi, Lee, Wutschitz 2021) shares no code with dp-accounting: it
discretizes the privacy loss random variable with its mean preserved, composes in
extended precision, and proves an interval around the true epsilon. An accounting error
in one of the two shows as disjoint figures. Only its Gaussian classes are used:
`PureDPMechanism` and `ApproximateDPMechanism` of version 0.2.0 are unsound (100 times
epsilon = 3 gives 28 there, not 300).

Its numerics, and what is done about them: the grid step must be eps_error divided by
sqrt(n / 2 * log(12 / delta_error)), so eps_error is set to what a grid of fixed
size can prove. Noise far below the sensitivity, tiny rates and tiny deltas end in
overflows, empty Renyi bounds, violated assertions or loops that take seconds; the range
where it works is checked first. Outside of it, and where it raises or gives no
interval, it judges nothing: the figure is an upper bound without it. Losses above a
hundred are beyond its precision (noise 10 at rate 0.5, 100,000 times: it says 168 at
most, the truth is 191); such a plan is refused although our figure is right.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from langchain_dpicl.accounting.composition import compose, own_events
from langchain_dpicl.accounting.events import (
    Event,
    Gaussian,
    Parallel,
    total_delta0,
)
from langchain_dpicl.accounting.gaussian import inverse_square
from langchain_dpicl.accounting.loss import MAX_USES
from langchain_dpicl.accounting.parallel import one_by_one, ways
from langchain_dpicl.accounting.renyi import renyi_epsilon
from langchain_dpicl.common import parameters

_SMALL_GRID, _LARGE_GRID = 60_000, 300_000
_WANTED_ERROR, _LEAST_ERROR = 0.06, 0.02
_DELTA_SHARE = 1e-3
_MIN_DELTA = 1e-10
_NOISE_RANGE = (0.2, 300.0)
_MIN_RATE = 1e-6
_MAX_EVENTS = 64
_WHO = "prv-accountant"
_MAX_WAYS = 100
_MARGIN = 0.02


@dataclass(frozen=True)
class CrossCheck:
    """Two independent figures for the Gaussian part of a plan.

    A plan is to be refused where `agrees` is False.

    Example:
        >>> result = cross_check([Gaussian(2.0, 0.1, 10)], 1e-5)
        >>> result.agrees, result.lower < result.pld < result.upper
        (True, True)
    """

    pld: float
    """Upper bound of epsilon that `compose` gives for these events."""

    lower: float
    """Proven lower end of prv-accountant's interval; 0 where there is none."""

    upper: float
    """Proven upper end; infinite where there is none."""

    agrees: bool | None
    """Whether the two are compatible; None where the second can't judge."""

    reason: str = ""
    """Why it can't judge, or what disagrees; empty if all is well."""


def cross_check(events: Iterable[Event], delta: float) -> CrossCheck:
    """Compare `compose` with prv-accountant on the Gaussian events of a list.

    Exponential, pure and zCDP events are left out on both sides, because prv-accountant
    has no sound class for them; the failure probabilities of `Failure`s are subtracted
    from `delta` on both sides. `agrees` means that the figure is
    not below the interval (it would not be an upper bound) and not more than 2 % above
    it (it would be of something else). With `Parallel`s each branch
    (each way to take one of each) is compared by itself; the result is the first
    that does not agree, else one that was not judged, else that of the largest figure.

    Nothing is raised for what prv-accountant can't compute: `agrees` is None, and the
    result says why. A list without Gaussians agrees: there is nothing to compare.

    Raises:
        InvalidParameterError: If `delta` is out of its range, or an event is unknown.

    Example:
        >>> cross_check([Gaussian(0.01, 0.1)], 1e-5).agrees is None
        True
    """
    delta = parameters.delta(delta)
    own = own_events(events)
    if not any(isinstance(event, Parallel) for event in own):
        return _cross_check(own, delta)
    if ways(own) > _MAX_WAYS:
        reason = f"more than {_MAX_WAYS} different branches to compare"
        figure = compose(own, delta)
        return CrossCheck(figure, 0.0, math.inf, agrees=None, reason=reason)
    found: list[CrossCheck] = []
    for plain in one_by_one(own):
        found.append(_cross_check(plain, delta))
        if found[-1].agrees is False:
            return found[-1]
    return max(found, key=lambda check: (check.agrees is None, check.pld))


def _cross_check(own: Sequence[Event], delta: float) -> CrossCheck:
    """Compare the two on plain events."""
    rest = delta - total_delta0(own)
    gaussians = [event for event in own if isinstance(event, Gaussian)]
    if rest <= 0:
        return CrossCheck(
            math.inf, 0.0, math.inf, agrees=False, reason="delta is used up by delta0"
        )
    if not gaussians:
        return CrossCheck(0.0, 0.0, 0.0, agrees=True)
    pld = compose(gaussians, rest)
    if not math.isfinite(pld):
        reason = "there is no finite figure to compare"
        return CrossCheck(pld, 0.0, math.inf, agrees=False, reason=reason)
    reason = _out_of_range(gaussians, rest)
    lower, upper = 0.0, math.inf
    if not reason:
        try:
            lower, upper = _prv_interval(gaussians, rest, pld)
        except Exception as error:  # noqa: BLE001 - it raises almost anything
            reason = f"{_WHO} can't compute this plan: {type(error).__name__}"
        else:
            # A proven lower end contradicts a smaller figure, whatever the upper one.
            if not lower <= upper or (upper == math.inf and pld >= lower):
                reason = f"{_WHO}'s interval is empty or has no end"
    if reason:
        return CrossCheck(pld, lower, upper, agrees=None, reason=reason)
    reason = _disagreement(pld, lower, upper)
    return CrossCheck(pld, lower, upper, agrees=not reason, reason=reason)


def _disagreement(pld: float, lower: float, upper: float) -> str:
    """Return what is wrong with a figure beside a proven interval, or nothing."""
    if pld < lower:
        return f"the figure is below {_WHO}'s interval"
    if pld > upper + _MARGIN * max(upper, _LEAST_ERROR):
        return f"the figure is above {_WHO}'s interval"
    return ""


def _out_of_range(events: list[Gaussian], delta: float) -> str:
    """Return why prv-accountant can't judge these events, or nothing."""
    if delta < _MIN_DELTA:
        return f"prv-accountant needs a delta of {_MIN_DELTA:g} at least"
    if sum(event.count for event in events if event.sampling_rate < 1) > MAX_USES:
        return f"prv-accountant is asked about {MAX_USES} sampled uses at most"
    if len(_distinct(events)) > _MAX_EVENTS:
        return f"prv-accountant is asked about {_MAX_EVENTS} different events at most"
    for z, q, _ in _distinct(events):
        if q < 1 and not _NOISE_RANGE[0] <= z <= _NOISE_RANGE[1]:
            return (
                f"prv-accountant needs a noise multiplier from {_NOISE_RANGE[0]:g} to "
                f"{_NOISE_RANGE[1]:g} for sampled releases"
            )
        if q < _MIN_RATE:
            return f"prv-accountant needs a sampling rate of {_MIN_RATE:g} at least"
    return ""


def _distinct(events: list[Gaussian]) -> list[tuple[float, float, int]]:
    """Return (noise multiplier, rate, count), all unsampled events as one."""
    sampled = [
        (e.noise_multiplier, e.sampling_rate, e.count)
        for e in events
        if e.sampling_rate < 1
    ]
    square = sum(
        e.count * inverse_square(e.noise_multiplier)
        for e in events
        if e.sampling_rate == 1
    )
    return [*sampled, (1 / math.sqrt(square), 1.0, 1)] if square > 0 else sampled


def _prv_interval(
    events: list[Gaussian], delta: float, pld: float
) -> tuple[float, float]:
    """Return prv-accountant's proven interval of epsilon."""
    import prv_accountant as prv

    distinct = _distinct(events)
    counts = [count for _, _, count in distinct]
    delta_error = delta * _DELTA_SHARE
    eps_error = _error_for(distinct, delta_error, _SMALL_GRID)
    if eps_error > max(_WANTED_ERROR * pld, _LEAST_ERROR):
        eps_error = _error_for(distinct, delta_error, _LARGE_GRID)
    variables = [
        prv.GaussianMechanism(noise_multiplier=z)
        if q == 1
        else prv.PoissonSubsampledGaussianMechanism(
            sampling_probability=q, noise_multiplier=z
        )
        for z, q, _ in distinct
    ]
    while True:
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                accountant = prv.PRVAccountant(
                    variables,
                    eps_error=eps_error,
                    delta_error=delta_error,
                    max_self_compositions=counts,
                )
                lower, _, upper = accountant.compute_epsilon(delta, counts)
            break
        except RuntimeError:
            # It integrates the mean loss numerically and refuses a grid finer than
            # that; a wider grid has a wider interval, which is proven all the same.
            eps_error *= 2
            if eps_error > max(_WANTED_ERROR * pld, _LEAST_ERROR):
                raise
    if not (math.isfinite(lower) and math.isfinite(upper)):
        raise ArithmeticError
    return max(0.0, lower), max(0.0, upper)


def _error_for(
    distinct: list[tuple[float, float, int]], delta_error: float, points: int
) -> float:
    """Return the eps_error that prv-accountant can prove with about `points` points.

    Its domain is [-L, L], L = 3 + the larger of two Renyi bounds, and its step is
    eps_error / sqrt(uses / 2 * log(12 / delta_error)).
    """
    uses = sum(count for _, _, count in distinct)
    reach = 3.0 + max(
        renyi_epsilon([Gaussian(z, q, n) for z, q, n in distinct], delta_error / 4),
        *(
            renyi_epsilon([Gaussian(z, q)], delta_error / 8 / uses)
            for z, q, _ in distinct
        ),
    )
    return 2 * reach / points * math.sqrt(uses / 2 * math.log(12 / delta_error))
