"""Made-up complaints, their schema, and models that read them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from langchain_core.documents import Document

from langchain_dpicl.tabular import CategoricalColumn, TableSchema, TextRows
from support.fakes import AsyncScriptedModel, ScriptedModel

TOPICS = ("late train", "ticket price", "lost luggage")
MOODS = ("angry", "calm")


def complaints_schema(**changes: Any) -> TableSchema:
    columns = {
        "topic": CategoricalColumn(name="topic", values=TOPICS),
        "mood": CategoricalColumn(name="mood", values=MOODS),
    }
    columns.update(changes)
    return TableSchema(label="topic", columns=list(columns.values()))


def complaint(number: int, more: str = "") -> Document:
    """Return a complaint whose row follows from its number."""
    topic, mood = TOPICS[number % 3], MOODS[number % 2]
    text = f"Traveler {number} is {mood} about: {topic}.{more}"
    return Document(text, metadata={"who": f"person-{number:03}", "day": number})


def complaints(count: int) -> list[Document]:
    return [complaint(number) for number in range(count)]


def row(number: int) -> dict[str, str]:
    return {"topic": TOPICS[number % 3], "mood": MOODS[number % 2]}


def choose(prompt: str) -> str:
    """Answer as a model does that reads the records well."""
    records = prompt.partition("Records:")[2]
    told = {
        name: next((value for value in values if value in records), "unknown")
        for name, values in (("topic", TOPICS), ("mood", MOODS))
    }
    return json.dumps(told)


class Reader(ScriptedModel):
    """Reads complaints, and remembers which ones it was asked about."""

    reply: Callable[[str], str] = choose
    tag: str = "reader"

    @property
    def asked(self) -> list[str]:
        """The prompts about records, and not the trial's."""
        return [text for text in super().asked if "Traveler" in text]


class AsyncReader(Reader, AsyncScriptedModel):
    """The same with an asynchronous call of its own."""


def text_rows(documents: list[Document], model: Any = None, **terms: Any) -> TextRows:
    schema = terms.pop("schema", complaints_schema())
    return TextRows(
        documents, schema, Reader() if model is None else model, unit_key="who", **terms
    )
