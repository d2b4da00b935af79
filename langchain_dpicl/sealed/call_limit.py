"""How many group calls of one chain are in flight, over all questions at a time."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager

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
        >>> with limit.call(), limit.call():
        ...     "no deadlock"
        'no deadlock'
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._free = most
        self._waiting: deque[Future[None]] = deque()
        self._lock = threading.Lock()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Wait for a place, and hold it."""
        if self in held_limits.get():
            yield
            return
        place = self._ask()
        try:
            place.result()
        except BaseException:
            self._withdraw(place)
            raise
        with self._holding():
            yield

    @asynccontextmanager
    async def acall(self) -> AsyncIterator[None]:
        """Wait for a place, and hold it; see `call`."""
        if self in held_limits.get():
            yield
            return
        place = self._ask()
        if not place.done():
            try:
                await asyncio.wrap_future(place)
            except BaseException:
                self._withdraw(place)
                raise
        with self._holding():
            yield

    @contextmanager
    def _holding(self) -> Iterator[None]:
        token = held_limits.set((*held_limits.get(), self))
        try:
            yield
        finally:
            held_limits.reset(token)
            self._give_back()

    def _ask(self) -> Future[None]:
        place: Future[None] = Future()
        with self._lock:
            if self._free:
                self._free -= 1
                place.set_result(None)
            else:
                self._waiting.append(place)
        return place

    def _withdraw(self, place: Future[None]) -> None:
        # Canceled by us or by `wrap_future`: `_give_back` passes it over.
        if not place.cancel():
            self._give_back()

    def _give_back(self) -> None:
        with self._lock:
            while self._waiting:
                place = self._waiting.popleft()
                if place.set_running_or_notify_cancel():
                    place.set_result(None)
                    return
            self._free += 1
