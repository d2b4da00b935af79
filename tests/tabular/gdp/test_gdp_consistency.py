"""Tables made to agree, against least squares by a dense matrix, with sets and without.

Columns are a, b, c; s and t hold sets. A joint table has every row's values: each way
of choosing values of a set is a value of its own there.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from langchain_dpicl.tabular import CategoricalColumn, TableSchema
from langchain_dpicl.tabular.gdp.consistency import Overlap
from langchain_dpicl.tabular.gdp.terms import MeasuredTable

Floats = NDArray[np.float64]

SIZES = {"a": 3, "b": 4, "c": 2, "s": 3, "t": 2}
SETS = ("s", "t")
SCHEMA = TableSchema(
    label="a",
    columns=[
        CategoricalColumn(
            name=name,
            values=list(map(str, range(size))),
            max_items=size if name in SETS else None,
        )
        for name, size in SIZES.items()
    ],
)
Names = Sequence[tuple[str, ...]]
OVERLAPS: dict[str, tuple[Names, tuple[float, ...]]] = {
    "a chain": ((("a", "b"), ("b", "c")), (1.0, 2.5)),
    "turned": ((("b", "a"), ("b", "c")), (1.0, 2.5)),
    "a circle": ((("a", "b"), ("b", "c"), ("a", "c")), (1.0, 2.0, 0.5)),
    "columns too": ((("a", "b"), ("b",), ("c",)), (2.0, 1.0, 3.0)),
    "apart": ((("a", "b"), ("c",)), (1.0, 1.0)),
    "alone": ((("a", "b"),), (1.5,)),
    "a set and its people": ((("a", "s"), ("a",), ("s",)), (1.0, 1.0, 0.5)),
    "a set by two columns": ((("a", "s"), ("s", "b"), ("a", "b")), (1.0, 2.0, 1.0)),
    "two sets": ((("s", "t"), ("s",), ("a", "t")), (1.0, 1.0, 2.0)),
}


def overlap_of(which: str) -> Overlap:
    columns, noise = OVERLAPS[which]
    return Overlap(tuple(MeasuredTable.of(SCHEMA, own) for own in columns), noise)


def held(name: str) -> list[tuple[int, ...]]:
    """Return what one cell of a column may hold."""
    codes = range(SIZES[name])
    if name not in SETS:
        return [(code,) for code in codes]
    return [
        own for k in range(len(codes) + 1) for own in itertools.combinations(codes, k)
    ]


def design(overlap: Overlap) -> Floats:
    """Return the matrix from all possible rows to all tables' cells, stacked."""
    names = sorted({name for table in overlap.tables for name in table.columns})
    kinds = [
        dict(zip(names, own, strict=True))
        for own in itertools.product(*map(held, names))
    ]
    cells = []
    for table in overlap.tables:
        for codes in np.ndindex(table.shape):
            want = dict(zip(table.columns, codes, strict=True))
            cells.append(
                [float(all(v in kind[n] for n, v in want.items())) for kind in kinds]
            )
    return np.array(cells)


def projection(overlap: Overlap) -> Floats:
    """Weighted least squares over everything that rows can look like."""
    matrix = design(overlap)
    noise = zip(overlap.tables, overlap.noise, strict=True)
    weights = np.concatenate([np.full(table.size, 1 / sigma) for table, sigma in noise])
    scaled = weights[:, None] * matrix
    found: Floats = matrix @ np.linalg.pinv(scaled) * weights
    return found


def noisy_tables(overlap: Overlap, seed: int) -> list[Floats]:
    rng = np.random.default_rng(seed)
    return [
        rng.normal(0, noise, table.shape)
        for table, noise in zip(overlap.tables, overlap.noise, strict=True)
    ]


def stacked(tables: list[Floats]) -> Floats:
    return np.concatenate([table.ravel() for table in tables])


@pytest.mark.parametrize("which", OVERLAPS)
def test_equal_sums_are_those_of_weighted_least_squares(which: str) -> None:
    overlap = overlap_of(which)
    tables = noisy_tables(overlap, seed=1)
    expected = projection(overlap) @ stacked(tables)
    assert stacked(overlap.agreeing(tables)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("which", OVERLAPS)
def test_the_error_in_closed_form_is_that_of_the_fit(which: str) -> None:
    overlap = overlap_of(which)
    fit = projection(overlap)
    noise = np.concatenate(
        [
            np.full(table.size, sigma)
            for table, sigma in zip(overlap.tables, overlap.noise, strict=True)
        ]
    )
    start = 0
    for place, table in enumerate(overlap.tables):
        rows = fit[start : start + table.size] * noise
        start += table.size
        for count in range(len(table.columns) + 1):
            for columns in itertools.combinations(table.columns, count):
                if not table.tells(columns):
                    continue
                others = tuple(
                    axis for axis, n in enumerate(table.columns) if n not in columns
                )
                sums = rows.reshape(*table.shape, -1).sum(axis=others)
                errors = np.sqrt((sums**2).sum(axis=-1))
                found = overlap.error(place, columns)
                assert errors == pytest.approx(np.full(errors.shape, found))


def test_twin_a_sum_over_a_set_taken_for_the_number_of_people() -> None:
    """Five people, of whom each has two of three values: the truth is bent."""
    truth = [np.array([[5.0, 5, 0], [0, 0, 0], [0, 0, 0]]), np.array([5.0, 0, 0])]
    overlap = overlap_of("a set and its people")
    tables = [*truth, truth[0].sum(axis=0)]
    for found, true in zip(overlap.agreeing(tables), tables, strict=True):
        assert found == pytest.approx(true)
    plain = TableSchema(
        label="a",
        columns=[
            column.model_copy(update={"max_items": None}) for column in SCHEMA.columns
        ],
    )
    names, noise = OVERLAPS["a set and its people"]
    broken = Overlap(tuple(MeasuredTable.of(plain, own) for own in names), noise)
    assert abs(broken.agreeing(tables)[1][0] - 5) > 1
