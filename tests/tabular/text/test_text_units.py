"""A unit's row depends on that unit's records alone; twins break the rule."""

from __future__ import annotations

from langchain_core.documents import Document
from support.text_parts import (
    Reader,
    choose,
    complaint,
    complaints_schema,
    row,
    text_rows,
)

from langchain_dpicl.tabular import CategoricalColumn


def reply(prompt: str) -> str:
    """Answer well, or fail for a record that asks for it."""
    if "Fail." in prompt:
        raise RuntimeError(prompt)
    return choose(prompt)


def test_records_are_ordered_by_what_they_say_of_themselves() -> None:
    records = [complaint(n) for n in (10, 9, 11)]
    for record in records:
        record.metadata["who"] = "one"
    model = Reader()
    list(text_rows(records, model, order_key="day"))
    (prompt,) = model.asked
    days = [int(word) for word in prompt.split() if word.isdigit()]
    assert days == [9, 10, 11]


def test_of_parts_the_first_value_told_counts() -> None:
    texts = ["Nothing here. Traveler 1", "late train", "ticket price", "ticket price"]
    documents = [
        Document(text.ljust(90, "."), metadata={"who": "one", "day": day})
        for day, text in enumerate(texts)
    ]
    model = Reader()
    rows = text_rows(documents, model, order_key="day", max_characters=100)
    assert list(rows) == [{"topic": "late train", "mood": "unknown"}]
    assert len(model._asked) == 5


def test_none_in_one_part_hides_no_value_of_another() -> None:
    schema = complaints_schema(
        mood=CategoricalColumn(name="mood", values=["angry", "calm", "none"])
    )

    def part(prompt: str) -> str:
        return '{"mood": "calm"}' if "Day 1" in prompt else '{"mood": "none"}'

    documents = [
        Document(f"Day {day}".ljust(90, "."), metadata={"who": "one"})
        for day in range(3)
    ]
    rows = text_rows(documents, Reader(reply=part), schema=schema, max_characters=100)
    assert [each["mood"] for each in rows] == ["calm"]


def test_a_part_that_fails_leaves_the_others() -> None:
    documents = [
        complaint(4, more.ljust(60, ".")) for more in (" A.", " B. Fail.", " C.")
    ]
    rows = text_rows(documents, Reader(reply=reply), max_characters=120)
    assert list(rows) == [row(4)]
    assert rows.failed == 1
