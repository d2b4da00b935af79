"""Tables of clients' reports, files of tables, and forecasts: nothing is charged."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.ldp_parts import MIXED, SCHEMA, SIZES, budget_of, joint_of, table_of

from langchain_dpicl.common import file_format
from langchain_dpicl.common.file_format import LDP_TABLE
from langchain_dpicl.errors import (
    InvalidParameterError,
    NoBudgetError,
)
from langchain_dpicl.mechanisms.source import SeededRandom
from langchain_dpicl.tabular.ldp.client import LDPClient
from langchain_dpicl.tabular.ldp.table import LDPTable
from langchain_dpicl.tabular.schema.table import TableSchema

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
    assert record["events"] == [{"kind": "pure", "epsilon": 6.0, "count": 1}]
    assert record["epsilon"] == 6.0
    assert table.n_reports == 800
    assert "released=True" in repr(table)
    assert "800" not in repr(table)


def test_who_reports_twice_pays_twice() -> None:
    record = reported(reports_per_unit=3).examples(2).record
    assert record["epsilon"] == 18.0
    assert record["events"] == [{"kind": "pure", "epsilon": 6.0, "count": 3}]
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
        ({"split": "domain", "terms": CLIENT.terms}, "'split'"),
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


@pytest.mark.parametrize("split", ["domain", {"job": 1.0, "age": 2.0, "income": 3.0}])
def test_a_file_holds_all_there_is(split: Any, tmp_path: Path) -> None:
    rows = [{**row, "who": i % 500} for i, row in enumerate(MIXED * 200)]
    table = table_of(rows, split=split, unit_key="who", rows_per_unit=2).release()
    path = tmp_path / "new" / "table.json"
    table.save(path)
    loaded = LDPTable.load(path, SCHEMA)
    assert np.array_equal(joint_of(loaded), joint_of(table))
    assert loaded.record() == table.record()
    assert loaded.epsilons == table.epsilons
    assert loaded.standard_errors() == table.standard_errors()
    assert loaded.summary() == table.summary()
    assert loaded.schema == SCHEMA
    assert len(LDPTable.load(path).examples(3)) == 3
    assert list(path.parent.iterdir()) == [path]


def test_reports_of_clients_are_saved_like_others(tmp_path: Path) -> None:
    table = reported(reports_per_unit=2)
    table.save(tmp_path / "table.json")
    assert LDPTable.load(tmp_path / "table.json").record() == table.record()


def test_a_file_is_not_replaced_unasked(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text("something else")
    with pytest.raises(InvalidParameterError, match="overwrite=True"):
        reported().save(path)
    assert path.read_text() == "something else"
    reported().save(path, overwrite=True)
    before = path.stat().st_ino
    LDPTable.load(path).save(path)
    assert path.stat().st_ino == before
    assert LDPTable.load(path).n_reports == 800
    with pytest.raises(InvalidParameterError, match="can't be written"):
        reported().save(path / "below", overwrite=True)


def test_another_schema_is_not_taken(tmp_path: Path) -> None:
    reported().save(tmp_path / "table.json")
    other = TableSchema(label="income", columns=SCHEMA.columns[1:])
    with pytest.raises(InvalidParameterError, match="another schema"):
        LDPTable.load(tmp_path / "table.json", other)


def less_epsilon(content: Any) -> None:
    content["record"]["epsilon"] = 1.0


def fewer_reports(content: Any) -> None:
    content["record"]["parameters"]["n_reports"] = 799


def other_terms(content: Any) -> None:
    content["terms"]["split"] = "domain"


def other_epsilon(content: Any) -> None:
    content["terms"]["epsilon"] = 7.0


def no_terms(content: Any) -> None:
    content["terms"] = {}


def other_schema(content: Any) -> None:
    content["schema"]["columns"][0]["values"] = ["clerk", "nurse", "baker"]


def no_schema(content: Any) -> None:
    content["schema"] = {"label": "income"}


def odd_schema(content: Any) -> None:
    content["schema"]["self"] = content["schema"]["rows"] = 1


def negative_counts(content: Any) -> None:
    content["counts"]["joint"][0] *= -1


def more_counts(content: Any) -> None:
    content["counts"]["joint"][0] += 1


def fractions(content: Any) -> None:
    content["counts"]["joint"][:2] = [count / 2 for count in (1, 3)]


def no_counts(content: Any) -> None:
    del content["counts"]["joint"]


@pytest.mark.parametrize(
    "change",
    [
        less_epsilon,
        fewer_reports,
        other_terms,
        other_epsilon,
        no_terms,
        other_schema,
        no_schema,
        odd_schema,
        negative_counts,
        more_counts,
        fractions,
        no_counts,
    ],
)
def test_a_file_that_contradicts_itself_is_refused(change: Any, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    reported().save(path)
    # As a careful forger makes it: the digest fits what it says.
    content = file_format.read(path, LDP_TABLE)
    change(content)
    file_format.write(path, content, LDP_TABLE, overwrite=True)
    with pytest.raises(InvalidParameterError, match="Load a good copy"):
        LDPTable.load(path)


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
