"""One few-shot generation that everybody watches, and what each of them has seen.

The model's vocabulary can't spell a marker, so that no released text can hold one.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import CallbackManager
from langchain_core.globals import get_verbose
from langchain_core.runnables import RunnableLambda
from langchain_core.runnables.config import ensure_config

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.errors import PublicCallError
from langchain_dpicl.few_shot import (
    DPFewShotGenerator,
    NextTokenModel,
    generation,
    request,
)
from langchain_dpicl.few_shot.prompting import FewShotPrompting
from langchain_dpicl.ledger import SQLLedger
from langchain_dpicl.release.flow import Do
from langchain_dpicl.sealed import Hidden, region
from support.few_shot_fakes import WordModel
from support.leaks import callbacks, langsmith, output, state, telemetry
from support.leaks.canaries import STEMS, is_private, marker
from support.leaks.collector import Collector
from support.leaks.observer import Observer, Stage
from support.leaks.parts import INNER, quoting, tell
from support.leaks.runs import Finding, _ask, _finding, _made, _new_ledger

UNITS, GROUPS = 12, 4
RECORDS = [
    {
        "text": f"red green {marker('document', n)}",
        "label": "color",
        "patient": marker("unit", n),
        "ward": marker("metadata", n),
    }
    for n in range(UNITS)
]
TOLD = float(STEMS["usage"])
"""Marks what the model says of a private prompt."""

WAYS = ["generate", "agenerate"]

# What fails, and what the caller is raised: what fails for private prompts alone costs
# their slots, and nothing else.
RAISED = {
    "none": "",
    "answer": "",
    "template": "",
    "call": "",
    "ours": "",
    "panic": "",
    "exit": "",
    "interrupt": "KeyboardInterrupt",
}


class Panic(BaseException):
    """What a panic of a compiled extension is: not an `Exception`."""


class QuotingList(list[float]):
    """An answer that can't be read, and says of whom it was."""

    def __init__(self, text: str, length: int) -> None:
        super().__init__([0.0] * length)
        self.text = text

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise quoting(self.text)


def _say(text: str) -> None:
    """Tell callbacks of a text as a chain tells them, also those of verbose mode."""
    manager = CallbackManager.configure(
        ensure_config()["callbacks"], verbose=get_verbose()
    )
    manager.on_chain_start({"name": "group"}, {"prompt": text}).on_text(text)


class LeakyWords(WordModel):
    """Does with a private prompt whatever a client library might, and fails with it.

    Args:
        failing: How it fails, in the second step: a key of `RAISED`.
    """

    def __init__(self, failing: str = "none") -> None:
        super().__init__(ending=None)
        self.failing = failing

    def top_tokens(self, prompts: Any, k: int) -> Any:
        found = super().top_tokens(prompts, k)
        # They are in the reprs that observers look at.
        del self.top_calls[:-1]
        return found

    def log_probabilities(self, prompts: Any, tokens: Any) -> Any:
        private = [prompt.text for prompt in prompts if is_private(prompt.text)]
        # Before the charge it is asked about public prompts alone.
        assert private or self.is_probe(prompts)
        for text in private[:1]:
            tell(text)
            _say(text)
            if prompts[0].generated:
                self._fail(text)
        return [
            self._answer(prompt, len(wanted))
            for prompt, wanted in zip(prompts, tokens, strict=True)
        ]

    def _answer(self, prompt: Any, size: int) -> Any:
        if is_private(prompt.text) and self.failing == "answer":
            return QuotingList(prompt.text, size)
        rest = -TOLD if is_private(prompt.text) else -9.0
        return [0.0, *[rest] * (size - 1)]

    def _fail(self, text: str) -> None:
        errors: dict[str, BaseException] = {
            "call": quoting(text),
            "ours": PublicCallError(text),
            "panic": Panic(text),
            "exit": SystemExit(text),
            "interrupt": KeyboardInterrupt(text),
        }
        if self.failing in errors:
            raise errors[self.failing]


class AsyncLeakyWords(LeakyWords):
    """The same with an asynchronous client."""

    async def alog_probabilities(self, prompts: Any, tokens: Any) -> Any:
        await INNER.ainvoke(prompts[0].text)
        await RunnableLambda(str.upper).ainvoke(prompts[0].text)
        return self.log_probabilities(prompts, tokens)


ALWAYS: list[type[Observer]] = [
    callbacks.CallerHandler,
    callbacks.AsyncCallerHandler,
    output.DebugLogs,
    output.Warned,
    output.LastResorts,
    telemetry.ClientTelemetry,
    state.Answers,
    state.Errors,
    state.Pickles,
    state.LedgerFiles,
    state.StoredAnswers,
]
# Two companies, as some exclude each other (`leak_runs.py`), each with a model.
COMPANIES: dict[str, tuple[type[LeakyWords], list[type[Any]]]] = {
    "environment": (
        LeakyWords,
        [
            langsmith.LangSmithByEnvironment,
            callbacks.CollectedRuns,
            output.DebugOutput,
            state.GlobalCache,
            output.AsyncioDebug,
        ],
    ),
    "parent": (
        AsyncLeakyWords,
        [
            langsmith.LangSmithByParent,
            callbacks.EnvironmentTracer,
            output.VerboseOutput,
            telemetry.OpenInference,
        ],
    ),
}


def watch(
    company: str,
    way: str,
    *,
    collector: Collector,
    failure: str = "none",
    breaking: Callable[[], Any] | None = None,
    only: Sequence[type[Any]] | None = None,
) -> dict[str, Finding]:
    """Generate once, in sight of a company of observers; see `leak_runs.watch`."""
    model_class, special = COMPANIES[company]
    kinds = [*ALWAYS, *special] if only is None else only
    observers = [_made(kind, collector) for kind in kinds]
    observers = [
        each for each in observers if way == "agenerate" or not each.only_async
    ]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as attached:
        stage = Stage(Path(folder))
        attached.enter_context(langsmith.no_tracing())
        if breaking is not None:
            attached.enter_context(breaking())
        if failure == "template":
            attached.enter_context(_broken_template())
        with ExitStack() as watching:
            for each in observers:
                watching.enter_context(each.attach(stage))
            generator = _generator(stage, model_class(failure))
            _ask(stage, generator, _generate if way == "generate" else _agenerate)
        _note_released(stage, generator)
        found = {each.name: _finding(each, stage) for each in observers}
        stage.parts["ledger"].dispose()
    return found


def _generator(stage: Stage, words: LeakyWords) -> DPFewShotGenerator:
    shutil.copy(_new_ledger(), stage.folder / "ledger.db")
    ledger = SQLLedger(f"sqlite:///{stage.folder}/ledger.db")
    budget = PrivacyBudgetHandler(
        epsilon=200, delta=1e-6, queries=4, accounting="zcdp", ledger=ledger
    )
    generator = DPFewShotGenerator(
        words,
        "Given a kind, write a list.",
        ["color"],
        n_groups=GROUPS,
        records_per_group=UNITS / GROUPS,
        max_tokens=3,
        top_k_public=6,
        unit_key="patient",
        budget=budget,
    )
    stage.parts |= {"generator": generator, "budget": budget, "ledger": ledger}
    return generator


def _generate(stage: Stage, generator: Any, question: str) -> None:
    # The application is a runnable: what runs inside it inherits its callbacks.
    def application(_question: str) -> int:
        stage.outputs.append(generator.generate(RECORDS, progress=True))
        return len(stage.outputs)

    stage.wrapped(RunnableLambda(application)).invoke(question, stage.config)


def _agenerate(stage: Stage, generator: Any, question: str) -> None:
    async def application(_question: str) -> int:
        stage.outputs.append(await generator.agenerate(RECORDS, progress=True))
        return len(stage.outputs)

    async def run() -> None:
        output.note_loop_errors(stage)
        runnable = stage.wrapped(RunnableLambda(application))
        await runnable.ainvoke(question, stage.config)

    asyncio.run(run())


def _note_released(stage: Stage, generator: Any) -> None:
    stage.outputs += generator.released()
    stage.outputs += [made.record for made in stage.outputs]


@contextmanager
def _broken_template() -> Iterator[None]:
    def group(self: Any, label: str, records: Any) -> str:
        if records and marker("document", 7) in repr(records):
            raise quoting(repr(records))
        return real(self, label, records)

    real = FewShotPrompting.group
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FewShotPrompting, "group", group)
        yield


@contextmanager
def unsealed() -> Iterator[None]:
    """A step is an ordinary call in the caller's context."""

    async def acall(step: Any) -> Any:
        return await step()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(region, "run_sealed", lambda step: step())
        patch.setattr(region, "arun_sealed", acall)
        # Nor is what an adapter raises kept back.
        patch.setattr(generation, "answered", asked_plainly)
        yield


def asked_plainly(model: Any, asked: Any) -> Any:
    """The twin of `answered`: what an adapter raises is raised."""
    given = asked.prompts, asked.wanted
    return (
        yield Do(
            lambda: model.log_probabilities(*given),
            lambda: model.alog_probabilities(*given),
        )
    )


@contextmanager
def quoted_sizes() -> Iterator[None]:
    """What is stored beside the charge quotes the records."""

    def header(asked: Any, paid: Any) -> Any:
        held = [each.page_content for each in asked.records.by_label["color"]]
        return {**real(asked, paid), "sizes": repr(held)}

    real = request.GenerationRequest._header
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request.GenerationRequest, "_header", header)
        yield


@contextmanager
def plain_answers() -> Iterator[None]:
    """The model's answers are the result of a task, and their repr shows them."""

    async def acall(self: Any, prompts: Any, tokens: Any) -> Any:
        if self.is_probe(prompts):
            return self.log_probabilities(prompts, tokens)
        private = next(n for n, each in enumerate(prompts) if is_private(each.text))

        async def ask() -> Any:
            at = slice(private, private + 1)
            return self.log_probabilities(prompts[at], tokens[at])

        await asyncio.ensure_future(ask())
        return self.log_probabilities(prompts, tokens)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NextTokenModel, "alog_probabilities", acall)
        patch.setattr(Hidden, "__repr__", lambda self: repr(self.value))
        yield
