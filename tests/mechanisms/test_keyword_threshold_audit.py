"""Two worlds, audited exactly: every pair of neighbors, every set that may come out.

Words come out independently, so the law of the output is a product of Gaussian tails
on the grid. Its divergence from the law in the other world must stay below what is
charged, at every epsilon and in both directions.
"""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms import keyword_threshold, sensitivity
from langchain_dpicl.mechanisms.keyword_threshold import _word_test, _WordTest
from langchain_dpicl.mechanisms.rounded_gaussian import RoundedGaussian

WORDS = 4
OTHERS = 8
"""The other slots use each word fewer times than this."""

EPSILONS = (-1.0, 0.0, 0.5, 1.0, 2.0, 4.0, 8.0)
CASES = [(1.5, 1e-3), (0.4, 0.05)]
"""Noise multipliers and delta0: the first is tight in delta0, the second in z."""

OUTPUTS = np.array([*itertools.product((0, 1), repeat=WORDS)], bool)
Array = npt.NDArray[Any]


@lru_cache
def neighbors(c: int, relation: Relation) -> tuple[Array, Array]:
    """Return the counts of all pairs of neighboring lists of slots, up to renaming.

    Two neighbors share all slots but one. The shared slots can have any counts, as a
    slot may hold a single word; they are listed in ascending order, for words can be
    renamed. The one that differs holds any set of up to c words on each side, or is
    missing from one.
    """
    answers = [a for a in itertools.product((0, 1), repeat=WORDS) if sum(a) <= c]
    if relation is Relation.REPLACE:
        swaps = [*itertools.combinations(answers, 2)]
    else:
        swaps = [((0,) * WORDS, answer) for answer in answers]
    shared = np.array(
        [*itertools.combinations_with_replacement(range(OTHERS), WORDS)], np.int64
    )
    ours = np.concatenate([shared + np.array(one, np.int64) for one, _ in swaps])
    theirs = np.concatenate([shared + np.array(two, np.int64) for _, two in swaps])
    return ours, theirs


def pass_law(c: int, relation: Relation, z: float, delta0: float) -> Array:
    """Return P(released) by count, from the decision that the mechanism takes."""
    test = _word_test(c, z, delta0, relation)
    rates = [0.0]
    for count in range(1, OTHERS + 1):
        low, high = -(1 << 20), 1 << 20
        while high - low > 1:
            middle = (low + high) // 2
            asked = (np.array([count]), np.array([middle]))
            low, high = (low, middle) if test.passes(*asked).all() else (middle, high)
        rates.append(test.noise.tail(high - 1))
    return np.array(rates)


def gaussian_delta(epsilon: float, z: float) -> float:
    shift = epsilon * z
    return float(
        stats.norm.cdf(0.5 / z - shift)
        - math.exp(epsilon) * stats.norm.cdf(-0.5 / z - shift)
    )


def worst_excess(c: int, relation: Relation, z: float, delta0: float) -> float:
    """Return the largest divergence beyond the promise, over pairs and epsilons."""
    law = pass_law(c, relation, z, delta0)
    ours, theirs = (
        np.where(OUTPUTS, law[counts][:, None], 1 - law[counts][:, None]).prod(axis=2)
        for counts in neighbors(c, relation)
    )
    worst = -1.0
    for epsilon in EPSILONS:
        promise = delta0 + (1 - delta0) * gaussian_delta(epsilon, z)
        growth = math.exp(epsilon)
        for one, other in ((ours, theirs), (theirs, ours)):
            found = np.maximum(one - growth * other, 0).sum(axis=1).max()
            worst = max(worst, float(found) - promise)
    return worst


@pytest.fixture(params=list(Relation))
def relation(request: pytest.FixtureRequest) -> Relation:
    return request.param


@pytest.mark.parametrize("c", [1, 2])
@pytest.mark.parametrize(("z", "delta0"), CASES)
def test_the_release_keeps_its_promise(
    relation: Relation, c: int, z: float, delta0: float
) -> None:
    assert worst_excess(c, relation, z, delta0) <= 1e-12


def test_the_promise_is_tight(relation: Relation) -> None:
    """With one word an answer, and no more than that, all of delta0 is used."""
    assert worst_excess(1, relation, 1.5, 1e-3) > -1e-5


@pytest.mark.parametrize("c", [1, 2])
@pytest.mark.parametrize(("z", "delta0"), CASES)
def test_half_the_noise_breaks_it(
    monkeypatch: pytest.MonkeyPatch,
    relation: Relation,
    c: int,
    z: float,
    delta0: float,
) -> None:
    right = sensitivity.keyword_l2
    monkeypatch.setattr(sensitivity, "keyword_l2", lambda r, c: right(r, c) / 2)
    assert worst_excess(c, relation, z, delta0) > 0.1


@pytest.mark.parametrize(("z", "delta0"), CASES)
def test_noise_for_one_word_breaks_it_where_there_are_two(
    monkeypatch: pytest.MonkeyPatch, relation: Relation, z: float, delta0: float
) -> None:
    right = sensitivity.keyword_l2
    monkeypatch.setattr(sensitivity, "keyword_l2", lambda r, _c: right(r, 1))
    assert worst_excess(2, relation, z, delta0) > 0.03


@pytest.mark.parametrize("c", [1, 2])
@pytest.mark.parametrize(("z", "delta0"), CASES)
def test_the_noise_of_add_remove_breaks_it_under_replace(
    monkeypatch: pytest.MonkeyPatch, c: int, z: float, delta0: float
) -> None:
    right = sensitivity.keyword_l2
    monkeypatch.setattr(
        sensitivity, "keyword_l2", lambda _r, c: right(Relation.ADD_REMOVE, c)
    )
    assert worst_excess(c, Relation.REPLACE, z, delta0) > 0.03


@pytest.mark.parametrize(("z", "delta0"), CASES)
def test_delta0_for_each_of_two_words_breaks_it(
    monkeypatch: pytest.MonkeyPatch, relation: Relation, z: float, delta0: float
) -> None:
    monkeypatch.setattr(sensitivity, "new_keywords", lambda _r, _c: 1)
    assert worst_excess(2, relation, z, delta0) > 0.5 * delta0


@pytest.mark.parametrize("c", [1, 2])
@pytest.mark.parametrize(("z", "delta0"), CASES)
def test_noise_on_none_but_words_said_twice_breaks_it(
    monkeypatch: pytest.MonkeyPatch,
    relation: Relation,
    c: int,
    z: float,
    delta0: float,
) -> None:
    """Rare words are safe then, and so certainly hidden that a second use tells."""
    right = _WordTest.passes

    def passes(test: _WordTest, counts: Array, noise: Array) -> Array:
        return right(test, counts, np.where(counts > 1, noise, 0))

    monkeypatch.setattr(_WordTest, "passes", passes)
    assert worst_excess(c, relation, z, delta0) > 1e-3


def on_whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grid as coarse as the counts, where one step more or less is seen."""
    monkeypatch.setattr(
        keyword_threshold, "count_grid", lambda sigma: (1, RoundedGaussian(sigma))
    )


@pytest.mark.parametrize("c", [1, 2])
@pytest.mark.parametrize(("z", "delta0"), CASES)
def test_it_is_private_on_any_grid(
    monkeypatch: pytest.MonkeyPatch,
    relation: Relation,
    c: int,
    z: float,
    delta0: float,
) -> None:
    on_whole_numbers(monkeypatch)
    assert worst_excess(c, relation, z, delta0) <= 1e-12


@pytest.mark.parametrize("c", [1, 2])
def test_a_word_that_passes_by_reaching_the_threshold_breaks_it(
    monkeypatch: pytest.MonkeyPatch, relation: Relation, c: int
) -> None:
    on_whole_numbers(monkeypatch)
    right = _WordTest.passes
    monkeypatch.setattr(
        _WordTest,
        "passes",
        lambda test, counts, noise: right(test, counts, noise + 1),
    )
    assert worst_excess(c, relation, 1.5, 1e-3) > 1e-5


def test_an_answer_of_more_words_than_declared_breaks_it(relation: Relation) -> None:
    """Cutting each answer is the caller's part of the promise."""
    law = pass_law(1, relation, 1.5, 1e-3)
    ours, theirs = (
        np.where(OUTPUTS, law[counts][:, None], 1 - law[counts][:, None]).prod(axis=2)
        for counts in neighbors(2, relation)
    )
    promise = 1e-3 + gaussian_delta(8.0, 1.5)
    found = np.maximum(theirs - math.exp(8.0) * ours, 0).sum(axis=1).max()
    assert found > promise + 5e-4
