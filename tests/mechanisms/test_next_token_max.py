from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms import (
    SeededRandom,
    next_token,
    noisy_max_next_token,
    sensitivity,
)
from langchain_dpicl.mechanisms.exponential_trials import (
    MARGIN,
    succeed_exp,
)
from langchain_dpicl.mechanisms.next_token import _UNIT, _of_maximum_one
from langchain_dpicl.mechanisms.source import SecureRandom

ROWS = np.array(
    [
        [0.40, 0.30, 0.20, 0.10],
        [0.05, 0.45, 0.30, 0.20],
        [0.10, 0.20, 0.30, 0.40],
        [0.25, 0.25, 0.25, 0.25],
        [0.00, 0.00, 0.00, 0.00],
        [0.00, 0.06, 0.00, 0.02],
    ]
)


def flip_law(scores: Sequence[float], slope: float) -> dict[int, float]:
    """Permute-and-flip over all orders."""
    accept = [math.exp(-slope * (max(scores) - s)) for s in scores]
    orders = list(itertools.permutations(range(len(scores))))
    law = dict.fromkeys(range(len(scores)), 0.0)
    for order in orders:
        left = 1.0 / len(orders)
        for i in order:
            law[i] += left * accept[i]
            left *= 1 - accept[i]
    return law


def of_maximum_one(rows: np.ndarray) -> np.ndarray:
    """In another way than the mechanism's: row by row, in floats."""
    return np.array([row / row.max() if row.any() else row for row in rows])


LAW = flip_law(of_maximum_one(ROWS).sum(axis=0).tolist(), 1.5 / 2)


def winners(relation: Relation, epsilon: float = 1.5) -> list[int]:
    source = SeededRandom(4)
    return [
        noisy_max_next_token(ROWS, epsilon=epsilon, relation=relation, random=source)
        for _ in range(6000)
    ]


@pytest.mark.parametrize("relation", list(Relation))
def test_the_winner_has_the_law_of_permute_and_flip(
    fits: Callable[..., bool], relation: Relation
) -> None:
    assert fits(winners(relation), LAW)


def test_a_scale_of_1_over_epsilon_is_caught(
    fits: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 / epsilon it must be, under `REPLACE` at least."""
    monkeypatch.setattr(sensitivity, "next_token_linf", lambda relation: 0.5)
    assert not fits(winners(Relation.REPLACE), LAW)


def test_rows_that_are_not_of_maximum_one_are_caught(
    fits: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    def as_they_are(rows: np.ndarray) -> np.ndarray:
        return np.rint(rows * _UNIT).astype(np.int64)

    monkeypatch.setattr(next_token, "_of_maximum_one", as_they_are)
    assert not fits(winners(Relation.REPLACE), LAW)


weight = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 5e-324, 1e-310, 1e-9, 0.5])


@settings(deadline=None, max_examples=300)
@given(
    st.integers(1, 8).flatmap(
        lambda k: st.lists(
            st.lists(weight, min_size=k, max_size=k), min_size=1, max_size=4
        )
    )
)
def test_each_row_is_integers_up_to_the_unit(rows: list[list[float]]) -> None:
    """Of any two of them no entry differs by more; a row counts for all it may."""
    points = _of_maximum_one(np.array(rows))
    assert points.min() >= 0
    for row, point in zip(rows, points.tolist(), strict=True):
        assert max(point) == (_UNIT if any(row) else 0)
        assert [point] == _of_maximum_one(np.array([row])).tolist()


def worst_ratio(to_grid: Callable[[np.ndarray], np.ndarray], epsilon: float) -> float:
    """How much likelier a winner is made by exchanging one row, over all exchanges."""
    corners = np.array(list(itertools.product((0.0, 0.5, 1.0), repeat=3)))
    points = to_grid(corners) / _UNIT
    worst = 0.0
    for rest in itertools.combinations_with_replacement((0, 1, 2), 3):
        laws = [flip_law([*np.add(p, rest)], epsilon / 2) for p in points]
        for i in range(3):
            chances = [law[i] for law in laws]
            worst = max(worst, math.log(max(chances) / min(chances)))
    return worst


def test_the_winner_is_private_by_enumeration() -> None:
    assert worst_ratio(_of_maximum_one, 1.0) <= 1.0 + 1e-9
    assert worst_ratio(_of_maximum_one, 1.0) > 0.9


def test_rows_of_maximum_two_are_caught_by_enumeration() -> None:
    assert worst_ratio(lambda rows: 2 * _of_maximum_one(rows), 1.0) > 1.05


def test_without_rows_all_tokens_are_equally_likely(fits: Callable[..., bool]) -> None:
    source = SeededRandom(5)
    for rows in (np.empty((0, 5)), np.zeros((3, 5)), np.full((3, 5), 0.2)):
        draws = [
            noisy_max_next_token(rows, epsilon=3.0, random=source) for _ in range(1500)
        ]
        assert fits(draws, dict.fromkeys(range(5), 0.2))


@pytest.mark.parametrize("epsilon", [1e-300, 1e-6, 1.0, 1e300])
def test_a_whole_vocabulary_and_any_epsilon(epsilon: float) -> None:
    rows = np.zeros((20, 100_000))
    rows[:, 77_777] = 1.0
    winner = noisy_max_next_token(rows, epsilon=epsilon, random=SeededRandom(6))
    assert 0 <= winner < 100_000
    if epsilon > 1:
        assert winner == 77_777


class Scripted(SecureRandom):
    """Says the words of a test, then the bits that come after the first of them."""

    secure = False

    def __init__(self, words: list[int], further: int = 0) -> None:
        super().__init__()
        self.script = np.array(words, np.uint64)
        self.further = further

    def words(self, count: int) -> np.ndarray:
        assert count == len(self.script)
        return self.script

    def bits(self, count: int) -> int:
        return self.further >> (64 - count)


ONES = 2**64 - 1


@pytest.mark.parametrize("slope", [Fraction(1, 3), Fraction(7, 2**20), Fraction(5, 3)])
@pytest.mark.parametrize("loss", [1, 4, 9])
def test_words_next_to_a_probability_are_decided_exactly(
    slope: Fraction, loss: int
) -> None:
    gamma = slope * loss
    with mpmath.workprec(300):
        chance = mpmath.exp(-mpmath.mpf(gamma.numerator) / gamma.denominator)
        edge = int(chance * 2**64)
        below = int((chance * 2**64 - edge) * 2**64)
    losses = np.full(7, loss)
    words = [edge - 2**30, edge - 3, edge - 1, edge, edge + 1, edge + 3, edge + 2**30]
    for further, at_edge in ((below - 5, True), (below + 5, False)):
        source = Scripted(words, further)
        expected = [True, True, True, at_edge, False, False, False]
        assert succeed_exp(losses, slope, source).tolist() == expected


def test_a_floating_point_comparison_alone_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from langchain_dpicl.mechanisms import exponential_trials

    monkeypatch.setattr(exponential_trials, "MARGIN", -1.0)
    with pytest.raises(AssertionError):
        test_words_next_to_a_probability_are_decided_exactly(Fraction(1, 3), 1)


def test_the_margin_is_far_above_the_error() -> None:
    gammas = np.random.default_rng(7).exponential(3.0, 3000)
    with mpmath.workprec(120):
        exact = [mpmath.exp(-mpmath.mpf(gamma)) for gamma in gammas.tolist()]
        errors = [
            abs(mpmath.mpf(ours) - theirs)
            for ours, theirs in zip(np.exp(-gammas).tolist(), exact, strict=True)
        ]
    assert max(errors) < MARGIN / 1000


def test_a_loss_of_nothing_always_succeeds() -> None:
    source = Scripted([ONES, ONES, 0], ONES)
    losses = np.array([0, 5, 10**9])
    assert succeed_exp(losses, Fraction(1), source).tolist() == [True, False, False]


def test_trials_have_their_probabilities(fits: Callable[..., bool]) -> None:
    losses = np.repeat([0, 1, 3, 10, 40], 20_000)
    came = succeed_exp(losses, Fraction(2, 7), SeededRandom(8)).reshape(5, -1)
    for loss, outcomes in zip((0, 1, 3, 10, 40), came.tolist(), strict=True):
        chance = math.exp(-loss * 2 / 7)
        law = {True: chance, False: 1 - chance}
        assert fits(outcomes, law)
        if loss in (1, 3):
            assert not fits(outcomes, {True: chance**1.2, False: 1 - chance**1.2})
