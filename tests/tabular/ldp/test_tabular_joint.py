from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from support.randomized_reports import chain, randomized, table_of

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import SeededRandom
from langchain_dpicl.tabular.ldp.counts import ReportCounts
from langchain_dpicl.tabular.ldp.distribution import draw_codes
from langchain_dpicl.tabular.ldp.fitting import MAX_JOINT_NOISE, fit
from langchain_dpicl.tabular.ldp.joint import JointDistribution
from langchain_dpicl.tabular.ldp.reconstruction import reconstruct, standard_errors

SIZES = (2, 3, 4)
EPSILONS = (1.0, 2.0, 3.0)
TABLE = np.random.default_rng(2).gamma(0.7, size=SIZES)
TABLE[0, 1, 2] = TABLE[1, 2, 0] = 0
TABLE /= TABLE.sum()


def joint(table: np.ndarray = TABLE) -> JointDistribution:
    return JointDistribution(table, [np.zeros(d) for d in table.shape], 0.0)


def drawn_from(rows: np.ndarray, law: np.ndarray) -> bool:
    """Whether the rows follow a table of probabilities: chi-square at 1e-6."""
    n = len(rows)
    seen = table_of(rows, law.shape) * n
    likely = law > 1e-12
    if seen[~likely].sum():
        return False
    fits = stats.chisquare(seen[likely], n * law[likely] / law[likely].sum())
    return bool(fits.pvalue > 1e-6)


def collected(
    codes: np.ndarray,
    sizes: tuple[int, ...],
    epsilons: tuple[float, ...],
    seed: int = 0,
) -> ReportCounts:
    counts = ReportCounts(sizes)
    counts.add(randomized(codes, sizes, epsilons, np.random.default_rng(seed)))
    return counts


def distance(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one - other).sum() / 2)


def test_rows_are_drawn_from_the_table() -> None:
    rows = joint().sample(40_000, SeededRandom(1))
    assert rows.shape == (40_000, 3)
    assert rows.dtype == np.int64
    assert drawn_from(rows, TABLE)
    turned = np.ascontiguousarray(TABLE[:, ::-1])
    assert not drawn_from(rows, turned)


@pytest.mark.parametrize(("column", "code"), [(0, 1), (1, 2), (2, 0)])
def test_the_rest_of_a_row_is_conditional_on_what_is_given(
    column: int, code: int
) -> None:
    rows = joint().sample(20_000, SeededRandom(2), given=(column, code))
    law = np.zeros(SIZES)
    at = tuple(code if axis == column else slice(None) for axis in range(3))
    law[at] = TABLE[at] / TABLE[at].sum()
    assert drawn_from(rows, law)
    # Setting the column in rows drawn without the condition is not the same.
    twin = joint().sample(20_000, SeededRandom(3))
    twin[:, column] = code
    assert not drawn_from(twin, law)


def test_a_label_the_reports_do_not_show_is_refused() -> None:
    table = np.array([[0.5, 0.5], [0.0, 0.0]])
    with pytest.raises(InvalidParameterError, match="column 0 hardly ever"):
        joint(table).sample(1, given=(0, 1))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"k": -1}, "k must be"),
        ({"k": 1.5}, "k must be"),
        ({"k": 1, "given": (3, 0)}, "number of columns, 3"),
        ({"k": 1, "given": (0, 2)}, "domain size, 2"),
        ({"k": 1, "given": (-1, 0)}, "column"),
        ({"k": 1, "given": 0}, "pair"),
        ({"k": 1, "random": np.random.default_rng()}, "SecureRandom"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict, said: str) -> None:
    with pytest.raises(InvalidParameterError, match=said):
        joint().sample(**arguments)


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


def test_what_is_known_of_the_fit_is_there() -> None:
    distribution = joint()
    assert distribution.kind == "joint"
    assert distribution.edges == ()
    assert distribution.domain_sizes == SIZES
    assert np.allclose(distribution.marginal(1), TABLE.sum(axis=(0, 2)))
    assert "joint" in repr(distribution).lower()
    assert "2x3x4" in repr(distribution)
    with pytest.raises(InvalidParameterError, match="column"):
        distribution.marginal(3)


def test_the_fit_finds_the_table_behind_the_reports() -> None:
    codes = chain(SIZES, 60_000, 0.6, np.random.default_rng(4))
    truth = table_of(codes, SIZES)
    counts = collected(codes, SIZES, EPSILONS)
    fitted = fit(counts, EPSILONS)
    assert isinstance(fitted, JointDistribution)
    assert distance(fitted.table, truth) < 2 * fitted.noise < 0.15
    # What misaligned budgets and unused ones would give is caught by the same bound.
    for wrong in (EPSILONS[::-1], (math.inf,) * 3):
        twin = fit(counts, wrong, model="joint")
        assert isinstance(twin, JointDistribution)
        assert distance(twin.table, truth) > 2 * fitted.noise


def test_the_fit_is_a_distribution_where_the_estimate_is_none() -> None:
    codes = chain(SIZES, 300, 0.6, np.random.default_rng(4))
    counts = collected(codes, SIZES, EPSILONS)
    assert counts.joint is not None
    assert reconstruct(counts.joint / 300, EPSILONS).min() < 0
    fitted = fit(counts, EPSILONS, model="joint")
    assert isinstance(fitted, JointDistribution)
    assert fitted.table.min() >= 0
    assert fitted.table.sum() == pytest.approx(1, abs=1e-12)
    for column, single in enumerate(counts.singles):
        errors = standard_errors(single, [EPSILONS[column]], 300)
        assert np.allclose(fitted.standard_errors(column), errors, rtol=1e-9)


def test_reports_without_noise_are_the_table() -> None:
    codes = chain(SIZES, 500, 0.6, np.random.default_rng(5))
    never = (math.inf,) * 3
    fitted = fit(collected(codes, SIZES, never), never)
    assert isinstance(fitted, JointDistribution)
    assert np.allclose(fitted.table, table_of(codes, SIZES), atol=1e-12)
    assert fitted.noise == pytest.approx(0, abs=1e-6)


def test_auto_takes_the_joint_table_while_its_noise_is_small() -> None:
    rng = np.random.default_rng(6)
    kinds = {}
    for n in (1000, 1_000_000):
        sizes, epsilons = (2,) * 6, (1.0,) * 6
        counts = collected(chain(sizes, n, 0.6, rng), sizes, epsilons)
        noise = fit(counts, epsilons, model="joint").noise
        kinds[fit(counts, epsilons).kind] = noise
    assert kinds["joint"] <= MAX_JOINT_NOISE < kinds["tree"]


def test_each_binary_column_at_epsilon_1_multiplies_the_noise_by_2_4() -> None:
    counts = [ReportCounts((2,) * columns) for columns in (4, 5)]
    for table in counts:
        table.add(np.indices(table.domain_sizes).reshape(len(table.domain_sizes), -1).T)
    assert counts[1].joint is not None
    small, large = (
        np.sqrt(standard_errors(c.joint, [1.0] * c.joint.ndim, 10**9) ** 2).sum()
        for c in counts
        if c.joint is not None
    )
    assert large / small == pytest.approx(2.4, abs=0.05)


@pytest.mark.parametrize("sizes", [(2,), (1000,), (2, 3)])
@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("model", ["auto", "joint", "tree"])
def test_few_reports_of_few_columns_give_a_sound_answer(
    sizes: tuple[int, ...], n: int, model: str
) -> None:
    counts = ReportCounts(sizes)
    counts.add(np.ones((n, len(sizes)), dtype=np.int64))
    fitted = fit(counts, [0.5] * len(sizes), model=model)  # type: ignore[arg-type]
    rows = fitted.sample(20, SeededRandom(1))
    assert (rows >= 0).all()
    assert (rows < np.array(sizes)).all()
    assert 0 < fitted.noise <= 1
    for column, size in enumerate(sizes):
        assert fitted.marginal(column).sum() == pytest.approx(1)
        errors = fitted.standard_errors(column)
        assert (errors > 0).all()
        if n == 0:
            assert fitted.noise == 1.0
            assert np.isinf(errors).all()
            assert np.allclose(fitted.marginal(column), 1 / size)


def test_what_cannot_be_fitted_is_refused() -> None:
    wide = ReportCounts((1100, 1000))
    with pytest.raises(InvalidParameterError, match="too large"):
        fit(wide, [1.0, 1.0], model="joint")
    assert fit(wide, [1.0, 1.0]).kind == "tree"
    with pytest.raises(InvalidParameterError, match='"auto", "joint" or "tree"'):
        fit(wide, [1.0, 1.0], model="chain")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="one value per column"):
        fit(wide, [1.0])
    with pytest.raises(InvalidParameterError, match=r"epsilons\[1\]"):
        fit(wide, [1.0, 0.0])
