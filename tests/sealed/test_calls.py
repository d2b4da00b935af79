"""One call a prompt, one slot an answer, and no failure that reaches another slot."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from fakes import AsyncScriptedModel, ScriptedModel
from langchain_core.language_models import LLM, BaseLLM, FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult, Generation, LLMResult
from langchain_core.prompt_values import StringPromptValue
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_core.runnables import RunnableLambda
from langchain_openai import OpenAI
from pydantic import PrivateAttr

from langchain_dpicl.exceptions import (
    DPError,
    InvalidParameterError,
    UnsealableModelError,
)
from langchain_dpicl.sealed import SealedModel
from langchain_dpicl.slots import ABSTAIN, FAILED, Slot


def prompts(count: int) -> list[StringPromptValue]:
    return [StringPromptValue(text=str(i)) for i in range(count)]


def ask(model: Any, count: int, limit: int | None = None) -> list[Slot]:
    return SealedModel(model, limit).answer(prompts(count))


async def aask(model: Any, count: int, limit: int | None = None) -> list[Slot]:
    return await SealedModel(model, limit).aanswer(prompts(count))


def odd_is_bad(text: str) -> str:
    if text == "3":
        raise RuntimeError("private: " + text)
    return "" if text == "5" else f"answer {text}"


EXPECTED = [
    FAILED if i == 3 else ABSTAIN if i == 5 else Slot(f"answer {i}") for i in range(8)
]


class BatchedLLM(BaseLLM):
    """Takes lists, and refuses a whole list for one bad prompt, as providers do."""

    batch_size: int = 4
    _calls: list[int] = PrivateAttr(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "batched"

    def _generate(self, prompts: list[str], *args: Any, **kwargs: Any) -> LLMResult:
        self._calls.append(len(prompts))
        return LLMResult(
            generations=[[Generation(text=odd_is_bad(text))] for text in prompts]
        )


class AsyncBatchedLLM(BatchedLLM):
    async def _agenerate(
        self, prompts: list[str], *args: Any, **kwargs: Any
    ) -> LLMResult:
        return self._generate(prompts)


class SingleLLM(LLM):
    @property
    def _llm_type(self) -> str:
        return "single"

    def _call(self, prompt: str, *args: Any, **kwargs: Any) -> str:
        return odd_is_bad(prompt)


MODELS = [
    ScriptedModel(reply=odd_is_bad),
    AsyncScriptedModel(reply=odd_is_bad),
    BatchedLLM(),
    AsyncBatchedLLM(),
    SingleLLM(),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("limit", [None, 1, 3])
async def test_a_failed_call_abstains_and_touches_no_other(
    model: Any, limit: int | None
) -> None:
    assert ask(model, 8, limit) == EXPECTED
    assert await aask(model, 8, limit) == EXPECTED


def test_a_refused_list_is_asked_for_one_by_one() -> None:
    model = BatchedLLM()
    ask(model, 8, 1)
    assert model._calls == [4, 4, 1, 1, 1, 1]


@pytest.mark.parametrize("limit", [None, 3])
@pytest.mark.parametrize("is_async", [False, True])
async def test_the_prompts_of_a_refused_list_are_asked_at_once(
    is_async: bool, limit: int | None
) -> None:
    class Refusing(BatchedLLM):
        """Takes no list, and answers when as many are asking as may."""

        _barrier: Any = PrivateAttr(default_factory=lambda: threading.Barrier(3))

        def _generate(self, prompts: list[str], *args: Any, **kwargs: Any) -> LLMResult:
            if len(prompts) > 1:
                raise ValueError("no lists")
            self._barrier.wait(timeout=30)
            return LLMResult(generations=[[Generation(text="yes")]])

    class AsyncRefusing(Refusing):
        async def _agenerate(
            self, prompts: list[str], *args: Any, **kwargs: Any
        ) -> LLMResult:
            return await asyncio.to_thread(self._generate, prompts)

    model = AsyncRefusing(batch_size=6) if is_async else Refusing(batch_size=6)
    sealed = SealedModel(model, limit)
    asked = prompts(6)
    slots = await sealed.aanswer(asked) if is_async else sealed.answer(asked)
    assert slots == [Slot("yes")] * 6


def test_a_streaming_completion_model_is_asked_prompt_by_prompt() -> None:
    model = OpenAI(model="none", api_key="none", streaming=True)
    assert SealedModel(model)._batch == 1
    assert SealedModel(OpenAI(model="none", api_key="none"))._batch == 20


@pytest.mark.parametrize("missing", [0, 5])
def test_slots_without_a_prompt_make_no_call(missing: int) -> None:
    model = ScriptedModel()
    asked = [*prompts(2), *([None] * missing)]
    slots = SealedModel(model).answer(asked)
    assert slots == [Slot("yes")] * 2 + [ABSTAIN] * missing
    assert len(model.asked) == 2


def test_a_provider_that_loses_answers_fails_all_of_the_list() -> None:
    class Losing(BatchedLLM):
        def _generate(self, prompts: list[str], *args: Any, **kwargs: Any) -> LLMResult:
            return LLMResult(generations=[[Generation(text="only one")]] * 3)

    # Alone, each prompt still gets three lists of answers: none can be matched.
    assert ask(Losing(), 4) == [FAILED] * 4


def test_a_slot_takes_one_of_several_candidates() -> None:
    class Many(ScriptedModel):
        def _generate(
            self, messages: list[BaseMessage], *args: Any, **kwargs: Any
        ) -> ChatResult:
            return ChatResult(
                generations=[
                    ChatGeneration(message=AIMessage(content=text))
                    for text in ("first", "second")
                ]
            )

    assert ask(Many(), 1) == [Slot("first")]


@pytest.mark.parametrize(
    ("content", "slot"),
    [
        ([{"type": "text", "text": "from blocks"}], Slot("from blocks")),
        ([], ABSTAIN),
        ("  \n", ABSTAIN),
    ],
)
def test_content_blocks_are_read(content: Any, slot: Slot) -> None:
    class Blocks(ScriptedModel):
        def _generate(
            self, messages: list[BaseMessage], *args: Any, **kwargs: Any
        ) -> ChatResult:
            message = AIMessage(content=content)
            return ChatResult(generations=[ChatGeneration(message=message)])

    assert ask(Blocks(), 1) == [slot]


def test_bound_arguments_and_stop_words_reach_the_model() -> None:
    class Bound(ScriptedModel):
        def _generate(
            self,
            messages: list[BaseMessage],
            stop: list[str] | None = None,
            run_manager: Any = None,
            **kwargs: Any,
        ) -> ChatResult:
            message = AIMessage(content=f"{stop} {sorted(kwargs.items())}")
            return ChatResult(generations=[ChatGeneration(message=message)])

    model = Bound().bind(stop=["x"], temperature=0.5).bind(temperature=0.7, top_p=1)
    (slot,) = ask(model.with_config(tags=["t"]), 1)
    assert slot.text == "['x'] [('temperature', 0.7), ('top_p', 1)]"


def test_the_models_rate_limiter_is_kept() -> None:
    taken: list[bool] = []

    class Counting(InMemoryRateLimiter):
        def acquire(self, *, blocking: bool = True) -> bool:
            taken.append(blocking)
            return True

    ask(ScriptedModel(rate_limiter=Counting()), 5)
    assert taken == [True] * 5


@pytest.mark.parametrize("model_class", [ScriptedModel, AsyncScriptedModel])
@pytest.mark.parametrize("limit", [1, 4])
async def test_the_limit_holds(model_class: Any, limit: int) -> None:
    running = peak = 0
    lock = threading.Lock()

    def slow(_text: str) -> str:
        nonlocal running, peak
        with lock:
            running += 1
            peak = max(peak, running)
        time.sleep(0.005)
        with lock:
            running -= 1
        return "yes"

    model = model_class(reply=slow)
    ask(model, 12, limit)
    await aask(model, 12, limit)
    assert peak <= limit


async def test_async_calls_run_at_once() -> None:
    class Waiting(ScriptedModel):
        async def _agenerate(
            self, messages: list[BaseMessage], *args: Any, **kwargs: Any
        ) -> ChatResult:
            await barrier.wait()
            return self._generate(messages)

    barrier = asyncio.Barrier(10) if hasattr(asyncio, "Barrier") else _Barrier(10)
    slots = await asyncio.wait_for(aask(Waiting(), 10), timeout=20)
    assert slots == [Slot("yes")] * 10


class _Barrier:
    """`asyncio.Barrier` for Python 3.10."""

    def __init__(self, parties: int) -> None:
        self._left = parties
        self._open = asyncio.Event()

    async def wait(self) -> None:
        self._left -= 1
        if not self._left:
            self._open.set()
        await self._open.wait()


async def test_cancelling_leaves_no_task_behind() -> None:
    class Hanging(ScriptedModel):
        async def _agenerate(
            self, messages: list[BaseMessage], *args: Any, **kwargs: Any
        ) -> ChatResult:
            started.set()
            await asyncio.sleep(3600)
            return self._generate(messages)

    started = asyncio.Event()
    task = asyncio.ensure_future(aask(Hanging(), 5))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(
    "model",
    [
        FakeListChatModel(responses=["x"]).with_retry(),
        FakeListChatModel(responses=["x"]).with_fallbacks([]),
        FakeListChatModel(responses=["x"]).with_listeners(on_end=print),
        FakeListChatModel(responses=["x"]) | RunnableLambda(str),
        RunnableLambda(str),
        "openai:gpt-4o",
        None,
    ],
    ids=["retry", "fallbacks", "listeners", "sequence", "lambda", "name", "none"],
)
def test_models_that_cannot_be_sealed_are_refused(model: Any) -> None:
    with pytest.raises(UnsealableModelError, match="Pass") as caught:
        SealedModel(model)
    assert isinstance(caught.value, DPError)


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="max_group_concurrency"):
        SealedModel(ScriptedModel(), 0)


def test_a_slot_and_a_sealed_model_show_nothing() -> None:
    assert "private" not in repr(Slot("private"))
    assert repr(SealedModel(ScriptedModel())) == "SealedModel(ScriptedModel)"
