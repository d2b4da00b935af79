"""The slots of a draw as an audit compares them: by their prompts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.prompt_values import PromptValue

from langchain_dpicl.question import PrivateQuestion

Place = tuple[int, str]
"""A slot's number and its prompt. Private."""

Places = Counter[Place]
UNWRITTEN = "\0unwritten"
"""The prompt of a group whose records can't be written into one."""


class Prompts:
    """From the groups of a draw to their prompts; what was written once is kept."""

    def __init__(self, asked: PrivateQuestion) -> None:
        self._asked = asked
        self._texts: dict[Any, str] = {}
        self.known: dict[str, PromptValue | None] = {UNWRITTEN: None}

    def places(self, drawn: Sequence[Sequence[Document]]) -> Places:
        """Return the places of a draw that hold records, each with its prompt."""
        keys = [_key(documents) for documents in drawn]
        new = {
            key: documents
            for key, documents in zip(keys, drawn, strict=True)
            if documents and key not in self._texts
        }
        if new:
            made = self._asked.prompts(list(new.values()))
            for key, prompt in zip(new, made, strict=True):
                text = UNWRITTEN if prompt is None else prompt.to_string()
                self._texts[key] = text
                self.known[text] = prompt
        return Counter(
            (number, self._texts[key]) for number, key in enumerate(keys) if key
        )


def _key(documents: Sequence[Document]) -> tuple[Any, ...]:
    return tuple((one.id, one.page_content, repr(one.metadata)) for one in documents)
