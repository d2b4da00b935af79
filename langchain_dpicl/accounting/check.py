"""The second opinion: prv-accountant's interval against our figure.

prv-accountant (Gopi, Lee, Wutschitz 2021) shares no code with dp-accounting: it
discretizes the privacy loss random variable with its mean preserved, composes in
extended precision, and proves an interval around the true epsilon. An error in one of
the two shows as disjoint figures. Only its Gaussian classes are used: it has no bounded
range, and its classes of pure mechanisms are unsound in version 0.2.0 (100 times
epsilon = 3 gives 28 there, not 300).

Its grid step must be eps_error / sqrt(uses / 2 log(12 / delta_error)), so eps_error is
set to what a grid of fixed size can prove, which also bounds its time. Noise far below
the sensitivity, tiny rates and tiny deltas end there in overflows, empty bounds or
violated assertions, and losses above a hundred are beyond its precision (noise 10 at
rate 0.5, 100,000 times: it says 168 at most, the truth is 191). What it cannot compute
it does not judge: our figure is an upper bound without it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from langchain_dpicl.accounting.compose import below, bound, renyi_epsilon, ways
from langchain_dpicl.accounting.events import Event, Gaussian, failure_of, merge
from langchain_dpicl.common import parameters

SECONDS = 1.5
"""Nothing new is begun after so long; the grids keep each try within about that."""

_SMALL_GRID, _LARGE_GRID = 60_000, 200_000
_WANTED_ERROR, _LEAST_ERROR = 0.06, 0.02
_DELTA_SHARE = 1e-3
_LEAST_DELTA = 1e-10
_LEAST_NOISE, _MOST_NOISE = 0.2, 100.0
_LEAST_RATE = 1e-6
_MOST_USES = 10**6
_MOST_EVENTS = 8
_MOST_EPSILON = 100.0
_MARGIN = 0.02


class Check(NamedTuple):
    """Two independent figures for the Gaussian part of a plan."""

    epsilon: float
    """Upper bound that `compose` gives for it."""

    lower: float
    """Proven lower end of prv-accountant's interval; 0 where there is none."""

    upper: float
    """Proven upper end; infinite where there is none."""

    agrees: bool | None
    """Whether the two are compatible; None where the second can't judge."""

    reason: str = ""
    """Why it can't judge, or what disagrees; empty if all is well."""


def check(events: Iterable[Event], delta: float) -> Check:
    """Compare `compose` with prv-accountant on the Gaussian events of a plan.

    Selections are left out on both sides, and failures are taken out of delta on both.
    `agrees` means that our figure is not below the interval (it would be no upper
    bound) and not more than 2 % above it (it would be of something else). Of disjoint
    classes each is compared, as far as the time goes. A plan that is not agreed on must
    not be used; one that can't be judged may be. A plan without sampled Gaussians
    agrees: its figure is a closed form.

    Raises:
        InvalidParameterError: If delta is out of its range, or an event is unknown or
            open. Nothing is raised for what prv-accountant can't compute.

    Example:
        >>> plan = [Gaussian(noise_multiplier=2.0, sampling_rate=0.1, count=10)]
        >>> result = check(plan, 1e-5)
        >>> result.agrees, result.lower < result.epsilon < result.upper
        (True, True)
    """
    end = time.monotonic() + SECONDS
    parameters.delta(delta)
    merged = merge(events)
    classes = ways(merged)
    results: list[Check] = []
    for way in classes or ():
        if time.monotonic() > end:
            break
        results.append(_check(way, delta, end))
        if results[-1].agrees is False:
            return results[-1]
    if classes is None or len(results) < len(classes):
        reason = f"there is no time to compare each of its classes ({len(results)} are)"
        return Check(bound(merged, delta), 0.0, math.inf, agrees=None, reason=reason)
    return max(results, key=lambda result: (result.agrees is None, result.epsilon))


def _check(events: Sequence[Event], delta: float, end: float) -> Check:
    """Compare the two on plain events."""
    gaussians = tuple(e for e in events if isinstance(e, Gaussian))
    rest = below(Fraction(delta) - failure_of(events))
    if rest <= 0:
        reason = "delta is used up by failures"
        return Check(math.inf, 0.0, math.inf, agrees=False, reason=reason)
    figure = bound(gaussians, rest)
    if all(event.sampling_rate == 1 for event in gaussians):
        return Check(figure, figure, figure, agrees=True)
    lower, upper = 0.0, math.inf
    reason = _out_of_range(gaussians, rest, figure)
    if not reason:
        try:
            lower, upper = _interval(_distinct(gaussians), rest, figure, end)
        except Exception as error:  # noqa: BLE001  # it raises almost anything
            reason = f"prv-accountant can't compute it ({type(error).__name__})"
    # A proven lower end contradicts a smaller figure, whatever the upper one is.
    if figure < lower <= upper:
        reason = "our figure is below prv-accountant's interval"
        return Check(figure, lower, upper, agrees=False, reason=reason)
    if not reason and not lower <= upper < math.inf:
        reason = "prv-accountant's interval is empty or has no end"
    if reason:
        return Check(figure, 0.0, math.inf, agrees=None, reason=reason)
    if figure > upper + _MARGIN * max(upper, _LEAST_ERROR):
        reason = "our figure is above prv-accountant's interval"
        return Check(figure, lower, upper, agrees=False, reason=reason)
    return Check(figure, lower, upper, agrees=True)


def _out_of_range(events: Sequence[Gaussian], delta: float, figure: float) -> str:
    """Return why prv-accountant can't judge these events, or nothing."""
    sampled = [event for event in events if event.sampling_rate < 1]
    uses, different = sum(e.count for e in sampled), len(_distinct(events))
    noises = [event.noise_multiplier or 0.0 for event in sampled]
    rates = [event.sampling_rate for event in sampled]
    is_noise_usual = _LEAST_NOISE <= min(noises) <= max(noises) <= _MOST_NOISE
    needs = {
        f"a delta of {_LEAST_DELTA:g} at least": delta >= _LEAST_DELTA,
        f"an epsilon of {_MOST_EPSILON:g} at most": figure <= _MOST_EPSILON,
        f"{_MOST_USES} sampled uses at most": uses <= _MOST_USES,
        f"{_MOST_EVENTS} different events at most": different <= _MOST_EVENTS,
        f"noise multipliers from {_LEAST_NOISE:g} to {_MOST_NOISE:g}": is_noise_usual,
        f"a sampling rate of {_LEAST_RATE:g} at least": min(rates) >= _LEAST_RATE,
    }
    broken = [need for need, holds in needs.items() if not holds]
    return f"prv-accountant needs {broken[0]}" if broken else ""


def _distinct(events: Sequence[Gaussian]) -> list[Gaussian]:
    """Return the sampled events, and all unsampled ones as one use."""
    sampled = [event for event in events if event.sampling_rate < 1]
    squares = [
        event.count / (event.noise_multiplier or 0.0) ** 2
        for event in events
        if event.sampling_rate == 1
    ]
    if not squares:
        return sampled
    return [*sampled, Gaussian(noise_multiplier=math.fsum(squares) ** -0.5)]


def _interval(
    events: Sequence[Gaussian], delta: float, figure: float, end: float
) -> tuple[float, float]:
    """Return prv-accountant's proven interval of epsilon."""
    import prv_accountant as prv

    counts = [event.count for event in events]
    delta_error = delta * _DELTA_SHARE
    wanted = max(_WANTED_ERROR * figure, _LEAST_ERROR)
    eps_error = _error_for(events, delta_error, _SMALL_GRID)
    if eps_error > wanted:
        eps_error = _error_for(events, delta_error, _LARGE_GRID // len(events))
    variables = [
        prv.GaussianMechanism(noise_multiplier=event.noise_multiplier)
        if event.sampling_rate == 1
        else prv.PoissonSubsampledGaussianMechanism(
            sampling_probability=event.sampling_rate,
            noise_multiplier=event.noise_multiplier,
        )
        for event in events
    ]
    while True:
        try:
            with np.errstate(all="ignore"):
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
            if eps_error > wanted or time.monotonic() > end:
                raise
    return max(0.0, float(lower)), max(0.0, float(upper))


def _error_for(events: Sequence[Gaussian], delta_error: float, points: int) -> float:
    """Return the eps_error that prv-accountant can prove with about `points` points.

    Its domain is [-L, L], L = 3 + the larger of two Renyi bounds, and its step is
    eps_error / sqrt(uses / 2 * log(12 / delta_error)).
    """
    uses = sum(event.count for event in events)
    singles = [event.model_copy(update={"count": 1}) for event in events]
    reach = 3.0 + max(
        renyi_epsilon(events, delta_error / 4),
        *(renyi_epsilon([single], delta_error / 8 / uses) for single in singles),
    )
    return 2 * reach / points * math.sqrt(uses / 2 * math.log(12 / delta_error))
