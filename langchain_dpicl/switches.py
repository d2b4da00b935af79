"""Off switches for what belongs to the whole process, and not to one context.

Loggers, warnings, LangChain's callbacks and its LLM cache can be set up by anybody at
any time, also between two lines of a private step. So each is stopped where it does its
work, at a public name, and in the sealed region only: outside it behaves as before.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import logging
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

from langchain_core.caches import BaseCache
from langchain_core.callbacks import manager
from langchain_core.globals import get_llm_cache
from langchain_core.language_models import chat_models, llms
from langchain_core.outputs import Generation

is_sealed: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "langchain_dpicl_sealed", default=False
)
"""Whether the code that runs is in the sealed region."""

_TELEMETRY = (
    ("opentelemetry.sdk.trace", "Tracer", "start_span"),
    ("opentelemetry.sdk._logs", "Logger", "emit"),
    ("opentelemetry.sdk.metrics", "Counter", "add"),
    ("opentelemetry.sdk.metrics", "UpDownCounter", "add"),
    ("opentelemetry.sdk.metrics", "Histogram", "record"),
    ("opentelemetry.sdk.metrics", "_Gauge", "set"),
)
"""What makes spans, log records and measurements in OpenTelemetry's SDK."""

_simplefilter = warnings.simplefilter
_switching = threading.Lock()
_switched: set[tuple[str, ...]] = set()


def install_switches() -> None:
    """Give the process its off switches, each once, an SDK's as soon as it is loaded.

    The filter of warnings comes first anew, where something was set since.
    """
    with _switching:
        if not _switched:
            _switched.add(("process",))
            _switch_off(logging.Logger, "isEnabledFor", instead=False)
            _switch_off(logging.Logger, "handle")
            _switch_off_warnings()
            _switch_off_langchain()
        for names in _TELEMETRY:
            owner = getattr(sys.modules.get(names[0]), names[1], None)
            if names not in _switched and hasattr(owner, names[2]):
                _switched.add(names)
                span = names[2] == "start_span"
                instead = sys.modules["opentelemetry.trace"].INVALID_SPAN
                _switch_off(owner, names[2], instead=instead if span else None)
        _filter_first()
        # `catch_warnings` takes it away.
        if not hasattr(warnings.showwarning, "is_switch"):
            _switch_off(warnings, "showwarning")


def _switch_off(owner: Any, name: str, *, instead: Any = None) -> None:
    """Have a function do nothing in the sealed region, and return a constant."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def unless_sealed(*args: Any, **kwargs: Any) -> Any:
        return instead if is_sealed.get() else original(*args, **kwargs)

    unless_sealed.is_switch = True  # type: ignore[attr-defined]
    setattr(owner, name, unless_sealed)


class _Always(type):
    """A class of warnings to which every warning belongs in the sealed region."""

    def __subclasscheck__(cls, other: type) -> bool:
        return is_sealed.get()


class _AnyWhereSealed(Warning, metaclass=_Always):
    """The category of the filter that ignores all warnings in the sealed region."""


def _switch_off_warnings() -> None:
    """Stop warnings where they are made.

    Python notes which warning it has shown from which place, so one that a record
    causes would keep back a later public one. A warning that a filter ignores is not
    noted. The filter is asked by C code, and by modules that have imported `warn`
    themselves; it comes first again after each filter that is added. The functions hold
    also where another thread has taken the filter away.
    """
    warn = warnings.warn

    @functools.wraps(warn)
    def warn_unless_sealed(
        message: Any,
        category: Any = None,
        stacklevel: int = 1,
        source: Any = None,
        **more: Any,
    ) -> None:
        if is_sealed.get():
            return
        # This function is one more frame between the warning and what it is about.
        level = max(stacklevel, 1) + 1
        prefixes = more.get("skip_file_prefixes")
        if prefixes:  # Python 3.12; frames of these files do not count.
            caller = cast("Any", inspect.currentframe()).f_back.f_code.co_filename
            level = max(stacklevel, 2) + (not caller.startswith(prefixes))
        warn(message, category, level, source, **more)

    warnings.warn = warn_unless_sealed
    _switch_off(warnings, "warn_explicit")
    for add in (warnings.simplefilter, warnings.filterwarnings):
        setattr(warnings, add.__name__, _then_filter_first(add))


def _then_filter_first(add: Callable[..., None]) -> Any:
    @functools.wraps(add)
    def add_behind(*args: Any, **kwargs: Any) -> None:
        add(*args, **kwargs)
        _filter_first()

    return add_behind


def _filter_first() -> None:
    if not warnings.filters or warnings.filters[0][2] is not _AnyWhereSealed:
        _simplefilter("ignore", category=_AnyWhereSealed)


def _switch_off_langchain() -> None:
    """Stop callbacks where LangChain hands out events, and its global LLM cache.

    A model or a group source that is made of other runnables calls them by `invoke`.
    No handler is inherited there, but debug mode and environment variables add some.
    """
    ahandle = manager.ahandle_event

    async def ahandle_event(*args: Any, **kwargs: Any) -> None:
        if not is_sealed.get():
            await ahandle(*args, **kwargs)

    def get_cache() -> BaseCache | None:
        found = get_llm_cache()
        return _NO_CACHE if found is not None and is_sealed.get() else found

    _switch_off(manager, "handle_event")
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

    def clear(self, **kwargs: Any) -> None:
        """Have nothing to clear."""


_NO_CACHE = _NoCache()


def no_instrumentation() -> AbstractContextManager[Any]:
    """Tell clients that are instrumented by OpenTelemetry to record nothing."""
    try:
        from opentelemetry.instrumentation.utils import suppress_instrumentation
    except ImportError:
        return contextlib.nullcontext()
    return suppress_instrumentation()  # type: ignore[no-any-return]
