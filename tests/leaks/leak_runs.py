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

import leak_callbacks
import leak_faces
import leak_langsmith
import leak_output
import leak_parts
import leak_state
import leak_telemetry
import leak_ways
from leak_canaries import Sight, look
from leak_collector import Collector
from leak_observer import Observer, Stage

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    PublicFirstGate,
    RetrievedGroups,
)
from langchain_dpicl.ledger import SQLLedger

SYNC = {**leak_ways.SYNC, **leak_faces.SYNC_FACES}
ASYNC = {**leak_ways.ASYNC, **leak_faces.ASYNC_FACES}
WAYS = {**SYNC, **ASYNC}
BASIC = ["invoke", "ainvoke", "batch", "abatch", "stream", "astream"]

# Three companies of observers, as some exclude each other: with a tracer of its own in
# the config, LangChain makes none from the environment, and a model has one cache. Each
# company has another kind of model.
ALWAYS: list[type[Observer]] = [
    leak_callbacks.CallerHandler,
    leak_callbacks.AsyncCallerHandler,
    leak_output.DebugLogs,
    leak_output.Warned,
    leak_output.LastResorts,
    leak_telemetry.ClientTelemetry,
    leak_state.Answers,
    leak_state.Errors,
    leak_state.Reprs,
    leak_state.Pickles,
    leak_state.Dumps,
    leak_state.LedgerFiles,
    leak_state.StoredAnswers,
]
ALONE = "alone"
COMPANIES: dict[str, tuple[type[Any], list[type[Any]]]] = {
    "environment": (
        leak_parts.AsyncLeakyChat,
        [
            leak_langsmith.LangSmithByEnvironment,
            leak_callbacks.CollectedRuns,
            leak_callbacks.UsageInContext,
            leak_output.DebugOutput,
            leak_state.GlobalCache,
            leak_output.AsyncioDebug,
        ],
    ),
    "config": (
        leak_parts.LeakyChat,
        [
            leak_langsmith.LangSmithByConfig,
            leak_langsmith.LangSmithByOpenTelemetry,
            leak_callbacks.UsageHandler,
            leak_callbacks.ModelCallbacks,
            leak_callbacks.ChainListeners,
            leak_output.VerboseOutput,
            leak_state.ModelCache,
            leak_callbacks.EnvironmentTracer,
        ],
    ),
    ALONE: (leak_parts.LeakyChat, []),
    "parent": (
        leak_parts.LeakyLLM,
        [
            leak_langsmith.LangSmithByParent,
            leak_callbacks.ModelConfigCallbacks,
            leak_output.VerboseModel,
            leak_telemetry.OpenInference,
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
def _groups(kind: type[RetrievedGroups]) -> RetrievedGroups:
    return leak_parts.groups(kind)


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

    Returns:
        What each observer saw, by its name.
    """
    model_class, special = COMPANIES[company]
    kinds = [*ALWAYS, *special] if only is None else only
    observers = [_made(kind, collector) for kind in kinds]
    observers = [each for each in observers if way in ASYNC or not each.only_async]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as attached:
        stage = Stage(Path(folder))
        attached.enter_context(leak_langsmith.no_tracing())
        if breaking is not None:
            attached.enter_context(breaking())
        with ExitStack() as watching:
            for each in observers:
                watching.enter_context(each.attach(stage))
            chain = _chain(stage, model or model_class, parser, failure)
            _ask(stage, chain, WAYS[way])
        found = {each.name: _finding(each, stage) for each in observers}
        stage.parts["ledger"].dispose()
    return found


def _made(kind: type[Any], collector: Collector) -> Any:
    is_remote = issubclass(kind, leak_langsmith._LangSmith)
    return kind(collector) if is_remote else kind()


def _chain(
    stage: Stage, model_class: Callable[..., Any], parser: str, failure: str
) -> Any:
    model = model_class(failing=failure, **stage.model_fields)
    if stage.model_config:
        model = model.with_config(**stage.model_config)
    ledger_class = leak_parts.BrokenLedger if failure == "ledger" else SQLLedger
    shutil.copy(_new_ledger(), stage.folder / "ledger.db")
    ledger = ledger_class(f"sqlite:///{stage.folder}/ledger.db")
    budget = PrivacyBudgetHandler(
        epsilon=200,
        delta=1e-6,
        queries=4,
        accounting="zcdp",
        scope="unit",
        ledger=ledger,
    )
    stage.callbacks.append(budget)
    source = leak_parts.TalkativeGroups
    groups = _groups(leak_parts.BrokenGroups if failure == "store" else source)
    made = leak_parts.PARSERS[parser](failure == "embedding")
    gate = PublicFirstGate() if parser == leak_parts.GATED else None
    chain = DPChain(
        groups=groups,
        model=model,
        parser=made,
        cache=True,
        gate=gate,
        prompts_per_call=4 if model_class is leak_parts.LeakyLLM else 1,
    )
    stage.parts |= {
        "chain": chain,
        "groups": groups,
        "parser": made,
        "budget": budget,
        "ledger": ledger,
    }
    return stage.wrapped(chain)


def _ask(stage: Stage, chain: Any, way: leak_ways.Way) -> None:
    # A traced function shows its arguments: this one has the question alone.
    def ask(question: str) -> None:
        way(stage, chain, question)

    asked: Any = ask
    for wrap in stage.wrappers:
        asked = wrap(asked)
    try:
        asked(leak_parts.QUESTION)
    except BaseException as error:  # noqa: BLE001 - whatever comes is looked at
        stage.error = error


def _finding(observer: Observer, stage: Stage) -> Finding:
    raised = type(stage.error).__name__ if stage.error else ""
    return Finding(observer, look(observer.seen(stage)), raised)
