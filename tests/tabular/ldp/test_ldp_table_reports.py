"""Tables of clients' reports, files of tables, and forecasts: nothing is charged."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.ldp_parts import MIXED, SCHEMA, SIZES, budget_of, joint_of, table_of

from langchain_dpicl.errors import (
    InvalidParameterError,
    NoBudgetError,
)
from langchain_dpicl.mechanisms.random import SeededRandom
from langchain_dpicl.tabular.ldp.client import LDPClient
from langchain_dpicl.tabular.ldp.table import LDPTable

CLIENT = LDPClient(SCHEMA, epsilon=6, random=SeededRandom(21))
REPORTS = list(CLIENT.reports(MIXED * 200))
CANARY = "canary-7391"


def reported(reports: Any = REPORTS, **terms: Any) -> LDPTable:
    return LDPTable.from_reports(reports, SCHEMA, **{"epsilon": 6, **terms})


def test_the_record_of_reports_says_that_clients_randomized() -> None:
    table = reported()
    record = table.examples(4).record
    assert record["parameters"]["randomized_by"] == "clients"
    assert (record["charge"], record["account"]) == (None, None)
    assert record["unit"] == "one report"
    assert record["unit_key"] is None
    assert record["events"] == [
        {"kind": "pure", "epsilon": 6.0, "sampling_rate": 1.0, "count": 1}
    ]
    assert record["epsilon"] == 6.0
    assert table.n_reports == 800
    assert "released=True" in repr(table)
    assert "800" not in repr(table)


def test_who_reports_twice_pays_twice() -> None:
    record = reported(reports_per_unit=3).examples(2).record
    assert record["epsilon"] == 18.0
    assert record["events"] == [
        {"kind": "pure", "epsilon": 6.0, "sampling_rate": 1.0, "count": 3}
    ]
    assert "at most 3" in record["unit"]
    assert record["parameters"]["epsilon"] == 6.0


def test_reports_come_in_frames_and_streams_too() -> None:
    expected = joint_of(reported())
    for reports in (iter(REPORTS), pd.DataFrame(REPORTS)):
        assert np.array_equal(joint_of(reported(reports, chunk_size=99)), expected)
    sent = (json.loads(line) for line in map(json.dumps, REPORTS))
    assert np.array_equal(joint_of(reported(sent)), expected)


BAD_REPORTS = [
    ({"job": "nurse", "age": "below 25"}, "'income'"),
    ({**REPORTS[0], "job": CANARY}, "'job'"),
    ({**REPORTS[0], "age": 30}, "'age'"),
    ({**REPORTS[0], "age": [CANARY]}, "'age'"),
    ({**REPORTS[0], "income": None}, "'income'"),
    ({**REPORTS[0], CANARY: "x"}, "columns"),
    ([CANARY], "mapping"),
    (None, "mapping"),
]


@pytest.mark.parametrize(("report", "said"), BAD_REPORTS)
def test_a_malformed_report_is_refused_by_column(report: Any, said: str) -> None:
    with pytest.raises(InvalidParameterError, match=said) as caught:
        reported([*REPORTS, report])
    assert "Report 800" in str(caught.value)
    assert CANARY not in str(caught.value)


def test_malformed_reports_can_be_dropped_and_are_counted() -> None:
    bad = [report for report, _ in BAD_REPORTS]
    table = reported([*bad, *REPORTS, *bad], invalid="drop", chunk_size=7)
    assert np.array_equal(joint_of(table), joint_of(reported()))
    assert table.record()["parameters"]["n_dropped"] == 2 * len(bad)
    assert table.record()["parameters"]["n_reports"] == 800
    with pytest.raises(InvalidParameterError, match="8 were dropped"):
        reported(bad, invalid="drop")


@pytest.mark.parametrize(
    ("terms", "said"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": 5, "terms": CLIENT.terms}, "'epsilon'"),
        (
            {"split": {"job": 1.0, "age": 2.0, "income": 3.0}, "terms": CLIENT.terms},
            "'split'",
        ),
        ({"terms": {**CLIENT.terms, "schema": "0"}}, "'schema'"),
        ({"terms": {**CLIENT.terms, "epsilons": {"job": 6.0}}}, "'epsilons'"),
        ({"terms": {**CLIENT.terms, "epsilons": dict.fromkeys(SIZES, 1)}}, "epsilons"),
        ({"terms": "terms"}, "terms"),
        ({"invalid": "keep"}, "invalid"),
        ({"reports_per_unit": 0}, "reports_per_unit"),
        ({"reports": "below 25"}, "reports must be"),
        ({"reports": 7}, "reports must be"),
        ({"reports": []}, "no reports"),
    ],
)
def test_what_does_not_fit_the_reports_is_refused(terms: Any, said: str) -> None:
    with pytest.raises(InvalidParameterError, match=said):
        reported(**terms)


def test_terms_survive_json() -> None:
    terms = json.loads(json.dumps(CLIENT.terms))
    table = reported(terms=terms)
    assert table.n_reports == 800
    # These clients were seeded, and say so.
    assert "not private" in table.record()["random"]
    secure = LDPClient(SCHEMA, epsilon=6).terms
    assert "random" not in reported(terms=secure).record()


@pytest.mark.parametrize("epsilon", [0.1, 2.0, 9.0])
def test_a_forecast_is_what_equally_likely_rows_would_give(epsilon: float) -> None:
    found = table_of([], epsilon=epsilon, budget=budget_of(epsilon=9)).forecast(500)
    assert found.keys() == SIZES.keys()
    for name, size in SIZES.items():
        odds = math.exp(epsilon / 3)
        agree, other = ((odds - 1) / (odds + size - 1)), 1 / (odds + size - 1)
        # A report says a value with chance 1 / size, and its share is a line of that.
        variance = (1 / size) * (1 - 1 / size) / 500 / agree**2
        assert found[name] == pytest.approx(math.sqrt(variance))
        assert agree + size * other == pytest.approx(1)


def test_a_forecast_is_near_what_is_found() -> None:
    rows = [
        {"job": job, "age": age, "income": income}
        for job in ("clerk", "nurse", "smith")
        for age in (10, 30, 70)
        for income in ("low", "high")
    ]
    table = table_of(rows * 400, random=SeededRandom(8))
    expected = table.forecast(7200)
    said = table.release().record()["parameters"]["standard_errors"]
    assert said == pytest.approx(expected, rel=0.1)


def test_a_forecast_of_the_plan_needs_an_account() -> None:
    found = table_of([], epsilon=None, budget=budget_of(queries=2)).forecast(100)
    same = table_of([], epsilon=3.0, budget=budget_of(queries=2)).forecast(100)
    assert found == pytest.approx(same, rel=0.05)
    with pytest.raises(NoBudgetError):
        LDPTable([], SCHEMA).forecast(100)
    with pytest.raises(InvalidParameterError, match="n_rows"):
        table_of([]).forecast(0)
