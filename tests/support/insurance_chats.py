"""300 invented people's conversations with a health insurer's assistant, and readings.

`demo/chats.jsonl` of the package, one person a line: `user`, `chats`, the `topics` that
the writer meant, a `private` detail that only this person has, and how another reading
answered: `yes`, the listed topics that it found, and `keywords` of its own.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from langchain_core.documents import Document
from scripted import ScriptedModel

PATH = resources.files("langchain_dpicl.demo") / "chats.jsonl"
FORMS = (
    "{}",
    "- {}",
    "* **{}**",
    "{n}. {}",
    "{n}) {}.",
    "\u2022 {}",
    "{} (asked twice)",
    '"{}",',
)
"""How replies write one topic of a line."""


@cache
def people() -> list[dict[str, Any]]:
    """Return all people."""
    return [json.loads(line) for line in PATH.read_text("utf-8").splitlines()]


def names() -> list[str]:
    """Return the thirty topics that were meant, by the alphabet."""
    return sorted({topic for person in people() for topic in person["topics"]})


def text_of(person: dict[str, Any]) -> str:
    """Return a person's conversations as one text."""
    chats = (
        "\n".join(f"{turn['role']}: {turn['text']}" for turn in chat)
        for chat in person["chats"]
    )
    return "\n\n".join(chats)


def documents() -> list[Document]:
    """Return a document for each person."""
    return [
        Document(text_of(person), metadata={"user": person["user"]})
        for person in people()
    ]


def reply_of(person: dict[str, Any]) -> str:
    """Return the replayed reply: what was found, in one of the forms of replies."""
    number = int(person["user"][2:])
    form = FORMS[number % len(FORMS)]
    found = person["yes"] or ["other: " + (person["keywords"] or ["something"])[0]]
    cased = [topic.title() if number % 3 == 0 else topic for topic in found]
    return "\n".join(form.format(topic, n=n + 1) for n, topic in enumerate(cased))


def replaying(**fields: Any) -> ScriptedModel:
    """Return a model that replays the reading of the one person in a prompt."""
    known = {text_of(person): reply_of(person) for person in people()}

    def script(prompt: str) -> str:
        return next((reply for text, reply in known.items() if text in prompt), "none")

    return ScriptedModel(script=script, **fields)
