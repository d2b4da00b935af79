r"""Keywords by a threshold: every word whose noisy count is clearly above one.

For short answers: each counts for at most c = `items_per_answer` different words. The
sparse histogram of Korolova, Kenthapadi, Mishra, Ntoulas, *Releasing Search Queries and
Clicks Privately*, WWW 2009, with Gaussian noise: Karrer, Kifer, Wilkins, Zhang, *Exact
Privacy Analysis of the Gaussian Sparse Histogram Mechanism*, 2022.

Input         H(w), the number of answers with word w; an answer counts a word once, and
              at most c words. For neighbors x, x' let C be the words that occur in
              both, D those that occur in x alone, D' those in x' alone.
Neighbors     One unit touches one slot. `replace`: it changes from any answer, or none,
              to any other. `add_remove`: one slot appears or vanishes.
Sensitivity   A word of D is in one answer alone, the one that x has and x' has not: its
              count is exactly 1, and |D| <= c. The same holds for D'. The counts of the
              words in C differ by at most one each: by c in L1 and sqrt(c) in L2
              (`add_remove`), or 2c and sqrt(2c) (`replace`).
Noise         Each word with a positive count gets a K of its own: a rounded Gaussian of
              scale sigma = z sqrt(c) or z sqrt(2c), or a discrete Laplace of scale
              c / epsilon or 2c / epsilon. The word is released if H(w) + K > 1 + t,
              with t the least quantile of K *as drawn* with P(K > t) <= delta0 / c (see
              `gate`). The others, of which there is no list, are never released. A
              released word may show H(w) + K.
Event         Gaussian(z) or Pure(epsilon), and Failure(delta0), under both relations;
              the proof is below.
What is free  The order of the words by their noisy counts, `clear_first`; `pass_rate`
              and `required_count`, of public numbers.
Tested by     `tests/unit_tests/laws`: the law, and the loss between all small
              neighbors, with broken twins. A word's law against mpmath:
              `tests/mechanisms/test_releases.py`. Twins: half the noise, delta0
              for each word.

*Proof.* Let p = P(K > t), at most delta0 / c: the probability that a word of
count 1 is released. M(x) releases a part of C and, independently, a part of D that is
empty with probability a = (1-p)^|D|; M(x') likewise, with a' = (1-p)^|D'|. Write P and
Q for the laws of what x and x' release of C, words alone or with their noisy counts.
Both are the same post-processing of one
Gaussian or pure mechanism, so with delta_G its curve, P(S) - e^eps Q(S) <= delta_G(eps)
for every set S and every real eps. Let b = min(a, a') >= 1 - c p >= 1 - delta0. For a
set S of outputs, and S_C those of them without a word of D or D',

    P(M(x) in S) - e^eps P(M(x') in S)
      <= (1-a) + a P(S_C) - e^eps a' Q(S_C)
      <= (1-a) + (a-b) P(S_C) + b (P(S_C) - e^eps Q(S_C))       as a' >= b
      <= (1-a) + (a-b) + b delta_G(eps)
       = 1 - b + b delta_G(eps)  <=  delta0 + (1-delta0) delta_G(eps).

Exchanging x and x' gives the other direction. The last line is the curve, at
every real eps, of a pair of mixtures: that mechanism, which fails altogether with
probability delta0. By Blackwell's theorem M(x) and M(x') are then post-processing of
this pair. So the release composes, and is amplified by sampling, as its event and
delta0 are (`accounting.Failure`). (`b >= 1 - c p` is Bernoulli's inequality. The last
step is monotone in b, since delta_G <= 1.) Outputs with words of D', which are not in
the first term, cost nothing by themselves: that is why c words pay for delta0, and not
the 2c words of D and D' that a union bound over both worlds would count under
`replace`.

*Which noise.* For one release of one or two words an answer, Laplace noise lets words
of fewer answers out: at epsilon = 1, delta = 1e-5 and c = 1, 16 instead of 24. From
three words on, and among many releases, the Gaussian does.

*When to use which.* Propose-test-release (`keyword_ptr`) wants a gap below the k-th
word and has noise 1 z or 2 z, whatever k is. This release wants no gap, so ties and
several right words are fine. Under `replace` its noise is 1.4 z for one word an answer,
2 z for two, and grows from there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

from langchain_dpicl.accounting.events import Charge, Failure, Gaussian, Pure
from langchain_dpicl.common import parameters
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import inputs, keyword_ptr
from langchain_dpicl.mechanisms.exact import DiscreteLaplace
from langchain_dpicl.mechanisms.gate import Gate
from langchain_dpicl.mechanisms.voting import lead_over_a_tie

MAX_ITEMS = 1 << 16
"""Most words of one answer that are counted: far beyond what makes sense."""


Paid: TypeAlias = tuple[Gaussian | Pure, Failure]
"""What a release is charged: `charge`, or `laplace_charge`."""


def charge(
    *,
    noise_multiplier: float | None = None,
    delta0: float | None = None,
    sampling_rate: float = 1.0,
    name: str = "ksa/threshold",
) -> Charge:
    """Return what `threshold_words` costs: a Gaussian and a failure.

    Example:
        >>> charge(noise_multiplier=2.0, delta0=1e-8).parts[1].delta0
        1e-08
    """
    return keyword_ptr.charge(
        noise_multiplier=noise_multiplier,
        delta0=delta0,
        sampling_rate=sampling_rate,
        name=name,
    )


def laplace_charge(
    *,
    epsilon: float | None = None,
    delta0: float | None = None,
    sampling_rate: float = 1.0,
    name: str = "words/threshold",
) -> Charge:
    """Return what `threshold_words` costs with Laplace noise: epsilon, a failure."""
    return Charge(
        name=name,
        parts=(
            Pure(epsilon=epsilon, sampling_rate=sampling_rate),
            Failure(delta0=delta0, sampling_rate=sampling_rate),
        ),
    )


def check(items_per_answer: int) -> int:
    """Return how many words an answer counts for, from 1 to 65,536, or refuse it."""
    words = parameters.count(items_per_answer, "items_per_answer")
    if words > MAX_ITEMS:
        raise InvalidParameterError(
            f"items_per_answer must be at most {MAX_ITEMS}, not {words}."
        )
    return words


def sensitivity(relation: Relation | str, items_per_answer: int) -> float:
    """Return the L2 sensitivity of the counts of words that both neighbors have.

    It is sqrt(c) or sqrt(2c), never rounded down.

    Example:
        >>> sensitivity("replace", items_per_answer=2)
        2.0
    """
    words = check(items_per_answer)
    return inputs.root(2 * words if inputs.is_replace(relation) else words)


def sigma(
    paid: tuple[Gaussian, Failure],
    relation: Relation | str,
    *,
    items_per_answer: int,
) -> float:
    """Return the standard deviation of a word's noise, in answers."""
    far = sensitivity(relation, items_per_answer)
    return inputs.at_least(inputs.noise_multiplier(paid[0]), far)


def threshold_words(
    counts: Mapping[str, int],
    paid: Paid,
    relation: Relation | str,
    *,
    items_per_answer: int,
) -> dict[str, float]:
    """Release the words whose noisy counts pass a threshold, with these counts.

    Args:
        counts: In how many slots' answers each word occurs. An answer counts a word
            once, and *counts for at most `items_per_answer` different words*: the
            caller has cut each answer by a public rule on that answer alone. That can't
            be seen in the counts, so it is not checked here: with a longer answer among
            them the promise does not hold. Words that are missing count 0; an empty
            mapping is fine.
        paid: The two events that were charged.
        relation: How the slots of neighbors differ.
        items_per_answer: Most different words c that an answer counts for, public.

    Returns:
        The noisy count of each word that passes, in answers: the largest first, equal
        ones by the word. Possibly none, possibly more than `items_per_answer`.

    Example:
        >>> votes = {"cough": 90, "fever": 88, "rash": 1}
        >>> paid = Gaussian(noise_multiplier=2.0), Failure(delta0=1e-6)
        >>> sorted(threshold_words(votes, paid, "replace", items_per_answer=2))
        ['cough', 'fever']
    """
    pairs = inputs.count_mapping(counts)
    gate = _gate(paid, relation, items_per_answer)
    # A word that is listed with 0 must be like one that is not listed.
    seen = {word: count for word, count in pairs if count > 0}
    return {word: n / gate.weight for word, n in gate.words(seen).items()}


def clear_first(
    noisy: Mapping[str, float],
    paid: tuple[Gaussian, Failure],
    relation: Relation | str,
    *,
    items_per_answer: int,
) -> str | None:
    """Return the word of `threshold_words` that clearly leads all others, if one does.

    Of two words with the same count one leads clearly in `voting.TIE` of cases at most;
    see `voting.lead_over_a_tie`. A word that was not released may have been as close
    below the threshold as can be, so the first word must lead the threshold as well.
    The arguments are those of that release: it is post-processing.

    Example:
        >>> paid = Gaussian(noise_multiplier=1.0), Failure(delta0=1e-6)
        >>> clear_first(
        ...     {"cough": 90.2, "fever": 39.5}, paid, "replace", items_per_answer=1
        ... )
        'cough'
    """
    gate = _gate(paid, relation, items_per_answer)
    (word, first), *rest = [*noisy.items(), ("", -math.inf)]
    second = max([1 + gate.quantile / gate.weight, *(count for _, count in rest)])
    lead = lead_over_a_tie(gate.noise.scale) / gate.weight
    return word if first - second >= lead else None


def pass_rate(
    count: float,
    paid: Paid,
    relation: Relation | str,
    *,
    items_per_answer: int,
) -> float:
    """Return the exact probability that `threshold_words` releases a word of a count.

    For planning, on a count that is assumed or public: the counts of real data are
    private.

    Returns:
        0 for a count of 0, and at most delta0 / c for a count of 1.

    Example:
        >>> paid = Gaussian(noise_multiplier=2.0), Failure(delta0=1e-6)
        >>> round(pass_rate(25, paid, "replace", items_per_answer=2), 3)
        0.866
    """
    rate = _gate(paid, relation, items_per_answer).pass_rate(count)
    return rate if count else 0.0


def required_count(
    paid: Paid,
    relation: Relation | str,
    *,
    items_per_answer: int,
    pass_rate: float = 0.95,
) -> int:
    """Return the least whole count that is released with the given probability.

    It is one word's: several words come out together less often.

    Example:
        >>> paid = Gaussian(noise_multiplier=2.0), Failure(delta0=1e-6)
        >>> required_count(paid, "replace", items_per_answer=2)
        28
    """
    return _gate(paid, relation, items_per_answer).required(pass_rate, 1)


def _gate(paid: Paid, relation: Relation | str, items_per_answer: int) -> Gate:
    share = inputs.failure_of(paid) / check(items_per_answer)
    if isinstance(paid[0], Pure):
        moved = items_per_answer * (2 if inputs.is_replace(relation) else 1)
        law = DiscreteLaplace.calibrated(moved, inputs.epsilon(paid[0], Pure))
        return Gate.of(law, share, threshold=1)
    far = sensitivity(relation, items_per_answer)
    z = inputs.noise_multiplier(paid[0])
    return Gate.gaussian(inputs.at_least(z, far), share, threshold=1)
