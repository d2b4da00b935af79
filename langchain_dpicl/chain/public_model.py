"""Calls with public prompts: ordinary LangChain calls, in sight of every observer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable, RunnableConfig

from langchain_dpicl.exceptions import PublicCallError
from langchain_dpicl.sealed.calls import unwrap


class PublicModel:
    """The chain's model, asked what anybody may see asked.

    Args:
        model: The model.
    """

    has_answered: bool = False
    """Whether it has answered before: until then a key or URL may be wrong."""

    def __init__(self, model: Any) -> None:
        self._model: Runnable[Any, Any] = model
        base, bound = unwrap(model)
        # Candidates must differ from each other: no cache that repeats the first one,
        # and a temperature above 0 where the model has one.
        changes: dict[str, Any] = {"cache": False}
        if not getattr(base, "temperature", 1.0) and "temperature" not in bound:
            changes["temperature"] = 1.0
        self._varied: Runnable[Any, Any] = base.model_copy(update=changes).bind(**bound)

    def answers(
        self, prompt: PromptValue, count: int, config: RunnableConfig
    ) -> tuple[str, ...]:
        """Return the model's answers to the question alone.

        One answer is the model's usual one; several are drawn with variety.

        Raises:
            PublicCallError: If the model fails.
        """
        if not count:
            return ()
        model = self._model if count == 1 else self._varied
        try:
            found = model.batch([prompt] * count, config)
        except Exception as error:  # noqa: BLE001 - replaced by an error of ours
            failure = type(error).__name__
        else:
            self.has_answered = True
            return tuple(text_of(answer) for answer in found)
        raise _public_call_error(failure)

    async def aanswers(
        self, prompt: PromptValue, count: int, config: RunnableConfig
    ) -> tuple[str, ...]:
        """Return the model's answers to the question alone; see `answers`."""
        if not count:
            return ()
        model = self._model if count == 1 else self._varied
        try:
            found = await model.abatch([prompt] * count, config)
        except Exception as error:  # noqa: BLE001 - replaced by an error of ours
            failure = type(error).__name__
        else:
            self.has_answered = True
            return tuple(text_of(answer) for answer in found)
        raise _public_call_error(failure)

    def stream(self, prompt: PromptValue, config: RunnableConfig) -> Iterator[str]:
        """Yield the model's answer piece by piece.

        Raises:
            PublicCallError: If the model fails.
        """
        try:
            for piece in self._model.stream(prompt, config):
                yield text_of(piece)
        except Exception as error:  # noqa: BLE001 - replaced by an error of ours
            failure = type(error).__name__
        else:
            return
        raise _public_call_error(failure)

    async def astream(
        self, prompt: PromptValue, config: RunnableConfig
    ) -> AsyncIterator[str]:
        """Yield the model's answer piece by piece; see `stream`."""
        try:
            async for piece in self._model.astream(prompt, config):
                yield text_of(piece)
        except Exception as error:  # noqa: BLE001 - replaced by an error of ours
            failure = type(error).__name__
        else:
            return
        raise _public_call_error(failure)


def text_of(output: Any) -> str:
    """Return the text of a chat model's or a completion model's output."""
    return str(output.text) if isinstance(output, BaseMessage) else str(output)


def _public_call_error(failure: str) -> PublicCallError:
    return PublicCallError(
        f"The model failed on the question alone ({failure}). No record took part. "
        "Call the model by itself, model.invoke('Hello'), to see what is wrong."
    )
