"""Selection with pure differential privacy: the number of keywords, or one candidate.

Both mechanisms accept a candidate c with probability exp(-epsilon (u_max - u_c) / (2
Delta)). The exponent is an exact rational (a float is one), and the trial is exact
(`SecureRandom.bernoulli_exp`), so no floating-point Gumbel or exponential noise is
involved.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from langchain_dpicl import parameters
from langchain_dpicl.mechanisms import sensitivity as sensitivities
from langchain_dpicl.mechanisms.inputs import count_mapping, exact_scores
from langchain_dpicl.mechanisms.keyword_ptr import count_at
from langchain_dpicl.mechanisms.source import checked_source
from langchain_dpicl.parameters import ParameterError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_dpicl.mechanisms.source import SecureRandom
    from langchain_dpicl.relation import Relation

MAX_CHOICES = 10_000
"""Most values of k to choose from: each is looked at, after the charge."""

_BOUNDS = 2


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
        ParameterError: If an argument is malformed. Messages hold no word or count.

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
    slope /= 2 * sensitivities.keyword_gap(relation)
    source = checked_source(random)

    gaps = [count_at(ranked, k) - count_at(ranked, k + 1) for k in choices]
    largest = max(gaps)
    while True:
        position = source.below(len(choices))
        if source.bernoulli_exp(slope * (largest - gaps[position])):
            return choices[position]


def permute_and_flip(
    scores: Sequence[float],
    *,
    epsilon: float,
    sensitivity: float,
    random: SecureRandom | None = None,
) -> int:
    """Choose an index with a large score: report-noisy-max with exponential noise.

    Args:
        scores: One finite number per public candidate. Private.
        epsilon: Privacy loss bound.
        sensitivity: How far one unit can move any score; for counts of votes,
            `sensitivity.vote_linf(relation)`.
        random: Source of the draws; None is the operating system's.

    Returns:
        An index. Candidates are visited in random order, and each is accepted with
        probability exp(-epsilon (max - score) / (2 sensitivity)); the first accepted
        one is returned. One with the largest score is always accepted.

    Raises:
        ParameterError: If an argument is malformed. Messages hold no score.

    Privacy:
        Unit and relation: whatever `sensitivity` was computed for. Sensitivity:
        L-infinity, given. Noise: the trials above, exact; the distribution is that of
        argmax of scores plus Exponential(2 sensitivity / epsilon). Event: pure
        epsilon. Source: McKenna, Sheldon, *Permute-and-Flip*, NeurIPS 2020,
        Theorem 1; Ding et al. 2021 for the equivalence.

    Example:
        >>> permute_and_flip([3.0, 900.0, 4.0], epsilon=1.0, sensitivity=1.0)
        1
    """
    exact = exact_scores(scores)
    slope = Fraction(parameters.epsilon(epsilon))
    slope /= 2 * Fraction(parameters.positive("sensitivity", sensitivity))
    source = checked_source(random)

    largest = max(exact)
    order = iter(source.permutation(len(exact)))
    position = next(order)
    while not source.bernoulli_exp(slope * (largest - exact[position])):
        position = next(order)
    return position


def _choices(k_range: tuple[int, int] | Sequence[int]) -> Sequence[int]:
    too_many = ParameterError(f"k_range must hold at most {MAX_CHOICES} values.")
    try:
        if len(k_range) > MAX_CHOICES:
            raise too_many
        values = [parameters.count(k, "k_range") for k in k_range]
    except TypeError:
        raise ParameterError(
            "k_range must be a tuple (smallest, largest) or a sequence of integers."
        ) from None
    if isinstance(k_range, tuple) and len(values) == _BOUNDS:
        smallest, largest = values
        if smallest > largest:
            raise ParameterError(
                f"k_range must be (smallest, largest), not ({smallest}, {largest})."
            )
        if largest - smallest >= MAX_CHOICES:
            raise too_many
        return range(smallest, largest + 1)
    if not values:
        raise ParameterError("k_range must hold at least one value.")
    return sorted(set(values))
