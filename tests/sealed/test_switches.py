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
from opentelemetry import context, trace
from opentelemetry.trace import INVALID_SPAN

from langchain_dpicl.sealed import arun_sealed, run_sealed, switches
from langchain_dpicl.sealed.switches import no_instrumentation, switch_off_sdk


class Worker:
    """What an SDK does its work with."""

    def work(self, *args: Any, **named: Any) -> Any:
        return args, named


@pytest.fixture
def sdk(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Give the SDK three modules, of which the second one is not loaded yet."""
    modules: dict[str, Any] = {}
    for name in ("first", "second", "third"):
        module: Any = ModuleType(f"fake_{name}")
        module.Worker = type("Worker", (Worker,), {"work": Worker.work})
        modules[name] = module
        if name != "second":
            monkeypatch.setitem(sys.modules, module.__name__, module)
    owners = {module.__name__: ("Worker", "work") for module in modules.values()}
    monkeypatch.setattr(switches, "_SDK", owners)
    monkeypatch.setattr(switches, "_switched", set())
    return modules


def test_each_module_of_an_sdk_is_switched_off_once_it_is_loaded(
    sdk: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    inside = [False]
    switch_off_sdk(lambda: inside[0])
    switched = [module.Worker.work is not Worker.work for module in sdk.values()]
    assert switched == [True, False, True]
    monkeypatch.setitem(sys.modules, "fake_second", sdk["second"])
    before = sdk["first"].Worker.work, sdk["third"].Worker.work
    switch_off_sdk(lambda: inside[0])
    # Those that are switched off are left alone.
    assert (sdk["first"].Worker.work, sdk["third"].Worker.work) == before
    for module in sdk.values():
        assert module.Worker().work(1, two=2) == ((1,), {"two": 2})
        inside[0] = True
        assert module.Worker().work(1, two=2) is INVALID_SPAN
        inside[0] = False


def test_an_sdk_of_another_version_is_left_as_it_is(
    sdk: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    del sdk["first"].Worker
    del sdk["third"].Worker.work
    monkeypatch.delattr(Worker, "work")
    switch_off_sdk(lambda: True)
    assert not hasattr(sdk["first"], "Worker")
    assert not hasattr(sdk["third"].Worker, "work")


# -- OpenTelemetry ---------------------------------------------------------------------


def look() -> tuple[bool, object, object]:
    span = trace.get_current_span().get_span_context()
    flag = context.get_value("suppress_instrumentation")
    return span.is_valid, bool(span.trace_flags.sampled), flag


@pytest.mark.parametrize("has_helper", [True, False])
def test_the_parent_of_all_spans_is_not_sampled_and_clients_are_told(
    monkeypatch: pytest.MonkeyPatch, has_helper: bool
) -> None:
    if not has_helper:
        monkeypatch.setitem(sys.modules, "opentelemetry.instrumentation.utils", None)
    before = look()
    with no_instrumentation():
        assert look() == (True, False, True)
        assert not trace.get_current_span().is_recording()
        assert not trace.get_current_span().get_span_context().is_remote
    assert look() == before == (False, False, None)
    with pytest.raises(ZeroDivisionError), no_instrumentation():
        raise ZeroDivisionError
    assert look() == before


def test_without_opentelemetry_nothing_is_switched_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with no_instrumentation():
        assert look() == (False, False, None)


# -- what belongs to the process -------------------------------------------------------


@pytest.fixture(autouse=True)
def installed() -> None:
    """Have the process switched off, as the first private step does."""
    run_sealed(lambda: None)


@pytest.fixture
def cache() -> Iterator[InMemoryCache]:
    found = InMemoryCache()
    set_llm_cache(found)
    yield found
    set_llm_cache(None)


async def test_models_find_a_cache_that_keeps_nothing(cache: InMemoryCache) -> None:
    for module in (chat_models, llms):
        assert module.get_llm_cache() is cache
        inside: Any = run_sealed(module.get_llm_cache)
        assert inside is not cache
        inside.update("a", "b", [Generation(text="c")])
        await inside.aupdate("a", "b", [Generation(text="c")])
        assert inside.lookup("a", "b") is None
        assert await inside.alookup("a", "b") is None
        inside.clear()
    set_llm_cache(None)
    assert run_sealed(chat_models.get_llm_cache) is None
    assert run_sealed(llms.get_llm_cache) is None


async def test_events_reach_handlers_outside_alone() -> None:
    class Handler(manager.BaseCallbackHandler):
        def __init__(self) -> None:
            self.heard: list[Any] = []

        def on_text(self, text: str, **_: Any) -> None:
            self.heard.append(text)

    handler = Handler()
    inside = True

    def tell() -> None:
        manager.handle_event([handler], "on_text", None, f"plain {inside}")

    async def atell() -> None:
        await manager.ahandle_event([handler], "on_text", None, f"async {inside}")

    run_sealed(tell)
    await arun_sealed(atell)
    inside = False
    tell()
    await atell()
    assert handler.heard == ["plain False", "async False"]


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
        assert not run_sealed(lambda: speak("inside"))
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
        run_sealed(warn)
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

    thread = threading.Thread(target=run_sealed, args=(late,))
    thread.start()
    assert inside.wait(20)
    with warnings.catch_warnings(record=True) as warned:
        getattr(warnings, add)("always")
        added.set()
        thread.join()
        assert warned == []
        warn()
        assert len(warned) == 1


@pytest.mark.parametrize("how", WARNED)
def test_a_warning_of_another_thread_is_shown_meanwhile(how: str) -> None:
    warn, noted, shown = WARNED[how], threading.Event(), threading.Event()

    def inside() -> None:
        warn()
        noted.set()
        assert shown.wait(20)
        warn()

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        thread = threading.Thread(target=run_sealed, args=(inside,))
        thread.start()
        assert noted.wait(20)
        warn()
        assert len(warned) == 1
        shown.set()
        thread.join()
        assert len(warned) == 1


def test_filters_that_another_thread_puts_first_show_nothing_of_the_inside(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def inside() -> None:
        warnings.simplefilter("always")
        for warn in WARNED.values():
            warn()

    with warnings.catch_warnings():
        run_sealed(inside)
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
