"""Speed of private tables' numbers, next to what they are compared with, in one run.

Run `python benchmarks/bench_tabular.py [--quick] [--part reconstruct|counts|fit]`.
Figures are medians; judge the ratios, the machine may be shared.
"""

from __future__ import annotations

import argparse
import functools
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from langchain_dpicl.mechanisms.source import system_random
from langchain_dpicl.tabular.ldp.counts import ReportCounts
from langchain_dpicl.tabular.ldp.fitting import fit
from langchain_dpicl.tabular.ldp.reconstruction import reconstruct, standard_errors
from langchain_dpicl.tabular.simplex import project_to_simplex

EPSILON = 1.0
BLOCK = 50_000


@dataclass(frozen=True)
class Line:
    what: str
    ours: float
    against: str = ""
    theirs: float | None = None
    target: float | None = None


def median_seconds(call: Callable[[], object], runs: int) -> float:
    call()  # Imports and caches.
    taken = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def dense_solve(table: np.ndarray) -> np.ndarray:
    """The published way: build the Kronecker product and solve with it."""
    keep = np.exp(EPSILON) / (np.exp(EPSILON) + 1)
    matrix = np.array([[keep, 1 - keep], [1 - keep, keep]])
    product = functools.reduce(np.kron, [matrix] * table.ndim)
    return np.linalg.solve(product, table.ravel()).reshape(table.shape)


def reconstruct_lines(*, quick: bool) -> list[Line]:
    rng = np.random.default_rng(1)
    lines = []
    targets = {14: 5e-3, 20: 0.5}
    for columns in (10, 12, 14, 20):
        table = rng.random((2,) * columns)
        table /= table.sum()
        epsilons = [EPSILON] * columns
        runs = 5 if quick else 31
        ours = median_seconds(lambda t=table, e=epsilons: reconstruct(t, e), runs)
        what = f"reconstruct, {columns} binary columns"
        # Of 16,384 squared doubles at 14 columns: only its size is compared.
        against, theirs = f"Kronecker product: {8 * 4**columns / 2**30:,.3g} GiB", None
        if columns <= (10 if quick else 12):
            gap = np.abs(reconstruct(table, epsilons) - dense_solve(table)).max()
            assert gap < 1e-9, gap
            theirs = median_seconds(lambda t=table: dense_solve(t), 3)
            against = "Kronecker product, built and solved"
        lines.append(Line(what, ours, against, theirs, targets.get(columns)))
    copied = median_seconds(lambda t=table: t.copy(), 11)
    for name, call in (
        ("standard_errors", lambda: standard_errors(table, epsilons, 1000)),
        ("project_to_simplex", lambda: project_to_simplex(table)),
    ):
        ours = median_seconds(call, 5 if quick else 11)
        what = f"{name}, 20 binary columns"
        lines.append(Line(what, ours, "a copy of the table", copied))
    return lines


def some_reports(sizes: tuple[int, ...], rows: int) -> np.ndarray:
    rng = np.random.default_rng(2)
    return np.stack([rng.integers(0, size, rows) for size in sizes], axis=1)


def pair_by_pair(codes: np.ndarray, sizes: tuple[int, ...]) -> None:
    for column in range(1, len(sizes)):
        keys = codes[:, 0] * sizes[column] + codes[:, column]
        np.bincount(keys, minlength=sizes[0] * sizes[column])


def counts_lines(*, quick: bool) -> list[Line]:
    lines = []
    for sizes, text in (
        ((2,) * 14, "14 binary columns (joint table)"),
        ((2,) * 20, "20 binary columns (joint table)"),
        ((10,) * 20, "20 columns of 10 values (pairs)"),
        ((2, 3, 1000, 5, 40, 7, 300, 8), "8 columns of 2 to 1,000 values (pairs)"),
    ):
        block = some_reports(sizes, BLOCK)
        counts = ReportCounts(sizes, label=0)
        runs = 5 if quick else 31
        ours = median_seconds(lambda c=counts, b=block: c.add(b), runs)
        theirs = median_seconds(lambda b=block, s=sizes: pair_by_pair(b, s), 5)
        what = f"ReportCounts.add, {BLOCK:,} rows, {text}"
        lines.append(Line(what, ours, "one bincount a pair", theirs))
    rows = 500_000 if quick else 10_000_000
    sizes = (10,) * 20
    block = some_reports(sizes, BLOCK)
    counts = ReportCounts(sizes, label=0)
    start = time.perf_counter()
    for _ in range(rows // BLOCK):
        counts.add(block)
    ours = time.perf_counter() - start
    lines.append(Line(f"all of {rows:,} rows, 20 columns of 10 values, once", ours))
    return lines


def fit_lines(*, quick: bool) -> list[Line]:
    source = system_random()
    lines = []
    for sizes, text in (
        ((2,) * 14, "14 binary columns"),
        ((2,) * 20, "20 binary columns"),
        ((10,) * 20, "20 columns of 10 values"),
    ):
        codes = some_reports(sizes, BLOCK)
        codes[:, 1:] = np.where(
            np.random.default_rng(3).random((BLOCK, 1)) < 0.5,
            codes[:, :1],
            codes[:, 1:],
        )
        counts = ReportCounts(sizes, label=0)
        counts.add(codes)
        epsilons = [EPSILON] * len(sizes)
        for model in ("joint", "label"):
            if model == "joint" and counts.joint is None:
                continue
            ours = median_seconds(
                lambda c=counts, e=epsilons, m=model: fit(c, e, model=m),
                3 if quick else 7,
            )
            lines.append(Line(f"fit, {model}, {text}, {BLOCK:,} reports", ours))
            fitted = fit(counts, epsilons, model=model)
            ours = median_seconds(lambda f=fitted: f.sample(32, source), 11)
            lines.append(Line(f"sample of 32 rows, {model}, {text}", ours))
    return lines


PARTS = {"reconstruct": reconstruct_lines, "counts": counts_lines, "fit": fit_lines}


def shown(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{1000 * seconds:,.3f} ms"


def peak_mib() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1 << 20 if sys.platform == "darwin" else 1 << 10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller runs")
    parser.add_argument("--part", choices=sorted(PARTS), help="only this part")
    options = parser.parse_args()
    chosen = [options.part] if options.part else list(PARTS)

    table = Table(
        "figure", "ours", "compared with", "theirs", "ours / theirs", "target"
    )
    for line in (line for part in chosen for line in PARTS[part](quick=options.quick)):
        table.add_row(
            line.what,
            shown(line.ours),
            line.against,
            shown(line.theirs),
            f"{line.ours / line.theirs:.3g}" if line.theirs else "",
            f"<= {shown(line.target)}" if line.target else "",
        )
    console = Console(width=150)
    console.print(table)
    console.print(f"Peak memory of this process: {peak_mib():,.0f} MiB.")


if __name__ == "__main__":
    main()
