"""Composition: the privacy loss of a list of events that was fixed in advance.

Every way to compute it below gives an upper bound for every list of events it takes,
so the smallest one is an upper bound. Which of them are tried depends on the kinds
of events alone:

    what was released                   bounds
    Gaussians, no sampling              closed form (exact)
    Gaussians, some sampled             loss distribution, Renyi, closed form as if
                                        nothing were sampled
    ... and exponential, pure events    loss distribution, Renyi, sum of the epsilons
                                        added to the Gaussians' bound
    ... and zCDP events                 Renyi
    ... and parallel events             the largest over their branches (`parallel`)

The failure probabilities of `Failure`s are subtracted from delta first.

Privacy: the figure holds for one unit added or removed, for mechanisms that may depend
on earlier answers in every way except through their events' parameters and number
(a *plan*). Stopping early is covered: the events that did not happen only make the
figure larger than needed. It is not a filter: lists that are chosen as answers come in
need `rho` with `zcdp_epsilon`, or `gdp_mu` with `gaussian_epsilon`, whose budgets are
one fixed sum.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from langchain_dpicl.accounting.discretization import FINE
from langchain_dpicl.accounting.events import (
    EVENT_TYPES,
    Event,
    Exponential,
    Failure,
    Gaussian,
    Parallel,
    Pure,
    ZCDPEvent,
    merge,
    repeat,
    total_delta0,
)
from langchain_dpicl.accounting.gaussian import gaussian_epsilon, inverse_square
from langchain_dpicl.accounting.loss import loss_epsilon
from langchain_dpicl.accounting.parallel import MAX_COMBINATIONS, one_by_one, ways
from langchain_dpicl.accounting.renyi import renyi_epsilon
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError

CHEAP = math.inf
"""Resolution that leaves the loss distribution out: a quick, looser upper bound."""


def compose(events: Iterable[Event], delta: float) -> float:
    """Return an upper bound of epsilon for all events together, at total `delta`.

    Args:
        events: The list must have been fixed before the first release.
        delta: Total failure probability, the `Failure`s' included; strictly
            between 0 and 1.

    Returns:
        epsilon, 0 or more; 0 for no private event; infinite if the `Failure`s alone
        reach `delta`, or if no finite bound is representable.

    Raises:
        InvalidParameterError: If `delta` is out of its range, or an event is unknown.

    Example:
        >>> round(compose([Gaussian(4.0, count=16)], delta=1e-5), 5)
        4.37718
        >>> round(compose([Exponential(0.1, count=1000)], delta=1e-5), 1)
        8.1
    """
    return bound(own_events(events), parameters.delta(delta), FINE)


def spent(events: Iterable[Event], uses: int, delta: float) -> float:
    """Return `compose` for `uses` releases that each cost `events`.

    A first call for new events takes up to a second when they are sampled; another
    number of uses some milliseconds, the same number nothing. An argument that is out
    of its range is a `InvalidParameterError`.

    Example:
        >>> spent([Gaussian(4.0)], uses=0, delta=1e-5)
        0.0
        >>> round(spent([Gaussian(4.0)], uses=16, delta=1e-5), 5)
        4.37718
    """
    uses = parameters.count(uses, "uses", minimum=0)
    delta = parameters.delta(delta)
    bundle = own_events(events)
    return bound(repeat(bundle, uses), delta, FINE) if uses else 0.0


def epsilon(
    noise_multiplier: float,
    delta: float,
    *,
    uses: int,
    sampling_rate: float = 1.0,
    delta0: float = 0.0,
) -> float:
    """Return an upper bound of epsilon for `uses` equal Gaussian releases.

    Args:
        noise_multiplier: Standard deviation of the noise over the sensitivity.
        delta: Total failure probability, strictly between 0 and 1.
        uses: Number of releases.
        sampling_rate: Rate of the Poisson sample of units that each release sees; 1
            for no sampling.
        delta0: Failure probability of one release whose unit is in the sample; each
            use adds `sampling_rate * delta0`.

    Returns:
        epsilon, 0 or more.

    Raises:
        InvalidParameterError: If an argument is out of its range.

    Example:
        >>> round(epsilon(4.0, 1e-5, uses=16), 5)
        4.37718
    """
    bundle = gaussian_bundle(noise_multiplier, sampling_rate, delta0)
    return spent(bundle, parameters.count(uses, "uses"), delta)


def gaussian_bundle(
    noise_multiplier: float, sampling_rate: float, delta0: float
) -> tuple[Event, ...]:
    """Return the events of one Gaussian release with a failure probability."""
    event = Gaussian(noise_multiplier, sampling_rate)
    failure = Failure(parameters.finite("delta0", delta0) * event.sampling_rate)
    return (event, failure)


def own_events(events: Iterable[Any]) -> tuple[Event, ...]:
    """Return a list of events, merged; refuse what is none."""
    if isinstance(events, (str, bytes)) or not isinstance(events, Iterable):
        raise InvalidParameterError(
            f"events must be a list, not {type(events).__name__}."
        )
    own = list(events)
    for event in own:
        if not isinstance(event, EVENT_TYPES):
            raise InvalidParameterError(f"Not a privacy event: {type(event).__name__}.")
    return merge(own)


@functools.lru_cache(maxsize=4096)
def bound(events: tuple[Event, ...], delta: float, resolution: float) -> float:
    """Return `compose` of merged events, at a resolution of `loss_epsilon`.

    Of parallel events it is the largest of each branch's, with everything else. With
    `CHEAP` the loss distribution is left out. The methods' bounds, and so their
    smallest, hold at every resolution.
    """
    failure = total_delta0(events)
    rest = delta
    if failure > 0:
        rest = math.nextafter(delta - failure, 0.0)
        if rest <= 0:
            return math.inf
    if not any(isinstance(event, Parallel) for event in events):
        return _plain_bound(events, rest, resolution)
    if ways(events) > MAX_COMBINATIONS:
        return renyi_epsilon([e for e in events if not isinstance(e, Failure)], rest)
    return max(bound(plain, delta, resolution) for plain in one_by_one(events))


def _plain_bound(events: Sequence[Event], rest: float, resolution: float) -> float:
    """Return the bound of plain events at what the failures leave of delta."""
    gaussians = [e for e in events if isinstance(e, Gaussian)]
    selections = [e for e in events if isinstance(e, (Exponential, Pure))]
    # What no loss distribution is known of.
    others = [e for e in events if isinstance(e, ZCDPEvent)]
    sampled = any(event.sampling_rate < 1 for event in gaussians)
    if not (gaussians or selections or others):
        return 0.0

    # No sample costs more than everybody: the mixture's hockey-stick curve is, at every
    # order, below those of the pairs that it mixes (joint convexity).
    square = sum(e.count * inverse_square(e.noise_multiplier) for e in gaussians)
    plain = gaussian_epsilon(math.sqrt(square), rest)
    if not sampled and not selections and not others:
        return plain

    releases = [*gaussians, *selections, *others]
    bounds = [renyi_epsilon(releases, rest)]
    if not others:
        if selections:
            total = math.fsum(event.count * event.epsilon for event in selections)
            if sampled:
                plain = bound(tuple(gaussians), rest, resolution)
            plain = (total + plain) * (1 + 1e-15)
        bounds.append(plain)
        if resolution != CHEAP:
            bounds.append(loss_epsilon(releases, rest, resolution=resolution))
    return min(bounds)
