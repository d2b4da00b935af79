"""Calls of an embedding with private texts: which texts share one, how many at once.

A text's vector may depend on the other texts of its call. A model pads them to one
length, its kernels add in an order that follows the batch's shape, and one text that
is refused fails the call of all. So by default no call holds texts of two units.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_core.embeddings import Embeddings

from langchain_dpicl import parameters
from langchain_dpicl.validation import checked

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable, Sequence

_T = TypeVar("_T")

CALLS_AT_ONCE = 16
"""Most calls in flight at once of an embedding that waits for a server."""

LARGEST_CALL = 256
"""Most texts of one unit in one call."""


def calls_of(
    units: Sequence[Hashable], batch_size: int | None, *, most: int = LARGEST_CALL
) -> list[list[int]]:
    """Return which texts share a call, as lists of their places.

    Args:
        units: The unit of each text.
        batch_size: How many texts share a call, in their order, whatever their units;
            None: those of one unit.
        most: Most texts of one unit in one call.

    Raises:
        InvalidParameterError: If `batch_size` is not a positive integer.

    Example:
        >>> calls_of(["ada", "bob", "ada"], None), calls_of(["ada", "bob", "ada"], 2)
        ([[0, 2], [1]], [[0, 1], [2]])
    """
    places: dict[Hashable, list[int]] = {}
    for place, unit in enumerate(units):
        places.setdefault(unit, []).append(place)
    together = list(places.values())
    if batch_size is not None:
        most = checked(parameters.count, batch_size, "embedding_batch_size")
        together = [list(range(len(units)))]
    return [
        own[start : start + most]
        for own in together
        for start in range(0, len(own), most)
    ]


def calls_at_once(embedding: Any) -> int:
    """Return how many calls of an embedding may run at once.

    One, unless its class has an `aembed_documents` of its own, as clients of servers
    have. Others compute in this process and need not bear several threads: the fast
    tokenizers of `transformers` raise an error then, and which text meets it depends
    on the others.

    Example:
        >>> from langchain_dpicl.offline import HashingEmbeddings
        >>> calls_at_once(HashingEmbeddings())
        1
    """
    # A cache has a method of its own, which calls that of what it keeps.
    called = getattr(embedding, "underlying_embeddings", embedding)
    own = getattr(type(called), "aembed_documents", Embeddings.aembed_documents)
    return 1 if own is Embeddings.aembed_documents else CALLS_AT_ONCE


def run_calls(
    step: Callable[[list[int]], _T], calls: Sequence[list[int]], embedding: Any
) -> list[_T]:
    """Return `step(call)` for each call, in their order.

    Each step runs in a copy of the caller's context. The first one that raises ends
    all: no further one begins.
    """
    at_once = min(calls_at_once(embedding), len(calls))
    context = contextvars.copy_context()
    if at_once <= 1:
        return [context.copy().run(step, call) for call in calls]
    found: dict[int, _T] = {}
    left = deque(enumerate(calls))

    def work() -> None:
        while left:
            try:
                place, call = left.popleft()
            except IndexError:
                # Another worker took the last one between our look and our grasp.
                return
            found[place] = context.copy().run(step, call)

    with ThreadPoolExecutor(at_once, "dpicl-embedding") as pool:
        try:
            for job in as_completed([pool.submit(work) for _ in range(at_once)]):
                job.result()
        finally:
            left.clear()
    return [found[place] for place in range(len(calls))]


async def arun_calls(
    step: Callable[[list[int]], Coroutine[Any, Any, _T]],
    calls: Sequence[list[int]],
    embedding: Any,
) -> list[_T]:
    """Return `await step(call)` for each call; the async twin of `run_calls`."""
    found: dict[int, _T] = {}
    left = deque(enumerate(calls))

    async def work() -> None:
        while left:
            place, call = left.popleft()
            found[place] = await step(call)

    at_once = min(calls_at_once(embedding), len(calls))
    workers = [asyncio.ensure_future(work()) for _ in range(at_once)]
    try:
        await asyncio.gather(*workers)
    finally:
        # After a failure or a cancellation no call stays behind.
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [found[place] for place in range(len(calls))]
