"""Nothing of a private step comes out but its result."""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from collections.abc import Callable
from typing import Any

import pytest

from langchain_dpicl import accounting
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import (
    DPError,
    GroupCallError,
    InvalidParameterError,
    UnitError,
)
from langchain_dpicl.mechanisms.random import SeededRandom, current, use
from langchain_dpicl.sealed import attempt, open_for_tests, sealed
from langchain_dpicl.threads import Pool

CANARY = "canary-7f3a"


def leak() -> None:
    secret = CANARY
    logging.getLogger("some.sdk").debug("request body: %s", secret)
    raise RuntimeError(secret)


def raising(error: BaseException) -> Callable[[], None]:
    def step() -> None:
        try:
            leak()
        except RuntimeError as cause:
            raise error from cause

    return step


def caught(step: Callable[[], object]) -> BaseException:
    try:
        sealed(step)
    except BaseException as error:  # noqa: BLE001 - looked at by the test
        return error
    raise AssertionError("nothing was raised")


def rendered(error: BaseException) -> str:
    """Return the error as a crash reporter that walks chains and notes prints it."""
    walked = traceback.TracebackException.from_exception(error, capture_locals=True)
    kept = [error.args, error.__cause__, error.__context__, vars(error)]
    return "".join(walked.format()) + repr(kept)


class TheirError(UnitError):
    """An error of somebody's who derives from ours: its message may be private."""


@pytest.mark.parametrize(
    "error",
    [
        ValueError(CANARY),
        TheirError(CANARY),
        SystemExit(CANARY),
        GeneratorExit(CANARY),
        asyncio.CancelledError(CANARY),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_error_but_our_own_is_replaced(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        found = caught(raising(error))
    assert type(found) is GroupCallError
    assert found.__cause__ is found.__context__ is None
    assert CANARY not in rendered(found)
    assert caplog.messages == []


@pytest.mark.parametrize("kind", [UnitError, DPError, GroupCallError])
def test_our_own_error_is_a_bare_copy(kind: Any) -> None:
    found = caught(raising(kind("Document 3 has no unit id.")))
    assert type(found) is kind
    assert found.args == ("Document 3 has no unit id.",)
    assert found.__cause__ is found.__context__ is None
    assert CANARY not in rendered(found)
    frames = [frame.name for frame in traceback.extract_tb(found.__traceback__)]
    assert frames == ["caught", "sealed"]


@pytest.mark.parametrize("error", [RuntimeError(CANARY), UnitError(CANARY)])
def test_twin_of_an_open_wall_shows_it(error: BaseException) -> None:
    with open_for_tests():
        found = caught(raising(error))
    assert found is error
    assert CANARY in rendered(found)


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
    found = caught(step)
    assert type(found) is GroupCallError
    assert "7331" not in rendered(found)


def test_a_seed_and_the_callers_calls_are_carried_in() -> None:
    with use(SeededRandom(7)) as source:
        assert sealed(current) is source
    assert sealed(current) is current()
    pool = Pool("held", 1)
    names = pool.map([lambda: sealed(lambda: pool.map([threading.current_thread]))])
    assert names[0][0].name == "held"


# -- Ctrl-C ----------------------------------------------------------------------------


def test_an_interrupt_ends_a_step_and_says_nothing() -> None:
    found = caught(raising(KeyboardInterrupt(CANARY)))
    assert type(found) is KeyboardInterrupt
    assert CANARY not in rendered(found)


def test_a_lock_that_an_interrupt_left_behind_is_no_other_error() -> None:
    def step() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            # A second one came while a condition took its lock again.
            threading.Lock().release()

    assert type(caught(step)) is KeyboardInterrupt


def test_an_interrupt_that_the_caller_handles_is_not_the_steps() -> None:
    try:
        raising(KeyboardInterrupt())()
    except KeyboardInterrupt:
        assert type(caught(leak)) is GroupCallError


# -- one slot alone --------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [ValueError(), UnitError("x"), SystemExit(), GeneratorExit()],
    ids=lambda error: type(error).__name__,
)
def test_whatever_one_slot_raises_is_nothing(error: BaseException) -> None:
    assert attempt(raising(error)) is None
    with pytest.raises(type(error)), open_for_tests():
        attempt(raising(error))


def test_a_user_may_interrupt_one_slot() -> None:
    with pytest.raises(KeyboardInterrupt):
        attempt(raising(KeyboardInterrupt()))
