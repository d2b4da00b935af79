"""The models' own loop: whose context, whose errors, and how it ends."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import logging
import os
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

from langchain_dpicl.sealed import model_loop as loops
from langchain_dpicl.sealed.model_loop import (
    THREAD,
    ModelLoop,
    each_on_model_loop,
    model_loop,
    on_model_loop,
)

marker = contextvars.ContextVar("marker", default="nobody's")


async def thread_name() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


# -- one step --------------------------------------------------------------------------


async def test_a_step_runs_on_the_loop_in_its_callers_context() -> None:
    marker.set("the caller's")

    async def step() -> tuple[str, str, bool]:
        name = await thread_name()
        found = marker.get()
        marker.set("the step's")
        return name, found, asyncio.get_running_loop() is model_loop().loop

    assert await on_model_loop(step) == (THREAD, "the caller's", True)
    assert marker.get() == "the caller's"
    assert model_loop() is model_loop()
    assert loops._loops[os.getpid()] is model_loop()


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), SystemExit(3), KeyboardInterrupt("x"), GeneratorExit("x")],
    ids=lambda error: type(error).__name__,
)
async def test_what_a_step_raises_is_raised_where_the_caller_is(
    error: BaseException,
) -> None:
    async def fail() -> None:
        raise error

    caught: BaseException | None = None
    try:
        await on_model_loop(fail)
    except BaseException as found:  # noqa: BLE001 - looked at below
        caught = found
    assert caught is error
    # The loop bears it.
    assert await on_model_loop(thread_name) == THREAD


@pytest.mark.parametrize("value", [None, 0, "yes"])
async def test_what_a_step_returns_comes_back(value: object) -> None:
    async def give() -> object:
        return value

    assert await on_model_loop(give) is value


async def test_canceling_a_caller_waits_until_its_step_has_ended() -> None:
    begun, ended = threading.Event(), threading.Event()

    async def slow() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0.01)
            ended.set()

    task = asyncio.ensure_future(on_model_loop(slow))
    assert await asyncio.to_thread(begun.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


# -- many pieces -----------------------------------------------------------------------


async def pieces(count: int, *, fails: bool = False) -> AsyncIterator[tuple[int, str]]:
    for number in range(count):
        yield number, await thread_name()
    if fails:
        raise ZeroDivisionError


@pytest.mark.parametrize("count", [0, 1, 5])
async def test_pieces_come_in_order_as_they_are_made(count: int) -> None:
    found = [piece async for piece in each_on_model_loop(lambda: pieces(count))]
    assert found == [(number, THREAD) for number in range(count)]


@pytest.mark.parametrize("count", [0, 2])
async def test_an_error_comes_after_the_pieces_before_it(count: int) -> None:
    found = []
    with pytest.raises(ZeroDivisionError):
        async for number, _ in each_on_model_loop(lambda: pieces(count, fails=True)):
            found.append(number)
    assert found == list(range(count))


async def test_who_looks_no_further_ends_the_making() -> None:
    ended = threading.Event()

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
                await asyncio.sleep(0.001)
        finally:
            ended.set()

    stream: Any = each_on_model_loop(endless)
    assert await anext(stream) == 1
    await stream.aclose()
    assert ended.wait(30)
    assert [task for task in asyncio.all_tasks() if not task.done()] == [
        asyncio.current_task()
    ]


# -- connections -----------------------------------------------------------------------

KEYS: dict[str, Any] = {"model": "none", "api_key": "none"}


@pytest.mark.parametrize("kind", [OpenAI, ChatOpenAI, OpenAIEmbeddings])
def test_a_client_of_the_sdk_gets_connections_of_its_own(kind: Any) -> None:
    model, loop = kind(**KEYS), model_loop()
    own = loop.connected(model)
    assert own is not model
    theirs, ours = (one.async_client._client._client for one in (model, own))
    assert ours is not theirs
    assert ours._transport is not theirs._transport
    assert ours._transport._pool is not theirs._transport._pool
    assert ours._transport._pool._connections == []
    assert ours._transport._pool._requests == []
    assert (
        ours._transport._pool._connections is not theirs._transport._pool._connections
    )
    assert (ours.timeout, ours.headers) == (theirs.timeout, theirs.headers)
    assert own.client is model.client
    assert own.async_client._client.api_key == model.async_client._client.api_key
    if kind is ChatOpenAI:
        assert own.root_async_client is own.async_client._client
        assert own.root_async_client is not model.root_async_client
    # The same client has the same connections, for whatever model.
    again = loop.connected(model)
    assert again.async_client._client._client is ours
    other = ModelLoop()
    try:
        elsewhere = other.connected(model)
        assert elsewhere.async_client._client._client is not ours
    finally:
        other.end()


@pytest.mark.parametrize(
    "model",
    [
        object(),
        SimpleNamespace(async_client=None),
        SimpleNamespace(async_client=object()),
        SimpleNamespace(async_client=SimpleNamespace(_client=object())),
        SimpleNamespace(
            async_client=SimpleNamespace(_client=SimpleNamespace(_client=object()))
        ),
    ],
)
def test_any_other_client_stays_as_it_is(model: Any) -> None:
    assert model_loop().connected(model) is model


def test_a_proxy_keeps_its_address_and_gets_connections_too() -> None:
    client = httpx.AsyncClient(proxy="http://127.0.0.1:9")
    own = loops._reconnected(client)
    assert own._mounts.keys() == client._mounts.keys() != set()
    for url, transport in client._mounts.items():
        fresh = own._mounts[url]
        assert fresh is not transport
        assert fresh._pool is not transport._pool
        assert fresh._pool._proxy_url == transport._pool._proxy_url


class Session:
    """What `openai.DefaultAioHttpClient` keeps of aiohttp."""

    def __init__(self, context: object) -> None:
        self.connector = SimpleNamespace(_ssl=context)


@pytest.mark.parametrize("kind", ["none", "its own", "the caller's"])
def test_a_session_of_the_callers_stays(kind: str) -> None:
    context = object()
    session: Any = None
    if kind != "none":
        session = Session(context if kind == "its own" else object())
    transport = SimpleNamespace(client=session, ssl_context=context)
    fresh = loops._without_connections(transport)
    assert transport.client is session
    if kind == "the caller's":
        assert fresh is transport
    else:
        assert fresh is not transport
        assert fresh.client is None
        assert fresh.ssl_context is context


@pytest.mark.parametrize("transport", [object(), SimpleNamespace(client=None)])
def test_a_transport_of_another_kind_stays(transport: Any) -> None:
    assert loops._without_connections(transport) is transport


def test_connections_end_with_their_client() -> None:
    loop = model_loop()
    client = httpx.AsyncClient()
    model = OpenAI(**KEYS, http_async_client=client)
    own = loop.connected(model).async_client._client._client
    key = id(client)
    assert key in loop._clients
    assert not own.is_closed
    del model, client
    for _ in range(3):
        gc.collect()
    assert key not in loop._clients
    # It is closed on the loop, which takes a moment.
    asyncio.run(on_model_loop(thread_name))
    assert own.is_closed


# -- its end ---------------------------------------------------------------------------


async def test_a_loop_that_ends_cancels_what_runs_and_closes_its_connections() -> None:
    loop = ModelLoop()
    began, ended = threading.Event(), threading.Event()

    async def hang() -> None:
        began.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    model = OpenAI(**KEYS, http_async_client=httpx.AsyncClient())
    own = loop.connected(model).async_client._client._client
    running = asyncio.run_coroutine_threadsafe(hang(), loop.loop)
    assert began.wait(30)
    assert loop._thread.daemon
    assert loop._thread.name == THREAD
    assert not loop._ended
    loop.end()
    assert ended.is_set()
    assert running.cancelled()
    assert own.is_closed
    assert not loop._thread.is_alive()
    assert loop.loop.is_closed()
    assert loop._ended


def test_the_end_of_the_process_ends_the_loop_of_the_process_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[str] = []

    def of(name: str) -> Any:
        return SimpleNamespace(end=lambda: ended.append(name))

    monkeypatch.setattr(loops, "_loops", {os.getpid(): of("ours"), 1: of("parent's")})
    loops._end()
    assert ended == ["ours"]
    monkeypatch.setattr(loops, "_loops", {})
    loops._end()
    assert ended == ["ours"]


def test_a_process_has_one_loop_however_many_threads_ask_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Any] = []

    class Slow:
        def __init__(self) -> None:
            made.append(self)
            threading.Event().wait(0.05)

    monkeypatch.setattr(loops, "_loops", {})
    monkeypatch.setattr(loops, "ModelLoop", Slow)
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(model_loop())) for _ in range(5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert found == made * 5


def test_a_child_of_a_fork_waits_for_no_lock_of_its_parent() -> None:
    before = loops._starting
    try:
        with before:
            loops._fork()
            assert loops._starting is not before
            assert loops._starting.acquire(blocking=False)
    finally:
        loops._starting = before


def test_the_loop_bears_what_leaves_it_and_shows_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = ModelLoop()
    try:

        def leave() -> None:
            raise SystemExit("private")

        loop.loop.call_soon_threadsafe(leave)

        async def alive() -> bool:
            return True

        found = asyncio.run_coroutine_threadsafe(alive(), loop.loop)
        assert found.result(30)

        def fail() -> None:
            raise ValueError("private")

        with caplog.at_level(logging.DEBUG):
            loop.loop.call_soon_threadsafe(fail)
            again = asyncio.run_coroutine_threadsafe(alive(), loop.loop)
            assert again.result(30)
        assert "private" not in caplog.text
    finally:
        loop.end()
