"""How time and memory grow: units, vectors, groups, questions at once, ledger writers.

    python benchmarks/bench_scale.py [--quick] [--only CURVE ...] [--plot FILE.png]

Each point is measured in a process of its own, so that its peak memory is its own. The
model of `groups` answers at once; that of `questions` waits, which sets the ideal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from rich.console import Console
from rich.table import Table

LATENCY = 0.1
QUESTION_GROUPS = 20
CHARGES = 400


@dataclass(frozen=True)
class Curve:
    """One curve: the sizes, what is measured at each, and why it grows as it does."""

    sizes: tuple[int, ...]
    quick: tuple[int, ...]
    figure: str
    why: str


CURVES = {
    "units": Curve(
        (1_000, 10_000, 100_000, 1_000_000, 10_000_000),
        (1_000, 10_000),
        "ms for a charge of 200 of them, in memory",
        "a look-up a person who pays; memory is linear",
    ),
    "vectors": Curve(
        (1_000, 10_000, 100_000, 1_000_000),
        (1_000, 10_000),
        "ms for a draw of 100 groups of 4",
        "exact search reads every vector: linear",
    ),
    "groups": Curve(
        (10, 30, 100, 300, 1_000),
        (10, 30),
        "ms for an answer of a fake model",
        "a prompt, a reply and a vote each: linear",
    ),
    "questions": Curve(
        (1, 4, 16, 64, 256),
        (1, 4),
        f"answers/s; {LATENCY * 1e3:.0f} ms a call, {QUESTION_GROUPS} groups",
        "until one core is busy",
    ),
    "sqlite": Curve(
        (1, 2, 4, 8, 16, 32),
        (1, 2),
        "charges/s, processes on one file",
        "one writer at a time, and its syncs",
    ),
    "postgres": Curve(
        (1, 2, 4, 8, 16, 32),
        (1, 2),
        "charges/s, processes on one account",
        "one row is updated in turn",
    ),
}


def median(call: Callable[[], object], runs: int) -> float:
    call()
    taken = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def units(size: int) -> float:
    from bench_units import ELIGIBLE, TERMS, filled

    from langchain_dpicl.ledger import MemoryLedger

    ids = [f"patient-{number:08}" for number in range(size)]
    ledger = filled(MemoryLedger(), ids)
    charge = ledger.charge(TERMS.name)
    chosen = random.Random(7)
    sets = iter([chosen.sample(ids, ELIGIBLE) for _ in range(202)])
    return 1e3 * median(lambda: ledger.charge_units(charge, next(sets)), 201)


def vectors(size: int) -> float:
    from bench_groups import Corpus, draws, flat_index, retrieved_groups

    corpus = Corpus()
    index, _ = retrieved_groups(flat_index(corpus, size))
    draw, _ = next(iter(draws(index).values()))
    questions = iter([corpus.question() for _ in range(22)])
    return 1e3 * median(lambda: draw(next(questions)), 21)


def chain_of(groups: int, latency: float, queries: int):  # type: ignore[no-untyped-def]  # noqa: ANN201
    from bench_chain import FakeModel, vote

    from langchain_dpicl import DPChain, PrivacyBudgetHandler, RetrievedGroups
    from langchain_dpicl.demo import clinic
    from langchain_dpicl.offline import HashingEmbeddings

    return DPChain(
        groups=RetrievedGroups.from_documents(
            clinic(), HashingEmbeddings(), unit_key="patient_id", n_groups=groups
        ),
        model=FakeModel(latency=latency),
        parser=vote(),
        budget=PrivacyBudgetHandler(
            epsilon=16, delta=1e-6, queries=queries, ledger=":memory:"
        ),
        max_concurrency=1_000_000,
    )


def groups(size: int) -> float:
    from bench_chain import QUESTION

    chain = chain_of(size, 0.0, 40)

    async def run() -> float:
        taken = []
        for turn in range(12):
            start = time.perf_counter()
            await chain.ainvoke(QUESTION)
            if turn:
                taken.append(time.perf_counter() - start)
        return statistics.median(taken)

    return 1e3 * asyncio.run(run())


def questions(size: int) -> float:
    from bench_chain import QUESTION

    chain = chain_of(QUESTION_GROUPS, LATENCY, 4 * size + 8)

    async def run() -> float:
        await chain.ainvoke(QUESTION)
        rates = []
        for _ in range(3):
            start = time.perf_counter()
            await asyncio.gather(*(chain.ainvoke(QUESTION) for _ in range(size)))
            rates.append(size / (time.perf_counter() - start))
        return statistics.median(rates)

    return asyncio.run(run())


def writing(url: str, size: int) -> float:
    from bench_ledger import by_processes, open_budget, our_writer

    open_budget(url, "bench").ledger.dispose()
    each = max(CHARGES // size, 10)
    return each * size / by_processes(our_writer, url, each, size)


def sqlite(size: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return writing(f"sqlite:///{Path(folder, uuid4().hex)}.db", size)


def postgres(size: int) -> float:
    from postgres_server import temporary_postgres

    with temporary_postgres() as url:
        return float("nan") if url is None else writing(url, size)


POINTS = {
    "units": units,
    "vectors": vectors,
    "groups": groups,
    "questions": questions,
    "sqlite": sqlite,
    "postgres": postgres,
}


def point(curve: str, size: int) -> dict[str, float]:
    """Measure one point in a fresh process."""
    command = [sys.executable, __file__, "--point", curve, str(size)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - our own
    return dict(json.loads(done.stdout.splitlines()[-1]))


def peak_mib() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def plot(found: dict[str, list[tuple[int, dict[str, float]]]], path: Path) -> None:
    """Draw each curve, time or rate in blue, memory in orange where it grows."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import StrMethodFormatter

    columns = 3
    rows = -(-len(found) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(10, 3.1 * rows), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(found) :]:
        axis.axis("off")
    for axis, (name, points) in zip(axes.flat, found.items(), strict=False):
        sizes = [size for size, _ in points]
        axis.plot(sizes, [one["figure"] for _, one in points], "o-", color="#1f5fa8")
        axis.set(xscale="log", yscale="log")
        axis.set_title(f"{name}\n{CURVES[name].figure}", fontsize=8)
        for side in (axis.yaxis, axis.xaxis):
            side.set_major_formatter(StrMethodFormatter("{x:,g}"))
        axis.yaxis.set_minor_formatter(StrMethodFormatter("{x:,g}"))
        axis.tick_params(axis="both", which="both", labelsize=7)
        if name in {"units", "vectors"}:
            second = axis.twinx()
            second.plot(
                sizes, [one["mib"] for _, one in points], "s--", color="#c8641e"
            )
            second.set_yscale("log")
            second.yaxis.set_minor_formatter(StrMethodFormatter("{x:,g}"))
            second.tick_params(which="both", labelsize=7)
            second.set_ylabel("MiB", color="#c8641e", fontsize=8)
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the smallest sizes")
    parser.add_argument("--only", nargs="+", choices=sorted(CURVES))
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--point", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        name, size = options.point
        figure = POINTS[name](int(size))
        print(json.dumps({"figure": figure, "mib": peak_mib()}))
        return
    table = Table("what", "how many", "figure", "unit", "peak MiB", "why")
    found: dict[str, list[tuple[int, dict[str, float]]]] = {}
    for name in options.only or CURVES:
        curve = CURVES[name]
        found[name] = []
        for size in curve.quick if options.quick else curve.sizes:
            one = point(name, size)
            found[name].append((size, one))
            table.add_row(
                name,
                f"{size:,}",
                f"{one['figure']:,.4g}",
                curve.figure,
                f"{one['mib']:,.0f}",
                curve.why,
            )
    Console(width=160).print(table)
    if options.plot is not None:
        plot(found, options.plot)


if __name__ == "__main__":
    main()
