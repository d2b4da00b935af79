"""Keywords in rank order from a public domain: the joint exponential mechanism.

Gillenwater, Joseph, Munoz Medina, Ribero, *A Joint Exponential Mechanism for
Differentially Private Top-k*, ICML 2022; Wu et al., ICLR 2024, Algorithm 4, Theorem 9.

1. *Sensitivity.* A sequence s of k distinct words of a public domain has the utility
   u(s) = -max_i (H(i) - H(s_i)), H(i) the i-th largest count. It moves by at most
   Delta = 1 (`ADD_REMOVE`) or 2 (`REPLACE`).
2. *Noise.* s is drawn with probability proportional to exp(epsilon u(s) / (2 Delta)),
   exactly: among all d! / (d - k)! sequences, grouped by t = -u(s).
   Let A_i(t) be the words with H(w) >= H(i) - t and n_i(t) their number. The sets are
   nested in i, so N_t = prod_i (n_i(t) - (i - 1)) sequences have u(s) >= -t. N_t is an
   integer of some hundred digits and is kept as one. First t is drawn with weight
   (N_t - N_(t-1)) exp(-epsilon t / (2 Delta)): a uniform real with lazily drawn bits
   is compared with the cumulative weights, computed as precisely as that takes. Then
   s uniformly among u(s) = -t: with i the first position that violates t - 1 (its
   weight is again an integer), positions before i come from A_j(t - 1), position i
   from A_i(t) without A_i(t - 1), later ones from A_j(t), skipping words already used.
   Those lie in the set drawn from (before i and after it), or outside it (at i), so
   the number of choices at each position is what the weight counts.
3. *Event* (`joint_template`). Exponential mechanism with parameter epsilon: pure
   epsilon, bounded range.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache, partial
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from langchain_dpicl.accounting.parts import ExponentialPart
from langchain_dpicl.accounting.template import EventTemplate
from langchain_dpicl.common import parameters
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import sensitivity
from langchain_dpicl.mechanisms.inputs import count_array
from langchain_dpicl.mechanisms.lazy_uniform import GUARD_BITS, LazyUniform
from langchain_dpicl.mechanisms.noise import ExponentialNoise
from langchain_dpicl.mechanisms.source import SecureRandom, checked_source

_DENSE = 1 << 20
_FIRST_BITS = 64
_LOG2_E = Fraction(1442, 1000)
"""A little below log2(e), so that what is left out is overestimated."""


def joint_template(
    mechanism: str, epsilon: float | None = None, *, sampling_rate: float = 1.0
) -> EventTemplate[ExponentialNoise]:
    """Return what `joint_top_k` is charged: an exponential mechanism.

    Example:
        >>> joint_template("ksa/joint", 0.5).events(1.0, 0.0)
        (Exponential(epsilon=0.5, count=1),)
    """
    part = ExponentialPart(epsilon)
    return EventTemplate(mechanism, (part,), ExponentialNoise, sampling_rate)


def joint_top_k(
    counts: Sequence[int] | npt.NDArray[np.integer],
    k: int,
    *,
    epsilon: float,
    relation: Relation | str,
    random: SecureRandom | None = None,
) -> list[int]:
    """Release k distinct words of a public domain, the most frequent first.

    Takes O(d + k^2 * distinct counts) time and O(d) memory for d words.

    Args:
        counts: In how many slots' answers each word of the domain occurs, integers,
            shape `(d,)`. An answer counts a word once. The domain is public, never
            collected from answers.
        k: How many words to release, public.
        epsilon: Privacy loss bound.
        relation: How the slots of neighbors differ.
        random: Source of the draws; None is the operating system's.

    Returns:
        Indices into `counts`, in the order of the ranks they stand for.

    Raises:
        InvalidParameterError: If an argument is malformed, or the domain has fewer than
            k words. Messages hold no count.

    Privacy:
        Unit and relation: one slot, as `relation` says. Sensitivity of the utility:
        1 under `ADD_REMOVE`, 2 under `REPLACE`. Noise: exponential mechanism over
        sequences, drawn exactly. Event: exponential mechanism with parameter
        epsilon: pure epsilon, bounded range. Source: ICML 2022 paper, Section 3;
        ICLR 2024 paper, Theorem 9.

    Example:
        >>> joint_top_k([1, 900, 2, 3, 800], 2, epsilon=1.0, relation="add_remove")
        [1, 4]
    """
    histogram = count_array(counts)
    k = parameters.count(k, "k")
    if k > histogram.size:
        raise InvalidParameterError(
            f"k is {k}, but the domain has only {histogram.size} words. Enlarge the "
            "public domain or lower k."
        )
    rate = Fraction(parameters.epsilon(epsilon))
    rate /= 2 * sensitivity.joint_utility(relation)
    source = checked_source(random)

    levels = _Levels(histogram, k)
    loss = _draw_loss(levels, rate, source)
    return _draw_sequence(levels, loss, source)


class _Levels:
    """A histogram by level: distinct counts, ascending, and how many words reach each.

    `reaching` ends with 0; `top` is H(1), ..., H(k), and `span` H(1) - H(d).
    """

    def __init__(self, histogram: npt.NDArray[np.int64], k: int) -> None:
        self._histogram = histogram
        self._members: dict[int, npt.NDArray[np.intp]] = {}
        self.k = k
        heights, sizes = _distinct(histogram)
        self.heights: list[int] = heights.tolist()
        self.reaching: list[int] = [*sizes[::-1].cumsum()[::-1].tolist(), 0]
        top = np.repeat(heights[::-1], np.minimum(sizes[::-1], k))
        self.top: list[int] = top[:k].tolist()
        self.span = self.heights[-1] - self.heights[0]

    def within(self, position: int, loss: int) -> int:
        """Return n_i(t): how many words have H(w) >= H(i) - t; positions from 0."""
        return self.reaching[bisect_left(self.heights, self.top[position] - loss)]

    def choices(self, position: int, loss: int) -> int:
        """Return how many words of A_i(t) the positions before i leave."""
        return self.within(position, loss) - position

    def sequences(self, loss: int) -> int:
        """Return N_t, the number of sequences with utility of at least -t."""
        return math.prod(self.choices(i, loss) for i in range(self.k))

    def word(self, rank: int) -> int:
        """Return the index of a word by rank from 0; equal counts by their index."""
        # `reaching` descends: the level is the last one that more than `rank` reach.
        level = bisect_left(self.reaching, -rank, key=lambda reach: -reach) - 1
        if level not in self._members:
            height = self.heights[level]
            self._members[level] = np.flatnonzero(self._histogram == height)
        return int(self._members[level][rank - self.reaching[level + 1]])


def _distinct(
    histogram: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the distinct counts, ascending, and how many words have each."""
    if int(histogram.max()) > _DENSE:
        heights, sizes = np.unique(histogram, return_counts=True)
        return heights, sizes.astype(np.int64)
    dense = np.bincount(histogram)
    present = np.flatnonzero(dense)
    return present.astype(np.int64), dense[present].astype(np.int64)


def _draw_loss(levels: _Levels, rate: Fraction, source: SecureRandom) -> int:
    """Draw t with probability proportional to (N_t - N_(t-1)) exp(-rate t)."""

    @lru_cache(maxsize=2)
    def cumulative(bits: int) -> tuple[list[int], list[int]]:
        losses, numbers = _terms(levels, rate, bits)
        return losses, list(accumulate(_weights(losses, numbers, rate, bits)))

    def share(position: int, bits: int) -> int:
        # A position that is not listed at this precision is as good as the last.
        _, sums = cumulative(bits)
        return (sums[min(position, len(sums) - 1)] << bits) // sums[-1]

    uniform = LazyUniform(source, source.bits(_FIRST_BITS), _FIRST_BITS)
    low, high = 0, len(cumulative(_FIRST_BITS)[0]) - 1
    while not uniform.is_below(partial(share, high)):
        low, high = high + 1, len(cumulative(uniform.bits)[0]) - 1
    while low < high:
        middle = (low + high) // 2
        if uniform.is_below(partial(share, middle)):
            high = middle
        else:
            low = middle + 1
    return cumulative(uniform.bits)[0][low]


def _terms(levels: _Levels, rate: Fraction, bits: int) -> tuple[list[int], list[int]]:
    """Return the losses t with N_t > N_(t-1), ascending, and N_t - N_(t-1).

    Losses so large that everything beyond them weighs less than a relative
    2^-(bits + GUARD_BITS) are left out; more bits list more of them.
    """
    # All sequences, at exp(-rate t) each, against those of loss 0.
    excess = (
        levels.sequences(levels.span).bit_length() - levels.sequences(0).bit_length()
    )
    cutoff = math.floor((excess + 1 + bits + GUARD_BITS) / (rate * _LOG2_E)) + 1
    # N_t changes only where H(i) - t meets a count that occurs.
    meets: set[int] = set()
    for top in set(levels.top):
        start = bisect_left(levels.heights, top - cutoff)
        stop = bisect_left(levels.heights, top + 1)
        meets.update(top - height for height in levels.heights[start:stop])
    losses: list[int] = []
    numbers: list[int] = []
    below = 0
    for loss in sorted(meets):
        total = levels.sequences(loss)
        if total > below:
            losses.append(loss)
            numbers.append(total - below)
        below = total
    return losses, numbers


def _weights(
    losses: list[int], numbers: list[int], rate: Fraction, bits: int
) -> list[int]:
    """Return integers proportional to numbers * exp(-rate losses), to `bits` bits.

    They are scaled so that the largest has at least bits + GUARD_BITS bits. Each is
    off by at most 2 units (a relative 2^-(precision - 2) before truncation to an
    integer, which costs up to 1), so a ratio of sums of up to 2^40 of them is off by
    less than 2^-bits.
    """
    from mpmath import libmp  # 40 ms; other mechanisms do without.

    precision = bits + GUARD_BITS
    slope = libmp.from_rational(-rate.numerator, rate.denominator, 2 * precision)
    floats = []
    for loss, number in zip(losses, numbers, strict=True):
        exponent = libmp.mpf_mul(slope, libmp.from_int(loss))
        decay = libmp.mpf_exp(exponent, precision + 2)
        floats.append(libmp.mpf_mul(libmp.from_int(number), decay, precision + 2))
    # An mpf is (sign, mantissa, exponent, bits of the mantissa).
    largest = max(value[2] + value[3] for value in floats)
    return [
        int(libmp.to_fixed(libmp.mpf_shift(value, -largest), precision + 1))
        for value in floats
    ]


def _draw_sequence(levels: _Levels, loss: int, source: SecureRandom) -> list[int]:
    """Draw uniformly among the sequences with utility of exactly -loss."""
    k = levels.k
    strict = [levels.choices(i, loss - 1) for i in range(k)]
    loose = [levels.choices(i, loss) for i in range(k)]
    before = list(accumulate(strict, int.__mul__, initial=1))
    after = list(accumulate(reversed(loose), int.__mul__, initial=1))[::-1]
    weights = [before[i] * (loose[i] - strict[i]) * after[i + 1] for i in range(k)]
    first = _draw_index(weights, source)

    ranks: dict[int, None] = {}
    for i in range(k):
        start = levels.within(i, loss - 1) if i == first else 0
        stop = levels.within(i, loss - 1 if i < first else loss)
        rank = start + source.below(stop - start)
        while rank in ranks:
            rank = start + source.below(stop - start)
        ranks[rank] = None
    return [levels.word(rank) for rank in ranks]


def _draw_index(weights: list[int], source: SecureRandom) -> int:
    """Draw an index with probability proportional to its integer weight."""
    sums = list(accumulate(weights))
    return bisect_right(sums, source.below(sums[-1]))
