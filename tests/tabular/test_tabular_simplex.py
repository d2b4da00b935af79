from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.simplex import project_to_simplex

tables = hnp.arrays(
    np.float64,
    hnp.array_shapes(max_dims=3, max_side=5),
    elements=st.floats(-3, 3, allow_subnormal=False),
)


def is_projection(values: np.ndarray, result: np.ndarray) -> bool:
    """The Karush-Kuhn-Tucker conditions: result = max(values - t, 0) for one t."""
    if result.shape != values.shape or result.min() < 0:
        return False
    if abs(math.fsum(result.ravel()) - 1) > 1e-12:
        return False
    kept = result > 0
    levels = (values - result)[kept]
    level = levels.mean()
    flat = np.abs(levels - level).max() < 1e-9
    return bool(flat and (values[~kept] <= level + 1e-9).all())


def clipped(values: np.ndarray) -> np.ndarray:
    """The deliberately wrong twin: cut off what is negative, and scale."""
    positive = np.maximum(values, 0)
    return positive / positive.sum()


@given(tables)
def test_the_result_is_the_nearest_distribution(values: np.ndarray) -> None:
    assert is_projection(values, project_to_simplex(values))


def test_clipping_and_scaling_is_caught() -> None:
    values = np.array([0.8, 0.5, -0.3])
    assert is_projection(values, project_to_simplex(values))
    assert not is_projection(values, clipped(values))


def brute_force(values: np.ndarray) -> np.ndarray:
    """The nearest of the projections onto every face of the simplex."""
    best, distance = None, math.inf
    for size in range(1, values.size + 1):
        for face in itertools.combinations(range(values.size), size):
            chosen = list(face)
            point = np.zeros_like(values)
            point[chosen] = values[chosen] + (1 - values[chosen].sum()) / size
            away = float(((point - values) ** 2).sum())
            if point.min() >= 0 and away < distance:
                best, distance = point, away
    assert best is not None
    return best


@given(hnp.arrays(np.float64, st.integers(1, 6), elements=st.floats(-2, 2)))
def test_it_agrees_with_brute_force(values: np.ndarray) -> None:
    assert np.abs(project_to_simplex(values) - brute_force(values)).max() < 1e-9


@given(tables, st.floats(-1e3, 1e3))
def test_a_constant_added_changes_nothing(values: np.ndarray, shift: float) -> None:
    moved = project_to_simplex(values + shift)
    assert np.abs(moved - project_to_simplex(values)).max() < 1e-9


def test_a_distribution_stays_as_it_is() -> None:
    table = np.array([[0.25, 0.0], [0.5, 0.25]])
    assert np.array_equal(project_to_simplex(table), table)


@pytest.mark.parametrize("scale", [1e15, 1e30, 1e300])
def test_estimates_that_are_all_noise_still_give_a_distribution(scale: float) -> None:
    values = scale * np.array([[1.0, -1.0], [-0.5, 0.5]])
    assert project_to_simplex(values).tolist() == [[1, 0], [0, 0]]
    assert project_to_simplex(np.full(4, scale)).tolist() == [0.25] * 4


def test_the_widest_spread_of_floats_does_not_overflow() -> None:
    assert project_to_simplex([1.7e308, -1.7e308]).tolist() == [1, 0]


def test_many_cells_sum_to_one() -> None:
    values = np.random.default_rng(1).normal(0, 1e-3, (2,) * 16)
    result = project_to_simplex(values)
    assert is_projection(values, result)
    assert 0 < np.count_nonzero(result) < result.size


@pytest.mark.parametrize("values", [[], [math.nan], [math.inf, 0]])
def test_what_is_no_table_of_numbers_is_refused(values: object) -> None:
    with pytest.raises(InvalidParameterError, match="values"):
        project_to_simplex(values)
