"""Privacy loss distributions: the tight numerical bound, for sampled releases.

The discretized loss of one use (`discretization`) may replace the true loss in any
composition, because the curve of a composition is an average of the curves of its
parts with positive weights. Composition is a convolution, done with one FFT.

dp-accounting computes the curve and the discretization of Gaussians. The
composition is done here, for three reasons: every numerical error has an explicit
allowance that is taken out of delta (`_Composed`), the discretization follows the
width of the loss, so that tiny and huge noise take the same time, and a further
use of a known event costs milliseconds.

Both orders of the neighbors are composed separately, and the larger figure counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from langchain_dpicl.accounting.discretization import (
    FINE,
    MAX_COMPOSED,
    RISING,
    ROUNDING,
    SLOPES,
    Floats,
    Measure,
    discretize,
    grid_step,
    one_use,
)
from langchain_dpicl.accounting.events import Event, ZCDPEvent

_TAIL = 1e-16
_MAX_STEP = 16.0
_TOLERATED_NOISE = 3e-3
# Uses beyond which no bound is computed: time and rounding errors grow with them.
MAX_USES = 1_000_000
_TILTED_SIZE = 8  # A tilted window may be this much longer than the plain one.

_Uses: TypeAlias = Sequence[tuple[Measure, int]]
"""The loss of each kind of use, in one order of the neighbors, and their number."""


class _Composed(NamedTuple):
    """Loss of all uses, in one order of the neighbors, tilted by exp(t * loss)."""

    start: float  # Loss of the first probability; nothing is known of smaller ones.
    tilted: Floats  # p(l) exp(t l - K) on the grid from `start` on, K = log E exp(t L).
    slope: float  # The tilt t, 0 for none.
    cumulant: float  # K.
    allowance: float  # Mass at infinity, and rounding errors of the discretization.
    # Cut tails, and rounding errors of the convolution; a mass of `tilted`.
    noise: float


def loss_epsilon(
    events: Sequence[Event], delta: float, *, resolution: float = FINE
) -> float:
    """Return the privacy loss distribution's bound of a fixed list of events.

    Exponential and pure events enter as randomized response, the worst case of pure
    epsilon-DP. Any resolution (grid step over the standard deviation of one use's loss)
    gives an upper bound; a larger one a looser and faster one. It is infinite where
    double precision can't give one: delta below the numerical error (some 1e-15 for
    each use), or noise so small that a loss of thousands is common; for more than
    `MAX_USES`; and for events of which no loss distribution is known.

    Example:
        >>> from langchain_dpicl.accounting import Gaussian
        >>> event = Gaussian(1.36, sampling_rate=80 / 835, count=15)
        >>> round(loss_epsilon([event], 1 / 835), 2)
        0.95
    """
    if any(isinstance(event, ZCDPEvent) for event in events):
        return math.inf
    if sum(event.count for event in events) > MAX_USES:
        return math.inf
    step = grid_step(events, resolution)
    if step > _MAX_STEP:
        return math.inf
    try:
        with np.errstate(all="ignore"):
            pairs = [
                (discretize(one_use(event), step), event.count) for event in events
            ]
            # Both orders are the same for a list in which each event's are.
            orders = max(len(pair) for pair, _ in pairs)
            bounds = [
                _order_epsilon(
                    [(pair[i % len(pair)], n) for pair, n in pairs], delta, step
                )
                for i in range(orders)
            ]
    except (ArithmeticError, ValueError, MemoryError):
        # dp-accounting's way to say that the parameters are too extreme.
        return math.inf
    return math.inf if any(map(math.isnan, bounds)) else max(bounds)


def _order_epsilon(uses: _Uses, delta: float, step: float) -> float:
    """Return the bound for one order of the neighbors."""
    composed = _compose(uses, step, None)
    bound = _epsilon_at(composed, delta, step)
    if composed.noise > _TOLERATED_NOISE * delta:
        # The convolution's errors are a share of all mass, of which delta may be a
        # tiny part. Tilted, the losses that matter are the common ones.
        total = _total_cumulants(uses)[: len(RISING)]
        tilt = int(np.argmin((total - math.log(delta)) / RISING))
        limit = _TILTED_SIZE * len(composed.tilted)
        lowest, highest = _window(uses, tilt)
        if highest - lowest < limit:
            composed = _compose(uses, step, tilt)
            bound = min(bound, _epsilon_at(composed, delta, step))
    return bound


def _compose(uses: _Uses, step: float, tilt: int | None) -> _Composed:
    """Return the convolution of all uses, tilted by `SLOPES[tilt] / step`."""
    from scipy import fft

    slope = 0.0 if tilt is None else float(SLOPES[tilt]) / step
    lowest, highest = _window(uses, tilt)
    size = highest - lowest + 1
    if size > 2 * MAX_COMPOSED:
        raise OverflowError
    length = fft.next_fast_len(size, real=True)
    spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
    exponents = 0.0
    for measure, count in uses:
        values = measure.probabilities
        if tilt is not None:
            losses = (np.arange(len(values)) + measure.lowest) * step
            weights = slope * losses - measure.cumulants[tilt]
            values = np.where(values > 0, values * np.exp(weights), 0.0)
            exponents += count * float(np.max(np.abs(weights)))
        spectrum *= fft.rfft(_fold(values, length)) ** count
    # What lies outside the window is wrapped into it: mass that is there twice,
    # once among the noise, can only raise the curve.
    origin = sum(m.lowest * n for m, n in uses)
    circle = fft.irfft(spectrum, length)
    tilted = np.maximum(np.roll(circle, -((lowest - origin) % length))[:size], 0.0)

    # Each transform has a relative error below 4 * unit * log2(length) in the
    # Euclidean norm, the n-th power n times that. The sum of `length` absolute
    # errors is at most sqrt(length) times their norm, which by Parseval is the
    # norm of the spectrum's error.
    norm = math.sqrt(2 * float(np.sum(np.square(np.abs(spectrum)))))
    transforms = 4 * math.log2(length + 1) * (sum(n for _, n in uses) + 2)
    rounding = ROUNDING * (transforms + exponents) * norm
    single = sum(n * (m.infinity + m.error) for m, n in uses)
    # Rounding in the discretization may leave a total mass above 1.
    growth = sum(
        n * math.log(max(1.0, float(m.probabilities.sum()) + m.infinity))
        for m, n in uses
    )
    cumulant = 0.0 if tilt is None else _total_cumulants(uses)[tilt]
    return _Composed(
        start=lowest * step,
        tilted=tilted,
        slope=slope,
        cumulant=float(cumulant),
        allowance=single * math.exp(growth),
        noise=2 * _TAIL + rounding,
    )


def _total_cumulants(uses: _Uses) -> Floats:
    total = np.zeros(len(SLOPES))
    for measure, count in uses:
        total += count * measure.cumulants
    return total


def _window(uses: _Uses, tilt: int | None) -> tuple[int, int]:
    """Return grid indices outside of which lies at most `_TAIL` on either side.

    Chernoff: P(L >= u) <= exp(K(t) - t u) for every t > 0. Tilted by s, K(t) is
    replaced by K(s + t) - K(s).
    """
    total = _total_cumulants(uses)
    slopes = SLOPES
    if tilt is not None:
        slopes, total = slopes - slopes[tilt], total - total[tilt]
    exponents = total - math.log(_TAIL)
    rising, falling = slopes > 0, slopes < 0
    first = sum(n * m.lowest for m, n in uses)
    last = sum(n * (m.lowest + len(m.probabilities) - 1) for m, n in uses)
    upper = np.min(exponents[rising] / slopes[rising], initial=last)
    lower = np.max(exponents[falling] / slopes[falling], initial=first)
    return math.floor(lower), math.ceil(upper)


def _fold(values: Floats, length: int) -> Floats:
    """Return the sums of the values whose indices agree modulo `length`."""
    rows = -(-len(values) // length)
    padded = np.zeros(rows * length)
    padded[: len(values)] = values
    return np.asarray(padded.reshape(rows, length).sum(axis=0))


def _epsilon_at(composed: _Composed, delta: float, step: float) -> float:
    """Return the smallest epsilon at which the curve is at most `delta`.

    Between the grid points l_(j-1) and l_j the curve is A_j - exp(epsilon - l_j)
    G_j, with A_j the mass from l_j on and G_j = sum over i >= j of p_i
    exp(l_j - l_i), which follows a recursion that neither over- nor underflows.
    """
    from scipy import signal

    target = delta * (1 - 1e-10) - composed.allowance
    # Below these losses nothing is known, or nothing is asked.
    least = max(0.0, composed.start)
    if composed.slope > 0:
        least = max(least, composed.cumulant / composed.slope)
    first = math.ceil((least - composed.start) / step)
    losses = composed.start + np.arange(first, len(composed.tilted)) * step
    if target <= 0:
        return math.inf
    if len(losses) == 0:
        # No mass is there, and the noise weighs less than its tilted self.
        return least * (1 + 1e-12) if composed.noise <= target else math.inf
    chernoff = np.exp(composed.cumulant - composed.slope * losses)
    backwards = (composed.tilted[first:] * chernoff)[::-1]
    mass = np.cumsum(backwards)[::-1]
    weighted = signal.lfilter([1.0], [1.0, -math.exp(-step)], backwards)[::-1]
    # The noise of all losses from the grid point before on is less than `noise` times
    # this factor; two running sums may each be off by a rounding for every term.
    noise = composed.noise * chernoff * math.exp(composed.slope * step)
    noise += 2 * ROUNDING * len(losses) * mass
    # The curve falls along the grid; this is the first point at or below target.
    below = mass - weighted + noise <= target
    if not below.any():
        return math.inf
    j = int(np.argmax(below))
    loss = float(losses[j])
    if j == 0:
        return max(0.0, loss) * (1 + 1e-12)
    left, rest = max(0.0, loss - step), target - float(noise[j])
    inside = left
    if mass[j] > rest:  # And so there is a weight: it is at least the difference.
        inside = loss + math.log((float(mass[j]) - rest) / float(weighted[j]))
    return max(left, inside) * (1 + 1e-12)
