"""All that might look at a question, attached at once.

Some exclude each other: with a tracer in its config, LangChain makes none from the
environment, and a model has one cache. So there are two crowds, `environment` and
`config`; who belongs to `both` is in each. Each observer says which break of the test's
side must show it a mark: `wall` (the wall is open), `stop` (the wall is open, and a
call ends the question), or `terms` (the question's public terms hold a mark).
"""

from __future__ import annotations

import io
import logging
import os
import pickle
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from pprint import pformat
from typing import Any

import langsmith.utils
import requests
from langchain_core import globals as switches
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import (
    AsyncCallbackHandler,
    BaseCallbackHandler,
    UsageMetadataCallbackHandler,
    get_usage_metadata_callback,
)
from langchain_core.load import dumpd, dumps
from langchain_core.tracers import LangChainTracer
from langchain_core.tracers.context import collect_runs, register_configure_hook
from langsmith import Client, tracing_context
from langsmith.run_trees import get_cached_client
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
from unit_tests.wall import leaky
from unit_tests.wall.leaky import NOTEBOOK, TELEMETRY


@dataclass
class Run:
    """What observers prepare before a question, and what it leaves for them to see.

    The ledger's folder; the caller's callbacks; what the model is made with; the
    question's objects; what the caller was given, and raised.
    """

    folder: Path
    callbacks: list[Any] = field(default_factory=list)
    fields: dict[str, Any] = field(default_factory=dict)
    things: list[Any] = field(default_factory=list)
    outputs: list[Any] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def config(self) -> Any:
        """What the caller configures the question with."""
        metadata = {"app": "clinic"}
        return {"callbacks": [*self.callbacks], "tags": ["t"], "metadata": metadata}


Attach = Callable[[Run], Iterator[Callable[[], object]]]
OBSERVERS: dict[str, tuple[str, str, Attach]] = {}
"""By name: the crowd, the break that shows it a mark, and how it is attached."""


def observer(crowd: str = "both", shown_by: str = "wall") -> Callable[[Attach], Attach]:
    """Register a generator that attaches, yields what it has seen, and detaches."""

    def register(attach: Attach) -> Attach:
        OBSERVERS[attach.__name__] = crowd, shown_by, attach
        return attach

    return register


@contextmanager
def watched(run: Run, crowd: str) -> Iterator[dict[str, Callable[[], object]]]:
    """Attach a crowd; yield what each has seen, to be asked before the block ends."""
    with ExitStack() as stack:
        yield {
            name: stack.enter_context(contextmanager(attach)(run))
            for name, (where, _, attach) in OBSERVERS.items()
            if where in ("both", crowd)
        }


# ---- LangChain's callbacks -----------------------------------------------------------


class Recorder(BaseCallbackHandler):
    """Keeps the arguments of each callback that there is."""

    def __init__(self, events: list[Any] | None = None) -> None:
        self.events = [] if events is None else events


class AsyncRecorder(AsyncCallbackHandler):
    """The same with asynchronous methods."""

    def __init__(self) -> None:
        self.events: list[Any] = []


def _recorder(name: str) -> tuple[Any, Any]:
    def record(self: Any, *args: Any, **kwargs: Any) -> None:
        self.events.append((name, args, kwargs))

    async def arecord(self: Any, *args: Any, **kwargs: Any) -> None:
        self.events.append((name, args, kwargs))

    return record, arecord


for _hook in [name for name in dir(BaseCallbackHandler) if name.startswith("on_")]:
    for _kind, _method in zip((Recorder, AsyncRecorder), _recorder(_hook), strict=True):
        setattr(_kind, _hook, _method)

_environment_events: list[Any] = []


class _ByEnvironment(Recorder):
    def __init__(self) -> None:
        super().__init__(_environment_events)


register_configure_hook(
    ContextVar("wall_tracer", default=None),
    inheritable=True,
    handle_class=_ByEnvironment,
    env_var="WALL_TRACER",
)


@observer()
def handler(run: Run) -> Any:
    run.callbacks.append(made := Recorder())
    yield lambda: made.events


@observer()
def async_handler(run: Run) -> Any:
    run.callbacks.append(made := AsyncRecorder())
    yield lambda: made.events


@observer("config")
def model_handler(run: Run) -> Any:
    made = Recorder()
    run.fields["callbacks"] = [made]
    yield lambda: made.events


@observer()
def usage_handler(run: Run) -> Any:
    run.callbacks.append(made := UsageMetadataCallbackHandler())
    with get_usage_metadata_callback() as usage:
        yield lambda: [made.usage_metadata, usage.usage_metadata]


@observer("config")
def environment_handler(run: Run) -> Any:
    _environment_events.clear()
    with _environment("WALL_", {"WALL_TRACER": "true"}):
        yield lambda: _environment_events


@observer("environment")
def collected_runs(run: Run) -> Any:
    with collect_runs() as collector:
        yield lambda: collector.traced_runs


# ---- tracers and telemetry -----------------------------------------------------------


class Session(requests.Session):
    """Keeps what LangSmith's client sends, and sends it nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[Any] = []

    def request(self, method: Any, url: Any, **more: Any) -> requests.Response:
        self.sent.append((url, more.get("data"), more.get("json")))
        response = requests.Response()
        response.status_code, response.raw = 200, io.BytesIO(b"{}")
        return response


def client(session: Session) -> dict[str, Any]:
    """Return the arguments of a client that sends at once."""
    more = {"api_key": "k", "auto_batch_tracing": False}
    return {"session": session, "api_url": "http://langsmith.invalid", **more}


@contextmanager
def _environment(prefix: str, wanted: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.pop(name) for name in [*os.environ] if prefix in name}
    os.environ.update(wanted)
    langsmith.utils.get_env_var.cache_clear()
    try:
        yield
    finally:
        for name in wanted:
            os.environ.pop(name, None)
        os.environ.update(before)
        langsmith.utils.get_env_var.cache_clear()


_langsmith = Session()


@observer("environment")
def langsmith_environment(run: Run) -> Any:
    assert get_cached_client(**client(_langsmith)).session is _langsmith
    _langsmith.sent.clear()
    with _environment("LANGSMITH_", {"LANGSMITH_TRACING": "true"}):
        yield lambda: _langsmith.sent


@observer("config")
def langsmith_config(run: Run) -> Any:
    session = Session()
    made = Client(**client(session))
    run.callbacks.append(LangChainTracer(client=made, project_name="wall"))
    with tracing_context(enabled=True, client=made):
        yield lambda: session.sent


def _spans(**more: Any) -> tuple[TracerProvider, InMemorySpanExporter]:
    provider, exporter = TracerProvider(**more), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


@observer("config")
def open_inference(run: Run) -> Any:
    provider, exporter = _spans()
    LangChainInstrumentor().instrument(tracer_provider=provider)
    try:
        yield lambda: [span.to_json() for span in exporter.get_finished_spans()]
    finally:
        LangChainInstrumentor().uninstrument()
        provider.shutdown()


@observer()
def client_telemetry(run: Run) -> Any:
    """What the model's client reports; its sampler takes everything."""
    provider, spans = _spans(sampler=ALWAYS_ON)
    loggers, records = LoggerProvider(), InMemoryLogRecordExporter()
    loggers.add_log_record_processor(SimpleLogRecordProcessor(records))
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    TELEMETRY.update(
        tracer=provider.get_tracer("leaky"),
        logger=loggers.get_logger("leaky"),
        counter=meters.get_meter("leaky").create_counter("calls"),
    )

    def seen() -> object:
        data = reader.get_metrics_data()
        return [
            [span.to_json() for span in spans.get_finished_spans()],
            [each.log_record.body for each in records.get_finished_logs()],
            data.to_json() if data else "",
        ]

    try:
        yield seen
    finally:
        TELEMETRY.clear()
        for each in (provider, loggers, meters):
            each.shutdown()


# ---- what the process writes ---------------------------------------------------------


def _terminal() -> Any:
    with (
        redirect_stdout(io.StringIO()) as out,
        redirect_stderr(io.StringIO()) as errors,
    ):
        yield lambda: [out.getvalue(), errors.getvalue()]


@observer("environment")
def debug_output(run: Run) -> Any:
    switches.set_debug(True)
    try:
        yield from _terminal()
    finally:
        switches.set_debug(False)


@observer("config")
def verbose_output(run: Run) -> Any:
    switches.set_verbose(True)
    run.fields["verbose"] = True
    try:
        yield from _terminal()
    finally:
        switches.set_verbose(False)


class _Keeping(logging.Handler):
    def __init__(self) -> None:
        super().__init__(0)
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        shown = [record.getMessage(), repr(record.__dict__), crashed(record.exc_info)]
        self.records.append("\n".join(shown))


@contextmanager
def logged(*, last_resort: bool = False) -> Iterator[list[Any]]:
    """Keep each log record of each logger: by the root's handlers, or where none is."""
    root, keeping = logging.getLogger(), _Keeping()
    loggers = [root, *map(logging.getLogger, logging.root.manager.loggerDict)]
    before = [(each, each.level, each.propagate, each.disabled) for each in loggers]
    handlers, resort, factory = (
        root.handlers[:],
        logging.lastResort,
        logging.getLogRecordFactory(),
    )
    made: list[str] = []

    def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = factory(*args, **kwargs)
        made.append(repr(record.__dict__))
        return record

    for each in loggers:
        each.level, each.propagate, each.disabled = logging.DEBUG, True, False
    root.setLevel(logging.DEBUG)  # It also clears what loggers remember.
    root.handlers[:] = [] if last_resort else [keeping]
    logging.lastResort = keeping
    logging.setLogRecordFactory(make)
    try:
        yield [keeping.records, made]
    finally:
        logging.setLogRecordFactory(factory)
        root.handlers[:], logging.lastResort = handlers, resort
        for each, *settings in before:
            each.level, each.propagate, each.disabled = settings
        root.setLevel(root.level)


@observer("environment")
def root_logger(run: Run) -> Any:
    with logged() as records:
        yield lambda: records


@observer("config")
def last_resort_logger(run: Run) -> Any:
    with logged(last_resort=True) as records:
        yield lambda: records


@observer()
def warned(run: Run) -> Any:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        yield lambda: found


@observer()
def warning_registry(run: Run) -> Any:
    """Python's note of what was shown from where, which keeps back later warnings."""
    vars(leaky).pop("__warningregistry__", None)
    yield lambda: vars(leaky).get("__warningregistry__")


# ---- errors --------------------------------------------------------------------------


def crashed(error: Any) -> str:
    """Return an error as a crash reporter prints it: chained, noted, with locals."""
    error = error[1] if isinstance(error, tuple) else error
    if error is None:
        return ""
    found = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "".join(found.format())


@observer(shown_by="stop")
def raised(run: Run) -> Any:
    yield lambda: [run.error, crashed(run.error), sys.exc_info()]


@observer(shown_by="hooks")
def hooks(run: Run) -> Any:
    """The hooks for errors that nobody caught: of threads, finalizers, the program."""
    caught: list[Any] = []
    before = sys.excepthook, sys.unraisablehook, threading.excepthook
    sys.excepthook = lambda _kind, error, _trace: caught.append(crashed(error))
    sys.unraisablehook = lambda found: caught.append(
        [crashed(found.exc_value), repr(found.object)]
    )
    threading.excepthook = lambda found: caught.append(crashed(found.exc_value))
    try:
        yield lambda: caught
    finally:
        sys.excepthook, sys.unraisablehook, threading.excepthook = before


# ---- what is left --------------------------------------------------------------------


@observer("environment")
def global_cache(run: Run) -> Any:
    cache = InMemoryCache()
    switches.set_llm_cache(cache)
    try:
        yield lambda: vars(cache)
    finally:
        switches.set_llm_cache(None)


@observer("config")
def model_cache(run: Run) -> Any:
    run.fields["cache"] = InMemoryCache()
    yield lambda: vars(run.fields["cache"])


@observer()
def context_variables(run: Run) -> Any:
    token = NOTEBOOK.set(notes := [])
    try:
        yield lambda: [notes, NOTEBOOK.get()]
    finally:
        NOTEBOOK.reset(token)


@observer(shown_by="terms")
def output(run: Run) -> Any:
    """Messages, chunks, events, states: all their metadata, usage and tags."""
    yield lambda: run.outputs


@observer(shown_by="terms")
def reprs(run: Run) -> Any:
    yield lambda: [
        (repr(each), str(each), f"{each}", pformat(each))
        for each in [*run.things, run.error]
    ]


def attempted(make: Callable[[], Any]) -> Any:
    """Return what a call returns, or the error that refuses it."""
    try:
        return make()
    except Exception as error:  # noqa: BLE001 - what it says is looked at
        return error


@observer(shown_by="terms")
def pickles(run: Run) -> Any:
    shown = [run.things, run.outputs]
    yield lambda: [
        attempted(lambda each=each: pickle.dumps(each))
        for many in shown
        for each in many
    ]


DUMPS: list[Callable[[Any], Any]] = [
    dumpd,
    dumps,
    lambda each: each.to_json(),
    lambda each: each.model_dump(),
    lambda each: each.model_dump_json(),
    lambda each: each.get_graph().to_json(),
]


@observer(shown_by="terms")
def dumped(run: Run) -> Any:
    shown = [run.things, run.outputs]
    yield lambda: [
        attempted(lambda dump=dump, each=each: dump(each))
        for dump in DUMPS
        for many in shown
        for each in many
    ]


@observer(shown_by="terms")
def ledger_bytes(run: Run) -> Any:
    yield lambda: [file.read_bytes() for file in run.folder.glob("ledger*")]
