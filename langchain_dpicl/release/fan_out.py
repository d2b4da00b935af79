"""Many calls at once: the one place where threads and tasks are started for them.

Each call runs in a copy of one context, so that what it leaves there no other call
sees. The first call that raises ends all: no further one begins. What calls return is
kept in a list and is never the result of a task, which asyncio's debug mode logs.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any

from langchain_dpicl.release.flow import Do


class Interrupted(BaseException):
    """Stands for a `KeyboardInterrupt` where tasks wait for each other.

    asyncio lets that one out of the task and the event loop at once, with the frames of
    the task: a traceback with locals would show private prompts. This one it keeps.
    """


def fan_out(
    calls: Sequence[Do],
    at_once: int,
    *,
    name: str,
    context: contextvars.Context | None = None,
    on_threads: bool = False,
) -> Do:
    """Return the call that makes many calls and returns their results, in order.

    Args:
        calls: The calls.
        at_once: Most of them in flight at once.
        name: What worker threads are called.
        context: Whose copies they run in; None: the caller's.
        on_threads: Whether also a caller that awaits has the blocking calls made, on
            worker threads. Canceled, no further call begins; those in flight end by
            themselves, as a thread can't be stopped.

    Example:
        >>> from langchain_dpicl.release.flow import in_thread
        >>> calls = [in_thread(lambda n=n: n * n) for n in range(4)]
        >>> fan_out(calls, 2, name="squares").blocking()
        [0, 1, 4, 9]
    """
    given = contextvars.copy_context() if context is None else context
    many = _Many(calls, min(at_once, len(calls)), name, given)
    return Do(many.blocking, many.on_threads if on_threads else many.awaiting)


class _Many:
    """Calls that are being made, and their results so far."""

    def __init__(
        self,
        calls: Sequence[Do],
        workers: int,
        name: str,
        context: contextvars.Context,
    ) -> None:
        self._calls, self._workers, self._name = calls, workers, name
        self._context = context
        self._left = deque(range(len(calls)))
        self._found: list[Any] = [None] * len(calls)

    def blocking(self) -> list[Any]:
        if self._workers <= 1:
            self._work()
            return self._found
        with ThreadPoolExecutor(self._workers, self._name) as pool:
            jobs: list[Future[None]] = []
            try:
                # A thread costs more than a fast call: start one while calls are left.
                while self._left and len(jobs) < self._workers:
                    jobs.append(pool.submit(self._work))
                for job in as_completed(jobs):
                    job.result()
            finally:
                self._left.clear()
        return self._found

    async def on_threads(self) -> list[Any]:
        try:
            await asyncio.to_thread(self.blocking)
        finally:
            self._left.clear()
        return self._found

    async def awaiting(self) -> list[Any]:
        tasks = [asyncio.ensure_future(self._awork()) for _ in range(self._workers)]
        interrupted = False
        try:
            await asyncio.gather(*tasks)
        except Interrupted:
            interrupted = True
        finally:
            # After a failure or a cancellation no call stays behind.
            self._left.clear()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if interrupted:
            raise KeyboardInterrupt
        return self._found

    def _work(self) -> None:
        while self._left:
            try:
                place = self._left.popleft()
            except IndexError:
                # Another worker took the last one between our look and our grasp.
                return
            call = self._calls[place].blocking
            self._found[place] = self._context.copy().run(call)

    async def _awork(self) -> None:
        while self._left:
            one = self._one(self._left.popleft())
            await self._context.copy().run(asyncio.ensure_future, one)

    async def _one(self, place: int) -> None:
        self._found[place] = await self._calls[place].awaiting()
