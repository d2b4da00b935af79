"""Off switches for what belongs to the whole process, and not to one context.

Loggers, warnings, LangChain's callbacks and its LLM cache can be set up by anybody at
any time, also between two lines of a private step. So they are stopped where each of
them does its work, and only in the sealed region: outside they behave as before.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

from langchain_core.caches import BaseCache
from langchain_core.callbacks import manager
from langchain_core.globals import get_llm_cache
from langchain_core.language_models import chat_models, llms
from langchain_core.outputs import Generation

IsSealed = Callable[[], bool]
_simplefilter = warnings.simplefilter
_switching = threading.Lock()
_done: set[str] = set()

_TRACE_ID = 0x6470_6963_6C20_7365_616C_6564_2072_6567
_SPAN_ID = 0x7365_616C_6564_2E2E
_SDK: dict[str, tuple[str, str]] = {
    "opentelemetry.sdk.trace": ("Tracer", "start_span"),
    "opentelemetry.sdk._logs._internal": ("Logger", "emit"),
    "opentelemetry.sdk.metrics._internal.measurement_consumer": (
        "SynchronousMeasurementConsumer",
        "consume_measurement",
    ),
}
_switched: set[str] = set()


def install_switches(is_sealed: IsSealed) -> None:
    """Give the process its off switches, each one once."""
    with _switching:
        if not _done:
            _switch_off_logging(is_sealed)
            _switch_off_warnings(is_sealed)
            _switch_off_langchain(is_sealed)
            _done.add("process")
        switch_off_sdk(is_sealed)
        _come_first(is_sealed)


def _switch_off_logging(is_sealed: IsSealed) -> None:
    """Stop records where every logger makes and hands them on."""
    is_enabled, handle = logging.Logger.isEnabledFor, logging.Logger.handle

    def is_enabled_for(self: logging.Logger, level: int) -> bool:
        return not is_sealed() and is_enabled(self, level)

    def handle_unless_sealed(self: logging.Logger, record: logging.LogRecord) -> None:
        if not is_sealed():
            handle(self, record)

    logging.Logger.isEnabledFor = is_enabled_for  # type: ignore[method-assign]
    logging.Logger.handle = handle_unless_sealed  # type: ignore[method-assign]


class _Always(type):
    """A class of warnings to which every warning belongs in the sealed region."""

    is_sealed: IsSealed = staticmethod(lambda: False)

    def __subclasscheck__(cls, other: type) -> bool:
        return cls.is_sealed()


class _AnyWhereSealed(Warning, metaclass=_Always):
    """The category of the filter that ignores all warnings in the sealed region."""


def _switch_off_warnings(is_sealed: IsSealed) -> None:
    """Stop warnings where they are made.

    Python notes which warning it has shown from which place, so one that a record
    causes would keep back a later public one. A warning that a filter ignores is not
    noted. The filter (see `_come_first`) is asked by C code, and by modules that have
    imported `warn` themselves; it comes first again after each filter that is added.
    The functions hold also where another thread has taken the filter away.
    """
    _Always.is_sealed = staticmethod(is_sealed)
    warn = warnings.warn
    warnings.warn_explicit = _unless_sealed(warnings.warn_explicit, is_sealed)

    @functools.wraps(warn)
    def warn_unless_sealed(
        message: Any,
        category: Any = None,
        stacklevel: int = 1,
        source: Any = None,
        **more: Any,
    ) -> None:
        if is_sealed():
            return
        # This function is one more frame between the warning and what it is about.
        level = max(stacklevel, 1) + 1
        prefixes = more.get("skip_file_prefixes")
        if prefixes:  # Python 3.12; frames of these files do not count.
            caller = cast("Any", inspect.currentframe()).f_back.f_code.co_filename
            level = max(stacklevel, 2) + (not caller.startswith(prefixes))
        warn(message, category, level, source, **more)

    warnings.warn = warn_unless_sealed
    for add in (warnings.simplefilter, warnings.filterwarnings):
        setattr(warnings, add.__name__, _then_filter_first(add))


def _then_filter_first(add: Callable[..., None]) -> Any:
    @functools.wraps(add)
    def add_behind(*args: Any, **kwargs: Any) -> None:
        add(*args, **kwargs)
        _filter_first()

    return add_behind


def _unless_sealed(call: Callable[..., None], is_sealed: IsSealed) -> Any:
    @functools.wraps(call)
    def call_unless_sealed(*args: Any, **kwargs: Any) -> None:
        if not is_sealed():
            call(*args, **kwargs)

    call_unless_sealed.is_switch = True  # type: ignore[attr-defined]
    return call_unless_sealed


def _come_first(is_sealed: IsSealed) -> None:
    """Put the filter before others, and a switch around what shows warnings.

    Anew where something else was set since: `catch_warnings` takes both away.
    """
    _filter_first()
    if not hasattr(warnings.showwarning, "is_switch"):
        warnings.showwarning = _unless_sealed(warnings.showwarning, is_sealed)


def _filter_first() -> None:
    if not warnings.filters or warnings.filters[0][2] is not _AnyWhereSealed:
        _simplefilter("ignore", category=_AnyWhereSealed)


def _switch_off_langchain(is_sealed: IsSealed) -> None:
    """Stop callbacks where LangChain hands out events, and its global LLM cache.

    A model or a group source that is made of other runnables calls them by `invoke`.
    No handler is inherited there, but debug mode and environment variables add some.
    """
    handle, ahandle = manager.handle_event, manager.ahandle_event

    def handle_event(*args: Any, **kwargs: Any) -> None:
        if not is_sealed():
            handle(*args, **kwargs)

    async def ahandle_event(*args: Any, **kwargs: Any) -> None:
        if not is_sealed():
            await ahandle(*args, **kwargs)

    def get_cache() -> BaseCache | None:
        found = get_llm_cache()
        return _NO_CACHE if found is not None and is_sealed() else found

    manager.handle_event = handle_event
    manager.ahandle_event = ahandle_event
    for module in (chat_models, llms):
        module.get_llm_cache = get_cache  # type: ignore[attr-defined]


class _NoCache(BaseCache):
    """Stands for a cache, so that nothing complains, and keeps nothing."""

    def lookup(self, prompt: str, llm_string: str) -> None:
        """Return nothing."""

    def update(
        self, prompt: str, llm_string: str, return_val: Sequence[Generation]
    ) -> None:
        """Keep nothing."""

    async def alookup(self, prompt: str, llm_string: str) -> None:
        """Return nothing."""

    async def aupdate(
        self, prompt: str, llm_string: str, return_val: Sequence[Generation]
    ) -> None:
        """Keep nothing."""

    def clear(self, **kwargs: Any) -> None:
        """Have nothing to clear."""


_NO_CACHE = _NoCache()


@contextlib.contextmanager
def no_instrumentation() -> Iterator[None]:
    """Fill the current context so that OpenTelemetry makes no span in it.

    Instrumented clients are told to keep still by the suppression flag, but only those
    that ask for it; a client that opens spans by itself does not. So there is also a
    parent span that is not sampled, which drops its children under the usual sampler.
    """
    try:
        from opentelemetry import context, trace
    except ImportError:
        yield
        return
    parent = trace.SpanContext(_TRACE_ID, _SPAN_ID, is_remote=False)
    inside = trace.set_span_in_context(trace.NonRecordingSpan(parent))
    inside = context.set_value("suppress_instrumentation", True, inside)
    token = context.attach(inside)
    try:
        with _suppressed():
            yield
    finally:
        context.detach(token)


def switch_off_sdk(is_sealed: Callable[[], bool]) -> None:
    """Give OpenTelemetry's SDK its off switches, once each, as soon as it is loaded.

    It makes no span, record or measurement in the sealed region, whatever its sampler
    is.
    """
    for module, (owner, method) in _SDK.items():
        if module in _switched or module not in sys.modules:
            continue
        _switched.add(module)
        found = getattr(sys.modules[module], owner, None)
        if hasattr(found, method):
            setattr(found, method, _switched_off(getattr(found, method), is_sealed))


def _switched_off(
    original: Callable[..., Any], is_sealed: Callable[[], bool]
) -> Callable[..., Any]:
    from opentelemetry.trace import INVALID_SPAN

    def method(*args: Any, **kwargs: Any) -> Any:
        # The other two return nothing that anybody looks at.
        return INVALID_SPAN if is_sealed() else original(*args, **kwargs)

    return method


def _suppressed() -> AbstractContextManager[Any]:
    try:
        from opentelemetry.instrumentation.utils import suppress_instrumentation
    except ImportError:
        return contextlib.nullcontext()
    return suppress_instrumentation()  # type: ignore[no-any-return]
