"""HTTP calls to a model server: many at once, and no failure but a value.

What is to be asked is written as generators that yield lists of calls and are sent
their replies (`Steps`). One driver runs them on threads, one on an event loop: the
order of questions, and what is made of the answers, stand in one place.

Privacy:
    Calls hold private prompts, and so neither a call nor a failure says anything of
    itself in a repr. Threads and tasks run in copies of the caller's context: inside
    the sealed region they are sealed too. Of an exception only its kind and status
    code are kept.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import openai
from langchain_openai import OpenAI

from langchain_dpicl.sealed import aattempt, attempt
from langchain_dpicl.sealed.region import Interrupted

T = TypeVar("T")

MOST_CALLS = 32
"""HTTP calls in flight at once unless a limit is given."""


@dataclass(frozen=True, repr=False)
class Call:
    """One HTTP request: a path below the API's address, and the body to post.

    Attributes:
        path: Such as `/completions`; one that begins with `..` is beside the API's.
        body: The JSON body; None for a GET.
    """

    path: str
    body: dict[str, Any] | None = None


@dataclass(frozen=True)
class Failure:
    """Stands for a call that failed; it keeps nothing that the server said.

    Attributes:
        status: The HTTP status, or None where there was no answer.
        reason: What kind of failure it was, in words of ours.
    """

    status: int | None
    reason: str

    def __str__(self) -> str:
        return self.reason if self.status is None else f"status {self.status}"


Reply = Any
"""The decoded JSON of an answer, or a `Failure`."""

Steps = Generator[list[Call], list[Reply], T]


@dataclass(frozen=True, repr=False)
class Wire:
    """The SDK's clients of a completions model, with their keys, retries and time-outs.

    Attributes:
        llm: Whose clients they are.
        most: HTTP calls in flight at once.
    """

    llm: OpenAI
    most: int = MOST_CALLS
    _loops: dict[asyncio.AbstractEventLoop, Any] = field(
        default_factory=dict, init=False
    )

    @property
    def host(self) -> str:
        """The server's host name."""
        return str(httpx.URL(str(_root(self.llm.client).base_url)).host)

    def drive(self, steps: Steps[T]) -> T:
        """Run steps, their calls on threads."""
        return _drive(steps, self._all)

    async def adrive(self, steps: Steps[T]) -> T:
        """Run steps, their calls on this event loop."""
        try:
            calls = next(steps)
            while True:
                calls = steps.send(await self._aall(calls))
        except StopIteration as end:
            answer: T = end.value
            return answer

    def _async_root(self) -> Any:
        """Return the SDK's asynchronous client, with connections of this event loop.

        Connections that another loop has left behind, as `asyncio.run` does, would fail
        one private prompt each. Who brings an HTTP client takes care of that.
        """
        root = _root(self.llm.async_client)
        if self.llm.http_async_client is not None:
            return root
        here = asyncio.get_running_loop()
        for loop in [loop for loop in self._loops if loop.is_closed()]:
            self._loops.pop(loop, None)
        if here not in self._loops:
            fresh = openai.DefaultAsyncHttpxClient()
            self._loops[here] = root.copy(http_client=fresh)
        return self._loops[here]

    def _all(self, calls: list[Call]) -> list[Reply]:
        root = _root(self.llm.client)
        slots = [_Slot(call) for call in calls]

        def run(slot: _Slot) -> None:
            attempt(lambda: slot.fill(_send(root, slot.call)))

        _on_threads(run, slots, self.most)
        return [slot.reply for slot in slots]

    async def _aall(self, calls: list[Call]) -> list[Reply]:
        root = self._async_root()
        slots = [_Slot(call) for call in calls]

        async def run(slot: _Slot) -> None:
            async def send() -> None:
                try:
                    slot.reply = await _send(root, slot.call)()
                except Exception as error:  # noqa: BLE001 - only its kind is kept
                    slot.reply = failure_of(error)

            await aattempt(send)

        await _on_tasks(run, slots, self.most)
        return [slot.reply for slot in slots]


@dataclass(repr=False)
class _Slot:
    """A call and the place for its reply: no task or thread returns private text."""

    call: Call
    reply: Reply = field(default_factory=lambda: Failure(None, "no answer"))

    def fill(self, send: Callable[[], Any]) -> None:
        try:
            self.reply = send()
        except Exception as error:  # noqa: BLE001 - only its kind is kept
            self.reply = failure_of(error)


def failure_of(error: Exception) -> Failure:
    """Return what may be said of an error: its kind and status."""
    if isinstance(error, openai.APIStatusError):
        return Failure(error.status_code, "status")
    if isinstance(error, openai.APITimeoutError):
        return Failure(None, "time-out")
    if isinstance(error, openai.APIConnectionError):
        return Failure(None, "no connection")
    return Failure(None, "unreadable answer")


def _drive(steps: Steps[T], ask: Callable[[list[Call]], list[Reply]]) -> T:
    try:
        calls = next(steps)
        while True:
            calls = steps.send(ask(calls))
    except StopIteration as end:
        answer: T = end.value
        return answer


def _root(completions: Any) -> Any:
    # The completions client is all that LangChain keeps of the SDK's client, which
    # alone has the retries and keys for the paths beside it.
    return completions._client  # noqa: SLF001


def _send(root: Any, call: Call) -> Callable[[], Any]:
    path = call.path
    if path.startswith(".."):
        path = str(httpx.URL(str(root.base_url)).join(path))
    if call.body is None:
        return lambda: root.get(path, cast_to=object)
    return lambda: root.post(path, cast_to=object, body=call.body)


def _on_threads(
    run: Callable[[_Slot], None], slots: Sequence[_Slot], most: int
) -> None:
    context = contextvars.copy_context()
    if len(slots) <= 1:
        for slot in slots:
            context.run(run, slot)
        return
    left = deque(slots)

    def work() -> None:
        while left:
            try:
                slot = left.popleft()
            except IndexError:
                # Another worker took the last one between our look and our grasp.
                return
            # A copy for each call: what one leaves in the context, no other sees.
            context.copy().run(run, slot)

    workers = min(most, len(slots))
    jobs: list[Future[None]] = []
    with ThreadPoolExecutor(workers, "dpicl-next-token") as pool:
        try:
            while left and len(jobs) < workers:
                jobs.append(pool.submit(work))
            for job in jobs:
                job.result()
        finally:
            left.clear()


async def _on_tasks(
    run: Callable[[_Slot], Coroutine[Any, Any, None]],
    slots: Sequence[_Slot],
    most: int,
) -> None:
    limit = asyncio.Semaphore(most)

    async def work(slot: _Slot) -> None:
        async with limit:
            await run(slot)

    tasks = [asyncio.ensure_future(work(slot)) for slot in slots]
    try:
        if tasks:
            await asyncio.wait(tasks)
    finally:
        # Only a cancelled caller leaves tasks behind: end them with it.
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    if any(isinstance(end, Interrupted) for end in ended):
        raise KeyboardInterrupt
