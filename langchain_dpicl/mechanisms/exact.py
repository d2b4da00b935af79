"""Exact draws from laws with irrational probabilities, many at once.

One idea serves all. The first bits of a uniform U are a random word. Floating point
says between which thresholds of the law U lies. Where the word is farther than `MARGIN`
from both thresholds, that is decided. Any other word goes to `_cell` or `Uniform`: they
draw further bits of the same U and compare them with the thresholds at growing
precision. So the law has no error, and nothing is added to epsilon or delta.

*Why the margin suffices.* A word is rounded to 53 bits, at most 2^-53 off, and U is at
most 2^-63 above it. scipy's `erf` and numpy's `exp` are within a few units of 2^-53. A
rounded argument x (1 + e) moves erf by at most x erf'(x) e < e / 2, and e^-x by at most
x e^-x e < e / 2, with e < 2^-50. Together it is below 2^-49; the margin is 2^-40. An
error of the *guess* costs time only, as both of its thresholds are computed.

*Rounded Gaussian*, K = round(N(0, s^2)). For integers q, q + K = round(q + N): integers
of L2 sensitivity D plus independent K with s >= z D are post-processing of a Gaussian
mechanism of noise multiplier z, in any dimension. P(|K| <= j) = erf((j + 1/2) / (s
sqrt 2)); the sign is a bit of its own, and changes nothing at 0.

*Discrete Laplace*, P(K = k) proportional to e^(-|k| / s), s rational. Integers of L1
sensitivity D plus independent K with s >= D / epsilon are epsilon-DP, as P(K = k) /
P(K = k + j) <= e^(|j| / s) (Ghosh, Roughgarden, Sundararajan 2009). |K| is geometric,
P(G >= j) = e^(-j / s), with a fair sign, where minus zero is drawn again.

*Bernoulli(e^-g)*, g rational, is the first threshold of a geometric law.

No float has low bits that could give a count away (Mironov, CCS 2012): what is added to
counts are integers. Which words are decided late does not depend on data: noise is
drawn without them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from mpmath import libmp

from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import SecureRandom, current

MARGIN = 2.0**-40
MAX_SCALE = 1 << 50
"""Largest scale, and largest numerator of a discrete Laplace one: draws fit 64 bits."""

Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Bound: TypeAlias = Callable[[int], int]
"""n -> p 2^n for a probability p, off by less than 2."""

GUARD_BITS = 64  # Bits beyond what a comparison needs.
_CERTAIN = 2.0  # A chance that every word is below, farther than the margin.
_UNDERFLOW = 800.0  # e^-g is far below the margin from here on.
_SPLIT = 1 << 20  # Above this scale a geometric draw is made of two.
_FINEST = 512.0  # Least scale of noise on a grid finer than whole counts.
_LEAST_SCALE = Fraction(1, 1 << 20)
_SIGNIFICANT_BITS = 40
_SLACK = 1e-9
"""Relative error granted to `ndtr`, a million times what it shows."""


class Uniform:
    """U, uniform on [0, 1), known to lie in [prefix, prefix + 1) / 2^bits."""

    def __init__(self, source: SecureRandom, prefix: int, bits: int) -> None:
        self._source, self.prefix, self.bits = source, prefix, bits

    def is_below(self, bound: Bound) -> bool:
        """Return whether U < p, drawing as many further bits as that takes."""
        while True:
            near = bound(self.bits)
            if self.prefix + 1 <= near - 2:
                return True
            if self.prefix >= near + 2:
                return False
            self.prefix = (self.prefix << 64) | self._source.getrandbits(64)
            self.bits += 64


@dataclass(frozen=True)
class RoundedGaussian:
    """K = round(N(0, scale^2)), whole.

    Example:
        >>> RoundedGaussian(1000.0).draw(4).shape
        (4,)
        >>> RoundedGaussian(1000.0).upper_quantile(0.0227501)
        2000
    """

    scale: float
    """Standard deviation before rounding, in whole steps; public."""

    def draw(self, count: int) -> Integers:
        """Return independent draws, shape `(count,)`."""
        from scipy import special  # A third of a second that records do without.

        source = current()
        words = source.words(count)
        head = words & np.uint64((1 << 63) - 1)
        below = np.minimum(head * 2.0**-63, 1 - 2.0**-53)
        root = self.scale * math.sqrt(2)
        guess = np.floor(special.erfinv(below) * root + 0.5)
        sure = (guess == 0) | (special.erf((guess - 0.5) / root) + MARGIN <= below)
        sure &= below < special.erf((guess + 0.5) / root) - MARGIN
        drawn: Integers = guess.astype(np.int64)
        for place in np.flatnonzero(~sure).tolist():
            uniform = Uniform(source, int(head[place]), 63)
            drawn[place] = _cell(uniform, int(drawn[place]), self._bound)
        return np.where(words >> np.uint64(63), -drawn, drawn)

    def _bound(self, j: int) -> Bound:
        """Return P(|K| <= j) as a bound."""

        def bound(bits: int) -> int:
            precision = bits + GUARD_BITS
            root = libmp.mpf_sqrt(libmp.from_int(8), precision)
            width = libmp.mpf_mul(libmp.from_float(self.scale), root, precision)
            x = libmp.mpf_div(libmp.from_int(2 * j + 1), width, precision)
            return int(libmp.to_fixed(libmp.mpf_erf(x, precision), bits))

        return bound

    @property
    def standard_deviation(self) -> float:
        """K's standard deviation: near sqrt(scale^2 + 1/12), less for tiny scales."""
        if self.scale > 1:
            return math.sqrt(self.scale**2 + 1 / 12)
        # E K^2 = sum over t of 2 (2t + 1) P(K > t).
        t = np.arange(12)
        return math.sqrt(2 * math.fsum((2 * t + 1) * self.reaches(t + 1)))

    def reaches(self, t: Any) -> Any:
        """Return P(K >= t), to about fourteen digits; of one t or of an array."""
        from scipy import special

        return special.ndtr((0.5 - t) / self.scale)

    def upper_quantile(self, probability: float) -> int:
        """Return a t with P(K > t) <= probability, surely; near the least.

        Example:
            >>> DiscreteLaplace(Fraction(4)).upper_quantile(1e-6)
            52
        """
        start = -NormalDist().inv_cdf(probability) * self.scale
        t = math.floor(start * (1 - _SLACK) - 0.5) - 1
        while self.reaches(t + 1) > probability * (1 - _SLACK):
            t += 1
        return t


def count_grid(sigma: float) -> tuple[int, RoundedGaussian]:
    """Return a weight w and noise of w sigma: a test on counts, finer than whole.

    A count c becomes w c, and the noise has at least 512 steps. w is a power of two, so
    w sigma is exact, and public: it depends on sigma alone.

    Example:
        >>> count_grid(2.0)
        (256, RoundedGaussian(scale=512.0))
    """
    weight = 1 << max(0, math.ceil(math.log2(_FINEST / sigma)))
    return weight, RoundedGaussian(weight * sigma)


@dataclass(frozen=True)
class DiscreteLaplace:
    """Whole noise K with P(K = k) proportional to `exp(-|k| / scale)`.

    Raises:
        InvalidParameterError: If the scale is no `Fraction` above 0 with a numerator of
            at most 2^50.

    Example:
        >>> DiscreteLaplace(Fraction(3)).draw(3).shape
        (3,)
    """

    scale: Fraction
    """Public, and rational, so that a draw can be exact."""

    def __post_init__(self) -> None:
        # Callers without a type checker pass floats, whose exact value is rarely meant.
        if not isinstance(self.scale, Fraction) or not (
            0 < self.scale.numerator <= MAX_SCALE
        ):
            raise InvalidParameterError(
                "scale must be a Fraction above 0 with a numerator of at most 2**50: "
                "`DiscreteLaplace.calibrated` rounds to one."
            )

    @classmethod
    def calibrated(cls, sensitivity: int, epsilon: float | Fraction) -> DiscreteLaplace:
        """Return the noise that makes integers of an L1 sensitivity epsilon-DP.

        Its scale is sensitivity / epsilon, rounded up to forty bits, never down, and to
        2^-20 where epsilon is huge.

        Example:
            >>> DiscreteLaplace.calibrated(2, 0.5).scale
            Fraction(4, 1)
        """
        moved = parameters.count(sensitivity, "sensitivity")
        loss = parameters.epsilon(epsilon)
        given = epsilon if isinstance(epsilon, Fraction) else Fraction(loss)
        scale = max(moved / given, _LEAST_SCALE)
        if scale > MAX_SCALE:
            raise InvalidParameterError(
                f"epsilon = {loss:g} is too small for a sensitivity of {moved}: the "
                "noise would have a scale above 2**50. Raise epsilon, or lower the "
                "sensitivity."
            )
        whole = scale.numerator.bit_length() - scale.denominator.bit_length()
        grid = 1 << max(0, _SIGNIFICANT_BITS - whole)
        return cls(Fraction(math.ceil(scale * grid), grid))

    def draw(self, count: int) -> Integers:
        """Return independent draws, shape `(count,)`."""
        drawn = np.empty(0, np.int64)
        while drawn.size < count:
            # At most half are minus zero. Those that are too many are dropped, which is
            # no selection: draws are independent, and the first ones are kept.
            tries = 2 * (count - drawn.size) + 16
            magnitude = geometric(self.scale, tries)
            negative = current().integers(tries, 2).astype(bool)
            kept = ~negative | (magnitude != 0)
            signed = np.where(negative, -magnitude, magnitude)
            drawn = np.concatenate([drawn, signed[kept]])
        return drawn[:count]

    @property
    def standard_deviation(self) -> float:
        """K's standard deviation, sqrt(2 p) / (1 - p) for p = exp(-1 / scale)."""
        rate = float(1 / self.scale)
        return math.sqrt(2.0) * math.exp(-rate / 2) / -math.expm1(-rate)

    def reaches(self, t: int) -> float:
        """Return P(K >= t), to about fourteen digits."""
        if t <= 0:
            return 1.0 - self.reaches(1 - t)
        return math.exp(-t / self.scale) / (1.0 + math.exp(-1 / self.scale))

    def upper_quantile(self, probability: float) -> int:
        """Return a t with P(K > t) <= probability, surely; near the least.

        Example:
            >>> DiscreteLaplace(Fraction(4)).upper_quantile(1e-6)
            52
        """
        even = probability * (1.0 + math.exp(-1 / self.scale))
        t = math.floor(-math.log(even) * self.scale * (1 - _SLACK)) - 2
        while self.reaches(t + 1) > probability * (1 - _SLACK):
            t += 1
        return t


def geometric(scale: Fraction, count: int) -> Integers:
    """Return independent G with P(G >= j) = e^(-j / scale), shape `(count,)`.

    A large scale is split at B: G = B V + R, V geometric of scale / B, R below B with
    P(R = r) proportional to e^(-r / scale), by rejection.
    """
    if scale > _SPLIT:
        step = 1 << (math.ceil(scale).bit_length() - 18)
        return step * geometric(scale / step, count) + _rests(step, scale, count)
    source = current()
    words = source.words(count)
    # U is taken from the top: the cell of j is e^(-(j + 1) / s) <= 1 - U < e^(-j / s).
    above = np.maximum(words * 2.0**-64, 2.0**-64)
    width = float(scale)
    guess = np.floor(-np.log(above) * width)
    sure = (guess == 0) | (above < np.exp(-guess / width) - MARGIN)
    sure &= np.exp(-(guess + 1) / width) + MARGIN <= above
    drawn: Integers = guess.astype(np.int64)
    for place in np.flatnonzero(~sure).tolist():
        uniform = Uniform(source, (1 << 64) - 1 - int(words[place]), 64)
        drawn[place] = _cell(
            uniform,
            int(drawn[place]),
            lambda j: lambda bits: (1 << bits) - exp_bound((j + 1) / scale)(bits),
        )
    return drawn


def _rests(step: int, scale: Fraction, count: int) -> Integers:
    """Return independent R below `step`, P(R = r) proportional to e^(-r / scale)."""
    drawn = np.empty(0, np.int64)
    while drawn.size < count:
        tried = current().integers(count - drawn.size + 16, step)
        drawn = np.concatenate([drawn, tried[bernoulli_exp(tried, 1 / scale)]])
    return drawn[:count]


def bernoulli_exp(losses: Integers, slope: Fraction) -> npt.NDArray[np.bool_]:
    """Return independent trials that succeed with probability e^(-slope loss).

    Losses are 0 or more, shape `(d,)`; a loss of 0 always succeeds.
    """
    # A slope beyond a float's range makes every loss of 1 or more as good as infinite.
    rate = float(slope) if slope < _UNDERFLOW else _UNDERFLOW
    chances = np.exp(-np.minimum(losses * rate, _UNDERFLOW))
    chances[losses == 0] = _CERTAIN
    return bernoulli(chances, lambda place: exp_bound(int(losses[place]) * slope))


def bernoulli(chances: Floats, bound: Callable[[int], Bound]) -> npt.NDArray[np.bool_]:
    """Return independent trials of chances that are known to any precision.

    Args:
        chances: Off by far less than `MARGIN`, shape `(d,)`; beyond 1 is certain.
        bound: The chance of a place, exactly; it is called for hardly any.
    """
    source = current()
    words = source.words(chances.size)
    distance = words * 2.0**-64 - chances
    success: npt.NDArray[np.bool_] = distance < 0
    for place in np.flatnonzero(np.abs(distance) <= MARGIN).tolist():
        uniform = Uniform(source, int(words[place]), 64)
        success[place] = uniform.is_below(bound(place))
    return success


def exp_bound(gamma: Fraction) -> Bound:
    """Return e^-gamma as a bound."""

    def bound(bits: int) -> int:
        # The exponent's relative error is multiplied by gamma: its bits are added.
        precision = bits + GUARD_BITS + int(gamma).bit_length()
        power = libmp.from_rational(-gamma.numerator, gamma.denominator, precision)
        return int(libmp.to_fixed(libmp.mpf_exp(power, precision), bits))

    return bound


def _cell(uniform: Uniform, guess: int, bound: Callable[[int], Bound]) -> int:
    """Return the least j with U < F_j, by doubling steps from the guess and halving."""
    low, high, step = max(guess, 0) - 1, max(guess, 0), 1
    while not uniform.is_below(bound(high)):
        low, high, step = high, high + step, 2 * step
    while low >= 0 and uniform.is_below(bound(low)):
        low, high, step = max(low - step, -1), low, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        if uniform.is_below(bound(middle)):
            high = middle
        else:
            low = middle
    return high
