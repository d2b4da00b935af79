"""Keywords by propose-test-release: the set of the top k words when it is stable.

Wu, Panda, Wang, Mittal, ICLR 2024, Algorithms 5 and 6, Theorems 10 and 11; Zhu, Wang,
*Adaptive Private-K-Selection*, AISTATS 2022.

Input         H(w), the slots whose answer holds the word w; an answer counts a word
              once. H(1) >= H(2) >= ... over all words that exist, so zeros follow the
              words that were seen. d_k = H(k) - H(k+1): the gap *below* the k words.
Neighbors     One unit touches one slot. `replace`: it changes from any answer, or none,
              to any other. `add_remove`: one slot appears or vanishes.
Sensitivity   Of every d_k: Delta = 1 (`add_remove`: each H(i) moves up by 0 or 1, so a
              difference of two moves by at most 1), or 2 (`replace`: a removal and then
              an addition). With T = Delta: if d_k > T, the k most frequent words are
              the same set on all neighbors. max(T, d_k) has the sensitivity Delta too.
Noise         K = round(N(0, (z Delta)^2)) on a public grid, and t, the least quantile
              of K *as drawn* with P(K > t) <= delta0. Pass if max(T, d_k) + K - t > T
              (see `gate`).
Event         Gaussian(z) and Failure(delta0), two events. For neighbors x and x': if
              d_k(x) > T, both have the same top set, so both outputs are the same
              post-processing (the set, or None) of a Gaussian mechanism on max(T, d_k).
              The same holds if d_k(x') > T. If neither is above T, both outputs are
              None except where K > t, the same noise for both, which has a probability
              of p <= delta0.
              *At every real epsilon*, as composition and sampling want it: in the last
              case P(M(x) in S) - e^epsilon P(M(x') in S) <= p + (1 - p) max(0, 1 -
              e^epsilon) <= delta0 + (1 - delta0) delta_G(epsilon), since no curve is
              below max(0, 1 - e^epsilon). So it is a Gaussian mechanism that fails
              altogether with probability delta0, which is what `Failure` says.
              *Fewer than k words seen:* then H(k) = 0 = d_k, and every neighbor has d_k
              <= T, the last case. None even on a pass keeps both failing except with
              probability delta0, and no set of fewer than k words ever leaves.
Choice of k   `choose_k`, before the test: the exponential mechanism with the utility
              d_k over public values of k (McSherry, Talwar, FOCS 2007), drawn by exact
              rejection: a uniform k is accepted with probability exp(-epsilon (d_max -
              d_k) / (2 Delta)). Each utility moves by Delta, up or down, so
              the event is Exponential(epsilon). Two steps on one sample are not two
              sampled ones: with sampled units k is given.
What is free  The order of the set (alphabetical), the wording of the answer, a
              fallback; `pass_rate` and `required_gap`, of public numbers.
Tested by     `tests/unit_tests/laws`: the laws of both releases, and the loss between
              all small neighbors, with broken twins. The law of passing against mpmath:
              `tests/mechanisms/test_releases.py`. Twins: T lower by 1, half the noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from langchain_dpicl.accounting.events import Charge, Exponential, Failure, Gaussian
from langchain_dpicl.common import parameters
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import inputs
from langchain_dpicl.mechanisms.exact import bernoulli_exp
from langchain_dpicl.mechanisms.gate import Gate
from langchain_dpicl.mechanisms.random import current

MAX_CHOICES = 10_000
"""Most values of k to choose from: each is looked at, after the charge."""

SELECTION_SHARE = 0.2
"""Part of the Renyi loss for the choice of k; the rest is the test's."""

_BATCH = 64
_BOUNDS = 2


def charge(
    *,
    noise_multiplier: float | None = None,
    delta0: float | None = None,
    sampling_rate: float = 1.0,
    name: str = "ksa/ptr",
) -> Charge:
    """Return what `ptr_top_k` costs for a given k: a Gaussian and a failure.

    Example:
        >>> [part.kind for part in charge(noise_multiplier=2.0).parts]
        ['gaussian', 'failure']
    """
    test = Gaussian(noise_multiplier=noise_multiplier, sampling_rate=sampling_rate)
    failure = Failure(delta0=delta0, sampling_rate=sampling_rate)
    return Charge(name=name, parts=(test, failure))


def range_charge(
    *,
    epsilon: float | None = None,
    noise_multiplier: float | None = None,
    delta0: float | None = None,
    sampling_rate: float = 1.0,
    name: str = "ksa/ptr",
) -> Charge:
    """Return what `choose_k` and then `ptr_top_k` cost together.

    Raises:
        InvalidParameterError: If units are sampled: two steps on one sample are not two
            sampled ones.

    Example:
        >>> [part.kind for part in range_charge(epsilon=0.5).parts]
        ['exponential', 'gaussian', 'failure']
    """
    choice = Exponential(epsilon=epsilon, sampling_rate=sampling_rate)
    test = charge(
        noise_multiplier=noise_multiplier, delta0=delta0, sampling_rate=sampling_rate
    )
    shares = SELECTION_SHARE, 1 - SELECTION_SHARE, 1.0
    return Charge(name=name, parts=(choice, *test.parts), shares=shares)


def sensitivity(relation: Relation | str) -> int:
    """Return the sensitivity of each gap H(k) - H(k+1), which is T as well: 1 or 2."""
    return 2 if inputs.is_replace(relation) else 1


def ptr_top_k(
    counts: Mapping[str, int],
    k: int,
    paid: tuple[Gaussian, Failure],
    relation: Relation | str,
) -> frozenset[str] | None:
    """Release the set of the k most frequent words if a noisy gap test passes.

    Args:
        counts: In how many slots' answers each word occurs. An answer counts a word
            once. Words that are missing count 0; an empty mapping is fine.
        k: How many words to release, public.
        paid: The two events that were charged.
        relation: How the slots of neighbors differ.

    Returns:
        The set, or None if the test fails. The set's iteration order says nothing
        about ranks: it is filled in alphabetical order. Sort it before use.

    Example:
        >>> votes = {"cough": 90, "fever": 88, "rash": 1}
        >>> paid = Gaussian(noise_multiplier=2.0), Failure(delta0=1e-6)
        >>> sorted(ptr_top_k(votes, 2, paid, "replace"))
        ['cough', 'fever']
    """
    ranked = inputs.count_mapping(counts)
    k = parameters.count(k, "k")
    gate = _gate(paid, relation)
    gap = max(gate.threshold, _height(ranked, k) - _height(ranked, k + 1))
    passed = gate.passes(gap, int(gate.noise.draw(1)[0]))
    if not passed or _height(ranked, k) == 0:
        return None
    # A hash table's order depends on the order of insertion where words collide.
    return frozenset(sorted(word for word, _ in ranked[:k]))


def choose_k(
    counts: Mapping[str, int],
    k_range: tuple[int, int] | Sequence[int],
    paid: Exponential,
    relation: Relation | str,
) -> int:
    """Choose how many keywords to release, privately, where the gap is large.

    Args:
        counts: In how many slots' answers each word occurs; an empty mapping is fine.
        k_range: A tuple `(smallest, largest)`, both included; or any other sequence,
            a list or a `range`, of the values allowed. Public: it never depends on
            how many words were seen.
        paid: The event that was charged.
        relation: How the slots of neighbors differ.

    Returns:
        k with probability proportional to exp(epsilon d_k / (2 Delta)), where
        d_k = H(k) - H(k+1), zeros beyond the words that were seen.

    Example:
        >>> votes = {"cough": 9000, "fever": 8990, "rash": 1}
        >>> choose_k(votes, (1, 5), Exponential(epsilon=1.0), "replace")
        2
    """
    ranked = inputs.count_mapping(counts)
    choices = _choices(k_range)
    slope = inputs.epsilon(paid, Exponential) / (2 * sensitivity(relation))
    gaps = np.array([_height(ranked, k) - _height(ranked, k + 1) for k in choices])
    losses = gaps.max() - gaps
    while True:
        tried = current().integers(_BATCH, len(choices))
        kept = bernoulli_exp(losses[tried], slope)
        if kept.any():
            return choices[int(tried[np.argmax(kept)])]


def pass_rate(
    gap: float, paid: tuple[Gaussian, Failure], relation: Relation | str
) -> float:
    """Return the exact probability that `ptr_top_k` passes at a given true gap.

    For planning, on a gap H(k) - H(k+1) that is assumed or public: that of real data is
    private.

    Returns:
        At most delta0 for gaps of at most 1 (`ADD_REMOVE`) or 2 (`REPLACE`).

    Example:
        >>> paid = Gaussian(noise_multiplier=2.0), Failure(delta0=1e-6)
        >>> round(pass_rate(20, paid, "add_remove"), 4)
        1.0
    """
    return _gate(paid, relation).pass_rate(gap)


def required_gap(
    paid: tuple[Gaussian, Failure],
    relation: Relation | str,
    *,
    pass_rate: float = 0.95,
) -> int:
    """Return the least whole gap that passes with the given probability.

    Example:
        >>> paid = Gaussian(noise_multiplier=2.0), Failure(delta0=1e-6)
        >>> required_gap(paid, "replace")
        28
    """
    gate = _gate(paid, relation)
    return gate.required(pass_rate, gate.threshold + 1)


def _gate(paid: tuple[Gaussian, Failure], relation: Relation | str) -> Gate:
    delta0, moved = inputs.failure_of(paid), sensitivity(relation)
    sigma = inputs.at_least(inputs.noise_multiplier(paid[0]), moved)
    return Gate.gaussian(sigma, delta0, threshold=moved)


def _height(ranked: Sequence[tuple[str, int]], rank: int) -> int:
    """Return H(rank), ranks from 1: zero beyond the words that were seen."""
    return ranked[rank - 1][1] if rank <= len(ranked) else 0


def _choices(k_range: tuple[int, int] | Sequence[int]) -> Sequence[int]:
    try:
        values = [parameters.count(k, "k_range") for k in k_range[: MAX_CHOICES + 1]]
    except TypeError:
        raise InvalidParameterError(
            "k_range must be a tuple (smallest, largest) or a sequence of integers."
        ) from None
    chosen: Sequence[int] = sorted(set(values))
    if isinstance(k_range, tuple) and len(values) == _BOUNDS:
        smallest, largest = values
        if smallest > largest:
            raise InvalidParameterError(
                f"k_range must be (smallest, largest), not ({smallest}, {largest})."
            )
        chosen = range(smallest, largest + 1)
    if not 1 <= len(chosen) <= MAX_CHOICES:
        raise InvalidParameterError(
            f"k_range must hold at least one value, and at most {MAX_CHOICES}."
        )
    return chosen
