"""Secret samples of units, drawn afresh for each draw, before anything is searched.

Private-kNN (Zhu, Yu, Chandraker, Wang 2020) samples before the neighbors are searched,
for labels of images. The order matters: in a search over everybody, sampled afterwards,
a unit that is not in the sample could change who else is found.

Privacy:
    *Unit and relation.* What one value of `unit_key` names; the slots of the sampled
    units differ as `Terms.relation` says. *Event.* The mechanism's own, on a sample of
    units at the rate q.

    Each unit tosses a coin of its own. Fix everybody else's coins, and let
    A be what is released of the slots of the sampled others, B the same with the unit
    among them: its slot holds other documents (or is one more), no other slot changes.
    Without the unit the release is A; with it, (1 - q) A + q B. That is the
    Poisson-subsampled mechanism, whatever the search does with the sampled units, and
    averaging over the others' coins can only lower a divergence (joint convexity). It
    needs that a unit that is not sampled leaves no trace, to the bit: see `index`.

    In a per-unit account every eligible unit pays, sampled or not: nobody knows who was
    in a sample, and the account does not either. A sample serves one charged release:
    two mechanisms on one sample are not two sampled mechanisms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from langchain_dpicl.mechanisms.random import SecureRandom


def poisson_sample(random: SecureRandom, n: int, rate: float) -> NDArray[np.int64]:
    """Return which of n units are in a fresh Poisson sample, in ascending order.

    Each unit compares a uniform 64-bit word w of its own with floor(rate * 2^64) and is
    in when w is smaller. Only the word's first byte is drawn for every unit; the other
    seven are drawn for the units whose first byte leaves it open (one in 256). That is
    the same distribution at an eighth of the random bits.

    Privacy:
        Inclusion is independent between units, with probability floor(q 2^64) / 2^64
        for a rate q: never above q, and below it by less than 2^-64. So an event with
        rate q is an upper bound. A sample of fixed size is not Poisson and must not be
        accounted as one: one unit in it is another unit out.
    """
    threshold = int(rate * 2.0**64)
    if threshold >= 1 << 64:
        return np.arange(n)
    first, rest = divmod(threshold, 1 << 56)
    words = random.words(-(-n // 8))
    heads = np.ascontiguousarray(words, np.uint64).view(np.uint8)[:n]
    candidates = np.flatnonzero(heads <= first)
    is_open = heads[candidates] == first
    tails = random.words(int(is_open.sum())) >> np.uint64(8)
    included = ~is_open
    included[is_open] = tails < np.uint64(rest)
    sample: NDArray[np.int64] = candidates[included]
    return sample
