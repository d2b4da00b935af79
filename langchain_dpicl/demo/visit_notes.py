"""240 visit notes in many voices, the facts behind them, and a model's readings.

Everybody in them is invented. A language model wrote each note from a sheet of facts,
and models read it afterwards: what they replied is kept as it came. So what a real
model reads out of free text can be shown without a key, and checked against the facts.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any, Literal

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from typing_extensions import override

from langchain_dpicl.tabular import CategoricalColumn, TableSchema

_NOTHING_SAID = '{"note": "There is no note here."}'


def visit_notes() -> list[Document]:
    """Return the notes, one a patient: `metadata["patient_id"]` says whose it is.

    Example:
        >>> len(visit_notes()), visit_notes()[0].metadata
        (240, {'patient_id': 'c000'})
    """
    return [
        Document(one["text"], metadata={"patient_id": one["id"]}) for one in _lines()
    ]


def visit_note_facts() -> dict[str, dict[str, Any]]:
    """Return what each note was written from, by the patient's id.

    Example:
        >>> visit_note_facts()["c000"]["drug"]
        'losartan'
    """
    return {one["id"]: dict(one["facts"]) for one in _lines()}


def visit_note_schema() -> TableSchema:
    """Return the public schema: values that a model drafted from the columns' names.

    Example:
        >>> visit_note_schema().names
        ('condition', 'drug', 'side effect', 'trigger')
    """
    drafted = json.loads(_text("visit_notes.values.json"))
    return TableSchema(
        label="condition",
        columns=[
            CategoricalColumn(name=name, values=values)
            for name, values in drafted.items()
        ],
    )


class RecordedReader(BaseChatModel):
    r"""A chat model that has read the notes before, and says again what it said.

    It knows a note by finding it in the prompt, and needs no network. A prompt without
    a note gets a reply that fills in nothing.

    Args:
        replies: `choice_card`: each value was to be chosen from the schema's;
            `card`: it was to be given in the model's own words.

    Example:
        >>> note = visit_notes()[0].page_content
        >>> reply = RecordedReader().invoke(f"Read this:\n{note}").text
        >>> json.loads(reply)["side effect"]
        'none'
    """

    replies: Literal["choice_card", "card"] = "choice_card"

    @property
    @override
    def _llm_type(self) -> str:
        return "recorded-reader"

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        prompt = "\n".join(str(message.text) for message in messages)
        found = (one[self.replies] for one in _lines() if one["text"] in prompt)
        message = AIMessage(next(found, _NOTHING_SAID))
        return ChatResult(generations=[ChatGeneration(message=message)])


@cache
def _lines() -> tuple[dict[str, Any], ...]:
    return tuple(map(json.loads, _text("visit_notes.jsonl").strip().split("\n")))


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
