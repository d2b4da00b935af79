"""Many calls at once: the one place where threads and tasks are started for them.

Each call runs in a copy of one context, so that what it leaves there no other call
sees. The first call that raises ends all: no further one begins. What calls return is
kept in a list and is never the result of a task, which asyncio's debug mode logs.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any, Protocol

from langchain_dpicl.release.flow import Do


class Interrupted(BaseException):
    """Stands for a `KeyboardInterrupt` where tasks wait for each other.

    asyncio lets that one out of the task and the event loop at once, with the frames of
    the task: a traceback with locals would show private prompts. This one it keeps.
    """


class Places(Protocol):
    """Room for so many blocking calls, which several fan-outs share."""

    def ask(self) -> Future[None]:
        """Ask for a place; it is there when the future is done."""

    def part(self, call: Callable[[], Any]) -> Any:
        """Make a call as one that holds a place."""

    def give_back(self) -> None:
        """Give a place back."""


def fan_out(
    calls: Sequence[Do],
    at_once: int,
    *,
    name: str,
    context: contextvars.Context | None = None,
    on_threads: bool = False,
    places: Places | None = None,
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
        places: What blocking calls wait for. No thread is started before its place is
            there, and it keeps the place while calls are left: however many fan-outs
            there are at a time, they have no more threads than places.

    Example:
        >>> from langchain_dpicl.release.flow import in_thread
        >>> calls = [in_thread(lambda n=n: n * n) for n in range(4)]
        >>> fan_out(calls, 2, name="squares").blocking()
        [0, 1, 4, 9]
    """
    given = contextvars.copy_context() if context is None else context
    many = _Many(calls, min(at_once, len(calls)), name, given, places)
    return Do(many.blocking, many.on_threads if on_threads else many.awaiting)


class _Many:
    """Calls that are being made, and their results so far."""

    def __init__(
        self,
        calls: Sequence[Do],
        workers: int,
        name: str,
        context: contextvars.Context,
        places: Places | None,
    ) -> None:
        self._calls, self._workers, self._name = calls, workers, name
        self._context, self._places = context, places
        self._waited: Future[None] = Future()
        # The places that threads have not given back yet, and what calls raised.
        self._held: list[Places] = []
        self._raised: list[BaseException] = []
        self._left = deque(range(len(calls)))
        self._found: list[Any] = [None] * len(calls)

    def blocking(self) -> list[Any]:
        if self._workers <= 1:
            if self._left and self._has_place():
                self._work()
            return self._found
        threads: list[Thread] = []
        try:
            # A thread costs more than a fast call: start one while calls are left.
            while self._left and len(threads) < self._workers and self._has_place():
                name = f"{self._name}_{len(threads)}"
                threads.append(Thread(target=self._work_on_thread, name=name))
                threads[-1].start()
            for thread in threads:
                thread.join()
        finally:
            self._left.clear()
            for thread in threads:
                # Ctrl-C may have come before the last one's start was seen: it finds
                # no call left.
                with suppress(RuntimeError):
                    thread.join()
            while self._held:
                self._give_back()
        if self._raised:
            raise self._raised.pop(0)
        return self._found

    def _has_place(self) -> bool:
        """Wait for a place; return whether there is one, before no call is left."""
        if self._places is None:
            return True
        self._waited = waited = self._places.ask()
        try:
            if not self._left:
                waited.cancel()
            waited.result()
        except CancelledError:
            return False
        except BaseException:
            if not waited.cancel():
                self._places.give_back()
            raise
        self._held.append(self._places)
        return True

    def _give_back(self) -> None:
        with suppress(IndexError):
            self._held.pop().give_back()

    def _work_on_thread(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised where the caller is
            self._raised.append(error)

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
        """Make calls while some are left, and give the place back."""
        try:
            while self._left:
                try:
                    place = self._left.popleft()
                except IndexError:
                    # Another worker took the last one between our look and our grasp.
                    return
                call = self._calls[place].blocking
                if self._places is not None:
                    call = partial(self._places.part, call)
                self._found[place] = self._context.copy().run(call)
        except BaseException:
            self._left.clear()
            raise
        finally:
            # Nobody needs one more place for these calls.
            self._waited.cancel()
            self._give_back()

    async def _awork(self) -> None:
        while self._left:
            one = self._one(self._left.popleft())
            await self._context.copy().run(asyncio.ensure_future, one)

    async def _one(self, place: int) -> None:
        self._found[place] = await self._calls[place].awaiting()
