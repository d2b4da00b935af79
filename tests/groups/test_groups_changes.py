"""Adding, deleting and drawing: what changes, and what stays where it is."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest
from langchain_core.documents import Document
from support.groups_fakes import (
    NOTES,
    QUESTION,
    WordEmbedding,
    build,
    contents,
    note,
    units_in,
)

from langchain_dpicl.errors import InvalidParameterError, UnitError


def test_adding_and_deleting() -> None:
    groups = build()
    assert groups.n_units == 12
    assert groups.add_documents([]) == 0
    assert groups.add_documents([note("new", "rash"), note("3", "rash")]) == 2
    assert groups.n_units == 13
    assert groups.delete_unit(3) == 5
    assert groups.n_units == 12
    for unknown in (3, "3", "nobody", "", None, 3.0):
        with pytest.raises(UnitError, match="nothing was deleted"):
            groups.delete_unit(unknown)
    for unit in {doc.metadata["unit"] for doc in NOTES} - {3}:
        groups.delete_unit(unit)
    groups.delete_unit("new")
    assert groups.n_units == 0
    assert groups.draw(QUESTION) == [[], [], [], []]
    assert groups.add_documents(NOTES) == 48


def test_a_unit_returns_to_its_shard() -> None:
    groups = build(docs_per_group=48)

    def slot_of(unit: str) -> int:
        slots = contents(groups.draw(QUESTION))
        [slot] = [i for i, slot in enumerate(slots) if unit in units_in(slot)]
        return slot

    places = {unit: slot_of(str(unit)) for unit in range(12)}
    assert len(set(places.values())) > 1
    for unit in range(12):
        groups.delete_unit(unit)
        groups.add_documents([note(str(unit), "fever"), note(f"x{unit}", "fever")])
    assert {unit: slot_of(str(unit)) for unit in range(12)} == places


def test_document_ids_are_unique() -> None:
    first = Document("rash", metadata={"unit": 1}, id="n1")
    again = Document("fever", metadata={"unit": 2}, id="n1")
    with pytest.raises(InvalidParameterError, match=r"id of document 1 .* is taken"):
        build([first, again], n_groups=1)
    groups = build([first], n_groups=1)
    with pytest.raises(InvalidParameterError, match=r"id of document 0 .* is taken"):
        groups.add_documents([again])
    assert groups.n_units == 1
    groups.delete_unit(1)
    assert groups.add_documents([again]) == 1


def test_a_failed_addition_changes_nothing() -> None:
    groups = build(embedding=WordEmbedding())
    before = groups.draw(QUESTION)
    for bad, error in (
        ([note(1, "rash"), note(None, "rash")], UnitError),
        ([note(1, "rash"), note(2, "")], InvalidParameterError),
        ([note(1, "rash"), "text"], InvalidParameterError),
    ):
        with pytest.raises(error):
            groups.add_documents(bad)
    groups._records._embedding = WordEmbedding(size=7)
    with pytest.raises(InvalidParameterError, match=r"vectors of 7 numbers.* of 6"):
        groups.add_documents([note(1, "rash")])
    with pytest.raises(InvalidParameterError, match="7 numbers for the question"):
        groups.prepare(QUESTION)
    groups._records._embedding = WordEmbedding()
    assert groups.draw(QUESTION) == before
    assert groups.n_units == 12


def test_drawing_while_others_write() -> None:
    groups = build(n_groups=3, docs_per_group=100)
    stop = threading.Event()
    problems: list[BaseException] = []

    def write(unit: str) -> None:
        while not stop.is_set():
            groups.add_documents([note(unit, "rash one"), note(unit, "rash two")])
            groups.delete_unit(unit)

    def read() -> None:
        for _ in range(150):
            slots = contents(groups.draw(QUESTION))
            assert len(slots) == 3
            counts = Counter(unit for slot in slots for unit, _ in slot)
            assert {counts[str(unit)] for unit in range(12)} == {4}
            assert {counts[unit] for unit in ("a", "b")} <= {0, 2}

    def guarded(work: Any, *arguments: str) -> None:
        try:
            work(*arguments)
        except BaseException as error:  # noqa: BLE001  # reported by the main thread
            problems.append(error)

    readers = [threading.Thread(target=guarded, args=(read,)) for _ in range(3)]
    writers = [threading.Thread(target=guarded, args=(write, u)) for u in ("a", "b")]
    for thread in [*readers, *writers]:
        thread.start()
    for thread in readers:
        thread.join()
    stop.set()
    for thread in writers:
        thread.join()
    assert problems == []
    assert groups.n_units == 12
