"""Nothing of a private step comes out but its result."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import traceback
import warnings

import pytest
from langchain_core.callbacks import UsageMetadataCallbackHandler, manager
from langchain_core.language_models import chat_models, llms
from langchain_core.runnables.config import ensure_config, var_child_runnable_config
from langsmith.run_helpers import get_tracing_context, tracing_context

from langchain_dpicl.exceptions import GroupCallError, UnitError
from langchain_dpicl.sealed import arun_sealed, run_sealed

CANARY = "canary-7f3a"


def leak() -> None:
    secret = CANARY
    logging.getLogger("some.sdk").debug("request body: %s", secret)
    raise RuntimeError(secret)


async def aleak() -> None:
    await asyncio.sleep(0)
    leak()


def rendered(error: BaseException) -> str:
    """Return the error as a crash reporter that walks chains and notes prints it."""
    return "".join(traceback.format_exception(error)) + repr(
        [error.args, error.__cause__, error.__context__, getattr(error, "__notes__", 0)]
    )


def test_an_error_comes_out_empty(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(GroupCallError) as caught:
        run_sealed(leak)
    assert CANARY not in rendered(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert CANARY not in caplog.text
    assert caplog.messages == []


async def test_an_async_error_comes_out_empty(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(GroupCallError) as caught:
        await arun_sealed(aleak)
    assert CANARY not in rendered(caught.value)
    assert CANARY not in caplog.text


def test_twin_without_the_region_leaks_both_ways(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(RuntimeError) as caught:
        leak()
    assert CANARY in rendered(caught.value)
    assert CANARY in caplog.text


def test_our_own_errors_pass_without_their_history() -> None:
    def step() -> None:
        try:
            leak()
        except RuntimeError as error:
            raise UnitError("Document 3 has no unit id.") from error

    with pytest.raises(UnitError, match="Document 3") as caught:
        run_sealed(step)
    assert CANARY not in rendered(caught.value)


def test_log_records_outside_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    run_sealed(lambda: None)
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("app").info("hello %s", "world")
    assert caplog.messages == ["hello world"]
    with pytest.warns(UserWarning, match="hello"):
        warnings.warn("hello", stacklevel=1)


def test_the_switches_are_installed_once() -> None:
    """Otherwise each question would wrap them once more, until the stack overflows."""

    def installed() -> list[object]:
        run_sealed(lambda: None)
        return [
            logging.Logger.isEnabledFor,
            logging.Logger.handle,
            warnings._showwarnmsg,  # type: ignore[attr-defined] # no public name
            manager.handle_event,
            manager.ahandle_event,
            chat_models.get_llm_cache,
            llms.get_llm_cache,
        ]

    first = installed()
    assert all(now is then for now, then in zip(installed(), first, strict=True))


def test_the_callers_context_is_not_seen_inside() -> None:
    marker = contextvars.ContextVar[str]("marker", default="none")
    marker.set("parent")
    config = ensure_config({"callbacks": [UsageMetadataCallbackHandler()]})
    token = var_child_runnable_config.set(config)
    try:
        with tracing_context(enabled=True, parent=False):
            inside = run_sealed(
                lambda: (
                    marker.get(),
                    var_child_runnable_config.get(),
                    get_tracing_context()["enabled"],
                )
            )
    finally:
        var_child_runnable_config.reset(token)
    assert inside == ("none", None, False)


async def test_the_callers_context_is_not_seen_inside_a_task() -> None:
    marker = contextvars.ContextVar[str]("marker", default="none")
    marker.set("parent")

    async def look() -> tuple[str, object]:
        await asyncio.sleep(0)
        return marker.get(), get_tracing_context()["enabled"]

    assert await arun_sealed(look) == ("none", False)


async def test_cancelling_waits_for_the_step_to_end() -> None:
    ended = False

    async def step() -> None:
        nonlocal ended
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            ended = True

    task = asyncio.ensure_future(arun_sealed(step))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended


def test_interrupts_are_not_swallowed() -> None:
    def step() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sealed(step)
