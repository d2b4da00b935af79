from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms import SeededRandom, joint_top_k, sensitivity
from langchain_dpicl.mechanisms.keyword_joint import (
    _draw_loss,
    _draw_sequence,
    _Levels,
    _terms,
    _weights,
)
from langchain_dpicl.mechanisms.lazy_uniform import GUARD_BITS

FIVE, SIX = [4, 1, 3, 3, 0], [5, 2, 2, 4, 0, 4]


def utility(counts: Sequence[int], words: Sequence[int]) -> int:
    ranked = sorted(counts, reverse=True)
    return -max(ranked[i] - counts[word] for i, word in enumerate(words))


def law(counts: Sequence[int], k: int, slope: float) -> dict[tuple[int, ...], float]:
    sequences = list(itertools.permutations(range(len(counts)), k))
    weights = [math.exp(slope * utility(counts, s)) for s in sequences]
    total = sum(weights)
    return {s: w / total for s, w in zip(sequences, weights, strict=True)}


def draws(
    counts: Sequence[int], k: int, epsilon: float, relation: Relation | str
) -> list[tuple[int, ...]]:
    source = SeededRandom(1)
    return [
        tuple(joint_top_k(counts, k, epsilon=epsilon, relation=relation, random=source))
        for _ in range(8000)
    ]


@pytest.mark.parametrize(
    ("counts", "k", "epsilon", "relation"),
    [
        (FIVE, 2, 1.5, Relation.ADD_REMOVE),
        (FIVE, 2, 1.5, Relation.REPLACE),
        (SIX, 3, 4.0, Relation.REPLACE),
        ([2, 2, 2, 2], 2, 1.0, Relation.REPLACE),
        ([3, 1, 0], 3, 1.0, Relation.ADD_REMOVE),
    ],
)
def test_sequences_follow_the_enumerated_distribution(
    fits: Callable[..., bool],
    counts: list[int],
    k: int,
    epsilon: float,
    relation: Relation,
) -> None:
    slope = epsilon / (2 if relation is Relation.ADD_REMOVE else 4)
    assert fits(draws(counts, k, epsilon, relation), law(counts, k, slope))


def test_half_the_sensitivity_is_caught(
    fits: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensitivity, "joint_utility", lambda relation: 1)
    assert not fits(draws(FIVE, 2, 1.5, Relation.REPLACE), law(FIVE, 2, 1.5 / 4))


@pytest.mark.parametrize("relation", list(Relation))
def test_the_enumerated_distribution_is_private(relation: Relation) -> None:
    """All histograms of four words with counts 0..2 and all their neighbors."""
    epsilon, delta = 1.0, sensitivity.joint_utility(relation)
    moves = [*itertools.product((0, 1), repeat=4)]
    if relation is Relation.REPLACE:
        moves = [*itertools.product((-1, 0, 1), repeat=4)]
    laws = {
        x: law(x, 2, epsilon / (2 * delta))
        for x in itertools.product(range(3), repeat=4)
    }
    worst = max(
        abs(math.log(laws[x][s] / laws[y][s]))
        for x in laws
        for move in moves
        if (y := tuple(a + b for a, b in zip(x, move, strict=True))) in laws
        for s in laws[x]
    )
    assert worst <= epsilon * (1 + 1e-12)


histograms = st.lists(st.integers(0, 5), min_size=1, max_size=6)


@settings(deadline=None, max_examples=80)
@given(histograms, st.data())
def test_the_number_of_sequences_at_each_loss_is_right(
    counts: list[int], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(counts)))
    levels = _Levels(np.array(counts), k)
    losses = [
        -utility(counts, s) for s in itertools.permutations(range(len(counts)), k)
    ]
    for t in range(-1, 7):
        assert levels.sequences(t) == sum(loss <= t for loss in losses)


@settings(deadline=None, max_examples=80)
@given(histograms, st.data())
def test_a_sequence_has_the_loss_that_was_drawn(
    counts: list[int], data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, len(counts)))
    sequence = data.draw(st.permutations(range(len(counts)))).copy()[:k]
    loss = -utility(counts, sequence)
    source = SeededRandom(data.draw(st.integers(0, 100)))
    drawn = _draw_sequence(_Levels(np.array(counts), k), loss, source)
    assert len(set(drawn)) == k
    assert -utility(counts, drawn) == loss


def test_sequences_are_uniform_within_each_loss(fits: Callable[..., bool]) -> None:
    levels = _Levels(np.array(SIX), 3)
    for loss in (0, 2, 3):
        same = [
            s for s in itertools.permutations(range(6), 3) if utility(SIX, s) == -loss
        ]
        source = SeededRandom(2)
        drawn = (tuple(_draw_sequence(levels, loss, source)) for _ in range(4000))
        assert fits(drawn, dict.fromkeys(same, 1 / len(same)))


def test_losses_left_out_weigh_next_to_nothing_and_come_back_with_more_bits() -> None:
    levels = _Levels(np.arange(0, 4000, 3), 2)
    rate = Fraction(1, 4)
    losses, numbers = _terms(levels, rate, 64)
    more, further = _terms(levels, rate, 128)
    everything, all_numbers = _terms(levels, Fraction(1, 10**6), 64)
    assert len(losses) < len(more) < len(everything)
    assert everything[-1] == levels.span
    assert (more[: len(losses)], further[: len(losses)]) == (losses, numbers)
    assert sum(all_numbers) == levels.sequences(levels.span)
    weights = [
        math.exp(-t / 4) * n for t, n in zip(everything, all_numbers, strict=True)
    ]
    assert sum(weights[len(losses) :]) < 2.0**-128 * sum(weights)


def test_a_draw_beyond_the_listed_losses_finds_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """U within 2^-200 of 1: the lists of 64 and 128 bits are too short for it."""
    counts = np.arange(0, 4000, 3)
    source = SeededRandom(3)
    scripted = iter([2**64 - 1] * 3)
    right = SeededRandom.bits
    monkeypatch.setattr(
        SeededRandom,
        "bits",
        lambda self, count: next(scripted, None) or right(self, count),
    )
    loss = _draw_loss(_Levels(counts, 2), Fraction(1, 4), source)
    short, _ = _terms(_Levels(counts, 2), Fraction(1, 4), 64)
    assert loss > short[-1]
    # P(loss >= t) is near 2^-192 there.
    levels, rate = _Levels(counts, 2), 0.25
    mass = {
        t: n * math.exp(-rate * t)
        for t, n in zip(*_terms(levels, Fraction(1, 4), 256), strict=True)
    }
    total = sum(mass.values())
    beyond = sum(m for t, m in mass.items() if t >= loss) / total
    after = sum(m for t, m in mass.items() if t > loss) / total
    assert after <= 2.0**-192 * (1 + 1e-9)
    assert beyond >= 2.0**-260


@pytest.mark.parametrize("bits", [0, 64, 256])
@pytest.mark.parametrize("epsilon", [1e-9, 0.5, 700.0])
def test_cumulative_weights_are_as_precise_as_promised(
    bits: int, epsilon: float
) -> None:
    import mpmath

    losses, numbers = [0, 1, 5, 40], [1, 10**50, 3, 7**600]
    rate = Fraction(epsilon) / 4
    weights = _weights(losses, numbers, rate, bits)
    # No fewer bits than promised, and none in vain: sums of a million are added up.
    assert max(weights).bit_length() == bits + GUARD_BITS + 1
    with mpmath.workprec(bits + 3000):
        exact = [
            n * mpmath.exp(-mpmath.mpf(rate.numerator) / rate.denominator * t)
            for t, n in zip(losses, numbers, strict=True)
        ]
        for i in range(len(losses)):
            share = mpmath.mpf(sum(weights[: i + 1])) / sum(weights)
            error = abs(share - sum(exact[: i + 1]) / sum(exact))
            assert error < mpmath.mpf(2) ** -(bits + 55)


def test_a_large_domain_gives_the_clear_winners_in_order() -> None:
    counts = np.arange(300_000) % 40
    winners = [17, 5, 299_999]
    counts[winners] = [100, 95, 90]
    for _ in range(3):
        got = joint_top_k(counts, 3, epsilon=60.0, relation="replace")
        assert got == winners


def test_large_and_sparse_counts_take_the_other_way_of_counting() -> None:
    counts = [1 << 32, 5, 1 << 31, 1 << 22]
    assert joint_top_k(counts, 3, epsilon=0.1, relation="replace") == [0, 2, 3]


def test_every_word_of_the_domain_once() -> None:
    got = joint_top_k([0] * 7, 7, epsilon=1.0, relation="replace")
    assert sorted(got) == list(range(7))


@pytest.mark.parametrize("epsilon", [1e-300, 1e300])
def test_extreme_epsilons_are_drawn(epsilon: float) -> None:
    got = joint_top_k([9, 1, 5], 2, epsilon=epsilon, relation="replace")
    assert len(set(got)) == 2
    if epsilon > 1:
        assert got == [0, 2]


def test_ties_do_not_favor_the_order_of_the_domain(fits: Callable[..., bool]) -> None:
    first = [s[0] for s in draws([3] * 4, 1, 1.0, "replace")]
    assert fits(first, dict.fromkeys(range(4), 0.25))
