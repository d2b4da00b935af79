"""The wall: private steps and group calls, out of every observer's sight.

`sealed` runs a private step so that only its result comes out, and `SealedModel` asks a
model with private prompts. What each part closes, measured over LangChain's observers:

* A fresh `contextvars.Context`: tracers, usage collectors and parent runs that travel
  in context variables. The source of random bits is carried in on purpose, so that a
  seed of a test holds for what is drawn inside.
* `tracing_context(enabled=False, parent=False)`: LangSmith, which would otherwise build
  a tracer anew from its environment variables, also from inside a wrapped client.
* `_generate` of a copy without observers: LangChain's callbacks, tracers, LLM cache,
  debug output and streaming events live in the methods around it. It is the documented
  method that providers implement, and keeps their retries, time-outs and arguments.
* Off switches (`switches.py`), for what belongs to the whole process. Loggers are off:
  SDKs log request bodies, and even the *number* of records tells of a failure. Warnings
  are neither shown nor noted. LangChain's callbacks and global cache are off also for
  models and sources that call other runnables by `invoke`. OpenTelemetry makes no span,
  record or measurement.
* Errors are replaced by one that holds no message, cause or context of the original,
  raised where no handler is active. Anything that can be raised counts, not only
  `Exception`: a panic of a compiled extension is a `BaseException`.
* A call has one prompt, and its failure is its own slot's: no call affects another.

Open stays what a client does out of this process's sight of it: threads that it starts
by itself have a context of their own, and what it prints is printed. The docs say so.
"""

from __future__ import annotations

# ruff: noqa: SLF001 - `_generate` is the documented contract; this is its one caller.
import contextvars
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

from langchain_core.language_models import LLM, BaseChatModel, BaseLLM
from langchain_core.outputs import Generation
from langchain_core.prompt_values import PromptValue
from langchain_core.runnables import RunnableBinding
from langsmith.run_helpers import tracing_context

from langchain_dpicl.common.parameters import count
from langchain_dpicl.common.progress import Advance, no_progress
from langchain_dpicl.common.prompts import plain_text
from langchain_dpicl.common.replies import (
    ABSTAIN,
    FAILED,
    Figures,
    Slot,
    answered,
    read_figures,
)
from langchain_dpicl.errors import (
    DPError,
    GroupCallError,
    PublicCallError,
    UnsealableModelError,
)
from langchain_dpicl.mechanisms.random import current, use
from langchain_dpicl.switches import install_switches, is_sealed, no_instrumentation
from langchain_dpicl.threads import Pool, held_pools

T = TypeVar("T")

MOST_CALLS = 32
"""Most group calls of a model in flight at once, unless a limit is given."""

_opened: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "langchain_dpicl_opened_for_tests", default=False
)

# ---- the region ----------------------------------------------------------------------


def sealed(step: Callable[[], T]) -> T:
    """Run a private step on this thread, out of every observer's sight.

    What it returns is private too; only what a mechanism made of it may leave the
    caller.

    Raises:
        GroupCallError: If the step raised. It says nothing of why.
        DPError: Errors of this library, whose messages hold no private text, pass; what
            numbers refuse does not.
        KeyboardInterrupt: If the user stopped the program.
    """
    value, error = sealed_context().run(_outcome, step)
    if error is not None:
        raise error
    return cast("T", value)


def sealed_context() -> contextvars.Context:
    """Return a new context in which everything that runs is sealed.

    It is a value, not a block: worker threads run in copies of it, as long as they
    like.

    Example:
        >>> sealed_context().run(is_sealed.get), is_sealed.get()
        (True, False)
    """
    if is_open():
        return contextvars.copy_context()
    install_switches()
    held, source = held_pools.get(), current()

    def build() -> contextvars.Context:
        is_sealed.set(True)
        held_pools.set(held)
        with (
            use(source),
            tracing_context(enabled=False, parent=False),
            no_instrumentation(),
        ):
            return contextvars.copy_context()

    return contextvars.Context().run(build)


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


def _outcome(step: Callable[[], T]) -> tuple[T | None, BaseException | None]:
    before = sys.exc_info()[1]
    try:
        return step(), None
    except BaseException as error:  # noqa: BLE001 - any error may hold private text
        return None, error if is_open() else _replaced(error, before)


def _replaced(error: BaseException, before: BaseException | None) -> BaseException:
    """Return an error that keeps nothing of a private step's error but what is public.

    An error of ours is public by contract; a bare copy drops its traceback, cause and
    context, which may hold frames with private locals.
    """
    if _is_interrupt(error, before):
        return KeyboardInterrupt()
    is_ours = (
        isinstance(error, DPError) and type(error).__module__ == DPError.__module__
    )
    if is_ours and not _of_numbers(error):
        return type(error)(*error.args)
    return GroupCallError(
        "The sealed region failed while it searched records or merged answers; "
        "nothing was released and the charge stays. The reason may hold private text "
        "and is not reported: run the group source's draw() and the model alone, on "
        "records that you may look at, to see it."
    )


def _is_interrupt(error: BaseException | None, before: BaseException | None) -> bool:
    """Whether Ctrl-C ended a step, or came in it before the error that did.

    A second one in the midst of a lock's clean-up leaves an error of the lock. What the
    caller was handling `before` the step is none of its errors.
    """
    while error is not None and error is not before:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


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


# ---- the model -----------------------------------------------------------------------


class SealedModel:
    """A model reduced to what groups need: answers, or figures, one prompt a call.

    Args:
        model: A chat model, a completion model, or either with bound arguments.
        max_concurrency: Most group calls in flight at once, over all questions of a
            process, whatever is bound to the model; None means 32, or one where the
            model seems to compute in this process. A question that is asked within a
            call is part of that call.

    Raises:
        UnsealableModelError: If the model is wrapped so that its calls can't be made
            directly. The message says what to pass instead.
        InvalidParameterError: If the limit is not positive.

    Privacy:
        A call has one prompt, so a slot is a function of its own prompt and nothing
        else of this process.
    """

    def __init__(self, model: Any, max_concurrency: int | None = None) -> None:
        if max_concurrency is not None:
            count(max_concurrency, "max_concurrency")
        base, bound = unwrap(model)
        self._stop: list[str] | None = bound.pop("stop", None)
        self._bound = bound
        self._whole, self._model = model, _without_observers(base)
        limit = max_concurrency or (1 if _computes_here(base) else MOST_CALLS)
        self.pool = _pool_of(base, limit)
        """The threads of its calls. What runs on one of them asks in place."""
        self._probed_in = 0

    def __repr__(self) -> str:
        return f"SealedModel({type(self._model).__name__})"

    @property
    def model(self) -> BaseChatModel | BaseLLM:
        """The model under its bound arguments."""
        return self._model

    @property
    def is_probed(self) -> bool:
        """Whether a public call was made in this process, and nothing doubts it."""
        return self._probed_in == os.getpid()

    @property
    def is_alone(self) -> bool:
        """Whether the model takes one call at a time."""
        return self.pool.limit == 1

    def in_turn(self, call: Callable[[], T]) -> T:
        """Make a public call, which must make no group call of another question fail.

        A model that takes one call at a time makes it when the ones before have ended.
        """
        return self.pool.map([call])[0] if self.is_alone else call()

    def doubt(self) -> None:
        """Have the next probe made again: a *released* reason says that calls failed.

        Whether calls failed is private until it is released: one person can decide it.
        """
        self._probed_in = 0

    def probe(self, prompt: PromptValue) -> None:
        """Make one public call, the way private ones are made, once a process.

        A model that has no blocking call, or fails, is refused; see
        `public_call_error`.
        """
        if self.is_probed:
            return
        try:
            self.in_turn(partial(self._generate, prompt))
        except Exception as error:  # noqa: BLE001 - replaced by an error of ours
            failure = type(error)
        else:
            self._probed_in = os.getpid()
            return
        raise public_call_error(failure, self._model)

    def ask(
        self, prompts: Sequence[PromptValue], done: Advance = no_progress
    ) -> list[Slot]:
        """Ask the model once per prompt; return one slot for each, in their order.

        `done` gets 1 when a call has ended. A prompt whose call raises, or answers with
        no text, yields an abstaining slot; the other slots are never affected. There is
        no time limit here: groups share a server, a connection or a lock, so one slow
        group would push others past any limit measured by the clock, and one unit would
        change many slots.
        """

        def call(prompt: PromptValue) -> Slot:
            slot = attempt(partial(self._generate, prompt))
            done(1)
            return FAILED if slot is None else slot

        calls = [partial(call, prompt) for prompt in prompts]
        return sealed_context().run(self.pool.map, calls)

    def each(self, calls: Sequence[Callable[[], T]]) -> list[T | None]:
        """Make calls of one slot each, in the sealed region alone.

        None stands in the place of one that raises.
        """
        alone = [partial(attempt, call) for call in calls]
        return sealed_context().run(self.pool.map, alone)

    def score(
        self,
        rows: Sequence[Sequence[PromptValue]],
        options: Sequence[str],
        done: Advance = no_progress,
    ) -> list[list[Figures | None]]:
        """Ask how likely public options are after each prompt of each group.

        One prompt a call. One whose call raises has None in its place; all others are
        asked all the same. `done` gets 1 when a group has been asked.
        """

        def call(row: Sequence[PromptValue]) -> list[Figures | None]:
            told = [attempt(partial(self._score, each, options)) for each in row]
            done(1)
            return told

        calls = [partial(call, row) for row in rows]
        return sealed_context().run(self.pool.map, calls)

    def score_alone(self, prompt: PromptValue, options: Sequence[str]) -> Figures:
        """Return how likely the options are after a public prompt, by the same call.

        Raises:
            PublicCallError: If the call failed, or its figures can't be read.
        """
        failure = "what came back is no row of log-probabilities"
        try:
            if figures := self.in_turn(partial(self._score, prompt, options)):
                return figures
        except DPError:
            raise
        except Exception as error:  # noqa: BLE001 - replaced by an error of ours
            failure = type(error).__name__
        raise PublicCallError(
            f"The model gave no figures on the question alone ({failure}). No record "
            "took part. Call it by itself, model.log_likelihoods(['Is it?'], ['yes', "
            "'no']), to see what is wrong: it returns a row for each prompt."
        )

    def _score(self, prompt: PromptValue, options: Sequence[str]) -> Figures:
        model: Any = self._model
        names = inspect.signature(model.log_likelihoods).parameters
        takes_all = any(each.kind is each.VAR_KEYWORD for each in names.values())
        given = {n: v for n, v in self._bound.items() if takes_all or n in names}
        if (limiter := getattr(model, "rate_limiter", None)) is not None:
            limiter.acquire(blocking=True)
        told = model.log_likelihoods([plain_text(prompt)], list(options), **given)
        return read_figures(told, len(options))

    def _generate(self, prompt: PromptValue) -> Slot:
        if is_open():
            answer = self._whole.invoke(prompt)
            return answered(str(getattr(answer, "text", answer)))
        model = self._model
        given = self._given(model._generate)
        if isinstance(model, BaseLLM):
            # Whatever came back for the one prompt, it is its own.
            many = model._generate([prompt.to_string()], **given).generations
            (candidates,) = many
            return _slot(candidates)
        if model.rate_limiter is not None:
            model.rate_limiter.acquire(blocking=True)
        return _slot(model._generate(prompt.to_messages(), **given).generations)

    def _given(self, method: Callable[..., Any]) -> dict[str, Any]:
        """Return what LangChain gives a model's method beside the prompt, in its way.

        It passes everything by name, and a run manager only to methods that name one.
        So a model that works in an ordinary call works in a group call.
        """
        takes_one = "run_manager" in inspect.signature(method).parameters
        manager = {"run_manager": None} if takes_one else {}
        return {"stop": self._stop, **manager, **self._bound}


_call_pools: WeakValueDictionary[tuple[int, int], Pool] = WeakValueDictionary()


def _pool_of(model: object, limit: int) -> Pool:
    """Return the threads of a model's calls, whatever is bound to it."""
    pool = Pool("dpicl-call", limit, owner=model)  # No other model has its id.
    return _call_pools.setdefault((id(model), limit), pool)


def public_call_error(failure: type[Exception], model: Any) -> DPError:
    """Return the error for a model that failed on the question alone."""
    while isinstance(model, RunnableBinding):
        model = model.bound
    if failure is NotImplementedError:
        return UnsealableModelError(
            f"{type(model).__name__} has no blocking call, which groups are asked by: "
            "its _generate() is not implemented. Pass a model that has one, or give "
            "this one a _generate()."
        )
    return PublicCallError(
        f"The model failed on the question alone ({failure.__name__}). No record took "
        "part. Call the model by itself, model.invoke('Hello'), to see what is wrong."
    )


def unwrap(model: Any) -> tuple[BaseChatModel | BaseLLM, dict[str, Any]]:
    """Return the model under any bound arguments, and the arguments."""
    bound: dict[str, Any] = {}
    layer = model
    while isinstance(layer, RunnableBinding):
        if layer.config_factories:
            raise UnsealableModelError(
                "The model carries listeners (with_listeners), which would see private "
                "prompts. Pass the model itself, and listen to the chain instead."
            )
        # The outermost binding wins, as it does when LangChain calls through.
        bound = {**layer.kwargs, **bound}
        layer = layer.bound
    if isinstance(layer, BaseChatModel | BaseLLM):
        return layer, bound
    if layer is None or isinstance(layer, str):
        raise UnsealableModelError(
            "Pass a chat model or a completion model, such as ChatOpenAI(model=...), "
            f"not {'a name' if layer else 'nothing'}."
        )
    raise UnsealableModelError(
        f"{type(layer).__name__} can't be called in the sealed region. Pass a chat "
        "model or completion model itself, with .bind(...) arguments if you like, but "
        "without .with_retry() (use the model's max_retries), .with_fallbacks() (a "
        "fallback would be asked with private prompts unseen), "
        ".with_structured_output(), configurable fields or a parser behind it; and "
        "give init_chat_model() the model's name."
    )


def _without_observers(model: BaseChatModel | BaseLLM) -> BaseChatModel | BaseLLM:
    """Return the model, or a shallow copy of it that shares all but its observers."""
    if not (model.callbacks or model.verbose or model.cache):
        return model
    return model.model_copy(
        update={"cache": False, "callbacks": None, "verbose": False}
    )


def _computes_here(model: BaseChatModel | BaseLLM) -> bool:
    """Whether the model seems to compute in this process, and not to wait for another.

    Such a completion model takes lists and has no asynchronous call. Its calls share
    a device's memory and a tokenizer: side by side, one long prompt may fail others.
    """
    is_list_model = isinstance(model, BaseLLM) and not isinstance(model, LLM)
    return is_list_model and type(model)._agenerate is BaseLLM._agenerate


def _slot(candidates: Sequence[Generation]) -> Slot:
    """One slot holds one answer, however many candidates the provider returned."""
    return answered(candidates[0].text) if candidates else ABSTAIN
