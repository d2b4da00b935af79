"""Distributions of rows: the nearest one to an estimate, and what is drawn of it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import stats
from support.randomized_reports import table_of

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import SeededRandom, seeded, use
from langchain_dpicl.tabular.distribution import (
    JointDistribution,
    LabelDistribution,
    draw_codes,
    project_to_simplex,
    shares_by_label,
)

# --- the nearest distribution ---------------------------------------------------------


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


@given(
    hnp.arrays(np.float64, st.integers(1, 6), elements=st.floats(-2, 2)),
    st.floats(-1e3, 1e3),
)
def test_the_result_is_the_nearest_distribution(
    values: np.ndarray, shift: float
) -> None:
    nearest = brute_force(values)
    assert np.abs(project_to_simplex(values) - nearest).max() < 1e-9
    # A constant added changes nothing, nor does the shape.
    moved = project_to_simplex((values + shift)[None])
    assert np.abs(moved[0] - nearest).max() < 1e-9
    # The twin cuts off what is negative, and scales.
    bent = np.array([0.8, 0.5, -0.3])
    cut = np.maximum(bent, 0) / 1.3
    assert np.abs(cut - brute_force(bent)).max() > 0.03


@pytest.mark.parametrize("scale", [1e15, 1e30, 1e300])
def test_estimates_that_are_all_noise_still_give_a_distribution(scale: float) -> None:
    values = scale * np.array([[1.0, -1.0], [-0.5, 0.5]])
    assert project_to_simplex(values).tolist() == [[1, 0], [0, 0]]
    assert project_to_simplex(np.full(4, scale)).tolist() == [0.25] * 4


@pytest.mark.parametrize("values", [[], [math.nan], [math.inf, 0]])
def test_what_is_no_table_of_numbers_is_refused(values: object) -> None:
    with pytest.raises(InvalidParameterError, match="values"):
        project_to_simplex(values)


# --- what is drawn --------------------------------------------------------------------

SIZES = (2, 3, 4)
TABLE = np.random.default_rng(2).gamma(0.7, size=SIZES)
TABLE[0, 1, 2] = TABLE[1, 2, 0] = 0
TABLE /= TABLE.sum()


def joint(table: np.ndarray = TABLE, label: int = 0) -> JointDistribution:
    return JointDistribution(table, label)


def by_label(label: int) -> tuple[LabelDistribution, np.ndarray]:
    """What the pairs with a label say of `TABLE`, and the law of whole rows."""
    names = "abc"
    weights = TABLE.sum(axis=tuple(n for n in range(3) if n != label))
    columns = {}
    for column in range(3):
        if column != label:
            pair = np.einsum(f"abc->{names[label]}{names[column]}", TABLE)
            columns[column] = shares_by_label(pair, weights)
    one, two = columns
    law = np.einsum(
        f"{names[label]},{names[label]}{names[one]},{names[label]}{names[two]}->abc",
        weights,
        columns[one],
        columns[two],
    )
    return LabelDistribution(weights, columns, label), law


def drawn_from(rows: np.ndarray, law: np.ndarray) -> bool:
    """Whether the rows follow a table of probabilities: chi-square at 1e-6."""
    n = len(rows)
    seen = table_of(rows, law.shape) * n
    likely = law > 1e-12
    if seen[~likely].sum():
        return False
    fits = stats.chisquare(seen[likely], n * law[likely] / law[likely].sum())
    return bool(fits.pvalue > 1e-6)


def test_rows_are_drawn_from_the_table() -> None:
    with seeded(1):
        rows = joint().sample(40_000)
    assert rows.shape == (40_000, 3)
    assert rows.dtype == np.int64
    assert drawn_from(rows, TABLE)
    turned = np.ascontiguousarray(TABLE[:, ::-1])
    assert not drawn_from(rows, turned)


@pytest.mark.parametrize(("label", "code"), [(0, 1), (1, 2), (2, 0)])
def test_the_rest_of_a_row_is_conditional_on_the_label(label: int, code: int) -> None:
    with seeded(2):
        rows = joint(label=label).sample(20_000, label=code)
        twin = joint(label=label).sample(20_000)
    law = np.zeros(SIZES)
    at = tuple(code if axis == label else slice(None) for axis in range(3))
    law[at] = TABLE[at] / TABLE[at].sum()
    assert drawn_from(rows, law)
    # Setting the column in rows drawn without the condition is not the same.
    twin[:, label] = code
    assert not drawn_from(twin, law)


@pytest.mark.parametrize("label", [0, 1, 2])
def test_each_column_goes_with_the_label(label: int) -> None:
    distribution, law = by_label(label)
    with seeded(1):
        rows = distribution.sample(40_000)
        of_one = distribution.sample(20_000, label=1)
    assert drawn_from(rows, law)
    # What goes together beyond the label is lost.
    assert not drawn_from(rows, TABLE)
    for column in range(3):
        rest = tuple(n for n in range(3) if n != column)
        assert np.allclose(distribution.marginal(column), TABLE.sum(axis=rest))
    part = np.zeros(SIZES)
    at = tuple(1 if axis == label else slice(None) for axis in range(3))
    part[at] = law[at] / law[at].sum()
    assert drawn_from(of_one, part)


def test_codes_of_no_weight_are_never_drawn() -> None:
    class Top(SeededRandom):
        """The largest word there is, then the smallest."""

        def words(self, count: int) -> np.ndarray:
            return np.array([2**64 - 1, 0], dtype=np.uint64)

    weights = np.array([0.0, 0.1, 0.2, 0.0, 0.3, 0.0])
    with use(Top(0)):
        assert draw_codes(weights, 2).tolist() == [4, 1]
        # So small that the top is reached by rounding.
        assert draw_codes(weights * 5e-323, 2).tolist()[0] == 4


def test_labels_that_take_turns_leave_out_those_of_no_weight() -> None:
    weights = np.array([0.2, 0.0, 0.8])
    columns = {1: np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])}
    firsts = np.array([[0, 7], [1, 7], [2, 7]])
    rows = LabelDistribution(weights, columns, 0).balanced(5, firsts)
    assert rows.tolist() == [[2, 7], [0, 7], [2, 1], [0, 0], [2, 1]]
