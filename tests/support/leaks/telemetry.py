"""OpenTelemetry: LangChain instrumented, and a client instrumented by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import (
    InMemoryLogRecordExporter,
    SimpleLogRecordProcessor,
)
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from support.leaks.observer import Observer, Stage
from support.leaks.parts import telemetry


class _Spans(Observer):
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self._provider = TracerProvider()
        self._provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def seen(self, stage: Stage) -> object:
        return [span.to_json() for span in self._exporter.get_finished_spans()]


class OpenInference(_Spans):
    name = "openinference"

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        instrumentor = LangChainInstrumentor()
        instrumentor.instrument(tracer_provider=self._provider)
        try:
            yield
        finally:
            instrumentor.uninstrument()
            self._provider.shutdown()


class ClientTelemetry(_Spans):
    """What the model's own client reports: spans, log records and measurements.

    The sampler takes everything: under the usual one, which asks the parent span, the
    sealed region would need less.
    """

    name = "client_telemetry"
    sees = "nothing"

    def __init__(self) -> None:
        super().__init__()
        self._provider.sampler = ALWAYS_ON
        self._records = InMemoryLogRecordExporter()
        self._loggers = LoggerProvider()
        self._loggers.add_log_record_processor(SimpleLogRecordProcessor(self._records))
        self._reader = InMemoryMetricReader()
        self._meters = MeterProvider([self._reader])
        self._measured = ""

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        telemetry.update(
            tracer=self._provider.get_tracer("leaky.sdk"),
            logger=self._loggers.get_logger("leaky.sdk"),
            counter=self._meters.get_meter("leaky.sdk").create_counter("calls"),
        )
        try:
            yield
        finally:
            telemetry.clear()
            data = self._reader.get_metrics_data()
            self._measured = data.to_json() if data else ""
            for provider in (self._provider, self._loggers, self._meters):
                provider.shutdown()

    def seen(self, stage: Stage) -> object:
        records = [each.log_record for each in self._records.get_finished_logs()]
        return super().seen(stage), [r.body for r in records], self._measured
