"""Keywords in rank order from a public domain: the joint exponential mechanism.

Gillenwater, Joseph, Munoz Medina, Ribero, *A Joint Exponential Mechanism for
Differentially Private Top-k*, ICML 2022; Wu et al., ICLR 2024, Algorithm 4, Theorem 9.

Input         H(w), the number of answers with word w, over a public domain of d words;
              an answer counts a word once.
Neighbors     One unit touches one slot. `replace`: it changes from any answer, or none,
              to any other. `add_remove`: one slot appears or vanishes.
Sensitivity   A sequence s of k distinct words has the utility u(s) = -max_i (H(i) -
              H(s_i)), H(i) the i-th largest count. An answer adds 0 or 1 to each count,
              so each H(i) moves up by 0 or 1 and a difference by at most 1: Delta = 1
              (`add_remove`), or 2 (`replace`: a removal, then an addition).
Noise         s is drawn with probability proportional to exp(epsilon u(s) / (2 Delta)),
              exactly, among all d! / (d - k)! sequences, grouped by t = -u(s); see
              below.
Event         Exponential(epsilon, rate): pure epsilon, and bounded range.
What is free  The wording of the answer; nothing else is released.
Tested by     `tests/unit_tests/laws`: the law over all sequences, with half the noise
              as the twin; the loss between all small neighbors.
              `tests/mechanisms/test_releases.py`: large epsilon, large domains.

**How it is drawn.** Let A_i(t) be the words with H(w) >= H(i) - t and n_i(t) their
number. The sets are nested in i, so N_t = prod_i (n_i(t) - (i - 1)) sequences have u(s)
>= -t. N_t is an integer of some hundred digits and is kept as one. First t is drawn
with weight (N_t - N_(t-1)) exp(-epsilon t / (2 Delta)): a uniform real with lazily
drawn bits is compared with the cumulative weights, computed as precisely as that takes.
Then s uniformly among u(s) = -t: with i the first position that violates t - 1 (its
weight is again an integer), positions before i come from A_j(t - 1), position i from
A_i(t) without A_i(t - 1), later ones from A_j(t), skipping words already used. Those
lie in the set drawn from (before i and after it), or outside it (at i), so the number
of choices at each position is what the weight counts.
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
from mpmath import libmp

from langchain_dpicl.accounting.events import Charge, Exponential
from langchain_dpicl.common import parameters
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import inputs
from langchain_dpicl.mechanisms.exact import GUARD_BITS, Integers, Uniform
from langchain_dpicl.mechanisms.random import current

_FIRST_BITS = 64
_LOG2_E = Fraction(1442, 1000)
"""A little below log2(e), so that what is left out is overestimated."""


def charge(
    *,
    epsilon: float | None = None,
    sampling_rate: float = 1.0,
    name: str = "ksa/joint",
) -> Charge:
    """Return what `joint_top_k` costs: an exponential mechanism.

    Example:
        >>> charge(epsilon=0.5).parts[0].epsilon
        0.5
    """
    part = Exponential(epsilon=epsilon, sampling_rate=sampling_rate)
    return Charge(name=name, parts=(part,))


def sensitivity(relation: Relation | str) -> int:
    """Return the sensitivity of -max_i (H(i) - H(s_i)), for any words s: 1 or 2."""
    return 2 if inputs.is_replace(relation) else 1


def joint_top_k(
    counts: Sequence[int] | npt.NDArray[np.integer],
    k: int,
    paid: Exponential,
    relation: Relation | str,
) -> list[int]:
    """Release k distinct words of a public domain, the most frequent first.

    Takes O(d + k^2 * distinct counts) time and O(d) memory for d words.

    Args:
        counts: In how many slots' answers each word of the domain occurs, integers,
            shape `(d,)`. An answer counts a word once. The domain is public, never
            collected from answers.
        k: How many words to release, public.
        paid: The event that was charged.
        relation: How the slots of neighbors differ.

    Returns:
        Indices into `counts`, in the order of the ranks they stand for.

    Example:
        >>> joint_top_k([1, 900, 2, 3, 800], 2, Exponential(epsilon=1.0), "replace")
        [1, 4]
    """
    histogram = inputs.count_array("counts", counts)
    k = parameters.count(k, "k")
    if k > histogram.size:
        raise InvalidParameterError(
            f"k is {k}, but the domain has only {histogram.size} words. Enlarge the "
            "public domain or lower k."
        )
    rate = inputs.epsilon(paid, Exponential) / (2 * sensitivity(relation))
    levels = _Levels(histogram, k)
    return _draw_sequence(levels, _draw_loss(levels, rate))


class _Levels:
    """A histogram by level: distinct counts, ascending, and how many words reach each.

    `reaching` ends with 0; `top` is H(1), ..., H(k), and `span` H(1) - H(d). `words`
    has the words by rank; equal counts by their index.
    """

    def __init__(self, histogram: Integers, k: int) -> None:
        self.k = k
        self.words = np.argsort(-histogram, kind="stable")
        heights, sizes = np.unique(histogram, return_counts=True)
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


def _draw_loss(levels: _Levels, rate: Fraction) -> int:
    """Draw t with probability proportional to (N_t - N_(t-1)) exp(-rate t)."""

    @lru_cache(maxsize=2)
    def cumulative(bits: int) -> tuple[list[int], list[int]]:
        losses, numbers = _terms(levels, rate, bits)
        return losses, list(accumulate(_weights(losses, numbers, rate, bits)))

    def share(position: int, bits: int) -> int:
        # A position that is not listed at this precision is as good as the last.
        _, sums = cumulative(bits)
        return (sums[min(position, len(sums) - 1)] << bits) // sums[-1]

    first = current().getrandbits(_FIRST_BITS)
    uniform = Uniform(current(), first, _FIRST_BITS)
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


def _draw_sequence(levels: _Levels, loss: int) -> list[int]:
    """Draw uniformly among the sequences with utility of exactly -loss."""
    k = levels.k
    strict = [levels.choices(i, loss - 1) for i in range(k)]
    loose = [levels.choices(i, loss) for i in range(k)]
    before = list(accumulate(strict, int.__mul__, initial=1))
    after = list(accumulate(reversed(loose), int.__mul__, initial=1))[::-1]
    weights = [before[i] * (loose[i] - strict[i]) * after[i + 1] for i in range(k)]
    sums = list(accumulate(weights))
    first = bisect_right(sums, current().randrange(sums[-1]))

    ranks: dict[int, None] = {}
    for i in range(k):
        start = levels.within(i, loss - 1) if i == first else 0
        stop = levels.within(i, loss - 1 if i < first else loss)
        rank = current().randrange(start, stop)
        while rank in ranks:
            rank = current().randrange(start, stop)
        ranks[rank] = None
    return [int(levels.words[rank]) for rank in ranks]
