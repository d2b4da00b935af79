"""Words: what comes out, how often, and what one slot can change, with broken twins."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from support.exact_laws import keeps_to

from langchain_dpicl import InvalidParameterError
from langchain_dpicl.accounting import Exponential, Failure, Gaussian, Pure
from langchain_dpicl.mechanisms import keyword_joint, keyword_ptr, keyword_threshold
from langchain_dpicl.mechanisms.random import seeded

CHANGE = {"add_remove": 1, "replace": 2}
PAID = Gaussian(noise_multiplier=1.5), Failure(delta0=1e-3)
WORDS = "abcd"
ANSWERS = [frozenset(w) for n in range(3) for w in itertools.combinations(WORDS, n)]


def worlds(relation: str) -> Iterator[tuple[Counter[str], Counter[str]]]:
    """Yield the counts of all small neighbors: three slots, two words an answer."""
    for rest in itertools.combinations_with_replacement(ANSWERS, 2):
        common = Counter(word for answer in rest for word in answer)
        for one, two in itertools.product(ANSWERS, repeat=2):
            if relation == "replace" or not two:
                yield common + Counter(one), common + Counter(two)


def top(counts: Counter[str], k: int) -> tuple[int, frozenset[str]]:
    """Return the gap below the k words, and the words."""
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    heights = [height for _, height in ranked] + [0] * (k + 1)
    return heights[k - 1] - heights[k], frozenset(word for word, _ in ranked[:k])


@pytest.mark.parametrize("relation", CHANGE)
def test_gaps_move_by_the_sensitivity_and_a_larger_one_keeps_the_set(
    relation: str,
) -> None:
    moved, unstable = 0, -1
    for one, two in worlds(relation):
        for k in (1, 2):
            (gap, words), (other, same) = top(one, k), top(two, k)
            moved = max(moved, abs(gap - other))
            unstable = max(unstable, gap if words != same else -1)
    # The twins: less, and T lower by one.
    assert moved == keyword_ptr.sensitivity(relation) == unstable


def tail(sigma: float, t: int) -> mp.mpf:
    """Return P(K > t) of whole noise."""
    return mp.erfc((t + mp.mpf("0.5")) / (mp.mpf(sigma) * mp.sqrt(2))) / 2


def passes(value: float, floor: int, sigma: float, share: float) -> float:
    """Return how often a count passes a noisy threshold, in steps of its own."""
    with mp.workdps(30):
        weight = 1 << 20
        t = int(weight * sigma * mp.sqrt(2) * mp.erfinv(1 - 2 * mp.mpf(share)))
        while tail(weight * sigma, t) > share:
            t += 1
        return float(tail(weight * sigma, t - weight * int(value - floor)))


@pytest.mark.parametrize("relation", CHANGE)
def test_the_laws_of_passing_are_exact(relation: str) -> None:
    change, delta0 = CHANGE[relation], 1e-3
    for gap in (change, change + 1, 6, 9, 20):
        found = keyword_ptr.pass_rate(gap, PAID, relation)
        assert found == pytest.approx(
            passes(gap, change, 1.5 * change, delta0), rel=0.01
        )
        if gap != 6:
            continue
        # The twins: half the noise, T lower by one.
        for twin in ((change, 0.75 * change), (change - 1, 1.5 * change)):
            assert found != pytest.approx(passes(gap, *twin, delta0), rel=0.02)
    sigma = 1.5 * math.sqrt(2 * change)
    for count in (1, 2, 6, 12):
        found = keyword_threshold.pass_rate(count, PAID, relation, items_per_answer=2)
        assert found == pytest.approx(passes(count, 1, sigma, delta0 / 2), rel=0.01)
        # The twin: delta0 for each word instead of a share.
        assert found < 0.99 * passes(count, 1, sigma, delta0) or count == 12
    assert keyword_ptr.pass_rate(change, PAID, relation) <= delta0
    new = keyword_threshold.pass_rate(1, PAID, relation, items_per_answer=2)
    assert delta0 * 0.99 <= 2 * new <= delta0


def check_drawn(draw: Callable[[], bool], chance: float) -> None:
    with seeded(4):
        drawn = [draw() for _ in range(2_000)]
    assert keeps_to(drawn, {True: chance, False: 1 - chance})


@pytest.mark.parametrize("relation", CHANGE)
def test_draws_pass_as_often_as_planned(relation: str) -> None:
    change, counts = CHANGE[relation], {"a": 14, "b": 11, "c": 3}
    rate = keyword_ptr.pass_rate(8, PAID, relation)
    check_drawn(
        lambda: keyword_ptr.ptr_top_k(counts, 2, PAID, relation) == {"a", "b"}, rate
    )
    # The twin: the gap at k + 1.
    other = keyword_ptr.pass_rate(3, PAID, relation)
    with pytest.raises(AssertionError):
        check_drawn(
            lambda: keyword_ptr.ptr_top_k(counts, 2, PAID, relation) is not None, other
        )
    item = keyword_threshold.pass_rate(11, PAID, relation, items_per_answer=change)

    def drawn() -> bool:
        words = keyword_threshold.threshold_words(
            counts, PAID, relation, items_per_answer=change
        )
        return "b" in words

    check_drawn(drawn, item)


def test_too_few_words_never_come_out_and_zeros_are_none() -> None:
    sure = Gaussian(noise_multiplier=1e-6), Failure(delta0=0.9)
    for counts in ({}, {"a": 0}, {"a": 900}, {"a": 900, "b": 0}):
        assert keyword_ptr.ptr_top_k(counts, 2, sure, "replace") is None
    loose = Gaussian(noise_multiplier=5.0), Failure(delta0=0.9)
    zeros = dict.fromkeys("abcdefgh", 0)
    for _ in range(50):
        assert not keyword_threshold.threshold_words(
            zeros, loose, "replace", items_per_answer=1
        )


@pytest.mark.parametrize("relation", CHANGE)
def test_common_words_move_by_the_sensitivity_and_new_ones_are_few(
    relation: str,
) -> None:
    moved, new = 0, 0
    for one, two in worlds(relation):
        common = set(+one) & set(+two)
        moved = max(moved, sum((one[w] - two[w]) ** 2 for w in common))
        new = max(new, len(set(+one) - set(+two)))
        assert all(one[w] == 1 for w in set(+one) - set(+two))
    assert keyword_threshold.sensitivity(relation, 2) ** 2 == pytest.approx(moved)
    assert new == 2


def test_required_counts_are_the_least() -> None:
    for relation in CHANGE:
        gap = keyword_ptr.required_gap(PAID, relation)
        assert keyword_ptr.pass_rate(gap, PAID, relation) >= 0.95
        assert keyword_ptr.pass_rate(gap - 1, PAID, relation) < 0.95
        terms: Any = {"items_per_answer": 3}
        count = keyword_threshold.required_count(PAID, relation, **terms)
        assert keyword_threshold.pass_rate(count, PAID, relation, **terms) >= 0.95
        assert keyword_threshold.pass_rate(count - 1, PAID, relation, **terms) < 0.95


def test_one_of_two_equal_words_rarely_leads_clearly() -> None:
    paid = Gaussian(noise_multiplier=2.0), Failure(delta0=0.01)
    terms: Any = {"relation": "replace", "items_per_answer": 1}
    clear = 0
    with seeded(6):
        for _ in range(2_000):
            noisy = keyword_threshold.threshold_words({"a": 60, "b": 60}, paid, **terms)
            clear += keyword_threshold.clear_first(noisy, paid, **terms) is not None
    assert 60 <= clear <= 145
    assert keyword_threshold.clear_first({"a": 90.0}, paid, **terms) == "a"
    assert keyword_threshold.clear_first({}, paid, **terms) is None


def soft(utilities: dict[Any, float], epsilon: float, change: int) -> dict[Any, Any]:
    """Return the law of the exponential mechanism."""
    with mp.workdps(30):
        weights = {
            o: mp.exp(mp.mpf(epsilon) * u / (2 * change)) for o, u in utilities.items()
        }
        total = mp.fsum(weights.values())
        return {o: weight / total for o, weight in weights.items()}


@pytest.mark.parametrize("relation", CHANGE)
def test_a_choice_of_k_keeps_to_the_exponential_mechanism(relation: str) -> None:
    counts = {"a": 9, "b": 8, "c": 2}
    gaps = {1: 1.0, 2: 6.0, 3: 2.0, 4: 0.0}
    law = soft(gaps, 0.8, CHANGE[relation])
    paid, twin = Exponential(epsilon=0.8), Exponential(epsilon=1.6)
    with seeded(3):
        drawn = [
            keyword_ptr.choose_k(counts, (1, 4), p, relation) for p in [paid] * 4000
        ]
        loud = [
            keyword_ptr.choose_k(counts, (1, 4), p, relation) for p in [twin] * 4000
        ]
    assert keeps_to(drawn, law)
    assert not keeps_to(loud, law)
    found = keyword_ptr.choice_law(counts, [4, 1, 2, 3, 1], paid, relation)
    assert found == pytest.approx({k: float(p) for k, p in law.items()})


@pytest.mark.parametrize("relation", CHANGE)
def test_ranked_words_keep_to_the_exponential_mechanism(relation: str) -> None:
    counts = [5, 5, 2, 0]
    heights = sorted(counts, reverse=True)
    utilities = {
        s: -max(heights[i] - counts[word] for i, word in enumerate(s))
        for s in itertools.permutations(range(4), 2)
    }
    law = soft(utilities, 1.2, CHANGE[relation])
    for epsilon, holds in ((1.2, True), (2.4, False)):
        paid = Exponential(epsilon=epsilon)
        with seeded(9):
            drawn = [
                tuple(keyword_joint.joint_top_k(counts, 2, paid, relation))
                for _ in range(3_000)
            ]
        assert keeps_to(drawn, law) == holds


@pytest.mark.parametrize("relation", CHANGE)
def test_utilities_of_ranked_words_move_by_the_sensitivity(relation: str) -> None:
    def utility(counts: Counter[str], words: tuple[str, ...]) -> int:
        heights = sorted((counts[w] for w in WORDS), reverse=True)
        return -max(heights[i] - counts[w] for i, w in enumerate(words))

    moved = 0
    for one, two in worlds(relation):
        for words in itertools.permutations(WORDS, 2):
            moved = max(moved, abs(utility(one, words) - utility(two, words)))
    assert moved == keyword_joint.sensitivity(relation)


def test_ranked_words_of_extreme_privacy_and_domains() -> None:
    counts = np.zeros(200_000, int)
    counts[[7, 70_000, 199_999]] = [900, 800, 700]
    for epsilon, expected in ((50.0, True), (1e-12, False)):
        paid = Exponential(epsilon=epsilon)
        found = keyword_joint.joint_top_k(counts, 3, paid, "replace")
        assert (found == [7, 70_000, 199_999]) == expected
        assert len(set(found)) == 3
    paid = Exponential(epsilon=1e300)
    assert keyword_joint.joint_top_k([1 << 32, 0, 3], 3, paid, "replace") == [0, 2, 1]


def test_what_was_not_paid_is_refused_and_no_word_is_told() -> None:
    test, failure = PAID
    wrong: list[Any] = [
        (test,),
        (failure, test),
        (test, Failure(delta0=None)),
        (test, Failure(delta0=0.0)),
        (test, Failure(delta0=1e-3, sampling_rate=0.5)),
        test,
    ]
    for paid in wrong:
        with pytest.raises(InvalidParameterError):
            keyword_ptr.ptr_top_k({"a": 1}, 1, paid, "replace")
        with pytest.raises(InvalidParameterError):
            keyword_threshold.threshold_words(
                {"a": 1}, paid, "replace", items_per_answer=1
            )
    for counts in ({"secret": -77}, {"secret": 7.7}, {"secret": True}, {b"secret": 7}):
        with pytest.raises(InvalidParameterError) as caught:
            keyword_ptr.ptr_top_k(counts, 1, PAID, "replace")  # type: ignore[arg-type]
        assert "secret" not in str(caught.value)
        assert "7" not in str(caught.value).replace("4294967296", "")
    for k_range in ((3, 1), [], [0], 5, (1, 20_000), None, ["a"]):
        with pytest.raises(InvalidParameterError):
            keyword_ptr.choose_k({}, k_range, Exponential(epsilon=1.0), "replace")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError):
        keyword_ptr.range_charge(sampling_rate=0.5)
    for most in (0, 1 << 17, 1.5):
        with pytest.raises(InvalidParameterError):
            keyword_threshold.check(most)  # type: ignore[arg-type]


def laplace_tail(scale: float, t: int) -> mp.mpf:
    """Return P(K > t) of discrete Laplace noise."""
    with mp.workdps(30):
        rate = mp.exp(-1 / mp.mpf(scale))
        return (
            rate ** (t + 1) / (1 + rate) if t >= 0 else 1 - laplace_tail(scale, -t - 1)
        )


@pytest.mark.parametrize("relation", CHANGE)
@pytest.mark.parametrize("most", [1, 2])
def test_words_with_laplace_noise_keep_to_their_law(relation: str, most: int) -> None:
    epsilon, delta0 = 0.5, 1e-3
    paid = Pure(epsilon=epsilon), Failure(delta0=delta0)
    moved = max(
        sum(abs(one[word] - two[word]) for word in set(+one) & set(+two))
        for one, two in worlds(relation)
    )
    # In L1 the counts of common words move by 2 c, or c: here c is 2.
    assert moved == (4 if relation == "replace" else 2)
    scale = most * CHANGE[relation] / epsilon
    t = next(t for t in itertools.count() if laplace_tail(scale, t) <= delta0 / most)
    for count in (1, 2, 10, 30):
        found = keyword_threshold.pass_rate(
            count, paid, relation, items_per_answer=most
        )
        assert found == pytest.approx(float(laplace_tail(scale, t - count + 1)))
        # The twins: half the noise, delta0 for each word.
        assert found != pytest.approx(float(laplace_tail(scale / 2, t - count + 1)))
    assert keyword_threshold.pass_rate(1, paid, relation, items_per_answer=most) <= (
        delta0 / most
    )
    least = keyword_threshold.required_count(paid, relation, items_per_answer=most)
    rates = [
        keyword_threshold.pass_rate(n, paid, relation, items_per_answer=most)
        for n in (least - 1, least)
    ]
    assert rates[0] < 0.95 <= rates[1]

    def drawn() -> bool:
        words = keyword_threshold.threshold_words(
            {"a": least - 4, "b": 1}, paid, relation, items_per_answer=most
        )
        return "a" in words

    rate = keyword_threshold.pass_rate(least - 4, paid, relation, items_per_answer=most)
    check_drawn(drawn, rate)


@pytest.mark.parametrize("paid", [(), (Pure(epsilon=1.0),), (Failure(delta0=0.1),) * 2])
def test_words_need_the_two_events_of_a_charge(paid: Any) -> None:
    with pytest.raises(InvalidParameterError, match="paid must"):
        keyword_threshold.threshold_words({"a": 3}, paid, "replace", items_per_answer=1)
