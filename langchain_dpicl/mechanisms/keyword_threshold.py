r"""Keywords by a threshold: every word whose noisy count is clearly above one.

For short answers: each counts for at most c = `items_per_answer` different words. The
sparse histogram of Korolova, Kenthapadi, Mishra, Ntoulas, *Releasing Search Queries and
Clicks Privately*, WWW 2009, with Gaussian noise: Karrer, Kifer, Wilkins, Zhang, *Exact
Privacy Analysis of the Gaussian Sparse Histogram Mechanism*, 2022.

Let H(w) be the number of answers with word w. For neighbors x, x' let C be the words
that occur in both, D those that occur in x alone, D' those in x' alone.

1. *Sensitivity.* A word of D is in the answer that x has in place of the one of x' (or
   of none), and in no other: its count is exactly 1, and |D| <= c. The same holds for
   D'. The counts of the words in C differ by at most one each: by sqrt(c) in L2
   (`ADD_REMOVE`) or sqrt(2c) (`REPLACE`).
2. *Noise.* Each word with a positive count gets its own rounded Gaussian K of scale
   sigma = z sqrt(c) or z sqrt(2c). It is released if H(w) + K > 1 + t, with t the least
   quantile of K *as drawn* with P(K > t) <= delta0 / c. The others, of which there is
   no list, are never released. A released word may show H(w) + K (`threshold_words`).
3. *Event* (`threshold_template`). Gaussian(z) plus delta0, under both relations.

*Proof of 3.* Let p = P(K > t), at most delta0 / c: the probability that a word of
count 1 is released. M(x) releases a part of C and, independently, a part of D that is
empty with probability a = (1-p)^|D|; M(x') likewise, with a' = (1-p)^|D'|. Write P and
Q for the laws of what x and x' release of C, words alone or with their noisy counts.
Both are the same post-processing of one
Gaussian mechanism, so with delta_G its curve, P(S) - e^eps Q(S) <= delta_G(eps) for
every set S and every real eps. Let b = min(a, a') >= 1 - c p >= 1 - delta0. For a set S
of outputs, and S_C those of them without a word of D or D',

    P(M(x) in S) - e^eps P(M(x') in S)
      <= (1-a) + a P(S_C) - e^eps a' Q(S_C)
      <= (1-a) + (a-b) P(S_C) + b (P(S_C) - e^eps Q(S_C))       as a' >= b
      <= (1-a) + (a-b) + b delta_G(eps)
       = 1 - b + b delta_G(eps)  <=  delta0 + (1-delta0) delta_G(eps).

Exchanging x and x' gives the other direction. The last line is the curve of a Gaussian
mechanism that fails altogether with probability delta0, at every real eps: so the
release composes, and is amplified by sampling, as Gaussian(z) and delta0 are
(`accounting.Failure`). Outputs
with words of D', which are not in the first term, cost nothing by themselves: that
is why c words pay for delta0, and not the 2c words of D and D' that a union bound over
both worlds would count under `REPLACE`.

*When to use which.* Propose-test-release (`keyword_ptr.py`) wants a gap below the k-th
word and has noise 1 z or 2 z, whatever k is. This release wants no gap, so ties and
several right words are fine. Under `REPLACE` its noise is 1.4 z for one word an answer,
2 z for two, and grows from there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from langchain_dpicl.accounting.parts import GaussianPart
from langchain_dpicl.accounting.template import EventTemplate
from langchain_dpicl.common import parameters
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import sensitivity
from langchain_dpicl.mechanisms.inputs import MAX_COUNT, count_mapping
from langchain_dpicl.mechanisms.rounded_gaussian import RoundedGaussian, count_grid
from langchain_dpicl.mechanisms.source import SecureRandom, checked_source
from langchain_dpicl.mechanisms.voting import lead_over_a_tie

_MIN_DELTA0 = 1e-290
"""Shared out among the most words it is still a number that can be computed with."""


@dataclass(frozen=True)
class ThresholdNoise:
    """The noise of `threshold_words`."""

    noise_multiplier: float
    """z = sigma / sensitivity of all counts together."""

    delta0: float
    """Bound on the probability that the words of one answer alone come out."""


def threshold_template(
    mechanism: str,
    noise_multiplier: float | None = None,
    *,
    delta0: float | None = None,
    sampling_rate: float = 1.0,
) -> EventTemplate[ThresholdNoise]:
    """Return what `threshold_words` is charged: Gaussian(z) and delta0.

    Example:
        >>> template = threshold_template("ksa/threshold", 2.0, delta0=1e-8)
        >>> template.events(1.0, 1e-8)[1]
        Failure(delta0=1e-08, count=1)
    """
    part = GaussianPart(noise_multiplier)
    return EventTemplate(
        mechanism, (part,), ThresholdNoise, sampling_rate, True, delta0
    )


def threshold_words(
    counts: Mapping[str, int],
    items_per_answer: int,
    *,
    noise_multiplier: float,
    delta0: float,
    relation: Relation | str,
    random: SecureRandom | None = None,
) -> dict[str, float]:
    """Release the words whose noisy counts pass a threshold, with these counts.

    Args:
        counts: In how many slots' answers each word occurs. An answer counts a word
            once, and *counts for at most `items_per_answer` different words*: the
            caller has cut each answer by a public rule on that answer alone. That can't
            be seen in the counts, so it is not checked here: with a longer answer among
            them the promise does not hold. Words that are missing count 0; an empty
            mapping is fine.
        items_per_answer: Most different words c that an answer counts for, public.
        noise_multiplier: z = sigma / sensitivity of all counts together.
        delta0: Bound on the probability that the words of one answer alone come out.
        relation: How the slots of neighbors differ.
        random: Source of the noise; None is the operating system's.

    Returns:
        The noisy count of each word that passes, in answers: the largest first, equal
        ones by the word. Possibly none, possibly more than `items_per_answer`.

    Raises:
        InvalidParameterError: If an argument is malformed. Messages hold no word or
            count.

    Privacy:
        Unit and relation: one slot, as `relation` says. Sensitivity of the counts of
        the words that both neighbors have, L2: sqrt(c) under `ADD_REMOVE`, sqrt(2c)
        under `REPLACE`; at most c words are in one neighbor and not in the other, each
        with count 1. Noise: rounded Gaussian, sigma = z * sensitivity, exact. Event:
        Gaussian(z), and delta0 added to delta for every use. Source: the proof above;
        Karrer, Kifer, Wilkins, Zhang (2022).

    Example:
        >>> votes = {"cough": 90, "fever": 88, "rash": 1}
        >>> released = threshold_words(
        ...     votes, 2, noise_multiplier=2.0, delta0=1e-6, relation="replace"
        ... )
        >>> sorted(released)
        ['cough', 'fever']
    """
    pairs = count_mapping(counts)
    test = _word_test(items_per_answer, noise_multiplier, delta0, relation)
    source = checked_source(random)

    # A word that is listed with 0 must be like one that is not listed.
    seen = sorted((word, count) for word, count in pairs if count > 0)
    noise = test.noise.draw(len(seen), source)
    numbers = np.array([count for _, count in seen], np.int64)
    passed = test.passes(numbers, noise)
    noisy = (test.weight * numbers + noise) / test.weight
    released = {
        word: float(count)
        for (word, _), count, out in zip(seen, noisy, passed, strict=True)
        if out
    }
    return dict(sorted(released.items(), key=lambda pair: -pair[1]))


def clear_first(
    noisy: Mapping[str, float],
    items_per_answer: int,
    *,
    noise_multiplier: float,
    delta0: float,
    relation: Relation | str,
) -> str | None:
    """Return the word of `threshold_words` that clearly leads all others, if one does.

    Of two words with the same count one leads clearly in `voting.TIE` of cases at most;
    see `voting.lead_over_a_tie`. A word that was not released may have been as close
    below the threshold as can be, so the first word must lead the threshold as well.
    The arguments are those of that release: it is post-processing.

    Example:
        >>> noise = {"noise_multiplier": 1.0, "delta0": 1e-6, "relation": "replace"}
        >>> clear_first({"cough": 90.2, "fever": 39.5}, 1, **noise)
        'cough'
        >>> clear_first({"cough": 40.2, "fever": 39.5}, 1, **noise)
    """
    test = _word_test(items_per_answer, noise_multiplier, delta0, relation)
    sigma = test.noise.scale / test.weight
    (word, first), *rest = [*noisy.items(), ("", -math.inf)]
    second = max([1 + test.quantile / test.weight, *(count for _, count in rest)])
    return word if first - second >= lead_over_a_tie(sigma) else None


def threshold_pass_rate(
    count: float,
    *,
    items_per_answer: int,
    noise_multiplier: float,
    delta0: float,
    relation: Relation | str,
) -> float:
    """Return the exact probability that `threshold_words` releases a word of a count.

    For planning, on a count that is assumed or public: the counts of real data are
    private. The arguments are those of `threshold_words`; one that is out of its range
    is a `InvalidParameterError`.

    Returns:
        0 for a count of 0, and at most `delta0 / items_per_answer` for a count of 1.

    Example:
        >>> noise = {"noise_multiplier": 2.0, "delta0": 1e-6, "relation": "replace"}
        >>> round(threshold_pass_rate(25, items_per_answer=2, **noise), 3)
        0.866
    """
    test = _word_test(items_per_answer, noise_multiplier, delta0, relation)
    number = parameters.finite("count", count)
    if not 0 <= number <= MAX_COUNT:
        raise InvalidParameterError(
            f"count must be between 0 and {MAX_COUNT}, not {number:g}."
        )
    return test.pass_rate(number)


def required_count(
    *,
    items_per_answer: int,
    noise_multiplier: float,
    delta0: float,
    relation: Relation | str,
    pass_rate: float = 0.95,
) -> float:
    """Return the true count at which a word is released with the given probability.

    The arguments are those of `threshold_words`, and a probability strictly between 0
    and 1; one that is out of its range is a `InvalidParameterError`.

    Returns:
        The smallest such count, at least 1, in answers. Counts are whole, so round it
        up. It is one word's: several words come out together less often.

    Example:
        >>> noise = {"noise_multiplier": 2.0, "delta0": 1e-6, "relation": "replace"}
        >>> round(required_count(items_per_answer=2, **noise), 1)
        27.2
    """
    test = _word_test(items_per_answer, noise_multiplier, delta0, relation)
    rate = parameters.delta(pass_rate, "pass_rate")
    # P(K > t - e) >= rate iff P(K > e - t - 1) <= 1 - rate, by symmetry.
    excess = max(0, test.quantile + test.noise.upper_quantile(1 - rate) + 1)
    return 1 + excess / test.weight


@dataclass(frozen=True)
class _WordTest:
    """The test of one word in grid steps, `weight` an answer; all of it is public.

    The quantile is t with P(K > t) <= delta0 / c.
    """

    weight: int
    noise: RoundedGaussian
    quantile: int

    def passes(
        self, counts: npt.NDArray[np.int64], noise: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Return which words of positive counts are released, shape as `counts`."""
        # int64 holds it: a weight of at most 2^29 times a count of at most 2^32.
        released: npt.NDArray[np.bool_] = (
            self.weight * counts + noise > self.weight + self.quantile
        )
        return released

    def pass_rate(self, count: float) -> float:
        if count == 0:
            return 0.0
        excess = self.weight * (count - 1)
        return self.noise.tail(math.floor(self.quantile - excess))


def _word_test(
    items_per_answer: int,
    noise_multiplier: float,
    delta0: float,
    relation: Relation | str,
) -> _WordTest:
    z = parameters.noise_multiplier(noise_multiplier)
    bound = parameters.delta(delta0, "delta0")
    if bound < _MIN_DELTA0:
        raise InvalidParameterError(f"delta0 must be at least {_MIN_DELTA0:g}.")
    distance = sensitivity.keyword_l2(relation, items_per_answer)
    weight, noise = count_grid(sensitivity.noise_scale(z, distance))
    share = bound / sensitivity.new_keywords(relation, items_per_answer)
    return _WordTest(weight, noise, noise.upper_quantile(share))
