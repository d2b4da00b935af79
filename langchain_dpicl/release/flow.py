"""One order of steps, for callers that block and for callers that await.

A *flow* is a generator. It yields `Do` to have a call made, and receives what the call
returned. It yields `Each` to have the pieces of a call handed on. It yields anything
else to hand it to the caller. Errors, cancellation and an early `close()` are raised
inside the flow, at the step where they happened; a `finally` there may yield `Do` too.

`run` and `arun` drive a flow. A flow that hands nothing on is driven by `result` and
`aresult`. A step is written once, so both ways of calling have the same order of steps.
httpx drives its `auth_flow` in the same way.

Example:
    >>> def greeting(name: str) -> Flow[str]:
    ...     title = yield Do(lambda: "Dr.", look_up_title)
    ...     return f"Good morning, {title} {name}"
    >>> async def look_up_title() -> str:
    ...     return "Prof."
    >>> result(greeting("Who"))
    'Good morning, Dr. Who'
    >>> import asyncio
    >>> asyncio.run(aresult(greeting("Who")))
    'Good morning, Prof. Who'
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Awaitable,
    Callable,
    Generator,
    Iterable,
)
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Flow: TypeAlias = Generator[Any, Any, T]


@dataclass(frozen=True, repr=False)
class Do:
    """One call, in its blocking and its awaiting form."""

    blocking: Callable[[], Any]
    awaiting: Callable[[], Awaitable[Any]]


@dataclass(frozen=True, repr=False)
class Each:
    """One call whose pieces are handed on as they come.

    Attributes:
        blocking: Gives the pieces.
        awaiting: Gives them to a caller that awaits.
        handed_on: The pieces so far, also after an error.
    """

    blocking: Callable[[], Iterable[Any]]
    awaiting: Callable[[], AsyncIterable[Any]]
    handed_on: list[Any] = field(default_factory=list)


def in_thread(
    call: Callable[[], T],
    *,
    shielded: bool = False,
    lost: Callable[[T], Any] | None = None,
) -> Do:
    """Return a blocking call that runs in a thread where the caller awaits.

    Args:
        call: What to run.
        shielded: Whether it runs to its end also where the caller is canceled, as the
            blocking form does: for what must be written. Its result must be public,
            as it is the result of a task, which asyncio's debug mode logs.
        lost: Called with the result, if the caller was canceled before it had it.
    """
    lock, results = threading.Lock(), list[T]()
    is_canceled = False

    def work() -> T:
        result = call()
        with lock:
            results.append(result)
            is_lost = is_canceled and lost is not None
        if is_lost:
            lost(result)  # type: ignore[misc]
        return result

    async def awaiting() -> T:
        return await asyncio.to_thread(work)

    async def shielding() -> T:
        nonlocal is_canceled
        try:
            return await asyncio.shield(awaiting())
        except asyncio.CancelledError:
            with lock:
                is_canceled = True
            if results and lost is not None:
                lost(results[0])
            raise

    return Do(call, shielding if shielded else awaiting)


def paused(seconds: float) -> Do:
    """Return a wait."""
    return Do(partial(time.sleep, seconds), partial(asyncio.sleep, seconds))


class Closed(BaseException):
    """Raised in a flow whose caller takes no more of it.

    Python hands a GeneratorExit on by closing the inner generators, which could then
    make no call.
    """


def run(flow: Flow[Any]) -> Generator[Any, None, None]:
    """Drive a flow on this thread; yield what it hands on."""
    # What a call returned is in no variable when the flow raises: tracebacks show them.
    held: list[Any] = []
    with suppress(Closed):
        item = _send(flow, held)
        while item is not _END:
            try:
                if isinstance(item, Do):
                    held.append(item.blocking())
                elif isinstance(item, Each):
                    for piece in item.blocking():
                        item.handed_on.append(piece)
                        yield piece
                else:
                    yield item
            except BaseException as error:  # noqa: BLE001, PERF203  # raised there
                is_closed = isinstance(error, GeneratorExit)
                try:
                    item = flow.throw(Closed() if is_closed else error)
                except StopIteration:
                    item = _END
            else:
                item = _send(flow, held)


async def arun(flow: Flow[Any]) -> AsyncGenerator[Any, None]:
    """Drive a flow on this event loop; yield what it hands on; see `run`."""
    held: list[Any] = []
    with suppress(Closed):
        item = _send(flow, held)
        while item is not _END:
            try:
                if isinstance(item, Do):
                    held.append(await item.awaiting())
                elif isinstance(item, Each):
                    async for piece in item.awaiting():
                        item.handed_on.append(piece)
                        yield piece
                else:
                    yield item
            except BaseException as error:  # noqa: BLE001, PERF203  # raised there
                is_closed = isinstance(error, GeneratorExit)
                try:
                    item = flow.throw(Closed() if is_closed else error)
                except StopIteration:
                    item = _END
            else:
                item = _send(flow, held)


def result(flow: Flow[T]) -> T:
    """Drive a flow that hands nothing on; return what it returns."""
    found: list[T] = []
    for _ in run(_kept(flow, found)):
        raise TypeError(_HANDS_ON)
    return found[0]


async def aresult(flow: Flow[T]) -> T:
    """Drive a flow that hands nothing on; see `result`."""
    found: list[T] = []
    async for _ in arun(_kept(flow, found)):
        raise TypeError(_HANDS_ON)
    return found[0]


_END = object()
_HANDS_ON = "This flow hands items on: drive it with run() or arun()."


def _kept(flow: Flow[T], found: list[T]) -> Flow[None]:
    found.append((yield from flow))


def _send(flow: Flow[Any], held: list[Any]) -> Any:
    try:
        return flow.send(held.pop() if held else None)
    except StopIteration:
        return _END
