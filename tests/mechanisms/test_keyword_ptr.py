from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
from scipy import stats

from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms import (
    SeededRandom,
    keyword_ptr,
    ptr_pass_rate,
    ptr_top_k,
    required_gap,
    sensitivity,
)
from langchain_dpicl.mechanisms.keyword_ptr import _gap_test, _GapTest

RELATIONS = list(Relation)
THRESHOLD = {Relation.ADD_REMOVE: 1, Relation.REPLACE: 2}
COMMON = {"cough": 52, "fever": 50, "rash": 3, "nausea": 2}


def outcomes(
    counts: dict[str, int], k: int, relation: Relation, delta0: float, runs: int = 4000
) -> list[bool]:
    source = SeededRandom(1)
    return [
        ptr_top_k(
            counts,
            k,
            noise_multiplier=2.0,
            delta0=delta0,
            relation=relation,
            random=source,
        )
        is not None
        for _ in range(runs)
    ]


def reference_pass_rate(gap: int, z: float, delta0: float, t: int) -> float:
    """The continuous test, which the rounded one follows to about 1/512 sigma."""
    excess = (max(t, gap) - t) / (z * t)
    return float(stats.norm.sf(-stats.norm.ppf(delta0) - excess))


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("z", [1e-6, 0.3, 2.0, 1e6])
@pytest.mark.parametrize("delta0", [1e-300, 1e-9, 0.3, 0.9])
def test_an_unstable_set_passes_with_at_most_delta0(
    relation: Relation, z: float, delta0: float
) -> None:
    test = _gap_test(z, delta0, relation)
    t = test.threshold
    for gap in range(t + 1):
        # Passing needs noise above the quantile, however small the gap.
        assert not test.passes(gap, test.quantile)
        assert test.passes(gap, test.quantile + 1)
        rate = ptr_pass_rate(gap, noise_multiplier=z, delta0=delta0, relation=relation)
        assert 0.9 * delta0 < rate <= delta0


@pytest.mark.parametrize("relation", RELATIONS)
def test_passes_are_as_frequent_as_computed(
    fits: Callable[..., bool], relation: Relation
) -> None:
    t = THRESHOLD[relation]
    for gap in (0, t, t + 2, t + 5):
        rate = ptr_pass_rate(gap, noise_multiplier=2.0, delta0=0.1, relation=relation)
        assert rate == pytest.approx(reference_pass_rate(gap, 2.0, 0.1, t), abs=1e-3)
        drawn = outcomes({"a": 20 + gap, "b": 20}, 1, relation, 0.1)
        assert fits(drawn, {True: rate, False: 1 - rate})


@pytest.mark.parametrize("relation", RELATIONS)
def test_half_the_noise_is_caught(
    fits: Callable[..., bool], monkeypatch: pytest.MonkeyPatch, relation: Relation
) -> None:
    t = THRESHOLD[relation]
    rate = reference_pass_rate(t + 5, 2.0, 0.1, t)
    monkeypatch.setattr(sensitivity, "keyword_gap", lambda relation: t / 2)
    drawn = outcomes({"a": 25 + t, "b": 20}, 1, relation, 0.1)
    assert not fits(drawn, {True: rate, False: 1 - rate})


def test_the_threshold_one_under_replace_is_caught(
    fits: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gap of 2 does not make the set stable; testing 2 > 1 would treat it so."""
    monkeypatch.setattr(sensitivity, "ptr_threshold", lambda relation: 1)
    drawn = outcomes({"a": 22, "b": 20}, 1, Relation.REPLACE, 0.1)
    assert not fits(drawn, {True: 0.1, False: 0.9})


def test_a_clear_gap_releases_the_set_and_an_unclear_one_nothing() -> None:
    for k, expected in [(2, {"cough", "fever"}), (1, None), (3, None)]:
        for seed in range(30):
            got = ptr_top_k(
                COMMON,
                k,
                noise_multiplier=1.5,
                delta0=1e-6,
                relation="replace",
                random=SeededRandom(seed),
            )
            assert got == expected


def released_at_a_tie(runs: int) -> set[frozenset[str] | None]:
    """Two of three words are asked for; one swapped answer could flip the set."""
    source = SeededRandom(2)
    return {
        ptr_top_k(
            {"a": 90, "b": 50, "c": 50},
            2,
            noise_multiplier=1.0,
            delta0=1e-9,
            relation="replace",
            random=source,
        )
        for _ in range(runs)
    }


def test_the_gap_is_tested_below_the_released_words() -> None:
    assert released_at_a_tie(300) == {None}


def test_a_gap_tested_at_k_plus_one_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    right = keyword_ptr.count_at
    monkeypatch.setattr(
        keyword_ptr, "count_at", lambda ranked, rank: right(ranked, rank + 1)
    )
    assert released_at_a_tie(300) != {None}


def always_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_GapTest, "passes", lambda self, gap, noise: True)


def top(counts: dict[str, int], k: int) -> frozenset[str] | None:
    return ptr_top_k(counts, k, noise_multiplier=1.0, delta0=0.01, relation="replace")


def test_a_lucky_pass_with_fewer_than_k_words_releases_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    always_pass(monkeypatch)
    assert top({}, 1) is None
    assert top({"a": 3, "b": 1}, 3) is None
    assert top({"a": 3, "b": 0, "c": 0}, 2) is None
    assert top({"a": 3, "b": 1}, 2) == {"a", "b"}


def test_ties_and_the_sets_order_do_not_show_ranks_or_insertion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    always_pass(monkeypatch)
    words = [f"word{i}" for i in range(12)]
    orders = {
        tuple(top(dict.fromkeys(turn, 9), 12) or ()) for turn in (words, words[::-1])
    }
    ranked = {w: 9 + i for i, w in enumerate(words)}
    orders.add(tuple(top(ranked, 12) or ()))
    assert len(orders) == 1
    assert top({"b": 5, "a": 5, "c": 5}, 2) == top({"c": 5, "a": 5, "b": 5}, 2)


def gaussian_delta(epsilon: float, z: float) -> float:
    shift = epsilon * z
    return float(
        stats.norm.cdf(0.5 / z - shift)
        - math.exp(epsilon) * stats.norm.cdf(-0.5 / z - shift)
    )


def worst_excess(relation: Relation, z: float, delta0: float) -> float:
    """Largest delta(epsilon) - delta_Gauss(epsilon) - delta0 over all neighbors.

    Exact output distributions, all histograms of up to three answers over four words,
    all k up to one more than there are words.
    """
    words = "abcd"
    moves = [*itertools.product((0, 1), repeat=4)]
    if relation is Relation.REPLACE:
        moves = [*itertools.product((-1, 0, 1), repeat=4)]
    law: dict[tuple[tuple[int, ...], int], tuple[frozenset[str] | None, float]] = {}
    for x in itertools.product(range(4), repeat=4):
        for k in range(1, 6):
            ranked = [*sorted(x, reverse=True), 0, 0]
            rate = ptr_pass_rate(
                ranked[k - 1] - ranked[k],
                noise_multiplier=z,
                delta0=delta0,
                relation=relation,
            )
            kept = top(dict(zip(words, x, strict=True)), k)
            law[x, k] = (kept, rate if kept is not None else 0.0)
    worst = -1.0
    for epsilon in (0.0, 0.5, 2.0):
        allowed = gaussian_delta(epsilon, z) + delta0
        growth = math.exp(epsilon)
        for (x, k), (kept, p) in law.items():
            for move in moves:
                y = tuple(a + b for a, b in zip(x, move, strict=True))
                if (y, k) not in law:
                    continue
                for one, other in (((kept, p), law[y, k]), (law[y, k], (kept, p))):
                    same = other[1] if one[0] == other[0] else 0.0
                    loss = max(one[1] - growth * same, 0.0)
                    loss += max((1 - one[1]) - growth * (1 - other[1]), 0.0)
                    worst = max(worst, loss - allowed)
    return worst


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("z", [0.4, 1.5])
def test_the_whole_release_is_private_by_enumeration(
    monkeypatch: pytest.MonkeyPatch, relation: Relation, z: float
) -> None:
    always_pass(monkeypatch)
    assert worst_excess(relation, z, 0.05) <= 1e-12


def test_enumeration_catches_a_threshold_that_is_too_low(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    always_pass(monkeypatch)
    monkeypatch.setattr(sensitivity, "ptr_threshold", lambda relation: 1)
    assert worst_excess(Relation.REPLACE, 1.5, 0.05) > 0.01


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("z", [0.2, 2.0, 50.0])
@pytest.mark.parametrize("rate", [0.5, 0.95, 0.999])
def test_the_required_gap_is_enough_and_least(
    relation: Relation, z: float, rate: float
) -> None:
    test = {"noise_multiplier": z, "delta0": 1e-7, "relation": relation}
    gap = required_gap(**test, pass_rate=rate)
    step = 1 / _gap_test(z, 1e-7, relation).weight
    assert ptr_pass_rate(gap, **test) >= rate * (1 - 1e-12)
    assert ptr_pass_rate(gap - 2 * step, **test) < rate
    t = THRESHOLD[relation]
    expected = t + z * t * (stats.norm.isf(1e-7) + stats.norm.ppf(rate))
    assert gap == pytest.approx(expected, abs=0.01 * z * t)


def test_the_required_gap_is_above_the_threshold_even_for_a_low_rate() -> None:
    gap = required_gap(
        noise_multiplier=1.0, delta0=0.5, relation="replace", pass_rate=0.01
    )
    assert gap > 2


def test_the_set_comes_from_the_words_alone() -> None:
    assert keyword_ptr.count_at([("a", 3), ("b", 1)], 2) == 1
    assert keyword_ptr.count_at([("a", 3), ("b", 1)], 3) == 0
