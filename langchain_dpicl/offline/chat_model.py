"""The offline chat model: answers by extraction, without a download or a key."""

from __future__ import annotations

import asyncio
import math
import re
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import ConfigDict, Field, NonNegativeFloat

from langchain_dpicl.offline.answering import answer
from langchain_dpicl.offline.cards import filled_in
from langchain_dpicl.offline.reading import CONDENSING, read, standalone

_CHUNK = re.compile(r"\S+\s*|\s+")


class OfflineChatModel(BaseChatModel):
    r"""An extractive chat model: a stand-in to try things out, not a language model.

    It reads the prompt by the markers of this library's prompts and of common RAG
    prompts, and answers

    * from records (`Records:` or `Context:`) with a sentence, out of those that hold
      the question's words, whose other words most such records share;
    * from labeled exemplars (`Text:`, `Label:`) with the label of the nearest ones, by
      words, or by facts where all are rows of a table ("The age is 37."); without
      exemplars (`Labels: a, b`) with the label whose name the text holds, ties broken
      by a hash of the text;
    * from options (`Options: a, b`) and records with the option that most records
      on the subject state; where none states any, with "none of these" if that is an
      option, else that it does not know; without records, and without that option, with
      the one whose name the question holds, else the first, or a random one at a
      temperature above 0;
    * to a request to list possible answers with one a line of a small public list (side
      effects, drugs, triggers, sports, ...), or that it can't list them;
    * from word suggestions with a sentence made of them;
    * to a request to rewrite a follow-up question with the question before, its words
      replaced where the follow-up names others;
    * from nothing: that it does not know.

    A temperature above 0 draws the answer from a softmax of the scores divided by the
    temperature. The same prompt and `seed` give the same answer in every process;
    without a seed, draws differ. This randomness has no part in any privacy
    guarantee.

    Example:
        >>> model = OfflineChatModel()
        >>> prompt = (
        ...     "Records:\nAnn got a cough from iron.\n\nBo has a rash from zinc.\n\n"
        ...     "Question: Which side effect do patients on iron report?\nAnswer:"
        ... )
        >>> model.invoke(prompt).content
        'Ann got a cough from iron.'
        >>> model.invoke("Which side effect do patients report?").content
        "I don't know."
    """

    model_config = ConfigDict(populate_by_name=True)

    temperature: NonNegativeFloat = 0.0
    """How much answers vary; 0 always takes the best-scored one."""

    seed: int | None = None
    """Makes the draws of a temperature above 0 repeatable, per prompt."""

    latency: NonNegativeFloat = 0.0
    """Seconds to wait per call, to imitate a remote model in benchmarks."""

    model_name: str = Field(default="offline-extractive", alias="model")
    """The name that is shown in metadata and traces."""

    @property
    def _llm_type(self) -> str:
        return "langchain-dpicl-offline"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {
            "model_name": self.model_name,
            "temperature": self.temperature,
            "seed": self.seed,
        }

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002 - LangChain's signature.
        **kwargs: Any,
    ) -> ChatResult:
        if self.latency:
            time.sleep(self.latency)
        return self._result(messages, stop, kwargs)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002 - LangChain's signature.
        **kwargs: Any,
    ) -> ChatResult:
        if self.latency:
            await asyncio.sleep(self.latency)
        return self._result(messages, stop, kwargs)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        if self.latency:
            time.sleep(self.latency)
        for chunk in self._chunks(messages, stop, kwargs):
            if run_manager:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        if self.latency:
            await asyncio.sleep(self.latency)
        for chunk in self._chunks(messages, stop, kwargs):
            if run_manager:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    def _result(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None,
        kwargs: dict[str, Any],
    ) -> ChatResult:
        text, told = self._reply(messages, stop, kwargs)
        message = AIMessage(content=text, **told)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _chunks(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None,
        kwargs: dict[str, Any],
    ) -> Iterator[ChatGenerationChunk]:
        text, told = self._reply(messages, stop, kwargs)
        for piece in _CHUNK.findall(text):
            yield ChatGenerationChunk(message=AIMessageChunk(content=piece))
        last = AIMessageChunk(content="", chunk_position="last", **told)
        yield ChatGenerationChunk(message=last)

    def _reply(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None,
        kwargs: dict[str, Any],
    ) -> tuple[str, dict[str, Any]]:
        """Return the answer, and its usage and metadata."""
        system = "\n\n".join(m.text for m in messages if m.type == "system")
        asked = [m.text for m in messages if m.type in {"human", "chat"}]
        human = "\n\n".join(asked)
        if CONDENSING in system:
            text = standalone(asked)
        elif (card := filled_in(human)) is not None:
            text = card
        else:
            given = kwargs.get("temperature")
            temperature = self.temperature if given is None else float(given)
            seed = kwargs.get("seed", self.seed)
            # No part of any privacy guarantee: the model's own variety.
            name = f"{seed}\0{system}\0{human}".encode("utf-8", "surrogatepass")
            random = secrets.SystemRandom() if seed is None else Random(name)  # noqa: S311 - as above.
            choose = partial(_choice, temperature=temperature, random=random)
            text = answer(read(system, human), choose)
        for mark in filter(None, stop or ()):
            text = text.split(mark, 1)[0]
        words_read = sum(len(message.text.split()) for message in messages)
        words_said = len(text.split())
        usage = {
            "input_tokens": words_read,
            "output_tokens": words_said,
            "total_tokens": words_read + words_said,
        }
        metadata = {"model_name": self.model_name, "finish_reason": "stop"}
        return text, {"usage_metadata": usage, "response_metadata": metadata}


def _choice(scores: Sequence[float], *, temperature: float, random: Random) -> int:
    """Return the place of the best score, or of a draw at a temperature above 0."""
    best = max(scores)
    if temperature > 0:
        weights = [math.exp((score - best) / temperature) for score in scores]
        return random.choices(range(len(scores)), weights)[0]
    # Of equals, which rounding may tell apart, the first.
    return next(at for at, score in enumerate(scores) if score >= best - 1e-12)
