"""From counts of reports to shares, their errors, a distribution, and telling rows."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.ldp_parts import table_of
from support.randomized_reports import (
    chain,
    randomized,
    response_matrix,
    whole_matrix,
)
from support.randomized_reports import table_of as shares_of

from langchain_dpicl.mechanisms.random import seeded
from langchain_dpicl.tabular import CategoricalColumn, TableSchema
from langchain_dpicl.tabular.distribution import JointDistribution
from langchain_dpicl.tabular.ldp.model import (
    estimates,
    fit,
    reconstruct,
    share_errors,
)
from langchain_dpicl.tabular.ldp.reports import MAX_CELLS, ReportCounts

WIDE = (2, 3, 50, 7, 200, 2, 90, 4)
SIZES = (2, 3, 4)
EPSILONS = (1.0, 2.0, 3.0)


def some_codes(sizes: tuple[int, ...], n: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.stack([rng.integers(0, size, n) for size in sizes], axis=1)


def counted(sizes: tuple[int, ...], label: int, *blocks: np.ndarray) -> ReportCounts:
    counts = ReportCounts(sizes, label)
    for block in blocks:
        counts.add(block)
    return counts


# -- counts ----------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [WIDE, SIZES, (300, 200), (300, 300), (2,) * 17])
@pytest.mark.parametrize("label", [0, 1, -1])
def test_all_counts_are_those_of_plain_counting(
    sizes: tuple[int, ...], label: int
) -> None:
    label %= len(sizes)
    codes = some_codes(sizes, 2000)
    counts = counted(sizes, label, codes[:700], codes[700:])
    assert counts.n == 2000
    for column, size in enumerate(sizes):
        plain = np.bincount(codes[:, column], minlength=size)
        assert np.array_equal(counts.single(column), plain)
        if column != label:
            table = np.zeros((sizes[label], size), np.int64)
            np.add.at(table, (codes[:, label], codes[:, column]), 1)
            assert np.array_equal(counts.pairs[column], table)
    joint = counts.joint
    assert (joint is None) == (math.prod(sizes) > MAX_CELLS)
    if joint is not None:
        assert np.array_equal(joint, np.rint(shares_of(codes, sizes) * 2000))


@pytest.mark.parametrize("sizes", [WIDE, SIZES])
def test_stored_counts_come_back_and_damaged_ones_do_not(sizes: Any) -> None:
    counts = counted(sizes, 1, some_codes(sizes, 400))
    stored = json.loads(json.dumps(counts.stored()))
    empty = ReportCounts(sizes, 1)
    restored = empty.restored(stored)
    assert restored is not None
    assert restored.n == 400
    assert restored.stored() == stored

    def damaged(change: Any) -> Any:
        tables = json.loads(json.dumps(stored))
        return change(tables) or tables

    for change in (
        lambda _: {"joint": []},
        lambda tables: tables.append([0]),
        lambda tables: tables[0].pop(),
        lambda tables: tables[0].__setitem__(0, -1),
        lambda tables: tables[0].__setitem__(0, 1.5),
        lambda tables: tables[0].__setitem__(0, True),
        lambda tables: tables[0].__setitem__(0, 10**30),
        lambda tables: [[0] * len(table) for table in tables],
    ):
        assert empty.restored(damaged(change)) is None
    # Tables that contradict each other.
    stored[0][0] += 1
    assert empty.restored(stored) is None


# -- shares and errors -----------------------------------------------------------------


def some_table(sizes: tuple[int, ...], seed: int = 0) -> np.ndarray:
    table = np.random.default_rng(seed).gamma(0.5, size=sizes)
    return table / table.sum()


def test_ten_binary_columns_agree_with_the_kronecker_product() -> None:
    table, epsilons = some_table((2,) * 10), tuple(np.linspace(0.8, 2.5, 10))
    matrix = whole_matrix(table.shape, epsilons)
    solved = np.linalg.solve(matrix, table.ravel()).reshape(table.shape)
    assert np.abs(reconstruct(table, epsilons) - solved).max() < 1e-9
    # The order of the axes matters: this test would see them mixed up.
    assert np.abs(reconstruct(table, epsilons[::-1]) - solved).max() > 1e-3


@given(
    st.lists(st.tuples(st.integers(2, 5), st.floats(0.3, 6)), min_size=1, max_size=5),
    st.integers(0, 99),
)
@settings(max_examples=50, deadline=None)
def test_it_inverts_the_responses_of_any_table(
    columns: list[tuple[int, float]], seed: int
) -> None:
    truth = reports = some_table(tuple(size for size, _ in columns), seed)
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


@pytest.mark.parametrize("epsilon", [800.0, 1e6, math.inf])
def test_large_epsilons_change_nothing(epsilon: float) -> None:
    table = some_table(SIZES)
    assert np.array_equal(reconstruct(table, [epsilon] * 3), table)


def test_the_least_epsilon_is_enough_for_the_largest_table() -> None:
    assert np.isfinite(reconstruct(np.full((2,) * 16, 0.5**16), [1e-9] * 16)).all()


@pytest.mark.parametrize("size", [2, 3, 9])
def test_errors_follow_the_dense_formula(size: int) -> None:
    table = some_table((size,))
    inverse = np.linalg.inv(response_matrix(size, 0.7))
    covariance = np.diag(table) - np.outer(table, table)
    dense = np.sqrt(np.diag(inverse @ covariance @ inverse.T) / 50)
    assert np.allclose(share_errors(table, 0.7, 50), dense, rtol=1e-9)
    # Errors of the true shares alone, without those of the responses, are smaller.
    assert not np.allclose(share_errors(table, math.inf, 50), dense, rtol=0.1)


# -- distributions ---------------------------------------------------------------------


def reported(n: int, epsilons: tuple[float, ...] = EPSILONS) -> tuple[Any, Any]:
    """Return counts of reports about dependent columns, and the true table."""
    codes = chain(SIZES, n, 0.6, np.random.default_rng(4))
    reports = randomized(codes, SIZES, epsilons, np.random.default_rng(0))
    return counted(SIZES, 0, reports), shares_of(codes, SIZES)


def distance(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).sum() / 2)


def joint_of(counts: Any, epsilons: Any) -> np.ndarray:
    fitted = fit(counts, epsilons, model="joint")
    assert isinstance(fitted, JointDistribution)
    return fitted.table


def test_the_joint_fit_finds_the_table_behind_the_reports() -> None:
    counts, truth = reported(60_000)
    assert distance(joint_of(counts, EPSILONS), truth) < 0.1
    # What misaligned budgets and unused ones would give is caught by the same bound.
    for wrong in (EPSILONS[::-1], (math.inf,) * 3):
        assert distance(joint_of(counts, wrong), truth) > 0.1


def test_the_label_first_finds_the_pairs_behind_the_reports() -> None:
    counts, truth = reported(60_000)

    def apart(epsilons: tuple[float, ...]) -> float:
        with seeded(3):
            rows = fit(counts, epsilons).sample(20_000)
        return max(
            distance(
                shares_of(rows[:, [0, place]], (2, SIZES[place])),
                truth.sum(axis=3 - place),
            )
            for place in (1, 2)
        )

    assert apart(EPSILONS) < 0.06
    assert apart(EPSILONS[::-1]) > 0.06
    assert apart((math.inf,) * 3) > 0.06


def test_the_fit_is_a_distribution_where_the_estimate_is_none() -> None:
    counts, _ = reported(300)
    assert reconstruct(counts.joint / 300, EPSILONS).min() < 0
    table = joint_of(counts, EPSILONS)
    assert table.min() >= 0
    assert table.sum() == pytest.approx(1, abs=1e-12)


def test_each_binary_column_at_epsilon_1_multiplies_the_noise_by_2_4() -> None:
    def noise(columns: int) -> float:
        """Return the sum of all cells' deviations, times the root of the reports."""
        one_report = np.zeros((2,) * columns)
        one_report.flat[0] = 1
        effect = reconstruct(one_report, [1.0] * columns)
        return float(one_report.size * np.sqrt((effect**2).mean()))

    assert noise(5) / noise(4) == pytest.approx(2.4, abs=0.05)


@pytest.mark.parametrize("sizes", [(2, 2), (1000, 2), (2, 3)])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("model", ["joint", "label"])
def test_few_reports_give_a_sound_answer(
    sizes: tuple[int, ...], n: int, model: Any
) -> None:
    counts = counted(sizes, 0, np.ones((n, len(sizes)), np.int64))
    epsilons = [0.5] * len(sizes)
    fitted = fit(counts, epsilons, model=model)
    rows = fitted.sample(20)
    assert (rows >= 0).all()
    assert (rows < np.array(sizes)).all()
    for column, pairs in enumerate(estimates(counts, epsilons)):
        assert fitted.marginal(column).sum() == pytest.approx(1)
        assert sum(share for share, _ in pairs) == pytest.approx(1)
        # A few reports that are all the same don't pass for certainty.
        assert all(error > 0 for _, error in pairs)


# -- telling rows ----------------------------------------------------------------------

SCHEMA = TableSchema(
    label="ill",
    columns=[
        CategoricalColumn(name="job", values=["clerk", "nurse", "diver"]),
        CategoricalColumn(name="ill", values=["no", "yes", "never"]),
        CategoricalColumn(name="smokes", values=["no", "yes"]),
    ],
)


def rows_of(counts: dict[tuple[str, str, str], int]) -> list[dict[str, str]]:
    return [
        {"job": job, "ill": ill, "smokes": smokes}
        for (job, ill, smokes), count in counts.items()
        for _ in range(count)
    ]


# Clerks who don't smoke are the most frequent everywhere; what tells the ill ones from
# the others is that some are divers, and some smoke.
ROWS = rows_of(
    {
        ("clerk", "no", "no"): 900,
        ("nurse", "no", "no"): 100,
        ("clerk", "yes", "no"): 240,
        ("diver", "yes", "no"): 110,
        ("clerk", "yes", "yes"): 150,
    }
)


def drawn(k: int, rows: Any = ROWS, epsilon: float = 300.0, **terms: Any) -> Any:
    balanced = terms.pop("balanced", True)
    table = table_of(rows, SCHEMA, epsilon=epsilon, **terms)
    return table.sample(k, balanced=balanced)


@pytest.mark.parametrize("model", ["joint", "label"])
def test_the_first_row_of_each_label_tells_it_from_the_others(model: Any) -> None:
    rows = drawn(4000, model=model)
    assert rows[0] == {"job": "clerk", "ill": "no", "smokes": "no"}
    assert rows[1] == {"job": "diver", "ill": "yes", "smokes": "yes"}
    assert [row["ill"] for row in rows] == ["no", "yes"] * 2000
    if model == "joint":
        # The telling row is nobody's: drawn rows follow the table.
        seen = Counter(tuple(row.values()) for row in rows[2:])
        assert ("diver", "yes", "yes") not in seen
        assert 0.4 < seen["clerk", "yes", "no"] / 2000 < 0.56


def test_it_needs_less_epsilon_than_whole_rows_do() -> None:
    """At an epsilon that blurs rows, the telling ones are still right."""
    for seed in range(5):
        with seeded(seed):
            rows = drawn(2, ROWS * 20, epsilon=3.0)
        smokers = {row["ill"]: row["smokes"] for row in rows}
        assert smokers == {"no": "no", "yes": "yes"}


def test_labels_that_few_rows_or_no_rows_have() -> None:
    one = rows_of({("nurse", "no", "yes"): 300, ("clerk", "no", "yes"): 200})
    assert drawn(1, one) == [{"job": "nurse", "ill": "no", "smokes": "yes"}]
    assert {row["ill"] for row in drawn(9, one)} == {"no"}
    assert drawn(1)[0]["ill"] == "no"


def test_rows_that_are_not_balanced_are_all_drawn() -> None:
    rows = drawn(3000, model="joint", balanced=False)
    assert abs(np.mean([row["ill"] == "yes" for row in rows]) - 1 / 3) < 0.06
    assert ("diver", "yes", "yes") not in {tuple(row.values()) for row in rows}
