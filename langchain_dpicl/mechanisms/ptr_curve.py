"""Keywords by a release curve: the top-k set when it is stable, else nothing.

The same release as `keyword_ptr.py`, without a noisy gap: what is published is one bit,
and then a set. Let H(1) >= H(2) >= ... be the keyword counts over all words that exist
and d = H(k) - H(k+1), the gap below the k words that are released.

1. *Sensitivity.* d moves by at most Delta = 1 (`ADD_REMOVE`) or 2 (`REPLACE`). So n = d
   / Delta, rounded up, moves by at most 1.
2. *Noise.* The set comes out with probability pi(n), by the table of `release_curve.py`
   with pi(0) = 0 and pi(1) <= delta0. Nothing is added to the gap, and neither it nor n
   is published.
3. *Event* (`ptr_curve_template`). The Renyi divergence of the table's order and delta0;
   on a Poisson sample of units of rate q, that of the table built for q, and q delta0.

*Proof of 3.* Say that n, n' >= 1 and the sets of x and x' differ: w is in that of x
alone, v in that of x' alone. So c(w) - c(v) >= d in x, and c'(v) - c'(w) >= d' in x'.
Added up, (c(w) - c'(w)) + (c'(v) - c(v)) >= d + d'. A slot adds 1 to a count at most.
Under `REPLACE` each of the two differences is at most 1. Under `ADD_REMOVE` all counts
move in one direction, so one of them is at most 0. Hence d + d' <= Delta, and as both
are 1 or more, Delta = 2 and d = d' = 1: n = n' = 1. There are three cases.

* *n, n' >= 1 and the sets are the same.* The output is the same function of a bit in
  both worlds, and the bits are those of `release_curve.py`.
* *n = 0 or n' = 0.* The other one is 1 at most. A set comes out in one of the worlds,
  with probability pi(1) <= delta0 at most: the failure of `release_curve.py`.
* *n = n' = 1 and the sets differ.* Each world publishes its own set with probability
  pi(1) <= delta0, and else nothing: the same failure. On a sample the world with the
  unit publishes the one with (1-q) pi(1) and the other with q pi(1), so that what fails
  is q pi(1).

With fewer than k words seen, H(k) = 0 = d: no set of fewer than k words ever leaves.

*Sooner than propose-test-release.* `keyword_ptr.py` begins above d = Delta, because it
asks that no neighbor has another set. Here sets may differ where both come out by
failure alone, and the first step is at d = 1.

*A range of k* is not resolved here: choosing k is a second release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from langchain_dpicl.accounting.parts import CurvePart, Divergence
from langchain_dpicl.accounting.template import CURVE_DELTA0_SHARE, EventTemplate
from langchain_dpicl.common import parameters
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms import sensitivity
from langchain_dpicl.mechanisms.inputs import count_mapping
from langchain_dpicl.mechanisms.keyword_ptr import PTRNoise, count_at, required_gap
from langchain_dpicl.mechanisms.release_curve import (
    ReleaseCurve,
    expected_steps,
    release_curve,
)
from langchain_dpicl.mechanisms.source import SecureRandom, checked_source

PASS_RATE = 0.95


@dataclass(frozen=True)
class PTRCurve:
    """What `curve_top_k` takes of its charge."""

    order: float
    """The order of the Renyi divergence."""

    divergence: float
    """Bound on the divergence of one release, sampling included."""

    delta0: float
    """Bound on the probability that an unstable set comes out."""

    sampling_rate: float = 1.0
    """Rate of the Poisson sample of units that the table is built for."""

    @classmethod
    def of(cls, paid: Divergence, delta0: float) -> PTRCurve:
        """Return what an event and a failure probability have paid for."""
        return cls(paid.order, paid.divergence, delta0, paid.sampling_rate)


def ptr_curve_template(
    mechanism: str,
    *,
    delta0: float | None = None,
    order: float | None = None,
    divergence: float | None = None,
    sampling_rate: float = 1.0,
) -> EventTemplate[PTRCurve]:
    """Return what `curve_top_k` is charged: a Renyi divergence and delta0.

    Example:
        >>> template = ptr_curve_template("ksa/ptr curve", order=8.0, divergence=0.25)
        >>> template.events(1.0, 1e-8)[0]
        RenyiEvent(order=8.0, divergence=0.25, count=1)
    """
    part = CurvePart(order, divergence)
    return EventTemplate(
        mechanism,
        (part,),
        PTRCurve.of,
        sampling_rate,
        needs_delta0=True,
        delta0=delta0,
        delta0_share=CURVE_DELTA0_SHARE,
        lead=gap_lead,
    )


def curve_top_k(
    counts: Mapping[str, int],
    k: int,
    *,
    order: float,
    divergence: float,
    delta0: float,
    relation: Relation | str,
    sampling_rate: float = 1.0,
    random: SecureRandom | None = None,
) -> frozenset[str] | None:
    """Release the set of the k most frequent words with the best safe probability.

    Args:
        counts: In how many slots' answers each word occurs. An answer counts a word
            once. Words that are missing count 0; an empty mapping is fine.
        k: How many words to release, public.
        order: The order of the Renyi divergence.
        divergence: Bound on the divergence of the release.
        delta0: Bound on the probability that an unstable set comes out.
        relation: How the slots of neighbors differ.
        sampling_rate: Rate of the Poisson sample of units that the slots hold. With a
            smaller rate than the true one the promise does not hold.
        random: Source of the draw; None is the operating system's.

    Returns:
        The set, or None. The set's iteration order says nothing about ranks: it is
        filled in alphabetical order. Sort it before use.

    Raises:
        InvalidParameterError: If an argument is malformed. Messages hold no word or
            count.

    Privacy:
        Unit and relation: one slot, as `relation` says, on a sample of units where
        there is one. Sensitivity of the gap: 1 under `ADD_REMOVE`, 2 under `REPLACE`.
        Noise: one bit whose probability is an integer over 2^64, exact. Event:
        `RenyiEvent(order, divergence)`, and delta0 (on a sample sampling_rate * delta0)
        added to delta for every use. Source: the proof above; Harrison, Manurangsi
        (2026).

    Example:
        >>> votes = {"cough": 90, "fever": 88, "rash": 1}
        >>> released = curve_top_k(
        ...     votes, 2, order=8.0, divergence=0.5, delta0=1e-6, relation="replace"
        ... )
        >>> sorted(released)
        ['cough', 'fever']
    """
    ranked = count_mapping(counts)
    k = parameters.count(k, "k")
    curve = _curve(order, divergence, delta0, sampling_rate)
    source = checked_source(random)

    gap = count_at(ranked, k) - count_at(ranked, k + 1)
    if not curve.draw([_steps(gap, relation)], source)[0]:
        return None
    # A hash table's order depends on the order of insertion where words collide.
    return frozenset(sorted(word for word, _ in ranked[:k]))


def curve_gap(
    *,
    order: float,
    divergence: float,
    delta0: float,
    relation: Relation | str,
    sampling_rate: float = 1.0,
    pass_rate: float = PASS_RATE,
) -> float:
    """Return the least true gap at which `curve_top_k` releases with a probability.

    The arguments are those of `curve_top_k`, and a probability strictly between 0 and
    1; one that is out of its range is a `InvalidParameterError`.

    Returns:
        The gap, in answers, the same for all k; infinity if no gap is enough.

    Example:
        >>> paid = {"order": 8.0, "divergence": 0.25, "delta0": 1e-6}
        >>> curve_gap(**paid, relation="add_remove")
        21
    """
    curve = _curve(order, divergence, delta0, sampling_rate)
    rate = parameters.delta(pass_rate, "pass_rate")
    return _gap_of(curve.steps(rate), relation)


def curve_gap_pass_rate(
    gap: int,
    *,
    order: float,
    divergence: float,
    delta0: float,
    relation: Relation | str,
    sampling_rate: float = 1.0,
) -> float:
    """Return the probability that `curve_top_k` releases at a given true gap.

    For planning, on a gap H(k) - H(k+1) that is assumed or public: that of real data is
    private. The other arguments are those of `curve_top_k`; one that is out of its
    range is a `InvalidParameterError`.

    Returns:
        0 for a gap of 0, and at most `delta0` for one of 1 (`ADD_REMOVE`) or 2
        (`REPLACE`).

    Example:
        >>> paid = {"order": 8.0, "divergence": 0.25, "delta0": 1e-6}
        >>> curve_gap_pass_rate(21, **paid, relation="add_remove") >= 0.95
        True
    """
    curve = _curve(order, divergence, delta0, sampling_rate)
    steps = _steps(parameters.count(gap, "gap", minimum=0), relation)
    return float(curve.probability(steps))


def gap_lead(noise: PTRNoise | PTRCurve, *, is_rough: bool = False) -> float:
    """Return the gap at which either release passes in 95 % of cases, for `REPLACE`.

    Which of the two an account takes must not depend on a relation that it does not
    know; their ratio hardly does.
    """
    relation = Relation.REPLACE
    if isinstance(noise, PTRNoise):
        return required_gap(
            noise_multiplier=noise.noise_multiplier,
            delta0=noise.delta0,
            relation=relation,
            pass_rate=PASS_RATE,
        )
    terms: dict[str, Any] = vars(noise)
    if not is_rough:
        return curve_gap(**terms, relation=relation)
    steps = expected_steps(
        noise.order, noise.divergence, noise.delta0, PASS_RATE, noise.sampling_rate
    )
    return _gap_of(steps, relation)


def _steps(gap: int, relation: Relation | str) -> int:
    """Return how many steps a gap makes: gap / Delta, rounded up."""
    return -(-gap // sensitivity.keyword_gap(relation))


def _gap_of(steps: float, relation: Relation | str) -> float:
    """Return the least gap that makes so many steps."""
    return sensitivity.keyword_gap(relation) * (steps - 1) + 1


def _curve(
    order: float, divergence: float, delta0: float, sampling_rate: float
) -> ReleaseCurve:
    loss = Fraction(parameters.positive("divergence", divergence))
    first = Fraction(parameters.delta(delta0, "delta0"))
    return release_curve(order, loss, first, sampling_rate)
