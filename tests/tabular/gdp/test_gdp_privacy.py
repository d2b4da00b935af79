"""No unit costs more than epsilon, and the defects of other code would be noticed.

The loss between a table and its neighbor is computed exactly from what a release hands
to its noise and from the noise's scales (`table_parts.Measured`), through all of the
real code: reading, capping, clipping, grouping, tallying, splitting epsilon. Each twin
puts a known defect back in; the same computation must then pass epsilon.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.table_parts import JOBS, account, measured, people, people_schema

from langchain_dpicl.accounting import Pure
from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.tabular import (
    CategoricalColumn,
    NumericColumn,
    TableSchema,
)
from langchain_dpicl.tabular.gdp import release

EPSILON = 4.0
AGES = (-(10**9), 20, 50, 80, 10**12)
PAYS = (-np.inf, -1e300, -1.5, 3.5, 8.5, 1e300, np.inf)

Row = dict[str, Any]

rows = st.fixed_dictionaries(
    {
        "age": st.sampled_from(AGES),
        "pay": st.sampled_from(PAYS),
        "job": st.sampled_from(JOBS),
        "ill": st.sampled_from(["0", "1"]),
    }
)


def with_ids(table: Sequence[Row], first: str = "p") -> list[Row]:
    return [{**row, "who": f"{first}{place % 9}"} for place, row in enumerate(table)]


def loss(
    newcomer: Sequence[Row],
    *,
    table: Sequence[Row] = (),
    schema: Callable[[Sequence[Row]], TableSchema] = lambda _: people_schema(),
    **terms: Any,
) -> float:
    """Return the loss between a table and the same one with somebody more in it."""
    before = list(table or people(40))
    after = [*before, *newcomer]
    if "unit_key" in terms:
        before = with_ids(before)
        after = [*before, *({**row, "who": "newcomer"} for row in newcomer)]
    # The same coins for everybody else in both worlds; the noise does not matter here.
    without, within = (
        measured(
            rows,
            schema(rows),
            account(EPSILON * 2),
            epsilon=EPSILON,
            random=SeededRandom(5),
            **terms,
        )[0]
        for rows in (before, after)
    )
    return without.loss_beside(within)


WORST: list[Row] = [
    {"age": 10**12, "pay": np.inf, "job": "nurse", "ill": "1"},
    {"age": -(10**9), "pay": -np.inf, "job": "diver", "ill": "0"},
    {"age": 80, "pay": -1.5, "job": "diver", "ill": "0"},
]

WAYS: dict[str, dict[str, Any]] = {
    "label": {},
    "one group": {"group_by": []},
    "two columns": {"group_by": ["job", "age"]},
    "bins": {"numeric": "bins"},
    "sampled": {"sampling_rate": 0.999999},
}


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(row=rows)
def test_no_row_costs_more_than_epsilon(way: str, row: Row) -> None:
    assert loss([row], **WAYS[way]) <= EPSILON * (1 + 1e-9)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(newcomer=st.lists(rows, min_size=1, max_size=6), cap=st.integers(1, 4))
def test_no_unit_costs_more_than_epsilon(newcomer: list[Row], cap: int) -> None:
    spent = loss(newcomer, unit_key="who", rows_per_unit=cap)
    assert spent <= EPSILON * (1 + 1e-9)


def worst(**terms: Any) -> float:
    """Return the largest loss of a few rows that are made to be seen."""
    if "unit_key" in terms:
        return max(loss([row] * 5, **terms) for row in WORST)
    return max(loss([row], **terms) for row in WORST)


@pytest.mark.parametrize("way", ["label", "one group", "two columns"])
def test_the_bound_is_reached(way: str) -> None:
    """Else a much worse release than needed would pass as a private one."""
    assert worst(**WAYS[way]) == pytest.approx(EPSILON, rel=1e-4)


def test_the_bound_is_reached_by_a_unit_of_several_rows() -> None:
    spent = worst(unit_key="who", rows_per_unit=3)
    assert spent == pytest.approx(EPSILON, rel=1e-4)


def test_a_row_that_the_sample_leaves_out_costs_nothing() -> None:
    assert worst(sampling_rate=1e-9) == 0


def patched_terms(monkeypatch: pytest.MonkeyPatch, **change: Any) -> None:
    """Hand other terms to the noise than the release means to."""
    noisy = release.noisy_tallies

    def broken(tallies: Any, paid: Any, **given: Any) -> Any:
        terms = {"paid": paid, **given}
        made = {name: how(terms[name]) for name, how in change.items()}
        return noisy(tallies, **{**terms, **made})

    monkeypatch.setattr(release, "noisy_tallies", broken)


def test_twin_bounds_of_other_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    patched_terms(monkeypatch, bounds=lambda bounds: [*bounds[1:], bounds[0]])
    assert worst() > 2 * EPSILON


def test_twin_a_unit_of_several_rows_counts_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patched_terms(monkeypatch, rows_per_unit=lambda _: 1)
    assert worst(unit_key="who", rows_per_unit=3) > 2 * EPSILON


def test_twin_epsilon_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    patched_terms(monkeypatch, paid=lambda _: Pure(epsilon=3 * EPSILON))
    assert worst() > 2 * EPSILON


def test_twin_no_clipping(monkeypatch: pytest.MonkeyPatch) -> None:
    def unclipped(self: NumericColumn, values: Any) -> Any:
        finite = np.nan_to_num(np.array(values, dtype=float), posinf=1e6, neginf=-1e6)
        middle = (self.upper + self.lower) / 2
        half = (self.upper - self.lower) / 2
        return np.rint((finite - middle) / half * self.bound).astype(np.int64)

    monkeypatch.setattr(NumericColumn, "grid", unclipped)
    assert worst() > 2 * EPSILON


def test_twin_sums_that_are_not_centered(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = NumericColumn.grid

    def unshifted(self: NumericColumn, values: Any) -> Any:
        middle = (self.upper + self.lower) / 2
        steps = 2 * self.bound / (self.upper - self.lower)
        return grid(self, values) + round(middle * steps)

    monkeypatch.setattr(NumericColumn, "grid", unshifted)
    assert worst() > 1.2 * EPSILON


def test_twin_categories_out_of_the_table() -> None:
    def found(table: Sequence[Row]) -> TableSchema:
        jobs = sorted({row["job"] for row in table})
        return people_schema(job=CategoricalColumn(name="job", values=jobs))

    clerks = [
        {**row, "job": "clerk" if place % 2 else "nurse"}
        for place, row in enumerate(people(40))
    ]
    diver = {"age": 30, "pay": 1.0, "job": "diver", "ill": "0"}
    assert loss([diver], table=clerks) <= EPSILON * (1 + 1e-9)
    assert loss([diver], table=clerks, schema=found) == float("inf")


def test_twin_thresholds_out_of_the_table() -> None:
    def found(table: Sequence[Row]) -> TableSchema:
        middle = statistics.median_high(row["age"] for row in table)
        age = NumericColumn(
            name="age", kind="integer", lower=20, upper=80, bins=[middle]
        )
        return people_schema(age=age)

    halves = [
        {"age": 30 if place < 20 else 60, "pay": 1.0, "job": "clerk", "ill": "0"}
        for place in range(40)
    ]
    # With two young ones more the median falls, and twenty others change their bin.
    young = [{"age": 21, "pay": 1.0, "job": "clerk", "ill": "0"}] * 3
    ways: dict[str, Any] = {"unit_key": "who", "rows_per_unit": 3, "numeric": "bins"}
    assert loss(young, table=halves, **ways) <= EPSILON * (1 + 1e-9)
    assert loss(young, table=halves, schema=found, **ways) > EPSILON


def test_a_loss_of_fewer_rows_is_in_proportion() -> None:
    """One row of a unit that may have three costs a third."""
    one = loss(WORST[:1], unit_key="who", rows_per_unit=3)
    assert one == pytest.approx(EPSILON / 3, rel=1e-4)
