"""How many group calls of one chain are in flight, over all questions at a time."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")

held_limits: contextvars.ContextVar[tuple[CallLimit, ...]] = contextvars.ContextVar(
    "langchain_dpicl_call_limits", default=()
)
"""The limits of the calls that the caller is part of."""


class CallLimit:
    """Lets so many calls run at once, on threads and on event loops alike.

    A call that is made within another call of the same limit is part of that one: it
    does not wait, as it might wait for itself. Others come in the order in which they
    asked.

    Example:
        >>> limit = CallLimit(1)
        >>> first, second = limit.ask(), limit.ask()
        >>> first.done(), second.done()
        (True, False)
        >>> limit.give_back()
        >>> second.done()
        True
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._free = most
        self._waiting: deque[Future[None]] = deque()
        self._lock = threading.Lock()

    @property
    def is_held(self) -> bool:
        """Whether the caller is part of a call that holds a place."""
        return self in held_limits.get()

    def part(self, call: Callable[[], T]) -> T:
        """Make a call as a part of one that holds a place."""
        token = held_limits.set((*held_limits.get(), self))
        try:
            return call()
        finally:
            held_limits.reset(token)

    @asynccontextmanager
    async def acall(self) -> AsyncIterator[None]:
        """Wait for a place, and hold it while the block runs."""
        if self.is_held:
            yield
            return
        place = self.ask()
        if not place.done():
            try:
                await asyncio.wrap_future(place)
            except BaseException:
                self._withdraw(place)
                raise
        token = held_limits.set((*held_limits.get(), self))
        try:
            yield
        finally:
            held_limits.reset(token)
            self.give_back()

    def ask(self) -> Future[None]:
        """Ask for a place; it is there when the future is done, and withdrawn by it."""
        place: Future[None] = Future()
        with self._lock:
            if self._free:
                self._free -= 1
                place.set_result(None)
            else:
                self._waiting.append(place)
        return place

    def _withdraw(self, place: Future[None]) -> None:
        # Canceled by us or by `wrap_future`: `give_back` passes it over.
        if not place.cancel():
            self.give_back()

    def give_back(self) -> None:
        """Give a place back; the call that has waited longest gets it."""
        with self._lock:
            while self._waiting:
                place = self._waiting.popleft()
                if place.set_running_or_notify_cancel():
                    place.set_result(None)
                    return
            self._free += 1
