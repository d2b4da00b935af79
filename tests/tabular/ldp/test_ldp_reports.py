"""Tables of clients' reports, and forecasts: nothing is charged."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from support.ldp_parts import MIXED, SCHEMA, SIZES, table_of

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import seeded
from langchain_dpicl.tabular import LDPClient, LDPTable

CLIENT = LDPClient(SCHEMA, epsilon=6)
REPORTS = list(CLIENT.reports(MIXED * 200))
CANARY = "canary-7391"
HUGE = 10**400  # JSON has such integers; floats have not.


def reported(reports: Any = REPORTS, **terms: Any) -> LDPTable:
    return LDPTable.from_reports(reports, SCHEMA, **{"epsilon": 6, **terms})


def test_the_record_of_reports_says_that_clients_randomized() -> None:
    table = reported(json.loads(line) for line in map(json.dumps, REPORTS))
    record = table.examples(4).record
    assert record["parameters"]["randomized_by"] == "clients"
    assert (record["charge"], record["account"]) == (None, None)
    assert (record["unit"], record["unit_key"]) == ("one report", None)
    assert "not that it was made" in record["neighbors"]
    assert record["events"] == [
        {"kind": "pure", "epsilon": 6.0, "sampling_rate": 1.0, "count": 1}
    ]
    assert record["epsilon"] == 6.0
    assert table.n_reports == 800
    assert "released=True" in repr(table)
    assert "800" not in repr(table)


@pytest.mark.parametrize("most", [3, 999_999])
def test_who_reports_often_pays_as_often_and_the_claim_is_rounded_up(most: int) -> None:
    record = reported(reports_per_unit=most, epsilon=0.1).examples(2).record
    assert record["events"][0]["count"] == most
    assert 0.1 * most <= record["epsilon"] <= 0.1 * most * (1 + 1e-15)
    assert f"at most {most}" in record["unit"]
    assert record["parameters"]["epsilon"] == 0.1


def unread() -> Iterator[Any]:
    raise AssertionError("Reports were read that come only once.")
    yield


@pytest.mark.parametrize(("epsilon", "most"), [(3.0, HUGE), (1e299, 100), (1e301, 1)])
def test_costs_that_no_record_can_hold_are_refused_before_reports_are_read(
    epsilon: float, most: int
) -> None:
    with pytest.raises(InvalidParameterError):
        reported(unread(), epsilon=epsilon, reports_per_unit=most)


BAD_REPORTS = [
    ({"job": "nurse", "age": "below 25"}, "'income'"),
    ({**REPORTS[0], "job": CANARY}, "'job'"),
    ({**REPORTS[0], "age": [CANARY]}, "'age'"),
    ({**REPORTS[0], CANARY: "x"}, "columns"),
    ([CANARY], "mapping"),
]


@pytest.mark.parametrize(("report", "problem"), BAD_REPORTS)
def test_a_malformed_report_is_refused_by_column(report: Any, problem: str) -> None:
    with pytest.raises(InvalidParameterError, match=problem) as caught:
        reported([*REPORTS, report])
    assert "Report 800" in str(caught.value)
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    ("terms", "problem"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": 5, "terms": CLIENT.terms}, "'epsilon'"),
        (
            {"split": {"job": 1.0, "age": 2.0, "income": 3.0}, "terms": CLIENT.terms},
            "'split'",
        ),
        ({"terms": {**CLIENT.terms, "schema": "0"}}, "'schema'"),
        (
            {"terms": {**CLIENT.terms, "epsilons": dict.fromkeys(SIZES, HUGE)}},
            "epsilons",
        ),
        ({"terms": "terms"}, "terms"),
        ({"reports_per_unit": 0}, "reports_per_unit"),
        ({"reports": "below 25"}, "reports are a"),
        ({"reports": 7}, "reports are a"),
        ({"reports": []}, "no reports"),
    ],
)
def test_what_does_not_fit_the_reports_is_refused(terms: Any, problem: str) -> None:
    with pytest.raises(InvalidParameterError, match=problem):
        reported(**terms)


def test_terms_survive_json_and_tell_of_seeds() -> None:
    terms = json.loads(json.dumps(CLIENT.terms))
    assert "random" not in reported(terms=terms).record()
    with seeded(1):
        terms = CLIENT.terms
    assert "not private" in reported(terms=terms).record()["random"]


# -- forecasts -------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.1, 9.0])
def test_a_forecast_is_what_equally_likely_rows_would_give(epsilon: float) -> None:
    found = table_of([], epsilon=epsilon).forecast(500)
    assert found.keys() == SIZES.keys()
    for name, size in SIZES.items():
        odds = math.exp(epsilon / 3)
        agree = (odds - 1) / (odds + size - 1)
        # A report says a value with chance 1 / size, and its share is a line of that.
        variance = (1 / size) * (1 - 1 / size) / 500 / agree**2
        assert found[name] == pytest.approx(math.sqrt(variance))
