"""Threads for questions and for calls: order, limits, errors, forks, and the end."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from langchain_dpicl import threads
from langchain_dpicl.threads import Pool, on_question_thread, pieces_of

seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="nothing")


class Crowd:
    """Knows how many of its calls ran at once."""

    def __init__(self) -> None:
        self.lock, self.now, self.most = threading.Lock(), 0, 0

    def call(self, value: Any = None) -> Any:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.002)
        with self.lock:
            self.now -= 1
        return value


@pytest.mark.parametrize("limit", [None, 1, 3])
def test_results_come_in_the_order_of_the_calls(limit: int | None) -> None:
    def late(number: int) -> int:
        time.sleep(0.01 if number % 3 == 0 else 0)
        return number

    pool = Pool("some", limit)
    assert pool.map([partial(late, number) for number in range(9)]) == [*range(9)]
    assert pool.map([]) == []


def test_the_limit_holds_over_several_callers() -> None:
    pool, crowd = Pool("crowd", 3), Crowd()
    calls = [partial(crowd.call, number) for number in range(20)]
    with ThreadPoolExecutor(5) as callers:
        jobs = [callers.submit(pool.map, calls) for _ in range(5)]
        assert [job.result() for job in jobs] == [[*range(20)]] * 5
    assert crowd.most == 3
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("crowd") == 3


def test_a_call_within_a_call_runs_in_place() -> None:
    pool, other = Pool("some", 1), Pool("other", 1)

    def again(depth: int) -> list[Any]:
        if not depth:
            return [threading.current_thread().name]
        between = other if depth % 2 else pool
        return between.map([partial(again, depth - 1)] * 2)

    done: list[Any] = []
    asking = threading.Thread(
        target=lambda: done.append(pool.map([partial(again, 4)] * 3)), daemon=True
    )
    asking.start()
    asking.join(20)
    assert len(done) == 1


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_after_an_error_no_call_begins_and_those_in_flight_have_ended(
    error: type[BaseException],
) -> None:
    begun, ended = [], []

    def call(number: int) -> None:
        begun.append(number)
        if number == 1:
            raise error("first")
        time.sleep(0.05)
        ended.append(number)

    with pytest.raises(error, match="first"):
        Pool("some", 3).map([partial(call, number) for number in range(50)])
    assert len(begun) <= 4
    assert set(begun) - {1} == set(ended)
    time.sleep(0.1)
    assert len(begun) <= 4


@pytest.mark.skipif(os.name == "nt", reason="no such signal")
def test_ctrl_c_ends_the_wait_at_once_and_no_further_call_begins() -> None:
    pool, gate = Pool("some", 2), threading.Event()
    begun, ended = list[int](), list[int]()

    def call(number: int) -> None:
        begun.append(number)
        if number == 0:
            os.kill(os.getpid(), signal.SIGINT)
        assert gate.wait(30)
        ended.append(number)

    # A job in the background begins with the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            pool.map([partial(call, number) for number in range(6)])
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended == []
    gate.set()
    pool.map([lambda: None] * 6)  # Behind all that were to begin.
    assert sorted(ended) == sorted(begun)
    assert len(begun) <= 2


def test_an_idle_thread_ends_and_another_one_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(threads, "IDLE_SECONDS", 0.05)
    pool = Pool("idle")

    def living() -> int:
        return [each.name for each in threading.enumerate()].count("idle")

    for _ in range(2):
        assert pool.map([partial(time.sleep, 0.01)] * 3) == [None] * 3
        until = time.monotonic() + 10
        while living() and time.monotonic() < until:
            time.sleep(0.01)
        assert living() == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_fork_has_threads_and_locks_of_its_own() -> None:
    pool = Pool("some", 1)
    held = threading.Event()
    busy = pool.submit(held.wait)
    with pool._lock:  # As if another thread were in there.
        child = os.fork()
        if not child:
            os._exit(0 if pool.map([lambda: 7, lambda: 8]) == [7, 8] else 1)
    held.set()
    until = time.monotonic() + 60
    done, status = 0, -1
    while not done and time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    if not done:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert status == 0
    assert busy.result(20)
    assert pool.map([lambda: 9]) == [9]


def exited(program: str) -> tuple[float, str]:
    """Return how long a process took after its last line, and what it printed."""
    head = "import asyncio, time\nfrom langchain_dpicl.threads import *\n"
    child = subprocess.Popen(
        [sys.executable, "-c", f"{head}{program}\nprint('end', flush=True)"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "DPICL_EXIT_SECONDS": "1"},
    )
    assert child.stdout is not None
    said = ""
    while not said.endswith("end\n"):
        said += child.stdout.readline()
    since = time.monotonic()
    said += child.communicate(timeout=30)[0]
    return time.monotonic() - since, said


CANCELED = """
async def main():
    task = asyncio.ensure_future(on_question_thread({call}))
    await asyncio.sleep(0.1)
    task.cancel()
asyncio.run(main())
"""


@pytest.mark.parametrize(
    "program", ["Pool('some').submit(lambda: time.sleep(60))", CANCELED]
)
def test_a_call_that_hangs_keeps_the_process_for_a_stated_time(program: str) -> None:
    took, _ = exited(program.format(call="lambda: time.sleep(60)"))
    assert 0.7 < took < 10


def test_a_canceled_question_ends_its_work_before_the_process() -> None:
    call = "lambda: (time.sleep(0.4), print('stored', flush=True))"
    took, said = exited(CANCELED.format(call=call))
    assert said.split() == ["end", "stored"]
    assert took < 0.9


# -- beside an event loop --------------------------------------------------------------


async def test_a_question_runs_in_its_callers_context_on_another_thread() -> None:
    seen.set("the caller's")
    name, found = await on_question_thread(
        lambda: (threading.current_thread().name, seen.get())
    )
    assert (name, found) == ("dpicl-question", "the caller's")
    with pytest.raises(ZeroDivisionError):
        await on_question_thread(lambda: 1 // 0)


async def test_a_question_whose_caller_is_canceled_goes_on_to_its_end() -> None:
    begun, gate, ended = (threading.Event() for _ in range(3))

    def slow() -> None:
        begun.set()
        gate.wait(30)
        ended.set()

    task = asyncio.ensure_future(on_question_thread(slow))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not ended.is_set()
    gate.set()
    assert await asyncio.to_thread(ended.wait, 20)


@pytest.mark.parametrize("twin", [False, True], ids=["own threads", "twin"])
async def test_asyncios_debug_mode_logs_no_result(
    caplog: pytest.LogCaptureFixture, twin: bool
) -> None:
    loop = asyncio.get_running_loop()
    before = loop.slow_callback_duration

    async def ask() -> None:
        if twin:
            assert await asyncio.ensure_future(asyncio.to_thread(str, "private result"))
        else:
            assert await on_question_thread(lambda: "private result")

    loop.set_debug(True)
    loop.slow_callback_duration = 0
    try:
        with caplog.at_level(logging.DEBUG):
            await asyncio.ensure_future(ask())
    finally:
        loop.set_debug(False)
        loop.slow_callback_duration = before
    assert caplog.records
    assert ("private result" in caplog.text) is twin


class Pieces:
    """Yields numbers, and notes how far it has come, and its end."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.made: list[int] = []
        self.ended, self.seconds = threading.Event(), seconds

    def __call__(self) -> Iterator[int]:
        try:
            for number in range(5):
                time.sleep(self.seconds)
                self.made.append(number)
                yield number
        finally:
            self.ended.set()


async def test_pieces_come_in_order_and_no_further_than_asked() -> None:
    pieces = Pieces()
    found = []
    async for piece in pieces_of(pieces):
        found.append(piece)
        assert pieces.made == found
    assert found == [*range(5)]
    assert pieces.ended.is_set()
    assert [piece async for piece in pieces_of(lambda: [1, 2])] == [1, 2]


async def test_who_takes_no_more_closes_what_yields() -> None:
    pieces = Pieces()
    many: Any = pieces_of(pieces)
    assert await anext(many) == 0
    await many.aclose()
    assert pieces.ended.is_set()
    assert pieces.made == [0]


async def test_a_canceled_caller_closes_it_at_the_end_of_its_step() -> None:
    pieces = Pieces(0.1)

    async def take() -> None:
        async for _ in pieces_of(pieces):
            pass

    task = asyncio.ensure_future(take())
    await asyncio.sleep(0.15)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(pieces.ended.wait, 20)
    assert pieces.made == [0, 1]
