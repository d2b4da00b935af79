"""One run of a chain that everybody watches, and what each of them has seen."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    PublicFirstGate,
    RetrievedGroups,
)
from langchain_dpicl.ledger import SQLLedger
from support.leaks import (
    callbacks,
    faces,
    langsmith,
    output,
    parts,
    state,
    telemetry,
    ways,
)
from support.leaks.canaries import Sight, look
from support.leaks.collector import Collector
from support.leaks.observer import Observer, Stage

SYNC = {**ways.SYNC, **faces.SYNC_FACES}
ASYNC = {**ways.ASYNC, **faces.ASYNC_FACES}
WAYS = {**SYNC, **ASYNC}
BASIC = ["invoke", "ainvoke", "batch", "abatch", "stream", "astream"]

# Three companies of observers, as some exclude each other: with a tracer of its own in
# the config, LangChain makes none from the environment, and a model has one cache. Each
# company has another kind of model.
ALWAYS: list[type[Observer]] = [
    callbacks.CallerHandler,
    callbacks.AsyncCallerHandler,
    output.DebugLogs,
    output.Warned,
    output.LastResorts,
    telemetry.ClientTelemetry,
    state.Answers,
    state.Errors,
    state.Reprs,
    state.Pickles,
    state.Dumps,
    state.LedgerFiles,
    state.StoredAnswers,
]
ALONE = "alone"
COMPANIES: dict[str, tuple[type[Any], list[type[Any]]]] = {
    "environment": (
        parts.AsyncLeakyChat,
        [
            langsmith.LangSmithByEnvironment,
            callbacks.CollectedRuns,
            callbacks.UsageInContext,
            output.DebugOutput,
            state.GlobalCache,
            output.AsyncioDebug,
        ],
    ),
    "config": (
        parts.LeakyChat,
        [
            langsmith.LangSmithByConfig,
            langsmith.LangSmithByOpenTelemetry,
            callbacks.UsageHandler,
            callbacks.ModelCallbacks,
            callbacks.ChainListeners,
            output.VerboseOutput,
            state.ModelCache,
            callbacks.EnvironmentTracer,
        ],
    ),
    ALONE: (parts.LeakyChat, []),
    "parent": (
        parts.LeakyLLM,
        [
            langsmith.LangSmithByParent,
            callbacks.ModelConfigCallbacks,
            output.VerboseModel,
            telemetry.OpenInference,
        ],
    ),
}
OBSERVERS: list[type[Any]] = [
    *ALWAYS,
    *(each for _, company in COMPANIES.values() for each in company),
]


@dataclass(frozen=True)
class Finding:
    """What one observer saw of one run."""

    observer: Observer
    sight: Sight
    raised: str

    @property
    def works(self) -> bool:
        """Whether it saw what any observer of its kind must see."""
        wanted = self.observer.sees
        return wanted == "nothing" or bool(getattr(self.sight, wanted))


@functools.cache
def _groups(kind: type[RetrievedGroups], sampling_rate: float) -> RetrievedGroups:
    return parts.groups(kind, sampling_rate)


@functools.cache
def _new_ledger() -> Path:
    """Return a ledger without accounts: making one takes longer than a question."""
    path = Path(tempfile.mkdtemp()) / "ledger.db"
    SQLLedger(f"sqlite:///{path}").dispose()
    return path


def watch(
    company: str,
    way: str,
    parser: str,
    *,
    collector: Collector,
    failure: str = "none",
    breaking: Callable[[], Any] | None = None,
    only: Sequence[type[Any]] | None = None,
    model: Callable[..., Any] | None = None,
    sampling_rate: float = 1.0,
    redactor: str | None = None,
    where: Any = None,
) -> dict[str, Finding]:
    """Ask once, in sight of a company of observers.

    Args:
        company: Which observers, and which kind of model.
        way: How the chain is asked.
        parser: The mechanism.
        collector: Where traces are sent.
        failure: What fails: `none` (of importance), `model`, `embedding`, `store` or
            `ledger`; `interrupt`: the user stops the program in a group call.
        breaking: Breaks the seal, for the twin.
        only: These observers, instead of the company.
        model: Another kind of model than the company's.
        sampling_rate: Below 1: whether a person is in the sample is private too.
        redactor: What records are redacted with: a `function` or a `runnable`.
        where: A filter of the groups: who matches it is private.

    Returns:
        What each observer saw, by its name.
    """
    model_class, special = COMPANIES[company]
    kinds = [*ALWAYS, *special] if only is None else only
    observers = [_made(kind, collector) for kind in kinds]
    observers = [each for each in observers if way in ASYNC or not each.only_async]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as attached:
        stage = Stage(Path(folder))
        attached.enter_context(langsmith.no_tracing())
        if breaking is not None:
            attached.enter_context(breaking())
        with ExitStack() as watching:
            for each in observers:
                watching.enter_context(each.attach(stage))
            kind = model or model_class
            source = _source(failure, sampling_rate, where)
            chain = _chain(stage, kind, parser, failure, source, redactor)
            _ask(stage, chain, WAYS[way])
        found = {each.name: _finding(each, stage) for each in observers}
        stage.parts["ledger"].dispose()
    return found


def _made(kind: type[Any], collector: Collector) -> Any:
    is_remote = issubclass(kind, langsmith._LangSmith)
    return kind(collector) if is_remote else kind()


def _source(failure: str, sampling_rate: float, where: Any) -> RetrievedGroups:
    kind = parts.BrokenGroups if failure == "store" else parts.TalkativeGroups
    groups = _groups(kind, sampling_rate)
    return groups if where is None else groups.where(where)


def _chain(
    stage: Stage,
    model_class: Callable[..., Any],
    parser: str,
    failure: str,
    groups: RetrievedGroups,
    redactor: str | None = None,
) -> Any:
    model = model_class(failing=failure, **stage.model_fields)
    if stage.model_config:
        model = model.with_config(**stage.model_config)
    ledger_class = parts.BrokenLedger if failure == "ledger" else SQLLedger
    shutil.copy(_new_ledger(), stage.folder / "ledger.db")
    ledger = ledger_class(f"sqlite:///{stage.folder}/ledger.db")
    budget = PrivacyBudgetHandler(
        epsilon=200,
        delta=1e-6,
        queries=4,
        accounting="zcdp" if groups.sampling_rate == 1 else "renyi",
        scope="unit",
        ledger=ledger,
    )
    stage.callbacks.append(budget)
    made = parts.PARSERS[parser](failure == "embedding")
    gate = PublicFirstGate() if parser == parts.GATED else None
    chain = DPChain(
        groups=groups,
        model=model,
        parser=made,
        cache=True,
        gate=gate,
        stages=2 if parser == parts.STAGED else 1,
        stop_at=99.0,
        redact=None if redactor is None else parts.REDACTORS[redactor](stage.callbacks),
        prompts_per_call=4 if model_class is parts.LeakyLLM else 1,
    )
    stage.parts |= {
        "chain": chain,
        "groups": groups,
        "parser": made,
        "budget": budget,
        "ledger": ledger,
    }
    return stage.wrapped(chain)


def _ask(stage: Stage, chain: Any, way: ways.Way) -> None:
    # A traced function shows its arguments: this one has the question alone.
    def ask(question: str) -> None:
        way(stage, chain, question)

    asked: Any = ask
    for wrap in stage.wrappers:
        asked = wrap(asked)
    try:
        asked(parts.QUESTION)
    except BaseException as error:  # noqa: BLE001 - whatever comes is looked at
        stage.error = error


def _finding(observer: Observer, stage: Stage) -> Finding:
    raised = type(stage.error).__name__ if stage.error else ""
    return Finding(observer, look(observer.seen(stage)), raised)
