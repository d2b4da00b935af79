"""A uniform real number whose bits are drawn only as far as they are asked for.

The way to draw exactly from a distribution with irrational probabilities: compare
U ~ Uniform[0, 1) with the cumulative probabilities. Any finite number of bits of U
confines it to an interval; if a cumulative probability lies outside, the comparison
is decided for good, and if it lies inside, more bits are drawn and the probability is
computed more precisely. The result has the distribution of an infinitely precise U,
so nothing has to be added to a delta.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_dpicl.mechanisms.source import SecureRandom

TOLERANCE = 2  # How far, in units of the last bit, a bound function may be off.
# Extra bits that bound functions compute with, far more than they can lose.
GUARD_BITS = 64
_WORD_BITS = 64


class LazyUniform:
    """U ~ Uniform[0, 1), known to lie in [prefix, prefix + 1) / 2^bits.

    Example:
        >>> from langchain_dpicl.mechanisms import SecureRandom
        >>> u = LazyUniform(SecureRandom(), prefix=0b01, bits=2)
        >>> u.is_below(lambda bits: 2**bits * 3 // 4)
        True
    """

    def __init__(self, random: SecureRandom, prefix: int, bits: int) -> None:
        self._random = random
        self.prefix = prefix
        self.bits = bits

    def is_below(self, bound: Callable[[int], int]) -> bool:
        """Tell whether U < p, drawing as many further bits as that takes.

        For any number of bits `bound` returns an integer within `TOLERANCE` of p *
        2^bits. Later comparisons are with the same U.
        """
        while True:
            near = bound(self.bits)
            if self.prefix + 1 <= near - TOLERANCE:
                return True
            if self.prefix >= near + TOLERANCE:
                return False
            more = self._random.bits(_WORD_BITS)
            self.prefix = (self.prefix << _WORD_BITS) | more
            self.bits += _WORD_BITS
