"""How large the noise of a count gets: margins, thresholds and leads, exactly.

Noise is whole, so the quantiles of a real law don't hold: of discrete Laplace noise
P(K >= t) = e^(-a t) / (1 + e^(-a)), of rounded Gaussian noise Q((t - 1/2) / sigma). A
count that is a sum over a table's cells has a sum of such draws, whose law is their
convolution. Whatever follows from it is a function of public terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.mechanisms.exact import DiscreteLaplace, RoundedGaussian

WholeNoise: TypeAlias = DiscreteLaplace | RoundedGaussian
Parts: TypeAlias = tuple[tuple[WholeNoise, int], ...]

_CELLS, _ALL_CELLS = 1 << 16, 1 << 22
"""Most cells on either side of 0, of one draw and of a sum; beyond, numbers share
cells."""

_ONE, _ALL = 40, 10
"""Standard deviations beyond which one draw, or a sum, has no weight to speak of."""

_SLACK = 1e-11
"""More than the error of a probability that a Fourier transform gives."""


@dataclass(frozen=True)
class SummedNoise:
    """The law of a sum of independent draws of whole noise.

    Attributes:
        noise: The law of one draw.
        draws: How many.
        more: Further draws of other laws, each with its number.

    Example:
        >>> noise = SummedNoise(DiscreteLaplace.calibrated(1, 1.0), draws=1)
        >>> noise.margin(0.05), noise.threshold(0.01, among=40), noise.lead(0.05)
        (3, 8, 5)
    """

    noise: WholeNoise
    draws: int
    more: tuple[tuple[WholeNoise, int], ...] = ()

    @property
    def standard_deviation(self) -> float:
        """The sum's standard deviation."""
        return _deviation(self._parts)

    def reached(self, t: int) -> float:
        """Return P(sum >= t) for a t of 1 or more, never less than it is."""
        if self.draws == 1 and not self.more:
            return float(self.noise.reaches(t))
        unit, tails = _tails(self._parts)
        place = -(-t // unit)
        return (float(tails[place]) if place < tails.size else 0.0) + _SLACK

    def threshold(self, rate: float, among: int) -> int:
        """Return the least whole t that one of `among` sums reaches at this rate."""
        each = -math.expm1(math.log1p(-rate) / among)
        return _least(lambda t: self.reached(t) <= each)

    def margin(self, rate: float) -> int:
        """Return the least whole m with P(|sum| > m) <= rate."""
        return _least(lambda t: 2 * self.reached(t) <= rate) - 1

    def lead(self, rate: float) -> int:
        """Return the least whole lead by which two sums differ in `rate` of cases."""
        # The law is symmetric: a difference is a sum.
        more = tuple((noise, 2 * draws) for noise, draws in self.more)
        return SummedNoise(self.noise, 2 * self.draws, more).margin(rate) + 1

    @property
    def _parts(self) -> Parts:
        return ((self.noise, self.draws), *self.more)


def _least(holds: Callable[[int], bool]) -> int:
    """Return the least t of 1 or more for which this holds, and for all larger ones."""
    low, high = 0, 1
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _deviation(parts: Parts) -> float:
    return math.sqrt(sum(n * noise.standard_deviation**2 for noise, n in parts))


@lru_cache(maxsize=64)
def _tails(parts: Parts) -> tuple[int, NDArray[np.float64]]:
    """Return P(sum >= j units) for j = 0, 1, ..., and the unit.

    Where the unit is not 1 each draw is rounded up to whole units, so that no
    probability comes out too small.
    """
    largest = max(noise.standard_deviation for noise, _ in parts)
    reach = _ONE * largest + _ALL * _deviation(parts)
    unit = math.ceil(max(_ONE * largest / _CELLS, reach / _ALL_CELLS, 1.0))
    single = math.ceil(_ONE * largest / unit) + 1
    draws = sum(n for _, n in parts)
    half = 1 << math.ceil(math.log2(reach / unit + draws * (unit > 1) + 2))
    half = max(half, 2 * single)
    transformed: Any = 1.0
    for noise, count in parts:
        above = [noise.reaches(j * unit + 1) for j in range(-single - 1, single + 1)]
        law = np.zeros(2 * half)
        law[np.arange(-single, single + 1)] = -np.diff(above)
        transformed = transformed * np.fft.rfft(law) ** count
    summed = np.maximum(np.fft.irfft(transformed, 2 * half)[:half], 0.0)
    return unit, np.cumsum(summed[::-1])[::-1]
