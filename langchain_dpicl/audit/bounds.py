"""What samples show, with confidence: rates, areas under a curve, and what DP allows.

Nothing here knows of chains: these are numbers alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from langchain_dpicl.accounting.gaussian import gaussian_epsilon


class Interval(NamedTuple):
    """An estimate between the ends of its confidence interval."""

    value: float
    low: float
    high: float


def clopper_pearson(successes: int, trials: int, confidence: float) -> Interval:
    """Return a rate with its exact two-sided interval (Clopper and Pearson 1934).

    Example:
        >>> low = clopper_pearson(0, 300, 0.9).low
        >>> low, round(clopper_pearson(0, 300, 0.9).high, 3)
        (0.0, 0.01)
    """
    from scipy import stats

    tail, missed = (1 - confidence) / 2, trials - successes
    low = stats.beta.ppf(tail, successes, missed + 1) if successes else 0.0
    high = stats.beta.isf(tail, successes + 1, missed) if missed else 1.0
    return Interval(successes / trials, float(low), float(high))


def area_under_curve(
    members: Sequence[float], others: Sequence[float], confidence: float
) -> Interval:
    """Return the probability that a member's score is above another's; ties are half.

    The interval is that of DeLong, DeLong and Clarke-Pearson 1988, computed by midranks
    (Sun and Xu 2014). Where the scores are separated, it would be one point. Then it is
    that of Clopper and Pearson, over as many disjoint pairs as there are.

    Example:
        >>> area_under_curve([1, 1, 1], [1, 1, 1], 0.95)
        Interval(value=0.5, low=0.5, high=0.5)
        >>> area_under_curve([2] * 100, [1] * 100, 0.95).low > 0.96
        True
    """
    from scipy import stats

    m, n = len(members), len(others)
    ranks = stats.rankdata(np.concatenate([members, others]))
    above = (ranks[:m] - stats.rankdata(members)) / n
    below = 1 - (ranks[m:] - stats.rankdata(others)) / m
    value = float(above.mean())
    if value in (0.0, 1.0):
        pairs = min(m, n)
        return clopper_pearson(round(value * pairs), pairs, confidence)
    variance = above.var(ddof=1) / m + below.var(ddof=1) / n
    half = float(stats.norm.isf((1 - confidence) / 2) * math.sqrt(variance))
    return Interval(value, max(value - half, 0.0), min(value + half, 1.0))


class Found(NamedTuple):
    """How many members a threshold finds, and how many others it takes for some."""

    true_rate: Interval
    false_rate: Interval


def found_at(
    members: Sequence[float],
    others: Sequence[float],
    false_rate: float,
    confidence: float,
) -> Found:
    """Return how many members have scores that at most that share of others reach.

    Example:
        >>> found_at([5, 6, 1], [1, 2, 3, 4], 0.01, 0.95).true_rate.value
        0.6666666666666666
    """
    allowed = math.floor(false_rate * len(others))
    threshold = sorted(others, reverse=True)[allowed]
    true, false = (sum(s > threshold for s in scores) for scores in (members, others))
    return Found(
        clopper_pearson(true, len(members), confidence),
        clopper_pearson(false, len(others), confidence),
    )


def dp_true_rate(false_rate: float, epsilon: float, delta: float) -> float:
    """Return the highest true positive rate of a test on an (epsilon, delta)-DP output.

    Kairouz, Oh and Viswanath 2015, Theorem 2.1.

    Example:
        >>> dp_true_rate(0.01, 0.0, 0.0), dp_true_rate(0.01, 20.0, 0.0) > 0.99
        (0.01, True)
    """
    other = 1 - math.exp(-epsilon) * (1 - delta - false_rate)
    return min(math.exp(min(epsilon, 700.0)) * false_rate + delta, other, 1.0)


def dp_area(epsilon: float, delta: float) -> float:
    """Return the largest area under the curve that (epsilon, delta)-DP allows.

    It is the area under the rates of `dp_true_rate`.

    Example:
        >>> dp_area(0.0, 0.0), round(dp_area(1.0, 0.0), 3)
        (0.5, 0.731)
    """
    return 1 - (1 - delta) ** 2 / (1 + math.exp(min(epsilon, 700.0)))


def exact_epsilon(
    p: Mapping[Any, float], q: Mapping[Any, float], delta: float
) -> float:
    """Return the least epsilon at which two laws are (epsilon, delta)-close.

    Example:
        >>> fair, other = {0: 0.5, 1: 0.5}, {0: 0.25, 1: 0.75}
        >>> round(math.exp(exact_epsilon(fair, other, 0.0)), 9)
        2.0
    """
    outcomes = {*p, *q}

    def is_close(epsilon: float) -> bool:
        factor = math.exp(epsilon)
        return all(
            math.fsum(
                max(one.get(o, 0.0) - factor * other.get(o, 0.0), 0.0) for o in outcomes
            )
            <= delta
            for one, other in ((p, q), (q, p))
        )

    low, high = 0.0, 64.0
    if is_close(low) or not is_close(high):
        return low if is_close(low) else math.inf
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if is_close(middle) else (middle, high)
    return low


def sampled_epsilon(
    p: Sequence[bool] | Any, q: Sequence[bool] | Any, delta: float, confidence: float
) -> float:
    """Return a lower bound of epsilon by how often an event happened in two worlds.

    The event happens with p at least and with q at most, with the confidence together:
    so epsilon is at least log((p - delta) / q) (Jagielski, Ullman, Oprea 2020).

    Example:
        >>> event, rare = [True] * 900 + [False] * 100, [True] * 100 + [False] * 900
        >>> 1.8 < sampled_epsilon(event, rare, 0.0, 0.99) < math.log(9)
        True
    """
    low = clopper_pearson(int(np.sum(p)), len(p), confidence).low
    high = clopper_pearson(int(np.sum(q)), len(q), confidence).high
    return max(math.log((low - delta) / high), 0.0) if low > delta else 0.0


def one_run_epsilon(
    canaries: int, guesses: int, correct: int, delta: float, confidence: float
) -> float:
    """Return a lower bound of epsilon by how many coins were guessed in one run.

    Each of the canaries took part by a fair coin of its own, and from the release alone
    some coins were guessed. Theorem 5.2 of Steinke, Nasr and Jagielski (2023) bounds
    the probability of so many right guesses from an (epsilon, delta)-DP release. An
    epsilon at which this probability is 1 - confidence or less is too small.

    Example:
        >>> bound = one_run_epsilon(100, 100, 100, 0.0, 0.95)
        >>> round(1 / (1 + math.exp(-bound)) ** 100, 9)
        0.05
    """
    from scipy import stats

    def is_refuted(epsilon: float) -> bool:
        right = 1 / (1 + math.exp(-epsilon))
        # P(W >= correct - i), for i from 0 on, if each guess is right by itself.
        at_least = stats.binom.sf(correct - 1 - np.arange(correct + 1), guesses, right)
        shares = (at_least[1:] - at_least[0]) / np.arange(1, correct + 1)
        failed = 2 * canaries * delta * max(shares, default=0.0)
        return bool(at_least[0] + failed <= 1 - confidence)

    return _largest(is_refuted)


def one_run_gaussian(
    canaries: int, guesses: int, correct: int, delta: float, confidence: float
) -> float:
    """Return the same for a release whose trade-off curve is that of a Gaussian.

    The recursion of Mahloujifar, Melis and Chaudhuri 2024, Algorithm 3: `hits` and
    `misses` are the mass, over the canaries, of outcomes with more right guesses. Of
    curves by mu, the largest that is refuted is turned into its epsilon at delta.

    Example:
        >>> one_run_gaussian(100, 100, 50, 1e-5, 0.95)
        0.0
    """
    from scipy import special

    def is_refuted(mu: float) -> bool:
        hits = (1 - confidence) * correct / canaries
        misses = (1 - confidence) * (guesses - correct) / canaries
        for at in range(correct - 1, -1, -1):
            least = float(special.ndtr(special.ndtri(min(hits, 1.0)) - mu))
            if least <= misses:
                break  # Neither changes any more.
            hits += at / (guesses - at) * (least - misses)
            misses = least
        return hits + misses > guesses / canaries

    mu = _largest(is_refuted)
    return gaussian_epsilon(mu, delta) if mu else 0.0


def _largest(is_refuted: Callable[[float], bool]) -> float:
    """Return the largest figure that is refuted: 0 if none is; at most 64."""
    low, high = 0.0, 64.0
    if not is_refuted(low):
        return 0.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low
