"""Keywords by release curves: every word that enough answers have, one bit a word.

The same release as `keyword_threshold.py`, without noisy counts: an answer counts for
at most c = `items_per_answer` different words, and each word comes out by a bit of its
own. Let H(w) be the number of answers with word w.

1. *Sensitivity.* Of neighbors x, x' at most B = c counts differ (`ADD_REMOVE`), or B =
   2c (`REPLACE`), each by 1. A word that only one of them has is in the one answer that
   differs: its count is exactly 1, and there are at most c of them in x, and c in x'.
2. *Noise.* A word comes out with probability pi(H(w)), independently, by the table of
   `release_curve.py` for the divergence R / B, with pi(0) = 0 and pi(1) <= delta0 / c.
3. *Event* (`threshold_curve_template`). The Renyi divergence R of the table's order,
   and delta0, under both relations.

*Proof of 3.* Let C be the words that occur in both, D those that occur in x alone, D'
those in x' alone, p = pi(1). M(x) releases a part of C and, independently, a part of D
that is empty with probability a = (1-p)^|D|; M(x') a part of D' that is empty with
probability a' = (1-p)^|D'|. Let P and Q be the laws of what x and x' release of C, and
b = min(a, a') >= 1 - c p >= 1 - delta0. As a >= b, M(x) = b P + (1-b) F for some law F,
and M(x') = b Q + (1-b) F' likewise: the failure of `accounting.Failure`. P and Q are
products over the words of C. A word whose count is the same has the same bit, and one
whose count differs has n, n' >= 1 that differ by 1: a divergence of at most R / B.
There are at most B of them, and the divergence of a product is the sum. Hence c words
pay for delta0, as in `keyword_threshold.py`, although up to 2c may be new.

*With sampled units* this is no proof: the bits of one person's words mix together, not
each by itself, and charged as they mix they need more than the sampled Gaussian of
`keyword_threshold.py`. That is what sampled groups use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from langchain_dpicl.accounting.parts import CurvePart, Divergence
from langchain_dpicl.accounting.template import CURVE_DELTA0_SHARE, EventTemplate
from langchain_dpicl.common import parameters
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms import sensitivity
from langchain_dpicl.mechanisms.inputs import count_mapping
from langchain_dpicl.mechanisms.keyword_threshold import ThresholdNoise, required_count
from langchain_dpicl.mechanisms.release_curve import (
    ReleaseCurve,
    expected_steps,
    release_curve,
)
from langchain_dpicl.mechanisms.source import SecureRandom, checked_source

PASS_RATE = 0.95


@dataclass(frozen=True)
class ThresholdCurve:
    """What `curve_words` takes of its charge."""

    order: float
    """The order of the Renyi divergence."""

    divergence: float
    """Bound on the divergence of one release, all words together."""

    delta0: float
    """Bound on the probability that the words of one answer alone come out."""

    @classmethod
    def of(cls, paid: Divergence, delta0: float) -> ThresholdCurve:
        """Return what an event and a failure probability have paid for."""
        return cls(paid.order, paid.divergence, delta0)


def threshold_curve_template(
    mechanism: str,
    items_per_answer: int = 1,
    *,
    delta0: float | None = None,
    order: float | None = None,
    divergence: float | None = None,
) -> EventTemplate[ThresholdCurve]:
    """Return what `curve_words` is charged: a Renyi divergence and delta0.

    The number of items an answer counts for changes no event. The order is chosen for
    it.

    Example:
        >>> template = threshold_curve_template("words", order=8.0, divergence=0.25)
        >>> template.events(1.0, 1e-8)[1]
        Failure(delta0=1e-08, count=1)
    """
    return EventTemplate(
        mechanism,
        (CurvePart(order, divergence),),
        ThresholdCurve.of,
        needs_delta0=True,
        delta0=delta0,
        delta0_share=CURVE_DELTA0_SHARE,
        lead=WordLead(items_per_answer),
    )


def curve_words(
    counts: Mapping[str, int],
    items_per_answer: int,
    *,
    order: float,
    divergence: float,
    delta0: float,
    relation: Relation | str,
    random: SecureRandom | None = None,
) -> frozenset[str]:
    """Release each word with the best safe probability for its count.

    Args:
        counts: In how many slots' answers each word occurs. An answer counts a word
            once, and *counts for at most `items_per_answer` different words*, as in
            `threshold_words`: with a longer answer among them the promise does not
            hold. Words that are missing count 0; an empty mapping is fine.
        items_per_answer: Most different words c that an answer counts for, public.
        order: The order of the Renyi divergence.
        divergence: Bound on the divergence of the release, all words together.
        delta0: Bound on the probability that the words of one answer alone come out.
        relation: How the slots of neighbors differ.
        random: Source of the draws; None is the operating system's.

    Returns:
        The words, possibly none, possibly more than `items_per_answer`. The set's
        iteration order says nothing about counts: it is filled in alphabetical order.
        Sort it before use.

    Raises:
        InvalidParameterError: If an argument is malformed. Messages hold no word or
            count.

    Privacy:
        Unit and relation: one slot, as `relation` says; the units are not sampled.
        Sensitivity: c counts move by 1 under `ADD_REMOVE`, 2c under `REPLACE`, and at
        most c words are in one neighbor and not in the other. Noise: one bit a word,
        whose probability is an integer over 2^64, exact. Event: `RenyiEvent(order,
        divergence)`, and delta0 added to delta for every use. Source: the proof above;
        Harrison, Manurangsi (2026).

    Example:
        >>> votes = {"cough": 90, "fever": 88, "rash": 1}
        >>> released = curve_words(
        ...     votes, 2, order=8.0, divergence=0.5, delta0=1e-6, relation="replace"
        ... )
        >>> sorted(released)
        ['cough', 'fever']
    """
    pairs = count_mapping(counts)
    curve = _curve(items_per_answer, order, divergence, delta0, relation)
    source = checked_source(random)

    # A word that is listed with 0 must be like one that is not listed.
    seen = sorted((word, count) for word, count in pairs if count > 0)
    passed = curve.draw([count for _, count in seen], source)
    return frozenset(word for (word, _), out in zip(seen, passed, strict=True) if out)


def curve_count(
    *,
    items_per_answer: int,
    order: float,
    divergence: float,
    delta0: float,
    relation: Relation | str,
    pass_rate: float = PASS_RATE,
) -> float:
    """Return the least true count at which a word comes out with a probability.

    The arguments are those of `curve_words`, and a probability strictly between 0 and
    1; one that is out of its range is a `InvalidParameterError`.

    Returns:
        The count, in answers; infinity if none is enough. It is one word's: several
        words come out together less often.

    Example:
        >>> paid = {"order": 8.0, "divergence": 0.5, "delta0": 1e-6}
        >>> curve_count(**paid, items_per_answer=1, relation="replace")
        21
    """
    curve = _curve(items_per_answer, order, divergence, delta0, relation)
    return curve.steps(parameters.delta(pass_rate, "pass_rate"))


def curve_count_pass_rate(
    count: int,
    *,
    items_per_answer: int,
    order: float,
    divergence: float,
    delta0: float,
    relation: Relation | str,
) -> float:
    """Return the probability that `curve_words` releases a word of a given count.

    For planning, on a count that is assumed or public: the counts of real data are
    private. The other arguments are those of `curve_words`; one that is out of its
    range is a `InvalidParameterError`.

    Returns:
        0 for a count of 0, and at most `delta0 / items_per_answer` for a count of 1.

    Example:
        >>> paid = {"order": 8.0, "divergence": 0.5, "delta0": 1e-6}
        >>> terms = {**paid, "items_per_answer": 1, "relation": "replace"}
        >>> curve_count_pass_rate(21, **terms) >= 0.95
        True
    """
    curve = _curve(items_per_answer, order, divergence, delta0, relation)
    number = parameters.count(count, "count", minimum=0)
    return float(curve.probability(number))


@dataclass(frozen=True)
class WordLead:
    """At how many answers a word comes out in 95 % of cases, for `REPLACE`.

    Which release an account takes must not depend on a relation that it does not know;
    their ratio hardly does.
    """

    items_per_answer: int

    def __call__(
        self, noise: ThresholdNoise | ThresholdCurve, *, is_rough: bool = False
    ) -> float:
        """Return the count of either release; see `accounting.Template.lead_of`."""
        relation, words = Relation.REPLACE, self.items_per_answer
        if isinstance(noise, ThresholdNoise):
            return required_count(
                items_per_answer=words,
                noise_multiplier=noise.noise_multiplier,
                delta0=noise.delta0,
                relation=relation,
                pass_rate=PASS_RATE,
            )
        if not is_rough:
            return curve_count(**vars(noise), items_per_answer=words, relation=relation)
        bits = sensitivity.keyword_bits(relation, words)
        return expected_steps(
            noise.order, noise.divergence / bits, noise.delta0 / words, PASS_RATE
        )


def _curve(
    items_per_answer: int,
    order: float,
    divergence: float,
    delta0: float,
    relation: Relation | str,
) -> ReleaseCurve:
    loss = Fraction(parameters.positive("divergence", divergence))
    first = Fraction(parameters.delta(delta0, "delta0"))
    return release_curve(
        order,
        loss / sensitivity.keyword_bits(relation, items_per_answer),
        first / sensitivity.new_keywords(relation, items_per_answer),
    )
