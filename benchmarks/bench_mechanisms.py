"""Speed of the mechanisms, next to what they are compared with, in one run.

Run `python benchmarks/bench_mechanisms.py [--quick]`. OpenDP is compared where it is
installed. Figures are medians; judge the ratios, the machine may be shared.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.table import Table

from langchain_dpicl.mechanisms import (
    choose_k,
    joint_top_k,
    noisy_argmax,
    noisy_counts,
    noisy_max_next_token,
    noisy_next_token,
    noisy_sum,
    ptr_top_k,
    system_random,
    token_distribution,
)
from langchain_dpicl.mechanisms.rounded_gaussian import RoundedGaussian

SCALE = 2.0**14


@dataclass(frozen=True)
class Line:
    what: str
    ours: float
    against: str = ""
    theirs: float | None = None
    target: float | None = None


def median_seconds(call: Callable[[], object], runs: int) -> float:
    call()  # Tables, imports and caches.
    taken = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def opendp_noise(count: int, scale: float) -> Callable[[], object] | None:
    if importlib.util.find_spec("opendp") is None:
        return None
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=int), size=count)
    add_noise = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale)
    zeros = [0] * count
    return lambda: add_noise(zeros)


def dense_joint(counts: np.ndarray, k: int, epsilon: float) -> list[int]:
    """The published algorithm on the k * d table of utilities, in floats."""
    rng = np.random.default_rng()
    d = counts.size
    top = np.sort(counts)[::-1][:k]
    losses = top[:, None] - counts[None, :] + np.arange(k)[:, None] / (2 * d * k)
    order = np.argsort(losses, axis=None)
    reached = np.zeros(k, dtype=int)
    log_choices = np.full(k, -np.inf)
    best, best_score = 0, -np.inf
    for flat in order:
        row = flat // d
        others = np.delete(log_choices, row).sum()
        reached[row] += 1
        if reached[row] > row:
            log_choices[row] = np.log(reached[row] - row)
        if np.isfinite(others):
            loss = max(np.floor(losses.flat[flat]), 0)
            score = others - epsilon * loss / 2 + rng.gumbel()
            if score > best_score:
                best, best_score = int(flat), score
    row, last = divmod(best, d)
    chosen: list[int] = []
    for i in range(k):
        allowed = np.flatnonzero(losses[i] <= losses[row, last])
        allowed = np.setdiff1d(allowed, [*chosen, last])
        chosen.append(last if i == row else int(rng.choice(allowed)))
    return chosen


def noise_lines(runs: int) -> list[Line]:
    source = system_random()
    rng = np.random.default_rng()
    lines = []
    for count, scale, target in ((1536, SCALE, 0.5e-3), (100_000, 800.0, None)):
        noise = RoundedGaussian(scale)
        ours = median_seconds(lambda n=noise, c=count: n.draw(c, source), runs)
        what = f"rounded Gaussian, {count:,} coordinates"
        theirs = median_seconds(lambda c=count: rng.normal(size=c), runs)
        lines.append(Line(what, ours, "numpy normal (not secure)", theirs, target))
        discrete = opendp_noise(count, scale)
        if discrete:
            theirs = median_seconds(discrete, 3)
            lines.append(Line(what, ours, "OpenDP make_gaussian", theirs, target))
    counts = rng.integers(0, 100, 100_000)
    ours = median_seconds(
        lambda: noisy_counts(counts, noise_multiplier=3.0, relation="replace"), runs
    )
    words = median_seconds(lambda: source.words(100_000), runs)
    lines.append(
        Line("noisy_counts, 100,000 counts", ours, "os.urandom alone", words, 10e-3)
    )
    return lines


def joint_lines(runs: int, d: int) -> list[Line]:
    rng = np.random.default_rng(1)
    lines = []
    for name, counts in (
        ("uniform", rng.integers(0, 101, d)),
        ("geometric", rng.geometric(0.2, d).clip(0, 100)),
    ):
        ours = median_seconds(
            lambda c=counts: joint_top_k(c, 30, epsilon=1.0, relation="add_remove"),
            runs,
        )
        what = f"joint_top_k, d = {d:,}, k = 30, {name} counts 0..100"
        theirs = median_seconds(lambda c=counts: np.sort(c), 3)
        lines.append(Line(what, ours, "numpy sort of the counts", theirs, 0.2))
    small = rng.integers(0, 101, 2000)
    ours = median_seconds(
        lambda: joint_top_k(small, 10, epsilon=1.0, relation="add_remove"), runs
    )
    theirs = median_seconds(lambda: dense_joint(small, 10, 1.0), 1)
    what = "joint_top_k, d = 2,000, k = 10"
    lines.append(Line(what, ours, "dense k * d table, floats", theirs))
    return lines


def other_lines(runs: int) -> list[Line]:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(100, 1536))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    votes = [60, 30, 5, 3, 2]
    words = {f"w{i}": int(n) for i, n in enumerate(rng.geometric(0.05, 1000))}
    z = 2.0
    plain = median_seconds(lambda: rows.sum(axis=0), runs)
    calls: list[tuple[str, Callable[[], object], str, float | None]] = [
        (
            "noisy_sum, 100 rows of 1536",
            lambda: noisy_sum(rows, radius=1.0, noise_multiplier=z, relation="replace"),
            "plain sum",
            plain,
        ),
        (
            "noisy_argmax, 5 labels",
            lambda: noisy_argmax(votes, noise_multiplier=z, relation="replace"),
            "",
            None,
        ),
        (
            "ptr_top_k, 1,000 words",
            lambda: ptr_top_k(
                words, 5, noise_multiplier=z, delta0=1e-7, relation="replace"
            ),
            "",
            None,
        ),
        (
            "choose_k in 3..8, 1,000 words",
            lambda: choose_k(words, (3, 8), epsilon=0.5, relation="replace"),
            "",
            None,
        ),
    ]
    return [
        Line(what, median_seconds(call, runs), against, theirs)
        for what, call, against, theirs in calls
    ]


def next_token_lines(runs: int, vocabularies: tuple[int, ...]) -> list[Line]:
    rng = np.random.default_rng(3)
    slots = 80
    lines = []
    for k in vocabularies:
        rows = rng.gamma(0.05, size=(slots, k))
        rows /= rows.sum(axis=1, keepdims=True)
        few = runs if k <= 1000 else 5
        target = 0.5e-3 if k <= 1000 else None
        size = f"{slots} slots, {k:,} tokens"
        ours = median_seconds(
            lambda r=rows: noisy_next_token(r, noise_multiplier=1), few
        )
        theirs = median_seconds(
            lambda r=rows, n=k: r.sum(axis=0) + rng.normal(size=n), few
        )
        what = f"noisy_next_token, {size}"
        lines.append(Line(what, ours, "plain sum, numpy normal", theirs, target))
        ours = median_seconds(lambda r=rows: noisy_max_next_token(r, epsilon=1.0), few)
        theirs = median_seconds(
            lambda r=rows, n=k: (
                (r / r.max(axis=1, keepdims=True)).sum(axis=0) + rng.exponential(size=n)
            ).argmax(),
            few,
        )
        what = f"noisy_max_next_token, {size}"
        lines.append(Line(what, ours, "plain sum, numpy exponential", theirs, target))
        logs = np.log(rows[0] + 1e-300)
        ours = median_seconds(lambda r=logs: token_distribution(r), few)
        lines.append(Line(f"token_distribution, 1 slot, {k:,} tokens", ours))
    return lines


def shown(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{1000 * seconds:,.3f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller runs")
    quick = parser.parse_args().quick
    runs, d = (5, 100_000) if quick else (31, 1_000_000)
    vocabularies = (100, 50_257) if quick else (100, 50_257, 128_000)

    table = Table(
        "figure", "ours", "compared with", "theirs", "ours / theirs", "target"
    )
    for line in [
        *noise_lines(runs),
        *joint_lines(runs, d),
        *next_token_lines(runs, vocabularies),
        *other_lines(runs),
    ]:
        ratio = f"{line.ours / line.theirs:.3g}" if line.theirs else ""
        table.add_row(
            line.what,
            shown(line.ours),
            line.against,
            shown(line.theirs),
            ratio,
            f"<= {shown(line.target)}" if line.target else "",
        )
    console = Console(width=140)
    console.print(table)
    if importlib.util.find_spec("opendp") is None:
        console.print("OpenDP is not installed (pip install opendp): not compared.")


if __name__ == "__main__":
    main()
