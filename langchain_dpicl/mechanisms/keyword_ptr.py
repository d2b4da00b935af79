"""Keywords by propose-test-release: the top-k set when it is stable, else nothing.

Wu, Panda, Wang, Mittal, *Privacy-Preserving In-Context Learning for Large Language
Models*, ICLR 2024, Algorithms 5 and 6, Theorems 10 and 11; Zhu, Wang, *Adaptive
Private-K-Selection*, AISTATS 2022.

Let H(1) >= H(2) >= ... be the keyword counts over all words that exist, so zeros
follow the words that were seen, and d_k = H(k) - H(k+1): the gap *below* the k words
that are released.

1. *Sensitivity.* d_k moves by at most Delta = 1 (`ADD_REMOVE`) or 2 (`REPLACE`), and
   if d_k > T = Delta the set of the k most frequent words is the same on all
   neighbors. max(T, d_k) has sensitivity Delta too.
2. *Noise.* Pass if max(T, d_k) + K - t > T, with K the rounded Gaussian of scale
   z Delta and t the least quantile of K *as drawn* with P(K > t) <= delta0.
3. *Event* (`ptr_template`). Gaussian(z) plus delta0. For neighbors x, x':
   if d_k(x) > T, both have the same top-k set, so both outputs are the same
   post-processing (the set or None) of a Gaussian mechanism on max(T, d_k); the same
   if d_k(x') > T. If neither exceeds T, both fail except with probability delta0.

*At every real eps*, as composing and sampling want it: let delta_G be the curve of the
Gaussian mechanism, P(S) - e^eps Q(S) <= delta_G(eps) for all real eps. In the first two
cases that holds for both outputs. In the last, both are None where K <= t, the same
noise for both, and whatever they like where K > t, with probability p <= delta0:

    P(M(x) in S) - e^eps P(M(x') in S)  <=  p + (1-p) max(0, 1 - e^eps)
                                        <=  delta0 + (1-delta0) delta_G(eps),

since no curve is below max(0, 1 - e^eps). This is the curve of a Gaussian mechanism
that fails altogether with probability delta0; what follows from it for samples is
proved at `accounting.Failure`.

*Fewer than k words seen.* Then H(k) = 0 = d_k, and every neighbor has d_k <= Delta = T:
the last case. Returning None even on a pass keeps both failing except with
probability delta0, and no set of fewer than k words ever leaves.

*A range of k* (`choose_k`). 1. Sensitivity of each d_k: Delta. 2. Noise: the
exponential mechanism with d_k as utility, by exact rejection: a float epsilon is a
rational, and so is the exponent of every trial. 3. Event (`ptr_range_template`):
exponential(epsilon), and then the test's. Two steps on one sample are not two sampled
ones: with sampled units k is given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from langchain_dpicl.accounting.parts import ExponentialPart, GaussianPart
from langchain_dpicl.accounting.template import EventTemplate
from langchain_dpicl.common import parameters
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import sensitivity
from langchain_dpicl.mechanisms.inputs import MAX_COUNT, count_mapping
from langchain_dpicl.mechanisms.rounded_gaussian import RoundedGaussian, count_grid
from langchain_dpicl.mechanisms.source import SecureRandom, checked_source

_MIN_DELTA0 = 1e-300
# Most values of k to choose from: each is looked at, after the charge.
MAX_CHOICES = 10_000
_BOUNDS = 2

# The part of the zCDP loss for choosing k; the rest is the test's.
SELECTION_SHARE = 0.2
SELECTION_RATIO = 2.0 * math.sqrt(SELECTION_SHARE / (1.0 - SELECTION_SHARE))


@dataclass(frozen=True)
class PTRNoise:
    """The noise of `ptr_top_k`, and of `choose_k` where k is chosen."""

    noise_multiplier: float
    """z = sigma / Delta of the test."""

    delta0: float
    """Bound on the probability that an unstable set passes."""

    selection_epsilon: float | None = None
    """Parameter of the exponential mechanism that chooses k; None: k is given."""


def ptr_template(
    mechanism: str,
    noise_multiplier: float | None = None,
    *,
    delta0: float | None = None,
    sampling_rate: float = 1.0,
) -> EventTemplate[PTRNoise]:
    """Return what `ptr_top_k` is charged for a given k: Gaussian(z) and delta0.

    Example:
        >>> template = ptr_template("ksa/ptr", 2.0)
        >>> template.read(template.events(1.0, delta0=1e-8))
        PTRNoise(noise_multiplier=2.0, delta0=1e-08, selection_epsilon=None)
    """
    part = GaussianPart(noise_multiplier)
    return EventTemplate(mechanism, (part,), PTRNoise, sampling_rate, True, delta0)


def ptr_range_template(
    mechanism: str,
    noise_multiplier: float | None = None,
    *,
    delta0: float | None = None,
    selection_epsilon: float | None = None,
    sampling_rate: float = 1.0,
) -> EventTemplate[PTRNoise]:
    """Return what `choose_k` and then `ptr_top_k` are charged together.

    Units must not be sampled: two steps on one sample are not two sampled ones.
    """
    parts = (
        ExponentialPart(selection_epsilon, SELECTION_RATIO),
        GaussianPart(noise_multiplier),
    )
    return EventTemplate(mechanism, parts, _range_noise, sampling_rate, True, delta0)


def _range_noise(
    selection_epsilon: float, noise_multiplier: float, delta0: float
) -> PTRNoise:
    return PTRNoise(noise_multiplier, delta0, selection_epsilon)


def ptr_top_k(
    counts: Mapping[str, int],
    k: int,
    *,
    noise_multiplier: float,
    delta0: float,
    relation: Relation | str,
    random: SecureRandom | None = None,
) -> frozenset[str] | None:
    """Release the set of the k most frequent words if a noisy gap test passes.

    Args:
        counts: In how many slots' answers each word occurs. An answer counts a word
            once. Words that are missing count 0; an empty mapping is fine.
        k: How many words to release, public.
        noise_multiplier: z = sigma / Delta of the test.
        delta0: Bound on the probability that an unstable set passes.
        relation: How the slots of neighbors differ.
        random: Source of the noise; None is the operating system's.

    Returns:
        The set, or None if the test fails. The set's iteration order says nothing
        about ranks: it is filled in alphabetical order. Sort it before use.

    Raises:
        InvalidParameterError: If an argument is malformed. Messages hold no word or
            count.

    Privacy:
        Unit and relation: one slot, as `relation` says. Sensitivity of the gap and
        threshold T: 1 under `ADD_REMOVE`, 2 under `REPLACE`. Noise: rounded Gaussian,
        sigma = z Delta, exact. Event: Gaussian(z), and delta0 added to delta for
        every use. Source: ICLR 2024 paper, Theorems 10 and 11.

    Example:
        >>> votes = {"cough": 90, "fever": 88, "rash": 1}
        >>> released = ptr_top_k(
        ...     votes, 2, noise_multiplier=2.0, delta0=1e-6, relation="replace"
        ... )
        >>> sorted(released)
        ['cough', 'fever']
    """
    ranked = count_mapping(counts)
    k = parameters.count(k, "k")
    test = _gap_test(noise_multiplier, delta0, relation)
    source = checked_source(random)

    gap = count_at(ranked, k) - count_at(ranked, k + 1)
    passed = test.passes(gap, test.noise.draw_one(source))
    if not passed or count_at(ranked, k) == 0:
        return None
    # A hash table's order depends on the order of insertion where words collide.
    return frozenset(sorted(word for word, _ in ranked[:k]))


def choose_k(
    counts: Mapping[str, int],
    k_range: tuple[int, int] | Sequence[int],
    *,
    epsilon: float,
    relation: Relation | str,
    random: SecureRandom | None = None,
) -> int:
    """Choose how many keywords to release, privately, where the gap is large.

    Args:
        counts: In how many slots' answers each word occurs; an empty mapping is fine.
        k_range: A tuple `(smallest, largest)`, both included; or any other sequence,
            a list or a `range`, of the values allowed. Public: it never depends on
            how many words were seen.
        epsilon: Privacy loss bound of the choice.
        relation: How the slots of neighbors differ.
        random: Source of the draws; None is the operating system's.

    Returns:
        k with probability proportional to exp(epsilon d_k / (2 Delta)), where
        d_k = H(k) - H(k+1), zeros beyond the words that were seen.

    Raises:
        InvalidParameterError: If an argument is malformed. Messages hold no word or
            count.

    Privacy:
        Unit and relation: one slot, as `relation` says. Sensitivity: of every d_k, 1
        under `ADD_REMOVE` and 2 under `REPLACE`. Noise: exponential mechanism by
        rejection: a uniform k is accepted with probability exp(-epsilon (d_max -
        d_k) / (2 Delta)), so the accepted one has the distribution above, exactly.
        Event: exponential mechanism with parameter epsilon: pure epsilon, bounded
        range. Source: McSherry, Talwar, FOCS 2007; ICLR 2024 paper, Algorithm 5.

    Example:
        >>> votes = {"cough": 9000, "fever": 8990, "rash": 1}
        >>> choose_k(votes, (1, 5), epsilon=1.0, relation="replace")
        2
    """
    ranked = count_mapping(counts)
    choices = _choices(k_range)
    slope = Fraction(parameters.epsilon(epsilon))
    slope /= 2 * sensitivity.keyword_gap(relation)
    source = checked_source(random)

    gaps = [count_at(ranked, k) - count_at(ranked, k + 1) for k in choices]
    largest = max(gaps)
    while True:
        position = source.below(len(choices))
        if source.bernoulli_exp(slope * (largest - gaps[position])):
            return choices[position]


def count_at(ranked: Sequence[tuple[str, int]], rank: int) -> int:
    """Return H(rank), ranks from 1: zero beyond the words that were seen."""
    return ranked[rank - 1][1] if rank <= len(ranked) else 0


def ptr_pass_rate(
    gap: float,
    *,
    noise_multiplier: float,
    delta0: float,
    relation: Relation | str,
) -> float:
    """Return the exact probability that `ptr_top_k` passes at a given true gap.

    For planning, on a gap H(k) - H(k+1) that is assumed or public: that of real data is
    private. The arguments are those of `ptr_top_k`; one that is out of its range is a
    `InvalidParameterError`.

    Returns:
        At most `delta0` for gaps of at most 1 (`ADD_REMOVE`) or 2 (`REPLACE`).

    Example:
        >>> noise = {"noise_multiplier": 2.0, "delta0": 1e-6}
        >>> round(ptr_pass_rate(20, **noise, relation="add_remove"), 4)
        1.0
    """
    test = _gap_test(noise_multiplier, delta0, relation)
    number = parameters.finite("gap", gap)
    if not 0 <= number <= MAX_COUNT:
        raise InvalidParameterError(
            f"gap must be between 0 and {MAX_COUNT}, not {number:g}."
        )
    return test.pass_rate(number)


def required_gap(
    *,
    noise_multiplier: float,
    delta0: float,
    relation: Relation | str,
    pass_rate: float = 0.95,
) -> float:
    """Return the true gap at which `ptr_top_k` passes with the given probability.

    The arguments are those of `ptr_top_k`, and a probability strictly between 0 and 1;
    one that is out of its range is a `InvalidParameterError`.

    Returns:
        The smallest such gap above the threshold 1 or 2, in answers; the same for all
        k. Counts are whole, so round it up to get a number of answers.

    Example:
        >>> gap = required_gap(noise_multiplier=2.0, delta0=1e-6, relation="add_remove")
        >>> round(gap, 1)
        13.8
    """
    test = _gap_test(noise_multiplier, delta0, relation)
    rate = parameters.delta(pass_rate, "pass_rate")
    # P(K > t - e) >= rate iff P(K > e - t - 1) <= 1 - rate, by symmetry.
    excess = max(1, test.quantile + test.noise.upper_quantile(1 - rate) + 1)
    return test.threshold + excess / test.weight


@dataclass(frozen=True)
class _GapTest:
    """The test in grid steps, `weight` an answer; everything in it is public.

    The threshold is T, in answers, and the quantile t with P(K > t) <= delta0.
    """

    threshold: int
    weight: int
    noise: RoundedGaussian
    quantile: int

    def passes(self, gap: int, noise: int) -> bool:
        tested = self.weight * max(self.threshold, gap) + noise
        return tested - self.quantile > self.weight * self.threshold

    def pass_rate(self, gap: float) -> float:
        excess = self.weight * (max(self.threshold, gap) - self.threshold)
        return self.noise.tail(math.floor(self.quantile - excess))


def _gap_test(
    noise_multiplier: float, delta0: float, relation: Relation | str
) -> _GapTest:
    z = parameters.noise_multiplier(noise_multiplier)
    bound = parameters.delta(delta0, "delta0")
    if bound < _MIN_DELTA0:
        raise InvalidParameterError(f"delta0 must be at least {_MIN_DELTA0:g}.")
    sigma = sensitivity.noise_scale(z, sensitivity.keyword_gap(relation))
    weight, noise = count_grid(sigma)
    threshold = sensitivity.ptr_threshold(relation)
    return _GapTest(threshold, weight, noise, noise.upper_quantile(bound))


def _choices(k_range: tuple[int, int] | Sequence[int]) -> Sequence[int]:
    too_many = InvalidParameterError(f"k_range must hold at most {MAX_CHOICES} values.")
    try:
        if len(k_range) > MAX_CHOICES:
            raise too_many
        values = [parameters.count(k, "k_range") for k in k_range]
    except TypeError:
        raise InvalidParameterError(
            "k_range must be a tuple (smallest, largest) or a sequence of integers."
        ) from None
    if isinstance(k_range, tuple) and len(values) == _BOUNDS:
        smallest, largest = values
        if smallest > largest:
            raise InvalidParameterError(
                f"k_range must be (smallest, largest), not ({smallest}, {largest})."
            )
        if largest - smallest >= MAX_CHOICES:
            raise too_many
        return range(smallest, largest + 1)
    if not values:
        raise InvalidParameterError("k_range must hold at least one value.")
    return sorted(set(values))
