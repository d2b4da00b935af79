from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.randomized_reports import (
    response_matrix,
    whole_matrix,
)

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.ldp.reconstruction import (
    reconstruct,
    standard_errors,
)

SIZES = (2, 3, 4)
EPSILONS = (0.7, 1.5, 2.5)


def some_table(sizes: tuple[int, ...], seed: int = 0) -> np.ndarray:
    table = np.random.default_rng(seed).gamma(0.5, size=sizes)
    return table / table.sum()


def solved(table: np.ndarray, epsilons: tuple[float, ...]) -> np.ndarray:
    matrix = whole_matrix(table.shape, epsilons)
    return np.linalg.solve(matrix, table.ravel()).reshape(table.shape)


def test_ten_binary_columns_agree_with_the_kronecker_product() -> None:
    table = some_table((2,) * 10)
    epsilons = tuple(np.linspace(0.8, 2.5, 10))
    ours = reconstruct(table, epsilons)
    assert np.abs(ours - solved(table, epsilons)).max() < 1e-9
    # The order of the axes matters: this test would see them mixed up.
    mixed = reconstruct(table, epsilons[::-1])
    assert np.abs(mixed - solved(table, epsilons)).max() > 1e-3


@given(
    st.lists(st.tuples(st.integers(1, 5), st.floats(0.3, 6)), min_size=1, max_size=5),
    st.integers(0, 99),
)
@settings(max_examples=50, deadline=None)
def test_it_inverts_the_responses_of_any_table(
    columns: list[tuple[int, float]], seed: int
) -> None:
    sizes = tuple(size for size, _ in columns)
    truth = some_table(sizes, seed)
    reports = truth
    for axis, (size, epsilon) in enumerate(columns):
        matrix = response_matrix(size, epsilon)
        reports = np.moveaxis(np.tensordot(matrix, reports, (1, axis)), 0, axis)
    estimate = reconstruct(reports, [epsilon for _, epsilon in columns])
    assert np.abs(estimate - truth).max() < 1e-8


def test_a_matrix_of_d_in_place_of_d_minus_1_is_caught() -> None:
    truth = some_table((4,))
    twin = np.full((4, 4), 1 / (math.e + 4))
    np.fill_diagonal(twin, 1 - twin[0, 1:].sum())
    right, wrong = response_matrix(4, 1.0) @ truth, twin @ truth
    assert np.abs(reconstruct(right, [1.0]) - truth).max() < 1e-12
    assert np.abs(reconstruct(wrong, [1.0]) - truth).max() > 1e-2


def test_the_estimate_is_not_projected_and_keeps_its_sum() -> None:
    estimate = reconstruct([[9, 1], [1, 0]], [0.5, 0.5])
    assert estimate.min() < 0
    assert estimate.sum() == pytest.approx(11)


def test_counts_are_as_good_as_frequencies() -> None:
    counts = np.arange(24).reshape(SIZES)
    assert np.allclose(
        reconstruct(counts, EPSILONS), 276 * reconstruct(counts / 276, EPSILONS)
    )


@pytest.mark.parametrize("epsilon", [800.0, 1e6, math.inf])
def test_large_epsilons_change_nothing(epsilon: float) -> None:
    table = some_table(SIZES)
    epsilons = [epsilon] * 3
    assert np.array_equal(reconstruct(table, epsilons), table)


def test_the_input_is_left_alone() -> None:
    table = some_table(SIZES)
    before = table.copy()
    reconstruct(table, EPSILONS)
    standard_errors(table, EPSILONS, 5)
    assert np.array_equal(table, before)


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, True, "1", None])
def test_a_wrong_epsilon_is_named_by_its_axis(epsilon: object) -> None:
    with pytest.raises(InvalidParameterError, match=r"epsilons\[1\]"):
        reconstruct([[0.5, 0.0], [0.0, 0.5]], [1.0, epsilon])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("frequencies", "epsilons", "said"),
    [
        ([0.5, 0.5], [1.0, 1.0], "one value per column: 1, not 2"),
        ([0.5, 0.5], 1.0, "sequence"),
        (0.5, [], "one axis per column"),
        ([], [1.0], "one axis per column"),
        ([[0.5], [0.2, 0.3]], [1.0, 1.0], "ragged"),
        ([math.nan, 1.0], [1.0], "finite"),
        (["a", "b"], [1.0], "real numbers"),
        ([0.5, 0.5], [1e-310], "so small"),
        (np.full((2,) * 20, 0.5**20), [1e-20] * 20, "so small"),
    ],
)
def test_what_cannot_be_reconstructed_is_refused(
    frequencies: object, epsilons: list[float], said: str
) -> None:
    with pytest.raises(InvalidParameterError, match=said):
        reconstruct(frequencies, epsilons)


@pytest.mark.parametrize("n", [0, -3, 2.5])
def test_errors_need_reports(n: object) -> None:
    with pytest.raises(InvalidParameterError, match="n must be"):
        standard_errors([0.5, 0.5], [1.0], n)  # type: ignore[arg-type]


def test_errors_need_a_distribution() -> None:
    with pytest.raises(InvalidParameterError, match="negative"):
        standard_errors([1.5, -0.5], [1.0], 10)
    with pytest.raises(InvalidParameterError, match="all be 0"):
        standard_errors([0, 0], [1.0], 10)


def test_standard_errors_follow_the_dense_formula() -> None:
    table = some_table(SIZES)
    inverse = np.linalg.inv(whole_matrix(SIZES, EPSILONS))
    truth = inverse @ table.ravel()
    covariance = np.diag(table.ravel()) - np.outer(table, table)
    dense = np.sqrt(np.diag(inverse @ covariance @ inverse.T) / 50).reshape(SIZES)
    assert np.allclose(standard_errors(table, EPSILONS, 50), dense, rtol=1e-9)
    counts = standard_errors(table * 1e3, EPSILONS, 50)
    assert np.allclose(counts, dense, rtol=1e-9)
    unsquared = np.sqrt(np.maximum(truth * (1 - truth), 0) / 50).reshape(SIZES)
    assert not np.allclose(unsquared, dense, rtol=0.2)


def test_no_langchain_is_imported() -> None:
    code = (
        "import sys, langchain_dpicl.tabular.ldp.fitting as f; "
        "sys.exit('langchain_core' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
