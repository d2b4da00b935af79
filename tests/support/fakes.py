"""Models and corpora that several test files use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import PrivateAttr


class ScriptedModel(BaseChatModel):
    """Answers with `reply(prompt text)`, and remembers what it was asked."""

    reply: Callable[[str], str] = lambda _text: "yes"

    _asked: list[str] = PrivateAttr(default_factory=list)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def asked(self) -> list[str]:
        return self._asked

    def _generate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        text = str(messages[-1].content)
        with self._lock:
            self._asked.append(text)
        message = AIMessage(content=self.reply(text))
        return ChatResult(generations=[ChatGeneration(message=message)])


class AsyncScriptedModel(ScriptedModel):
    """The same with an asynchronous call of its own."""

    async def _agenerate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        return self._generate(messages)


def notes(
    count: int = 300, text: str = "Lisinopril gave a dry cough."
) -> list[Document]:
    return [
        Document(f"{text} Note {i}.", metadata={"patient": f"unit-{i}"})
        for i in range(count)
    ]
