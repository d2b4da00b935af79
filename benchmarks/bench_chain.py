"""Speed of a private answer against the bare fan-out of the same group prompts.

    python benchmarks/bench_chain.py [--quick] [--repeats N]

The groups come out of the generated clinic (2,000 patients, 8,000 notes), so that the
prompts are of a real length; the model is a fake that waits and then says a fixed
sentence. The bare fan-out, `model.abatch` or `model.batch`, is handed the very prompts
that the chain asks its groups, ready-made; what the chain does before and after them
(embedding, charge, search, writing the prompts, noise, record) all counts as its own.
Both sides take turns in one process, with 100 calls in flight at most unless said. A
keyword parser also asks for a sentence after the groups, so it can't take one latency
only: it is compared with the fan-out alone, and with the same 101 calls made bare.
Every private answer is a released one.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompt_values import PromptValue
from pydantic import PrivateAttr
from rich.console import Console
from rich.table import Table

from langchain_dpicl import (
    DPChain,
    KSAPTROutputParser,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.common.prompts import (
    DOCUMENT_SEPARATOR,
    GROUP_PROMPT,
    KEYWORD_PROMPT,
)
from langchain_dpicl.demo import clinic
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.parsers import DPOutputParser
from langchain_dpicl.sealed.calls import MOST_CALLS

QUESTION = "Which side effect do patients on lisinopril report most?"
GROUPS = 100
EPSILON, DELTA = 16.0, 1e-6
SLOW = 0.1
ACCOUNT_RUNS = 12
"""Queries of one account. One in a million or fewer is not released, as all agree.

With epsilon 8, the choice of k in `keywords()` misses one time in 3,000.
"""


class FakeModel(BaseChatModel):
    """Waits, then says one sentence where there are records and another elsewhere."""

    latency: float = 0.0

    _heard: list[str] | None = PrivateAttr(default=None)

    @property
    def _llm_type(self) -> str:
        return "benchmark"

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        if self.latency:
            time.sleep(self.latency)
        return self._say(messages)

    async def _agenerate(
        self, messages: list[BaseMessage], *_: Any, **__: Any
    ) -> ChatResult:
        if self.latency:
            await asyncio.sleep(self.latency)
        return self._say(messages)

    def _say(self, messages: list[BaseMessage]) -> ChatResult:
        text = str(messages[-1].content)
        if self._heard is not None:
            self._heard.append(text)
        said = "A dry cough." if "Records:" in text else "I don't know."
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=said))])


@dataclass(frozen=True)
class Line:
    """One comparison, in seconds."""

    what: str
    ours: float
    against: str
    theirs: float
    target: str = ""


@dataclass(frozen=True)
class Bare:
    """The chain's calls without the chain."""

    model: FakeModel
    prompts: list[PromptValue]

    async def fan_out(self) -> None:
        await self.model.abatch(self.prompts)

    async def all_calls(self) -> None:
        await self.model.abatch(self.prompts)
        await self.model.ainvoke(rewrite_prompt())

    def fan_out_sync(self, threads: int | None) -> None:
        config: Any = None if threads is None else {"max_concurrency": threads}
        self.model.batch(self.prompts, config)


class Asking:
    """One chain and its account; a new account before the old one is spent."""

    def __init__(
        self,
        groups: RetrievedGroups,
        model: FakeModel,
        parser: DPOutputParser,
        ledger: str,
        threads: int | None = None,
    ) -> None:
        self.chain = DPChain(
            groups=groups, model=model, parser=parser, max_concurrency=threads
        )
        self._ledger = ledger
        self._runs = 0
        self._accounts = 0
        self._budget = self._open()

    def _open(self) -> PrivacyBudgetHandler:
        self._accounts += 1
        return PrivacyBudgetHandler(
            epsilon=EPSILON,
            delta=DELTA,
            queries=ACCOUNT_RUNS,
            ledger=self._ledger,
            account=f"{uuid4().hex}-{self._accounts}",
        )

    def renew(self) -> None:
        """Outside the measured time: a plan is calibrated once in an account's life."""
        if self._runs % (ACCOUNT_RUNS - 1) == 0:
            self._budget = self._open()
            check(self.chain.invoke(QUESTION, {"callbacks": [self._budget]}))
        self._runs += 1

    async def aask(self) -> None:
        check(await self.chain.ainvoke(QUESTION, {"callbacks": [self._budget]}))

    def ask(self) -> None:
        check(self.chain.invoke(QUESTION, {"callbacks": [self._budget]}))


def check(answer: AIMessage) -> None:
    record = answer.response_metadata["privacy"]
    assert record["status"] == "released", record


def rewrite_prompt() -> PromptValue:
    return KEYWORD_PROMPT.format_prompt(keywords="cough, dry", question=QUESTION)


def group_prompts(groups: RetrievedGroups, parser: DPOutputParser) -> list[PromptValue]:
    return [
        GROUP_PROMPT.format_prompt(
            context=DOCUMENT_SEPARATOR.join(d.page_content for d in documents),
            question=QUESTION,
            format_instructions=parser.get_format_instructions(),
        )
        for documents in groups.draw(QUESTION)
    ]


def check_same_prompts(groups: RetrievedGroups, prompts: list[PromptValue]) -> None:
    """Like is compared with like: the chain asks exactly the bare fan-out's prompts."""
    model = FakeModel()
    asking = Asking(groups, model, vote(), ":memory:")
    asking.ask()  # A chain's first question asks the question alone as well.
    model._heard = []  # noqa: SLF001 - the benchmark's own model
    asking.ask()
    expected = [prompt.to_messages()[-1].content for prompt in prompts]
    assert len(expected) == GROUPS
    assert sorted(model._heard) == sorted(expected)  # noqa: SLF001


def vote() -> DPOutputParser:
    return VoteOutputParser(labels=["cough", "headache", "nausea", "rash"])


def keywords() -> DPOutputParser:
    return KSAPTROutputParser(k=(1, 4))


PARSERS = {"VoteOutputParser": vote, "KSAPTROutputParser": keywords}


async def taking_turns(
    asking: Asking, others: list[Callable[[], Awaitable[None]]], repeats: int
) -> list[float]:
    """Return median seconds: of the chain first, then of the others."""
    calls = [asking.aask, *others]
    taken: list[list[float]] = [[] for _ in calls]
    for turn in range(repeats + 1):
        # On a worker thread: the set-up must not stall the loop that is measured.
        await asyncio.to_thread(asking.renew)
        for call, times in zip(calls, taken, strict=True):
            start = time.perf_counter()
            await call()
            # The first turn fills tables and caches, of both sides.
            if turn:
                times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in taken]


def taking_turns_sync(
    asking: Asking, others: list[Callable[[], None]], repeats: int
) -> list[float]:
    calls = [asking.ask, *others]
    taken: list[list[float]] = [[] for _ in calls]
    for turn in range(repeats + 1):
        asking.renew()
        for call, times in zip(calls, taken, strict=True):
            start = time.perf_counter()
            call()
            if turn:
                times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in taken]


def async_lines(
    groups: RetrievedGroups, ledgers: dict[str, str], repeats: int
) -> list[Line]:
    lines = []
    for latency in (SLOW, 0.0):
        model = FakeModel(latency=latency)
        for name, parser in PARSERS.items():
            bare = Bare(model, group_prompts(groups, parser()))
            for ledger, url in ledgers.items():
                asking = Asking(groups, model, parser(), url, GROUPS)
                ours, fan_out, all_calls = asyncio.run(
                    taking_turns(asking, [bare.fan_out, bare.all_calls], repeats)
                )
                what = f"ainvoke, {name}, {1e3 * latency:.0f} ms, ledger {ledger}"
                target = "<= 1.03" if latency else "< 1"
                if ledger == "SQLite" and not latency:
                    # What is left is the disk's sync: see bench_ledger.py.
                    target = ""
                two_rounds = bool(latency) and name.startswith("KSA")
                lines.append(
                    Line(
                        what,
                        ours,
                        "abatch of the 100",
                        fan_out,
                        "2 latencies" if two_rounds else target,
                    )
                )
                if name.startswith("KSA"):
                    lines.append(
                        Line(what, ours, "all 101 calls, bare", all_calls, target)
                    )
    return lines


def sync_lines(groups: RetrievedGroups, repeats: int) -> list[Line]:
    lines = []
    for latency in (SLOW, 0.0):
        model = FakeModel(latency=latency)
        bare = Bare(model, group_prompts(groups, vote()))
        for threads in (None, GROUPS):
            asking = Asking(groups, model, vote(), ":memory:", threads)
            # A bare batch has cpu + 4 threads unless it is told otherwise.
            counts = sorted({threads or MOST_CALLS, GROUPS})
            ours, default, *others = taking_turns_sync(
                asking,
                [
                    partial(bare.fan_out_sync, None),
                    *(partial(bare.fan_out_sync, count) for count in counts),
                ],
                repeats,
            )
            shown = threads or f"{MOST_CALLS} (default)"
            what = f"invoke, VoteOutputParser, {1e3 * latency:.0f} ms, threads {shown}"
            target = "<= 1.03" if latency else "< 1"
            lines.append(Line(what, ours, "batch of the 100", default, target))
            lines += [
                Line(
                    what,
                    ours,
                    f"batch, max_concurrency={count}",
                    other,
                    # Two rounds on 64 threads are no match for one round on 100.
                    target if count == (threads or MOST_CALLS) else "",
                )
                for count, other in zip(counts, others, strict=True)
            ]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs")
    parser.add_argument("--repeats", type=int, default=0)
    arguments = parser.parse_args()
    repeats = arguments.repeats or (5 if arguments.quick else 21)

    groups = RetrievedGroups.from_documents(
        clinic(), HashingEmbeddings(), unit_key="patient_id", n_groups=GROUPS
    )
    check_same_prompts(groups, group_prompts(groups, vote()))
    table = Table(
        "figure", "ours", "compared with", "theirs", "ours / theirs", "target"
    )
    with tempfile.TemporaryDirectory() as folder:
        ledgers = {
            "in memory": ":memory:",
            "SQLite": f"sqlite:///{Path(folder, 'bench.db')}",
        }
        lines = [
            *async_lines(groups, ledgers, repeats),
            *sync_lines(groups, repeats),
        ]
    for line in lines:
        table.add_row(
            line.what,
            f"{1e3 * line.ours:,.1f} ms",
            line.against,
            f"{1e3 * line.theirs:,.1f} ms",
            f"{line.ours / line.theirs:.3f}",
            line.target,
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
