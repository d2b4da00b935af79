"""What `utility_tables.py` shows of its results: tables, pass rates, a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table as RichTable
from utility_measures import figure_canvas, percent, spread
from utility_people import Table

from langchain_dpicl.budget.forecast import Forecast

REPLAYS = 100
OUTCOMES = ("right", "wrong", "unclear", "fallback")


@dataclass(frozen=True)
class Result:
    """One private answer, graded, with what it is compared with."""

    table: str
    source: str
    method: str
    run: int
    question: int
    outcome: str
    """`right`, `wrong`, `unclear` (no single option is stated) or `fallback`."""
    plain_right: bool
    """Whether the plurality of the same groups' answers is right."""
    gap: int | None = None
    """PTR only: the true gap below the k words that were proposed."""
    predicted: float | None = None
    """PTR only: the computed pass rate at this gap."""
    replayed: float | None = None
    """PTR at a given k only: pass rate over fresh noise on the same counts."""


def sources_of(table: Table, results: Sequence[Result]) -> list[str]:
    """Return the names of a table's group sources, in their order."""
    return list(dict.fromkeys(one.source for one in results if one.table == table.name))


def methods_of(results: Sequence[Result]) -> list[str]:
    """Return the names of all methods, in their order."""
    return list(dict.fromkeys(one.method for one in results))


def by_run(found: Sequence[Result], runs: int, what: str) -> list[float]:
    """Return, for each run, the share of answers with an outcome."""
    shares = []
    for run in range(runs):
        mine = [one for one in found if one.run == run]
        hits = [
            one.plain_right if what == "plain" else one.outcome == what for one in mine
        ]
        shares.append(sum(hits) / len(hits))
    return shares


def share_table(
    table: Table,
    results: Sequence[Result],
    runs: int,
    plans: Mapping[tuple[str, str, str], Forecast],
) -> RichTable:
    """Show each method's share of right answers beside what it is compared with."""
    shown = RichTable(
        "source",
        "method",
        "right",
        "wrong",
        "unclear",
        "fallback",
        "same groups, no noise",
        "lost to privacy",
        "required lead",
        box=box.MARKDOWN,
        title=f"tab_{table.name}: share of {len(table.questions)} questions, in %, "
        f"mean ± deviation over {runs} runs",
    )
    for name in sources_of(table, results):
        for method in methods_of(results):
            found = [
                one
                for one in results
                if (one.table, one.source, one.method) == (table.name, name, method)
            ]
            if not found:
                shown.add_row(name, method, "refused by design", *[""] * 6)
                continue
            right, plain = (by_run(found, runs, what) for what in ("right", "plain"))
            plan = plans.get((table.name, name, method))
            shown.add_row(
                name,
                method,
                percent(right),
                *(percent(by_run(found, runs, what)) for what in OUTCOMES[1:]),
                percent(plain),
                f"{100 * (spread(plain)[0] - spread(right)[0]):.0f}",
                f"{math.ceil(plan.required_lead)} of {plan.groups}" if plan else "",
            )
    return shown


def question_table(table: Table, results: Sequence[Result]) -> RichTable:
    """Show for each question what propose-test-release at k = 1 made of it."""
    names = sources_of(table, results)
    shown = RichTable(
        "question",
        "rows",
        "true answer",
        "share",
        "second",
        *names,
        box=box.MARKDOWN,
        title=f"tab_{table.name}, KSA-PTR at k = 1: runs right / wrong / unclear / "
        "fallback (mean gap, predicted pass rate)",
    )
    for number, asked in enumerate(table.questions):
        truth = table.truth(asked)
        cells = []
        for name in names:
            found = [
                one
                for one in results
                if (one.table, one.source, one.question) == (table.name, name, number)
                and one.method == "KSA-PTR, k = 1"
            ]
            tally = [sum(one.outcome == what for one in found) for what in OUTCOMES]
            gap = spread([one.gap or 0 for one in found])[0]
            rate = spread([one.predicted or 0.0 for one in found])[0]
            cells.append(f"{'/'.join(map(str, tally))} ({gap:.0f}, {rate:.0%})")
        shown.add_row(
            asked.text,
            str(truth.rows),
            truth.answer,
            f"{truth.share:.0%}",
            f"{truth.second:.0%}",
            *cells,
        )
    return shown


BINS = ((0.0, 0.05), (0.05, 0.35), (0.35, 0.65), (0.65, 0.95), (0.95, 1.01))


@dataclass(frozen=True)
class PassRates:
    """Observed and predicted pass rates of propose-test-release."""

    what: str
    tests: int
    predicted: float
    passed: float


def pass_rates(results: Sequence[Result]) -> list[PassRates]:
    tests = [one for one in results if one.predicted is not None]
    lines = [_rates("all answers given", tests)]
    for method in ("KSA-PTR, k = 1", "KSA-PTR, k in 1..3"):
        mine = [one for one in tests if one.method == method]
        if mine:
            lines.append(_rates(f"{method}, answers given", mine))
    again = [one for one in tests if one.replayed is not None]
    for low, high in BINS:
        mine = [one for one in again if low <= (one.predicted or 0.0) < high]
        if mine:
            passed = spread([one.replayed or 0.0 for one in mine])[0]
            predicted = spread([one.predicted or 0.0 for one in mine])[0]
            what = f"replayed, predicted {low:.0%} to {min(high, 1):.0%}"
            lines.append(PassRates(what, len(mine) * REPLAYS, predicted, passed))
    return lines


def _rates(what: str, tests: Sequence[Result]) -> PassRates:
    return PassRates(
        what,
        len(tests),
        spread([one.predicted or 0.0 for one in tests])[0],
        spread([float(one.outcome != "fallback") for one in tests])[0],
    )


def pass_table(lines: Sequence[PassRates]) -> RichTable:
    shown = RichTable(
        "pass rate of KSA-PTR",
        "tests",
        "predicted",
        "observed",
        "difference in points (within 5)",
        box=box.MARKDOWN,
    )
    for line in lines:
        shown.add_row(
            line.what,
            f"{line.tests:,}",
            f"{line.predicted:.1%}",
            f"{line.passed:.1%}",
            f"{100 * (line.passed - line.predicted):+.1f}",
        )
    return shown


def draw(
    path: Path,
    tables: Sequence[Table],
    results: Sequence[Result],
    runs: int,
    title: str,
) -> bool:
    """Draw shares and pass rates; False where matplotlib is not installed."""
    canvas = figure_canvas(len(tables) + 1, 5.6 * (len(tables) + 1), 5.4)
    if canvas is None:
        return False
    figure, axes = canvas
    for axis, table in zip(axes, tables, strict=False):
        _draw_shares(axis, table, results, runs)
    axis = axes[-1]
    again = [one for one in results if one.replayed is not None]
    axis.plot([0, 1], [0, 1], color="0.6", lw=1, label="as predicted")
    axis.fill_between(
        [0, 1], [-0.05, 0.95], [0.05, 1.05], color="0.92", label="± 5 points"
    )
    axis.plot(
        [one.predicted for one in again],
        [one.replayed for one in again],
        ".",
        color="tab:blue",
        alpha=0.5,
        label=f"one histogram, {REPLAYS} fresh draws",
    )
    axis.set(
        xlabel="pass rate predicted from the true gap",
        ylabel="pass rate observed",
        title="KSA-PTR passes as planned",
        xlim=(-0.02, 1.02),
        ylim=(-0.02, 1.02),
    )
    axis.legend(loc="upper left", frameon=False)
    figure.suptitle(title)
    figure.savefig(path, dpi=130)
    return True


def _draw_shares(axis: Any, table: Table, results: Sequence[Result], runs: int) -> None:
    names, methods = sources_of(table, results), methods_of(results)
    width = 0.8 / len(names)
    for place, name in enumerate(names):
        marks: list[tuple[float, float, float, float]] = []
        for at, method in enumerate(methods):
            found = [
                one
                for one in results
                if (one.table, one.source, one.method) == (table.name, name, method)
            ]
            x = at + (place - (len(names) - 1) / 2) * width
            if not found:
                axis.text(x, 0.02, "refused", rotation=90, ha="center", fontsize=8)
            else:
                plain = spread(by_run(found, runs, "plain"))[0]
                marks.append((x, *spread(by_run(found, runs, "right")), plain))
        x_all, right_all, deviations, plain_all = zip(*marks, strict=True)
        axis.bar(
            x_all,
            right_all,
            width * 0.9,
            yerr=deviations,
            color=f"C{place}",
            alpha=0.8,
            capsize=2,
            label=name,
        )
        axis.plot(
            x_all,
            plain_all,
            "_",
            color="black",
            ms=13,
            mew=2,
            label="same groups, no noise" if place == 0 else None,
        )
    axis.set_xticks(
        range(len(methods)), [name.replace(", ", ",\n") for name in methods]
    )
    axis.tick_params(axis="x", labelsize=8)
    axis.set(ylabel="share of questions answered right", title=f"tab_{table.name}")
    axis.set_ylim(0, 1.36)
    axis.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    axis.legend(loc="upper left", frameon=False, fontsize=8)
