from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from langchain_dpicl.common.relation import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import (
    SeededRandom,
    next_token,
    noisy_max_next_token,
    noisy_next_token,
    sensitivity,
)
from langchain_dpicl.mechanisms.ball_grid import SCALE, on_grid
from langchain_dpicl.mechanisms.rounded_gaussian import RoundedGaussian

RELATIONS = list(Relation)
DELTA = {Relation.ADD_REMOVE: 1.0, Relation.REPLACE: math.sqrt(2)}


def distributions(m: int, k: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(k, 0.1), m)


def released(
    rows: np.ndarray, relation: Relation, z: float = 1.0, seed: int = 1
) -> np.ndarray:
    return noisy_next_token(
        rows, noise_multiplier=z, relation=relation, random=SeededRandom(seed)
    )


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("z", [0.39, 1.36, 20.0])
def test_the_noise_is_gaussian_of_the_relations_scale(
    is_gaussian: Callable[..., bool], relation: Relation, z: float
) -> None:
    """Of the sum: more rows, the same noise."""
    for m in (0, 10):
        rows = np.repeat(np.eye(1, 30_000), m, axis=0)
        noise = released(rows, relation, z) - rows.sum(axis=0)
        assert is_gaussian(noise[1:], z * DELTA[relation])
        assert abs(noise[0]) < 6 * z * DELTA[relation]


def test_sensitivity_one_under_replace_is_caught(
    is_gaussian: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensitivity, "next_token_l2", lambda relation: 1.0)
    noise = released(np.empty((0, 30_000)), Relation.REPLACE)
    assert not is_gaussian(noise, math.sqrt(2))


def shrink(monkeypatch: pytest.MonkeyPatch, divisor: float) -> None:
    monkeypatch.setattr(
        next_token, "RoundedGaussian", lambda scale: RoundedGaussian(scale / divisor)
    )


@pytest.mark.parametrize("divisor", [1.1, 2, 10], ids=["10 %", "half", "of the mean"])
@pytest.mark.parametrize("relation", RELATIONS)
def test_too_little_noise_is_caught(
    is_gaussian: Callable[..., bool],
    monkeypatch: pytest.MonkeyPatch,
    relation: Relation,
    divisor: float,
) -> None:
    """The last one is noise meant for the mean of ten rows, added to their sum."""
    shrink(monkeypatch, divisor)
    rows = np.repeat(np.eye(1, 30_000), 10, axis=0)
    noise = released(rows, relation) - rows.sum(axis=0)
    assert not is_gaussian(noise[1:], DELTA[relation])


ROWS = np.array([[0.7, 0.3, 0.0], [0.1, 0.2, 0.7], [0.5, 0.5, 0.0], [0.9, 0.1, 0.0]])


def argmax_law(sums: np.ndarray, sigma: float) -> dict[int, float]:
    def density(x: float, i: int) -> float:
        others = stats.norm.cdf((x - np.delete(sums, i)) / sigma)
        return float(stats.norm.pdf((x - sums[i]) / sigma) * np.prod(others) / sigma)

    return {
        i: float(integrate.quad(density, -20, 25, args=(i,))[0])
        for i in range(len(sums))
    }


def argmaxes(z: float) -> list[int]:
    source = SeededRandom(3)
    draws = (
        noisy_next_token(ROWS, noise_multiplier=z, random=source) for _ in range(6000)
    )
    return [int(np.argmax(draw)) for draw in draws]


def test_the_token_has_its_probabilities(fits: Callable[..., bool]) -> None:
    """Under `REPLACE`, which is the default."""
    law = argmax_law(ROWS.sum(axis=0), 0.9 * math.sqrt(2))
    assert fits(argmaxes(0.9), law)


def test_tokens_of_the_other_relation_and_of_half_the_noise_are_caught(
    fits: Callable[..., bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    law = argmax_law(ROWS.sum(axis=0), 0.9 * math.sqrt(2))
    assert not fits(argmaxes(0.9 / math.sqrt(2)), law)
    shrink(monkeypatch, 2)
    assert not fits(argmaxes(0.9), law)


weight = st.floats(0, 1) | st.sampled_from([0.0, 1.0, 5e-324, 1e-300, 1e-9, 0.5])


@st.composite
def row_pairs(draw: st.DrawFn) -> np.ndarray:
    """Two distributions that may add up to less than 1, or to a bit more."""
    k = draw(st.integers(1, 12))
    rows = np.array(
        draw(st.lists(st.lists(weight, min_size=k, max_size=k), min_size=2, max_size=2))
    )
    totals = rows.sum(axis=1, keepdims=True)
    over = draw(st.sampled_from([1.0, 1.0 + 9e-6]))
    return np.where(totals > 1, rows / np.maximum(totals, 1) * over, rows)


def squared(point: np.ndarray) -> int:
    return sum(x * x for x in point.tolist())


@settings(deadline=None, max_examples=300)
@given(row_pairs(), st.floats(1e-3, 1e5))
def test_two_rows_are_at_most_the_sensitivity_apart(rows: np.ndarray, z: float) -> None:
    """On the grid, in exact arithmetic: z times the distance is at most the noise."""
    for relation in RELATIONS:
        limit = SCALE / (sensitivity.next_token_l2(relation) * z)
        one, other = on_grid(rows, 1.0, limit)
        assert min(*one.tolist(), *other.tolist()) >= 0
        moved = squared(one - other) if relation is Relation.REPLACE else squared(one)
        assert Fraction(z) ** 2 * moved <= Fraction(SCALE) ** 2


def test_the_sensitivity_is_reached() -> None:
    """Certainty about one token against certainty about another, or nothing."""
    for relation, other in (
        (Relation.REPLACE, [[0.0, 1.0]]),
        (Relation.ADD_REMOVE, [[0.0, 0.0]]),
    ):
        moved = released(np.array([[1.0, 0.0]]), relation) - released(
            np.array(other), relation
        )
        assert 0.999 * DELTA[relation] < np.linalg.norm(moved) <= DELTA[relation]


def test_negative_entries_would_break_it() -> None:
    """Why rows are checked: opposite rows of norm 1 are 2 apart."""
    one, other = on_grid(np.array([[1.0, 0.0], [-1.0, 0.0]]), 1.0, SCALE)
    assert squared(one - other) > 3.9 * SCALE**2
    with pytest.raises(InvalidParameterError):
        noisy_next_token([[-1.0, 0.0]], noise_multiplier=1.0)


def test_rows_that_were_not_divided_by_their_sum_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With neither the check nor the grid's limit, one row moves the sum too far."""
    monkeypatch.setattr(next_token, "probability_rows", np.asarray)
    one = np.array([[1.0, 0.9, 0.8, 0.0]])
    other = np.array([[0.0, 0.0, 0.8, 1.0]])

    def moved() -> float:
        apart = released(one, Relation.REPLACE) - released(other, Relation.REPLACE)
        return float(np.linalg.norm(apart))

    assert moved() <= math.sqrt(2)
    monkeypatch.setattr(
        next_token,
        "on_grid",
        lambda rows, ball, limit: np.rint(rows * limit / ball).astype(np.int64),
    )
    assert moved() > math.sqrt(2)


@pytest.mark.parametrize("relation", RELATIONS)
def test_the_sum_is_that_of_the_rows(relation: Relation) -> None:
    rows = distributions(50, 64)
    shift = released(rows, relation) - released(np.empty((0, 64)), relation)
    assert shift == pytest.approx(rows.sum(axis=0), abs=0.005)


@pytest.mark.parametrize("block", [1, 100, 1 << 20])
def test_rows_are_mapped_one_by_one_in_blocks_of_any_size(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    rows = distributions(30, 40)
    whole = released(rows, Relation.REPLACE)
    best = noisy_max_next_token(rows, epsilon=1.0, random=SeededRandom(1))
    monkeypatch.setattr(next_token, "_BLOCK", block)
    assert np.array_equal(whole, released(rows, Relation.REPLACE))
    assert np.array_equal(whole, released(rows[::-1], Relation.REPLACE))
    assert best == noisy_max_next_token(rows, epsilon=1.0, random=SeededRandom(1))


def test_rows_of_zeros_and_no_rows_release_noise_alone() -> None:
    nothing = released(np.empty((0, 9)), Relation.REPLACE)
    assert np.array_equal(nothing, released(np.zeros((5, 9)), Relation.REPLACE))
    assert np.all(nothing != 0)


def test_rows_in_single_precision_and_fresh_noise() -> None:
    rows = distributions(80, 5000).astype(np.float32)
    one, two = (noisy_next_token(rows, noise_multiplier=0.5) for _ in range(2))
    assert not np.array_equal(one, two)


BAD = [
    [[math.nan, 0.125]],
    [[math.inf, 0.125]],
    [[-0.125, 0.125]],
    [[0.875, 0.625]],
    [[1e308, 1e308]],
    [[0.5, 0.5], [0.5]],
    [0.5, 0.5],
    [],
    [[]],
    [["a", "b"]],
    [[True, False]],
    None,
]


@pytest.mark.parametrize("rows", BAD)
def test_what_is_no_distribution_is_refused(rows: object) -> None:
    for call in (
        lambda: noisy_next_token(rows, noise_multiplier=1.0),
        lambda: noisy_max_next_token(rows, epsilon=1.0),
    ):
        with pytest.raises(InvalidParameterError, match="distributions") as caught:
            call()
        assert not any(entry in str(caught.value) for entry in ("125", "625", "nan"))
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("z", [0, -1.0, math.nan, math.inf, "1", None])
def test_public_parameters_are_checked(z: object) -> None:
    with pytest.raises(InvalidParameterError, match="noise_multiplier"):
        noisy_next_token(ROWS, noise_multiplier=z)
    with pytest.raises(InvalidParameterError, match="epsilon"):
        noisy_max_next_token(ROWS, epsilon=z)
    with pytest.raises(InvalidParameterError, match="relation"):
        noisy_next_token(ROWS, noise_multiplier=1.0, relation="swap")
    with pytest.raises(InvalidParameterError, match="random"):
        noisy_max_next_token(ROWS, epsilon=1.0, random=np.random.default_rng())
