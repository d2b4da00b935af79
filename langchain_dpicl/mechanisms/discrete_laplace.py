"""The discrete Laplace distribution: exact noise for integers, with pure epsilon.

**What it is.** P(K = k) is proportional to exp(-|k| / scale), for all integers k.

**Why it is private.** P(K = k) / P(K = k + j) <= exp(|j| / scale). Integers whose L1
sensitivity is Delta, plus independent draws with scale >= Delta / epsilon, are
therefore pure epsilon-DP, in any dimension: the geometric mechanism (Ghosh,
Roughgarden, Sundararajan, *Universally Utility-Maximizing Privacy Mechanisms*, 2009).

**How it is drawn, exactly.** Canonne, Kamath and Steinke, *The Discrete Gaussian for
Differential Privacy*, NeurIPS 2020, Algorithm 2. The scale is a rational t / s.

* U uniform on 0 .. t - 1, kept with probability exp(-U / t); V the number of successes
  before the first failure among trials of probability exp(-1). X = U + t V then has
  P(X = x) proportional to exp(-x / t): each x is one pair (U, V).
* Y = floor(X / s) has P(Y = y) proportional to exp(-y s / t): X falls in a run of s
  values.
* A fair sign, where minus zero is drawn again so that zero does not count twice.

All draws are integers, and the trials compare irrational probabilities without error
(`exponential_trials.py`), so that there is no float whose low bits could give a tally
away (Mironov, CCS 2012) and nothing to add to epsilon. Whether a draw is rejected does
not depend on data: noise is drawn without them.

**What fits 64 bits.** t is at most 2^50, so X is below 2^62 unless V reaches 2^12,
which has probability exp(-4096): it never happens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.exponential_trials import succeed_exp
from langchain_dpicl.mechanisms.source import SecureRandom

MAX_SCALE = 1 << 50  # Largest scale, and largest numerator of a scale.
# Smallest scale that `calibrated` returns: the noise is 0 but for exp(-2^20).
MIN_SCALE = Fraction(1, 1 << 20)
_MAX_DENOMINATOR = 1 << 62
# The scale that `calibrated` returns is too large by a factor of 1 + 2^-39 at most.
_SIGNIFICANT_BITS = 40
_SPARE = 16  # Draws made beyond what is expected to do, so that a second round is rare.
_ONE = Fraction(1)


@dataclass(frozen=True)
class DiscreteLaplace:
    """Noise K with P(K = k) proportional to `exp(-|k| / scale)`, drawn exactly.

    Args:
        scale: A positive rational, public. Both its terms must fit 64-bit draws:
            a numerator of at most 2^50 and a denominator of at most 2^62.

    Raises:
        InvalidParameterError: If the scale is out of that range.

    Privacy:
        Releasing integers of L1 sensitivity Delta plus independent draws is pure
        epsilon-DP for epsilon = Delta / scale.

    Example:
        >>> from langchain_dpicl.mechanisms import SecureRandom
        >>> noise = DiscreteLaplace.calibrated(sensitivity=2, epsilon=0.5)
        >>> noise
        DiscreteLaplace(scale=Fraction(4, 1))
        >>> noise.draw(3, SecureRandom()).shape
        (3,)
    """

    scale: Fraction

    def __post_init__(self) -> None:
        # Callers without a type checker pass floats, whose exact value is rarely meant.
        if not isinstance(self.scale, Fraction):
            raise InvalidParameterError(
                f"scale must be a Fraction, not {type(self.scale).__name__}. "
                "`DiscreteLaplace.calibrated` finds it."
            )
        drawable = 0 < self.scale.numerator <= MAX_SCALE
        if not drawable or self.scale.denominator > _MAX_DENOMINATOR:
            raise InvalidParameterError(
                "scale must be greater than 0, with a numerator of at most 2**50 and a "
                "denominator of at most 2**62. `DiscreteLaplace.calibrated` rounds to "
                "such a scale."
            )

    @classmethod
    def calibrated(cls, sensitivity: int, epsilon: float) -> DiscreteLaplace:
        """Return the noise that makes integers of an L1 sensitivity epsilon-DP.

        Its scale is sensitivity / epsilon, rounded up to forty bits, never down, and to
        `MIN_SCALE` where epsilon is huge.

        Raises:
            InvalidParameterError: If an argument is out of its range, or the scale
                would
            exceed 2^50.

        Privacy:
            scale >= sensitivity / epsilon, in exact arithmetic on the float epsilon.
            Event: pure epsilon.

        Example:
            >>> DiscreteLaplace.calibrated(1, 1e9).scale
            Fraction(1, 1048576)
        """
        moved = parameters.count(sensitivity, "sensitivity")
        loss = parameters.epsilon(epsilon)
        exact = Fraction(moved) / Fraction(loss)
        if exact > MAX_SCALE:
            raise InvalidParameterError(
                f"epsilon = {loss:g} is too small for a sensitivity of {moved}: the "
                "noise would have a scale above 2**50. Raise epsilon, or lower the "
                "sensitivity."
            )
        exact = max(exact, MIN_SCALE)
        # The bits before the point; negative for leading zeros after it.
        whole = exact.numerator.bit_length() - exact.denominator.bit_length()
        grid = 1 << max(0, _SIGNIFICANT_BITS - whole)
        return cls(Fraction(math.ceil(exact * grid), grid))

    @property
    def standard_deviation(self) -> float:
        """The noise's standard deviation, sqrt(2 p) / (1 - p) for p = exp(-1 / scale).

        Example:
            >>> round(DiscreteLaplace(Fraction(10)).standard_deviation, 3)
            14.136
        """
        rate = float(1 / self.scale)
        return math.sqrt(2.0) * math.exp(-rate / 2) / -math.expm1(-rate)

    def probability(self, k: int) -> float:
        """Return `P(K = k) = (1 - p) / (1 + p) p^|k|`, to about fourteen digits.

        Example:
            >>> DiscreteLaplace(Fraction(1)).probability(0) == math.tanh(0.5)
            True
        """
        return math.tanh(float(1 / (2 * self.scale))) * math.exp(-abs(k) / self.scale)

    def tail(self, t: int) -> float:
        """Return P(K > t), to about fourteen digits.

        Example:
            >>> DiscreteLaplace(Fraction(1)).tail(-1) > 0.5
            True
        """
        if t < 0:
            return 1.0 - self.tail(-t - 1)
        lost = math.exp(-(t + 1) / self.scale)
        return lost / (1.0 + math.exp(-1 / self.scale))

    def draw(self, count: int, random: SecureRandom) -> npt.NDArray[np.int64]:
        """Return `count` independent draws, shape `(count,)`."""
        drawn = [np.empty(0, np.int64)]
        missing = parameters.count(count, "count", minimum=0)
        while missing:
            # At most half are minus zero; those that are too many are dropped, which
            # is no selection: draws are independent, and the first ones are kept.
            some = self._accepted(2 * missing + _SPARE, random)[:missing]
            drawn.append(some)
            missing -= some.size
        return np.concatenate(drawn)

    def _accepted(self, tries: int, random: SecureRandom) -> npt.NDArray[np.int64]:
        """Return what is left of so many tries, in order, unselected by value."""
        t, s = self.scale.numerator, self.scale.denominator
        remainders = random.integers(tries, t)
        remainders = remainders[succeed_exp(remainders, Fraction(1, t), random)]
        magnitudes = (remainders + t * _runs(remainders.size, random)) // s
        negative = random.integers(magnitudes.size, 2).astype(np.bool_)
        signed = np.where(negative, -magnitudes, magnitudes)
        accepted: npt.NDArray[np.int64] = signed[~negative | (magnitudes != 0)]
        return accepted


def _runs(count: int, random: SecureRandom) -> npt.NDArray[np.int64]:
    """Return numbers of trials of probability exp(-1) that succeed before one fails."""
    lengths = np.zeros(count, np.int64)
    running = np.arange(count)
    while running.size:
        came = succeed_exp(np.ones(running.size, np.int64), _ONE, random)
        running = running[came]
        lengths[running] += 1
    return lengths
