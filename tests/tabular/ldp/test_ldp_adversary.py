"""Defects that an adversary found in locally private tables, and that stay mended."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from support.ldp_parts import MIXED, ROW, SCHEMA, budget_of, table_of

from langchain_dpicl.errors import DPError, InvalidParameterError
from langchain_dpicl.tabular.ldp.client import LDPClient
from langchain_dpicl.tabular.ldp.counts import ReportCounts
from langchain_dpicl.tabular.ldp.table import LDPTable
from langchain_dpicl.tabular.ldp.terms import require_same_terms
from langchain_dpicl.tabular.schema import CategoricalColumn
from langchain_dpicl.tabular.schema.table import TableSchema

HUGE = 10**400  # JSON has such integers; floats have not.


def unread() -> Iterator[Any]:
    raise AssertionError("Reports were read that come only once.")
    yield


@pytest.mark.parametrize(
    ("epsilon", "most"), [(3.0, 10**18), (3.0, HUGE), (1e299, 10), (1e300, 1)]
)
def test_costs_that_no_record_can_hold_are_refused_before_reports_are_read(
    epsilon: float, most: int
) -> None:
    with pytest.raises(InvalidParameterError):
        LDPTable.from_reports(unread(), SCHEMA, epsilon=epsilon, reports_per_unit=most)


@pytest.mark.parametrize("most", [1, 3, 7, 999_999])
def test_what_several_reports_cost_is_rounded_up(most: int) -> None:
    reports = [LDPClient(SCHEMA, epsilon=0.1).report(ROW)]
    table = LDPTable.from_reports(reports, SCHEMA, epsilon=0.1, reports_per_unit=most)
    claimed = Fraction(table.record()["epsilon"])
    assert 0 <= claimed - Fraction(0.1) * most < Fraction(1, 10**9)


def test_terms_of_clients_may_hold_any_integer() -> None:
    client = LDPClient(SCHEMA, epsilon=3)
    for part in (HUGE, -HUGE, 2.0, float("nan")):
        terms = {**client.terms, "epsilons": {**client.epsilons, "age": part}}
        with pytest.raises(InvalidParameterError, match="'epsilons'"):
            require_same_terms(client._terms, terms)


def test_rows_per_unit_has_a_largest_value() -> None:
    with pytest.raises(InvalidParameterError, match="rows_per_unit must be from 1"):
        table_of([{**ROW, "who": 1}], unit_key="who", rows_per_unit=HUGE)


def test_a_split_that_is_changed_later_changes_no_claim() -> None:
    split = {"job": 0.5, "age": 2.0, "income": 0.5}
    client = LDPClient(SCHEMA, epsilon=3, split=split)
    split.update(job=2.0, age=0.5)
    assert client.epsilons == {"job": 0.5, "age": 2.0, "income": 0.5}
    assert client.terms["epsilons"] == client._reporter._epsilons


def test_how_many_rows_of_a_unit_are_reported_is_said_to_be_public() -> None:
    rows = [{**row, "who": i % 3} for i, row in enumerate(MIXED)]
    table = table_of(rows, unit_key="who", rows_per_unit=2).release()
    assert table.n_reports == 4
    assert "how many rows of each unit" in table.record()["neighbors"]
    # Unless each unit reports once.
    assert table_of(rows, unit_key="who").release().n_reports == 3


class ForeignError(DPError):
    def __init__(self, column: str, place: int) -> None:
        super().__init__(f"{column} {place}")


def test_an_error_of_somebody_else_is_told_with_the_charge() -> None:
    def rows() -> Iterator[Any]:
        yield ROW
        raise ForeignError("job", 1)

    with pytest.raises(InvalidParameterError, match=r"job 1 Charge 1 .* was made"):
        table_of(rows(), budget=budget_of()).release()


WIDE = [2] * 7 + [1 << 17] + [2] * 7


def test_a_column_of_many_values_does_not_multiply_the_tables() -> None:
    counts = ReportCounts(WIDE, label=3)
    codes = np.random.default_rng(0).integers(0, 2, (50, len(WIDE)))
    codes[:, 7] *= (1 << 17) - 1
    counts.add(codes)
    assert sum(table.size for table in counts._pairs.values()) == 2 * sum(WIDE) - 4
    assert counts.pairs[7][1, -1] == (codes[:, 3] * codes[:, 7] > 0).sum()
    assert counts.pairs[4].sum() == 50


def test_a_client_does_not_report_what_nobody_can_count() -> None:
    columns = [
        CategoricalColumn(name=f"c{i}", values=list(range(1500))) for i in range(20)
    ]
    schema = TableSchema(label="c0", columns=columns)
    with pytest.raises(InvalidParameterError, match="tables of the label"):
        LDPClient(schema, epsilon=20)
