r"""The rounded Gaussian: exactly Gaussian noise for integers.

**What it is.** K = round(N) with N ~ N(0, s^2), s in grid steps: the integer k has
probability Phi((k + 1/2) / s) - Phi((k - 1/2) / s).

**Why it is private.** For integer q, q + round(N) = round(q + N): releasing a vector of
integers plus independent rounded Gaussians is post-processing of the continuous
Gaussian mechanism. With L2 sensitivity Delta (in grid steps) and s >= z Delta it is a
Gaussian mechanism of noise multiplier z, in any dimension, whatever s is.

**How it is drawn, exactly.** By inversion. The top bit of a 64-bit word is the sign;
the other 63 bits, v, are the leading bits of U ~ Uniform[0, 1), and |K| is the number
of thresholds F_j = P(|N| < j + 1/2) = erf((j + 1/2) / (s sqrt(2))) that are <= U,
j = 0, 1, ... (A sign on 0 changes nothing.) The thresholds are kept in fixed point,
A_j close to 2^63 F_j, and the error is bounded:

* `math.erf` of a 64-bit C library is within a few units of 2^-53 (MARGIN allows for
  2^8 of them), the argument's relative rounding error e moves erf by at most
  max_x(x * 2 exp(-x^2) / sqrt(pi)) * e < 0.5 e, e <= 2^-51, and truncation to an
  integer costs less than 1. Together |A_j - 2^63 F_j| < 2^13, against MARGIN = 2^18.
  The tests compare every threshold with a 200-bit computation.
* A word farther than MARGIN from all thresholds is decided by the table. Any other (one
  in 2^27 or more), and any in the tail beyond the table (one in 2^33), goes to
  `_resolve`, which draws further bits of the same U and compares at growing precision.

So the sampler has no total variation error, and nothing has to be added to delta for
it. (A table that decides every word would cost (cells + 1) 2^-64 a coordinate.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from langchain_dpicl.mechanisms.lazy_uniform import GUARD_BITS, LazyUniform
from langchain_dpicl.mechanisms.source import SecureRandom

# Bound on a threshold's error, in units of 2^-63, with a factor 2^5 to spare.
MARGIN = 1 << 18
_MAGNITUDE_BITS = 63
_UNIT = 2.0**_MAGNITUDE_BITS
_GUIDE_BITS = 16
_TABLE_SIGMAS = 6.5
# Above it a table would take more than 2 MB; draws go one by one instead.
_MAX_TABLE_SCALE = 2.0**15
_FEW = 64  # Fewer draws than this are quicker one by one than by building a table.
COUNT_SCALE = 512.0  # Least standard deviation of a count's noise, in grid steps.
_SQRT_2 = math.sqrt(2.0)
_SLACK = 1e-9
"""Relative error granted to `math.erfc`, a million times what C libraries show."""


@dataclass(frozen=True)
class RoundedGaussian:
    """K = round(N(0, scale^2)), drawn exactly.

    Args:
        scale: Standard deviation s of the Gaussian before rounding, in grid steps.
            Public.

    Example:
        >>> from langchain_dpicl.mechanisms import SecureRandom
        >>> RoundedGaussian(1000.0).draw(4, SecureRandom()).shape
        (4,)
        >>> RoundedGaussian(1000.0).upper_quantile(0.0227501)
        2000
    """

    scale: float

    def draw(self, count: int, random: SecureRandom) -> npt.NDArray[np.int64]:
        """Return `count` independent draws, in grid steps, shape `(count,)`."""
        words = random.words(count)
        if count <= _FEW or self.scale > _MAX_TABLE_SCALE:
            drawn = [self._from_word(word, random) for word in words.tolist()]
            return np.array(drawn, dtype=np.int64)
        return _table(self.scale).invert(words, random)

    def draw_one(self, random: SecureRandom) -> int:
        """Return one draw, in grid steps."""
        return self._from_word(random.bits(64), random)

    @property
    def standard_deviation(self) -> float:
        """K's standard deviation: near sqrt(scale^2 + 1/12), and less for tiny scales.

        Example:
            >>> round(RoundedGaussian(10.0).standard_deviation, 4)
            10.0042
        """
        if self.scale > 1:
            return math.sqrt(self.scale**2 + 1 / 12)
        # E K^2 = sum over t of 2 (2t + 1) P(K > t).
        return math.sqrt(2 * math.fsum((2 * t + 1) * self.tail(t) for t in range(12)))

    def tail(self, t: int) -> float:
        """Return P(K > t), to about ten digits."""
        return 0.5 * math.erfc((t + 0.5) / (self.scale * _SQRT_2))

    def upper_quantile(self, probability: float) -> int:
        """Return an integer t with P(K > t) <= probability, surely; near the least."""
        start = -NormalDist().inv_cdf(probability) * self.scale
        t = math.floor(start * (1 - _SLACK) - 0.5) - 1
        while self.tail(t) > probability * (1 - _SLACK):
            t += 1
        return t

    def _from_word(self, word: int, random: SecureRandom) -> int:
        """Invert one word without a table: guess |K|, then check both thresholds."""
        negative, v = word >> _MAGNITUDE_BITS, word & ((1 << _MAGNITUDE_BITS) - 1)
        j = self._guess(v)
        if j is None or not self._is_decided(v, j):
            j = _resolve(self.scale, v, random)
        return -j if negative else j

    def _guess(self, v: int) -> int | None:
        upper = 0.5 + v / (2 * _UNIT)
        if upper >= 1.0:
            return None
        return math.floor(NormalDist().inv_cdf(upper) * self.scale + 0.5)

    def _is_decided(self, v: int, j: int) -> bool:
        if j > _TABLE_SIGMAS * self.scale:
            return False
        # Of j = 0 the lower threshold is negative.
        above_lower = v >= _threshold(self.scale, j - 1) + MARGIN
        return above_lower and v < _threshold(self.scale, j) - MARGIN


def count_grid(sigma: float) -> tuple[int, RoundedGaussian]:
    """Return the grid for noise of standard deviation `sigma` on integer counts.

    The grid is finer than the integers so that the rounding is not seen in results:
    a count c becomes the integer weight * c, and the noise has s = weight * sigma >=
    512 steps. The weight is a power of two, so s is exact. It is public: it depends
    on sigma alone.

    Example:
        >>> count_grid(2.0)
        (256, RoundedGaussian(scale=512.0))
    """
    weight = 1 << max(0, math.ceil(math.log2(COUNT_SCALE / sigma)))
    return weight, RoundedGaussian(weight * sigma)


def _threshold(scale: float, j: int) -> int:
    return int(math.erf((j + 0.5) / (scale * _SQRT_2)) * _UNIT)


def _exact_threshold(scale: float, j: int) -> Callable[[int], int]:
    """Return F_j as a bound function for `LazyUniform`: error below 2 units."""

    def bound(bits: int) -> int:
        from mpmath import libmp  # 40 ms that almost no draw needs.

        precision = bits + GUARD_BITS
        root = libmp.mpf_sqrt(libmp.from_int(8), precision)
        width = libmp.mpf_mul(libmp.from_float(scale), root, precision)
        x = libmp.mpf_div(libmp.from_int(2 * j + 1), width, precision)
        return int(libmp.to_fixed(libmp.mpf_erf(x, precision), bits))

    return bound


def _resolve(scale: float, v: int, random: SecureRandom) -> int:
    """Return |K| for the U that starts with the 63 bits `v`, drawing more of it."""
    uniform = LazyUniform(random, v, _MAGNITUDE_BITS)
    low, high = -1, math.ceil(_TABLE_SIGMAS * scale)
    while not uniform.is_below(_exact_threshold(scale, high)):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if uniform.is_below(_exact_threshold(scale, middle)):
            high = middle
        else:
            low = middle
    return high


@dataclass(frozen=True)
class _Table:
    """Thresholds of one scale, and a guide from a word's top bits to its cell.

    Attributes:
        scale: The scale s.
        thresholds: A_j, ascending, shape `(cells,)`.
        lower: v >= lower[j] is surely at or above F_(j-1), shape `(cells + 1,)`.
        upper: v < upper[j] is surely below F_j; 0 for the tail beyond the table.
        guide: The cell that holds all words with these top bits, -1 if there is none.
    """

    scale: float
    thresholds: npt.NDArray[np.uint64]
    lower: npt.NDArray[np.uint64]
    upper: npt.NDArray[np.uint64]
    guide: npt.NDArray[np.int32]

    def invert(
        self, words: npt.NDArray[np.uint64], random: SecureRandom
    ) -> npt.NDArray[np.int64]:
        """Return K for each word, shape as `words`."""
        v = words & np.uint64((1 << _MAGNITUDE_BITS) - 1)
        cells = self.guide[v >> np.uint64(_MAGNITUDE_BITS - _GUIDE_BITS)]
        magnitudes = cells.astype(np.int64)
        unguided = np.flatnonzero(cells < 0)
        near = v[unguided]
        found = np.searchsorted(self.thresholds, near, side="right")
        magnitudes[unguided] = found
        decided = (self.lower[found] <= near) & (near < self.upper[found])
        for position in unguided[~decided]:
            magnitudes[position] = _resolve(self.scale, int(v[position]), random)
        negative = (words >> np.uint64(_MAGNITUDE_BITS)).astype(bool)
        signed: npt.NDArray[np.int64] = np.where(negative, -magnitudes, magnitudes)
        return signed


@lru_cache(maxsize=8)
def _table(scale: float) -> _Table:
    cells = math.ceil(_TABLE_SIGMAS * scale)
    thresholds = np.array([_threshold(scale, j) for j in range(cells)], np.uint64)
    margin = np.uint64(MARGIN)
    edge = np.zeros(1, np.uint64)
    lower = np.concatenate([edge, thresholds + margin])
    upper = np.concatenate([thresholds - margin, edge])
    width = np.uint64(1 << (_MAGNITUDE_BITS - _GUIDE_BITS))
    starts = np.arange(1 << _GUIDE_BITS, dtype=np.uint64) * width
    found = np.searchsorted(thresholds, starts, side="right")
    clean = (lower[found] <= starts) & (starts + (width - np.uint64(1)) < upper[found])
    guide = np.where(clean, found, -1).astype(np.int32)
    return _Table(scale, thresholds, lower, upper, guide)
