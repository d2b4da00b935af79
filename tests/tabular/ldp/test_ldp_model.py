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


@pytest.mark.parametrize("sizes", [WIDE, SIZES, (2,) * 17])
@pytest.mark.parametrize("label", [0, -1])
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


@pytest.mark.parametrize("size", [2, 3, 9])
def test_errors_follow_the_dense_formula(size: int) -> None:
    table = some_table((size,))
    inverse = np.linalg.inv(response_matrix(size, 0.7))
    covariance = np.diag(table) - np.outer(table, table)
    dense = np.sqrt(np.diag(inverse @ covariance @ inverse.T) / 50)
    assert np.allclose(share_errors(table, 0.7, 50), dense, rtol=1e-9)


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


@pytest.mark.parametrize("sizes", [(1000, 2), (2, 3)])
@pytest.mark.parametrize("model", ["joint", "label"])
def test_few_reports_give_a_sound_answer(sizes: tuple[int, ...], model: Any) -> None:
    counts = counted(sizes, 0, np.ones((1, len(sizes)), np.int64))
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
    for seed in range(3):
        with seeded(seed):
            rows = drawn(2, ROWS * 6, epsilon=3.0)
        smokers = {row["ill"]: row["smokes"] for row in rows}
        assert smokers == {"no": "no", "yes": "yes"}
