"""The table of probabilities: within its divergence, the best one, drawn exactly."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
import numpy.typing as npt
import pytest
from support.curve_audit import bit, mixture, product, worst

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import SecureRandom
from langchain_dpicl.mechanisms import release_curve as curves
from langchain_dpicl.mechanisms.release_curve import (
    LEAST_FIRST,
    ReleaseCurve,
    expected_steps,
    release_curve,
)

CASES = [
    (3.65, Fraction(7, 40), Fraction(1, 8 * 10**7), 1.0),
    (7.3, Fraction(3, 50), Fraction(1, 8 * 10**7), 1.0),
    (3.35, Fraction(1, 7), Fraction(1, 10**7), 0.25),
    (17.9, Fraction(1, 50), Fraction(1, 10**7), 0.25),
    (1.05, Fraction(3), Fraction(1, 100), 0.5),
    (200.0, Fraction(1, 100), Fraction(1, 10**12), 1.0),
    (2.0, Fraction(60), Fraction(1, 10**6), 1.0),
    (2.0, Fraction(1, 10), Fraction(LEAST_FIRST), 1.0),
    (4.0, Fraction(1, 5), Fraction(9, 10), 0.01),
]
"""Orders, divergences, first probabilities, rates."""


def divergence_of(entries: tuple[int, ...], n: int, order: float, rate: float) -> Any:
    """Return the largest divergence of neighbors at n and n + 1, both orders."""
    table = ReleaseCurve(entries)
    low, high = bit(table.probability(n)), bit(table.probability(n + 1))
    if rate == 1:
        return worst(low, high, order)
    return max(
        worst(mixture(rate, low, high), low, order),
        worst(mixture(rate, high, low), high, order),
    )


@pytest.mark.parametrize("case", CASES)
def test_all_neighbors_are_within_the_divergence(case: Any) -> None:
    order, loss, first, rate = case
    entries = release_curve(*case).entries
    with mp.workdps(60):
        limit = mp.mpf(loss.numerator) / loss.denominator
        for n in range(1, len(entries) + 3):
            assert divergence_of(entries, n, order, rate) <= limit, n
    assert entries[0] == math.floor(first * 2**64)
    assert entries[-1] >= 2**64 - 2**24
    assert list(entries) == sorted(set(entries))


# No more than 50 of a divergence is made use of.
@pytest.mark.parametrize("case", [case for case in CASES if case[1] <= 50])
def test_no_entry_could_be_larger(case: Any) -> None:
    """Not by a part in 2^38 of the step, or of what is left above it."""
    order, loss, _, rate = case
    entries = release_curve(*case).entries
    with mp.workdps(60):
        limit = mp.mpf(loss.numerator) / loss.denominator
        for n in range(1, len(entries) - 1):
            gap = min(entries[n] - entries[n - 1], 2**64 - entries[n])
            more = (*entries[:n], entries[n] + max(1, gap >> 38))
            assert divergence_of(more, n, order, rate) > limit, n


def broken_by(entries: tuple[int, ...], order: float, loss: Any, rate: float) -> bool:
    return any(
        divergence_of(entries, n, order, rate) > float(loss) * (1 + 1e-9)
        for n in range(1, len(entries))
    )


@pytest.mark.parametrize("case", CASES[:5])
def test_twins_are_not_within_it(case: Any) -> None:
    """The curve of another order, of two bits' divergence, of another rate."""
    order, loss, first, rate = case
    assert not broken_by(release_curve(*case).entries, order, loss, rate)
    lower = release_curve(1 + (order - 1) * 0.9, loss, first, rate)
    assert broken_by(lower.entries, order, loss, rate)
    doubled = release_curve(order, 2 * loss, first, rate)
    assert broken_by(doubled.entries, order, loss, rate)
    sampled = release_curve(order, loss, first, rate / 2)
    assert broken_by(sampled.entries, order, loss, rate)
    skipping = release_curve(*case).entries[::2]
    assert broken_by(skipping, order, loss, rate)


@pytest.mark.parametrize("rate", [0.05, 0.25, 0.7])
def test_bits_that_switch_together_are_not_mixed_each_by_itself(rate: float) -> None:
    """Why a threshold release with sampled units has no curves.

    One person's two words switch together: the mixture of the products is further
    apart than the product of the mixtures, which the curve is built for.
    """
    order, loss = 7.0, Fraction(1, 20)
    table = release_curve(order, loss, Fraction(1, 10**7), rate)
    exceeds, alone = [], []
    for n in range(1, len(table.entries) - 1):
        low, high = bit(table.probability(n)), bit(table.probability(n + 1))
        pair, moved = product(low, low), product(high, high)
        together = worst(mixture(rate, pair, moved), pair, order)
        exceeds.append(together > 2 * float(loss) * 1.05)
        one = mixture(rate, low, high)
        alone.append(
            worst(product(one, one), pair, order) > 2 * float(loss) * (1 + 1e-9)
        )
    assert any(exceeds)
    assert not any(alone)


@pytest.mark.parametrize("case", CASES)
def test_the_rough_steps_are_near_the_exact_ones(case: Any) -> None:
    order, loss, first, rate = case
    for wanted in (0.5, 0.95):
        rough = expected_steps(order, float(loss), float(first), wanted, rate)
        exact = release_curve(*case).steps(wanted)
        assert math.ceil(rough - 0.01) <= exact <= math.ceil(rough + 0.01)


# -- what is taken is certain ----------------------------------------------------------


def test_proposals_that_are_too_high_are_lowered_until_they_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = curves._proposals

    def greedy(*args: Any) -> Any:
        return (min(2**64 - 1, t + (t >> 12)) for t in real(*args))

    case = CASES[1]
    good = release_curve(*case).entries
    monkeypatch.setattr(curves, "_proposals", greedy)
    built = release_curve.__wrapped__(*case).entries
    for n in range(1, len(built)):
        assert divergence_of(built, n, case[0], 1.0) <= 0.06
    assert len(built) <= len(good) + 3


def test_a_check_that_says_yes_to_all_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The twin: proposals are taken as they come."""
    real = curves._proposals

    def greedy(*args: Any) -> Any:
        return (min(2**64 - 1, t + (t >> 12)) for t in real(*args))

    monkeypatch.setattr(curves, "_proposals", greedy)
    monkeypatch.setattr(curves._Bound, "holds", lambda *_: True)
    order, loss, first, rate = CASES[1]
    built = release_curve.__wrapped__(order, loss, first, rate).entries
    assert broken_by(built, order, loss, rate)


def test_a_proposal_of_nothing_more_ends_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        curves, "_proposals", lambda *args: itertools.repeat(args[-1]())
    )
    built = release_curve.__wrapped__(*CASES[0])
    assert len(built.entries) == 1
    assert built.steps(0.5) == math.inf


def test_nothing_is_released_of_a_first_probability_below_the_word() -> None:
    table = release_curve(4.0, Fraction(1, 2), Fraction(LEAST_FIRST) / 2)
    assert table.entries == (0,)
    assert table.probability(10**6) == 0
    assert table.steps(1e-9) == math.inf
    assert not table.draw([1, 5, 10**9], SecureRandom()).any()


def test_a_table_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "MAX_STEPS", 5)
    table = release_curve.__wrapped__(*CASES[1])
    assert len(table.entries) == 5
    assert table.probability(6) == table.probability(5) == table.probability(10**9)


@pytest.mark.parametrize(
    "terms",
    [
        (1.0, Fraction(1), Fraction(1, 10), 1.0),
        (2.0, Fraction(0), Fraction(1, 10), 1.0),
        (2.0, Fraction(-1), Fraction(1, 10), 1.0),
        (2.0, Fraction(1), Fraction(0), 1.0),
        (2.0, Fraction(1), Fraction(1), 1.0),
        (2.0, Fraction(1), Fraction(1, 10), 0.0),
        (2.0, Fraction(1), Fraction(1, 10), 1.5),
    ],
)
def test_what_makes_no_table_is_refused(terms: Any) -> None:
    with pytest.raises(InvalidParameterError):
        release_curve(*terms)


# -- drawing ---------------------------------------------------------------------------


class Words(SecureRandom):
    """Gives out chosen words."""

    def __init__(self, *words: int) -> None:
        super().__init__()
        self.given = [*words]

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        taken, self.given = self.given[:count], self.given[count:]
        return np.array(taken, np.uint64)


def test_a_bit_is_one_for_as_many_words_as_its_entry_says() -> None:
    """All words below the entry and no other: so the probability is exact."""
    table = release_curve(*CASES[1])
    for n in (1, 2, 20, len(table.entries), len(table.entries) + 7):
        t = table.entries[min(n, len(table.entries)) - 1]
        assert table.probability(n) == Fraction(t, 2**64)
        source = Words(0, t - 1, t, 2**64 - 1)
        assert table.draw([n] * 4, source).tolist() == [True, True, False, False]


def test_no_step_is_never_released() -> None:
    table = release_curve(*CASES[0])
    assert table.probability(0) == 0
    assert table.draw([0, 0, 0], Words(0, 1, 2**64 - 1)).tolist() == [False] * 3


def test_each_bit_has_a_word_of_its_own() -> None:
    table = release_curve(*CASES[0])
    middle = table.steps(0.5)
    assert isinstance(middle, int)
    source = Words(0, 2**64 - 1, 0)
    assert table.draw([middle] * 3, source).tolist() == [True, False, True]
    assert source.given == []
    assert table.draw([], source).tolist() == []


# -- where a table begins, and where it ends -------------------------------------------


# -- how an entry that is too high is lowered ------------------------------------------


def lowered(
    monkeypatch: pytest.MonkeyPatch, low: int, proposed: int, limit: int
) -> tuple[int, list[int]]:
    """Return what is taken where entries up to a limit hold, and what was tried."""
    tried: list[int] = []

    def holds(self: object, low: int, high: int) -> bool:
        tried.append(high)
        return high <= limit

    monkeypatch.setattr(curves._Bound, "holds", holds)
    bound = curves._Bound(2.0, Fraction(1), 1.0)
    return bound.lowered(low, proposed), tried


# -- the search for the widest step ----------------------------------------------------


def apart(before: float, width: float, order: float, rate: float) -> Any:
    """Return the divergence of bits whose log odds are a width apart, in 60 digits."""
    with mp.workdps(60):
        odds = [mp.exp(mp.mpf(before)), mp.exp(mp.mpf(before) + mp.mpf(width))]
        low, high = ({True: o / (1 + o), False: 1 / (1 + o)} for o in odds)
    if rate == 1:
        return worst(low, high, order)
    return max(
        worst(mixture(rate, low, high), low, order),
        worst(mixture(rate, high, low), high, order),
    )
