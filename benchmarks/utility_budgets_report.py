"""What `utility_budgets.py` counts and shows: a table and a picture."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table as RichTable
from utility_measures import figure_canvas, spread

ANSWERED = ("released", "cached")
"""How an answer that rests on the records comes about: voted or stored."""

STEP = 10
"""Questions from one point of a drawn line to the next."""

FIGURES = (
    "right",
    "wrong",
    "fallback",
    "refused",
    "cached",
    "right, model alone wrong",
    "charges",
    "model calls",
    "units spent",
    "used, %",
    "noise multiplier",
)


@dataclass
class Tally:
    """The outcomes of one run of one system, question by question."""

    outcomes: list[tuple[str, bool]] = field(default_factory=list)
    """How each answer came about, and whether it is right."""
    known: list[bool] = field(default_factory=list)
    """Whether the model alone is right, question by question."""
    charges: int = 0
    calls: int = 0
    spent_units: int = 0
    """Units that can't pay for one more answer."""
    used: float = 0.0
    """Share of their budget that all units together have used."""
    noise: float = 0.0
    """The noise multiplier of a vote."""

    def add(self, how: str, *, right: bool) -> None:
        """Count one question."""
        self.outcomes.append((how, right))

    @property
    def right(self) -> list[bool]:
        """Whether each question got a right answer that rests on the records."""
        return [right and how in ANSWERED for how, right in self.outcomes]

    @property
    def learned(self) -> list[bool]:
        """The same, for what the model alone gets wrong."""
        return [
            right and not known
            for right, known in zip(self.right, self.known, strict=True)
        ]

    def figures(self) -> dict[str, float]:
        """Return the counts, by name."""
        how = Counter(kind for kind, _ in self.outcomes)
        answered = sum(how[kind] for kind in ANSWERED)
        right = sum(self.right)
        return dict(
            zip(
                FIGURES,
                (
                    right,
                    answered - right,
                    how["fallback"] + how["abstained"],
                    how["refused"],
                    how["cached"],
                    sum(self.learned),
                    self.charges,
                    self.calls,
                    self.spent_units,
                    100 * self.used,
                    self.noise,
                ),
                strict=True,
            )
        )


def figures(tallies: Mapping[str, Sequence[Tally]]) -> dict[str, Any]:
    """Return mean and deviation of each count, by system."""
    return {
        name: {
            figure: [round(number, 2) for number in spread(values)]
            for figure, values in _by_figure(runs).items()
        }
        for name, runs in tallies.items()
    }


def outcome_table(tallies: Mapping[str, Sequence[Tally]]) -> RichTable:
    """Show mean and deviation of each count, by system."""
    shown = RichTable("of 500 questions", *FIGURES, box=box.MARKDOWN)
    for column in shown.columns[1:]:
        column.justify = "right"
    for name, runs in tallies.items():
        cells = []
        for figure, values in _by_figure(runs).items():
            mean, deviation = spread(values)
            if figure == "noise multiplier":
                cells.append(f"{mean:.2f}" if mean else "")
            elif figure in {"right", "wrong", "right, model alone wrong"}:
                cells.append(f"{mean:.0f} ± {deviation:.0f}")
            else:
                cells.append(f"{mean:,.0f}")
        shown.add_row(name, *cells)
    return shown


def _by_figure(runs: Sequence[Tally]) -> dict[str, list[float]]:
    found = [run.figures() for run in runs]
    return {figure: [one[figure] for one in found] for figure in FIGURES}


def draw(
    path: Path,
    tallies: Mapping[str, Sequence[Tally]],
    title: str,
    names: Mapping[str, str],
) -> bool:
    """Draw the right answers so far, question by question: the mean of the runs.

    Args:
        path: The file.
        tallies: The runs of each system that is drawn.
        title: Stands over both panels.
        names: A short name for each system.
    """
    canvas = figure_canvas(2, 9.5, 3.9)
    if canvas is None:
        return False
    figure, (left, right) = canvas
    for name, runs in tallies.items():
        bound = name in {"zero-shot", "same groups, no noise"}
        style: dict[str, Any] = {"color": "0.5", "linestyle": "--"} if bound else {}
        if name == "zero-shot":
            style["linestyle"] = ":"
        for axis, curves in (
            (left, [run.right for run in runs]),
            (right, [run.learned for run in runs]),
        ):
            mean = _mean_so_far(curves)
            label = f"{names[name]} ({mean[-1]:.0f})"
            asked = range(0, len(mean), STEP)
            axis.plot(asked, mean[::STEP], label=label, lw=1.5, **style)
    left.set_title("right answers so far", fontsize=10)
    right.set_title("of these, where the model alone is wrong", fontsize=10)
    for axis in (left, right):
        axis.set_xlabel("questions asked")
        axis.set_xlim(0, None)
        axis.set_ylim(0, None)
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
        _legend(axis)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=77, pil_kwargs={"optimize": True})
    return True


def _mean_so_far(curves: Sequence[Sequence[bool]]) -> list[float]:
    sums = [itertools.accumulate(curve, initial=0) for curve in curves]
    return [sum(column) / len(column) for column in zip(*sums, strict=True)]


def _legend(axis: Any) -> None:
    """List the lines in the order in which they end."""
    handles, _ = axis.get_legend_handles_labels()
    handles.sort(key=lambda line: -line.get_ydata()[-1])
    axis.legend(handles=handles, fontsize=8, frameon=False, loc="upper left")
