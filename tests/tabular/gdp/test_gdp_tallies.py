"""Tallies of parts: they add up to the whole table."""

from __future__ import annotations

import pickle
import secrets
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.table_parts import CANARY, account, people, people_schema

from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    Tally,
    merge,
    tally,
)
from langchain_dpicl.tabular.gdp import tallies as module
from langchain_dpicl.tabular.gdp.tallies import count_rows

SKILLS = CategoricalColumn(name="skills", values=["a", "b", "c"], max_items=2)
SCHEMA = people_schema(skills=SKILLS)
KEY = secrets.token_bytes(32)
Rows = list[dict[str, Any]]


def patients(visits: Sequence[int]) -> Rows:
    """Return rows of patients, each with so many of them."""
    rows = iter(people(sum(visits)))
    return [
        {**next(rows), "patient": number, "skills": ["c", "b", "a"][: visit % 4]}
        for number, count in enumerate(visits)
        for visit in range(count)
    ]


def parts_of(rows: Rows, places: Sequence[int]) -> list[Rows]:
    """Partition rows by patient: patient i goes to part places[i]."""
    parts: list[Rows] = [[] for _ in range(max(places, default=0) + 1)]
    for row in rows:
        parts[places[row["patient"]]].append(row)
    return parts


def assert_same(one: Tally, other: Tally) -> None:
    for left, right in zip(one.exact, other.exact, strict=True):
        assert left.dtype == right.dtype == np.int64
        np.testing.assert_array_equal(left, right)
    assert one.n_rows == other.n_rows


@settings(deadline=None, max_examples=25)
@given(
    visits=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    places=st.lists(st.integers(0, 4), min_size=12, max_size=12),
    order=st.randoms(use_true_random=False),
    cap=st.integers(1, 3),
    measure=st.sampled_from([None, ["age", ("job", "ill"), ("skills", "job")]]),
)
def test_however_rows_are_split_the_sum_is_that_of_one_table(
    visits: list[int], places: list[int], order: Any, cap: int, measure: Any
) -> None:
    terms = {"unit_key": "patient", "rows_per_unit": cap, "measure": measure}
    rows = patients(visits)
    made = GDPTable(None, SCHEMA, **terms)._terms
    whole = count_rows(list(rows), made, progress=False, key=KEY)
    order.shuffle(rows)
    tallies = [tally(part, SCHEMA, KEY, **terms) for part in parts_of(rows, places)]
    order.shuffle(tallies)
    cut = len(tallies) // 2
    nested = [merge(tallies[cut:]), *tallies[:cut]]
    carried = pickle.loads(pickle.dumps(nested))
    for sums in (merge(tallies), merge(carried)):
        assert_same(sums, whole)


def split_unit() -> list[Tally]:
    """Return two tallies that share a patient, who is spelled in two ways."""
    rows = [{**row, "patient": "7", "skills": "a"} for row in people(6)]
    for row in rows[3:]:
        row["patient"] = " 7 "
    others = [
        {**row, "patient": f"p{i}", "skills": []} for i, row in enumerate(people(20))
    ]
    parts = (rows[:3] + others, rows[3:])
    return [tally(part, SCHEMA, KEY, unit_key="patient") for part in parts]


def test_twin_without_that_check_a_unit_would_count_twice(monkeypatch: Any) -> None:
    others = split_unit()[0].exact[0].sum()
    monkeypatch.setattr(module, "distinct_digests", lambda digests: digests)
    # One row is in the first tally: with the second, two take part where one may.
    assert merge(split_unit()).exact[0].sum() == others + 1 == 22


def test_the_same_tally_counts_once() -> None:
    rows = [{k: r[k] for k in SCHEMA.names} for r in patients([1] * 5)]
    one, other = (tally(rows, SCHEMA, KEY) for _ in "ab")
    assert merge([one, other]).n_rows == 10
    copy = pickle.loads(pickle.dumps(one))
    for twice in ([one, one], [merge([one, other]), copy]):
        with pytest.raises(InvalidParameterError, match="there twice"):
            merge(twice)


def counted(schema: Any = SCHEMA, key: Any = KEY, **terms: Any) -> Tally:
    return tally(patients([2, 1]), schema, key, unit_key="patient", **terms)


OTHER = SCHEMA.model_copy(update={"template": "{sentences} "})
REFUSED: dict[str, Callable[[], Any]] = {
    "none": lambda: merge([]),
    "no list": lambda: merge(5),  # type: ignore[arg-type]
    "rows": lambda: merge(people(2)),  # type: ignore[arg-type]
    "keys": lambda: merge([counted(), counted(key=secrets.token_bytes(32))]),
    "terms": lambda: merge([counted(), counted(measure=["age"])]),
    "caps": lambda: merge([counted(), counted(rows_per_unit=2)]),
    "no key": lambda: counted(key="k" * 32),
    "a short key": lambda: counted(key=b"k" * 16),
    "of another": lambda: GDPTable.from_tallies([counted()], OTHER),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name: str) -> None:
    with pytest.raises(InvalidParameterError):
        REFUSED[name]()


def test_nothing_shows_what_is_private() -> None:
    found = counted()
    assert repr(found) == "Tally(<hidden>)"
    bad = [{**row, "patient": CANARY, "job": CANARY} for row in patients([3])]
    with pytest.raises(InvalidParameterError) as caught:
        tally(bad, SCHEMA, KEY, unit_key="patient")
    shown = traceback.TracebackException.from_exception(
        caught.value, capture_locals=True
    )
    frames = [frame for frame in shown.stack if "langchain_dpicl" in frame.filename]
    assert CANARY not in f"{shown}{[frame.locals for frame in frames]}"


def test_parts_may_be_empty_and_a_table_may_not() -> None:
    nothing = [tally([], SCHEMA, KEY, unit_key="patient") for _ in range(2)]
    with pytest.raises(UnitError, match="no rows"):
        GDPTable.from_tallies(nothing, SCHEMA, budget=account()).release()
    some = [*nothing, tally(patients([1] * 50), SCHEMA, KEY, unit_key="patient")]
    table = GDPTable.from_tallies(some, SCHEMA, budget=account()).release()
    again = GDPTable.from_tallies(some, SCHEMA, budget=table._budget)
    assert again.release(resume=True).record()["charge"] == 1
