"""A filter is a predicate of one record: what does not match might as well not exist.

Two properties for every source. One unit more or less changes the slots as without a
filter. And the slots are those of a corpus that holds the matching records alone: what
does not match takes no place, breaks no tie, and nobody pays for it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from langchain_core.documents import Document
from support.groups_fakes import (
    QUESTION,
    SALT,
    Till,
    WordEmbedding,
    contents,
    note,
    retrieved,
)
from support.neighbor_checks import (
    M,
    Slots,
    check_disjoint,
    check_insertion_order,
    check_one_place,
    run,
)

from langchain_dpicl import RetrievedGroups, SampledGroups
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups import GroupSource, shard_of
from langchain_dpicl.groups.filtering import RecordFilter, spelled
from langchain_dpicl.mechanisms.random import SeededRandom

ONLY = {"ward": ["0", "1"]}


def in_wards(documents: list[Document]) -> list[Document]:
    """Give each record a ward, by itself: some units' records are in several."""
    return [
        note(
            unit := doc.metadata["unit"],
            doc.page_content,
            ward=shard_of(unit + doc.page_content[:1], SALT, 3),
        )
        for doc in documents
    ]


def matching(documents: list[Document]) -> list[Document]:
    """Return the records that match `ONLY`, by definition."""
    return [one for one in in_wards(documents) if one.metadata["ward"] in (0, 1)]


def draw(documents: list[Document], **terms: Any) -> Slots:
    groups = retrieved(in_wards(documents), n_groups=M, **terms)
    return contents(groups.where(ONLY).draw(QUESTION))


def by_shard(documents: list[Document], words: dict[str, int]) -> Slots:
    return draw(documents)


def by_threshold(documents: list[Document], words: dict[str, int]) -> Slots:
    return draw(documents, score_threshold=0.5)


def paid(documents: list[Document], words: dict[str, int]) -> Slots:
    groups = retrieved(in_wards(documents), n_groups=M, score_threshold=0.5).where(ONLY)
    till = Till(unit for unit in words if words[unit] % 3 == 0)
    slots = groups.draw_prepared(groups.prepare(QUESTION), collect=till)
    assert till.asked[0] == sorted(till.asked[0])
    return contents(slots)


DRAWERS = [by_shard, by_threshold, paid]


@pytest.mark.parametrize("drawer", DRAWERS)
@pytest.mark.parametrize(
    "check", [check_disjoint, check_one_place, check_insertion_order]
)
def test_one_unit_changes_one_numbered_slot(drawer: Any, check: Any) -> None:
    run(check(drawer), examples=50)


def check_nothing_else(drawer: Any) -> Any:
    """Check that records which do not match change nothing."""

    def check(case: Any, words: dict[str, int]) -> None:
        documents = case[0]
        wards = map(in_wards, ([one] for one in documents))
        only = [
            one
            for one, (own,) in zip(documents, wards, strict=True)
            if own.metadata["ward"] in (0, 1)
        ]
        assert drawer(documents, words) == drawer(only, words)

    return check


@pytest.mark.parametrize("drawer", DRAWERS)
def test_what_does_not_match_changes_nothing(drawer: Any) -> None:
    run(check_nothing_else(drawer), examples=80)


def after(documents: list[Document], words: dict[str, int]) -> Slots:
    """Defect: the filter is applied to what the search of all records has found."""
    slots = retrieved(in_wards(documents), n_groups=M).draw(QUESTION)
    kept = contents([matching([*documents])])[0]
    return [tuple(one for one in slot if one in kept) for slot in contents(slots)]


def of_a_person(documents: list[Document], words: dict[str, int]) -> Slots:
    """Defect: a person takes part if all of the person's records match."""
    wards: dict[str, set[int]] = {}
    for one in in_wards(documents):
        wards.setdefault(one.metadata["unit"], set()).add(one.metadata["ward"])
    kept = [d for d in documents if wards[d.metadata["unit"]] <= {0, 1}]
    return contents(retrieved(kept, n_groups=M).draw(QUESTION))


def most_common(documents: list[Document], words: dict[str, int]) -> Slots:
    """Defect: what matches is decided over the corpus, by the most common value."""
    given = in_wards(documents)
    wards = Counter(doc.metadata["ward"] for doc in given)
    value = max(sorted(wards), key=lambda ward: wards[ward], default=0)
    return contents(retrieved(given, n_groups=M).where(ward=value).draw(QUESTION))


@pytest.mark.parametrize(
    ("twin", "check"),
    [
        (after, check_nothing_else),
        (of_a_person, check_nothing_else),
        (most_common, check_one_place),
    ],
)
def test_twins_are_caught(twin: Any, check: Any) -> None:
    with pytest.raises(AssertionError):
        run(check(twin), twin=True)


WARDS = [note(i, QUESTION, ward=i % 3, floor="A" if i < 12 else "B") for i in range(24)]


def units(slots: Any) -> set[Any]:
    return {doc.metadata["unit"] for slot in slots for doc in slot}


def test_a_person_takes_part_with_the_records_that_match() -> None:
    documents = [*WARDS, note(3, "rash", ward=1), note(3, "rash")]
    groups = retrieved(documents, n_groups=2, docs_per_group=50)
    drawn = groups.where(ward=1).draw(QUESTION)
    assert units(drawn) == {*range(1, 24, 3), 3}
    assert {one.metadata["ward"] for slot in drawn for one in slot} == {1}
    sampled = SampledGroups.from_documents(
        documents, unit_key="unit", n_groups=2, sampling_rate=1.0
    )
    assert units(sampled.where(ward=1).draw("")) == units(drawn)


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_only_who_has_a_matching_record_is_asked_to_pay(rate: float) -> None:
    groups = retrieved(WARDS, score_threshold=-1.0, sampling_rate=rate).where(ward=0)
    till = Till(poor=["3"])
    groups.draw_prepared(groups.prepare(QUESTION), collect=till)
    assert till.asked == [sorted(str(i) for i in range(0, 24, 3))]


def test_a_sample_is_one_of_everybody_and_then_the_filter() -> None:
    groups = SampledGroups.from_documents(
        WARDS, unit_key="unit", n_groups=3, sampling_rate=0.5, random=SeededRandom(1)
    )
    only = groups.where({"ward": 0})
    sizes = [sum(map(len, only.draw(QUESTION))) for _ in range(200)]
    # Eight match, each with probability one half.
    assert 3.5 < sum(sizes) / len(sizes) < 4.5
    assert only.n_units == groups.n_units == 24
    assert only.relation is groups.relation is Relation.REPLACE


@pytest.mark.parametrize("kind", ["retrieved", "sampled"])
def test_a_view_shares_the_records(kind: str) -> None:
    groups: Any = retrieved(WARDS, n_groups=1, docs_per_group=50)
    if kind == "sampled":
        groups = SampledGroups.from_documents(
            WARDS, unit_key="unit", n_groups=1, sampling_rate=1.0
        )
    only = groups.where({"ward": "0"}).where(floor="A")
    assert only.description["filter"] == {"floor": ["A"], "ward": ["0"]}
    assert "filter" not in groups.description
    assert only.delete_unit(0) == 1
    assert groups.add_documents([note(30, "rash", ward=0, floor="A")]) == 1
    assert units(only.draw(QUESTION)) == {3, 6, 9, 30}
    assert only.n_units == groups.n_units == 24


def test_a_view_saves_everybody_and_follows_a_saved_index(tmp_path: Any) -> None:
    groups = retrieved(WARDS, n_groups=2, docs_per_group=50)
    groups.where({"ward": 1}).save(tmp_path / "index")
    following = RetrievedGroups.load(tmp_path / "index", WordEmbedding(), follow=True)
    assert "filter" not in following.description
    only = following.where({"ward": [1, 2], "floor": "B"})
    assert contents(only.draw(QUESTION)) == contents(
        groups.where({"ward": [1, 2], "floor": "B"}).draw(QUESTION)
    )
    owner = RetrievedGroups.load(tmp_path / "index", WordEmbedding())
    owner.delete_unit(13)
    owner.save(tmp_path / "index")
    assert units(only.draw(QUESTION)) == {14, 16, 17, 19, 20, 22, 23}


def test_a_filter_that_nothing_matches_is_no_error() -> None:
    for terms in ({}, {"score_threshold": 0.1}, {"sampling_rate": 0.5}):
        for only in ({"ward": 7}, {"no": "x"}):
            assert retrieved(WARDS, **terms).where(only).draw(QUESTION) == [[]] * 4


class Odd(int):
    """A number that cannot be printed."""

    def __int__(self) -> int:
        raise RuntimeError("private")


@pytest.mark.parametrize("odd", [None, 3.0, [1], {"a": 1}, Odd(3), "4", float("nan")])
def test_one_odd_record_is_no_error_for_others(odd: Any) -> None:
    documents = [*WARDS, note(90, QUESTION, ward=odd), note(91, QUESTION)]
    only = retrieved(documents, n_groups=2, docs_per_group=50).where({"ward": [0, 3]})
    found = {doc.metadata["unit"] for slot in only.draw(QUESTION) for doc in slot}
    assert found == set(range(0, 24, 3))


def test_values_have_one_spelling() -> None:
    known = UUID(int=7)
    values = [" 3", 3, True, known, "e\u0301"]
    assert [spelled(v) for v in values] == ["3", "3", "true", str(known), "\u00e9"]
    assert RecordFilter.of({"a": {"3", 3}}) == RecordFilter.of({"a": "3 "})
    assert RecordFilter.of({"b": 1, "a": (2, 1)}).allowed == (
        ("a", ("1", "2")),
        ("b", ("1",)),
    )


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        "ward",
        ["ward"],
        {"": 1},
        {3: 1},
        {"ward": []},
        {"ward": None},
        {"ward": 3.5},
        {"ward": b"3"},
        {"ward": ["3", None]},
        {"ward": {"$in": ["3"]}},
        {"ward": " "},
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


def test_a_source_that_leaves_nobody_out_refuses() -> None:
    class Own(GroupSource):
        relation = Relation.REPLACE
        n_groups = 1
        unit_key = "unit"
        description: Any = {}  # noqa: RUF012

        def prepare(self, question: str) -> None:
            return None

        def draw_prepared(self, prepared: Any, **_: Any) -> list[list[Document]]:
            return []

    with pytest.raises(InvalidParameterError, match="Own can't be limited"):
        Own().where({"ward": 1})
