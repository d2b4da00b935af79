"""Tables made to agree, against least squares by a dense matrix, and by simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from langchain_dpicl.tabular.gdp.consistency import Overlap

Floats = NDArray[np.float64]

SIZES = {"a": 3, "b": 4, "c": 2}
OVERLAPS = {
    "a chain": ((("a", "b"), ("b", "c")), (1.0, 2.5)),
    "turned": ((("b", "a"), ("b", "c")), (1.0, 2.5)),
    "a circle": ((("a", "b"), ("b", "c"), ("a", "c")), (1.0, 2.0, 0.5)),
    "columns too": ((("a", "b"), ("b",), ("c",)), (2.0, 1.0, 3.0)),
    "apart": ((("a", "b"), ("c",)), (1.0, 1.0)),
    "alone": ((("a", "b"),), (1.5,)),
}


def overlap_of(which: str) -> Overlap:
    columns, noise = OVERLAPS[which]
    names = {name for own in columns for name in own}
    return Overlap(columns, {n: s for n, s in SIZES.items() if n in names}, noise)


def joined(overlap: Overlap) -> Floats:
    """The matrix from a joint table of all columns to all tables' cells, stacked."""
    names = list(overlap.sizes)
    cells = [*itertools.product(*(range(overlap.sizes[name]) for name in names))]
    rows = []
    for own in overlap.columns:
        for codes in itertools.product(*(range(overlap.sizes[name]) for name in own)):
            want = dict(zip(own, codes, strict=True))
            rows.append(
                [
                    float(all(cell[names.index(n)] == v for n, v in want.items()))
                    for cell in cells
                ]
            )
    return np.array(rows)


def stacked(tables: list[Floats]) -> Floats:
    return np.concatenate([table.ravel() for table in tables])


def projection(overlap: Overlap) -> Floats:
    """Weighted least squares over everything that a joint table can look like."""
    design = joined(overlap)
    weights = np.concatenate(
        [
            np.full(math.prod(overlap.sizes[n] for n in own), 1 / noise)
            for own, noise in zip(overlap.columns, overlap.noise, strict=True)
        ]
    )
    scaled = weights[:, None] * design
    found: Floats = design @ np.linalg.pinv(scaled) * weights
    return found


def noisy_tables(overlap: Overlap, seed: int, lift: float = 0.0) -> list[Floats]:
    rng = np.random.default_rng(seed)
    return [
        lift + rng.normal(0, noise, [overlap.sizes[name] for name in own])
        for own, noise in zip(overlap.columns, overlap.noise, strict=True)
    ]


@pytest.mark.parametrize("which", OVERLAPS)
def test_equal_sums_are_those_of_weighted_least_squares(which: str) -> None:
    overlap = overlap_of(which)
    tables = noisy_tables(overlap, seed=1)
    expected = projection(overlap) @ stacked(tables)
    assert stacked(overlap.agreeing(tables)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("which", OVERLAPS)
def test_tables_agree(which: str) -> None:
    overlap = overlap_of(which)
    for seed in range(10):
        fitted = overlap.agreeing(noisy_tables(overlap, seed))
        total = fitted[0].sum()
        for own, table in zip(overlap.columns, fitted, strict=True):
            assert table.sum() == pytest.approx(total, abs=1e-6)
            for name in own:
                for other, second in zip(overlap.columns, fitted, strict=True):
                    if name in other:
                        one = table.sum(
                            axis=tuple(a for a, n in enumerate(own) if n != name)
                        )
                        two = second.sum(
                            axis=tuple(a for a, n in enumerate(other) if n != name)
                        )
                        assert one == pytest.approx(two, abs=1e-6)


def simulated(seed: int) -> tuple[Overlap, list[Floats], list[Floats]]:
    """Tables of 240 rows, most cells empty: the fit to noisy ones, and the truth."""
    rng = np.random.default_rng(seed)
    sizes = {"a": 8, "b": 12, "c": 10}
    a = rng.choice(8, 240)
    b = (a + rng.choice(3, 240, p=[0.6, 0.3, 0.1])) % 12
    c = (2 * b + rng.choice(4, 240, p=[0.5, 0.3, 0.1, 0.1])) % 10
    columns = (("a", "b"), ("b", "c"), ("b",))
    truth = []
    for own in columns:
        table = np.zeros([sizes[name] for name in own])
        np.add.at(table, tuple({"a": a, "b": b, "c": c}[name] for name in own), 1)
        truth.append(table)
    scale = 2.0
    noisy = [table + rng.laplace(0, scale, table.shape) for table in truth]
    overlap = Overlap(columns, sizes, (scale * math.sqrt(2),) * 3)
    return overlap, overlap.agreeing(noisy), truth


def test_the_fit_is_nearer_to_the_truth_than_the_noisy_tables() -> None:
    squares = [
        np.mean((found - true) ** 2) / overlap.noise[0] ** 2
        for overlap, fitted, truth in map(simulated, range(30))
        for found, true in zip(fitted, truth, strict=True)
    ]
    assert 0.05 < np.mean(squares) < 0.95


def test_noise_of_nothing_keeps_what_is_there() -> None:
    overlap = Overlap((("a", "b"), ("b",)), {"a": 2, "b": 2}, (0.0, 0.0))
    table = np.array([[3.0, 0.0], [1.0, 7.0]])
    fitted = overlap.agreeing([table, table.sum(axis=0)])
    assert fitted[0] == pytest.approx(table)
    assert fitted[1] == pytest.approx(table.sum(axis=0))
