"""Many trials of probability exp(-gamma) at once, exactly.

**What it is.** For losses l_i, nonnegative integers, and a rational slope: independent
Bernoulli trials of probability p_i = exp(-slope l_i). Trial i compares U_i ~ Uniform[0,
1) with p_i; the first 64 bits of U_i are a random word.

**How it is exact.** p_i is computed in floating point. Its error is bounded: slope and
loss are each rounded once and so is their product, e <= 2^-51 relative, which moves
exp(-gamma) by at most max(gamma exp(-gamma)) e < 2^-52; `numpy.exp` is within a few
units of 2^-53; the word is rounded to 53 bits and truncated from U_i at the 64th.
MARGIN = 2^-40 allows for a thousand times all of that. A word farther than MARGIN from
p_i is decided; any other (one in 2^39) draws further bits of the same U_i and compares
at growing precision. So the trials have no error, and nothing is added to epsilon.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from langchain_dpicl.mechanisms.lazy_uniform import GUARD_BITS, LazyUniform

if TYPE_CHECKING:
    from collections.abc import Callable
    from fractions import Fraction

    import numpy.typing as npt

    from langchain_dpicl.mechanisms.source import SecureRandom

MARGIN = 2.0**-40
"""Bound on the error of a probability and a word together."""

_WORD_BITS = 64
_UNDERFLOW = 800.0
"""exp(-gamma) is far below the margin from here on."""


def succeed_exp(
    losses: npt.NDArray[np.int64], slope: Fraction, random: SecureRandom
) -> npt.NDArray[np.bool_]:
    """Return independent trials, true with probability exp(-slope * loss), exactly.

    Args:
        losses: Nonnegative integers, shape `(d,)`. A loss of 0 always succeeds.
        slope: A positive rational.
        random: Source of the draws.

    Returns:
        What came of each trial, shape `(d,)`.

    Example:
        >>> from fractions import Fraction
        >>> from langchain_dpicl.mechanisms import SecureRandom
        >>> losses = np.array([0, 10**6])
        >>> succeed_exp(losses, Fraction(1, 3), SecureRandom()).tolist()
        [True, False]
    """
    words = random.words(losses.size)
    # A slope beyond a float's range makes every loss of 1 or more as good as infinite.
    rate = float(slope) if slope < _UNDERFLOW else _UNDERFLOW
    chances = np.exp(-np.minimum(losses * rate, _UNDERFLOW))
    distance = words * 2.0**-_WORD_BITS - chances
    succeeded: npt.NDArray[np.bool_] = (distance < 0) | (losses == 0)
    near = (np.abs(distance) <= MARGIN) & (losses != 0)
    for position in np.flatnonzero(near):
        uniform = LazyUniform(random, int(words[position]), _WORD_BITS)
        exact = _exact_chance(int(losses[position]) * slope)
        succeeded[position] = uniform.is_below(exact)
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
