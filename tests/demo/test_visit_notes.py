"""The written notes: what they hold, and that the recorded reader replays them."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest

from langchain_dpicl.demo import (
    RecordedReader,
    visit_note_facts,
    visit_note_schema,
    visit_notes,
)
from langchain_dpicl.tabular import TextRows

# A fact's wording, where a value of the public schema says the same in other words.
MEANT = {
    "hoarse voice": "hoarseness",
    "sumatriptan only": "sumatriptan",
    "tingling in the hands": "tingling",
    "swollen ankles": "swelling",
    "fast heartbeat": "palpitations",
    "trouble finding words": "word-finding trouble",
    "sweet drinks": "sweet food or drinks",
    "conflict at home": "family conflict",
    "red wine": "alcohol",
    "cats": "animals",
    "stress at work": "stress",
    "skipped doses": "missed medication",
    "isolation": "loneliness",
    "not mentioned": "unknown",
}
Replies = Literal["choice_card", "card"]


def test_there_is_a_note_for_each_patient_with_the_facts_behind_it() -> None:
    notes, facts = visit_notes(), visit_note_facts()
    ids = [note.metadata["patient_id"] for note in notes]
    assert len(set(ids)) == len(notes) == 240
    assert facts.keys() == set(ids)
    texts = [note.page_content for note in notes]
    assert not any(one in other for one in texts for other in texts if one != other)


def test_the_reader_says_what_was_recorded_and_nothing_without_a_note() -> None:
    note = visit_notes()[4].page_content
    said = json.loads(RecordedReader().invoke(f"Read:\n{note}\nJSON:").text)
    assert said.keys() == set(visit_note_schema().names)
    assert set(said).isdisjoint(json.loads(RecordedReader().invoke("Hello").text))


def cells(replies: Replies) -> dict[str, list[tuple[Any, Any]]]:
    """Return for each column what was read of each note, beside the fact."""
    rows = TextRows(
        visit_notes(),
        visit_note_schema(),
        RecordedReader(replies=replies),
        unit_key="patient_id",
    )
    found: dict[str, list[tuple[Any, Any]]] = {}
    for row, (_, facts) in zip(rows, sorted(visit_note_facts().items()), strict=True):
        for name, value in row.items():
            fact = facts[name.replace(" ", "_")]
            found.setdefault(name, []).append((value, MEANT.get(fact, fact)))
    return found


def right(pairs: list[tuple[Any, Any]]) -> float:
    told = [value == fact for value, fact in pairs if fact != "unknown"]
    return told.count(True) / len(told)


@pytest.mark.parametrize(
    ("replies", "least"),
    [
        (
            "choice_card",
            {"condition": 1, "drug": 1, "side effect": 0.99, "trigger": 0.95},
        ),
        # In the model's own words, of which many are none of the values: unknown.
        ("card", {"condition": 0.9, "drug": 0.98, "side effect": 0.78, "trigger": 0.3}),
    ],
)
def test_the_rows_are_the_facts(replies: Replies, least: dict[str, float]) -> None:
    found = cells(replies)
    shares = {name: round(right(pairs), 3) for name, pairs in found.items()}
    assert all(shares[name] >= share for name, share in least.items()), shares
    wrong = [
        pair
        for pairs in found.values()
        for pair in pairs
        if pair[1] != "unknown" and pair[0] not in (pair[1], "unknown")
    ]
    assert wrong == []
