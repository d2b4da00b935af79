"""Threads for questions and for calls.

A question never waits for a thread of the pool that its own calls need: questions and
calls have pools of their own, and a call within a call of the same pool runs in place.
The threads are daemons. At exit what still runs has `EXIT_SECONDS` to end, so a
canceled question can store its draw, and a call that hangs keeps no process alive.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import os
import queue
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

EXIT_SECONDS = float(os.environ.get("DPICL_EXIT_SECONDS", "5"))
"""How long running questions and calls may keep the interpreter alive at its exit."""

IDLE_SECONDS = 60.0
"""How long a thread without work stays."""

held_pools: contextvars.ContextVar[tuple[Pool, ...]] = contextvars.ContextVar(
    "langchain_dpicl_held_pools", default=()
)
"""The pools of the calls that the caller is part of."""

_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


class Pool:
    """Threads that run functions in the order in which they came.

    After a fork the child begins with no threads, no work and a new lock.

    Args:
        name: Name of the threads.
        limit: Most threads; None is as many as there is work.
        owner: What it works for, kept as long as the pool.

    Example:
        >>> Pool("squares", 2).map([lambda n=n: n * n for n in range(4)])
        [0, 1, 4, 9]
    """

    def __init__(
        self, name: str, limit: int | None = None, owner: object = None
    ) -> None:
        self.name, self.limit, self.owner = name, limit, owner
        self.renew()
        _pools.add(self)

    def renew(self) -> None:
        """Begin anew in a forked process."""
        self._lock = threading.Lock()
        self._work = queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]]()
        self._threads = 0
        self.unfinished = 0

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Run a function on one of the threads."""
        future: Future[T] = Future()
        with self._lock:
            missing = self.unfinished >= self._threads
            if missing and (self.limit is None or self._threads < self.limit):
                self._begin_thread()  # Takes its time: Ctrl-C may come in here.
            alone = not self._threads
            self.unfinished += 1
        if alone:  # No thread can be started while the interpreter exits.
            self._run(future, function)
        else:
            self._work.put((future, function))
        return future

    def map(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make calls at once; return their results, in order.

        Each call runs in a copy of the caller's context: what it leaves there no other
        call sees. Within a call of this pool they run in place, one by one, as all
        threads may be waiting for that call.

        Raises:
            BaseException: The first error of a call. After it no further call begins,
                and those in flight have ended.
            KeyboardInterrupt: If the user stopped the wait. No further call begins, and
                those in flight end by themselves.
        """
        if self in held_pools.get():
            return [contextvars.copy_context().run(call) for call in calls]
        return _Calls(self, calls).results() if calls else []

    def _begin_thread(self) -> None:
        thread = threading.Thread(target=self._serve, name=self.name, daemon=True)
        with suppress(RuntimeError):
            thread.start()
            self._threads += 1

    def _serve(self) -> None:
        while True:
            try:
                self._run(*self._work.get(timeout=IDLE_SECONDS))
            except queue.Empty:  # noqa: PERF203 - each wait may end so
                with self._lock:
                    if self.unfinished < self._threads:
                        self._threads -= 1
                        return

    def _run(self, future: Future[T], function: Callable[[], T]) -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                future.set_exception(error)
        with self._lock:
            self.unfinished -= 1


class _Calls:
    """Calls that a pool makes for one caller, and what has come of them so far."""

    def __init__(self, pool: Pool, calls: Sequence[Callable[[], Any]]) -> None:
        self._pool, self._calls = pool, calls
        self._found: list[Any] = [None] * len(calls)
        self._raised: list[BaseException] = []
        self._stopped = False
        self._left, self._lock = len(calls), threading.Lock()
        # Written in C: Ctrl-C leaves no half of a lock behind.
        self._ended = queue.SimpleQueue[None]()

    def results(self) -> list[Any]:
        context = contextvars.copy_context()
        context.run(held_pools.set, (*held_pools.get(), self._pool))
        try:
            for place in range(len(self._calls)):
                self._pool.submit(partial(self._make, place, context.copy()))
            self._ended.get()  # One waking, not one a call.
        finally:
            self._stopped = True
        if self._raised:
            raise self._raised.pop(0)
        return self._found

    def _make(self, place: int, context: contextvars.Context) -> None:
        try:
            if not self._stopped:
                self._found[place] = context.run(self._calls[place])
        except BaseException as error:  # noqa: BLE001 - raised where the caller is
            self._stopped = True
            self._raised.append(error)
        with self._lock:
            self._left -= 1
            if not self._left:
                self._ended.put(None)


QUESTIONS = Pool("dpicl-question")
"""Where questions run whose callers await. It has no limit and never runs calls."""


async def on_question_thread(function: Callable[[], T]) -> T:
    """Run a blocking function beside the event loop, in the caller's context.

    A function whose caller is canceled goes on to its end. No future of the event loop
    holds its result: asyncio's debug mode logs these.
    """
    return await _result(_begun(contextvars.copy_context(), function))


async def pieces_of(function: Callable[[], Iterable[T]]) -> AsyncIterator[T]:
    """Hand on what an iterator yields that runs beside the event loop.

    It runs on no further than the caller asks. A caller that stops, or is canceled,
    closes it where it is, at the end of the step that it is in.
    """
    context, end = contextvars.copy_context(), object()
    step = _begun(context, lambda: iter(function()))
    pieces: Iterator[T] = await _result(step)
    close: Callable[[], None] = getattr(pieces, "close", lambda: None)
    try:
        while True:
            step = _begun(context, partial(next, pieces, end))
            piece: Any = await _result(step)
            if piece is end:
                return
            yield piece
    finally:
        if step.done():
            await _result(_begun(context, close))
        else:
            step.add_done_callback(lambda _: _begun(context, close))


def _begun(context: contextvars.Context, function: Callable[[], T]) -> Future[T]:
    return QUESTIONS.submit(partial(context.run, function))


async def _result(future: Future[T]) -> T:
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def wake() -> None:
        if not ended.done():
            ended.set_result(None)

    def tell(_: Future[T]) -> None:
        with suppress(RuntimeError):  # The loop may be closed by now.
            loop.call_soon_threadsafe(wake)

    future.add_done_callback(tell)
    await ended
    return future.result()


def _renew_after_fork() -> None:
    for pool in list(_pools):
        pool.renew()


def _wait_at_exit() -> None:
    end = time.monotonic() + EXIT_SECONDS
    while time.monotonic() < end and any(pool.unfinished for pool in _pools):
        time.sleep(0.01)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)
atexit.register(_wait_at_exit)
