"""Open columns: what a reply names outside the list, by a rule about that reply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.table_parts import account
from support.text_parts import MOODS, TOPICS, Reader, complaint, text_rows

from langchain_dpicl.tabular import CategoricalColumn, GDPTable, TableSchema
from langchain_dpicl.tabular.text.card import Card
from langchain_dpicl.tabular.text.opened import names_in, names_of
from langchain_dpicl.tabular.text.reading import read_named, read_reply


def schema(max_items: int = 2, **terms: Any) -> TableSchema:
    topic = CategoricalColumn(
        name="topic", values=TOPICS, open=True, max_items=max_items, **terms
    )
    mood = CategoricalColumn(name="mood", values=MOODS)
    return TableSchema(label="mood", columns=[topic, mood])


CARD = Card.of(schema())


def reply(topic: Any) -> str:
    return json.dumps({"topic": topic, "mood": "calm"})


@pytest.mark.parametrize(
    ("said", "value", "named"),
    [
        ("other: Dirty seats", "unknown", ["dirty seat"]),
        ("dirty seats", "unknown", ["dirty seat"]),
        ("Others - dirty seats; no heating; a rude conductor", "unknown", "ds,rc"),
        ("dirty seats, rude conductor, broken doors", "unknown", "ds,rc"),
        (["late train", "other: dirty seats"], "late train", ["dirty seat"]),
        (["dirty seats", "dirty seat", "rude conductor"], "unknown", "ds,rc"),
        ("other: late train", "late train", []),
        ("other: the late train", "unknown", []),
        ("other: dirty seats, late train", "unknown", ["dirty seat"]),
        ("Late trains", "late train", []),
        ("unknown", "unknown", []),
        ("other", "unknown", []),
        ("other: ...", "unknown", []),
        ("other: various", "unknown", []),
        ("not mentioned", "unknown", []),
        ("none of these", "unknown", []),
        ("none", "unknown", []),
        ("No complaints", "unknown", []),
        ("I'm sorry, I can't help with that.", "unknown", []),
        ("null", "unknown", []),
        ("other: n/a", "unknown", []),
        ("the seats were dirty and it smelled of fish all day", "unknown", []),
        (f"other: {'x' * 70}", "unknown", []),
        (None, "unknown", []),
        (7, "unknown", []),
    ],
)
def test_what_a_reply_names(said: Any, value: str, named: Any) -> None:
    expected = ["dirty seat", "rude conductor"] if named == "ds,rc" else named
    for text in (reply(said), f"```json\n{reply(said)}\n```"):
        assert read_reply(text, CARD)["topic"] == value
        assert read_named(text, CARD).get("topic", []) == expected


def test_a_line_of_prose_names_too() -> None:
    text = "Topic: late train, or not.\nTopic: other: dirty seats\nMood: calm"
    assert read_named(text, CARD) == {"topic": ["dirty seat"]}
    assert read_named("I think it is about dirty seats.", CARD) == {}


def test_where_there_is_a_category_for_others_it_is_the_value() -> None:
    card = Card.of(schema(other="lost luggage"))
    text = reply("other: dirty seats")
    assert read_reply(text, card)["topic"] == "lost luggage"
    assert read_named(text, card) == {"topic": ["dirty seat"]}


@settings(max_examples=200, deadline=None)
@given(st.text() | st.lists(st.text()), st.booleans())
def test_no_reply_names_more_than_it_may(said: Any, is_json: bool) -> None:
    text = reply(said) if is_json else f"topic: {said}"
    names = read_named(text, CARD).get("topic", [])
    assert len(names) == len(set(names)) <= 2
    assert all(1 <= len(name) <= 60 and name == name.casefold() for name in names)
    # The same by itself as after any other one: nothing is kept between replies.
    assert read_named(text, CARD).get("topic", []) == names


def test_the_prompt_invites_only_where_a_column_is_open() -> None:
    topic, mood = CARD.lines.splitlines()
    assert '"other: " and one to three words for any other, at most 2' in topic
    assert topic.endswith('or "unknown"')
    assert "other" not in mood
    assert "at most" not in Card.of(schema(1)).lines
    properties = CARD.json_schema["properties"]
    assert properties["topic"] == {"type": "string"}
    assert properties["mood"]["enum"]


def answers(**topics: Any) -> Reader:
    """Return a model that answers by what a record says."""
    return Reader(
        reply=lambda text: reply(
            next(
                (topic for key, topic in topics.items() if key in text),
                "late train",
            )
        )
    )


def test_rows_carry_what_is_named_to_the_table(tmp_path: Path) -> None:
    documents = [
        complaint(n, more=" Seats!" if n % 2 else " Fish!") for n in range(160)
    ]
    documents[3] = complaint(3, more=" Doors!")
    model = answers(Seats="other: dirty seats", Doors="other: broken doors")
    rows = text_rows(documents, model, schema=schema())
    assert {row["topic"] for row in rows} == {"unknown", "late train"}
    made = GDPTable(rows, rows.schema, measure=["topic"], budget=account()).release()
    assert made.statistics.open_values("topic") == ("dirty seat",)
    assert "door" not in repr(rows)


def test_parts_are_merged_and_kept_in_the_private_file(tmp_path: Path) -> None:
    file = tmp_path / "private.jsonl"
    documents = [
        complaint(5, more=f" {word}!" + "." * 150)
        for word in ("Seats", "Late", "Doors", "Fish")
    ]
    model = answers(Seats="dirty seats", Doors="broken doors, rude", Fish="smell")
    terms = {"schema": schema(), "max_characters": 200, "file": file}
    ((first, named),) = text_rows(documents, model, **terms)._named_rows()
    assert first["topic"] == "late train"
    topic: Any = CARD.schema.column("topic")
    assert len(names_of(topic, first["topic"], named["topic"])) == 2
    silent = Reader()
    ((_, again),) = text_rows(documents, silent, **terms)._named_rows()
    assert silent.asked == []
    assert again == named
    # What is no reading of this schema is not taken out of the file.
    lines = file.read_text().splitlines()
    broken = [
        line.replace('{"topic": [', '{"mood": [').replace('"dirty seat"', "7")
        for line in lines
    ]
    assert broken != lines
    file.write_text("\n".join(broken) + "\n")
    reader = answers()
    list(text_rows(documents, reader, **terms))
    assert len(reader.asked) == sum('"": ' in line for line in lines)


def test_a_cell_of_a_plain_table_names_itself() -> None:
    topic: Any = CARD.schema.column("topic")
    cells = ["late train", "Dirty seats", " ", None, 7, "Late Trains", [], "no seat"]
    found = [names_of(topic, cell) for cell in cells]
    assert found == [(), ("dirty seat",), (), (), ("7",), (), (), ()]
    assert names_in(topic, "\ud800") == ()
