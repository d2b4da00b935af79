"""What a plan predicts beside what real chains do, where groups answer as it assumes.

    python benchmarks/utility_plan.py [--quick | --asks N]

Each row is what `langchain_dpicl.plan` chooses for a guess. Then so many people are
made up, real `RetrievedGroups` draw them, and a real `DPChain` asks a scripted model,
which answers by what stands in a group, in the parts that the guess names: see
`tests/support/planned_world.py`. Everything is seeded, and no language model runs: the
table says whether the arithmetic is that of the library, and nothing about how real
groups answer.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.planned_world import Measured, measure

from langchain_dpicl.planner import AnswerPlan, plan
from langchain_dpicl.planner.crowd import Crowd
from langchain_dpicl.planner.methods import METHODS, Budget

ASKS, QUICK = 1000, 100
GUESSES: tuple[dict[str, Any], ...] = (
    {"people_per_question": 40, "epsilon": 8, "parser": "vote"},
    {"people_per_question": 300, "epsilon": 8, "parser": "vote"},
    {"people_per_question": 300, "epsilon": 8, "parser": "vote", "stages": 4},
    {"people_per_question": 300, "epsilon": 3, "parser": "vote", "groups": 50},
    {"people_per_question": 3000, "epsilon": 1, "parser": "vote", "groups": 25},
    {"people_per_question": 100, "epsilon": 8, "parser": "draft"},
    {"people_per_question": 300, "epsilon": 3, "parser": "draft", "groups": 100},
    {"people_per_question": 1000, "epsilon": 3, "parser": "draft", "stages": 2},
    {"people_per_question": 60, "epsilon": 20, "parser": "draft", "share": 0.8},
    {"people_per_question": 300, "epsilon": 8, "parser": "threshold"},
    {"people_per_question": 100, "epsilon": 20, "parser": "threshold", "groups": 50},
    {"people_per_question": 300, "epsilon": 8, "parser": "ptr", "groups": 100},
    {"people_per_question": 1000, "epsilon": 3, "parser": "ptr", "groups": 100},
)


def asked(guess: dict[str, Any], asks: int) -> tuple[AnswerPlan, Measured]:
    """Return the plan of a guess, and what came out of asking by it."""
    found = plan(**guess, runner_up=0.15)
    crowd = Crowd(found.people_per_question, found.share, 0.15, found.choices)
    budget = Budget(found.epsilon, found.delta, found.queries)
    noise = METHODS[found.parser].noise(budget, found.sampling_rate)
    return found, measure(crowd, found, noise, asks=asks)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} questions each")
    parser.add_argument("--asks", type=int, default=ASKS, help="questions of each row")
    options = parser.parse_args()
    asks = QUICK if options.quick else options.asks
    table = Table(title=f"Predicted / measured in {asks} questions, %")
    for heading in ("people", "epsilon", "parser", "groups", "stages", "rate"):
        table.add_column(heading)
    for heading in ("right", "wrong", "calls"):
        table.add_column(heading, justify="right")
    console = Console(width=120)
    start, farthest = time.perf_counter(), 0.0
    for guess in track(GUESSES, console=Console(stderr=True)):
        found, seen = asked(guess, asks)
        pairs = ((found.right, seen.right), (found.wrong, seen.wrong))
        farthest = max([farthest, *(abs(told - made) for told, made in pairs)])
        table.add_row(
            f"{found.people_per_question:,}",
            f"{found.epsilon:g}",
            found.parser,
            str(found.groups),
            str(found.stages),
            f"{found.sampling_rate:g}",
            *(f"{100 * told:.1f} / {100 * made:.1f}" for told, made in pairs),
            f"{found.calls:.1f} / {seen.calls:.1f}",
        )
    console.print(table)
    console.print(
        f"Farthest apart: {100 * farthest:.1f} points; "
        f"{time.perf_counter() - start:.0f} s."
    )


if __name__ == "__main__":
    main()
