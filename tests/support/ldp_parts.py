"""A small table for the tests of local privacy, and what its reports must look like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.tabular import CategoricalColumn, NumericColumn, TableSchema
from langchain_dpicl.tabular.ldp.table import LDPTable

SCHEMA = TableSchema(
    label="income",
    columns=[
        CategoricalColumn(name="job", values=["clerk", "nurse", "smith"]),
        NumericColumn(name="age", kind="integer", lower=0, upper=100, bins=[25, 50]),
        CategoricalColumn(name="income", values=["low", "high"]),
    ],
)
SIZES = {"job": 3, "age": 3, "income": 2}
ROW = {"job": "nurse", "age": 70, "income": "high"}
CODES = (1, 2, 1)
MIXED = [
    ROW,
    {"job": "clerk", "age": 30, "income": "low"},
    {"job": "smith", "age": 10, "income": "low"},
    {"job": "nurse", "age": 55, "income": "high"},
]


def budget_of(ledger: Any = ":memory:", **terms: Any) -> PrivacyBudgetHandler:
    given = {"epsilon": 6, "delta": 1e-6, "queries": 1, **terms}
    return PrivacyBudgetHandler(ledger=ledger, **given)


def table_of(data: Any, schema: TableSchema = SCHEMA, **terms: Any) -> LDPTable:
    """Return a table that is not released yet; by default who takes part is public."""
    given = {"epsilon": 6.0, **terms}
    given.setdefault("budget", budget_of(epsilon=given["epsilon"] or 6))
    if "invited" not in given:
        given.setdefault("participation", "public")
    return LDPTable(data, schema, **given)


def joint_of(table: LDPTable) -> np.ndarray:
    """How often each whole row was reported."""
    joint = table._released.counts.joint
    assert joint is not None
    return joint


class Watched:
    """Rows that can be read twice, or once, and say when they are."""

    def __init__(self, rows: list[dict[str, Any]], seen: list[str]) -> None:
        self.rows, self.seen = rows, seen

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in self.rows:
            self.seen.append("read")
            yield row
