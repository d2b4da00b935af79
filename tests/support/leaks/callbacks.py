"""Observers that LangChain calls back: handlers, tracers, listeners, counters."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from langchain_core.callbacks import (
    AsyncCallbackHandler,
    BaseCallbackHandler,
    UsageMetadataCallbackHandler,
    get_usage_metadata_callback,
)
from langchain_core.tracers.context import (
    _configure_hooks,
    collect_runs,
    register_configure_hook,
)

from support.leaks.observer import Observer, Stage

HOOKS = [name for name in dir(BaseCallbackHandler) if name.startswith("on_")]
ENVIRONMENT = "LEAK_MATRIX_TRACER"


def _recorder(name: str) -> Callable[..., None]:
    def record(self: Any, *args: Any, **kwargs: Any) -> None:
        self.events.append((name, args, kwargs))

    return record


def _arecorder(name: str) -> Callable[..., Any]:
    async def record(self: Any, *args: Any, **kwargs: Any) -> None:
        self.events.append((name, args, kwargs))

    return record


class Recorder(BaseCallbackHandler):
    """Keeps the arguments of every callback there is."""

    def __init__(self) -> None:
        self.events: list[Any] = []


class AsyncRecorder(AsyncCallbackHandler):
    """The same with asynchronous methods."""

    def __init__(self) -> None:
        self.events: list[Any] = []


for _hook in HOOKS:
    setattr(Recorder, _hook, _recorder(_hook))
    setattr(AsyncRecorder, _hook, _arecorder(_hook))


class CallerHandler(Observer):
    name = "caller_handler"

    def __init__(self) -> None:
        self._handler = Recorder()

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        stage.callbacks.append(self._handler)
        yield

    def seen(self, stage: Stage) -> object:
        return self._handler.events


class AsyncCallerHandler(Observer):
    name = "async_caller_handler"

    def __init__(self) -> None:
        self._handler = AsyncRecorder()

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        stage.callbacks.append(self._handler)
        yield

    def seen(self, stage: Stage) -> object:
        return self._handler.events


class ModelCallbacks(Observer):
    name = "model_constructor_callbacks"
    sees = "nothing"

    def __init__(self) -> None:
        self._handler = Recorder()

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        stage.model_fields["callbacks"] = [self._handler]
        yield

    def seen(self, stage: Stage) -> object:
        return self._handler.events


class ModelConfigCallbacks(Observer):
    name = "model_with_config_callbacks"
    sees = "nothing"

    def __init__(self) -> None:
        self._handler = Recorder()

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        stage.model_config["callbacks"] = [self._handler]
        yield

    def seen(self, stage: Stage) -> object:
        return self._handler.events


class ChainListeners(Observer):
    """`with_listeners` gives the whole tree of runs below the chain."""

    name = "chain_listeners"

    def __init__(self) -> None:
        self._runs: list[Any] = []

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        note = self._runs.append

        def listen(chain: Any) -> Any:
            return chain.with_listeners(on_start=note, on_end=note, on_error=note)

        stage.chain_wrappers.append(listen)
        yield

    def seen(self, stage: Stage) -> object:
        return self._runs


class EnvironmentTracer(Observer):
    """A tracer that an environment variable switches on everywhere."""

    name = "environment_tracer"

    def __init__(self) -> None:
        self.events: list[Any] = []

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        events = self.events

        class Enabled(Recorder):
            def __init__(self) -> None:
                self.events = events

        before = list(_configure_hooks)
        register_configure_hook(
            ContextVar("leak_matrix_tracer", default=None),
            inheritable=True,
            handle_class=Enabled,
            env_var=ENVIRONMENT,
        )
        os.environ[ENVIRONMENT] = "true"
        try:
            yield
        finally:
            del os.environ[ENVIRONMENT]
            _configure_hooks[:] = before

    def seen(self, stage: Stage) -> object:
        return self.events


class CollectedRuns(Observer):
    name = "collect_runs"

    def __init__(self) -> None:
        self._runs: list[Any] = []

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        with collect_runs() as collector:
            yield
            self._runs = list(collector.traced_runs)

    def seen(self, stage: Stage) -> object:
        return self._runs


class UsageInContext(Observer):
    name = "usage_callback"
    sees = "nothing"

    def __init__(self) -> None:
        self._usage: object = None

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        with get_usage_metadata_callback() as usage:
            yield
            self._usage = dict(usage.usage_metadata)

    def seen(self, stage: Stage) -> object:
        return self._usage


class UsageHandler(Observer):
    name = "usage_handler"
    sees = "nothing"

    def __init__(self) -> None:
        self._handler = UsageMetadataCallbackHandler()

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        stage.callbacks.append(self._handler)
        yield

    def seen(self, stage: Stage) -> object:
        return dict(self._handler.usage_metadata)
