"""Privacy loss distributions: the tight numerical bound, for sampled releases.

One use becomes a list of probabilities on a grid of losses, with some mass at
infinity, whose hockey-stick curve lies nowhere below the mechanism's ("connect the
dots", Doroshenko et al. 2022). Such a measure may replace the true loss in any
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

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from langchain_dpicl.accounting.events import (
    Event,
    ExponentialEvent,
    GaussianEvent,
    PureEvent,
)
from langchain_dpicl.accounting.gaussian import inverse_square

Floats = npt.NDArray[np.float64]

FINE = 1 / 32
"""Grid step over the standard deviation of one use's loss: error about 1e-4."""

COARSE = 1 / 8
"""The same for a search, which only has to come near."""

_UNIT = 2.0**-52
_TAIL = 1e-16
_MAX_SINGLE = 2**15
_MAX_COMPOSED = 2**22
_MAX_STEP = 16.0
_TOLERATED_NOISE = 3e-3
_TAIL_DEVIATIONS = 10.2
"""dp-accounting cuts a Gaussian where exp(-50) is left."""

_RISING: Floats = np.geomspace(1e-7, 2.0, 100)
_SLOPES: Floats = np.concatenate([_RISING, -np.geomspace(1e-7, 2.0, 36)])
"""Arguments of the cumulants, times the grid step. A tilt is one of the first, and the
cut of a tilted heavy tail needs close neighbors."""

_TILTED_SIZE = 8
"""A tilted window may be this much longer than the plain one."""


@dataclass(frozen=True)
class _Measure:
    """Loss of one use on the grid, in one order of the neighbors."""

    lowest: int
    """Grid index of the first probability."""

    probabilities: Floats
    """Masses of the grid points from `lowest` on."""

    infinity: float
    """Mass at infinite loss."""

    cumulants: Floats
    """log E exp(t L) over finite losses for t = `_SLOPES` / step."""

    error: float
    """Bound of the rounding error of the curve."""


@dataclass(frozen=True)
class _Composed:
    """Loss of all uses, in one order of the neighbors, tilted by exp(t * loss)."""

    start: float
    """Loss of the first probability; nothing is known of smaller ones."""

    tilted: Floats
    """p(l) exp(t l - K) on the grid from `start` on, K = log E exp(t L)."""

    slope: float
    """The tilt t, 0 for none."""

    cumulant: float
    """K."""

    allowance: float
    """Mass at infinity, and rounding errors of the discretization."""

    noise: float
    """Cut tails, and rounding errors of the convolution; a mass of `tilted`."""


def loss_epsilon(
    events: Sequence[Event], delta: float, *, resolution: float = FINE
) -> float:
    """Return the privacy loss distribution's bound of a fixed list of events.

    Exponential and pure events enter as randomized response, the worst case of pure
    epsilon-DP.

    Args:
        events: Gaussian, exponential and pure events.
        delta: Failure probability, strictly between 0 and 1.
        resolution: Grid step over the standard deviation of one use's loss. Any
            value gives an upper bound; a larger one a looser and faster one.

    Returns:
        An upper bound of epsilon, 0 or more. Infinite where double precision can't
        give one: delta below the numerical error (some 1e-15 for each use), or
        noise so small that a loss of thousands is common.

    Example:
        >>> event = GaussianEvent(1.36, sampling_rate=80 / 835, count=15)
        >>> round(loss_epsilon([event], 1 / 835), 2)
        0.95
    """
    step = _grid_step(events, resolution)
    if not 0 < step <= _MAX_STEP:
        return math.inf
    try:
        with np.errstate(all="ignore"):
            pairs = [_single(_once(event), step) for event in events]
            counts = [event.count for event in events]
            # Both orders are the same for a list in which each event's are.
            orders = 1 if all(len(pair) == 1 for pair in pairs) else 2
            bounds = [
                _order_epsilon(
                    [pair[i % len(pair)] for pair in pairs], counts, delta, step
                )
                for i in range(orders)
            ]
    except (ArithmeticError, ValueError, MemoryError):
        # dp-accounting's way to say that the parameters are too extreme.
        return math.inf
    return math.inf if any(map(math.isnan, bounds)) else max(bounds)


def _once(event: Event) -> Event:
    """Return one use of an event: the key under which its loss is cached."""
    if isinstance(event, GaussianEvent):
        return GaussianEvent(event.noise_multiplier, event.sampling_rate)
    assert isinstance(event, (ExponentialEvent, PureEvent))  # noqa: S101 - narrows
    return PureEvent(event.epsilon)


def _spread(event: Event) -> tuple[float, float]:
    """Return roughly the standard deviation and the range of one use's loss."""
    if not isinstance(event, GaussianEvent):
        assert isinstance(event, (ExponentialEvent, PureEvent))  # noqa: S101 - narrows
        return event.epsilon, event.epsilon
    z, q = event.noise_multiplier, event.sampling_rate
    square = inverse_square(z)
    plain = square + square * square / 4
    top = square / 2 + _TAIL_DEVIATIONS / z
    if q == 1:
        return math.sqrt(square), top
    chi = q * q * math.expm1(square) if square < 700 else math.inf  # noqa: PLR2004
    top = float(np.logaddexp(math.log1p(-q), math.log(q) + top))
    return math.sqrt(min(chi, q * plain)), max(top, -math.log1p(-q))


def _grid_step(events: Sequence[Event], resolution: float) -> float:
    """Return a power of 2, so that the same event meets the same grid again.

    The discretization adds a sixth of step^2 to the variance of one use at most, so
    a fixed share of the standard deviation is a fixed relative error for any number
    of uses: the step must not shrink as uses are added.
    """
    variance = uses = 0.0
    largest = 0.0
    for event in events:
        deviation, top = _spread(event)
        variance += event.count * deviation * deviation
        uses += event.count
        largest = max(largest, top)
    if not (math.isfinite(variance) and variance > 0 and math.isfinite(largest)):
        return math.inf
    width = 17 * math.sqrt(variance) + 2 * largest
    step = max(
        resolution * math.sqrt(variance / uses),
        2 * largest / (_MAX_SINGLE * FINE / resolution),
        width / _MAX_COMPOSED,
    )
    exponent = math.floor(math.log2(step))
    return 2.0**exponent


@functools.lru_cache(maxsize=64)
def _single(event: Event, step: float) -> tuple[_Measure, ...]:
    """Return the discretization of one use: removing, adding; one if both agree."""
    if isinstance(event, GaussianEvent):
        return tuple(_measure(*part, step) for part in _gaussian(event, step))
    assert isinstance(event, PureEvent)  # noqa: S101 - `_once` leaves these two
    return (_measure(*_randomized_response(event.epsilon, step), step),)


def _measure(
    lowest: int, probabilities: Floats, infinity: float, step: float
) -> _Measure:
    losses = (np.arange(len(probabilities)) + lowest) * step
    present = probabilities > 0
    finite, logs = losses[present], np.log(probabilities[present])
    cumulants = [_log_sum_exp(t * finite + logs) for t in _SLOPES / step]
    # The curve at l is P(L > l) - exp(l + log Q(L > l)): some ten roundings of numbers
    # up to 1, and those of the exponent, |l| units, which weigh as much as the term,
    # at most min(1, exp(l)) and P(L > l).
    beyond = np.cumsum(probabilities[::-1])[::-1]
    error = _UNIT * (6 + 2 * max(0.0, float(np.max(losses * beyond))))
    return _Measure(lowest, probabilities, infinity, np.array(cumulants), error)


def _log_sum_exp(values: Floats) -> float:
    peak = float(values.max())
    return peak + math.log(float(np.exp(values - peak).sum()))


def _gaussian(event: GaussianEvent, step: float) -> list[tuple[int, Floats, float]]:
    """Return dp-accounting's pessimistic discretization of one Gaussian release."""
    from dp_accounting.pld import privacy_loss_distribution

    loss = privacy_loss_distribution.from_gaussian_mechanism(
        standard_deviation=event.noise_multiplier,
        value_discretization_interval=step,
        sampling_prob=event.sampling_rate,
        pessimistic_estimate=True,
        use_connect_dots=True,
    )
    # dp-accounting (pinned to 0.6) has no public way to the probabilities.
    orders = [loss._pmf_remove]  # noqa: SLF001
    if event.sampling_rate < 1:
        orders.append(loss._pmf_add)  # noqa: SLF001
    dense = [pmf.to_dense_pmf() for pmf in orders]
    return [
        (
            int(pmf._lower_loss),  # noqa: SLF001
            np.asarray(pmf._probs, dtype=np.float64),  # noqa: SLF001
            float(pmf._infinity_mass),  # noqa: SLF001
        )
        for pmf in dense
    ]


def _randomized_response(epsilon: float, step: float) -> tuple[int, Floats, float]:
    """Return the loss +-epsilon of randomized response, its two atoms on the grid.

    An atom of mass p at l between two grid points is shared out so that both p and
    p exp(-l), its mass under the other neighbor, stay what they are. That raises
    the (convex) curve between the two points and leaves it elsewhere.
    """
    lowest = math.floor(-epsilon / step)
    probabilities = np.zeros(math.ceil(epsilon / step) - lowest + 2)
    for loss in (epsilon, -epsilon):
        mass = 1 / (1 + math.exp(-loss))
        below = math.floor(loss / step)
        above = mass * math.expm1(below * step - loss) / math.expm1(-step)
        probabilities[below + 1 - lowest] += above
        probabilities[below - lowest] += mass - above
    return lowest, probabilities, 0.0


def _order_epsilon(
    measures: Sequence[_Measure], counts: Sequence[int], delta: float, step: float
) -> float:
    """Return the bound for one order of the neighbors."""
    composed = _compose(measures, counts, step, tilt=None)
    bound = _epsilon_at(composed, delta, step)
    if composed.noise > _TOLERATED_NOISE * delta:
        # The convolution's errors are a share of all mass, of which delta may be a
        # tiny part. Tilted, the losses that matter are the common ones.
        total = _total_cumulants(measures, counts)[: len(_RISING)]
        tilt = int(np.argmin((total - math.log(delta)) / _RISING))
        limit = _TILTED_SIZE * len(composed.tilted)
        lowest, highest = _window(measures, counts, tilt)
        if highest - lowest < limit:
            composed = _compose(measures, counts, step, tilt=tilt)
            bound = min(bound, _epsilon_at(composed, delta, step))
    return bound


def _compose(
    measures: Sequence[_Measure],
    counts: Sequence[int],
    step: float,
    *,
    tilt: int | None,
) -> _Composed:
    """Return the convolution of all uses, tilted by `_SLOPES[tilt] / step`."""
    from scipy import fft

    slope = 0.0 if tilt is None else float(_SLOPES[tilt]) / step
    lowest, highest = _window(measures, counts, tilt)
    size = highest - lowest + 1
    if size > 2 * _MAX_COMPOSED:
        raise OverflowError
    length = fft.next_fast_len(size, real=True)
    spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
    exponents = 0.0
    for measure, count in zip(measures, counts, strict=True):
        values = measure.probabilities
        if tilt is not None:
            losses = (np.arange(len(values)) + measure.lowest) * step
            weights = slope * losses - measure.cumulants[tilt]
            values = np.where(values > 0, values * np.exp(weights), 0.0)
            exponents += count * float(np.max(np.abs(weights)))
        spectrum *= fft.rfft(_fold(values, length)) ** count
    # What lies outside the window is wrapped into it: mass that is there twice,
    # once among the noise, can only raise the curve.
    origin = sum(m.lowest * n for m, n in zip(measures, counts, strict=True))
    circle = fft.irfft(spectrum, length)
    tilted = np.maximum(np.roll(circle, -((lowest - origin) % length))[:size], 0.0)

    # Each transform has a relative error below 4 * unit * log2(length) in the
    # Euclidean norm, the n-th power n times that. The sum of `length` absolute
    # errors is at most sqrt(length) times their norm, which by Parseval is the
    # norm of the spectrum's error.
    norm = math.sqrt(2 * float(np.sum(np.square(np.abs(spectrum)))))
    transforms = 4 * math.log2(length + 1) * (sum(counts) + 2)
    rounding = _UNIT * (transforms + exponents) * norm
    single = sum(
        n * (m.infinity + m.error) for m, n in zip(measures, counts, strict=True)
    )
    # Rounding in the discretization may leave a total mass above 1.
    growth = sum(
        n * math.log(max(1.0, float(m.probabilities.sum()) + m.infinity))
        for m, n in zip(measures, counts, strict=True)
    )
    cumulant = 0.0 if tilt is None else _total_cumulants(measures, counts)[tilt]
    return _Composed(
        start=lowest * step,
        tilted=tilted,
        slope=slope,
        cumulant=float(cumulant),
        allowance=single * math.exp(growth),
        noise=2 * _TAIL + rounding,
    )


def _total_cumulants(measures: Sequence[_Measure], counts: Sequence[int]) -> Floats:
    total = np.zeros(len(_SLOPES))
    for measure, count in zip(measures, counts, strict=True):
        total += count * measure.cumulants
    return total


def _window(
    measures: Sequence[_Measure], counts: Sequence[int], tilt: int | None
) -> tuple[int, int]:
    """Return grid indices outside of which lies at most `_TAIL` on either side.

    Chernoff: P(L >= u) <= exp(K(t) - t u) for every t > 0. Tilted by s, K(t) is
    replaced by K(s + t) - K(s).
    """
    total = _total_cumulants(measures, counts)
    slopes = _SLOPES
    if tilt is not None:
        slopes, total = slopes - slopes[tilt], total - total[tilt]
    reach = np.full(len(slopes), np.nan)
    np.divide(total - math.log(_TAIL), slopes, out=reach, where=slopes != 0)
    first = sum(n * m.lowest for m, n in zip(measures, counts, strict=True))
    last = sum(
        n * (m.lowest + len(m.probabilities) - 1)
        for m, n in zip(measures, counts, strict=True)
    )
    upper = float(np.min(reach[slopes > 0], initial=math.inf))
    lower = float(np.max(reach[slopes < 0], initial=-math.inf))
    return (
        first if lower < first else math.floor(lower),
        last if upper > last else math.ceil(upper),
    )


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
    # The noise of all losses from here on, less than `noise` times this factor.
    noise = composed.noise * chernoff * math.exp(composed.slope * step)
    # The curve falls along the grid; this is the first point at or below target.
    below = mass - weighted + noise <= target
    if not below.any():
        return math.inf
    j = int(np.argmax(below))
    loss = float(losses[j])
    if j == 0:
        return 0.0 if loss <= 0 else loss * (1 + 1e-12)
    left, rest = max(0.0, loss - step), target - float(noise[j])
    inside = left
    if mass[j] > rest and weighted[j] > 0:
        inside = loss + math.log((float(mass[j]) - rest) / float(weighted[j]))
    return max(left, inside) * (1 + 1e-12)
