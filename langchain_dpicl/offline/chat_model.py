"""The offline chat model: answers by extraction, without a download or a key."""

from __future__ import annotations

import asyncio
import math
import re
import secrets
import time
from random import Random
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from pydantic import ConfigDict, Field, NonNegativeFloat

from langchain_dpicl.offline.classify import label_prior, label_scores, tie_break
from langchain_dpicl.offline.extract import candidates, option_support
from langchain_dpicl.offline.followup import MARKER, standalone
from langchain_dpicl.offline.question import understand
from langchain_dpicl.offline.reading import Reading, read

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from langchain_core.callbacks import (
        AsyncCallbackManagerForLLMRun,
        CallbackManagerForLLMRun,
    )
    from langchain_core.messages import BaseMessage

UNKNOWN = "I don't know."
"""What the model says when the prompt holds nothing on the question."""

_CHUNK = re.compile(r"\S+\s*|\s+")


class OfflineChatModel(BaseChatModel):
    r"""An extractive chat model: a stand-in to try things out, not a language model.

    It reads the prompt by the markers of this library's prompts and of common RAG
    prompts, and answers

    * from records (`Records:` or `Context:`) with the sentence about the question's
      subject whose content most of the records on that subject share;
    * from labeled exemplars (`Text:`, `Label:`) with the label of the nearest ones,
      mixed with a prior that looks at the labels' names only; without exemplars
      (`Labels: a, b`) by this prior, ties broken by a hash of the text;
    * from options (`Options: a, b`) and records with the option that most records
      on the subject state, or that it does not know where none states any; without
      records with the option whose name the question holds, else the first, or a
      random one at a temperature above 0;
    * from word suggestions with a sentence made of them;
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
        text, usage = self._reply(messages, stop, kwargs)
        message = AIMessage(
            content=text,
            usage_metadata=usage,
            response_metadata={"model_name": self.model_name, "finish_reason": "stop"},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _chunks(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None,
        kwargs: dict[str, Any],
    ) -> Iterator[ChatGenerationChunk]:
        text, usage = self._reply(messages, stop, kwargs)
        for piece in _CHUNK.findall(text):
            yield ChatGenerationChunk(message=AIMessageChunk(content=piece))
        yield ChatGenerationChunk(
            message=AIMessageChunk(
                content="",
                usage_metadata=usage,
                response_metadata={
                    "model_name": self.model_name,
                    "finish_reason": "stop",
                },
                chunk_position="last",
            )
        )

    def _reply(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None,
        kwargs: dict[str, Any],
    ) -> tuple[str, UsageMetadata]:
        system = "\n\n".join(m.text for m in messages if m.type == "system")
        human = "\n\n".join(m.text for m in messages if m.type in {"human", "chat"})
        temperature = kwargs.get("temperature")
        choose = _Chooser(
            self.temperature if temperature is None else float(temperature),
            kwargs.get("seed", self.seed),
            f"{system}\0{human}",
        )
        if MARKER in system:
            text = standalone([m.text for m in messages if m.type == "human"])
        else:
            text = _answer(read(system, human), choose)
        for mark in stop or ():
            text = text.split(mark, 1)[0] if mark else text
        read_words = sum(len(message.text.split()) for message in messages)
        said_words = len(text.split())
        usage = UsageMetadata(
            input_tokens=read_words,
            output_tokens=said_words,
            total_tokens=read_words + said_words,
        )
        return text, usage


class _Chooser:
    """Takes the best of scored things, or draws one at a temperature above 0."""

    def __init__(self, temperature: float, seed: int | None, prompt: str) -> None:
        self.temperature = temperature
        self._seed = seed
        self._prompt = prompt

    def _seeded(self) -> Random:
        name = f"{self._seed}\0{self._prompt}".encode("utf-8", "surrogatepass")
        return Random(name)  # noqa: S311 - the model's own variety; nothing private hangs on it.

    def __call__(self, scores: Sequence[float], *, ties: Sequence[bytes] = ()) -> int:
        """Return an index; `ties` orders equal best scores, else the first wins."""
        best = max(scores)
        if self.temperature > 0:
            weights = [math.exp((score - best) / self.temperature) for score in scores]
            random = secrets.SystemRandom() if self._seed is None else self._seeded()
            return random.choices(range(len(scores)), weights)[0]
        equal = [at for at, score in enumerate(scores) if score >= best - 1e-12]
        return min(equal, key=lambda at: ties[at]) if ties else equal[0]


def _answer(prompt: Reading, choose: _Chooser) -> str:
    if prompt.suggestions:
        return f"The records point to: {', '.join(prompt.suggestions)}."
    if prompt.labeling:
        return _label(prompt, choose) if prompt.labels else UNKNOWN
    choices = prompt.options or prompt.labels
    if choices:
        return _option(prompt, choices, choose)
    found = candidates(understand(prompt.question), prompt.records)
    if not found:
        return UNKNOWN
    return found[choose([candidate.score for candidate in found])].text


def _label(prompt: Reading, choose: _Chooser) -> str:
    scores = label_scores(prompt.question, prompt.labels, prompt.exemplars)
    ties = [tie_break(prompt.question, label) for label in prompt.labels]
    return prompt.labels[choose(scores, ties=ties)]


def _option(prompt: Reading, choices: tuple[str, ...], choose: _Chooser) -> str:
    if not prompt.records:
        return choices[choose(label_prior(prompt.question, choices))]
    counts = option_support(understand(prompt.question), prompt.records, choices)
    if not any(counts):
        return UNKNOWN
    total = sum(counts)
    # A draw never takes an option that no record states.
    stated = [at for at, count in enumerate(counts) if count]
    return choices[stated[choose([counts[at] / total for at in stated])]]
