"""Speed of few-shot generation beside the model's own time, and of asking in batches.

    python benchmarks/bench_few_shot.py [--quick] [--vllm FOLDER]

1. Overhead a token at 120,000 records: all that the generator does between two calls of
   its model (sample, prompts, seal, mechanism, ledger), the model's own time left out.
   The model answers at once and, each time, lets a plain loop take the same step:
   `rng.choice` of records, f-strings, softmax, a sum, `rng.normal`, argmax: what it
   would cost without privacy, durability or defense against bad answers.
2. Where that time goes.
3. Tokens a second of whole generations, against asking the same model for the same
   prompts one group at a time; on a slow local server (20 ms a request, 0.2 ms a
   prompt), on models in this process, and with `--vllm` on a real vLLM.

Figures are medians; judge the ratios, the machine may be shared.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import numpy as np
from few_shot_models import (
    PUBLIC,
    BothWays,
    Prepared,
    served_model,
    slow_server,
    transformers_models,
    vllm_server,
)
from rich.console import Console
from rich.table import Table

from langchain_dpicl import PrivacyBudgetHandler, SampledGroups
from langchain_dpicl.accounting import Gaussian
from langchain_dpicl.few_shot import DPFewShotGenerator, NextTokenModel, step
from langchain_dpicl.few_shot.prompting import FewShotPrompting
from langchain_dpicl.ledger import AccountTerms, open_ledger
from langchain_dpicl.ledger.memory import MemoryLedger
from langchain_dpicl.ledger.sql.ledger import SQLLedger
from langchain_dpicl.offline import OfflineNextTokenModel

RECORDS = 120_000
CELLS = ((10, 2), (40, 2), (80, 1), (80, 2))
TARGET = 2e-3
INSTRUCTION = "Given a topic, write a news item."
TEXT = "A river rose above its banks on Sunday and stopped all traffic in town no. "
SIGMA = 1.0


@dataclass(frozen=True)
class Line:
    """One comparison."""

    what: str
    ours: str
    against: str
    theirs: str
    ratio: float
    target: str = ""


def milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:,.2f} ms"


def records_of(count: int, labels: int) -> list[dict[str, str]]:
    return [
        {"text": f"{TEXT}{i}", "label": f"topic {i % labels}"} for i in range(count)
    ]


def generator_of(
    model: NextTokenModel, ledger: str, groups: int, each: int, labels: int, tokens: int
) -> DPFewShotGenerator:
    budget = PrivacyBudgetHandler(
        epsilon=100, delta=1e-6, queries=1, ledger=ledger, account=uuid4().hex
    )
    return DPFewShotGenerator(
        model,
        INSTRUCTION,
        [f"topic {i}" for i in range(labels)],
        n_groups=groups,
        records_per_group=each,
        max_tokens=tokens,
        top_k_public=PUBLIC,
        noise_multiplier=SIGMA,
        stop=(),
        budget=budget,
    )


def plain_step(records: int, groups: int, each: int) -> Callable[[Any], None]:
    """Return a token step of the same size without privacy: what a loop would do."""
    rng = np.random.default_rng(1)
    texts = [f"{TEXT}{i}" for i in range(records)]

    def take(answers: Sequence[np.ndarray]) -> None:
        chosen = rng.choice(records, groups * each, replace=False)
        for place in range(groups):
            own = chosen[place * each : (place + 1) * each]
            shown = "".join([f"Label: topic 0\nText: {texts[i]}\n\n" for i in own])
            f"{INSTRUCTION}\n\n{shown}Label: topic 0\nText:"
        rows = np.exp(np.stack(answers))
        rows /= rows.sum(axis=1, keepdims=True)
        (rows.sum(axis=0) + rng.normal(0, 2**0.5 * SIGMA, PUBLIC)).argmax()

    return take


def overhead(
    cell: tuple[int, int], labels: int, ledger: str, tokens: int, *, is_async: bool
) -> tuple[float, float]:
    """Return seconds a token beside the model's time, and those of the plain loop."""
    model = Prepared(plain_step(RECORDS // labels, *cell))
    generator = generator_of(model, ledger, *cell, labels, tokens)
    records = records_of(RECORDS, labels)
    if is_async:
        asyncio.run(generator.agenerate(records, progress=False))
    else:
        generator.generate(records, progress=False)
    # The first steps fill tables and caches.
    return statistics.median(model.ours[3:]), statistics.median(model.theirs[3:])


def overhead_lines(ledgers: dict[str, str], *, quick: bool) -> Iterator[Line]:
    tokens = 40 if quick else 120
    cases = [(cell, 1, False) for cell in ((CELLS[0], CELLS[-1]) if quick else CELLS)]
    cases += [(cell, 6, False) for cell in ((10, 2), (80, 2))]
    cases += [((80, 2), 1, True)]
    for (groups, each), labels, is_async in cases:
        for name, ledger in ledgers.items():
            ours, theirs = overhead(
                (groups, each), labels, ledger, tokens, is_async=is_async
            )
            how = "agenerate" if is_async else "generate"
            many = "1 label" if labels == 1 else f"{labels} labels at once"
            what = f"{how}, M = {groups}, N = {each}, {many}, {name}"
            shown = milliseconds(ours), "plain loop", milliseconds(theirs)
            # What a durable token takes beyond that is the disk's sync: see below.
            target = "" if name == "SQLite" else f"<= {milliseconds(TARGET)}"
            yield Line(what, *shown, ours / theirs, target)


def disk_line(folder: str) -> Line:
    """What every durable token pays: one sync of the disk, beside one of ours."""
    syncs, stores = [], []
    ledger = open_ledger(f"sqlite:///{Path(folder, 'sync.db')}")
    terms = AccountTerms("tokens", 1.0, 1e-6, accounting="zcdp", delta0_share=0.0)
    ledger.open(terms)
    ledger.charge("tokens", [Gaussian(40.0)])
    ledger.start_release("tokens", 1, "tokens", "{}")
    with Path(folder, "sync").open("ab", buffering=0) as file:
        for number in range(60):
            start = time.perf_counter()
            file.write(b"x" * 1024)
            os.fsync(file.fileno())
            middle = time.perf_counter()
            ledger.store_step("tokens", 1, number, "[17]")
            syncs.append(middle - start)
            stores.append(time.perf_counter() - middle)
    ours, theirs = statistics.median(stores), statistics.median(syncs)
    shown = milliseconds(ours), "a page and its sync alone", milliseconds(theirs)
    return Line("store one token in SQLite", *shown, ours / theirs)


def parts_of(ledger: str, cell: tuple[int, int], tokens: int) -> dict[str, float]:
    """Return the seconds a token of each part of a step; the seal is in the rest."""
    spent: dict[str, list[float]] = defaultdict(list)

    def timed(part: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            start = time.perf_counter()
            found = call(*arguments, **named)
            spent[part].append(time.perf_counter() - start)
            return found

        return run

    watched: list[tuple[str, Any, str]] = [
        ("sample and deal", SampledGroups, "draw_shared"),
        ("prompts", FewShotPrompting, "group"),
        ("distributions", step, "token_distributions"),
        ("sum and noise", step, "noisy_next_token"),
        *(("ledger", kind, "store_step") for kind in (MemoryLedger, SQLLedger)),
    ]
    model = Prepared(lambda _answers: None)
    with ExitStack() as stack:
        for part, owner, name in watched:
            stack.enter_context(
                patch.object(owner, name, timed(part, getattr(owner, name)))
            )
        generator_of(model, ledger, *cell, 1, tokens).generate(
            records_of(RECORDS, 1), progress=False
        )
    parts = {
        part: statistics.median(seconds) * (cell[0] if part == "prompts" else 1)
        for part, seconds in spent.items()
    }
    parts["seal and the rest"] = statistics.median(model.ours[3:]) - sum(parts.values())
    return parts


def throughput(
    what: str,
    model: NextTokenModel,
    size: tuple[int, int],
    tokens: int,
    *,
    alone: NextTokenModel | None = None,
    against: str = "one group at a time",
) -> Iterator[Line]:
    """Compare a whole generation with asking its model one group at a time.

    Args:
        what: The figure's name.
        model: The model.
        size: Groups of a step, and labels at once.
        tokens: Steps.
        alone: What is asked one by one; None: the same model.
        against: What that is called.
    """
    groups, labels = size
    records = records_of(labels * 40 * groups, labels)
    # Connections, and what a server says of itself.
    generator_of(model, ":memory:", groups, 2, labels, 1).generate(
        records, progress=False
    )
    both = BothWays(model, alone)
    generator = generator_of(both, ":memory:", groups, 2, labels, tokens)
    started: list[float] = []
    asked = both.log_probabilities

    def first(prompts: Any, wanted: Any) -> Any:
        # What comes before the first token, a plan among it, is paid once.
        started.append(time.perf_counter())
        return asked(prompts, wanted)

    with patch.object(both, "log_probabilities", first):
        generator.generate(records, progress=False)
    total = time.perf_counter() - started[0] + both.public[0]
    ours, one_by_one, model_alone = both.seconds(total)
    many = "1 label" if labels == 1 else f"{labels} labels"
    figure = f"{what}, M = {groups}, {many}"
    for other, theirs in (
        (against, one_by_one),
        ("the model alone, all groups together", model_alone),
    ):
        yield Line(
            figure,
            f"{labels / ours:,.1f} tokens/s",
            other,
            f"{labels / theirs:,.1f} tokens/s",
            theirs / ours,
        )


def throughput_lines(*, quick: bool, vllm: str | None) -> Iterator[Line]:
    tokens = 3 if quick else 6
    with slow_server() as url:
        for labels in (1, 6):
            model = served_model(url, letters=True)
            size = 40, labels
            yield from throughput("server, 20 ms + 0.2 ms", model, size, tokens)
    if vllm is not None:
        with (
            tempfile.TemporaryDirectory() as folder,
            vllm_server(vllm, folder) as url,
        ):
            for labels in (1, 6):
                model = served_model(url, letters=False)
                size = 40, labels
                yield from throughput("vLLM on CPU, tiny model", model, size, tokens)
    offline = OfflineNextTokenModel()
    yield from throughput("OfflineNextTokenModel", offline, (40, 1), tokens)
    if importlib.util.find_spec("torch"):
        single, fixed = transformers_models()
        name = "TransformersNextToken"
        yield from throughput(f"{name}, 'single'", single, (20, 1), tokens)
        yield from throughput(
            f"{name}, 'fixed'",
            fixed,
            (20, 1),
            tokens,
            alone=single,
            against="'single', one group at a time",
        )


def shown(lines: Iterator[Line], ratio: str) -> Table:
    table = Table("figure", "ours", "compared with", "theirs", ratio, "target")
    for line in lines:
        table.add_row(
            line.what,
            line.ours,
            line.against,
            line.theirs,
            f"{line.ratio:.3g}",
            line.target,
        )
    return table


def shown_parts(ledgers: dict[str, str], tokens: int) -> Table:
    names = ("M = 10, N = 2", "M = 80, N = 2")
    found = {
        f"{name}, {kept}": parts_of(ledger, cell, tokens)
        for name, cell in zip(names, ((10, 2), (80, 2)), strict=True)
        for kept, ledger in ledgers.items()
    }
    table = Table("where the time of a token goes", *found)
    for part in next(iter(found.values())):
        table.add_row(part, *(milliseconds(parts[part]) for parts in found.values()))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller runs")
    parser.add_argument("--vllm", help="a virtual environment with vLLM")
    parser.add_argument("--part", choices=("overhead", "parts", "throughput"))
    arguments = parser.parse_args()
    quick, part = arguments.quick, arguments.part
    console = Console(width=150)
    with tempfile.TemporaryDirectory() as folder:
        ledgers = {
            "in memory": ":memory:",
            "SQLite": f"sqlite:///{Path(folder, 'bench.db')}",
        }
        if part in (None, "overhead"):
            console.print(shown(overhead_lines(ledgers, quick=quick), "ours / theirs"))
            console.print(shown(iter([disk_line(folder)]), "ours / theirs"))
        if part in (None, "parts"):
            console.print(shown_parts(ledgers, 40 if quick else 120))
    if part in (None, "throughput"):
        lines = throughput_lines(quick=quick, vllm=arguments.vllm)
        console.print(shown(lines, "times as fast"))


if __name__ == "__main__":
    main()
