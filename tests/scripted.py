"""Models and embeddings whose answers a test writes; they know nothing of the package.

A reply is a text, or an exception, which is raised. A script sees the whole prompt, and
nothing else, so that a test can make one person's record do anything to its answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import PrivateAttr

Reply = str | BaseException


def text_of(messages: Sequence[BaseMessage]) -> str:
    """Return all that a list of messages says, as one text."""
    return "\n".join(str(message.content) for message in messages)


def said(reply: Reply) -> str:
    """Return a reply, or raise it."""
    if isinstance(reply, BaseException):
        raise reply
    return reply


class ScriptedModel(BaseChatModel):
    """A chat model that answers `script(prompt)`, and keeps what it was asked.

    Args:
        script: From the whole prompt to the reply.
        seconds: How long each call takes, or a function of the prompt.
    """

    script: Callable[[str], Any] = lambda _prompt: "yes"
    seconds: Any = 0.0

    _prompts: list[str] = PrivateAttr(default_factory=list)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)
    _running: int = PrivateAttr(default=0)
    _most: int = PrivateAttr(default=0)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def prompts(self) -> list[str]:
        """What was asked so far, in the order of the calls' beginnings."""
        return self._prompts

    @property
    def most_at_once(self) -> int:
        """The most calls that ran at the same time."""
        return self._most

    def _begin(self, prompt: str) -> float:
        with self._lock:
            self._prompts.append(prompt)
            self._running += 1
            self._most = max(self._most, self._running)
        return float(self.seconds(prompt) if callable(self.seconds) else self.seconds)

    def _end(self) -> None:
        with self._lock:
            self._running -= 1

    def _result(self, prompt: str) -> ChatResult:
        message = AIMessage(content=said(self.script(prompt)))
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _generate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        prompt = text_of(messages)
        seconds = self._begin(prompt)
        try:
            if seconds:
                time.sleep(seconds)
            return self._result(prompt)
        finally:
            self._end()


class AsyncScriptedModel(ScriptedModel):
    """The same with an asynchronous call of its own."""

    async def _agenerate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        prompt = text_of(messages)
        seconds = self._begin(prompt)
        try:
            if seconds:
                await asyncio.sleep(seconds)
            return self._result(prompt)
        finally:
            self._end()


class ScriptedEmbeddings(Embeddings):
    """Embeddings that a function of the text makes; by default a hash of its words.

    Args:
        vector: From one text to its vector. Texts that share words are near each other
            where none is given.
        size: Length of the default's vectors.
    """

    def __init__(
        self, vector: Callable[[str], Sequence[float]] | None = None, size: int = 32
    ) -> None:
        self.calls: list[list[str]] = []
        self._size = size
        self._vector = vector or self._hashed

    def _hashed(self, text: str) -> list[float]:
        total = np.zeros(self._size)
        for word in text.lower().split():
            seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
            total += np.random.default_rng(seed).normal(size=self._size)
        return [float(number) for number in total / (np.linalg.norm(total) or 1.0)]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.calls.append(list(texts))
        return [list(map(float, self._vector(text))) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return list(map(float, self._vector(text)))


class ScriptedWords:
    """A language model of a few words, whose texts have no end of their own.

    Args:
        words: The vocabulary.
        likes: From a prompt's text and the tokens behind it to the words'
            probabilities, or None, or an exception that it raises.
    """

    name = "words"
    end_tokens: frozenset[int] = frozenset()

    def __init__(self, words: Sequence[str], likes: Callable[..., Any]) -> None:
        self.words, self.likes = tuple(words), likes
        # Each prompt's text, its tokens so far, and what was asked for.
        self.asked: list[tuple[str, tuple[int, ...], Any]] = []

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the words, each behind a space."""
        return "".join(f" {self.words[token]}" for token in tokens)

    def order(self, text: str, tokens: Any) -> Any:
        """Return all tokens, the likeliest first."""
        return np.argsort(-np.asarray(self.likes(text, tokens)), kind="stable")

    def logs(self, text: str, tokens: Any, wanted: Any) -> Any:
        """Return the logarithms of probabilities, of all tokens or of some."""
        self.asked.append((text, tokens, wanted))
        row = self.likes(text, tokens)
        if row is None:
            return None
        with np.errstate(divide="ignore"):
            found = np.log(np.asarray(row, float))
        return found if wanted is None else found[wanted]
