"""So many group calls at once, over all questions of a chain, and no deadlock."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult
from langchain_core.prompt_values import StringPromptValue
from pydantic import PrivateAttr
from support.fakes import ScriptedModel

from langchain_dpicl.common.slots import Slot
from langchain_dpicl.release.fan_out import fan_out
from langchain_dpicl.release.flow import in_thread
from langchain_dpicl.sealed import SealedModel, calls
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


def most_threads(sealed: SealedModel, questions: int) -> int:
    """Return how many threads made calls at once, for so many questions at a time."""
    model: Any = sealed.model
    seen: list[int] = []

    def reply(_text: str) -> str:
        names = [thread.name for thread in threading.enumerate()]
        seen.append(sum(name.startswith("dpicl-sealed") for name in names))
        return "yes"

    model.reply = reply
    with ThreadPoolExecutor(questions) as pool:
        jobs = [pool.submit(sealed.answer, PROMPTS[:6]) for _ in range(questions)]
        assert [job.result() for job in jobs] == [YES[:6]] * questions
    return max(seen)


def test_many_questions_have_no_more_threads_than_places() -> None:
    sealed = SealedModel(Counting(), 3)
    assert most_threads(sealed, 20) <= 3
    assert sealed._limit._free == 3


def test_twin_calls_that_wait_on_their_own_thread_take_one_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_places(*args: Any, **named: Any) -> Any:
        return fan_out(*args, **{**named, "places": None})

    monkeypatch.setattr(calls, "fan_out", without_places)
    assert most_threads(SealedModel(Counting(), 3), 20) > 3


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_call_that_raises_ends_all_and_gives_the_places_back(error: Any) -> None:
    limit, made = CallLimit(2), []

    def one(number: int) -> None:
        made.append(number)
        if number == 1:
            raise error

    many = [in_thread(partial(one, number)) for number in range(50)]
    with pytest.raises(error):
        fan_out(many, 8, name="many", places=limit).blocking()
    assert len(made) < 50
    assert limit._free == 2


def test_who_waits_for_a_place_that_nobody_needs_any_more_goes_on() -> None:
    limit = CallLimit(2)
    others = limit.ask()
    many = [in_thread(partial(int, number)) for number in range(4)]
    # One place is another question's and is not given back before the end.
    assert fan_out(many, 4, name="many", places=limit).blocking() == [0, 1, 2, 3]
    assert others.done()
    limit.give_back()
    assert limit._free == 2


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


async def test_a_place_that_comes_as_its_call_is_canceled_goes_to_the_next() -> None:
    limit = CallLimit(1)
    held = limit.ask()
    assert held.done()

    async def hold() -> None:
        async with limit.acall():
            pytest.fail("it was canceled before it began")

    task = asyncio.ensure_future(hold())
    await asyncio.sleep(0)
    # The place is the task's, which is canceled before it hears of it.
    limit.give_back()
    assert limit._free == 0
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert limit._free == 1


async def test_a_place_is_held_in_the_block_and_given_back_by_an_error() -> None:
    limit, other = CallLimit(2), CallLimit(1)
    assert not limit.is_held
    with pytest.raises(ZeroDivisionError):
        async with limit.acall():
            assert limit.is_held
            assert not other.is_held
            assert limit._free == 1
            async with other.acall(), limit.acall():
                assert other.is_held
                assert (limit._free, other._free) == (1, 0)
            assert not other.is_held
            raise ZeroDivisionError
    assert not limit.is_held
    assert (limit._free, other._free) == (2, 1)


def test_a_part_of_a_call_takes_no_place_and_ends_with_it() -> None:
    limit, other = CallLimit(1), CallLimit(1)

    def look() -> tuple[bool, bool, int]:
        return limit.is_held, other.is_held, limit._free

    assert limit.part(look) == (True, False, 1)
    assert limit.part(lambda: other.part(look)) == (True, True, 1)
    with pytest.raises(ZeroDivisionError):
        limit.part(lambda: 1 // 0)
    assert look() == (False, False, 1)


def test_places_go_to_those_who_asked_first_and_still_want_them() -> None:
    limit = CallLimit(2)
    places = [limit.ask() for _ in range(6)]
    assert [place.done() for place in places] == [True] * 2 + [False] * 4
    places[2].cancel()
    limit.give_back()
    assert [place.done() for place in places[3:]] == [True, False, False]
    limit.give_back()
    assert [place.done() for place in places[4:]] == [True, False]
    places[5].cancel()
    limit.give_back()
    limit.give_back()
    assert limit._free == 2
    assert limit.most == 2
