"""240 visit notes in many voices, the facts behind them, and a model's readings.

A language model wrote each note from a sheet of facts, and models read it afterwards:
what they replied is kept as it came. So what a real model reads out of free text can be
shown without a key, and checked against the facts.
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


class RecordedReader(BaseChatModel):
    r"""A chat model that has read the notes before, and says again what it said.

    It knows a note by finding it in the prompt, and needs no network. A prompt without
    a note gets a reply that fills in nothing.

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
        replies = (note["choice_card"] for note in _notes() if note["text"] in prompt)
        message = AIMessage(next(replies, '{"note": "There is no note here."}'))
        return ChatResult(generations=[ChatGeneration(message=message)])


@cache
def _notes() -> tuple[dict[str, Any], ...]:
    return tuple(map(json.loads, _text("visit_notes.jsonl").splitlines()))


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
