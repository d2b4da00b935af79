"""Off switches that are put where each thing does its work, and only there."""

from __future__ import annotations

import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from warnings import warn as early_warn

import numpy as np
import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import manager
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import chat_models, llms
from langchain_core.outputs import Generation
from opentelemetry import context

from langchain_dpicl import switches
from langchain_dpicl.sealed import sealed


@pytest.fixture(autouse=True)
def installed() -> None:
    """Have the process switched off, as the first private step does."""
    sealed(lambda: None)


# -- OpenTelemetry ---------------------------------------------------------------------


def test_an_sdk_that_is_loaded_later_is_switched_off_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("fake_sdk", "Worker", "work")
    monkeypatch.setattr(switches, "_TELEMETRY", (names, ("fake_sdk", "Gone", "work")))
    sealed(lambda: None)
    sdk: Any = ModuleType("fake_sdk")
    sdk.Worker = type("Worker", (), {"work": lambda _: "done"})
    monkeypatch.setitem(sys.modules, "fake_sdk", sdk)
    for _ in range(2):
        assert sealed(lambda: sdk.Worker().work()) is None
        assert sdk.Worker().work() == "done"
        assert not hasattr(sdk.Worker.work.__wrapped__, "__wrapped__")


def test_instrumented_clients_are_told_inside_alone() -> None:
    def flag() -> object:
        return context.get_value("suppress_instrumentation")

    assert sealed(flag) is True
    assert flag() is None


# -- what belongs to the process -------------------------------------------------------


def test_the_switches_are_installed_once() -> None:
    """Otherwise each question would wrap them once more, until the stack overflows."""

    def in_place() -> list[object]:
        sealed(lambda: None)
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

    first = in_place()
    assert all(now is then for now, then in zip(in_place(), first, strict=True))


@pytest.fixture
def cache() -> Iterator[InMemoryCache]:
    found = InMemoryCache()
    set_llm_cache(found)
    yield found
    set_llm_cache(None)


def test_models_find_a_cache_that_keeps_nothing(cache: InMemoryCache) -> None:
    for module in (chat_models, llms):
        assert module.get_llm_cache() is cache
        inside: Any = sealed(module.get_llm_cache)
        assert inside is not cache
        inside.update("a", "b", [Generation(text="c")])
        assert inside.lookup("a", "b") is None
        inside.clear()
    set_llm_cache(None)
    assert sealed(chat_models.get_llm_cache) is None
    assert sealed(llms.get_llm_cache) is None


def test_loggers_and_warnings_speak_outside_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = logging.getLogger("some.sdk")

    def speak(where: str) -> bool:
        log.error(where)
        log.handle(logging.makeLogRecord({"msg": f"{where} handled", "levelno": 40}))
        warnings.warn(where, stacklevel=1)
        return log.isEnabledFor(logging.CRITICAL)

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert not sealed(lambda: speak("inside"))
        assert speak("outside")
    assert caplog.messages == ["outside", "outside handled"]
    assert [str(each.message) for each in warned] == ["outside"]
    with caplog.at_level(logging.WARNING):
        assert not log.isEnabledFor(logging.INFO)


PLACES: dict[str, Any] = {}
"""What Python notes of the warnings of one module."""


def explicit() -> None:
    warnings.warn_explicit("same", UserWarning, "some.py", 1, registry=PLACES)


WARNED: dict[str, Callable[[], object]] = {
    "warn": lambda: warnings.warn("same", stacklevel=1),
    "early": lambda: early_warn("same", stacklevel=1),
    "explicit": explicit,
    "numpy": lambda: np.ones(1) / 0,
    "python": lambda: bool(NotImplemented),
}


@pytest.mark.parametrize("how", WARNED)
@pytest.mark.parametrize("action", ["default", "module", "once", "error"])
def test_a_warning_inside_is_not_noted(how: str, action: Any) -> None:
    """Python shows a warning once a place: one inside would keep back a later one."""
    warn = WARNED[how]
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter(action)
        sealed(warn)
        assert warned == []
        if action == "error":
            with pytest.raises(Warning):
                warn()
        else:
            warn()
            warn()
            assert len(warned) == 1


@pytest.mark.parametrize("how", WARNED)
@pytest.mark.parametrize("add", ["simplefilter", "filterwarnings"])
def test_a_block_that_begins_meanwhile_hears_nothing(how: str, add: str) -> None:
    """A call outlives its question: somebody else begins to collect warnings."""
    warn, inside, added = WARNED[how], threading.Event(), threading.Event()

    def late() -> None:
        inside.set()
        assert added.wait(20)
        warn()

    thread = threading.Thread(target=sealed, args=(late,))
    thread.start()
    assert inside.wait(20)
    with warnings.catch_warnings(record=True) as warned:
        getattr(warnings, add)("always")
        added.set()
        thread.join()
        assert warned == []
        warn()
        assert len(warned) == 1


def test_filters_that_another_thread_puts_first_show_nothing_of_the_inside(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def inside() -> None:
        warnings.simplefilter("always")
        for warn in WARNED.values():
            warn()

    with warnings.catch_warnings():
        sealed(inside)
    assert capsys.readouterr().err == ""


def test_a_warning_outside_names_the_place_that_it_is_about() -> None:
    def warn(**more: Any) -> None:
        warnings.warn("here", **more)

    frame = sys._getframe()
    lines = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for level in (-1, 0, 1, 2):
            warn(stacklevel=level)
            lines.append(frame.f_lineno - 1)
        if sys.version_info >= (3, 12):
            warn(skip_file_prefixes=("elsewhere",))
            warn(skip_file_prefixes=(str(Path(__file__).parent),))
    places = [(each.filename, each.lineno) for each in warned]
    first = warn.__code__.co_firstlineno + 1
    assert places[:4] == [(__file__, first)] * 3 + [(__file__, lines[-1])]
    if sys.version_info >= (3, 12):
        assert places[4] == (__file__, lines[-1] + 3)
        assert places[5][0] != __file__
