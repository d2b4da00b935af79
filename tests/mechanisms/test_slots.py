"""Full slots: the realized loss of every person, the law of the draws, the twins.

A person is what is added to the cells, and to the word's count. The worst outcomes are
enumerated by laws of their own. Clamping an outcome is post-processing, which shows no
more than the release.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats
from support.exact_laws import gaussian_steps, keeps_to, laplace_steps

from langchain_dpicl.accounting import Failure, Gaussian, Pure, compose
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import slots
from langchain_dpicl.mechanisms.random import seeded
from langchain_dpicl.mechanisms.slots import SlotNoise, noisy_slots

DELTA0 = 1e-3
FAR = 40
OTHER = 3
"""The row "other" of a table of six rows: three topics, other, two empty slots."""

Cell = tuple[Any, int]
"""The scale of a cell's noise, and how far a person moves it."""


def law(scale: float, moved: int, *, is_gaussian: bool) -> Any:
    """Return the clamped law of a cell that a person has moved."""
    steps = np.arange(-FAR, FAR)
    if is_gaussian:
        below = stats.norm.cdf((steps + 0.5 - moved) / scale)
    else:
        a = 1 / scale
        up = np.exp(-a * (steps - moved + 1.0)) / (1 + math.exp(-a))
        down = np.exp(a * (steps - moved + 0.0)) / (1 + math.exp(-a))
        below = np.where(steps >= moved, 1 - up, down)
    return np.diff(np.concatenate([[0.0], below, [1.0]]))


def word_law(count: int, scale: float, *, is_gaussian: bool) -> Any:
    """Return the law of a word's released count; place 0 is silence."""
    own = law(scale, count, is_gaussian=is_gaussian)
    if not count:
        return np.concatenate([[1.0], np.zeros(own.size)])
    steps = np.arange(-FAR, FAR + 1)
    s = next(
        t
        for t in range(FAR * 4)
        if law_reaches(t, scale, is_gaussian=is_gaussian) <= DELTA0
    )
    out = np.where(steps >= 1 + s, own, 0.0)
    return np.concatenate([[1 - out.sum()], out])


def law_reaches(t: int, scale: float, *, is_gaussian: bool) -> float:
    if is_gaussian:
        return float(stats.norm.sf((t - 0.5) / scale))
    return math.exp(-t / scale) / (1 + math.exp(-1 / scale))


def loss(
    epsilon: float,
    cells: Sequence[Cell],
    word: tuple[float, int, int] | None = None,
    *,
    is_gaussian: bool = False,
) -> float:
    """Return the exact delta at epsilon, in the worse order.

    Args:
        epsilon: Where the curve is asked.
        cells: Scale and move of each cell that a person moves.
        word: Its scale, and its count without and with the person.
        is_gaussian: Whether the scales are those of rounded Gaussians.
    """
    kind = {"is_gaussian": is_gaussian}
    pairs = [
        (law(scale, 0, **kind), law(scale, moved, **kind)) for scale, moved in cells
    ]
    if word is not None:
        scale, before, after = word
        pairs.append(tuple(word_law(n, scale, **kind) for n in (before, after)))
    without, with_ = np.ones(1), np.ones(1)
    for p, q in pairs:
        without, with_ = np.outer(without, p).ravel(), np.outer(with_, q).ravel()
        # Outcomes of one ratio are one outcome.
        ratios = np.round(np.arctan2(with_, without), 12)
        places = np.unique(ratios, return_inverse=True)[1].ravel()
        without, with_ = np.bincount(places, without), np.bincount(places, with_)
    grown = math.exp(epsilon)
    one = np.maximum(without - grown * with_, 0).sum()
    return float(max(one, np.maximum(with_ - grown * without, 0).sum()))


def kinds(noise: SlotNoise, m: int) -> dict[str, tuple[list[Cell], Any]]:
    """Return what each kind of person moves: cells, and a word."""
    cell, other = float(noise.cell.scale), float(noise.other.scale)
    full: list[Cell] = [(cell, 1)] * m
    own: list[Cell] = [*[(cell, 1)] * (m - 1), (other, 1)]
    found: dict[str, tuple[list[Cell], Any]] = {
        "listed, or empty, or not read": (full, None),
        "other, without a word": (own, None),
    }
    if noise.gate is not None:
        word = float(noise.gate.noise.scale)
        found["other, a new word"] = (own, (word, 0, 1))
        found["other, a shared word"] = (own, (word, 1, 2))
        found["other, a frequent word"] = (own, (word, 24, 25))
    return found


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("epsilon", [1.0, 2.0])
def test_no_person_loses_more_than_was_paid(m: int, epsilon: float) -> None:
    noise = SlotNoise.of([Pure(epsilon=epsilon), Failure(delta0=DELTA0)], m)
    found = {
        kind: loss(epsilon, cells, word)
        for kind, (cells, word) in kinds(noise, m).items()
    }
    assert max(found.values()) <= DELTA0
    assert found["other, a new word"] > DELTA0 / 3
    # What is paid for is used: below it, it does not hold.
    assert loss(0.9 * epsilon, [(float(noise.cell.scale), 1)] * m) > 0.01 * epsilon
    plain = SlotNoise.of([Pure(epsilon=epsilon)], m)
    assert plain.cell == plain.other
    assert loss(epsilon, kinds(plain, m)["listed, or empty, or not read"][0]) < 1e-12


@pytest.mark.parametrize("m", [1, 2])
def test_no_person_loses_more_than_was_paid_under_gaussian_noise(m: int) -> None:
    paid = Gaussian(noise_multiplier=1.5), Failure(delta0=DELTA0)
    noise = SlotNoise.of(paid, m)
    for delta in (0.01, 0.1):
        epsilon = compose(paid, delta)
        for cells, word in kinds(noise, m).values():
            assert loss(epsilon, cells, word, is_gaussian=True) <= delta


TWINS = {
    "half the scale": ([(1.0, 1), (1.0, 1)], None),
    "a count of the people beside m cells": ([(2.0, 1)] * 3, None),
    "a third listed topic beside an own one": ([(2.0, 1)] * 2 + [(4.0, 1)] * 1, "half"),
    "word and other at the full rate": ([(2.0, 1)] * 2, "full"),
    "one bin for all empty slots": ([(2.0, 2), (2.0, 1)], None),
}


@pytest.mark.parametrize("twin", TWINS)
def test_twins_lose_more(twin: str) -> None:
    cells, word = TWINS[twin]
    shared = None if word is None else (4.0 if word == "half" else 2.0, 24, 25)
    assert loss(1.0, cells, shared) > 20 * DELTA0


def test_twin_one_bin_for_all_empty_slots_under_gaussian_noise() -> None:
    z, m = 1.5, 2
    sigma = float(SlotNoise.of([Gaussian(noise_multiplier=z)], m).cell.scale)
    assert sigma == pytest.approx(z * math.sqrt(m))
    delta = 0.01
    epsilon = compose([Gaussian(noise_multiplier=z)], delta)
    assert loss(epsilon, [(sigma, 1), (sigma, 1)], is_gaussian=True) <= delta
    assert loss(epsilon, [(sigma, 2)], is_gaussian=True) > 1.5 * delta


@pytest.mark.parametrize("is_gaussian", [False, True])
def test_draws_keep_to_the_law_that_was_paid(is_gaussian: bool) -> None:
    first: Any = (
        Pure(epsilon=1.0) if not is_gaussian else Gaussian(noise_multiplier=1.0)
    )
    width = 4_000
    for factor in (1.0, 2.0):
        steps = gaussian_steps if is_gaussian else laplace_steps
        scale = math.sqrt(2) if is_gaussian else 2.0
        double = 2.0 if is_gaussian else 4.0
        with seeded(3):
            table, _ = noisy_slots(
                np.empty((0, 2), int),
                [],
                [],
                [first, Failure(delta0=DELTA0)],
                shape=(6, width),
                other=OTHER,
            )
        others = np.delete(table, OTHER, axis=0).ravel()
        # The twin: half the noise.
        is_true = factor == 1.0
        assert keeps_to(others.tolist(), steps(scale / factor)) == is_true
        assert keeps_to(table[OTHER].tolist(), steps(double / factor)) == is_true


def test_words_come_out_by_their_law_and_never_without_a_row() -> None:
    paid = Pure(epsilon=2.0), Failure(delta0=DELTA0)
    gate = SlotNoise.of(paid, 2).gate
    assert gate is not None
    count = gate.required(0.5, 1)
    rate = gate.pass_rate(count)
    people = [[0, OTHER]] * count, [0] * count, ["fee"] * count
    with seeded(4):
        drawn = [
            bool(noisy_slots(*people, paid, shape=(6, 1), other=OTHER)[1])
            for _ in range(600)
        ]
    assert keeps_to(drawn, {True: rate, False: 1 - rate})
    half = laplace_steps(1.0)
    wrong = sum(float(p) for k, p in half.items() if isinstance(k, int) and k > 0)
    assert not keeps_to(drawn, {True: wrong / 4, False: 1 - wrong / 4})
    assert noisy_slots(*people, paid[:1], shape=(6, 1), other=OTHER)[1] == {}


@pytest.mark.parametrize(
    "people",
    [
        ([[0, 0]], [0], [None]),
        ([[0, 6]], [0], [None]),
        ([[0, -1]], [0], [None]),
        ([[0, 1]], [1], [None]),
        ([[0, 1]], [0], ["fee"]),
        ([[0, 1]], [0], []),
        ([[]], [0], [None]),
    ],
)
def test_who_does_not_fill_all_slots_is_refused_and_not_told(people: Any) -> None:
    with pytest.raises(InvalidParameterError, match="different rows") as caught:
        noisy_slots(*people, [Pure(epsilon=1.0)], shape=(6, 1), other=OTHER)
    assert "fee" not in str(caught.value)


def test_what_was_not_paid_is_refused() -> None:
    people = [[0, 1]], [0], [None]
    for paid in (
        [Failure(delta0=0.1)],
        [Pure(epsilon=None)],
        [Pure(epsilon=1.0), Failure(delta0=None)],
        [Gaussian(noise_multiplier=None)],
    ):
        with pytest.raises(InvalidParameterError):
            noisy_slots(*people, paid, shape=(6, 1), other=OTHER)
    for charge in (slots.charge, slots.gaussian_charge):
        assert len(charge().parts) == 1
        assert charge(words=True, delta0=1e-7).parts[1] == Failure(delta0=1e-7)
