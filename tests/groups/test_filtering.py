"""Filters on attributes of units: a unit that does not match might as well not exist.

Two properties for every source. One unit more or less changes the slots as without a
filter. And the slots are those of a corpus that holds the matching units alone: what
does not match takes no place, breaks no tie and pays nothing.
"""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from langchain_core.documents import Document
from support.groups_fakes import (
    QUESTION,
    SALT,
    Scripted,
    Till,
    WordEmbedding,
    contents,
    note,
    retrieved,
)
from support.list_store import ListStore
from support.neighbor_checks import (
    M,
    Slots,
    check_disjoint,
    check_insertion_order,
    check_one_place,
    run,
)

from langchain_dpicl import RetrievedGroups, SampledGroups
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.errors import DPError, InvalidParameterError
from langchain_dpicl.groups.base import GroupSource
from langchain_dpicl.groups.filtering import UnitFilter, spelled
from langchain_dpicl.groups.units import keyed_slot

ONLY = {"ward": ["0", "1"]}


def in_wards(documents: list[Document]) -> list[Document]:
    """Give each record a ward, by itself: some units' records do not agree."""
    return [
        note(
            unit := doc.metadata["unit"],
            doc.page_content,
            ward=keyed_slot(SALT, unit + doc.page_content[:1], 3),
        )
        for doc in documents
    ]


def matching(documents: list[Document]) -> set[str]:
    """Return the units that match `ONLY`, by definition."""
    wards: dict[str, set[int]] = {}
    for doc in documents:
        wards.setdefault(doc.metadata["unit"], set()).add(doc.metadata["ward"])
    return {unit for unit, own in wards.items() if own in ({0}, {1})}


def draw(documents: list[Document], words: dict[str, int], **terms: Any) -> Slots:
    return drawn(retrieved(documents, n_groups=M, **terms).where(ONLY), words)


def drawn(groups: RetrievedGroups, words: dict[str, int]) -> Slots:
    prepared = groups.prepare(QUESTION)
    return contents(groups.draw_prepared(prepared))


def by_shard(documents: list[Document], words: dict[str, int]) -> Slots:
    return draw(in_wards(documents), words)


def by_shard_with_threshold(documents: list[Document], words: dict[str, int]) -> Slots:
    return draw(in_wards(documents), words, score_threshold=0.5)


def sampled(documents: list[Document], words: dict[str, int]) -> Slots:
    """Draw with every unit's inclusion, slot and order given by its own word."""
    given = in_wards(documents)
    if not given:
        return [()] * M
    whole = SampledGroups.from_documents(
        given, unit_key="unit", n_groups=M, sampling_rate=0.5, n_units=M
    )
    corpus, kept = whole._corpus, matching(given)
    heads = [255 * (words[unit] % 2) for unit in corpus.unit_ids]
    heads += [0] * (-len(heads) % 8)
    units = [u for u in corpus.unit_ids if words[u] % 2 == 0 and u in kept]
    rows = [doc for unit in units for doc in given if doc.metadata["unit"] == unit]
    whole._random = Scripted(
        np.array(heads, np.uint8).view(np.uint64).tolist(),
        [],
        [words[unit] // 2 for unit in units],
        [keyed_slot(SALT, repr(contents([[doc]])), 1 << 64) for doc in rows],
    )
    return contents(whole.where(ONLY).draw(QUESTION))


REPLACE = [by_shard, by_shard_with_threshold, sampled]


@pytest.mark.parametrize("drawer", REPLACE)
def test_no_unit_sits_in_two_slots(drawer: Any) -> None:
    run(check_disjoint(drawer), examples=60)


@pytest.mark.parametrize("drawer", REPLACE)
def test_one_unit_changes_one_numbered_slot(drawer: Any) -> None:
    run(check_one_place(drawer), examples=60)


@pytest.mark.parametrize("drawer", REPLACE)
def test_slots_do_not_depend_on_insertion_order(drawer: Any) -> None:
    run(check_insertion_order(drawer), examples=40)


def check_nobody_else(drawer: Any) -> Any:
    """Check that units which do not match change nothing."""

    def check(case: Any, words: dict[str, int]) -> None:
        documents = case[0]
        kept = matching(in_wards(documents))
        only = [doc for doc in documents if doc.metadata["unit"] in kept]
        assert drawer(documents, words) == drawer(only, words)

    return check


@pytest.mark.parametrize("drawer", REPLACE)
def test_who_does_not_match_changes_nothing(drawer: Any) -> None:
    run(check_nobody_else(drawer), examples=80)


def after(drawer: Any) -> Any:
    """Defect: the filter is applied to what the search of everybody has found."""

    def filtered_afterwards(documents: list[Document], words: dict[str, int]) -> Slots:
        given = in_wards(documents)
        kept = matching(given)
        return [
            tuple(one for one in slot if one[0] in kept)
            for slot in drawer(given, words)
        ]

    return filtered_afterwards


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"score_threshold": 0.5},
    ],
)
def test_twin_a_filter_after_the_search_is_changed_by_others(terms: Any) -> None:
    def everybody(documents: list[Document], words: dict[str, int]) -> Slots:
        return drawn(retrieved(documents, n_groups=M, **terms), words)

    with pytest.raises(AssertionError):
        run(check_nobody_else(after(everybody)), twin=True)


def most_common(documents: list[Document], words: dict[str, int]) -> Slots:
    """Defect: who matches is decided over the corpus, by the most common value."""
    given = in_wards(documents)
    wards = Counter(doc.metadata["ward"] for doc in given)
    value = max(sorted(wards), key=lambda ward: wards[ward], default=0)
    return contents(retrieved(given, n_groups=M).where({"ward": value}).draw(QUESTION))


def any_record(documents: list[Document], words: dict[str, int]) -> Slots:
    """Defect: the last record decides, so that the order of insertion does."""
    given = in_wards(documents)
    wards = {doc.metadata["unit"]: doc.metadata["ward"] for doc in given}
    kept = [doc for doc in given if wards[doc.metadata["unit"]] in {0, 1}]
    return contents(retrieved(kept, n_groups=M).draw(QUESTION))


def test_twins_of_the_attribute() -> None:
    with pytest.raises(AssertionError):
        run(check_one_place(most_common), twin=True)
    with pytest.raises(AssertionError):
        run(check_insertion_order(any_record), twin=True)


WARDS = [note(i, QUESTION, ward=i % 3, floor="A" if i < 12 else "B") for i in range(24)]


def wards(slots: Any) -> set[Any]:
    return {doc.metadata["ward"] for slot in slots for doc in slot}


def asked(groups: RetrievedGroups) -> list[list[str]]:
    till = Till(poor=["3"])
    groups.draw_prepared(groups.prepare(QUESTION), collect=till)
    return till.asked


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_only_who_matches_is_asked_to_pay(rate: float) -> None:
    groups = retrieved(WARDS, score_threshold=-1.0, sampling_rate=rate)
    groups = groups.where({"ward": 0})
    assert asked(groups) == [sorted(str(i) for i in range(0, 24, 3))]


def test_a_sample_is_one_of_those_who_match() -> None:
    groups = SampledGroups.from_documents(
        WARDS, unit_key="unit", n_groups=3, sampling_rate=0.5
    )
    only = groups.where({"ward": 0})
    sizes = []
    for _ in range(200):
        slots = only.draw(QUESTION)
        assert wards(slots) <= {0}
        sizes.append(sum(map(len, slots)))
    # Eight match, each with probability one half: not a part of a sample of 24 heads.
    assert 3 < sum(sizes) / len(sizes) < 5
    assert only.n_units == groups.n_units == 24
    assert only.relation is groups.relation is Relation.REPLACE


def test_sampled_groups_share_their_records_with_a_view() -> None:
    groups = SampledGroups.from_documents(
        WARDS, unit_key="unit", n_groups=1, sampling_rate=1.0
    )
    only = groups.where({"ward": "0"}).where({"floor": "A"})
    assert only.description["filter"] == {"floor": ["A"], "ward": ["0"]}
    assert "filter" not in groups.description
    assert only.delete_unit(0) == 1
    assert groups.add_documents([note(30, "new", ward=0, floor="A")]) == 1
    found = {doc.metadata["unit"] for slot in only.draw(QUESTION) for doc in slot}
    assert found == {3, 6, 9, 30}


def test_a_view_sees_what_is_added_and_deleted() -> None:
    groups = retrieved(WARDS, n_groups=2, docs_per_group=50)
    only = groups.where({"ward": 1})
    assert groups.n_units == only.n_units == 24
    groups.add_documents([note(40, "rash", ward=1), note(4, "rash", ward=2)])
    groups.delete_unit(7)
    found = {doc.metadata["unit"] for slot in only.draw(QUESTION) for doc in slot}
    # The records of 4 do not agree any more.
    assert found == {1, 10, 13, 16, 19, 22, 40}
    assert wards(groups.draw(QUESTION)) == {0, 1, 2}


def test_attributes_are_saved_with_the_records(tmp_path: Any) -> None:
    groups = retrieved(WARDS, n_groups=2, docs_per_group=50)
    # A view saves everybody.
    groups.where({"ward": 1}).save(tmp_path / "index")
    loaded = RetrievedGroups.load(tmp_path / "index", WordEmbedding())
    assert "filter" not in loaded.description
    assert loaded.n_units == 24
    only = {"ward": [1, 2], "floor": "B"}
    assert contents(loaded.where(only).draw(QUESTION)) == contents(
        groups.where(only).draw(QUESTION)
    )


def test_a_view_follows_a_saved_index(tmp_path: Any) -> None:
    retrieved(WARDS, n_groups=2, docs_per_group=50).save(tmp_path / "index")
    following = RetrievedGroups.load(tmp_path / "index", WordEmbedding(), follow=True)
    only = following.where({"ward": 1})
    assert len(only.draw(QUESTION)[0]) + len(only.draw(QUESTION)[1]) == 8
    owner = RetrievedGroups.load(tmp_path / "index", WordEmbedding())
    owner.delete_unit(1)
    owner.save(tmp_path / "index")
    assert len(only.draw(QUESTION)[0]) + len(only.draw(QUESTION)[1]) == 7


def test_a_filter_that_nobody_matches_is_no_error() -> None:
    for terms in ({}, {"score_threshold": 0.1}):
        only = retrieved(WARDS, **terms).where({"ward": 7})
        assert contents(only.draw(QUESTION)) == [()] * 4
    unknown = retrieved(WARDS, score_threshold=0.1).where({"no": "x"})
    assert unknown.draw(QUESTION) == [[]] * 4


class Odd(int):
    """A number that cannot be printed."""

    def __int__(self) -> int:
        raise RuntimeError("private")


@pytest.mark.parametrize("odd", [None, 3.0, [1], {"a": 1}, Odd(3), "4", float("nan")])
def test_one_units_odd_record_is_no_error_for_others(odd: Any) -> None:
    documents = [*WARDS, note(90, QUESTION, ward=odd), note(91, QUESTION)]
    only = retrieved(documents, n_groups=2, docs_per_group=50).where({"ward": [0, 3]})
    found = {doc.metadata["unit"] for slot in only.draw(QUESTION) for doc in slot}
    assert found == set(range(0, 24, 3))


def test_values_have_one_spelling() -> None:
    known = UUID(int=7)
    values = [" 3", 3, True, known, "e\u0301"]
    assert [spelled(v) for v in values] == ["3", "3", "true", str(known), "\u00e9"]
    assert UnitFilter.of({"a": {"3", 3}}) == UnitFilter.of({"a": "3 "})
    assert UnitFilter.of({"b": 1, "a": (2, 1)}).allowed == (
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
    only = retrieved(WARDS).where({"ward": [0, 1]})
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


def test_a_store_that_leaves_nobody_out_refuses() -> None:
    store = ListStore(WARDS, WordEmbedding(), dimension=6)
    groups = RetrievedGroups.from_vectorstore(store, unit_key="unit", n_groups=2)
    with pytest.raises(DPError, match="can't leave units out"):
        groups.where({"ward": 1})
