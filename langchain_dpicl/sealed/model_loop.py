"""The event loop on which asynchronous calls of models run, whatever loop asks.

A client keeps its connections open, and each belongs to the loop that opened it. After
a second `asyncio.run`, or beside a loop in another thread, a call that meets a
connection of another loop fails. So every asynchronous call of a model, private or
public, runs on one loop of its own, in a thread of its own.

* The thread is sealed: what asyncio says by itself of tasks, in its debug mode or of an
  exception that nobody fetched, is not logged. Each call runs in its caller's context.
* Clients of the OpenAI SDK get connections of this loop alone, as langchain-openai
  shares one HTTP client among all models of the process.
* A process that was forked starts a loop of its own.
"""

from __future__ import annotations

# ruff: noqa: SLF001 - httpx gives no public way to its connections.
import asyncio
import atexit
import copy
import os
import threading
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from langchain_dpicl.sealed.region import sealed_context

T = TypeVar("T")

THREAD = "dpicl-model-loop"  # Name of the loop's thread.
PATIENCE = 5.0  # Seconds that the end of the process waits for the loop to end.


class ModelLoop:
    """An event loop that runs in a thread, and the connections that belong to it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda _loop, _context: None)
        # By a client's id: the client itself, as long as it is there, and our copy.
        self._clients: dict[int, tuple[weakref.ref[Any], Any]] = {}
        self._ended = False
        # A daemon: a call that hangs must not keep the process alive.
        self._thread = threading.Thread(
            target=sealed_context().run, args=(self._serve,), name=THREAD, daemon=True
        )
        self._thread.start()

    def connected(self, model: T) -> T:
        """Return a copy of a model or embedding with connections of this loop.

        One whose client is not of the OpenAI SDK is returned as it is.
        """
        calls: Any = getattr(model, "async_client", None)
        root: Any = getattr(calls, "_client", None)
        http = getattr(root, "_client", None)
        if root is None or not hasattr(http, "_transport"):
            return model
        own = root.copy(http_client=self._client(http))
        changes = {"async_client": type(calls)(own)}
        if hasattr(model, "root_async_client"):
            changes["root_async_client"] = own
        copied: T = model.model_copy(update=changes)  # type: ignore[attr-defined]
        return copied

    def end(self) -> None:
        """Cancel what still runs, close the connections, and end the thread."""
        with suppress(Exception):
            ending = asyncio.run_coroutine_threadsafe(self._wind_up(), self.loop)
            ending.result(PATIENCE)
        self._ended = True
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        if not self.loop.is_running():
            self.loop.close()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._ended:
            # SystemExit and the like leave the loop; the thread's hook would show them.
            with suppress(BaseException):
                self.loop.run_forever()

    async def _wind_up(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        closing = [copied.aclose() for _, copied in self._clients.values()]
        await asyncio.gather(*tasks, *closing, return_exceptions=True)
        await self.loop.shutdown_asyncgens()

    def _client(self, http: Any) -> Any:
        known = self._clients.get(id(http))
        if known is None:
            # Who closes a client tells nobody: the next new client is when we look.
            for key, (theirs, _) in list(self._clients.items()):
                if getattr(theirs(), "is_closed", False):
                    self._forget(key)
            new = (weakref.ref(http), _reconnected(http))
            known = self._clients.setdefault(id(http), new)
            weakref.finalize(http, self._forget, id(http)).atexit = False
        return known[1]

    def _forget(self, key: int) -> None:
        _, copied = self._clients.pop(key, (None, None))
        if copied and self is _loops.get(os.getpid()) and not self._ended:
            asyncio.run_coroutine_threadsafe(copied.aclose(), self.loop)


def _reconnected(client: Any) -> Any:
    """Return a copy of an httpx client with its settings and no connections."""
    fresh = copy.copy(client)
    fresh._transport = _without_connections(client._transport)
    fresh._mounts = {
        url: _without_connections(transport)
        for url, transport in client._mounts.items()
    }
    return fresh


def _without_connections(transport: Any) -> Any:
    fresh = copy.copy(transport)
    pool = getattr(transport, "_pool", None)
    if hasattr(pool, "_connections"):
        fresh._pool = copy.copy(pool)
        fresh._pool._connections, fresh._pool._requests = [], []
        return fresh
    if hasattr(transport, "client") and hasattr(transport, "ssl_context"):
        # `openai.DefaultAioHttpClient` makes aiohttp's session at its first request,
        # for that loop. A session of the caller's has settings of its own, and stays.
        session, context = transport.client, transport.ssl_context
        of_session = getattr(getattr(session, "connector", None), "_ssl", None)
        if session is None or of_session is context:
            fresh.client = None
            return fresh
    return transport


# By process: a child keeps its parent's loop, which is not its own to close.
_loops: dict[int, ModelLoop] = {}
_starting = threading.Lock()


def model_loop() -> ModelLoop:
    """Return the loop of this process, which is started where there is none."""
    here = os.getpid()
    if here not in _loops:
        with _starting:
            if here not in _loops:
                _loops[here] = ModelLoop()
    return _loops[here]


@atexit.register
def _end() -> None:
    if running := _loops.get(os.getpid()):
        running.end()


def _fork() -> None:
    global _starting  # noqa: PLW0603 - another thread may have held it
    _starting = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fork)


async def on_model_loop(step: Callable[[], Awaitable[T]]) -> T:
    """Run a step on the models' loop, in the caller's context; return its result.

    Canceling the caller cancels the step and waits until it has ended. What the step
    returns or raises is in no task's result, which asyncio's debug mode logs.
    """
    loop = model_loop().loop
    found: list[T] = []
    raised: list[BaseException] = []
    tasks: list[asyncio.Task[None]] = []
    ended: Future[None] = Future()

    async def run() -> None:
        try:
            found.append(await step())
        except BaseException as error:  # noqa: BLE001 - raised where the caller is
            raised.append(error)

    def start() -> None:
        tasks.append(loop.create_task(run()))
        tasks[0].add_done_callback(lambda _: ended.set_result(None))

    def stop() -> None:
        tasks[0].cancel()

    loop.call_soon_threadsafe(start)
    waiting = asyncio.wrap_future(ended)
    try:
        await asyncio.wait([waiting])
    except asyncio.CancelledError:
        loop.call_soon_threadsafe(stop)
        await asyncio.wait([waiting])
        raise
    if raised:
        raise raised.pop()
    return found.pop()


async def each_on_model_loop(
    pieces: Callable[[], AsyncIterable[T]],
) -> AsyncIterator[T]:
    """Yield pieces that are made on the models' loop; see `on_model_loop`."""
    home, came = asyncio.get_running_loop(), asyncio.Queue[Any]()
    end = object()

    async def make() -> None:
        # One task from the first piece to the last, as some clients require.
        async for piece in pieces():
            home.call_soon_threadsafe(came.put_nowait, piece)

    making = asyncio.ensure_future(on_model_loop(make))
    making.add_done_callback(lambda _: came.put_nowait(end))
    try:
        while (piece := await came.get()) is not end:
            yield piece
        await making
    finally:
        making.cancel()
        await asyncio.wait([making])
