"""Break the code on purpose, one place at a time, and see whether the tests notice.

    make mutations                                      # 100 places, drawn by seed 0
    make mutations MUTATIONS="--sample 40 --seed 7 --parts ledger sealed"

A sample of places is drawn, and at each one of the mutations that Cosmic Ray knows. A
mutation that only touches an annotation or a docstring is not drawn. All tests run
once, to see which lines each of them runs; a change is then tried by the tests that run
its line, the nearest and quickest first, and, where those pass, by others of its file.
`--also` names tests to try first, such as new ones.

A mutation is caught by a test that fails, fails again alone, and passes on the code as
it stands. Tests that take ten times as long as they should have failed; that is noted.
A test that fails only once settles nothing: such a mutation is unsettled, is listed by
itself, and is tried again by the next run.

Each result is written to the folder `--out` at once: a run that was stopped goes on
from there. A survivor that changes no behavior is put into `equal.json` by hand, with
the reason; it counts neither as caught nor as missed. This takes half an hour, so it is
no part of the tests.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from coverage_map import CoverageMap, record
from places import PARTS, Mutation, sampled
from rich.console import Console
from rich.progress import track
from scipy.stats import binomtest
from trying import Worker

EQUAL: dict[str, str] = json.loads(
    Path(__file__).with_name("equal.json").read_text("utf-8")
)


@dataclass(frozen=True)
class Result:
    """Whether a mutation was caught (None: unsettled), by which test, in how long."""

    name: str
    path: str
    diff: str
    caught: bool | None
    tests: str
    seconds: float


def tried(
    chosen: Sequence[tuple[Mutation, list[str]]],
    seconds: dict[str, float],
    workers: int,
) -> Iterator[Result]:
    """Try each mutation by its tests; yield results as they come."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, Worker.begin) as pool:
        running = {}
        for one, tests in chosen:
            took = sum(seconds.get(name, 1.0) for name in tests)
            future = pool.submit(Worker.try_out, one.path, one.code, tests, took)
            running[future] = one
        for done in as_completed(running):
            one = running[done]
            yield Result(one.name, one.path, one.diff, *done.result())


def sound(results: Sequence[Result], seconds: dict[str, float]) -> Iterator[Result]:
    """Take back what was caught by tests that fail on the code as it stands."""
    names = {r.tests for r in results if r.caught and not r.tests.startswith("hangs")}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, Worker.begin) as pool:
        fails = {
            name: pool.submit(Worker.failing, name, seconds.get(name, 1.0))
            for name in sorted(names)
        }
        broken = {name for name, future in fails.items() if future.result()}
    for one in results:
        if one.tests in broken:
            text = f"fails anyway: {one.tests}"
            yield Result(one.name, one.path, one.diff, None, text, one.seconds)
        else:
            yield one


def main(arguments: Sequence[str] | None = None) -> int:
    """Try a sample; return 1 where fewer are caught than `--least` says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sample", type=int, default=100, help="places (100)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--out", type=Path, default=Path(".mutations"))
    parser.add_argument("--also", nargs="+", default=[], help="tests to try first")
    parser.add_argument("--names", nargs="+", help="only these of the sample")
    parser.add_argument("--near", action="store_true", help="only the nearest tests")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--least", type=float, default=0.95)
    parser.add_argument("--report", action="store_true", help="only print the results")
    options = parser.parse_args(arguments)
    options.out = options.out.absolute()
    file = options.out / f"seed-{options.seed}.json"
    known: dict[str, Result] = {}
    if file.exists():
        found = [Result(**r) for r in json.loads(file.read_text("utf-8"))]
        known = {r.name: r for r in found}
    if options.report:
        return told([*known.values()], options.least)
    if not (options.out / "texts.json").exists():
        record(options.out)
    tests = CoverageMap(options.out)
    drawn = [
        one
        for one in sampled(options.parts, options.sample, options.seed)
        if not options.names or one.name in options.names
    ]
    error = Console(stderr=True)
    for turn, what in enumerate(["Nearest tests", "Other tests"][: 2 - options.near]):
        # What no test noticed is tried again: tests may have come since.
        chosen = [
            (one, [*options.also, *names])
            for one in drawn
            if one.name not in EQUAL and not getattr(known.get(one.name), "caught", 0)
            if (names := tests.tests(one.path, one.line)[turn])
        ]
        running = tried(chosen, tests.seconds, options.workers)
        for one in track(running, what, len(chosen), console=error):
            known[one.name] = one
            kept(file, known.values())
    of_sample = [known[one.name] for one in drawn if one.name in known]
    for one in sound(of_sample, tests.seconds):
        known[one.name] = one
    kept(file, known.values())
    return told([known[r.name] for r in of_sample], options.least, len(drawn))


def kept(file: Path, results: Iterable[Result]) -> None:
    """Write results, whole or not at all."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps([asdict(r) for r in results], indent=1), "utf-8")
    new.replace(file)


def told(results: Sequence[Result], least: float, drawn: int = 0) -> int:
    """Print what was caught, with a 95 % interval, and each survivor."""
    console = Console(highlight=False, markup=False)
    changing = [r for r in results if r.name not in EQUAL]
    unsettled = [r for r in changing if r.caught is None]
    counted = [r for r in changing if r.caught is not None]
    missed = [r for r in counted if not r.caught]
    for one in sorted(missed, key=lambda r: r.path):
        console.print(f"\nMissed: {one.name}\n{one.diff}")
    for one in unsettled:
        console.print(f"\nUnsettled: {one.name}, {one.tests}\n{one.diff}")
    caught = len(counted) - len(missed)
    hung = sum(r.tests.startswith("hangs: ") for r in counted)
    share = caught / max(len(counted), 1)
    exact = binomtest(caught, max(len(counted), 1)).proportion_ci(method="exact")
    console.print(
        f"\n{caught} of {len(counted)} mutations that change behavior were caught "
        f"({share:.1%}; 95 % interval {exact.low:.1%} to {exact.high:.1%}), {hung} of "
        f"them by tests that hang; {len(unsettled)} are unsettled; "
        f"{max(drawn, len(results)) - len(changing)} change no behavior."
    )
    return 0 if share >= least else 1


if __name__ == "__main__":
    sys.exit(main())
