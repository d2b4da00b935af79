"""Calls with public prompts: ordinary LangChain calls, in sight of every observer.

Callbacks run where the caller is; only the provider's own asynchronous call runs on the
models' loop, which the groups' calls share (`sealed/model_loop.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.messages.ai import UsageMetadata, add_usage
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import Runnable, RunnableBinding, RunnableConfig
from langchain_core.runnables.config import merge_configs

from langchain_dpicl.common.replies import AnswerPieces, answer_of, usage_of
from langchain_dpicl.errors import PublicCallError
from langchain_dpicl.sealed.calls import calls_asynchronously, unwrap
from langchain_dpicl.sealed.model_loop import (
    each_on_model_loop,
    model_loop,
    on_model_loop,
)

TAGS = ["dpicl:public", "nostream", "langsmith:nostream"]
"""Tags of public calls. LangGraph streams no messages of runs with the last two.

It shows the chain's own message, which may say something else than the model said.
"""


@dataclass
class Use:
    """What one question has taken of the model, as far as that is public.

    Attributes:
        calls: Calls so far: public ones, and the padded slots of each group asking.
        usage: Tokens of the public calls, as far as the model tells them. Those of
            group calls are private, and never in here.
    """

    calls: int = 0
    usage: UsageMetadata | None = None

    def add(self, output: Any) -> None:
        """Add up the tokens of a public call's output, or of a piece of it."""
        if (usage := usage_of(output)) is not None:
            self.usage = add_usage(self.usage, usage)


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
        self,
        prompt: PromptValue,
        count: int,
        config: RunnableConfig,
        use: Use,
        *,
        drafted: bool = True,
    ) -> tuple[str, ...]:
        """Return the model's answers to the question alone.

        One answer is the model's usual one; several are drawn with variety. What is
        `drafted` is not yet the chain's answer: no token of it is streamed to anybody.

        Raises:
            PublicCallError: If the model fails.
        """
        if not count:
            return ()
        model = self._asked(count, drafted=drafted)
        use.calls += count
        try:
            found = model.batch([prompt] * count, _tagged(config))
            answers = tuple(answer_of(answer) for answer in found)
        except Exception as error:  # noqa: BLE001 - replaced by an error of ours
            failure = type(error).__name__
        else:
            self.has_answered = True
            for answer in found:
                use.add(answer)
            return answers
        raise _public_call_error(failure)

    async def aanswers(
        self,
        prompt: PromptValue,
        count: int,
        config: RunnableConfig,
        use: Use,
        *,
        drafted: bool = True,
    ) -> tuple[str, ...]:
        """Return the model's answers to the question alone; see `answers`."""
        if not count:
            return ()
        model = _on_loop(self._asked(count, drafted=drafted))
        use.calls += count
        try:
            found = await model.abatch([prompt] * count, _tagged(config))
            answers = tuple(answer_of(answer) for answer in found)
        except Exception as error:  # noqa: BLE001 - replaced by an error of ours
            failure = type(error).__name__
        else:
            self.has_answered = True
            for answer in found:
                use.add(answer)
            return answers
        raise _public_call_error(failure)

    def _asked(self, count: int, *, drafted: bool) -> Any:
        model = self._model if count == 1 else self._varied
        return _silent(model) if drafted else model

    def stream(
        self, prompt: PromptValue, config: RunnableConfig, use: Use
    ) -> Iterator[str]:
        """Yield the model's answer piece by piece.

        Raises:
            PublicCallError: If the model fails.
        """
        use.calls += 1
        try:
            pieces = AnswerPieces()
            for piece in self._model.stream(prompt, _tagged(config)):
                use.add(piece)
                if said := pieces.next(_text_of(piece)):
                    yield said
            if said := pieces.rest():
                yield said
        except Exception as error:  # noqa: BLE001 - replaced by an error of ours
            failure = type(error).__name__
        else:
            return
        raise _public_call_error(failure)

    async def astream(
        self, prompt: PromptValue, config: RunnableConfig, use: Use
    ) -> AsyncIterator[str]:
        """Yield the model's answer piece by piece; see `stream`."""
        use.calls += 1
        try:
            pieces = AnswerPieces()
            async for piece in _on_loop(self._model).astream(prompt, _tagged(config)):
                use.add(piece)
                if said := pieces.next(_text_of(piece)):
                    yield said
            if said := pieces.rest():
                yield said
        except Exception as error:  # noqa: BLE001 - replaced by an error of ours
            failure = type(error).__name__
        else:
            return
        raise _public_call_error(failure)


def _tagged(config: RunnableConfig) -> RunnableConfig:
    return merge_configs(config, {"tags": TAGS})


def _silent(model: Any) -> Any:
    """Return a copy of the model that streams no tokens."""
    if isinstance(model, RunnableBinding):
        return model.model_copy(update={"bound": _silent(model.bound)})
    if not isinstance(model, BaseChatModel) or not _can_stream(model):
        return model
    return model.model_copy(update={"disable_streaming": True})


def _can_stream(model: BaseChatModel) -> bool:
    kind = type(model)
    return (
        kind._stream is not BaseChatModel._stream  # noqa: SLF001 - overridden or not
        or kind._astream is not BaseChatModel._astream  # noqa: SLF001 - as above
    )


def _on_loop(model: Any) -> Any:
    """Return a copy of the model whose asynchronous calls run on the models' loop."""
    if isinstance(model, RunnableBinding):
        return model.model_copy(update={"bound": _on_loop(model.bound)})
    if not calls_asynchronously(model):
        return model
    own = model_loop().connected(model)
    copied = own.model_copy()
    # Attributes of the object go before its class's methods, and are no fields.
    for name, moved in _MOVED.items():
        if hasattr(own, name):
            object.__setattr__(copied, name, moved(getattr(own, name)))
    return copied


def _call(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    async def call(*args: Any, **kwargs: Any) -> Any:
        given = _at_home(kwargs)
        return await on_model_loop(partial(method, *args, **given))

    return call


def _pieces(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def pieces(*args: Any, **kwargs: Any) -> Any:
        return each_on_model_loop(partial(method, *args, **_at_home(kwargs)))

    return pieces


_MOVED = {
    "_agenerate": _call,
    "_astream": _pieces,
    "_astream_chat_model_events": _pieces,
}


def _at_home(arguments: dict[str, Any]) -> dict[str, Any]:
    manager = arguments.get("run_manager")
    return {**arguments, "run_manager": _Home(manager)} if manager else arguments


class _Home:
    """A run manager that sends its events on the caller's loop."""

    def __init__(self, manager: Any) -> None:
        self._manager, self._loop = manager, asyncio.get_running_loop()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._manager, name)
        if not asyncio.iscoroutinefunction(found):
            return found

        async def tell(*args: Any, **kwargs: Any) -> Any:
            telling = asyncio.run_coroutine_threadsafe(
                found(*args, **kwargs), self._loop
            )
            return await asyncio.wrap_future(telling)

        return tell


def _text_of(piece: Any) -> str:
    return str(piece.text) if isinstance(piece, BaseMessage) else str(piece)


def _public_call_error(failure: str) -> PublicCallError:
    return PublicCallError(
        f"The model failed on the question alone ({failure}). No record took part. "
        "Call the model by itself, model.invoke('Hello'), to see what is wrong."
    )
