"""Running a private step so that only its result comes out.

What each part closes, measured over LangChain's observers:

* A fresh `contextvars.Context`: tracers, usage collectors and parent runs that travel
  in context variables. The source of random bits is carried in on purpose, so that a
  seed of a test holds for what is drawn inside.
* `tracing_context(enabled=False, parent=False)`: LangSmith, which would otherwise build
  a tracer anew from its environment variables, also from inside a wrapped client.
* OpenTelemetry is switched off inside the fresh context, which would drop a flag set
  outside: instrumented clients, and those that open spans by themselves.
* Loggers are off, and warnings are neither shown nor noted: SDKs log request bodies,
  and even the *number* of records tells of a failure.
* LangChain's callbacks and global LLM cache are off, for models and sources that call
  other runnables by `invoke`: debug mode and environment variables reach everywhere.
* Errors are replaced by one that holds no message, cause or context of the original,
  raised where no handler is active. Anything that can be raised counts, not only
  `Exception`: a panic of a compiled extension is a `BaseException`.

A thread that a client library starts by itself has a context of its own, in which
nothing of this holds; the docs say so.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from langsmith.run_helpers import tracing_context

from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.errors import DPError, GroupCallError
from langchain_dpicl.mechanisms.random import current, use
from langchain_dpicl.release.fan_out import Interrupted
from langchain_dpicl.release.flow import Do, Flow, aresult, result
from langchain_dpicl.sealed.call_limit import held_limits
from langchain_dpicl.sealed.switches import install_switches, no_instrumentation

T = TypeVar("T")

_sealed: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "langchain_dpicl_sealed", default=False
)
_opened: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "langchain_dpicl_opened_for_tests", default=False
)


@contextmanager
def open_for_tests() -> Iterator[None]:
    """Take the wall away in this context, so that a test sees what it holds back.

    For tests only: private steps run where the caller is, models are asked by `invoke`
    with all their observers, and errors are raised as they are. Only this call does it;
    no argument, configuration or environment variable does.
    """
    token = _opened.set(True)
    try:
        yield
    finally:
        _opened.reset(token)


def is_open() -> bool:
    """Return whether a test has taken the wall away in this context."""
    return _opened.get()


def sealed_context() -> contextvars.Context:
    """Return a new context in which everything that runs is sealed.

    It is a value, not a block: worker threads run in copies of it, as long as they
    like.

    Example:
        >>> sealed_context().run(_sealed.get), _sealed.get()
        (True, False)
    """
    if is_open():
        return contextvars.copy_context()
    install_switches(_sealed.get)
    limits, source = held_limits.get(), current()

    def build() -> contextvars.Context:
        _sealed.set(True)
        held_limits.set(limits)
        with (
            use(source),
            tracing_context(enabled=False, parent=False),
            no_instrumentation(),
        ):
            return contextvars.copy_context()

    return contextvars.Context().run(build)


def run_sealed(step: Callable[[], T]) -> T:
    """Run a private step on this thread, out of every observer's sight.

    What it returns is private too; only what a mechanism made of it may leave the
    caller.

    Raises:
        GroupCallError: If the step raised. It says nothing of why.
        DPError: Errors of this library, whose messages hold no private text, pass; what
            numbers refuse does not.
        KeyboardInterrupt: If the user stopped the program.
    """
    return _unwrap(sealed_context().run(_guarded, step))


async def arun_sealed(step: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a private coroutine out of every observer's sight; see `run_sealed`.

    Canceling the caller cancels the step and waits until it has ended.
    """
    # Creating the task inside a context is what gives the task that context;
    # asyncio's own `context=` argument exists only from Python 3.11 on.
    task = sealed_context().run(asyncio.ensure_future, _aguarded(step))
    try:
        hidden = await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    return _unwrap(hidden.value)


def sealed(steps: Callable[[], Flow[T]]) -> Do:
    """Return the call that runs a private flow out of every observer's sight."""
    return Do(
        lambda: run_sealed(lambda: result(steps())),
        lambda: arun_sealed(lambda: aresult(steps())),
    )


def attempt(step: Callable[[], T]) -> T | None:
    """Run what concerns one slot alone; return None if it raises.

    No failure of a single slot may abort, delay or re-word the result, whatever it is.
    """
    try:
        return step()
    except KeyboardInterrupt:
        raise
    except BaseException:
        if is_open():
            raise
        return None


async def aattempt(step: Callable[[], Awaitable[T]]) -> T | None:
    """Run what concerns one slot alone; return None if it raises; see `attempt`.

    The step is a task of its own: a client that raises `CancelledError` by itself ends
    its own task and not the query, and canceling the query ends the task.
    """
    if is_open():
        return await step()
    interrupted = False
    # Not the task's own result, which asyncio's debug mode logs: it would tell which
    # slot has failed.
    answer: list[T] = []

    async def run() -> None:
        nonlocal interrupted
        try:
            answer.append(await step())
        except asyncio.CancelledError:
            raise
        except (KeyboardInterrupt, Interrupted):
            interrupted = True
        except BaseException:  # noqa: BLE001, S110 - asyncio lets SystemExit end the loop
            pass

    task = asyncio.ensure_future(run())
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    if interrupted:
        raise Interrupted
    return answer[0] if answer else None


def attempted(call: Do) -> Do:
    """Return a call that returns None where the given one raises; see `attempt`."""
    return Do(partial(attempt, call.blocking), partial(aattempt, call.awaiting))


class _Failure:
    """Stands for an exception of a private step: it keeps nothing of it."""

    def __init__(self, error: BaseException, before: BaseException | None) -> None:
        self.interrupted = _is_interrupt(error, before)
        self.public: BaseException | None = None
        if is_open():
            self.interrupted, self.public = False, error
            return
        # An error of ours is public by contract; a bare copy drops its traceback,
        # cause and context, which may hold frames with private locals.
        is_ours = isinstance(error, DPError) and type(error).__module__ == _ERRORS
        if is_ours and not _of_numbers(error):
            self.public = type(error)(*error.args)


def _is_interrupt(error: BaseException | None, before: BaseException | None) -> bool:
    """Whether Ctrl-C ended a step, or came in it before the error that did.

    A second one in the midst of a lock's clean-up leaves an error of the lock. What the
    caller was handling `before` the step is none of its errors.
    """
    while error is not None and error is not before:
        if isinstance(error, KeyboardInterrupt | Interrupted):
            return True
        error = error.__context__
    return False


_ERRORS = DPError.__module__
_NUMBERS = tuple(
    f"langchain_dpicl.{name}"
    for name in ("accounting", "common.parameters", "mechanisms", "public")
)


def _of_numbers(error: BaseException) -> bool:
    """Whether numbers refused a value: in here it may be a private one, and is named.

    They can't know whether what they are given is public.
    """
    frames = error.__traceback__
    module = ""
    while frames is not None:
        module = frames.tb_frame.f_globals.get("__name__", "")
        frames = frames.tb_next
    return module.startswith(_NUMBERS)


def _guarded(step: Callable[[], T]) -> T | _Failure:
    before = sys.exc_info()[1]
    try:
        return step()
    except BaseException as error:  # noqa: BLE001 - any error may hold private text
        return _Failure(error, before)


async def _aguarded(
    step: Callable[[], Coroutine[Any, Any, T]],
) -> Hidden[T | _Failure]:
    # In its debug mode asyncio logs tasks with the repr of their results, from the
    # event loop's own context: a private value must never be one.
    before = sys.exc_info()[1]
    try:
        return Hidden(await step())
    except BaseException as error:  # noqa: BLE001 - any error may hold private text
        # Also one that cancels: a client may raise it, like any other error, and where
        # the query was canceled, its own is raised.
        return Hidden(_Failure(error, before))


def _unwrap(outcome: T | _Failure) -> T:
    if not isinstance(outcome, _Failure):
        return outcome
    if outcome.interrupted:
        raise KeyboardInterrupt
    if outcome.public is not None:
        raise outcome.public
    raise GroupCallError(
        "The sealed region failed while it searched records or merged answers; "
        "nothing was released and the charge stays. The reason may hold private text "
        "and is not reported: run the group source's draw() and the model alone, on "
        "records that you may look at, to see it."
    )
