"""One call a prompt, one slot an answer, and no failure that reaches another slot."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import (
    LLM,
    BaseLLM,
    FakeListChatModel,
    SimpleChatModel,
)
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult, Generation, LLMResult
from langchain_core.prompt_values import StringPromptValue
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_core.runnables import RunnableLambda
from pydantic import PrivateAttr
from support.fakes import AsyncScriptedModel, ScriptedModel

from langchain_dpicl.common.slots import ABSTAIN, FAILED, Slot
from langchain_dpicl.errors import (
    DPError,
    InvalidParameterError,
    UnsealableModelError,
)
from langchain_dpicl.sealed import SealedModel, calls
from langchain_dpicl.sealed.calls import (
    _without_observers,
    calls_asynchronously,
    unwrap,
)
from langchain_dpicl.sealed.model_loop import THREAD, model_loop


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


class Hearing(BaseCallbackHandler):
    """What somebody hangs on a model of their own."""


@pytest.mark.parametrize(
    "observer",
    [{"callbacks": [Hearing()]}, {"verbose": True}, {"cache": InMemoryCache()}],
)
def test_each_of_a_models_own_observers_stays_outside(
    observer: dict[str, Any],
) -> None:
    model = ScriptedModel(reply=str, **observer)
    inside = _without_observers(model)
    assert (inside.callbacks, inside.verbose, inside.cache) == (None, False, False)
    # The caller's own model keeps them.
    assert (model.callbacks, model.verbose, model.cache) != (None, False, False)
    assert all(getattr(model, name) == kept for name, kept in observer.items())


class BatchedLLM(BaseLLM):
    """Takes lists, and refuses a whole list for one bad prompt, as providers do."""

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


@pytest.mark.parametrize("model_class", [BatchedLLM, AsyncBatchedLLM])
async def test_a_completion_model_is_asked_one_prompt_a_call(model_class: Any) -> None:
    model = model_class()
    ask(model, 8)
    await aask(model, 8)
    assert model._calls == [1] * 16


async def test_a_prompts_answer_does_not_depend_on_its_neighbors() -> None:
    class Padded(BatchedLLM):
        """Its answers tell the length of the longest prompt, as padding does."""

        def _generate(self, prompts: list[str], *args: Any, **kwargs: Any) -> LLMResult:
            longest = str(max(map(len, prompts)))
            return LLMResult(generations=[[Generation(text=longest)] for _ in prompts])

    lengths = [StringPromptValue(text="x" * n) for n in (3, 1, 200, 2)]
    expected = [Slot(str(n)) for n in (3, 1, 200, 2)]
    assert SealedModel(Padded()).answer(lengths) == expected
    assert await SealedModel(Padded()).aanswer(lengths) == expected


async def test_a_model_of_this_process_computes_one_call_at_a_time() -> None:
    running: list[int] = []
    peak = 0

    class Local(BatchedLLM):
        def _generate(self, prompts: list[str], *args: Any, **kwargs: Any) -> LLMResult:
            nonlocal peak
            running.append(1)
            peak = max(peak, len(running))
            time.sleep(0.005)
            running.pop()
            return super()._generate(prompts)

    assert ask(Local(), 8) == EXPECTED
    assert await aask(Local(), 8) == EXPECTED
    assert peak == 1
    ask(Local(), 8, 4)
    assert peak > 1


@pytest.mark.parametrize("missing", [0, 5])
def test_slots_without_a_prompt_make_no_call(missing: int) -> None:
    model = ScriptedModel()
    asked = [*prompts(2), *([None] * missing)]
    slots = SealedModel(model).answer(asked)
    assert slots == [Slot("yes")] * 2 + [ABSTAIN] * missing
    assert len(model.asked) == 2


def test_a_model_that_returns_several_lists_for_one_prompt_fails_it() -> None:
    class Three(BatchedLLM):
        def _generate(self, prompts: list[str], *args: Any, **kwargs: Any) -> LLMResult:
            return LLMResult(generations=[[Generation(text="whose?")]] * 3)

    assert ask(Three(), 4) == [FAILED] * 4


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

    started = threading.Event()
    task = asyncio.ensure_future(aask(Hanging(), 5))
    await asyncio.to_thread(started.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert not asyncio.all_tasks(model_loop().loop)


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


def test_a_slot_and_a_sealed_model_show_nothing() -> None:
    assert "private" not in repr(Slot("private"))
    assert repr(SealedModel(ScriptedModel())) == "SealedModel(ScriptedModel)"


# -- how a model is called -------------------------------------------------------------


class Watched(ScriptedModel):
    """Notes by which method it was called, and on which thread."""

    _ways: list[tuple[str, str]] = PrivateAttr(default_factory=list)

    def _note(self, way: str) -> None:
        self._ways.append((way, threading.current_thread().name.partition("_")[0]))

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        self._note("blocking")
        return super()._generate(*args, **kwargs)


class AsyncWatched(Watched):
    async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
        self._note("awaiting")
        return ScriptedModel._generate(self, *args, **kwargs)


async def test_each_model_is_called_its_own_way() -> None:
    for model, way in (
        (Watched(), ("blocking", "dpicl-sealed")),
        (AsyncWatched(), ("awaiting", THREAD)),
    ):
        assert ask(model, 3, 2) == [Slot("yes")] * 3
        assert set(model._ways) == {("blocking", "dpicl-sealed")}
        model._ways.clear()
        assert await aask(model, 3, 2) == [Slot("yes")] * 3
        assert model._ways == [way] * 3


class AsyncSingleLLM(SingleLLM):
    async def _acall(self, prompt: str, *args: Any, **kwargs: Any) -> str:
        return self._call(prompt)


class Simple(SimpleChatModel):
    @property
    def _llm_type(self) -> str:
        return "simple"

    def _call(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> str:
        return str(messages[-1].content)


@pytest.mark.parametrize(
    ("model", "is_async", "most"),
    [
        (ScriptedModel(), False, 32),
        (AsyncScriptedModel(), True, 32),
        (Simple(), False, 32),
        (SingleLLM(), False, 32),
        (AsyncSingleLLM(), True, 32),
        (BatchedLLM(), False, 1),
        (AsyncBatchedLLM(), True, 32),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_model_that_computes_here_is_asked_once_at_a_time(
    model: Any, is_async: bool, most: int
) -> None:
    sealed = SealedModel(model)
    assert calls_asynchronously(model) is is_async
    assert sealed._limit.most == most
    assert sealed.model is model
    assert SealedModel(model, 1)._limit.most == 1
    assert SealedModel(model, 7)._limit.most == 7


async def test_an_asynchronous_model_waits_for_its_rate_limiter_too() -> None:
    taken: list[tuple[str, bool]] = []

    class Counting(InMemoryRateLimiter):
        def acquire(self, *, blocking: bool = True) -> bool:
            taken.append(("acquire", blocking))
            return True

        async def aacquire(self, *, blocking: bool = True) -> bool:
            taken.append(("aacquire", blocking))
            return True

    model = AsyncScriptedModel(rate_limiter=Counting())
    assert await aask(model, 3) == [Slot("yes")] * 3
    assert ask(model, 2) == [Slot("yes")] * 2
    assert taken == [("aacquire", True)] * 3 + [("acquire", True)] * 2


async def test_bound_arguments_reach_every_call() -> None:
    seen: list[Any] = []

    class Noting(AsyncBatchedLLM):
        def _generate(
            self, prompts: list[str], stop: Any = None, manager: Any = None, **more: Any
        ) -> LLMResult:
            seen.append((stop, manager, more))
            return LLMResult(generations=[[Generation(text="yes")] for _ in prompts])

        async def _agenerate(
            self, prompts: list[str], stop: Any = None, manager: Any = None, **more: Any
        ) -> LLMResult:
            return self._generate(prompts, stop, manager, **more)

    class NotingChat(AsyncScriptedModel):
        def _generate(
            self, messages: Any, stop: Any = None, manager: Any = None, **more: Any
        ) -> ChatResult:
            seen.append((stop, manager, more))
            return super()._generate(messages)

        async def _agenerate(
            self, messages: Any, stop: Any = None, manager: Any = None, **more: Any
        ) -> ChatResult:
            return self._generate(messages, stop, manager, **more)

    for model in (Noting(), NotingChat()):
        bound: Any = model.bind(stop=["x"], top_p=1)
        ask(bound, 2, 1)
        await aask(bound, 2, 1)
        assert seen == [(["x"], None, {"top_p": 1})] * 4
        seen.clear()


@pytest.mark.parametrize("model_class", [BatchedLLM, AsyncBatchedLLM])
async def test_progress_counts_each_prompt_once(model_class: Any) -> None:
    sealed = SealedModel(model_class(), 1)
    asked = [None, *prompts(8), None]
    for _ in range(2):
        ended: list[int] = []
        assert sealed.answer(asked, ended.append) == [ABSTAIN, *EXPECTED, ABSTAIN]
        assert ended == [1] * 8
        again: list[int] = []
        assert (await sealed.aanswer(asked, again.append))[1:-1] == EXPECTED
        assert sorted(again) == sorted(ended)


def test_progress_of_failures_is_progress() -> None:
    def fail(_text: str) -> str:
        raise RuntimeError

    ended: list[int] = []
    sealed = SealedModel(ScriptedModel(reply=fail))
    assert sealed.answer(prompts(3), ended.append) == [FAILED] * 3
    assert ended == [1, 1, 1]


async def test_an_answer_without_candidates_is_none() -> None:
    class Silent(AsyncScriptedModel):
        def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
            return ChatResult(generations=[])

    class SilentLLM(AsyncBatchedLLM):
        def _generate(self, prompts: list[str], *args: Any, **kwargs: Any) -> LLMResult:
            return LLMResult(generations=[[]])

    for model in (Silent(), SilentLLM()):
        assert ask(model, 2) == await aask(model, 2) == [ABSTAIN] * 2


async def test_of_several_candidates_a_completion_counts_once_too() -> None:
    class Many(AsyncBatchedLLM):
        def _generate(self, prompts: list[str], *args: Any, **kwargs: Any) -> LLMResult:
            texts = [[f"{text} {n}" for n in ("first", "second")] for text in prompts]
            return LLMResult(
                generations=[[Generation(text=t) for t in each] for each in texts]
            )

    wanted = [Slot(f"{n} first") for n in range(4)]
    assert ask(Many(), 4) == wanted
    assert await aask(Many(), 4) == wanted


@pytest.mark.parametrize(
    ("model", "what"),
    [
        (None, "not nothing"),
        ("", "not nothing"),
        ("openai:gpt-4o", "not a name"),
        (RunnableLambda(str), "RunnableLambda can't be called"),
        (RunnableLambda(str).bind(stop=["x"]), "RunnableLambda can't be called"),
        (ScriptedModel().with_listeners(on_end=print).bind(stop=["x"]), "listeners"),
    ],
)
def test_what_is_wrong_with_a_model_is_said(model: Any, what: str) -> None:
    with pytest.raises(UnsealableModelError, match=what):
        SealedModel(model)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_named_with_its_number(limit: int) -> None:
    with pytest.raises(InvalidParameterError, match=f"at least 1, not {limit}"):
        SealedModel(BatchedLLM(), limit)


def test_an_unobserved_model_is_the_callers_own() -> None:
    model = ScriptedModel()
    assert _without_observers(model) is model
    assert unwrap(model.bind(a=1).bind(b=2)) == (model, {"a": 1, "b": 2})


def test_a_model_without_a_client_is_used_as_it_is_on_every_loop() -> None:
    model = AsyncScriptedModel()
    sealed = SealedModel(model)
    for _ in range(2):
        assert asyncio.run(sealed.aanswer(prompts(2))) == [Slot("yes")] * 2
        assert sealed._connected() is model


def test_connections_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    class Loop:
        def connected(self, model: Any) -> Any:
            made.append(model)
            return model.model_copy()

    here = Loop()
    monkeypatch.setattr(calls, "model_loop", lambda: here)
    sealed = SealedModel(ScriptedModel())
    first = sealed._connected()
    assert sealed._connected() is first is not sealed.model
    # After a fork there is another loop, and the connections are the parent's.
    here = Loop()
    assert sealed._connected() is not first
    assert made == [sealed.model] * 2
