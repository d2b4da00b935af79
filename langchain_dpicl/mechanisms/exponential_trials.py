"""Many trials of irrational probabilities at once, exactly.

**What it is.** Independent Bernoulli trials of probabilities p_i. Trial i compares
U_i ~ Uniform[0, 1) with p_i; the first 64 bits of U_i are a random word. `succeed_exp`
has p_i = exp(-slope l_i) for nonnegative integers l_i, the losses, and a rational
slope; `succeed` has whatever its caller can compute.

**How it is exact.** p_i is computed in floating point, with a bounded error. A word
farther than MARGIN = 2^-40 from it is decided; any other (one in 2^39) draws further
bits of the same U_i and compares at growing precision. So the trials have no error, and
nothing is added to epsilon.

**Why the margin is wide enough.** The word is rounded to 53 bits and truncated from U_i
at the 64th. In `succeed_exp`, slope and loss are each rounded once and so is their
product, e <= 2^-51 relative, which moves exp(-gamma) by at most max(gamma exp(-gamma))
e < 2^-52; `numpy.exp` is within a few units of 2^-53. MARGIN allows for a thousand
times all of that. Other callers of `succeed` argue likewise.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from langchain_dpicl.mechanisms.lazy_uniform import GUARD_BITS, LazyUniform
from langchain_dpicl.mechanisms.source import SecureRandom

MARGIN = 2.0**-40  # Bound on the error of a probability and a word together.
_WORD_BITS = 64
_UNDERFLOW = 800.0  # exp(-gamma) is far below the margin from here on.
_CERTAIN = 2.0  # A chance that every word is below, farther than the margin.


def succeed_exp(
    losses: npt.NDArray[np.int64], slope: Fraction, random: SecureRandom
) -> npt.NDArray[np.bool_]:
    """Return independent trials, true with probability exp(-slope * loss), exactly.

    Losses are nonnegative integers, shape `(d,)`, as the result's; a loss of 0 always
    succeeds. The slope is a positive rational.

    Example:
        >>> from fractions import Fraction
        >>> from langchain_dpicl.mechanisms import SecureRandom
        >>> losses = np.array([0, 10**6])
        >>> succeed_exp(losses, Fraction(1, 3), SecureRandom()).tolist()
        [True, False]
    """
    # A slope beyond a float's range makes every loss of 1 or more as good as infinite.
    rate = float(slope) if slope < _UNDERFLOW else _UNDERFLOW
    chances = np.exp(-np.minimum(losses * rate, _UNDERFLOW))
    chances[losses == 0] = _CERTAIN

    def exact(position: int) -> Callable[[int], int]:
        return _exact_chance(int(losses[position]) * slope)

    return succeed(losses.size, chances, exact, random)


def succeed(
    count: int,
    chances: float | npt.NDArray[np.float64],
    exact: Callable[[int], Callable[[int], int]],
    random: SecureRandom,
) -> npt.NDArray[np.bool_]:
    """Return independent trials of probabilities that are known to any precision.

    The chances, shape `(count,)` or the one of all, are wrong by far less than
    `MARGIN`; beyond 1 by more than it is certain. `exact` leads from a trial's position
    to its probability as a bound function for `LazyUniform`, and is called for hardly
    any trial.

    Example:
        >>> from langchain_dpicl.mechanisms import SecureRandom
        >>> third = lambda position: lambda bits: 2**bits // 3
        >>> succeed(5, 1 / 3, third, SecureRandom()).shape
        (5,)
    """
    words = random.words(count)
    distance = words * 2.0**-_WORD_BITS - chances
    succeeded: npt.NDArray[np.bool_] = distance < 0
    for position in np.flatnonzero(np.abs(distance) <= MARGIN).tolist():
        uniform = LazyUniform(random, int(words[position]), _WORD_BITS)
        succeeded[position] = uniform.is_below(exact(position))
    return succeeded


def _exact_chance(gamma: Fraction) -> Callable[[int], int]:
    """Return exp(-gamma) as a bound function for `LazyUniform`: error below 2 units."""

    def bound(bits: int) -> int:
        from mpmath import libmp  # 40 ms that almost no draw needs.

        # The exponent's relative error is multiplied by gamma: its bits are added.
        whole = int(gamma).bit_length()
        precision = bits + GUARD_BITS
        exponent = libmp.from_rational(
            -gamma.numerator, gamma.denominator, precision + whole
        )
        return int(libmp.to_fixed(libmp.mpf_exp(exponent, precision), bits))

    return bound
