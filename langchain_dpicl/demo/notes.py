"""Visit notes and conversations in many voices, and what a model read in them.

A language model wrote each of 240 notes from a sheet of facts, and 300 people's
conversations with the assistant of a health insurer from a list of topics. Models read
them afterwards: what they replied is kept as it came. So what a real model reads out of
free text can be shown without a key, and checked against the facts.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from langchain_dpicl.tabular import CategoricalColumn, TableSchema


def visit_notes() -> list[Document]:
    """Return the notes, one a patient: `metadata["patient_id"]` says whose it is.

    Example:
        >>> len(visit_notes()), visit_notes()[0].metadata
        (240, {'patient_id': 'c000'})
    """
    return [
        Document(note["text"], metadata={"patient_id": note["id"]}) for note in _notes()
    ]


def visit_note_schema() -> TableSchema:
    """Return the public schema: values that a model drafted from the columns' names.

    Example:
        >>> visit_note_schema().names
        ('condition', 'drug', 'side effect', 'trigger')
    """
    drafted = json.loads(_text("visit_notes.values.json")).items()
    columns = [CategoricalColumn(name=name, values=values) for name, values in drafted]
    return TableSchema(label="condition", columns=columns)


def insurance_chats() -> list[dict[str, Any]]:
    """Return what people said to an insurer's assistant: user and chats, one a person.

    Example:
        >>> chats = insurance_chats()
        >>> len(chats), chats[0]["user"], chats[0]["chats"][0][-1]["text"]
        (300, 'ia001', 'ok will call them tmrw')
    """
    return [{name: one[name] for name in ("user", "chats")} for one in _chats()]


class RecordedReader(BaseChatModel):
    r"""A chat model that has read the notes and chats before, and repeats its replies.

    It knows a text by finding it in the prompt, and needs no network. A prompt without
    one gets a reply that fills in nothing. Of a person's chats it names the topics that
    the prompt lists, and as "other" one that it does not list.

    Example:
        >>> note = visit_notes()[0].page_content
        >>> reply = RecordedReader().invoke(f"Read this:\n{note}").text
        >>> json.loads(reply)["side effect"]
        'none'
    """

    @property
    def _llm_type(self) -> str:
        return "recorded-reader"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - LangChain's signature.
        run_manager: Any = None,  # noqa: ARG002
        **_: Any,
    ) -> ChatResult:
        prompt = "\n".join(message.text for message in messages)
        replies = [note["choice_card"] for note in _notes() if note["text"] in prompt]
        replies += [_named(one, prompt) for one in _chats() if _longest(one) in prompt]
        reply = replies[0] if replies else '{"note": "There is no note here."}'
        return ChatResult(generations=[ChatGeneration(message=AIMessage(reply))])


def _named(person: dict[str, Any], prompt: str) -> str:
    """Return a person's topics: those that a prompt lists, and another one."""
    listed = [name for name in person["yes"] if f"\n- {name}\n" in prompt]
    others = [f"other: {name}" for name in person["yes"] if name not in listed]
    return "\n".join([*listed, *others[:1]])


def _longest(person: dict[str, Any]) -> str:
    said = (str(one["text"]) for chat in person["chats"] for one in chat)
    return max(said, key=len)


@cache
def _notes() -> tuple[dict[str, Any], ...]:
    return tuple(map(json.loads, _text("visit_notes.jsonl").splitlines()))


@cache
def _chats() -> tuple[dict[str, Any], ...]:
    return tuple(map(json.loads, _text("chats.jsonl").splitlines()))


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
