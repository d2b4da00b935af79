"""Reports of one row at a time and of many, and what is in them."""

from __future__ import annotations

import json
import traceback
from collections import Counter
from typing import Any

import pytest
from scipy.stats import chisquare
from support.ldp_parts import ROW, SCHEMA

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import seeded
from langchain_dpicl.tabular import (
    CategoricalColumn,
    LDPClient,
    NumericColumn,
    TableSchema,
)

CANARY = "canary-7391"


@pytest.mark.parametrize(
    ("age", "shown"), [(71.0, "50 or more"), (10**9, "50 or more"), (-5, "below 25")]
)
def test_a_report_holds_values_of_the_schema(age: float, shown: str) -> None:
    # At such an epsilon the truth: it says the bin, not the number.
    report = LDPClient(SCHEMA, epsilon=3e5).report({**ROW, "age": age})
    assert report == {"job": "nurse", "age": shown, "income": "high"}
    assert json.loads(json.dumps(report)) == report


def test_terms_are_public_and_json() -> None:
    split = {"job": 0.5, "age": 2.0, "income": 0.5}
    client = LDPClient(SCHEMA, epsilon=3, split=split)
    # A split that is changed later changes no claim.
    split.update(job=2.0, age=0.5)
    terms = json.loads(json.dumps(client.terms))
    assert terms["schema"] == SCHEMA.fingerprint()
    assert terms["epsilons"] == {"job": 0.5, "age": 2.0, "income": 0.5}
    assert terms["epsilons"] == client.epsilons
    assert (terms["epsilon"], terms["random"]) == (3, "secure")
    with seeded(1):
        assert "NOT SECURE" in client.terms["random"]


def test_nobodys_report_is_uniform_in_every_column() -> None:
    client = LDPClient(SCHEMA, epsilon=8)
    cells = [tuple(client.null_report().values()) for _ in range(3600)]
    counts = Counter(cells)
    assert len(counts) == 18
    assert chisquare(list(counts.values())).pvalue > 1e-6
    # A report of somebody is not.
    told = Counter(tuple(client.report(ROW).values()) for _ in range(1000))
    assert chisquare([told[cell] for cell in counts]).pvalue < 1e-6


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"job": "nurse", "income": "low"}, "'age'"),
        ({**ROW, "town": CANARY}, "'town'"),
        ({**ROW, "job": CANARY}, "job"),
        ({**ROW, "age": float("nan")}, "age"),
        ([CANARY], "mapping"),
    ],
)
def test_rows_that_do_not_fit_are_refused_without_a_value(
    row: Any, problem: str
) -> None:
    client = LDPClient(SCHEMA, epsilon=3)
    with pytest.raises(InvalidParameterError) as caught:
        client.report(row)
    assert problem in str(caught.value)
    # Also where somebody prints what the library's frames hold.
    shown = traceback.TracebackException.from_exception(
        caught.value, capture_locals=True
    )
    ours = [f for f in shown.stack if "langchain_dpicl" in f.filename]
    assert ours
    assert CANARY not in str([f.locals for f in ours])
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None
    if isinstance(row, dict):
        with pytest.raises(InvalidParameterError, match=problem) as caught:
            list(client.reports([ROW, row]))
        assert CANARY not in str(caught.value)


PLAIN = NumericColumn(name="weight", kind="number", lower=0, upper=300)
WIDE = [CategoricalColumn(name=f"c{i}", values=list(range(1500))) for i in range(20)]


@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        ({"epsilon": 1e-12}, "'job'"),
        ({"schema": {"age": int}}, "TableSchema"),
        (
            {"schema": TableSchema(label="income", columns=[*SCHEMA.columns, PLAIN])},
            r"'weight'.*bins=",
        ),
        # What nobody can count is not reported and paid for.
        ({"schema": TableSchema(label="c0", columns=WIDE)}, "tables of the label"),
    ],
)
def test_terms_that_do_not_fit_are_refused(terms: Any, problem: str) -> None:
    with pytest.raises(InvalidParameterError, match=problem):
        LDPClient(**{"schema": SCHEMA, "epsilon": 3.0, **terms})
