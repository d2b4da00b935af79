"""Calls on threads and tasks, without a server."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from typing import Any

import openai
import pytest
from langchain_openai import OpenAI

from langchain_dpicl.few_shot.models.openai import wire as wire_module
from langchain_dpicl.few_shot.models.openai.wire import (
    Call,
    Failure,
    Steps,
    Wire,
    failure_of,
)
from langchain_dpicl.release.flow import aresult, result

CANARY = "Zebra-7431"
seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="outside")


class Sent:
    """Stands for the SDK: answers each call with what a function says of it."""

    def __init__(self, answer: Callable[[Call], Any]) -> None:
        self.answer = answer
        self.is_async = False

    def __call__(self, _root: Any, call: Call) -> Callable[[], Any]:
        async def later() -> Any:
            await asyncio.sleep(0)
            return self.answer(call)

        return later if self.is_async else lambda: self.answer(call)


def asking(count: int) -> Steps[list[Any]]:
    replies = yield [Call(f"/{i}", {"prompt": CANARY}) for i in range(count)]
    more = yield [Call("/more")]
    return [*replies, *more]


async def both(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[Call], Any], count: int = 9
) -> list[list[Any]]:
    sent = Sent(answer)
    monkeypatch.setattr(wire_module, "_send", sent)
    wire = Wire(OpenAI(api_key="x"), most=4)
    found = [result(wire.flow(asking(count)))]
    sent.is_async = True
    return [*found, await aresult(wire.flow(asking(count)))]


async def test_replies_stand_in_the_order_of_the_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for count in (0, 1, 9):
        for found in await both(monkeypatch, lambda call: call.path, count):
            assert found == [*(f"/{i}" for i in range(count)), "/more"]


async def test_calls_run_in_the_callers_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def answer(_call: Call) -> str:
        found = seen.get()
        # What one call leaves behind, no other sees.
        seen.set("a call")
        return found

    seen.set("sealed")
    for found in await both(monkeypatch, answer):
        assert set(found[:-1]) == {"sealed"}


@pytest.mark.parametrize(
    "error", [ValueError, SystemExit, asyncio.CancelledError, GeneratorExit]
)
async def test_what_a_client_raises_is_one_reply(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    def answer(call: Call) -> str:
        if call.path == "/3":
            raise error(CANARY)
        return call.path

    for found in await both(monkeypatch, answer):
        assert isinstance(found[3], Failure)
        assert CANARY not in str(found[3]) + repr(found[3])
        assert [one for place, one in enumerate(found) if place != 3] == [
            *(f"/{i}" for i in range(9) if i != 3),
            "/more",
        ]


async def test_the_user_can_stop_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(call: Call) -> str:
        if call.path == "/3":
            raise KeyboardInterrupt
        return call.path

    sent = Sent(answer)
    monkeypatch.setattr(wire_module, "_send", sent)
    wire = Wire(OpenAI(api_key="x"))
    with pytest.raises(KeyboardInterrupt):
        result(wire.flow(asking(9)))
    sent.is_async = True
    # Not the coroutine alone: the event loop must not see it before its tasks end.
    with pytest.raises(KeyboardInterrupt):
        await aresult(wire.flow(asking(9)))
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_failures_keep_a_kind_and_a_status() -> None:
    request: Any = None
    assert str(failure_of(openai.APITimeoutError(request))) == "time-out"
    gone = openai.APIConnectionError(request=request)
    assert str(failure_of(gone)) == "no connection"
    assert str(failure_of(ValueError(CANARY))) == "unreadable answer"
    assert str(Failure(404, "status")) == "status 404"


def test_calls_and_wires_show_nothing() -> None:
    wire = Wire(OpenAI(api_key="secret-key", base_url="http://u:secret@h/v1"))
    shown = f"{Call('/x', {'prompt': CANARY})!r} {wire!r}"
    assert CANARY not in shown
    assert "secret" not in shown
