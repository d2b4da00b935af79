"""So many group calls at once, over all questions of a chain, and no deadlock."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult
from langchain_core.prompt_values import StringPromptValue
from pydantic import PrivateAttr
from support.fakes import ScriptedModel

from langchain_dpicl.common.slots import Slot
from langchain_dpicl.sealed import SealedModel
from langchain_dpicl.sealed.call_limit import CallLimit

PROMPTS = [StringPromptValue(text=str(number)) for number in range(40)]
INNER = [StringPromptValue(text=f"inner {number}") for number in range(4)]
YES = [Slot("yes")] * len(PROMPTS)


class Counting(ScriptedModel):
    """Knows how many of its calls were in flight at once."""

    _now: int = PrivateAttr(default=0)
    _peak: int = PrivateAttr(default=0)

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        self._enter()
        time.sleep(0.002)
        return self._leave(*args)

    def _enter(self) -> None:
        with self._lock:
            self._now += 1
            self._peak = max(self._peak, self._now)

    def _leave(self, *args: Any) -> ChatResult:
        with self._lock:
            self._now -= 1
        return super()._generate(*args)


class AsyncCounting(Counting):
    async def _agenerate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        self._enter()
        await asyncio.sleep(0.002)
        return self._leave(messages)


@pytest.mark.parametrize("model_class", [Counting, AsyncCounting])
@pytest.mark.parametrize(("limit", "most"), [(None, 32), (3, 3), (50, 50)])
async def test_the_limit_holds_over_questions_at_once(
    model_class: Any, limit: int | None, most: int
) -> None:
    model = model_class()
    sealed = SealedModel(model, limit)
    with ThreadPoolExecutor(2) as pool:
        blocking = [pool.submit(sealed.answer, PROMPTS) for _ in range(2)]
        found = await asyncio.gather(*(sealed.aanswer(PROMPTS) for _ in range(3)))
        assert [job.result() for job in blocking] == [YES] * 2
    assert found == [YES] * 3
    assert 1 < model._peak <= most
    # All places were given back.
    assert sealed._limit._free == most


@pytest.mark.parametrize("limit", [1, 3])
async def test_a_question_within_a_group_call_does_not_wait_for_itself(
    limit: int,
) -> None:
    class Nested(ScriptedModel):
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> ChatResult:
            if "inner" not in messages[-1].content:
                assert sealed.answer(INNER) == [Slot("yes")] * 4
            return super()._generate(messages)

        async def _agenerate(
            self, messages: Any, *args: Any, **kwargs: Any
        ) -> ChatResult:
            if "inner" not in messages[-1].content:
                assert await sealed.aanswer(INNER) == [Slot("yes")] * 4
            return ScriptedModel._generate(self, messages)

    sealed = SealedModel(Nested(), limit)
    asking = asyncio.gather(
        asyncio.to_thread(sealed.answer, PROMPTS[:8]), sealed.aanswer(PROMPTS[:8])
    )
    assert await asyncio.wait_for(asking, 60) == [[Slot("yes")] * 8] * 2


async def test_a_canceled_call_gives_its_place_back() -> None:
    limit, entered = CallLimit(1), asyncio.Event()

    async def hold() -> None:
        async with limit.acall():
            entered.set()
            await asyncio.sleep(3600)

    tasks = [asyncio.ensure_future(hold()) for _ in range(4)]
    await entered.wait()
    for task in reversed(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert limit._free == 1
