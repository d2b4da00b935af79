"""What the utility benchmarks share: a look at group answers, and the report."""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.common.outcome import Outcome
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.parsers import VoteOutputParser
from langchain_dpicl.parsers.base import DPOutputParser

STAND_IN = (
    "The model is the library's offline stand-in: it extracts, counts words and knows "
    "no language. These figures measure the mechanisms, the groups and the budget. "
    "They are not a language model's and must not be reported as one's."
)


@dataclass(frozen=True)
class Seen:
    """What one release saw, and what it gave. The data sets are public: it may be."""

    answers: tuple[str, ...]
    paid: PaidCharge
    relation: Relation
    prepared: Any
    outcome: Outcome

    @property
    def z(self) -> float | None:
        """The noise multiplier of the release, if it has one."""
        return getattr(self.paid.noise, "noise_multiplier", None)


def watched(
    kind: type[DPOutputParser], seen: list[Seen], **parameters: Any
) -> DPOutputParser:
    """Return a parser that also keeps what it saw, for the non-private comparison."""

    class Watched(kind):  # type: ignore[valid-type,misc]  # a class made at run time
        def release(self, slots: Any, **terms: Any) -> Outcome:
            outcome = super().release(slots, **terms)
            answers = tuple(slot.text for slot in slots if slot.text is not None)
            seen.append(
                Seen(
                    answers,
                    terms["paid"],
                    terms["relation"],
                    terms["prepared"],
                    outcome,
                )
            )
            return outcome

    return Watched(**parameters)


class Grader:
    """Says which of the public options a text states."""

    def __init__(self, options: Sequence[str]) -> None:
        self._options = tuple(options)
        self._vote = VoteOutputParser(labels=self._options)

    def option(self, text: str) -> str | None:
        """Return the one option that a text states, or None."""
        found = self._vote.choice(text)
        return None if found is None else self._options[found]

    def plurality(self, answers: Sequence[str]) -> str | None:
        """Return the option that most answers state: the non-private aggregate."""
        stated = Counter(filter(None, map(self.option, answers)))
        return stated.most_common(1)[0][0] if stated else None


def spread(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and standard deviation, of runs."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return statistics.fmean(values), deviation


def percent(values: Sequence[float]) -> str:
    """Return mean and standard deviation of shares, in percent."""
    mean, deviation = spread(values)
    return f"{100 * mean:.0f} ± {100 * deviation:.0f}"


def caveat(model: str) -> str:
    """Return what must be said beside every figure of this model."""
    return STAND_IN if model == "offline" else f"Model: {model}, at temperature 0."


def arguments(description: str | None) -> argparse.ArgumentParser:
    """Return the arguments that all utility benchmarks take."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with one folder per data set"
    )
    parser.add_argument(
        "--model", default="offline", help="offline, or provider:name of a chat model"
    )
    parser.add_argument("--runs", type=int, help="repetitions, each with fresh noise")
    parser.add_argument("--quick", action="store_true", help="few and small runs")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--plot", type=Path, help="file for the picture")
    return parser


def write_json(path: Path, figures: Any) -> None:
    """Write figures for programs."""
    path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


def figure_canvas(panels: int, width: float, height: float) -> tuple[Any, Any] | None:
    """Return matplotlib's figure and axes, or None where it is not installed."""
    try:
        import matplotlib as mpl
    except ImportError:
        return None
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(
        1, panels, figsize=(width, height), layout="constrained", squeeze=False
    )
    return figure, axes[0]
