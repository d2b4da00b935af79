"""Reports of one row at a time and of many: their distribution, and what is in them."""

from __future__ import annotations

import json
import pickle
import traceback
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.ldp_parts import MIXED, ROW, SCHEMA, SIZES

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.tabular.ldp.client import LDPClient
from langchain_dpicl.tabular.schema import NumericColumn
from langchain_dpicl.tabular.schema.table import TableSchema

EVEN = {"job": 1.0, "age": 1.0, "income": 1.0}
CANARY = "canary-7391"


def client_of(**terms: Any) -> LDPClient:
    return LDPClient(SCHEMA, **{"epsilon": 3.0, "random": SeededRandom(7), **terms})


def test_a_report_is_the_same_whatever_container_the_row_came_in() -> None:
    frame = pd.DataFrame(MIXED)
    expected = list(client_of().reports(MIXED))
    assert list(client_of().reports(frame)) == expected
    assert list(client_of().reports(iter(MIXED))) == expected


def test_reports_are_made_as_they_are_asked_for() -> None:
    def endless() -> Any:
        while True:
            yield ROW

    reports = client_of().reports(endless(), chunk_size=10)
    assert {len(next(reports)) for _ in range(25)} == {3}


def test_a_report_holds_values_of_the_schema_and_survives_json() -> None:
    odd = {"job": "nurse", "age": 71.0, "income": "high"}
    report = client_of(epsilon=3e5).report(odd)
    # At such an epsilon the truth: it says the bin, not the number.
    assert report == {"job": "nurse", "age": "50 or more", "income": "high"}
    assert json.loads(json.dumps(report)) == report


def test_terms_are_public_and_json() -> None:
    client = LDPClient(SCHEMA, epsilon=3)
    terms = json.loads(json.dumps(client.terms))
    assert terms["schema"] == SCHEMA.fingerprint()
    assert terms["epsilons"] == EVEN == client.epsilons
    assert (terms["epsilon"], terms["split"], terms["random"]) == (
        3.0,
        "even",
        "secure",
    )
    assert "NOT SECURE" in client_of().terms["random"]
    assert "NOT SECURE" in repr(client_of())
    assert "NOT SECURE" not in repr(client)


def test_a_client_can_be_shipped() -> None:
    client = pickle.loads(pickle.dumps(LDPClient(SCHEMA, epsilon=3e5)))
    assert client.report(ROW)["job"] == "nurse"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"job": "nurse", "income": "low"}, "'age'"),
        ({**ROW, "town": CANARY}, "'town'"),
        ({**ROW, "job": CANARY}, "job"),
        ({**ROW, "job": None}, "job"),
        ({**ROW, "age": CANARY}, "age"),
        ({**ROW, "age": float("nan")}, "age"),
        ([CANARY], "mapping"),
    ],
)
def test_rows_that_do_not_fit_are_refused_without_a_value(row: Any, said: str) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        client_of().report(row)
    assert said in str(caught.value)
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
        with pytest.raises(InvalidParameterError, match=said) as caught:
            list(client_of().reports([ROW, row]))
        assert CANARY not in str(caught.value)


def test_extra_columns_can_be_left_out() -> None:
    client = client_of(extra_columns="ignore")
    assert list(client.report({**ROW, "town": "Ash"})) == list(SIZES)
    assert len(list(client.reports([{**ROW, "town": "Ash"}]))) == 1


def test_out_of_bounds_counts_as_the_outermost_bin() -> None:
    client = client_of(epsilon=3e5)
    assert client.report({**ROW, "age": 10**9})["age"] == "50 or more"
    assert client.report({**ROW, "age": -5})["age"] == "below 25"


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": 1e-12}, "'job'"),
        ({"split": {"job": 1.0, "age": 2.0}}, "'income'"),
        ({"split": {"job": 1.0, "age": 1.0, "income": 2.0}}, "sums to 4"),
        ({"extra_columns": "keep"}, "extra_columns"),
        ({"random": np.random.default_rng(0)}, "SecureRandom"),
    ],
)
def test_terms_that_do_not_fit_are_refused(terms: Any, said: str) -> None:
    with pytest.raises(InvalidParameterError, match=said):
        client_of(**terms)


def test_a_column_without_bins_is_refused_by_name() -> None:
    plain = NumericColumn(name="weight", kind="number", lower=0, upper=300)
    schema = TableSchema(label="income", columns=[*SCHEMA.columns, plain])
    with pytest.raises(InvalidParameterError, match=r"'weight'.*bins="):
        LDPClient(schema, epsilon=3)
    with pytest.raises(InvalidParameterError, match="TableSchema"):
        LDPClient({"age": int}, epsilon=3)  # type: ignore[arg-type]
