"""LangSmith, in each way in which an application switches it on.

Everything is sent over HTTP to a collector, by the real client.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import langsmith.utils
from langchain_core.tracers import LangChainTracer
from langsmith import Client, run_trees, traceable, tracing_context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from support.leaks.collector import Collector
from support.leaks.observer import Observer, Stage

_numbers = itertools.count()


class _LangSmith(Observer):
    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        self.path = f"/{self.kind}/{next(_numbers)}/"

    kind = "plain"

    @property
    def endpoint(self) -> str:
        return self._collector.url + self.path

    def client(self) -> Client:
        return Client(
            api_url=self.endpoint, api_key="lsv2_test", auto_batch_tracing=True
        )

    def seen(self, stage: Stage) -> object:
        return self._collector.bodies(self.path)


class LangSmithByEnvironment(_LangSmith):
    name = "langsmith_environment"
    kind = "zstd"

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        wanted = {
            "LANGSMITH_TRACING": "true",
            "LANGSMITH_ENDPOINT": self.endpoint,
            "LANGSMITH_API_KEY": "lsv2_test",
            "LANGSMITH_PROJECT": "leaks",
        }
        with _environment(wanted):
            before = run_trees._CLIENT
            run_trees._CLIENT = None
            try:
                yield
            finally:
                _finish(run_trees._CLIENT)
                run_trees._CLIENT = before


class LangSmithByConfig(_LangSmith):
    name = "langsmith_config"

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        client = self.client()
        stage.callbacks.append(LangChainTracer(client=client, project_name="leaks"))
        try:
            yield
        finally:
            _finish(client)


class LangSmithByParent(_LangSmith):
    """The application's own function is traced, and asks the chain."""

    name = "langsmith_traceable_parent"
    kind = "batch"

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        client = self.client()

        def traced(ask: Any) -> Any:
            return traceable(name="application", client=client)(ask)

        stage.wrappers.append(traced)
        try:
            with tracing_context(enabled=True, client=client):
                yield
        finally:
            _finish(client)


class LangSmithByOpenTelemetry(_LangSmith):
    """LangSmith's client in the mode in which it makes OpenTelemetry spans."""

    name = "langsmith_opentelemetry"

    def __init__(self, collector: Collector) -> None:
        super().__init__(collector)
        self._exporter = InMemorySpanExporter()

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        client = Client(
            api_url=self.endpoint,
            api_key="lsv2_test",
            tracing_mode="otel",
            otel_tracer_provider=provider,
        )
        stage.callbacks.append(LangChainTracer(client=client, project_name="leaks"))
        try:
            yield
        finally:
            _finish(client)
            provider.shutdown()

    def seen(self, stage: Stage) -> object:
        spans = [span.to_json() for span in self._exporter.get_finished_spans()]
        return spans, super().seen(stage)


@contextmanager
def no_tracing() -> Iterator[None]:
    """Switch off whatever tracing the environment of the tests asks for."""
    with _environment({}):
        yield


@contextmanager
def _environment(wanted: dict[str, str]) -> Iterator[None]:
    prefixes = ("LANGSMITH_", "LANGCHAIN_")
    before = {k: v for k, v in os.environ.items() if k.startswith(prefixes)}
    try:
        _replace(prefixes, wanted)
        yield
    finally:
        _replace(prefixes, before)


def _replace(prefixes: tuple[str, ...], wanted: dict[str, str]) -> None:
    for name in [name for name in os.environ if name.startswith(prefixes)]:
        del os.environ[name]
    os.environ.update(wanted)
    langsmith.utils.get_env_var.cache_clear()
    langsmith.utils.get_tracer_project.cache_clear()


def _finish(client: Client | None) -> None:
    if client is not None:
        client.flush()
        client.close()
