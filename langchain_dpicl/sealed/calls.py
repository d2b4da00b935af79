"""Calling a model with private prompts: one call a prompt, no observer, no failure.

`_generate` is part of the documented contract of `BaseChatModel` and `BaseLLM`: the
method that providers implement. Calling it directly skips callbacks, tracers, the LLM
cache, `set_debug` output and streaming events, which all live in the methods around it,
and keeps the provider's own retries, time-outs and bound arguments.
"""

from __future__ import annotations

# ruff: noqa: SLF001 - `_generate` is the documented contract; this is its one caller.
import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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

from langchain_dpicl.exceptions import (
    GroupCallError,
    InvalidParameterError,
    UnsealableModelError,
)
from langchain_dpicl.progress import Advance, no_progress
from langchain_dpicl.sealed.region import (
    Interrupted,
    aattempt,
    attempt,
    sealed_context,
)
from langchain_dpicl.slots import ABSTAIN, FAILED, Slot, answered

THREADS = 128
"""Most worker threads of one query's group calls unless a limit is given."""

LARGEST_BATCH = 20
"""Prompts in one list where a completion model does not name its own `batch_size`."""


class SealedModel:
    """A model reduced to one ability: prompts in, slots out.

    Args:
        model: A chat model, a completion model, or either with bound arguments.
        max_concurrency: Most calls in flight at once for one query; None means all of
            them (on threads: 128).

    Raises:
        UnsealableModelError: If the model is wrapped so that its calls can't be made
            directly. The message says what to pass instead.
        InvalidParameterError: If a limit is not positive.
    """

    def __init__(self, model: Any, max_concurrency: int | None = None) -> None:
        if max_concurrency is not None and max_concurrency < 1:
            raise InvalidParameterError(
                f"max_group_concurrency must be at least 1, not {max_concurrency}."
            )
        base, bound = unwrap(model)
        self._stop: list[str] | None = bound.pop("stop", None)
        self._bound = bound
        self._limit = max_concurrency
        self._model = _without_observers(base)
        self._batch = _batch_size(base)
        self._is_async = _calls_asynchronously(base)

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
        """Ask the model once per prompt; None stands for a slot without a call.

        Args:
            prompts: The prompts.
            done: Is told how many more calls have ended.

        Returns:
            One slot for each prompt, in their order.

        A prompt whose call raises, or answers with no text, yields an abstaining slot;
        the other slots are never affected. There is no time limit here: groups share
        a server, an event loop or a lock, so one slow group would push others past
        any limit measured by the clock, and one unit would change many slots.
        """
        return self._answer_all(prompts, deque(self._batches(prompts)), done)

    def _answer_all(
        self,
        prompts: Sequence[PromptValue | None],
        left: deque[list[int]],
        done: Advance,
    ) -> list[Slot]:
        slots = [ABSTAIN] * len(prompts)
        most = self._limit or THREADS
        workers = min(most, len(left))
        if not workers:
            return slots
        context = sealed_context()
        jobs: list[Future[None]] = []

        def work() -> None:
            while left:
                try:
                    batch = left.popleft()
                except IndexError:
                    # Another worker took the last one between our look and our grasp.
                    return
                # A copy for each call: what one leaves in the context, no other sees.
                asked = [prompts[i] for i in batch]
                found = context.copy().run(self._answer_batch, asked)
                if found is None:
                    left.extend([i] for i in batch)
                    jobs.extend(pool.submit(work) for _ in batch[1:])
                    continue
                for i, slot in zip(batch, found, strict=True):
                    slots[i] = slot
                done(len(batch))

        with ThreadPoolExecutor(min(most, len(prompts)), "dpicl-sealed") as pool:
            try:
                # A thread costs more than a fast call: start one while calls are left.
                while left and len(jobs) < workers:
                    jobs.append(pool.submit(work))
                # A worker may add to them, before it ends itself.
                for job in jobs:
                    job.result()
            finally:
                left.clear()
        return slots

    async def aanswer(
        self,
        prompts: Sequence[PromptValue | None],
        done: Advance = no_progress,
    ) -> list[Slot]:
        """Ask the model once per prompt, concurrently; see `answer`.

        A model without an asynchronous call of its own is asked on worker threads: the
        base classes would queue the calls on the event loop's small executor.
        Cancelled, such a query makes no further call; those in flight end by
        themselves, as a thread can't be stopped.
        """
        batches = self._batches(prompts)
        if not self._is_async:
            left = deque(batches)
            try:
                return await asyncio.to_thread(self._answer_all, prompts, left, done)
            finally:
                left.clear()
        slots = [ABSTAIN] * len(prompts)
        limit = asyncio.Semaphore(self._limit or max(len(prompts), 1))

        async def answer_batch(batch: list[int]) -> None:
            async with limit:
                asked = [prompts[i] for i in batch]
                found = await self._aanswer_batch(asked)
            if found is None:
                await asyncio.gather(*(answer_batch([i]) for i in batch))
                return
            for i, slot in zip(batch, found, strict=True):
                slots[i] = slot
            done(len(batch))

        context = sealed_context()
        tasks = [
            context.copy().run(asyncio.ensure_future, answer_batch(batch))
            for batch in batches
        ]
        try:
            if tasks:
                await asyncio.wait(tasks)
        finally:
            # Only a cancelled query leaves tasks behind: end them with it.
            for task in tasks:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
        if any(isinstance(end, Interrupted) for end in ended):
            raise KeyboardInterrupt
        return slots

    def _batches(self, prompts: Sequence[PromptValue | None]) -> list[list[int]]:
        asked = [i for i, prompt in enumerate(prompts) if prompt is not None]
        return [asked[i : i + self._batch] for i in range(0, len(asked), self._batch)]

    def _answer_batch(self, prompts: list[Any]) -> list[Slot] | None:
        """Ask for one batch; return None if its prompts are to be asked one by one.

        One prompt that the provider refuses fails its whole batch. Taken as it is, one
        unit would silence every group in it.
        """
        found = attempt(lambda: self._generate(prompts))
        return [FAILED] if found is None and len(prompts) == 1 else found

    async def _aanswer_batch(self, prompts: list[Any]) -> list[Slot] | None:
        """Ask for one batch; see `_answer_batch`."""
        found = await aattempt(lambda: self._agenerate(prompts))
        return [FAILED] if found is None and len(prompts) == 1 else found

    def _generate(self, prompts: list[PromptValue]) -> list[Slot]:
        model = self._model
        if isinstance(model, BaseLLM):
            texts = [prompt.to_string() for prompt in prompts]
            return _slots(
                model._generate(texts, self._stop, None, **self._bound).generations,
                expected=len(texts),
            )
        if model.rate_limiter is not None:
            model.rate_limiter.acquire(blocking=True)
        messages = prompts[0].to_messages()
        result = model._generate(messages, self._stop, None, **self._bound)
        return [_slot(result.generations)]

    async def _agenerate(self, prompts: list[PromptValue]) -> list[Slot]:
        model = self._model
        if isinstance(model, BaseLLM):
            texts = [prompt.to_string() for prompt in prompts]
            many = await model._agenerate(texts, self._stop, None, **self._bound)
            return _slots(many.generations, expected=len(texts))
        if model.rate_limiter is not None:
            await model.rate_limiter.aacquire(blocking=True)
        messages = prompts[0].to_messages()
        result = await model._agenerate(messages, self._stop, None, **self._bound)
        return [_slot(result.generations)]


def unwrap(model: Any) -> tuple[BaseChatModel | BaseLLM, dict[str, Any]]:
    """Return the model under any bound arguments, and the arguments.

    Raises:
        UnsealableModelError: If something other than bound arguments wraps the model.
    """
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


def _batch_size(model: BaseChatModel | BaseLLM) -> int:
    """Return how many prompts one call takes.

    A chat model takes one. So does an `LLM`, whose `_generate` is a plain loop over its
    prompts. Any other completion model sends lists, up to its own `batch_size`.
    """
    if not isinstance(model, BaseLLM) or isinstance(model, LLM):
        return 1
    if getattr(model, "streaming", False):
        # Such a model streams one prompt at a time, and refuses lists.
        return 1
    size = getattr(model, "batch_size", None)
    return size if isinstance(size, int) and size > 0 else LARGEST_BATCH


def _calls_asynchronously(model: BaseChatModel | BaseLLM) -> bool:
    if isinstance(model, LLM):
        return type(model)._acall is not LLM._acall
    if isinstance(model, BaseLLM):
        return type(model)._agenerate is not BaseLLM._agenerate
    inherited = (BaseChatModel._agenerate, SimpleChatModel._agenerate)
    return type(model)._agenerate not in inherited


def _slots(generations: Sequence[Sequence[Generation]], expected: int) -> list[Slot]:
    if len(generations) != expected:
        # The provider lost or added answers: none can be matched to its prompt.
        raise GroupCallError("The provider returned another number of answers.")
    return [_slot(candidates) for candidates in generations]


def _slot(candidates: Sequence[Generation]) -> Slot:
    """One slot holds one answer, however many candidates the provider returned."""
    return answered(candidates[0].text) if candidates else ABSTAIN
