"""Selection with pure differential privacy: one candidate with a large score.

1. *Sensitivity.* One unit moves each score by at most Delta; votes for labels by at
   most 1 (`sensitivity.vote_linf`), under both relations.
2. *Noise.* A candidate c is accepted with probability exp(-epsilon (u_max - u_c) / (2
   Delta)). The exponent is an exact rational (a float is one), and the trial is exact
   (`SecureRandom.bernoulli_exp`), so no floating-point exponential noise is involved.
3. *Event* (`flip_template`). Pure epsilon.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from langchain_dpicl.accounting.parts import PurePart
from langchain_dpicl.accounting.template import EventTemplate
from langchain_dpicl.common import parameters
from langchain_dpicl.mechanisms.inputs import exact_scores
from langchain_dpicl.mechanisms.noise import PureNoise
from langchain_dpicl.mechanisms.source import SecureRandom, checked_source


def flip_template(
    mechanism: str, epsilon: float | None = None, *, sampling_rate: float = 1.0
) -> EventTemplate[PureNoise]:
    """Return what `permute_and_flip` is charged: pure epsilon."""
    return EventTemplate(mechanism, (PurePart(epsilon),), PureNoise, sampling_rate)


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
        InvalidParameterError: If an argument is malformed. Messages hold no score.

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
