"""What `utility_tabular.py` shows: tables and a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from utility_measures import figure_canvas, spread

EPSILONS = (1.0, 5.0, 10.0, 25.0, 50.0, math.inf)
SHOTS = (1, 2, 4, 8)

ZERO_SHOT = "no examples (zero-shot)"
MAJORITY = "the most frequent label *"
REAL = "private rows as they are *"
GLOBAL = "GDPTable"
BINS = "GDPTable, numbers as bins"
LOCAL = "LDPTable"
DRAWN = "LDPTable, drawn rows only"
LOCAL_LOGISTIC = "LDPTable, logistic regression"
LOCAL_BAYES = "LDPTable, naive Bayes"
DIFFPRIVLIB_LOGISTIC = "diffprivlib, logistic regression"
DIFFPRIVLIB_BAYES = "diffprivlib, naive Bayes"
TRAINED_LOGISTIC = "all rows, logistic regression *"
TRAINED_BAYES = "all rows, naive Bayes *"


@dataclass(frozen=True)
class Outcome:
    """What one set of examples, or one trained model, came to.

    Attributes:
        table: The table.
        what: What labels the rows.
        k: How many examples are shown; None where none are.
        epsilon: What was paid; None where nothing is private, or nothing private used.
        run: Number of the run.
        accuracy: Share of the test rows that were labeled right.
        balanced: The mean of this share over the labels.
        hidden: Whether the noise hid all groups, so that no examples were shown.
    """

    table: str
    what: str
    k: int | None
    epsilon: float | None
    run: int
    accuracy: float
    balanced: float
    hidden: bool = False


Row = tuple[str, int | None]


def named(epsilon: float) -> str:
    """Return how an epsilon is shown."""
    return "∞" if math.isinf(epsilon) else f"{epsilon:g}"


def rows_of(
    outcomes: Sequence[Outcome],
) -> dict[Row, dict[float | None, list[Outcome]]]:
    """Return the runs of each row and epsilon, in the order of the table."""
    order = (
        ZERO_SHOT,
        MAJORITY,
        REAL,
        GLOBAL,
        BINS,
        LOCAL,
        DRAWN,
        LOCAL_LOGISTIC,
        LOCAL_BAYES,
        DIFFPRIVLIB_LOGISTIC,
        DIFFPRIVLIB_BAYES,
        TRAINED_LOGISTIC,
        TRAINED_BAYES,
    )
    found: dict[Row, dict[float | None, list[Outcome]]] = {}
    for one in sorted(outcomes, key=lambda one: (order.index(one.what), one.k or 0)):
        cells = found.setdefault((one.what, one.k), {})
        cells.setdefault(one.epsilon, []).append(one)
    return found


def cell(found: Sequence[Outcome]) -> str:
    """Return mean and deviation of accuracies; in brackets where some were hidden."""
    if not found:
        return ""
    mean, deviation = (100 * figure for figure in spread([x.accuracy for x in found]))
    text = f"{mean:.0f}" if len(found) == 1 else f"{mean:.0f} ± {deviation:.0f}"
    return f"({text})" if any(one.hidden for one in found) else text


def accuracy_table(title: str, outcomes: Sequence[Outcome]) -> Table:
    """Show one table's accuracies, epsilon by epsilon."""
    table = Table(
        "what labels the rows",
        "k",
        "no ε",
        *(f"ε = {named(epsilon)}" for epsilon in EPSILONS),
        box=box.MARKDOWN,
        title=title,
    )
    for (what, k), cells in rows_of(outcomes).items():
        table.add_row(
            what,
            "" if k is None else str(k),
            *(cell(cells.get(epsilon, ())) for epsilon in (None, *EPSILONS)),
        )
    return table


def summary_table(outcomes: Sequence[Outcome]) -> Table:
    """Show the mean over the tables: of accuracy, and of accuracy by label."""
    table = Table(
        "mean over the tables: accuracy / accuracy by label",
        "k",
        "no ε",
        *(f"ε = {named(epsilon)}" for epsilon in EPSILONS),
        box=box.MARKDOWN,
    )
    for (what, k), cells in rows_of(outcomes).items():
        texts = []
        for epsilon in (None, *EPSILONS):
            found = cells.get(epsilon, [])
            means = [_mean_of_tables(found, name) for name in ("accuracy", "balanced")]
            texts.append(" / ".join(f"{100 * mean:.0f}" for mean in means if found))
        table.add_row(what, "" if k is None else str(k), *texts)
    return table


def _mean_of_tables(found: Sequence[Outcome], name: str) -> float:
    tables: dict[str, list[float]] = {}
    for one in found:
        tables.setdefault(one.table, []).append(getattr(one, name))
    return spread([spread(values)[0] for values in tables.values()] or [0.0])[0]


def draw(path: Path, names: Sequence[str], outcomes: Sequence[Outcome]) -> bool:
    """Draw accuracy over epsilon, one panel a table; False without matplotlib."""
    canvas = figure_canvas(1, 16, 4.3 * math.ceil(len(names) / 4))
    if canvas is None:
        return False
    figure, _ = canvas
    figure.clear()
    columns = min(4, len(names))
    axes = figure.subplots(
        math.ceil(len(names) / columns), columns, squeeze=False, sharex=True
    ).ravel()
    for axis, name in zip(axes, names, strict=False):
        _panel(axis, name, rows_of([one for one in outcomes if one.table == name]))
    for axis in axes[len(names) :]:
        axis.set_axis_off()
    for axis in axes[::columns]:
        axis.set_ylabel("accuracy, %")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(
        "Private examples of tables, in-context: offline stand-in, no language model"
    )
    figure.savefig(path, dpi=130)
    return True


_COLORS = {
    GLOBAL: ("#9ecae1", "#6baed6", "#3182bd", "#08519c"),
    LOCAL: ("#fdd0a2", "#fdae6b", "#f16913", "#a63603"),
}
_TRAINED = {DIFFPRIVLIB_LOGISTIC: ("C4", "v"), LOCAL_LOGISTIC: ("C8", "^")}
_FLAT = {
    (ZERO_SHOT, None): ("0.5", ":"),
    (MAJORITY, None): ("0.2", "-."),
    (REAL, SHOTS[-1]): ("C2", "--"),
    (TRAINED_LOGISTIC, None): ("C3", ":"),
}


def _panel(
    axis: Any, name: str, rows: dict[Row, dict[float | None, list[Outcome]]]
) -> None:
    places = range(len(EPSILONS))

    def points(row: Row) -> list[tuple[float, float]]:
        cells = rows[row]
        return [
            spread([100 * one.accuracy for one in cells[epsilon]])
            for epsilon in EPSILONS
        ]

    for what, colors in _COLORS.items():
        for k, color in zip(SHOTS, colors, strict=True):
            means, deviations = zip(*points((what, k)), strict=True)
            most = k == SHOTS[-1]
            shift = 0.06 if what == LOCAL else -0.06
            axis.errorbar(
                [place + shift for place in places],
                means,
                yerr=deviations if most else None,
                color=color,
                marker="o",
                ms=4 if most else 2.5,
                lw=2 if most else 1,
                capsize=2,
                label=f"{what}, k = {k}",
                zorder=3 if most else 2,
            )
    for what, (color, marker) in _TRAINED.items():
        if (what, None) in rows:
            means, _ = zip(*points((what, None)), strict=True)
            axis.plot(places, means, color=color, marker=marker, ms=4, lw=1, label=what)
    for row, (color, style) in _FLAT.items():
        if row in rows:
            mean = spread([100 * one.accuracy for one in rows[row][None]])[0]
            label = row[0] if row[1] is None else f"{row[0]}, k = {row[1]}"
            axis.axhline(mean, color=color, ls=style, lw=1.2, label=label, zorder=1)
    axis.set_xticks(places, [named(epsilon) for epsilon in EPSILONS])
    axis.set(title=name, xlabel="ε, paid once")
    axis.xaxis.set_tick_params(labelbottom=True)
    axis.set_ylim(0, 100)
    axis.grid(axis="y", color="0.93")
