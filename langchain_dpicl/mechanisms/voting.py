"""Noisy votes: a histogram over public bins, and when a label of it is an answer.

Wu, Panda, Wang, Mittal, *Privacy-Preserving In-Context Learning for Large Language
Models*, ICLR 2024, Algorithm 1 and Theorem 3.

Input         m slots. A slot with records is in exactly one public bin: a label, or a
              reason ("none", "unreadable", "failed"). One without records is in none.
              The bin follows from the slot's own reply, or from its own figures and
              public ones: with no mean or scale over slots, it is one vote either way.
Neighbors     One unit touches one slot. `replace`: it changes from any answer, or none,
              to any other. `add_remove`: one slot appears or vanishes.
Sensitivity   L2: sqrt 2 (one vote moves from bin to bin), and 1. Both are reached.
Noise         Independent K = round(N(0, sigma^2)), whole votes, sigma = z times the
              sensitivity, rounded up: post-processing of the Gaussian mechanism (see
              `exact`). All bins get noise in one vector.
Event         Gaussian(z, rate), for all bins together.
What is free  The winner, the leads, the reasons, `least_votes`, `lead_over_a_tie`:
              functions of the noisy counts and of public numbers.
Tested by     `tests/unit_tests/laws`: the noise, with half of it as the twin; both
              sensitivities by enumeration; the 1 % and the 5 % from the exact law, with
              the quantiles of real noise as the twin.

**The thresholds hold for whole noise.** A label nobody used reaches t with P(K >= t) =
Q((t - 1/2) / sigma), whatever others have; one of L reaches it with 1 - (1 - P)^L. The
lead of one of two equal bins is a difference of two whole noises, whose law is a sum;
where more than two are equal, each leads all others less often. The quantiles of real
noise are too low: 1.2 % for 2 labels at sigma = 5, 4.3 % for 7 at sigma = 1; a tie
comes out in up to 8 % of cases.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from langchain_dpicl.accounting.events import Charge, Gaussian
from langchain_dpicl.common.units import Relation
from langchain_dpicl.mechanisms import inputs
from langchain_dpicl.mechanisms.exact import Floats, Integers, RoundedGaussian

NOBODY = 0.01
"""How often some label may come out that no group chose."""

TIE = 0.05
"""How often one of two bins with the same votes may come out."""

OTHER_BINS = 3
"""Of a vote: "none of these", unreadable replies, failed calls."""

_WIDTH = 9.5  # Beyond so many sigma lies less than 1e-20.
_LARGE = 1024.0  # Of noise above it the law is not listed number by number.


def charge(
    *,
    noise_multiplier: float | None = None,
    sampling_rate: float = 1.0,
    name: str = "vote/gaussian",
) -> Charge:
    """Return what `noisy_counts` costs: one Gaussian.

    Example:
        >>> charge(noise_multiplier=2.0, sampling_rate=0.1).parts[0].noise_multiplier
        2.0
    """
    part = Gaussian(noise_multiplier=noise_multiplier, sampling_rate=sampling_rate)
    return Charge(name=name, parts=(part,))


def sensitivity(relation: Relation | str) -> float:
    """Return the L2 sensitivity of a histogram of votes: 1 or sqrt 2, rounded up."""
    return inputs.root(2 if inputs.is_replace(relation) else 1)


def sigma(paid: Gaussian, relation: Relation | str) -> float:
    """Return the standard deviation of the noise that was paid, in votes."""
    return inputs.at_least(inputs.noise_multiplier(paid), sensitivity(relation))


def noisy_counts(
    votes: Sequence[int] | npt.NDArray[np.integer],
    paid: Gaussian,
    relation: Relation | str,
) -> Integers:
    """Release a histogram of votes over public bins: the votes plus whole noise.

    Args:
        votes: Votes per bin, integers, shape `(C,)`. Each slot has added at most 1 to
            at most one of them.
        paid: The event that was charged.
        relation: How the slots of neighbors differ.

    Returns:
        Noisy votes, integers, shape `(C,)`. They may be negative.

    Example:
        >>> noisy_counts([30, 9, 1], Gaussian(noise_multiplier=1.0), "replace").shape
        (3,)
    """
    counts = inputs.count_array("votes", votes)
    noisy: Integers = counts + RoundedGaussian(sigma(paid, relation)).draw(counts.size)
    return noisy


def least_votes(sigma: float, labels: int) -> int:
    """Return the least t that a label without votes reaches in 1 % of cases at most.

    It holds for any set of unused labels among `labels`, whatever the others have.

    Example:
        >>> least_votes(5.0, labels=2)
        14
    """
    # Of so many labels that the rate is 1 there is a quantile all the same.
    share = -math.expm1(math.log1p(-NOBODY) / labels)
    return RoundedGaussian(sigma).upper_quantile(share) + 1


@functools.lru_cache(maxsize=256)
def lead_over_a_tie(sigma: float, labels: int = 2) -> int:
    """Return the least lead that comes out of a tie in 5 % of cases at most.

    Of the two bins that tie, two are `labels`, or one is and one is another bin, such
    as "none of these", which can't come out.

    Example:
        >>> lead_over_a_tie(5.0), lead_over_a_tie(5.0, labels=1)
        (15, 13)
    """
    share = TIE / labels
    if sigma > _LARGE:
        # K - K' >= lead only if the noises before rounding differ by lead - 1.
        quantile = -NormalDist().inv_cdf(share) * sigma * math.sqrt(2)
        return math.ceil(quantile + 1)
    k, law = _law(sigma)
    noise = RoundedGaussian(sigma)
    return _least(lambda lead: float(law @ noise.reaches(k + lead)) <= share)


def required_lead(
    labels: int, *, sigma: float, min_lead: float = 0.0, pass_rate: float = 0.95
) -> int:
    """Return the least lead with which a label comes out in `pass_rate` of questions.

    It holds however many groups have no records: the winner has the lead alone, and the
    other labels and the `OTHER_BINS` have nothing. With more votes on both sides it
    comes out at least as often. `min_lead` is the least noisy lead over every other
    label; over another bin it is that of a label out of a tie with it, at least. Equal
    labels are taken for lost, although one of them comes out.

    Example:
        >>> 21 < required_lead(10, sigma=4.1) < 24
        True
    """
    if sigma > _LARGE:
        shrunk = min_lead * _LARGE / sigma
        lead = required_lead(labels, sigma=_LARGE, min_lead=shrunk, pass_rate=pass_rate)
        return math.ceil(lead * sigma / _LARGE) + 1
    k, law = _law(sigma)
    noise = RoundedGaussian(sigma)
    least = least_votes(sigma, labels)
    over = max(1, math.ceil(min_lead))
    over_none = max(math.ceil(min_lead), lead_over_a_tie(sigma, labels=1))

    def rate(lead: int) -> float:
        # P(K <= m) = P(K >= -m).
        beats = noise.reaches(over - lead - k) ** (labels - 1)
        ahead = noise.reaches(over_none - lead - k) ** OTHER_BINS
        return float(law @ np.where(lead + k >= least, beats * ahead, 0.0))

    return _least(lambda lead: rate(lead) >= pass_rate)


def _least(holds: Callable[[int], bool]) -> int:
    """Return the least t of 0 or more for which this holds, and for all larger ones."""
    low, high = -1, 1
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


@functools.lru_cache(maxsize=16)
def _law(sigma: float) -> tuple[Floats, Floats]:
    """Return whole numbers and the probability of each as noise."""
    k = np.arange(-math.ceil(_WIDTH * sigma) - 1, math.ceil(_WIDTH * sigma) + 2.0)
    noise = RoundedGaussian(sigma)
    return k, noise.reaches(np.abs(k)) - noise.reaches(np.abs(k) + 1)
