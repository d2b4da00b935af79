"""Composition: what a list of events that was fixed before the first use costs.

Each bound below holds for every such plan, so the least of them holds:

    closed form      Gaussians; sampling is ignored          exact without sampling
    sum of epsilons  selections, beside the Gaussians' bound
    loss PLD         dp-accounting, both orders of the neighbors
    Renyi            the best order

Failures are taken out of delta first. dp-accounting states no bound of its rounding
errors: they are measured, and an allowance for them is taken out of delta too. `check`
asks a second library.

*Why the order of use may be adaptive.* Each event is dominated by its pair of output
laws, so each round is a channel applied to that pair (Blackwell). Draw all pairs
beforehand: the interaction is post-processing of their product. To skip or to stop is
such an interaction. To choose *which* events by what was seen is not: see `filter`.

*Parallel events.* The branches of other classes than a unit's see the same records with
and without it, so their factors cancel from the likelihood ratio of the transcript.
What is left is the composition of one branch. Which one is unknown, hence the largest
(McSherry 2009, Theorem 4). In all uses of equal events a unit is in the same class; of
events that differ every way to take one branch of each is computed. Beyond 1,000 ways
the largest divergence at each order is composed, which bounds all of them.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from langchain_dpicl.accounting.events import (
    Event,
    Exponential,
    Failure,
    Gaussian,
    Parallel,
    Plain,
    Pure,
    failure_of,
    merge,
)
from langchain_dpicl.common import parameters

Floats: TypeAlias = npt.NDArray[np.float64]

UP = 1 + 1e-9
"""Covers the rounding errors of sums of floating-point terms."""

LEAST_PLD_DELTA = 1e-12
"""Below it dp-accounting is not asked: its errors are too near."""

PLD_ERROR = 1e-15
"""Taken out of delta for each use, where dp-accounting is asked. Its transforms err in
delta by up to 9e-17 a use, either way (measured up to a million uses)."""

_MAX_WAYS = 1000
_RESOLUTION = 32  # Grid steps in the standard deviation of one use's loss.
_MAX_POINTS = 2**22
_LARGEST_STEP = 16
_MOST_USES = 10**6
_LARGE = 700.0  # e^x of a larger one is near the end of doubles.
_TINY = 1e-300  # More than what underflows in a single operation.
_WHOLE = np.unique(np.r_[np.arange(2, 65), np.geomspace(66, 2048, 50).astype(int)])
_ORDERS = np.geomspace(1e-6, 1e9, 301)  # Orders minus one.


def compose(events: Iterable[Event], delta: float) -> float:
    """Return an upper bound of epsilon for all events together, at total `delta`.

    Args:
        events: A list that was fixed before the first release.
        delta: Total failure probability, the `Failure`s' included; above 0, below 1.

    Returns:
        epsilon, 0 or more; infinite if the `Failure`s alone reach `delta`. A first call
        for sampled events takes up to a second.

    Raises:
        InvalidParameterError: If delta is out of its range, an event is unknown, or one
            leaves its parameter to the account.

    Example:
        >>> plan = [Gaussian(noise_multiplier=4.0, count=16)]
        >>> round(compose(plan, delta=1e-5), 5)
        4.37718
    """
    return bound(merge(events), parameters.delta(delta))


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
        delta: Total failure probability, above 0 and below 1.
        uses: Number of releases.
        sampling_rate: Rate of the Poisson sample of units that each release sees; 1
            for no sampling.
        delta0: Failure probability of one release before sampling: each use adds
            `sampling_rate * delta0`.

    Example:
        >>> round(epsilon(4.0, 1e-5, uses=16), 5)
        4.37718
    """
    terms: Any = {"sampling_rate": sampling_rate, "count": uses}
    noise = Gaussian(noise_multiplier=noise_multiplier, **terms)
    return compose([noise, Failure(delta0=delta0, **terms)], delta)


def sampled_epsilon(epsilon: float, sampling_rate: float) -> float:
    """Return what a Poisson sample of units makes of an epsilon, rounded up.

    log(1 + q (e^epsilon - 1)), of a pure loss (Balle, Barthe, Gaboardi 2018, Theorem 8)
    and of a bounded range alike.

    Example:
        >>> round(sampled_epsilon(1.0, 0.1), 4), sampled_epsilon(2.0, 1.0)
        (0.1586, 2.0)
    """
    loss = parameters.epsilon(epsilon)
    q = parameters.sampling_rate(sampling_rate)
    if q == 1:
        return loss
    if loss < _LARGE:
        sampled = math.log1p(q * math.expm1(loss))
    else:
        grown = loss + math.log(q)
        sampled = grown + math.log1p((1 - q) * math.exp(-grown))
    return min(sampled * (1 + 4e-15) + _TINY, loss)


@functools.lru_cache(maxsize=4096)
def bound(events: tuple[Event, ...], delta: float, *, is_fine: bool = True) -> float:
    """Return `compose` of merged events; a quick one leaves dp-accounting out."""
    plain = ways(events)
    if plain is not None:
        return max(_plain_bound(way, delta, is_fine=is_fine) for way in plain)
    rest = below(Fraction(delta) - failure_of(events))
    return renyi_epsilon(events, rest) if rest > 0 else math.inf


def ways(events: tuple[Event, ...]) -> list[tuple[Event, ...]] | None:
    """Return the plain events of each way to take one branch of each parallel event.

    None means that there are too many.
    """
    plain = [e for e in events if not isinstance(e, Parallel)]
    branches = [
        list({merge(branch, event.count): None for branch in event.branches})
        for event in events
        if isinstance(event, Parallel)
    ]
    if math.prod(map(len, branches)) > _MAX_WAYS:
        return None
    taken = itertools.product(*branches)
    return [merge(itertools.chain(plain, *way)) for way in taken]


def _plain_bound(events: tuple[Event, ...], delta: float, *, is_fine: bool) -> float:
    """Return the least bound of events of which none is parallel."""
    delta = below(Fraction(delta) - failure_of(events))
    if delta <= 0:
        return math.inf
    losses = tuple(e for e in events if isinstance(e, (Gaussian, Exponential, Pure)))
    gaussians = tuple(e for e in losses if isinstance(e, Gaussian))
    selections = [e for e in losses if not isinstance(e, Gaussian)]
    mu = math.sqrt(math.fsum(e.count / _noise(e) ** 2 for e in gaussians))
    closed = gaussian_epsilon(mu * (1 + 1e-15), delta)
    if not selections and all(e.sampling_rate == 1 for e in gaussians):
        return closed
    if selections and gaussians:
        closed = _plain_bound(gaussians, delta, is_fine=is_fine)
    bounds = [renyi_epsilon(losses, delta)]
    if math.isfinite(closed):
        pure = sum((e.count * Fraction(_amplified(e)) for e in selections), Fraction(0))
        bounds.append(above(Fraction(closed) + pure))
    if is_fine:
        bounds.append(_pld_epsilon(losses, delta))
    return min(bounds)


def _noise(event: Gaussian) -> float:
    assert event.noise_multiplier is not None  # noqa: S101  # `merge` refuses open ones
    return event.noise_multiplier


def _amplified(event: Exponential | Pure) -> float:
    """Return a selection's pure bound, and bounded range, on its sample."""
    assert event.epsilon is not None  # noqa: S101  # `merge` refuses open ones
    return sampled_epsilon(event.epsilon, event.sampling_rate)


# ---- closed form -----------------------------------------------------------------


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return epsilon of a Gaussian mechanism of noise multiplier 1 / mu, rounded up.

    delta = e^(-a^2 / 2) / 2 (erfcx(a / sqrt 2) - erfcx((a + mu) / sqrt 2)) at epsilon =
    mu (a + mu / 2) (Balle, Wang 2018, Theorem 8).
    """
    from scipy import optimize, special

    if mu == 0 or special.erf(mu / math.sqrt(8)) * (1 + 1e-12) <= delta:
        return 0.0
    target = math.log(delta) - 1e-10 - 1e-14 / mu

    def excess(a: float) -> float:
        gap = special.erfcx(a / math.sqrt(2)) - special.erfcx((a + mu) / math.sqrt(2))
        return float(-a * a / 2 + math.log(max(gap / 2, 5e-324)) - target)

    high = -float(special.ndtri(delta)) + 0.01
    low = max(-mu / 2, -9.0)
    if excess(low) <= 0:
        return max(0.0, mu * (low + mu / 2)) * UP
    a = float(optimize.brentq(excess, low, high, xtol=1e-12)) + 2e-12
    return max(0.0, mu * (a + mu / 2)) * (1 + 1e-12)


# ---- Renyi -----------------------------------------------------------------------


def divergence(event: Event, x: Floats) -> Floats:
    """Return the Renyi divergence of order 1 + x of one use, rounded up.

    Of a `Parallel` it is the largest of its branches' at each order.
    """
    if isinstance(event, Failure):
        return np.zeros_like(x)
    if isinstance(event, Parallel):
        sums = [_total(branch, x) for branch in dict.fromkeys(event.branches)]
        return functools.reduce(np.maximum, sums)
    if isinstance(event, Gaussian):
        z, q = _noise(event), event.sampling_rate
        line: Floats = (1 + x) / (2 * z * z) * (1 + 1e-15)
        if q == 1:
            return line
        bent = np.interp(1 + x, np.r_[1, _WHOLE], _sampled_cumulants(z, q)) / x
        return np.where(1 + x <= _WHOLE[-1], np.minimum(bent, line), line)
    loss = _amplified(event)
    # Of randomized response, exactly; an exponential mechanism has a b^2 / 8 too.
    exact = x * loss + np.log1p(np.exp(-(1 + 2 * x) * loss))
    exact = (exact - math.log1p(math.exp(-loss)) + 1e-15 * (1 + x * loss)) / x
    rate = 1 / 8 if isinstance(event, Exponential) else 1 / 2
    curve: Floats = np.minimum((1 + x) * (rate * loss * loss), np.minimum(loss, exact))
    return curve * UP


def headroom(x: Floats, delta: float) -> Floats:
    """Return log(1 + 1/x) + (log delta + log(1 + x)) / x, rounded down.

    A divergence R of order 1 + x is (R - headroom, delta)-private (Canonne, Kamath,
    Steinke 2020, Proposition 12).
    """
    gain: Floats = np.log1p(1 / x)
    price: Floats = (math.log(delta) + np.log1p(x)) / x
    return gain + price - 1e-14 * (gain + np.abs(price))


def _total(events: Iterable[Event], x: Floats) -> Floats:
    terms = (event.count * divergence(event, x) for event in events)
    return functools.reduce(np.add, terms, np.zeros_like(x))


@functools.lru_cache(maxsize=512)
def _sampled_cumulants(z: float, q: float) -> Floats:
    """Return (a - 1) R(a) of one sampled Gaussian at orders 1 and `_WHOLE`, rounded up.

    A(a) - 1 = sum over k >= 2 of C(a, k) q^k (1 - q)^(a - k) (e^(k (k - 1) / 2 z^2)
    - 1) (Mironov, Talwar, Zhang 2019): all terms are positive. (a - 1) R(a) is convex,
    so a line between two orders is an upper bound.
    """
    from scipy import special

    values = [0.0]
    for order in _WHOLE:
        k = np.arange(2.0, order + 1)
        power = k * (k - 1) / (2 * z * z)
        with np.errstate(divide="ignore"):
            terms = special.gammaln(order + 1) - special.gammaln(k + 1)
            terms += k * math.log(q) + (order - k) * math.log1p(-q)
            terms += power + np.log(-np.expm1(-power)) - special.gammaln(order - k + 1)
        values.append(float(np.logaddexp(0.0, special.logsumexp(terms))))
    return np.array(values) * UP


def renyi_epsilon(events: Sequence[Event], delta: float) -> float:
    """Return the best Renyi bound of a fixed list, failures aside, rounded up."""
    if not events:
        return 0.0

    def bounds(x: Floats) -> Floats:
        with np.errstate(over="ignore", under="ignore"):
            return _total(events, x) * (1 + 1e-12) - headroom(x, delta)

    best = int(np.argmin(bounds(_ORDERS)))
    near = _ORDERS[max(best - 1, 0)], _ORDERS[min(best + 1, len(_ORDERS) - 1)]
    return max(0.0, float(bounds(np.geomspace(*near, 101)).min()))


# ---- loss distributions ----------------------------------------------------------


def _pld_epsilon(events: Sequence[Plain], delta: float) -> float:
    """Return dp-accounting's pessimistic figure, or infinity where it is not asked."""
    uses = sum(event.count for event in events)
    step, rest = _grid_step(events, uses), delta - PLD_ERROR * (uses + 1)
    if step > _LARGEST_STEP or uses > _MOST_USES:
        return math.inf
    if rest < delta / 2 or delta < LEAST_PLD_DELTA:
        return math.inf
    try:
        singles = [event.model_copy(update={"count": 1}) for event in events]
        parts = [
            _one_use(single, step).self_compose(event.count)
            for single, event in zip(singles, events, strict=True)
        ]
        composed = functools.reduce(lambda left, right: left.compose(right), parts)
        with np.errstate(all="ignore"):
            return float(composed.get_epsilon_for_delta(rest)) * UP
    except (ArithmeticError, ValueError, MemoryError):
        return math.inf  # Its way to say that parameters are too extreme.


@functools.lru_cache(maxsize=64)
def _one_use(event: Plain, step: float) -> Any:
    """Return the loss of one use on dp-accounting's grid, in both orders."""
    from dp_accounting.pld import privacy_loss_distribution as pld
    from scipy import special

    if isinstance(event, Gaussian):
        return pld.from_gaussian_mechanism(
            event.noise_multiplier,
            sampling_prob=event.sampling_rate,
            value_discretization_interval=step,
        )
    assert not isinstance(event, Failure)  # noqa: S101  # taken out of delta
    # Randomized response is the worst pure mechanism. An atom between two grid points
    # is shared out so that its mass is kept under both neighbors: the curve only rises.
    masses: dict[int, float] = {}
    for loss in (_amplified(event), -_amplified(event)):
        mass, point = float(special.expit(loss)), math.floor(loss / step)
        upper = mass * math.expm1(point * step - loss) / math.expm1(-step)
        for place, part in ((point, mass - upper), (point + 1, upper)):
            masses[place] = masses.get(place, 0.0) + part
    return pld.PrivacyLossDistribution.create_from_rounded_probability(
        masses, 0.0, step
    )


def _grid_step(events: Sequence[Plain], uses: int) -> float:
    """Return a power of 2 near a share of the standard deviation of one use's loss."""
    variance = largest = 0.0
    for event in events:
        if isinstance(event, Gaussian):
            z, q = _noise(event), event.sampling_rate
            square = z**-2
            top = sampled_epsilon(square / 2 + 10.2 / z, q)
            chi = q * q * math.expm1(square) if square < _LARGE else math.inf
            spread = square if q == 1 else min(chi, q * (square + square * square / 4))
        elif not isinstance(event, Failure):
            top = _amplified(event)
            spread = top * top
        variance += event.count * spread
        largest = max(largest, top)
    width = 17 * math.sqrt(variance) + 2 * largest
    if not width < math.inf:
        return math.inf
    fine = math.sqrt(variance / uses) / _RESOLUTION
    return 2.0 ** math.floor(math.log2(max(fine, largest / 2**14, width / _MAX_POINTS)))


# ---- directed rounding -----------------------------------------------------------


def below(value: Fraction) -> float:
    """Return the largest double that is not above `value`."""
    number = float(value)
    return number if number <= value else math.nextafter(number, -math.inf)


def above(value: Fraction) -> float:
    """Return the least double that is not below `value`; it may be infinite."""
    try:
        number = float(value)
    except OverflowError:
        return math.inf
    return number if number >= value else math.nextafter(number, math.inf)
