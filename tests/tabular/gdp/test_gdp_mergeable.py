"""Tallies of parts: they add up to the whole table."""

from __future__ import annotations

import pickle
import secrets
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.table_parts import CANARY, account, people, people_schema

from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    UnitError,
)
from langchain_dpicl.mechanisms.random import SecureRandom, SeededRandom
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    Tally,
    merge,
    tally,
)
from langchain_dpicl.tabular.gdp import mergeable
from langchain_dpicl.tabular.gdp.tallies import Counted, count_rows

SCHEMA = people_schema()
KEY = secrets.token_bytes(32)
Rows = list[dict[str, Any]]


class Keyed(SecureRandom):
    """Hands out the key where a reading draws its own."""

    def words(self, count: int) -> NDArray[np.uint64]:
        assert count == len(KEY) // 8
        return np.frombuffer(KEY, np.uint64)


def patients(visits: Sequence[int]) -> Rows:
    """Return rows of patients, each with so many of them."""
    rows = iter(people(sum(visits)))
    return [
        {**next(rows), "patient": number}
        for number, count in enumerate(visits)
        for _ in range(count)
    ]


def parts_of(rows: Rows, places: Sequence[int]) -> list[Rows]:
    """Partition rows by patient: patient i goes to part places[i]."""
    parts: list[Rows] = [[] for _ in range(max(places, default=0) + 1)]
    for row in rows:
        parts[places[row["patient"]]].append(row)
    return parts


def assert_same(one: Counted, other: Counted) -> None:
    for left, right in zip(one.exact, other.exact, strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
    assert (one.n_rows, dict(one.names)) == (other.n_rows, dict(other.names))


@settings(deadline=None, max_examples=25)
@given(
    visits=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    places=st.lists(st.integers(0, 4), min_size=12, max_size=12),
    order=st.randoms(use_true_random=False),
    cap=st.integers(1, 3),
    measure=st.sampled_from([None, ["age", ("job", "ill")]]),
)
def test_however_rows_are_split_the_sum_is_that_of_one_table(
    visits: list[int],
    places: list[int],
    order: Any,
    cap: int,
    measure: Any,
) -> None:
    terms = {"unit_key": "patient", "rows_per_unit": cap, "measure": measure}
    rows = patients(visits)
    whole = count_rows(
        Hidden(list(rows)),
        GDPTable(None, SCHEMA, **terms)._terms,
        random=Keyed(),
        extra_columns="refuse",
        progress=False,
    )
    order.shuffle(rows)
    tallies = [tally(part, SCHEMA, KEY, **terms) for part in parts_of(rows, places)]
    order.shuffle(tallies)
    cut = len(tallies) // 2
    nested = [merge(tallies[cut:]), *tallies[:cut]]
    carried = pickle.loads(pickle.dumps(nested))
    for sums in (merge(tallies), merge(carried)):
        assert_same(sums.counted, whole)


def test_a_release_is_bit_for_bit_that_of_the_rows(monkeypatch: Any) -> None:
    rows = patients([1, 2, 3] * 60)
    terms: dict[str, Any] = {"unit_key": "patient", "rows_per_unit": 2}
    parts = parts_of(rows, [i % 4 for i in range(180)])
    tallies = [tally(part, SCHEMA, KEY, **terms) for part in parts]
    merged = GDPTable.from_tallies(
        tallies, SCHEMA, budget=account(), random=SeededRandom(5)
    )
    own = GDPTable(rows, SCHEMA, budget=account(), random=SeededRandom(5), **terms)
    words = SecureRandom.words

    def first(self: Any, count: int) -> Any:
        # The key that a reading draws, without taking from the noise.
        if sys._getframe(1).f_code.co_name == "_by_unit":
            return np.frombuffer(KEY, np.uint64)
        return words(self, count)

    monkeypatch.setattr(SecureRandom, "words", first)
    assert merged.release().summary() == own.release().summary()
    one, other = merged.record(), own.record()
    assert {**one, "created": ""} == {**other, "created": ""}


def test_rows_that_are_units_add_up_with_what_they_name() -> None:
    job = CategoricalColumn(
        name="job", values=["clerk", "diver", "nurse"], other="nurse", open=True
    )
    schema = people_schema(job=job)
    rows = [{**row, "job": f"cook {i % 3}"} for i, row in enumerate(people(50))]
    parts = [rows[start::7] for start in range(7)]
    whole = tally(rows, schema, KEY, measure=["job"]).counted
    merged = merge([tally(part, schema, KEY, measure=["job"]) for part in parts])
    assert_same(merged.counted, whole)
    assert sorted(whole.names.values()) == [16, 17, 17]


def split_unit() -> list[Tally]:
    """Return two tallies that share a patient, who is spelled in two ways."""
    rows = [{**row, "patient": "7"} for row in people(6)]
    for row in rows[3:]:
        row["patient"] = " 7 "
    others = [{**row, "patient": f"p{i}"} for i, row in enumerate(people(20))]
    parts = (rows[:3] + others, rows[3:])
    return [tally(part, SCHEMA, KEY, unit_key="patient") for part in parts]


def test_a_unit_in_two_tallies_is_refused() -> None:
    with pytest.raises(UnitError, match="two of the tallies"):
        merge(split_unit())


def test_without_that_check_a_unit_would_count_twice(monkeypatch: Any) -> None:
    terms = GDPTable(None, SCHEMA, unit_key="patient")._terms
    monkeypatch.setattr(mergeable, "_disjoint", np.concatenate)
    both = merge(split_unit()).counted.exact
    others = split_unit()[0].counted.exact
    moved = [np.abs(a - b).sum() for a, b in zip(both, others, strict=True)]
    # One row is in the first tally: with the second, two take part where one may.
    rows = [i for i, one in enumerate(terms.quantities) if one.kind == "rows"]
    assert [moved[i] for i in rows] == [1]
    assert both[rows[0]].sum() == 20 + 2 > 20 + terms.rows_per_unit


def test_the_same_tally_counts_once() -> None:
    one, other = tally(people(5), SCHEMA, KEY), tally(people(5), SCHEMA, KEY)
    assert merge([one, other]).counted.n_rows == 10
    copy = pickle.loads(pickle.dumps(one))
    for twice in ([one, one], [merge([one, other]), copy]):
        with pytest.raises(InvalidParameterError, match="there twice"):
            merge(twice)


def refused() -> dict[str, Any]:
    own = tally(people(5), SCHEMA, KEY)
    other = people_schema(job=CategoricalColumn(name="job", values=["a", "clerk"]))
    return {
        "none": lambda: merge([]),
        "no list": lambda: merge(5),
        "rows": lambda: merge([people(2)]),
        "keys": lambda: merge([own, tally([], SCHEMA, secrets.token_bytes(32))]),
        "terms of one": lambda: merge([own, tally([], SCHEMA, KEY, numeric="bins")]),
        "schema": lambda: tally(people(5), other, KEY),
        "no key": lambda: tally(people(5), SCHEMA, "k" * 32),
        "a short key": lambda: tally(people(5), SCHEMA, b"k" * 16),
        "a sample": lambda: tally(people(5), SCHEMA, KEY, sampling_rate=0.5),
        "a price": lambda: tally(people(5), SCHEMA, KEY, epsilon=1.0),
        "sampled later": lambda: GDPTable.from_tallies(
            [own], SCHEMA, sampling_rate=0.5
        ),
        "of another": lambda: GDPTable.from_tallies([own], other),
        "terms": lambda: GDPTable.from_tallies([own], SCHEMA, group_by="job"),
        "cap": lambda: GDPTable.from_tallies([own], SCHEMA, unit_key="p"),
        "extra": lambda: tally(people(2), SCHEMA, KEY, extra_columns="keep"),
    }


@pytest.mark.parametrize("name", refused())
def test_what_does_not_fit_is_refused(name: str) -> None:
    with pytest.raises(InvalidParameterError):
        refused()[name]()


def test_a_constructor_checks_the_terms_of_a_tally_before_it_pays() -> None:
    found = tally(people(50), SCHEMA, KEY)
    budget = account()
    table = GDPTable(found, SCHEMA, budget=budget, group_by="job")
    with pytest.raises(InvalidParameterError, match="other terms"):
        table.release()
    assert budget.spent().queries == 0


def test_nothing_shows_what_is_private() -> None:
    found = tally(patients([3]), SCHEMA, KEY, unit_key="patient")
    assert [repr(found), repr(found.counted)] == [
        "Tally(<hidden>)",
        "Counted(<hidden>)",
    ]
    bad = [{**row, "patient": CANARY, "job": CANARY} for row in people(3)]
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
    GDPTable.from_tallies(some, SCHEMA, budget=account()).release()


def test_tallies_are_released_for_new_charges() -> None:
    budget = account(queries=2)
    found = tally(people(300), SCHEMA, KEY)
    for charge in (1, 2):
        table = GDPTable.from_tallies([found], SCHEMA, budget=budget)
        assert table.release().record()["charge"] == charge
    table = GDPTable.from_tallies([found], SCHEMA, budget=budget)
    with pytest.raises(BudgetExhaustedError):
        table.release()
    assert table.release(resume=True).record()["charge"] == 2
