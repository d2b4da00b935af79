"""Tables, their forecasts and chunks, asked with numbers that nobody means."""

from __future__ import annotations

from typing import Any

import pytest
from support.extremes import sweep
from support.table_parts import JOBS, account, people, people_schema

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    LDPClient,
    LDPTable,
    NumericColumn,
    TableSchema,
)

SCHEMA = TableSchema(
    label="ill",
    columns=[
        CategoricalColumn(name="job", values=JOBS),
        CategoricalColumn(name="ill", values=["0", "1"]),
    ],
)
ROWS = [{name: row[name] for name in ("job", "ill")} for row in people(40)]
LARGEST = 2**63 - 1


def test_forecasts_of_reports() -> None:
    def errors(n_rows: int, epsilon: float = 2.0) -> dict[str, float]:
        return LDPTable(ROWS, SCHEMA, epsilon=epsilon, invited=9).forecast(n_rows)

    sweep(errors, {"n_rows": 100, "epsilon": 1.0})
    assert errors(LARGEST)
    for n_rows in (10**29, 2**63):
        with pytest.raises(InvalidParameterError, match="n_rows"):
            errors(n_rows)


def test_forecasts_of_statistics() -> None:
    def advice(n_rows: int) -> str:
        table = GDPTable(people(9), people_schema(), budget=account())
        return str(table.forecast(n_rows))

    sweep(advice, {"n_rows": 100})
    assert advice(LARGEST)
    with pytest.raises(InvalidParameterError, match="n_rows"):
        advice(10**29)


def test_terms_of_statistics() -> None:
    rows = [{**row, "who": number // 2} for number, row in enumerate(people(40))]
    sweep(
        lambda **terms: GDPTable(
            rows,
            people_schema(),
            unit_key="who",
            budget=account(),
            **terms,
        ).release(),
        {"rows_per_unit": 2, "epsilon": 2.0},
    )


def test_terms_of_reports() -> None:
    good = {"epsilon": 2.0, "rows_per_unit": 1, "invited": 50}
    sweep(lambda **terms: LDPTable(ROWS, SCHEMA, **terms), good)
    sweep(lambda epsilon: LDPClient(SCHEMA, epsilon=epsilon), {"epsilon": 2.0})


@pytest.mark.parametrize("kind", ["number", "integer"])
def test_columns(kind: Any) -> None:
    def column(lower: float, upper: float, edge: float, bins: Any = None) -> None:
        edges = [edge] if bins is None else bins
        NumericColumn(name="x", kind=kind, lower=lower, upper=upper, bins=edges)

    sweep(column, {"lower": 0, "upper": 10, "edge": 5})
    sweep(lambda bins: column(0, 10, 5, bins), {"bins": 5})
    sweep(
        lambda value: CategoricalColumn(name="x", values=["a", value]), {"value": "b"}
    )
    sweep(
        lambda values: CategoricalColumn(name="x", values=values),
        {"values": ["a", "b"]},
    )
