"""Observers of what the process itself writes: terminal, logs, warnings, hooks."""

from __future__ import annotations

import asyncio
import io
import logging
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from langchain_core.globals import get_debug, get_verbose, set_debug, set_verbose

from support.leaks.observer import Observer, Stage


class _Terminal(Observer):
    """Keeps what is printed during the run."""

    def __init__(self) -> None:
        self._printed = io.StringIO()

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        with redirect_stdout(self._printed), redirect_stderr(self._printed):
            yield

    def seen(self, stage: Stage) -> object:
        return self._printed


class DebugOutput(_Terminal):
    name = "set_debug"
    sees = "something"

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        before = get_debug()
        set_debug(True)
        try:
            with super().attach(stage):
                yield
        finally:
            set_debug(before)


class VerboseOutput(_Terminal):
    name = "set_verbose"
    sees = "nothing"

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        before = get_verbose()
        set_verbose(True)
        try:
            with super().attach(stage):
                yield
        finally:
            set_verbose(before)


class VerboseModel(_Terminal):
    name = "model_verbose"
    sees = "nothing"

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        stage.model_fields["verbose"] = True
        with super().attach(stage):
            yield


class _Keeping(logging.Handler):
    def __init__(self) -> None:
        super().__init__(0)
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        kept = [record.getMessage(), repr(record.__dict__), rendered(error)]
        self.records.append("\n".join(kept))


class DebugLogs(Observer):
    """Every logger of every library at its most talkative."""

    name = "logging"
    sees = "something"

    def __init__(self) -> None:
        self._handler = _Keeping()
        self._made: list[Any] = []

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        root = logging.getLogger()
        names = [*logging.root.manager.loggerDict, "leaky.sdk", "asyncio"]
        loggers = [root, *(logging.getLogger(name) for name in names)]
        before = [(each, each.level, each.propagate, each.disabled) for each in loggers]
        factory, disabled = logging.getLogRecordFactory(), root.manager.disable

        def make(*args: Any, **kwargs: Any) -> logging.LogRecord:
            record = factory(*args, **kwargs)
            self._made.append(repr(record.__dict__))
            return record

        for each in loggers:
            each.level, each.propagate, each.disabled = logging.DEBUG, True, False
        root.addHandler(self._handler)
        logging.disable(logging.NOTSET)
        root.setLevel(logging.DEBUG)
        logging.setLogRecordFactory(make)
        try:
            yield
        finally:
            logging.setLogRecordFactory(factory)
            logging.disable(disabled)
            root.removeHandler(self._handler)
            for each, *settings in before:
                each.level, each.propagate, each.disabled = settings
            # Setting one level by its method clears the caches of all loggers.
            root.setLevel(root.level)

    def seen(self, stage: Stage) -> object:
        return self._handler.records, self._made


class AsyncioDebug(Observer):
    """asyncio's debug mode logs tasks with their results, and slow ones with more."""

    name = "asyncio_debug"
    sees = "nothing"
    only_async = True

    def __init__(self) -> None:
        self._handler = _Keeping()

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        stage.debug_loop = True
        log = logging.getLogger("asyncio")
        before = log.level
        log.setLevel(logging.DEBUG)
        log.addHandler(self._handler)
        try:
            yield
        finally:
            log.removeHandler(self._handler)
            log.setLevel(before)

    def seen(self, stage: Stage) -> object:
        return self._handler.records, stage.parts.get("loop_errors")


class Warned(Observer):
    name = "warnings"
    sees = "nothing"

    def __init__(self) -> None:
        self._warned: list[Any] = []

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            yield
        self._warned = warned

    def seen(self, stage: Stage) -> object:
        return self._warned


class LastResorts(Observer):
    """The hooks for errors that nobody caught: of threads, of finalizers, of all."""

    name = "exception_hooks"
    sees = "nothing"

    def __init__(self) -> None:
        self._caught: list[Any] = []

    @contextmanager
    def attach(self, stage: Stage) -> Iterator[None]:
        before = sys.excepthook, sys.unraisablehook, threading.excepthook
        sys.excepthook = lambda _kind, error, _trace: self._note(error)
        sys.unraisablehook = lambda found: self._note(found.exc_value, found.object)
        threading.excepthook = lambda found: self._note(found.exc_value)
        try:
            yield
        finally:
            sys.excepthook, sys.unraisablehook, threading.excepthook = before

    def _note(self, error: BaseException | None, more: object = None) -> None:
        self._caught.append((error, rendered(error), repr(more)))

    def seen(self, stage: Stage) -> object:
        return self._caught


def rendered(error: BaseException | None) -> str:
    """Return an error as a crash reporter prints it: chained, noted, with locals."""
    if error is None:
        return ""
    found = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "".join(found.format())


def note_loop_errors(stage: Stage) -> None:
    """Keep what the running event loop reports, as its exception handler."""
    noted = stage.parts.setdefault("loop_errors", [])
    loop = asyncio.get_running_loop()

    def note(_loop: object, context: dict[str, Any]) -> None:
        error = context.get("exception")
        noted.append((context.get("message"), error, rendered(error)))

    loop.set_exception_handler(note)
    if stage.debug_loop:
        loop.set_debug(True)
        loop.slow_callback_duration = 0
