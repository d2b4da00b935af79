"""Discretization: the privacy loss of one use on a grid, never below the true one.

One use becomes a list of probabilities on a grid of losses, with some mass at
infinity, whose hockey-stick curve lies nowhere below the mechanism's ("connect the
dots", Doroshenko et al. 2022). Gaussians are dp-accounting's; of exponential and pure
events it takes two atoms.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from langchain_dpicl.accounting.events import (
    Event,
    Exponential,
    Gaussian,
    Pure,
)
from langchain_dpicl.accounting.gaussian import inverse_square

Floats = npt.NDArray[np.float64]

# Grid step over the standard deviation of one use's loss: error about 1e-4.
FINE = 1 / 32
COARSE = 1 / 8  # The same for a search, which only has to come near.
MAX_COMPOSED = 2**22  # Largest number of grid points of a composition.
# Spacing of doubles at 1: twice the largest relative error of one operation.
ROUNDING = 2.0**-52
RISING: Floats = np.geomspace(1e-7, 2.0, 100)
# Arguments of the cumulants, times the grid step. A tilt is one of the first, and the
# cut of a tilted heavy tail needs close neighbors.
SLOPES: Floats = np.concatenate([RISING, -np.geomspace(1e-7, 2.0, 36)])
_EXPONENT = 700.0  # exp overflows a little above.
_MAX_SINGLE = 2**15
_TAIL_DEVIATIONS = 10.2  # dp-accounting cuts a Gaussian where exp(-50) is left.


class Measure(NamedTuple):
    """Loss of one use on the grid, in one order of the neighbors."""

    lowest: int  # Grid index of the first probability.
    probabilities: Floats  # Masses of the grid points from `lowest` on.
    infinity: float  # Mass at infinite loss.
    cumulants: Floats  # log E exp(t L) over finite losses for t = `SLOPES` / step.
    error: float  # Bound of the rounding error of the curve.


def one_use(event: Event) -> Event:
    """Return one use of an event: the key under which its loss is cached."""
    if isinstance(event, Gaussian):
        return dataclasses.replace(event, count=1)
    assert isinstance(event, (Exponential, Pure))  # noqa: S101 - narrows
    return Pure(event.epsilon)


def _spread(event: Event) -> tuple[float, float]:
    """Return roughly the standard deviation and the range of one use's loss."""
    if not isinstance(event, Gaussian):
        assert isinstance(event, (Exponential, Pure))  # noqa: S101 - narrows
        return event.epsilon, event.epsilon
    z, q = event.noise_multiplier, event.sampling_rate
    square = inverse_square(z)
    plain = square + square * square / 4
    top = square / 2 + _TAIL_DEVIATIONS / z
    if q == 1:
        return math.sqrt(square), top
    chi = q * q * math.expm1(square) if square < _EXPONENT else math.inf
    rest = math.log1p(-event.sampling_rate)
    top = float(np.logaddexp(rest, math.log(event.sampling_rate) + top))
    return math.sqrt(min(chi, q * plain)), max(top, -rest)


def grid_step(events: Sequence[Event], resolution: float) -> float:
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
        width / MAX_COMPOSED,
    )
    exponent = math.floor(math.log2(step))
    return 2.0**exponent


@functools.lru_cache(maxsize=64)
def discretize(event: Event, step: float) -> tuple[Measure, ...]:
    """Return the discretization of one use: removing, adding; one if both agree."""
    if isinstance(event, Gaussian):
        return tuple(_measure(*part, step) for part in _gaussian(event, step))
    assert isinstance(event, Pure)  # noqa: S101 - `one_use` leaves these two
    return (_measure(*_randomized_response(event.epsilon, step), step),)


def _measure(
    lowest: int, probabilities: Floats, infinity: float, step: float
) -> Measure:
    losses = (np.arange(len(probabilities)) + lowest) * step
    present = probabilities > 0
    finite, logs = losses[present], np.log(probabilities[present])
    cumulants = [_log_sum_exp(t * finite + logs) for t in SLOPES / step]
    # The curve at l is P(L > l) - exp(l + log Q(L > l)): some ten roundings of numbers
    # up to 1, and those of the exponent, |l| units, which weigh as much as the term,
    # at most min(1, exp(l)) and P(L > l).
    beyond = np.cumsum(probabilities[::-1])[::-1]
    error = ROUNDING * (6 + 2 * max(0.0, float(np.max(losses * beyond))))
    return Measure(lowest, probabilities, infinity, np.array(cumulants), error)


def _log_sum_exp(values: Floats) -> float:
    peak = float(values.max())
    return peak + math.log(float(np.exp(values - peak).sum()))


def _gaussian(event: Gaussian, step: float) -> list[tuple[int, Floats, float]]:
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
    probabilities = np.zeros(math.floor(epsilon / step) - lowest + 2)
    for loss in (epsilon, -epsilon):
        mass = 1 / (1 + math.exp(-loss))
        below = math.floor(loss / step)
        above = mass * math.expm1(below * step - loss) / math.expm1(-step)
        probabilities[below + 1 - lowest] += above
        probabilities[below - lowest] += mass - above
    return lowest, probabilities, 0.0
