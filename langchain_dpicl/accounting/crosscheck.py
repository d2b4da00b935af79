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

A list with a `RenyiEvent` is composed at Renyi orders alone, of which prv-accountant
knows nothing. The second opinion is then dp-accounting's conversion, of divergences
that are integrated numerically, also at orders that are no integers.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from langchain_dpicl.accounting.composition import AnyEvent, compose, own_events
from langchain_dpicl.accounting.events import (
    Event,
    FixedSampleGaussianEvent,
    Gaussian,
    Parallel,
    RenyiEvent,
    total_delta0,
)
from langchain_dpicl.accounting.gaussian import inverse_square
from langchain_dpicl.accounting.loss import MAX_USES
from langchain_dpicl.accounting.parallel import one_by_one, ways
from langchain_dpicl.accounting.renyi import Floats, renyi_epsilon
from langchain_dpicl.common import parameters

_SMALL_GRID, _LARGE_GRID = 60_000, 300_000
_WANTED_ERROR, _LEAST_ERROR = 0.06, 0.02
_DELTA_SHARE = 1e-3
_MIN_DELTA = 1e-10
_NOISE_RANGE = (0.2, 300.0)
_MIN_RATE = 1e-6
_MAX_EVENTS = 64
_MAX_WAYS = 100
_MARGIN = 0.02
_FIXED_MARGIN = 0.5
# Of lists with Renyi events: dp-accounting converts at orders above 1.01 alone.
_LEAST_EXCESS, _ORDERS, _MAX_WHOLE = 0.011, 200, 128
_BETWEEN, _MAX_ORDER = 1e-3, 5_000.0


@dataclass(frozen=True)
class CrossCheck:
    """Two independent figures for the Gaussian part of a plan, and Renyi events.

    A plan is to be refused where `agrees` is False.

    Example:
        >>> result = cross_check([Gaussian(2.0, 0.1, 10)], 1e-5)
        >>> result.agrees, result.lower < result.pld < result.upper
        (True, True)
    """

    pld: float
    """Upper bound of epsilon that `compose` gives for these events."""

    lower: float
    """Proven lower end of prv-accountant's interval; with Renyi events what
    dp-accounting finds; 0 where there is none."""

    upper: float
    """Proven upper end; with Renyi events what dp-accounting finds where a sampled
    Gaussian is known at whole orders only; infinite where there is none."""

    agrees: bool | None
    """Whether the two are compatible; None where the second can't judge."""

    reason: str = ""
    """Why it can't judge, or what disagrees; empty if all is well."""


def cross_check(events: Iterable[AnyEvent], delta: float) -> CrossCheck:
    """Compare `compose` with prv-accountant on the Gaussian events of a list.

    A list with Renyi events is compared with dp-accounting on both kinds. Exponential,
    pure and zCDP events are left out on both sides, because prv-accountant has no sound
    class for them; the failure probabilities of `Failure`s are subtracted from
    `delta` on both sides. Samples of fixed size, for which it has none either, are held
    against Poisson samples, which they contain: that finds a figure that is far too
    small, and not a Poisson figure in its place. `agrees` means that the figure is not
    below the interval (it would not be an upper bound) and not more than 2 % above it
    (it would be of something else; of fixed size 50 %). With `Parallel`s each
    branch (each way to take one of each) is compared by itself; the result is the first
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
    kinds = Gaussian | FixedSampleGaussianEvent
    releases = [event for event in own if isinstance(event, kinds)]
    # prv-accountant has no class for samples of fixed size. A Poisson sample is a
    # special case of one that costs nearly as much: the figure may be a little above.
    gaussians = [
        Gaussian(e.noise_multiplier, e.sampling_rate, e.count) for e in releases
    ]
    margin = _MARGIN if releases == gaussians else _FIXED_MARGIN
    curves = [event for event in own if isinstance(event, RenyiEvent)]
    if rest <= 0:
        return CrossCheck(
            math.inf, 0.0, math.inf, agrees=False, reason="delta is used up by delta0"
        )
    if not (releases or curves):
        return CrossCheck(0.0, 0.0, 0.0, agrees=True)
    pld = compose([*releases, *curves], rest)
    if not math.isfinite(pld):
        reason = "there is no finite figure to compare"
        return CrossCheck(pld, 0.0, math.inf, agrees=False, reason=reason)
    who = "dp-accounting" if curves else "prv-accountant"
    reason = (
        _out_of_reach(gaussians, curves) if curves else _out_of_range(gaussians, rest)
    )
    lower, upper = 0.0, math.inf
    if not reason:
        try:
            lower, upper = (
                _renyi_interval(gaussians, curves, rest)
                if curves
                else _prv_interval(gaussians, rest, pld)
            )
        except Exception as error:  # noqa: BLE001 - it raises almost anything
            reason = f"{who} can't compute this plan: {type(error).__name__}"
        else:
            # A proven lower end contradicts a smaller figure, whatever the upper one.
            if not lower <= upper or (upper == math.inf and pld >= lower):
                reason = f"{who}'s interval is empty or has no end"
    if reason:
        return CrossCheck(pld, lower, upper, agrees=None, reason=reason)
    reason = _disagreement(pld, lower, upper, margin, who)
    return CrossCheck(pld, lower, upper, agrees=not reason, reason=reason)


def _disagreement(
    pld: float, lower: float, upper: float, margin: float, who: str
) -> str:
    """Return what is wrong with a figure beside a proven interval, or nothing."""
    if pld < lower:
        return f"the figure is below {who}'s interval"
    if pld > upper + margin * max(upper, _LEAST_ERROR):
        return f"the figure is above {who}'s interval"
    return ""


def _renyi_interval(
    gaussians: list[Gaussian], curves: list[RenyiEvent], delta: float
) -> tuple[float, float]:
    """Return epsilon by other means, at orders up to the least of the curves'.

    The lower end has the divergences of sampled Gaussians at every order, the upper
    end straight lines between those at whole orders, as `renyi` has.
    """
    from dp_accounting.rdp import compute_epsilon

    last = min(event.order for event in curves)
    whole = np.arange(1.0, min(math.ceil(last), _MAX_WHOLE) + 1)
    finer = 1 + np.geomspace(_LEAST_EXCESS, last - 1, _ORDERS)
    orders = np.array(sorted({*whole[1:-1], *finer}))
    known = np.full(len(orders), sum(e.count * e.divergence for e in curves))
    bent = np.zeros(len(orders))
    for event in gaussians:
        z, q, uses = event.noise_multiplier, event.sampling_rate, event.count
        plain = orders / (2 * z * z)
        if q < 1:
            line = np.interp(orders, whole, _log_moments(z, q, whole)) / (orders - 1)
            bent += uses * np.where(orders > whole[-1], plain, line)
            known += uses * _log_moments(z, q, orders) / (orders - 1)
        else:
            bent += uses * plain
            known += uses * plain
    bent += sum(e.count * e.divergence for e in curves)
    lower, _ = compute_epsilon(orders, known, delta)
    upper, _ = compute_epsilon(orders, bent, delta)
    # The orders that are looked at are not ours.
    return max(0.0, float(lower)) * (1 - _BETWEEN), float(upper)


def _log_moments(z: float, q: float, orders: Floats) -> Floats:
    """Return (a - 1) R(a) of one sampled Gaussian, by numerical integration.

    The integral over x of N(x; 0, z^2) (1 - q + q exp((2 x - 1) / 2 z^2))^a: the
    trapezoid rule is nearly exact for it, as it is smooth and falls off as a Gaussian.
    """
    step = z / 8
    x = np.arange(-15 * z, orders[-1] + 15 * z, step)
    ratio = np.logaddexp(math.log1p(-q), math.log(q) + (2 * x - 1) / (2 * z * z))
    density = -0.5 * (x / z) ** 2 - 0.5 * math.log(2 * math.pi) - math.log(8)
    return np.array([np.logaddexp.reduce(density + a * ratio) for a in orders])


def _out_of_reach(gaussians: list[Gaussian], curves: list[RenyiEvent]) -> str:
    """Return why a list with Renyi events can't be computed twice, or nothing."""
    last = min(event.order for event in curves)
    if last < 1 + 2 * _LEAST_EXCESS:
        return f"dp-accounting needs an order above {1 + 2 * _LEAST_EXCESS:g}"
    for event in gaussians:
        if event.sampling_rate == 1:
            continue
        z = event.noise_multiplier
        if not _NOISE_RANGE[0] <= z <= _NOISE_RANGE[1] or last > _MAX_ORDER:
            return (
                f"orders up to {_MAX_ORDER:g} and a noise multiplier from "
                f"{_NOISE_RANGE[0]:g} to {_NOISE_RANGE[1]:g} are integrated for "
                "sampled releases"
            )
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
