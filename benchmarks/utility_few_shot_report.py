"""What `utility_few_shot.py` shows: tables, generated examples, a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.table import Table
from utility_measures import figure_canvas, spread

ZERO_SHOT = "no examples (zero-shot)"
SAME = "ε = 0 examples, same decoder"
PRIVATE = "private records as they are *"
DP = "DP examples"
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Outcome:
    """What one set of examples came to.

    Attributes:
        data: The data set.
        what: How the examples came about.
        epsilon: What they cost; None where there is no such figure.
        run: Number of the run.
        accuracy: Share of the test texts that were labeled right.
        noise: The labels' noise multipliers, smallest first.
        examples: The examples, where they are no private records.
    """

    data: str
    what: str
    epsilon: float | None
    run: int
    accuracy: float
    noise: Sequence[float]
    examples: Sequence[Mapping[str, str]]


Row = tuple[str, float | None]


def by_row(outcomes: Sequence[Outcome]) -> dict[Row, list[Outcome]]:
    """Return the runs of each row."""
    rows: dict[Row, list[Outcome]] = {}
    for outcome in outcomes:
        rows.setdefault((outcome.what, outcome.epsilon), []).append(outcome)
    return rows


def accuracies(outcomes: Sequence[Outcome], what: str) -> list[float]:
    """Return the accuracies of what has no epsilon, or of all epsilons together."""
    return [one.accuracy for one in outcomes if one.what == what]


def difference(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Return the difference of two means in points, with Welch's 95 % interval."""
    from scipy import stats

    if min(len(ours), len(theirs)) < 2:
        return ""
    mean = spread(ours)[0] - spread(theirs)[0]
    parts = [spread(values)[1] ** 2 / len(values) for values in (ours, theirs)]
    if not sum(parts):
        return f"{100 * mean:+.0f}"
    freedom = sum(parts) ** 2 / sum(
        part**2 / (len(values) - 1)
        for part, values in zip(parts, (ours, theirs), strict=True)
    )
    half = stats.t.ppf((1 + CONFIDENCE) / 2, freedom) * math.sqrt(sum(parts))
    return f"{100 * mean:+.0f} ± {100 * half:.0f}"


def accuracy_table(title: str, outcomes: Sequence[Outcome]) -> Table:
    """Show mean and deviation of each row."""
    table = Table(
        "examples",
        "epsilon",
        "noise multiplier",
        "accuracy, %",
        "against ε = 0",
        box=box.MARKDOWN,
        title=title,
    )
    base = accuracies(outcomes, SAME)
    for (what, epsilon), runs in by_row(outcomes).items():
        values = [run.accuracy for run in runs]
        mean, deviation = (100 * figure for figure in spread(values))
        noise = [f"{figure:.2f}" for figure in runs[0].noise]
        table.add_row(
            what,
            "" if epsilon is None else f"{epsilon:g}",
            " to ".join(dict.fromkeys((noise[0], noise[-1]))) if noise else "",
            f"{mean:.1f}" if len(values) == 1 else f"{mean:.1f} ± {deviation:.1f}",
            "" if what in {SAME, ZERO_SHOT} else difference(values, base),
        )
    pooled = accuracies(outcomes, DP)
    mean, deviation = (100 * figure for figure in spread(pooled))
    table.add_row(
        f"{DP}, all four ε",
        "",
        "",
        f"{mean:.1f} ± {deviation:.1f}",
        difference(pooled, base),
    )
    return table


def example_table(data: str, outcomes: Sequence[Outcome]) -> Table:
    """Show what was written in the first run, label by label."""
    rows = [
        (what, epsilon, runs[0].examples)
        for (what, epsilon), runs in by_row(outcomes).items()
        if runs[0].examples
    ]
    table = Table("label", "how", "text", box=box.MARKDOWN, title=f"{data}, run 1")
    labels = dict.fromkeys(one["label"] for one in rows[0][2])
    for label in labels:
        for what, epsilon, examples in rows:
            for example in examples:
                if example["label"] == label:
                    how = what if epsilon is None else f"{what}, ε = {epsilon:g}"
                    table.add_row(label, how, example["text"])
    return table


def draw(
    path: Path,
    titles: Mapping[str, str],
    results: Mapping[str, Sequence[Outcome]],
    epsilons: Sequence[float],
) -> bool:
    """Draw accuracy over epsilon, one panel a data set; False without matplotlib."""
    canvas = figure_canvas(len(titles), 4.1 * len(titles), 4.2)
    if canvas is None:
        return False
    figure, axes = canvas
    flat = {
        PRIVATE: ("C3", "--", "private records (not private)"),
        SAME: ("C2", "-.", "examples at ε = 0"),
        ZERO_SHOT: ("0.5", ":", "no examples"),
    }
    for axis, name in zip(axes, titles, strict=True):
        rows = by_row(results[name])
        points = [
            spread([run.accuracy for run in rows[DP, epsilon]]) for epsilon in epsilons
        ]
        axis.errorbar(
            epsilons,
            [100 * mean for mean, _ in points],
            yerr=[100 * deviation for _, deviation in points],
            marker="o",
            capsize=3,
            color="C0",
            label="DP examples",
            zorder=3,
        )
        for what, (color, style, label) in flat.items():
            mean, deviation = spread(accuracies(results[name], what))
            axis.axhline(100 * mean, color=color, ls=style, label=label)
            axis.axhspan(
                100 * (mean - deviation),
                100 * (mean + deviation),
                color=color,
                alpha=0.12,
                lw=0,
            )
        axis.set_xscale("log")
        axis.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        axis.minorticks_off()
        axis.set(
            xlabel="ε for all examples together, once",
            title=titles[name],
        )
    top = max(axis.get_ylim()[1] for axis in axes)
    for axis in axes:
        axis.set_ylim(0, top)
    axes[0].set_ylabel("accuracy, %")
    handles, labels = axes[0].get_legend_handles_labels()
    # Matplotlib lists lines before error bars.
    handles, labels = handles[-1:] + handles[:-1], labels[-1:] + labels[:-1]
    figure.legend(
        handles, labels, loc="outside lower center", ncols=len(labels), frameon=False
    )
    figure.suptitle(
        "Classification by a few examples of each label: offline stand-ins, not "
        "language models",
        fontsize=11,
    )
    figure.savefig(path, dpi=130)
    return True
