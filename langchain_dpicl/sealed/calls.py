"""Calling a model with private prompts: one call a prompt, no observer, no failure.

`_generate` is part of the documented contract of `BaseChatModel` and `BaseLLM`: the
method that providers implement. Calling it directly skips callbacks, tracers, the LLM
cache, `set_debug` output and streaming events, which all live in the methods around it,
and keeps the provider's own retries, time-outs and bound arguments.
"""

from __future__ import annotations

# ruff: noqa: SLF001 - `_generate` is the documented contract; this is its one caller.
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.language_models import (
    LLM,
    BaseChatModel,
    BaseLLM,
    SimpleChatModel,
)
from langchain_core.outputs import Generation
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import RunnableBinding

from langchain_dpicl.common.progress import Advance, no_progress
from langchain_dpicl.common.slots import ABSTAIN, FAILED, Slot, answered
from langchain_dpicl.errors import (
    InvalidParameterError,
    UnsealableModelError,
)
from langchain_dpicl.release.fan_out import fan_out
from langchain_dpicl.release.flow import Do, Flow, aresult, in_thread, result
from langchain_dpicl.sealed.call_limit import CallLimit
from langchain_dpicl.sealed.model_loop import ModelLoop, model_loop, on_model_loop
from langchain_dpicl.sealed.region import (
    aattempt,
    attempt,
    is_open,
    sealed_context,
)

MOST_CALLS = 32  # Most group calls of a chain in flight at once unless a limit is given


class SealedModel:
    """A model reduced to one ability: prompts in, slots out.

    Args:
        model: A chat model, a completion model, or either with bound arguments.
        max_concurrency: Most calls in flight at once, over all queries at a time; None
            means 32, or one where the model seems to compute in this process. A query
            that is asked within a call is part of that call.

    Raises:
        UnsealableModelError: If the model is wrapped so that its calls can't be made
            directly. The message says what to pass instead.
        InvalidParameterError: If the limit is not positive.

    Privacy:
        A call has one prompt, so a slot is a function of its own prompt and nothing
        else of this process.
    """

    def __init__(self, model: Any, max_concurrency: int | None = None) -> None:
        if max_concurrency is not None and max_concurrency < 1:
            raise InvalidParameterError(
                f"max_concurrency must be at least 1, not {max_concurrency}."
            )
        base, bound = unwrap(model)
        self._stop: list[str] | None = bound.pop("stop", None)
        self._bound = bound
        self._whole, self._model = model, _without_observers(base)
        self._is_async = calls_asynchronously(base)
        self._limit = CallLimit(
            max_concurrency or (1 if _computes_here(base) else MOST_CALLS)
        )
        self._own: tuple[ModelLoop, BaseChatModel | BaseLLM] | None = None

    def __repr__(self) -> str:
        return f"SealedModel({type(self._model).__name__})"

    @property
    def model(self) -> BaseChatModel | BaseLLM:
        """The model under its bound arguments."""
        return self._model

    def answer(
        self,
        prompts: Sequence[PromptValue | None],
        done: Advance = no_progress,
    ) -> list[Slot]:
        """Ask the model once per prompt; return one slot for each, in their order.

        None stands for a slot without a call; `done` is told how many more calls have
        ended. A prompt whose call raises, or answers with no text, yields an abstaining
        slot; the other slots are never affected. There is no time limit here: groups
        share a server, an event loop or a lock, so one slow group would push others
        past any limit measured by the clock, and one unit would change many slots.
        """
        return result(self._steps(prompts, done))

    async def aanswer(
        self,
        prompts: Sequence[PromptValue | None],
        done: Advance = no_progress,
    ) -> list[Slot]:
        """Ask the model once per prompt, concurrently; see `answer`.

        A model without an asynchronous call of its own is asked on worker threads: the
        base classes would queue the calls on the event loop's small executor.
        """
        return await aresult(self._steps(prompts, done))

    def openly(self, prompt: PromptValue) -> Do:
        """Return a group's call with a public prompt, whose errors may be shown."""

        def blocking() -> None:
            self._generate(prompt)

        async def awaiting() -> None:
            await on_model_loop(lambda: self._agenerate(prompt))

        return Do(blocking, awaiting) if self._is_async else in_thread(blocking)

    def _steps(
        self, prompts: Sequence[PromptValue | None], done: Advance
    ) -> Flow[list[Slot]]:
        asked = [i for i, prompt in enumerate(prompts) if prompt is not None]
        many = fan_out(
            [self._call(prompts[i], done) for i in asked],
            self._limit.most,
            name="dpicl-sealed",
            context=sealed_context(),
            on_threads=not self._is_async,
            places=None if self._limit.is_held else self._limit,
        )
        found = yield self._off_the_callers_loop(many)
        slots = [ABSTAIN] * len(prompts)
        for i, slot in zip(asked, found, strict=True):
            slots[i] = slot
        return slots

    def _off_the_callers_loop(self, many: Do) -> Do:
        if not self._is_async:
            return many
        return Do(many.blocking, lambda: on_model_loop(many.awaiting))

    def _call(self, prompt: Any, done: Advance) -> Do:
        """Return the call for one prompt; its failure is an answer like others."""

        def ended(slot: Slot | None) -> Slot:
            done(1)
            return FAILED if slot is None else slot

        def blocking() -> Slot:
            return ended(attempt(lambda: self._generate(prompt)))

        async def awaiting() -> Slot:
            async with self._limit.acall():
                return ended(await aattempt(lambda: self._agenerate(prompt)))

        return Do(blocking, awaiting)

    def _connected(self) -> BaseChatModel | BaseLLM:
        """Return the model with connections of the models' loop."""
        here = model_loop()
        if self._own is None or self._own[0] is not here:
            self._own = here, here.connected(self._model)
        return self._own[1]

    def _generate(self, prompt: PromptValue) -> Slot:
        if is_open():
            return _slot_of(self._whole.invoke(prompt))
        model = self._model
        if isinstance(model, BaseLLM):
            given = self._given(model._generate)
            return _only(model._generate([prompt.to_string()], **given).generations)
        if model.rate_limiter is not None:
            model.rate_limiter.acquire(blocking=True)
        given = self._given(model._generate)
        return _slot(model._generate(prompt.to_messages(), **given).generations)

    async def _agenerate(self, prompt: PromptValue) -> Slot:
        if is_open():
            return _slot_of(await self._whole.ainvoke(prompt))
        model = self._connected()
        if isinstance(model, BaseLLM):
            given = self._given(model._agenerate)
            many = await model._agenerate([prompt.to_string()], **given)
            return _only(many.generations)
        if model.rate_limiter is not None:
            await model.rate_limiter.aacquire(blocking=True)
        given = self._given(model._agenerate)
        one = await model._agenerate(prompt.to_messages(), **given)
        return _slot(one.generations)

    def _given(self, method: Callable[..., Any]) -> dict[str, Any]:
        """Return what LangChain gives a model's method beside the prompt, in its way.

        It passes everything by name, and a run manager only to methods that name one.
        So a model that works in an ordinary call works in a group call.
        """
        takes_one = "run_manager" in inspect.signature(method).parameters
        manager = {"run_manager": None} if takes_one else {}
        return {"stop": self._stop, **manager, **self._bound}


def unwrap(model: Any) -> tuple[BaseChatModel | BaseLLM, dict[str, Any]]:
    """Return the model under any bound arguments, and the arguments."""
    bound: dict[str, Any] = {}
    layer = model
    while isinstance(layer, RunnableBinding):
        if layer.config_factories:
            raise UnsealableModelError(
                "The model carries listeners (with_listeners), which would see private "
                "prompts. Pass the model itself, and listen to the chain instead."
            )
        # The outermost binding wins, as it does when LangChain calls through.
        bound = {**layer.kwargs, **bound}
        layer = layer.bound
    if isinstance(layer, BaseChatModel | BaseLLM):
        return layer, bound
    if layer is None or isinstance(layer, str):
        raise UnsealableModelError(
            "Pass a chat model or a completion model, such as ChatOpenAI(model=...), "
            f"not {'a name' if layer else 'nothing'}."
        )
    raise UnsealableModelError(
        f"{type(layer).__name__} can't be called in the sealed region. Pass a chat "
        "model or completion model itself, with .bind(...) arguments if you like, but "
        "without .with_retry() (use the model's max_retries), .with_fallbacks() (a "
        "fallback would be asked with private prompts unseen), "
        ".with_structured_output(), configurable fields or a parser behind it; and "
        "give init_chat_model() the model's name."
    )


def _without_observers(model: BaseChatModel | BaseLLM) -> BaseChatModel | BaseLLM:
    """Return the model, or a shallow copy of it that shares all but its observers."""
    if not (model.callbacks or model.verbose or model.cache):
        return model
    return model.model_copy(
        update={"cache": False, "callbacks": None, "verbose": False}
    )


def calls_asynchronously(model: BaseChatModel | BaseLLM) -> bool:
    """Return whether a model has an asynchronous call of its own."""
    if isinstance(model, LLM):
        return type(model)._acall is not LLM._acall
    if isinstance(model, BaseLLM):
        return type(model)._agenerate is not BaseLLM._agenerate
    inherited = (BaseChatModel._agenerate, SimpleChatModel._agenerate)
    return type(model)._agenerate not in inherited


def _computes_here(model: BaseChatModel | BaseLLM) -> bool:
    """Whether the model seems to compute in this process, and not to wait for another.

    Such a completion model takes lists and has no asynchronous call. Its calls share
    a device's memory and a tokenizer: side by side, one long prompt may fail others.
    """
    is_list_model = isinstance(model, BaseLLM) and not isinstance(model, LLM)
    return is_list_model and not calls_asynchronously(model)


def _slot_of(answer: Any) -> Slot:
    """Return the slot of what a model's own `invoke` returned; see `open_for_tests`."""
    return answered(str(getattr(answer, "text", answer)))


def _only(generations: Sequence[Sequence[Generation]]) -> Slot:
    """Return the slot of a call with one prompt: whatever came back, it is its own."""
    (candidates,) = generations
    return _slot(candidates)


def _slot(candidates: Sequence[Generation]) -> Slot:
    """One slot holds one answer, however many candidates the provider returned."""
    return answered(candidates[0].text) if candidates else ABSTAIN
