"""Counts of parts of reports add up to those of all of them."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.table_parts import CANARY, people, people_schema

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular import (
    GDPTable,
    LDPClient,
    LDPTable,
    ReportTally,
    merge,
    tally,
    tally_reports,
)

SCHEMA = people_schema()
CLIENT = LDPClient(SCHEMA, epsilon=4.0)
REPORTS = list(CLIENT.reports(people(120)))


def counted(reports: Any, **terms: Any) -> ReportTally:
    return tally_reports(reports, SCHEMA, **{"epsilon": 4.0, **terms})


@settings(deadline=None, max_examples=25)
@given(places=st.lists(st.integers(0, 5), min_size=120, max_size=120))
def test_however_reports_are_split_the_table_is_the_same(places: list[int]) -> None:
    parts = [
        [report for report, place in zip(REPORTS, places, strict=True) if place == part]
        for part in range(6)
    ]
    tallies = [counted(part) for part in parts]
    carried = [ReportTally.from_bytes(one.to_bytes()) for one in tallies[2:]]
    nested = [pickle.loads(pickle.dumps(merge(tallies[:2]))), *carried]
    own = LDPTable.from_reports(REPORTS, SCHEMA, epsilon=4.0)
    found = LDPTable.from_tallies(nested, SCHEMA, epsilon=4.0)
    assert found.standard_errors() == own.standard_errors()
    assert found.record()["parameters"] == own.record()["parameters"]
    assert found.record()["epsilon"] == 4.0


def test_what_was_dropped_is_added_up() -> None:
    bad = [{"job": CANARY}]
    parts = [[*REPORTS[:60], *bad], bad, REPORTS[60:]]
    tallies = [counted(part, invalid="drop") for part in parts]
    table = LDPTable.from_tallies(tallies, SCHEMA, epsilon=4.0, terms=CLIENT.terms)
    assert table.record()["parameters"]["n_dropped"] == 2
    assert table.n_reports == 120
    with pytest.raises(InvalidParameterError, match="Report 60 ") as caught:
        counted(parts[0])
    assert CANARY not in str(caught.value)


def changed(**fields: Any) -> bytes:
    content = json.loads(counted(REPORTS).to_bytes())
    return json.dumps({**content, **fields}).encode()


REFUSED = {
    "nothing": lambda: LDPTable.from_tallies([], SCHEMA, epsilon=4.0),
    "no reports": lambda: LDPTable.from_tallies([counted([])], SCHEMA, epsilon=4.0),
    "twice": lambda: merge([counted(REPORTS)] * 2),
    "other epsilons": lambda: merge([counted(REPORTS), counted(REPORTS, epsilon=2.0)]),
    "another epsilon": lambda: LDPTable.from_tallies(
        [counted(REPORTS)], SCHEMA, epsilon=1.0
    ),
    "another split": lambda: LDPTable.from_tallies(
        [counted(REPORTS)], SCHEMA, epsilon=4.0, split="domain"
    ),
    "rows": lambda: LDPTable.from_tallies(
        [tally(people(5), SCHEMA, GDPTable.tally_key(SCHEMA))], SCHEMA, epsilon=4.0
    ),
    "reports": lambda: GDPTable.from_tallies([counted(REPORTS)], SCHEMA),
    "both": lambda: merge([counted([]), tally([], SCHEMA, GDPTable.tally_key(SCHEMA))]),
    "no tally": lambda: ReportTally.from_bytes(b"{}"),
    "cut off": lambda: ReportTally.from_bytes(counted(REPORTS).to_bytes()[:-9]),
    "counts": lambda: ReportTally.from_bytes(changed(counts={"n": 3})),
    "how": lambda: counted(REPORTS, invalid="keep"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    with pytest.raises(InvalidParameterError):
        REFUSED[name]()


def test_tallies_of_other_reports_may_be_the_same() -> None:
    assert merge([counted(REPORTS), counted(REPORTS)]).counts.n == 240
