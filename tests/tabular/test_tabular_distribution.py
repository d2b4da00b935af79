"""Distributions of rows: what is drawn of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from support.randomized_reports import table_of

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.tabular.distribution import (
    JointDistribution,
    LabelDistribution,
    draw_codes,
    shares_by_label,
)

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
    rows = joint().sample(40_000, SeededRandom(1))
    assert rows.shape == (40_000, 3)
    assert rows.dtype == np.int64
    assert drawn_from(rows, TABLE)
    turned = np.ascontiguousarray(TABLE[:, ::-1])
    assert not drawn_from(rows, turned)


@pytest.mark.parametrize(("label", "code"), [(0, 1), (1, 2), (2, 0)])
def test_the_rest_of_a_row_is_conditional_on_the_label(label: int, code: int) -> None:
    rows = joint(label=label).sample(20_000, SeededRandom(2), label=code)
    law = np.zeros(SIZES)
    at = tuple(code if axis == label else slice(None) for axis in range(3))
    law[at] = TABLE[at] / TABLE[at].sum()
    assert drawn_from(rows, law)
    # Setting the column in rows drawn without the condition is not the same.
    twin = joint(label=label).sample(20_000, SeededRandom(3))
    twin[:, label] = code
    assert not drawn_from(twin, law)


@pytest.mark.parametrize("label", [0, 1, 2])
def test_each_column_goes_with_the_label(label: int) -> None:
    distribution, law = by_label(label)
    rows = distribution.sample(40_000, SeededRandom(1))
    assert drawn_from(rows, law)
    # What goes together beyond the label is lost.
    assert not drawn_from(rows, TABLE)
    for column in range(3):
        rest = tuple(n for n in range(3) if n != column)
        assert np.allclose(distribution.marginal(column), TABLE.sum(axis=rest))
    part = np.zeros(SIZES)
    at = tuple(1 if axis == label else slice(None) for axis in range(3))
    part[at] = law[at] / law[at].sum()
    assert drawn_from(distribution.sample(20_000, SeededRandom(2), label=1), part)


@pytest.mark.parametrize("made", [joint, lambda: by_label(0)[0]])
def test_a_label_that_is_not_there_is_refused(made: Any) -> None:
    for label, said in ((2, "domain size, 2"), (-1, "label"), (0.5, "label")):
        with pytest.raises(InvalidParameterError, match=said):
            made().sample(1, label=label)
    for k in (-1, 1.5):
        with pytest.raises(InvalidParameterError, match="k must be"):
            made().sample(k)
    with pytest.raises(InvalidParameterError, match="SecureRandom"):
        made().sample(1, random=np.random.default_rng())


def test_a_label_the_reports_do_not_show_is_refused() -> None:
    table, sure = np.array([[0.5, 0.5], [0.0, 0.0]]), np.array([1.0, 0.0])
    even = shares_by_label(table, sure)
    for distribution in (joint(table), LabelDistribution(sure, {1: even}, 0)):
        with pytest.raises(InvalidParameterError, match="no weight"):
            distribution.sample(1, label=1)


def test_no_rows_are_an_empty_array() -> None:
    assert joint().sample(0).shape == (0, 3)


def test_codes_of_no_weight_are_never_drawn() -> None:
    class Top(SeededRandom):
        """The largest word there is, then the smallest."""

        def words(self, count: int) -> np.ndarray:
            return np.array([2**64 - 1, 0], dtype=np.uint64)

    weights = np.array([0.0, 0.1, 0.2, 0.0, 0.3, 0.0])
    assert draw_codes(weights, 2, Top(0)).tolist() == [4, 1]
    # So small that the top is reached by rounding.
    assert draw_codes(weights * 5e-323, 2, Top(0)).tolist()[0] == 4


def test_a_distribution_says_what_it_is() -> None:
    for distribution, kind in ((joint(), "joint"), (by_label(1)[0], "label")):
        assert distribution.kind == kind
        assert distribution.domain_sizes == SIZES
        assert "2x3x4" in repr(distribution)
