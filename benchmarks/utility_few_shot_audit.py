"""Membership inference on few-shot examples, from real texts: `--audit`.

Each trial deals the records of each label to members, of which examples are made, and
others. Two attacks then score records by the examples alone: how much of a record's
wording one of them holds, and how sure of its label they make the offline classifier.
The table shows the probability that a member scores above another (AUC; 50 % is
chance), with 95 % confidence over the trials.

Which records are asked about differs, and it matters: of records that are shown as
examples, each is in the prompt; of 100 members of which 4 are shown, 96 are not.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.audit.membership import ATTACKS, interval, trial

if TYPE_CHECKING:
    from utility_few_shot import Example, Task

SMALL, SMALL_GROUPS = 100, 40
"""Members and groups of a label where an attack has a chance."""

RARE = 2 * SMALL
"""Labels with fewer records are left out."""

ASKED, ASKED_OF_MANY = 250, 50
"""Members, and others, that the attacks score in a trial; by hundreds of examples."""

EPSILONS: tuple[float | None, ...] = (1.0, 8.0, None)
DOUBT = 0.05

Write = Callable[["Task", float | None, int | None], Any]
"""From a task, epsilon (None: next to no noise) and groups (None: as many as ever)."""


@dataclass(frozen=True)
class Deal:
    """One trial: who is a member, and who is not."""

    task: Task
    members: list[Example]
    others: list[Example]

    @classmethod
    def of(cls, task: Task, most: int | None, number: int) -> Deal:
        """Deal a task's records: so many of each label on each side; None: all."""
        chosen = random.Random(f"{task.name} {most} {number}")
        members: list[Example] = []
        others: list[Example] = []
        for label in task.labels:
            records = [one for one in task.records if one["label"] == label]
            if len(records) < RARE:
                continue
            half = most or len(records) // 2
            dealt = chosen.sample(records, 2 * half)
            members += dealt[:half]
            others += dealt[half:]
        labels = tuple(dict.fromkeys(one["label"] for one in members))
        return cls(
            type(task)(task.name, task.settings, labels, members, []), members, others
        )

    def told_by(
        self, examples: Sequence[Any], members: list[Example] | None = None
    ) -> dict[str, float]:
        """Return the AUC of each attack; `members` are those that are asked about."""
        most = ASKED_OF_MANY if len(examples) >= SMALL else ASKED
        # As many of each label on both sides: labels differ in how sure one can be.
        asked: list[list[Example]] = [[], []]
        for label in self.task.labels:
            for chosen, side in zip(
                asked, (members or self.members, self.others), strict=True
            ):
                held = [one for one in side if one["label"] == label]
                chosen.extend(held[: most // len(self.task.labels)])
        found: dict[str, float] = trial(asked[0], asked[1], examples)
        return found


def audit(task: Task, write: Write, trials: int) -> Table:
    """Return a table of what the attacks find, on small and large private sets."""
    found: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for number in track(range(trials), f"{task.name:8}"):
        small = Deal.of(task, SMALL, number)
        k = task.settings.per_label
        shown = small.task.private(number)
        size = f"{SMALL} a label"
        few = (size, f"{k} records a label as they are *", "those shown")
        found.setdefault(few, []).append(small.told_by(shown, shown))
        few = (size, f"{k} records a label as they are *", "all members")
        found.setdefault(few, []).append(small.told_by(shown))
        every = (size, "all members as they are *", "all members")
        found.setdefault(every, []).append(small.told_by(small.members))
        large = Deal.of(task, None, number)
        for deal, groups, held in (
            (small, SMALL_GROUPS, size),
            (large, None, "half of all"),
        ):
            for epsilon in EPSILONS:
                row = (held, _how(epsilon), "all members")
                examples = write(deal.task, epsilon, groups)
                found.setdefault(row, []).append(deal.told_by(examples))
    table = Table(
        "private set",
        "examples",
        "asked about",
        *(f"AUC by {name}, %" for name in ATTACKS),
        box=box.MARKDOWN,
        title=f"{task.name}, {trials} trials",
    )
    for row, results in sorted(found.items(), key=lambda item: item[0][0]):
        cells = (interval([one[name] for one in results], DOUBT) for name in ATTACKS)
        table.add_row(*row, *(f"{100 * m:.1f} ± {100 * half:.1f}" for m, half in cells))
    return table


def _how(epsilon: float | None) -> str:
    return f"DP, ε = {epsilon:g}" if epsilon else "written, next to no noise *"
