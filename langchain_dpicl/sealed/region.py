"""Running a private step so that only its result comes out.

What each line closes, measured over LangChain's observers:

* A fresh `contextvars.Context`: tracers, usage collectors and parent runs that travel
  in context variables.
* `tracing_context(enabled=False, parent=False)`: LangSmith, which would otherwise build
  a tracer anew from its environment variables.
* OpenTelemetry's suppression flag, set inside the fresh context, which would drop one
  set outside: instrumented HTTP and SDK clients.
* Log records made inside are emptied of text, arguments and exception before any
  handler sees them: SDKs log request bodies at level DEBUG.
* Errors are replaced by one that holds no message, cause or context of the original,
  raised where no handler is active.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from langsmith.run_helpers import tracing_context

from langchain_dpicl.exceptions import DPError, GroupCallError

T = TypeVar("T")

_sealed: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "langchain_dpicl_sealed", default=False
)
_installing = threading.Lock()


def run_sealed(step: Callable[[], T]) -> T:
    """Run a private step on this thread, out of every observer's sight.

    Args:
        step: What to run. Its return value is private too; only what a mechanism made
            of it may leave the caller.

    Returns:
        What the step returned.

    Raises:
        GroupCallError: If the step raised. It says nothing of why.
        DPError: Errors of this library, whose messages hold no private text, pass.
    """
    outcome = contextvars.Context().run(_guarded, step)
    return _unwrap(outcome)


async def arun_sealed(step: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a private coroutine out of every observer's sight; see `run_sealed`.

    Cancelling the caller cancels the step and waits until it has ended.
    """
    # Creating the task inside a fresh context is what gives the task that context;
    # asyncio's own `context=` argument exists only from Python 3.11 on.
    task = contextvars.Context().run(asyncio.ensure_future, _aguarded(step))
    try:
        outcome = await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    return _unwrap(outcome)


def enter_region() -> None:
    """Seal this thread for the rest of its life: for a pool's own worker threads.

    A new thread starts with an empty context, so only the region has to be entered.
    """
    _region().__enter__()


class _Failure:
    """Stands for an exception of a private step: it keeps nothing of it."""

    def __init__(self, error: BaseException) -> None:
        # An error of ours is public by contract; a bare copy drops its traceback,
        # cause and context, which may hold frames with private locals.
        self.public = type(error)(*error.args) if isinstance(error, DPError) else None


def _guarded(step: Callable[[], T]) -> T | _Failure:
    with _region():
        try:
            return step()
        except Exception as error:  # noqa: BLE001 - any error may hold private text
            return _Failure(error)


async def _aguarded(step: Callable[[], Coroutine[Any, Any, T]]) -> T | _Failure:
    with _region():
        try:
            return await step()
        except Exception as error:  # noqa: BLE001 - any error may hold private text
            return _Failure(error)


def _unwrap(outcome: T | _Failure) -> T:
    if not isinstance(outcome, _Failure):
        return outcome
    if outcome.public is not None:
        raise outcome.public
    raise GroupCallError(
        "The sealed region failed while it searched records or merged answers; "
        "nothing was released and the charge stays. The reason may hold private text "
        "and is not reported: run the group source's draw() and the model alone, on "
        "records that you may look at, to see it."
    )


@contextlib.contextmanager
def _region() -> Iterator[None]:
    _install_record_factory()
    token = _sealed.set(True)
    try:
        with tracing_context(enabled=False, parent=False), _no_instrumentation():
            yield
    finally:
        _sealed.reset(token)


@contextlib.contextmanager
def _no_instrumentation() -> Iterator[None]:
    suppress = _suppress_instrumentation()
    if suppress is None:
        yield
        return
    with suppress():
        yield


def _suppress_instrumentation() -> Callable[[], Any] | None:
    try:
        from opentelemetry.instrumentation.utils import suppress_instrumentation
    except ImportError:
        return _suppress_by_context()
    return suppress_instrumentation  # type: ignore[no-any-return]


def _suppress_by_context() -> Callable[[], Any] | None:
    try:
        from opentelemetry import context as otel
    except ImportError:
        return None

    @contextlib.contextmanager
    def suppress() -> Iterator[None]:
        token = otel.attach(otel.set_value("suppress_instrumentation", True))
        try:
            yield
        finally:
            otel.detach(token)

    return suppress


def _install_record_factory() -> None:
    """Wrap the process's log record factory once, around whatever stands there."""
    current = logging.getLogRecordFactory()
    if getattr(current, "seals_records", False):
        return
    with _installing:
        current = logging.getLogRecordFactory()
        if getattr(current, "seals_records", False):
            return

        def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
            record = current(*args, **kwargs)
            if _sealed.get():
                record.msg = "[sealed]"
                record.args = ()
                record.exc_info = None
                record.exc_text = None
                record.stack_info = None
            return record

        factory.seals_records = True  # type: ignore[attr-defined]
        logging.setLogRecordFactory(factory)
