"""A filter is a predicate of one record: what does not match might as well not exist.

The slots are those of a corpus that holds the matching records alone: what does not
match takes no place, breaks no tie, and nobody pays for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from langchain_core.documents import Document
from support.groups_fakes import (
    QUESTION,
    Till,
    WordEmbedding,
    contents,
    corpora,
    note,
    retrieved,
    units,
)

from langchain_dpicl import RetrievedGroups, SampledGroups
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.filtering import RecordFilter, spelled
from langchain_dpicl.mechanisms.random import SeededRandom


@given(corpora())
def test_who_does_not_match_is_not_asked_to_pay_and_takes_no_place(
    documents: list[Document],
) -> None:
    def paid(documents: list[Document]) -> Any:
        groups = retrieved(documents, score_threshold=0.5).where(ward=["0", "1"])
        till = Till(poor=["p0", "p3", "p6"])
        slots = groups.draw_prepared(groups.prepare(QUESTION), collect=till)
        return contents(slots), till.asked

    matching = [one for one in documents if one.metadata["ward"] < 2]
    assert paid(documents) == paid(matching)


WARDS = [note(i, QUESTION, ward=i % 3, floor="A" if i < 12 else "B") for i in range(24)]


def sampled(documents: list[Document] = WARDS, **terms: Any) -> Any:
    given = {"unit_key": "unit", "n_groups": 2, "sampling_rate": 1.0, **terms}
    return SampledGroups.from_documents(documents, **given)


def test_a_person_takes_part_with_the_records_that_match() -> None:
    documents = [*WARDS, note(3, "rash", ward=1), note(3, "rash")]
    for groups in (
        retrieved(documents, n_groups=2, docs_per_group=50),
        sampled(documents),
    ):
        drawn = groups.where(ward=1).draw(QUESTION)
        assert units(drawn) == {*range(1, 24, 3), 3}
        assert {one.metadata["ward"] for slot in drawn for one in slot} == {1}


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_only_who_has_a_matching_record_is_asked_to_pay(rate: float) -> None:
    groups = retrieved(WARDS, score_threshold=-1.0, sampling_rate=rate).where(ward=0)
    till = Till(poor=["3"])
    groups.draw_prepared(groups.prepare(QUESTION), collect=till)
    assert till.asked == [sorted(str(i) for i in range(0, 24, 3))]


def test_a_sample_is_one_of_everybody_and_then_the_filter() -> None:
    groups = sampled(sampling_rate=0.5, random=SeededRandom(1))
    only = groups.where({"ward": 0})
    sizes = [sum(map(len, only.draw(QUESTION))) for _ in range(200)]
    # Eight match, each with probability one half.
    assert 3.5 < sum(sizes) / len(sizes) < 4.5
    assert only.relation is groups.relation is Relation.REPLACE


@pytest.mark.parametrize("make", [retrieved, sampled])
def test_a_view_shares_the_records(make: Any) -> None:
    groups = make(WARDS, n_groups=1)
    only = groups.where({"ward": "0"}).where(floor="A")
    assert only.description["filter"] == {"floor": ["A"], "ward": ["0"]}
    assert "filter" not in groups.description
    for unit in (0, 3, 6):
        assert only.delete_unit(unit) == 1
    assert groups.add_documents([note(30, "rash", ward=0, floor="A")]) == 1
    assert units(only.draw(QUESTION)) == {9, 30}
    assert only.n_units == groups.n_units == 22


def test_a_view_saves_everybody_and_follows_a_saved_index(tmp_path: Path) -> None:
    groups = retrieved(WARDS, n_groups=2, docs_per_group=50)
    groups.where({"ward": 1}).save(tmp_path / "index")
    following = RetrievedGroups.load(tmp_path / "index", WordEmbedding(), follow=True)
    assert "filter" not in following.description
    only = following.where({"ward": [1, 2], "floor": "B"})
    assert units(only.draw(QUESTION)) == {13, 14, 16, 17, 19, 20, 22, 23}
    owner = RetrievedGroups.load(tmp_path / "index", WordEmbedding())
    owner.delete_unit(13)
    owner.save(tmp_path / "index")
    assert units(only.draw(QUESTION)) == {14, 16, 17, 19, 20, 22, 23}


def test_a_filter_that_nothing_matches_is_no_error() -> None:
    for terms in ({}, {"score_threshold": 0.1}, {"sampling_rate": 0.5}):
        for only in ({"ward": 7}, {"no": "x"}):
            assert retrieved(WARDS, **terms).where(only).draw(QUESTION) == [[]] * 4


@pytest.mark.parametrize("odd", [None, 3.0, [1], {"a": 1}, object(), "4", float("nan")])
def test_one_odd_record_is_no_error_for_others(odd: Any) -> None:
    documents = [*WARDS, note(90, QUESTION, ward=odd), note(91, QUESTION)]
    only = retrieved(documents, n_groups=2, docs_per_group=50).where({"ward": [0, 3]})
    assert units(only.draw(QUESTION)) == set(range(0, 24, 3))
    assert units(sampled(documents).where(ward=[0, 3]).draw("")) == set(range(0, 24, 3))


def test_values_have_one_spelling() -> None:
    class Odd(int):
        def __int__(self) -> int:
            raise RuntimeError("private")

    known = UUID(int=7)
    values = [" 3", 3, True, known, "e\u0301", Odd(3)]
    assert [spelled(v) for v in values] == [
        *("3", "3", "true", str(known), "\u00e9", None)
    ]
    assert RecordFilter.of({"a": {"3", 3}}) == RecordFilter.of({"a": "3 "})
    only = RecordFilter.of({"b": 1, "a": (2, 1)})
    assert only.description() == {"a": ["1", "2"], "b": ["1"]}


@pytest.mark.parametrize(
    "wrong",
    [
        *(None, {}, "ward", ["ward"], {"": 1}, {3: 1}, {"ward": []}, {"ward": None}),
        *({"ward": 3.5}, {"ward": b"3"}, {"ward": ["3", None]}, {"ward": " "}),
        {"ward": {"$in": ["3"]}},
    ],
)
def test_other_filters_are_refused(wrong: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"filter.*such as"):
        retrieved(WARDS).where(wrong)


def test_two_filters_that_exclude_each_other_are_refused() -> None:
    only = retrieved(WARDS).where(ward=[0, 1])
    assert only.where({"ward": [1, 2]}).description["filter"] == {"ward": ["1"]}
    with pytest.raises(InvalidParameterError, match="no value of 'ward'"):
        only.where({"ward": 2})
