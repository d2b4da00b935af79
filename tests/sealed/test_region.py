"""Nothing of a private step comes out but its result."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import traceback
import warnings
from typing import Any

import pytest
from langchain_core.callbacks import UsageMetadataCallbackHandler, manager
from langchain_core.language_models import chat_models, llms
from langchain_core.runnables.config import ensure_config, var_child_runnable_config
from langsmith.run_helpers import get_tracing_context, tracing_context

from langchain_dpicl import accounting
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import (
    DPError,
    GroupCallError,
    InvalidParameterError,
    UnitError,
)
from langchain_dpicl.release.fan_out import Interrupted
from langchain_dpicl.release.flow import Do, in_thread
from langchain_dpicl.sealed import (
    aattempt,
    arun_sealed,
    attempt,
    attempted,
    region,
    run_sealed,
    sealed,
)
from langchain_dpicl.sealed.call_limit import CallLimit

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


@pytest.mark.parametrize(
    "step",
    [
        lambda: parameters.positive("radius", -73_310),
        lambda: accounting.compose([], -73_310),
    ],
)
def test_a_value_that_numbers_refuse_is_not_told(step: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"73310|73,310|7\.331"):
        step()
    with pytest.raises(GroupCallError) as caught:
        run_sealed(step)
    assert "7331" not in rendered(caught.value)


def test_an_event_that_is_refused_inside_is_not_told() -> None:
    with pytest.raises(GroupCallError):
        run_sealed(lambda: accounting.Gaussian(noise_multiplier=-73_310))


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
            warnings.warn,
            warnings.warn_explicit,
            warnings.showwarning,
            *warnings.filters,
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


async def both(step: Any, astep: Any = None) -> list[Any]:
    """Return what a step raises or returns in either kind of region."""

    async def awaiting() -> Any:
        await asyncio.sleep(0)
        return step()

    found: list[Any] = []
    try:
        found.append(run_sealed(step))
    except BaseException as error:  # noqa: BLE001 - looked at by the test
        found.append(error)
    try:
        found.append(await arun_sealed(astep or awaiting))
    except BaseException as error:  # noqa: BLE001 - looked at by the test
        found.append(error)
    return found


class TheirError(UnitError):
    """An error of somebody's who derives from ours: its message may be private."""


class EarlierError(TheirError):
    """The same, of a module whose name sorts before that of ours."""

    __module__ = "aaa"


@pytest.mark.parametrize(
    "error",
    [
        ValueError(CANARY),
        TheirError(CANARY),
        EarlierError(CANARY),
        SystemExit(CANARY),
        GeneratorExit(CANARY),
        asyncio.CancelledError(CANARY),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_every_error_but_our_own_is_replaced(error: BaseException) -> None:
    def step() -> None:
        raise error

    for found in await both(step):
        assert type(found) is GroupCallError
        assert CANARY not in rendered(found)


@pytest.mark.parametrize("kind", [UnitError, DPError, GroupCallError])
async def test_our_own_error_is_a_bare_copy(kind: Any) -> None:
    def step() -> None:
        raise kind("Document 3 has no unit id.")

    for found in await both(step):
        assert type(found) is kind
        assert found.args == ("Document 3 has no unit id.",)
        assert found.__cause__ is found.__context__ is None
        frames = [frame.name for frame in traceback.extract_tb(found.__traceback__)]
        assert "step" not in frames


@pytest.mark.parametrize("error", [KeyboardInterrupt, Interrupted])
def test_an_interrupt_of_tasks_is_one_of_the_user(error: Any) -> None:
    def step() -> None:
        raise error(CANARY)

    with pytest.raises(KeyboardInterrupt) as caught:
        run_sealed(step)
    assert CANARY not in repr(caught.value)


async def test_a_region_has_no_parent_run_and_knows_the_limits_of_its_caller() -> None:
    limit, other = CallLimit(1), CallLimit(1)

    def look() -> Any:
        tracing = get_tracing_context()
        held = (limit.is_held, other.is_held)
        return tracing["parent"], tracing["enabled"], held, region._sealed.get()

    with tracing_context(enabled=True, tags=["outer"]):
        assert await both(look) == [(None, False, (False, False), True)] * 2
    async with limit.acall():
        assert await both(look) == [(None, False, (True, False), True)] * 2
    assert not region._sealed.get()


def test_nothing_of_a_region_stays_outside() -> None:
    marker = contextvars.ContextVar[str]("marker", default="none")
    run_sealed(lambda: marker.set("inside"))
    assert marker.get() == "none"
    context = region.sealed_context()
    assert [context.copy().run(region._sealed.get) for _ in range(2)] == [True, True]


async def test_a_private_flow_runs_sealed_either_way() -> None:
    def steps() -> Any:
        first = yield in_thread(region._sealed.get)
        return first, region._sealed.get()

    call = sealed(steps)
    assert call.blocking() == (True, True)
    assert await call.awaiting() == (True, True)


# -- one slot alone --------------------------------------------------------------------


def raising(error: BaseException) -> Any:
    def step() -> None:
        raise error

    return step


async def araised(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    "error",
    [ValueError(), UnitError("x"), SystemExit(), GeneratorExit()],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_one_slot_raises_is_nothing(error: BaseException) -> None:
    assert attempt(raising(error)) is None
    assert await aattempt(lambda: araised(error)) is None
    call = attempted(Do(raising(error), lambda: araised(error)))
    assert call.blocking() is None
    assert await call.awaiting() is None


async def test_a_client_that_cancels_itself_ends_its_slot_alone() -> None:
    assert await aattempt(lambda: araised(asyncio.CancelledError())) is None


@pytest.mark.parametrize("value", [0, None, "", "yes"])
async def test_what_one_slot_returns_comes_back(value: object) -> None:
    async def give() -> object:
        await asyncio.sleep(0)
        return value

    assert attempt(lambda: value) is value
    assert await aattempt(give) is value
    call = attempted(Do(lambda: value, give))
    assert call.blocking() is value
    assert await call.awaiting() is value


async def test_a_user_may_interrupt_one_slot() -> None:
    with pytest.raises(KeyboardInterrupt):
        attempt(raising(KeyboardInterrupt()))
    for error in (KeyboardInterrupt, Interrupted):
        with pytest.raises(Interrupted):
            await aattempt(lambda error=error: araised(error()))  # type: ignore[misc]


async def test_canceling_the_query_ends_the_slot_and_waits_for_it() -> None:
    ended: list[str] = []
    begun = asyncio.Event()

    async def slow() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            ended.append("slot")

    task = asyncio.ensure_future(aattempt(slow))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["slot"]


def test_a_step_that_is_closed_ends() -> None:
    """Nobody waits for it any more; a result would be an error of its own."""

    class Never:
        def __await__(self) -> Any:
            yield

    async def wait() -> None:
        await Never()

    step = region._aguarded(wait)
    step.send(None)
    step.close()
    assert step.cr_frame is None


@pytest.mark.parametrize("run", [arun_sealed, aattempt])
async def test_a_canceled_step_says_nothing_either(run: Any) -> None:
    begun = asyncio.Event()

    async def talkative() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise asyncio.CancelledError(CANARY) from None

    task = asyncio.ensure_future(run(talkative))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert CANARY not in rendered(caught.value)


async def test_a_step_that_bears_its_cancellation_ends_nothing_else() -> None:
    begun = asyncio.Event()

    async def stubborn() -> str:
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return CANARY

    task = asyncio.ensure_future(arun_sealed(stubborn))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
