"""Speed of accounting: calibration, the closed form, the import.

Every figure stands beside what it is compared with, measured in the same run.

Run: python benchmarks/bench_accounting.py [--quick]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from langchain_dpicl import accounting
from langchain_dpicl.accounting import composition, discretization, renyi

EPSILON, DELTA, RATE, USES = 1.0, 1e-6, 0.005, 10_000
RELATIVE = 1e-3


@dataclass
class Row:
    what: str
    figure: str
    compared: str
    target: str


def seconds(call: Callable[[], object], repeat: int = 1) -> float:
    """Return the median time of a call."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def forget() -> None:
    """Empty every cache, so that a calibration starts as in a new process."""
    composition.bound.cache_clear()
    discretization.discretize.cache_clear()
    renyi._sampled_cumulants.cache_clear()  # noqa: SLF001 - only to forget


def ours() -> float:
    forget()
    z = accounting.noise_multiplier(EPSILON, DELTA, uses=USES, sampling_rate=RATE)
    event = accounting.Gaussian(z, RATE, USES)
    assert accounting.compose([event], DELTA) <= EPSILON
    assert accounting.cross_check([event], DELTA).agrees
    return z


def bisect(epsilon_at: Callable[[float], float], low: float, high: float) -> float:
    while high / low > 1 + RELATIVE:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if epsilon_at(middle) > EPSILON else (low, middle)
    return high


def prv_bisection() -> float:
    """Return z by bisection on prv-accountant's upper end, at the error it needs."""
    import prv_accountant as prv

    def epsilon_at(z: float) -> float:
        variable = prv.PoissonSubsampledGaussianMechanism(
            sampling_probability=RATE, noise_multiplier=z
        )
        accountant = prv.PRVAccountant(
            [variable],
            eps_error=RELATIVE,
            delta_error=DELTA / 1000,
            max_self_compositions=[USES],
        )
        with contextlib.suppress(RuntimeError):
            return accountant.compute_epsilon(DELTA, [USES])[2]
        return float("inf")

    return bisect(epsilon_at, 2.0, 2.5)


def pld_epsilon(z: float) -> float:
    from dp_accounting.pld import privacy_loss_distribution as pld

    single = pld.from_gaussian_mechanism(z, sampling_prob=RATE)
    return float(single.self_compose(USES).get_epsilon_for_delta(DELTA))


def pld_open_end() -> float:
    """Return z as one would naively: halve from 1 until it fails, then bisect."""
    low = 1.0
    while pld_epsilon(low) <= EPSILON:
        low /= 2
    high = 2 * low
    while pld_epsilon(high) > EPSILON:
        high *= 2
    return bisect(pld_epsilon, low, high)


def dp_accounting_calibration() -> float:
    """Return z of dp-accounting's own search with its defaults (an open bracket)."""
    import dp_accounting
    from dp_accounting import pld

    def event_at(z: float) -> dp_accounting.DpEvent:
        sampled = dp_accounting.PoissonSampledDpEvent(
            RATE, dp_accounting.GaussianDpEvent(z)
        )
        return dp_accounting.SelfComposedDpEvent(sampled, USES)

    return float(
        dp_accounting.calibrate_dp_mechanism(
            pld.PLDAccountant,
            event_at,
            EPSILON,
            DELTA,
            bracket_interval=dp_accounting.LowerEndpointAndGuess(0.0, 1.0),
            tol=RELATIVE,
        )
    )


def calibration(*, quick: bool) -> list[Row]:
    first = seconds(ours)
    later = seconds(ours, 1 if quick else 5)
    z = ours()
    rivals = {"PLD, bisection from 1": pld_open_end}
    if not quick:
        rivals["PRV alone, bisection"] = prv_bisection
        rivals["dp-accounting's search"] = dp_accounting_calibration
    texts = []
    for name, rival in rivals.items():
        found: list[float] = []
        taken = seconds(lambda rival=rival, found=found: found.append(rival()))
        texts.append(f"{name} {taken:.1f} s (z {found[0]:.4f})")
    return [
        Row(
            f"calibrate z, eps 1, q 0.005, 10,000 uses, cross-check (z {z:.4f})",
            f"{later:.2f} s; first call with imports {first:.2f} s",
            "; ".join(texts),
            "<= 1.5 s",
        )
    ]


def repeated(*, quick: bool) -> list[Row]:
    from dp_accounting import gaussian_mechanism

    number = 2_000 if quick else 20_000

    def closed() -> None:
        for k in range(number):
            accounting.gaussian_epsilon(0.5 + k * 1e-9, DELTA)

    def theirs() -> None:
        for k in range(100):
            gaussian_mechanism.get_epsilon_gaussian(2.0 + k * 1e-9, DELTA)

    def fresh() -> None:
        forget()
        for k in range(1, 1001):
            accounting.spent(bundle, k, DELTA)

    bundle = [accounting.Gaussian(20.0)]
    sampled = [accounting.Gaussian(2.25, RATE)]
    accounting.spent(sampled, 1, DELTA)
    uses = iter(range(9_000, 10_000))

    def after_one_more() -> None:
        accounting.spent(sampled, next(uses), DELTA)

    return [
        Row(
            "closed form, one epsilon",
            f"{seconds(closed, 5) / number * 1e6:.1f} us",
            f"dp-accounting {seconds(theirs) / 100 * 1e6:.0f} us",
            "about 11 us",
        ),
        Row(
            "epsilon so far after one more query, no sampling",
            f"{seconds(fresh) / 1000 * 1e6:.0f} us",
            "",
            "",
        ),
        Row(
            "the same, sampled",
            f"{seconds(after_one_more, 21) * 1e3:.1f} ms",
            f"dp-accounting {seconds(lambda: pld_epsilon(2.25), 3) * 1e3:.0f} ms",
            "",
        ),
    ]


def imports(*, quick: bool) -> list[Row]:
    def fresh(statement: str) -> float:
        code = (
            f"import numpy, time; t = time.perf_counter(); {statement}; "
            "print(time.perf_counter() - t)"
        )
        out = [
            float(
                subprocess.run(  # noqa: S603 - our own two statements
                    [sys.executable, "-c", code],
                    check=True,
                    capture_output=True,
                    text=True,
                ).stdout
            )
            for _ in range(3 if quick else 9)
        ]
        return statistics.median(out)

    return [
        Row(
            "import langchain_dpicl.accounting, after NumPy",
            f"{fresh('import langchain_dpicl.accounting') * 1e3:.0f} ms",
            f"scipy.stats {fresh('import scipy.stats') * 1e3:.0f} ms",
            "a part of 150 ms",
        )
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave slow rivals out")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore")
    table = Table("what", "here", "compared with", "target", show_lines=True)
    for section in (calibration, repeated, imports):
        for row in section(quick=quick):
            table.add_row(row.what, row.figure, row.compared, row.target)
    Console().print(table)


if __name__ == "__main__":
    main()
