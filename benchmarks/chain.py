"""A private answer beside the bare fan-out of the same group prompts; the import.

The groups come out of the generated clinic (2,000 patients, 8,000 notes), so that the
prompts have a real length. The model is a fake that waits and then says one sentence.
The bare fan-out, `model.abatch` or `model.batch`, is handed the very prompts that the
chain asks its groups, ready-made; what the chain does before and after them (embedding,
charge, search, prompts, noise, record) all counts as its own. Both sides take turns,
with as many calls in flight. Every private answer is a released one.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from benchmarks.common import (
    Line,
    Options,
    Scripted,
    account,
    in_turn,
    seconds,
    show,
)
from langchain_dpicl import (
    DPChain,
    KSAPTROutputParser,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.demo import clinic
from langchain_dpicl.offline import HashingEmbeddings

QUESTION = "Which side effect do patients on lisinopril report most?"
LABELS = ["cough", "headache", "nausea", "rash"]
GROUPS, SLOW = 100, 0.1
MANY_GROUPS, IN_FLIGHT = 20, 128
NOISE = {"epsilon": 1e6, "delta": 1e-6, "queries": 100_000}
"""So many answers that an account lasts for the run, with next to no noise."""


def model_of(latency: float) -> Scripted:
    """Return a model that says one sentence where there are records."""

    def said(prompt: str) -> str:
        return "A dry cough." if "Records:" in prompt else "Unknown."

    return Scripted(said=said, latency=latency)


def prompts_of(chain: DPChain, model: Scripted) -> list[list[BaseMessage]]:
    """Return what one answer of a chain asks its model."""
    chain.invoke(QUESTION)  # A first answer may ask more.
    model.heard.clear()
    chain.invoke(QUESTION)
    return [[HumanMessage(text)] for text in model.heard]


def chain_of(
    groups: RetrievedGroups,
    model: BaseChatModel,
    parser: Any,
    *,
    ledger: str = ":memory:",
    in_flight: int = GROUPS,
) -> DPChain:
    budget = account(**NOISE, ledger=ledger, account=uuid4().hex)
    return DPChain(
        groups=groups,
        model=model,
        parser=parser,
        budget=budget,
        max_concurrency=in_flight,
        cache=False,
    )


def answered(message: AIMessage) -> None:
    record = message.response_metadata["privacy"]
    assert record["status"] == "released", record


async def turns(runs: int, *calls: Callable[[], Awaitable[object]]) -> list[float]:
    """Return the median seconds of awaited calls that take turns."""
    taken: list[list[float]] = [[] for _ in calls]
    for turn in range(runs + 1):
        for call, times in zip(calls, taken, strict=True):
            start = time.perf_counter()
            await call()
            if turn:
                times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in taken]


def one_answer(groups: RetrievedGroups, latency: float, runs: int, file: Path) -> None:
    """Show an answer beside its calls, made bare."""
    reach = "<= 1.05" if latency else "<= 1.1"
    config: Any = {"max_concurrency": GROUPS}
    lines = []
    for ledger in (":memory:", f"sqlite:///{file}"):
        model = model_of(latency)
        chain = chain_of(groups, model, VoteOutputParser(labels=LABELS), ledger=ledger)
        prompts = prompts_of(chain, model)
        assert len(prompts) == GROUPS
        ours, theirs = in_turn(
            runs,
            lambda c=chain: answered(c.invoke(QUESTION)),
            lambda m=model, p=prompts: m.batch(p, config),
        )
        kept = "in memory" if ledger == ":memory:" else "in SQLite"
        lines.append(Line(f"invoke, account {kept}", ours, "batch", theirs, reach))

        async def ask(chain: DPChain = chain) -> None:
            answered(await chain.ainvoke(QUESTION))

        both = turns(runs, ask, lambda m=model, p=prompts: m.abatch(p, config))
        ours, theirs = asyncio.run(both)
        lines.append(Line(f"ainvoke, account {kept}", ours, "abatch", theirs, reach))
    show(f"Vote of {GROUPS} groups, model of {1e3 * latency:.0f} ms", *lines)


def waits(groups: RetrievedGroups, runs: int) -> None:
    """Show how many latencies a keyword answer takes: the groups, then the wording."""
    model = model_of(SLOW)
    chain = chain_of(groups, model, KSAPTROutputParser(k=1))
    *prompts, wording = prompts_of(chain, model)

    def bare() -> None:
        model.batch(prompts, {"max_concurrency": GROUPS})
        model.invoke(wording)

    ours, theirs = in_turn(runs, lambda: answered(chain.invoke(QUESTION)), bare)
    shown = ours / SLOW, f"the same {len(prompts) + 1} calls", theirs / SLOW
    what = "a KSA-PTR answer, invoke"
    show("Waits for the model", Line(what, *shown, "2 waits", "waits"))


def many_questions(groups: RetrievedGroups, at_once: int, latency: float) -> None:
    """Show the rate of many questions at once beside that of their calls alone."""
    model = model_of(latency)
    parser = VoteOutputParser(labels=LABELS)
    chain = chain_of(groups, model, parser, in_flight=IN_FLIGHT)
    prompts = prompts_of(chain, model) * at_once
    ideal = IN_FLIGHT / latency / MANY_GROUPS

    def threads(call: Callable[[Any], Any], given: Sequence[Any], most: int) -> float:
        with ThreadPoolExecutor(most) as pool:
            return at_once / seconds(lambda: list(pool.map(call, given)))

    async def ask() -> float:
        start = time.perf_counter()
        await asyncio.gather(*(chain.ainvoke(QUESTION) for _ in range(at_once)))
        return at_once / (time.perf_counter() - start)

    async def bare() -> float:
        start, places = time.perf_counter(), asyncio.Semaphore(IN_FLIGHT)

        async def call(prompt: Any) -> None:
            async with places:
                await model.ainvoke(prompt)

        await asyncio.gather(*map(call, prompts))
        return at_once / (time.perf_counter() - start)

    asked = threads(chain.invoke, [QUESTION] * at_once, at_once)
    called = threads(model.invoke, prompts, IN_FLIGHT)
    more = "the calls alone", asyncio.run(bare()), ">= 0.9", "answers/s"
    show(
        f"{at_once} questions of {MANY_GROUPS} groups at once, {IN_FLIGHT} calls of "
        f"{1e3 * latency:.0f} ms in flight; ideal {ideal:.1f} answers/s",
        Line("invoke", asked, more[0], called, *more[2:]),
        Line("ainvoke", asyncio.run(ask()), *more),
    )


def imports(runs: int) -> None:
    """Show what importing the package takes beyond importing LangChain's core."""

    def loading(names: str) -> Callable[[], object]:
        command = [sys.executable, "-c", f"import {names}"]
        return lambda: subprocess.run(command, check=True)  # noqa: S603 - our own

    core = "langchain_core"
    ours, theirs = in_turn(runs, loading(f"{core}, langchain_dpicl"), loading(core))
    beyond = "<= 150 ms beyond"
    show("Import", Line("both packages", ours, "langchain_core alone", theirs, beyond))


def run(options: Options) -> None:
    """Print all tables."""
    runs = 3 if options.quick else 21
    terms: dict[str, Any] = {"unit_key": "patient_id"}
    groups = RetrievedGroups.from_documents(
        clinic(), HashingEmbeddings(), n_groups=GROUPS, **terms
    )
    with tempfile.TemporaryDirectory() as folder:
        for number, latency in enumerate((SLOW, 0.0)):
            one_answer(groups, latency, runs, Path(folder, f"{number}.db"))
    waits(groups, runs)
    fewer = RetrievedGroups.from_documents(
        clinic(), HashingEmbeddings(), n_groups=MANY_GROUPS, **terms
    )
    size = (16, 0.2) if options.quick else (64, 1.0)
    many_questions(fewer, *size)
    imports(3 if options.quick else 11)
