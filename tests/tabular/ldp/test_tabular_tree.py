from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support.randomized_reports import chain, randomized, response_matrix, table_of

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import SeededRandom
from langchain_dpicl.tabular.ldp import fitting
from langchain_dpicl.tabular.ldp.counts import ReportCounts
from langchain_dpicl.tabular.ldp.dependence import (
    independence_p_value,
    mutual_information,
    rake,
)
from langchain_dpicl.tabular.ldp.fitting import fit, heaviest_forest
from langchain_dpicl.tabular.ldp.tree import TreeDistribution

MIXED = (3, 20, 2, 30, 2, 4, 10, 6)


def collected(
    codes: np.ndarray, sizes: tuple[int, ...], epsilon: float, seed: int = 0
) -> ReportCounts:
    counts = ReportCounts(sizes)
    rng = np.random.default_rng(seed)
    counts.add(randomized(codes, sizes, [epsilon] * len(sizes), rng))
    return counts


def fitted_tree(counts: ReportCounts, epsilon: float) -> TreeDistribution:
    tree = fit(counts, [epsilon] * len(counts.domain_sizes), model="tree")
    assert isinstance(tree, TreeDistribution)
    return tree


def links(columns: int) -> tuple[tuple[int, int], ...]:
    return tuple((i, i + 1) for i in range(columns - 1))


def fork() -> tuple[TreeDistribution, np.ndarray]:
    """Columns 0 - 2 - 1 in a tree and 3 alone, with the table of whole rows."""
    rng = np.random.default_rng(1)
    sizes = (2, 3, 3, 2)
    first = np.array([[0.3, 0.1, 0.05], [0.05, 0.1, 0.4]])
    middle = first.sum(axis=0)
    second = rng.gamma(1, size=(3, 3))
    second *= (middle / second.sum(axis=0))[None, :]
    alone = np.array([0.3, 0.7])
    marginals = [first.sum(axis=1), second.sum(axis=1), middle, alone]
    tables = {(0, 2): first, (1, 2): second}
    tree = TreeDistribution(marginals, tables, [np.zeros(d) for d in sizes], 0.0)
    law = np.einsum("ac,bc,c,d->abcd", first, second, 1 / middle, alone)
    return tree, law


def drawn_from(rows: np.ndarray, law: np.ndarray) -> bool:
    seen = table_of(rows, law.shape) * len(rows)
    likely = law > 0
    if seen[~likely].sum():
        return False
    expected = len(rows) * law[likely] / law[likely].sum()
    return bool(stats.chisquare(seen[likely], expected).pvalue > 1e-6)


def test_rows_are_drawn_from_the_tree() -> None:
    tree, law = fork()
    rows = tree.sample(40_000, SeededRandom(1))
    assert drawn_from(rows, law)
    # Marginals alone, or a child that looks at the wrong column, are caught.
    for column in (0, 2):
        twin = rows.copy()
        twin[:, column] = np.roll(twin[:, column], 1)
        assert not drawn_from(twin, law)


@pytest.mark.parametrize(("column", "code"), [(0, 1), (1, 0), (2, 2), (3, 0)])
def test_the_tree_is_conditional_on_what_is_given(column: int, code: int) -> None:
    tree, law = fork()
    rows = tree.sample(20_000, SeededRandom(2), given=(column, code))
    at = tuple(code if axis == column else slice(None) for axis in range(4))
    part = np.zeros_like(law)
    part[at] = law[at] / law[at].sum()
    assert drawn_from(rows, part)
    twin = tree.sample(20_000, SeededRandom(3))
    twin[:, column] = code
    assert drawn_from(twin, part) == (column == 3)


def test_a_cycle_is_no_tree() -> None:
    pair, half = np.full((2, 2), 0.25), np.full(2, 0.5)
    cycle = dict.fromkeys([(0, 1), (1, 2), (0, 2)], pair)
    with pytest.raises(InvalidParameterError, match="cycle"):
        TreeDistribution([half] * 3, cycle, [half] * 3, 0.0)


def test_a_value_the_reports_do_not_show_is_refused() -> None:
    table, sure = np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([1.0, 0.0])
    tree = TreeDistribution([sure] * 2, {(0, 1): table}, [sure] * 2, 0.0)
    assert tree.sample(3, given=(1, 0)).tolist() == [[0, 0]] * 3
    with pytest.raises(InvalidParameterError, match="column 1 hardly ever"):
        tree.sample(1, given=(1, 1))


@pytest.mark.parametrize(("sizes", "n"), [((2,) * 22, 20_000), (MIXED, 60_000)])
def test_a_planted_chain_is_found(sizes: tuple[int, ...], n: int) -> None:
    codes = chain(sizes, n, 0.7, np.random.default_rng(1))
    tree = fitted_tree(collected(codes, sizes, 2.0), 2.0)
    assert tree.kind == "tree"
    assert tree.edges == links(len(sizes))
    assert fit(collected(codes, sizes, 2.0), [2.0] * len(sizes)).kind == "tree"
    for column, size in enumerate(sizes):
        seen = np.bincount(codes[:, column], minlength=size) / n
        off = np.abs(tree.marginal(column) - seen)
        assert (off < 6 * tree.standard_errors(column)).all()
    for (i, j), table in tree._tables.items():
        assert np.abs(table.sum(axis=1) - tree.marginal(i)).max() < 1e-12
        assert np.abs(table.sum(axis=0) - tree.marginal(j)).max() < 1e-12


def test_columns_of_many_values_do_not_win_by_their_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = collected(chain(MIXED, 60_000, 0.6, np.random.default_rng(3)), MIXED, 2.0)
    assert fitted_tree(counts, 2.0).edges == links(len(MIXED))
    monkeypatch.setattr(fitting, "noise_share", lambda reports: 0.0)
    assert fitted_tree(counts, 2.0).edges != links(len(MIXED))


def test_independent_columns_get_no_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (2, 5, 3, 2, 8, 4, 2, 3, 6, 2)

    def runs_with_edges() -> int:
        rng = np.random.default_rng(7)
        count = 0
        for seed in range(30):
            codes = np.stack([rng.integers(0, d, 1000) for d in sizes], axis=1)
            tree = fitted_tree(collected(codes, sizes, 1.5, 100 + seed), 1.5)
            count += bool(tree.edges)
        return count

    # More than 6 of 30 runs happen with a chance below 1e-6 at 1 % each.
    assert runs_with_edges() <= 6
    # The same test at 1 % for each of the 45 pairs lets edges in: it is caught.
    monkeypatch.setattr(fitting, "EDGE_SIGNIFICANCE", 0.45)
    assert runs_with_edges() > 6


def test_unsupported_columns_stay_apart_in_a_forest() -> None:
    rng = np.random.default_rng(8)
    codes = np.concatenate(
        [chain((2, 2, 2), 8000, 0.7, rng), rng.integers(0, 2, (8000, 2))], axis=1
    )
    tree = fitted_tree(collected(codes, (2,) * 5, 2.0), 2.0)
    assert tree.edges == ((0, 1), (1, 2))
    assert 0 < tree.noise < 0.1


def test_responses_shrink_dependence_by_a_factor_and_so_keep_independence() -> None:
    truth = np.random.default_rng(9).gamma(1, size=(3, 4))
    truth /= truth.sum()
    left, right = response_matrix(3, 1.0), response_matrix(4, 2.0)

    def deviation(table: np.ndarray) -> np.ndarray:
        return table - np.outer(table.sum(axis=1), table.sum(axis=0))

    factor = (left[0, 0] - left[0, 1]) * (right[0, 0] - right[0, 1])
    reports = left @ truth @ right.T
    assert np.allclose(deviation(reports), factor * deviation(truth), atol=1e-14)


@pytest.mark.parametrize(
    ("rows", "columns", "n"),
    [
        (np.ones(2), np.ones(2), 500),
        (np.array([1.0, 49.0]), np.array([1.0, 49.0]), 500),
        (np.ones(60), np.ones(60), 300),
        (1 / np.arange(1.0, 60) ** 2, 1 / np.arange(1.0, 40) ** 2, 1000),
    ],
)
def test_the_independence_test_keeps_its_level(
    rows: np.ndarray, columns: np.ndarray, n: int
) -> None:
    rng = np.random.default_rng(10)
    law = np.outer(rows, columns).ravel() / rows.sum() / columns.sum()
    tables = rng.multinomial(n, law, size=4000).reshape(-1, rows.size, columns.size)
    p_values = np.array([independence_p_value(table) for table in tables])
    # The level of 1 % may be missed by half of it: the tables are sparse.
    allowed = stats.binom.isf(1e-6, 4000, 0.015)
    assert (p_values < 0.01).sum() <= allowed
    assert (p_values < 0.025).sum() > 40  # And it is not far below it.


def test_chi_square_is_wrong_where_tables_are_sparse() -> None:
    rng = np.random.default_rng(10)
    rare = np.array([0.02, 0.98])
    law = np.outer(rare, rare).ravel()
    tables = rng.multinomial(500, law, size=4000).reshape(-1, 2, 2)
    found = 0
    for table in tables:
        expected = np.outer(table.sum(axis=1), table.sum(axis=0)) / 500
        found += stats.chi2.sf(((table - expected) ** 2 / expected).sum(), 1) < 0.01
    assert found > stats.binom.isf(1e-6, 4000, 0.015)


def test_dependence_is_seen_and_too_few_reports_say_nothing() -> None:
    assert independence_p_value(np.array([[400, 100], [100, 400]])) < 1e-20
    assert independence_p_value(np.array([[3, 0], [0, 0]])) == 1.0
    assert independence_p_value(np.array([[1, 0], [0, 2]])) == 1.0
    assert independence_p_value(np.array([[90, 0], [10, 0]])) == 1.0
    assert independence_p_value(np.zeros((2, 2), dtype=np.int64)) == 1.0


@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 999))
@settings(max_examples=60, deadline=None)
def test_raked_tables_have_the_marginals_even_around_zeros(
    height: int, width: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    table = rng.gamma(0.5, size=(height, width)) * (rng.random((height, width)) < 0.4)
    rows, columns = rng.dirichlet(np.ones(height)), rng.dirichlet(np.ones(width))
    raked = rake(table, rows, columns)
    assert raked.min() >= 0
    assert np.abs(raked.sum(axis=1) - rows).max() < 1e-12
    assert np.abs(raked.sum(axis=0) - columns).max() < 1e-12


def test_raking_keeps_the_odds_of_a_table_without_zeros() -> None:
    table = np.array([[0.4, 0.1], [0.2, 0.3]])
    raked = rake(table, np.array([0.7, 0.3]), np.array([0.2, 0.8]))
    odds = raked[0, 0] * raked[1, 1] / raked[0, 1] / raked[1, 0]
    assert odds == pytest.approx(6)


def test_mutual_information_is_that_of_the_formula() -> None:
    assert mutual_information(np.outer([0.3, 0.7], [0.5, 0.5])) == pytest.approx(0)
    table = np.array([[0.5, 0.0], [0.25, 0.25]])
    exact = 0.5 * math.log(4 / 3) + 0.25 * math.log(2 / 3) + 0.25 * math.log(2)
    assert mutual_information(table) == pytest.approx(exact)


def test_the_heaviest_forest_takes_edges_of_weight_0_and_of_equal_weight() -> None:
    assert heaviest_forest({}, 3) == []
    assert heaviest_forest({(0, 1): 0.0, (2, 3): 0.0}, 4) == [(0, 1), (2, 3)]
    ring = {(0, 1): 1.0, (1, 2): 1.0, (0, 2): 3.0, (2, 3): 1e-12}
    forest = heaviest_forest(ring, 5)
    assert len(forest) == 3
    assert {(0, 2), (2, 3)} < set(forest)


def test_the_noise_of_a_tree_is_the_distance_that_the_responses_make() -> None:
    rng = np.random.default_rng(11)
    sizes, n = (2, 3, 2), 20_000
    codes = chain(sizes, n, 0.6, rng)
    whole = fitted_tree(collected(codes, sizes, math.inf), math.inf)
    assert whole.noise == pytest.approx(0, abs=1e-6)

    def table(tree: TreeDistribution) -> np.ndarray:
        assert tree.edges == links(3)
        tables = tree._tables
        return np.einsum(
            "ab,bc,b->abc", tables[0, 1], tables[1, 2], 1 / tree.marginal(1)
        )

    distances, figures = [], []
    for seed in range(40):
        tree = fitted_tree(collected(codes, sizes, 1.5, 100 + seed), 1.5)
        distances.append(np.abs(table(tree) - table(whole)).sum() / 2)
        figures.append(tree.noise)
    assert np.mean(figures) == pytest.approx(np.mean(distances), rel=0.2)
