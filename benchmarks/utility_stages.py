"""What asking in stages saves and costs: simulated votes, by the library's own rules.

    python benchmarks/utility_stages.py [--questions 2000] [--epsilon 8] [--queries 20]

Each of 100 groups chooses by itself: the right one of ten labels with one probability,
a second one with another, and the other eight alike with what is left. No model runs.
The noise is what an account with a plan charges for (delta = 1e-6, `REPLACE`), with and
without Poisson sampling of the people; the votes are the same with both. What the noisy
votes say is asked of `VoteOutputParser`, block by block, as a chain asks it.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from langchain_dpicl import PrivacyBudgetHandler, VoteOutputParser, mechanisms
from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.common.progress import progress_bar
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms.stages import Asked, blocks, usual_stop

GROUPS = 100
LABELS = tuple(f"label {number}" for number in range(10))
AGREEMENT = ((0.80, 0.05), (0.60, 0.15), (0.45, 0.25), (0.35, 0.35))
PARSERS = {
    "given": VoteOutputParser(labels=LABELS),
    "drafted": VoteOutputParser(labels="draft"),
}


@dataclass(frozen=True)
class Found:
    """What came of many questions.

    Attributes:
        calls: Group calls, on average.
        right: Share of the questions in which the right label comes out.
        wrong: Share in which another one does.
    """

    calls: float
    right: float
    wrong: float


def simulated(
    parser: VoteOutputParser,
    paid: PaidCharge[Any],
    agreement: tuple[float, float],
    *,
    stages: int,
    stop_at: float,
    questions: int,
    seed: int,
) -> Found:
    """Ask the same kind of question again and again."""
    draws = np.random.default_rng(seed)
    rest = (1 - sum(agreement)) / (len(LABELS) - 2)
    shares = [*agreement, *[rest] * (len(LABELS) - 2)]
    every = blocks(GROUPS, stages)
    terms: dict[str, Any] = {"relation": Relation.REPLACE, "prepared": LABELS}
    calls, said = [], []
    for _ in range(questions):
        total = np.zeros(len(LABELS) + 2)
        for number, block in enumerate(every, 1):
            votes = draws.multinomial(len(block), shares)
            total += mechanisms.noisy_counts(
                [*votes.tolist(), 0, 0],
                noise_multiplier=paid.noise.noise_multiplier,
                relation=Relation.REPLACE,
            )
            asked = Asked(block.stop, GROUPS, number, stages)
            found = parser.said(total, asked=asked, paid=paid, **terms)
            if found.is_answer and found.lead >= stop_at:
                break
        calls.append(block.stop)
        said.append(found.outcome.text)
    right, silent = said.count(LABELS[0]), said.count(None)
    wrong = questions - right - silent
    return Found(statistics.fmean(calls), right / questions, wrong / questions)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--questions", type=int, default=2000)
    options.add_argument("--epsilon", type=float, default=8)
    options.add_argument("--queries", type=int, default=20)
    options.add_argument("--stages", type=int, default=4)
    options.add_argument("--stop-at", type=float)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    table = Table(
        "labels",
        "q",
        "agreement",
        "right / wrong at once",
        "calls",
        f"right / wrong in {given.stages} stages",
        "stop at",
        title=f"epsilon {given.epsilon:g}, {given.queries} questions, "
        f"{given.questions} runs",
    )
    cells = [
        (name, rate, agreement)
        for name in PARSERS
        for rate in (1.0, 0.25)
        for agreement in AGREEMENT
    ]
    with progress_bar("Simulating", len(cells) * 2, shown=True) as done:
        for name, rate, agreement in cells:
            parser = PARSERS[name]
            usual = usual_stop(given.stages, lets_ties_out=parser.lets_ties_out)
            stop_at = given.stop_at or usual
            template = parser.event_template(rate)
            budget = PrivacyBudgetHandler(
                epsilon=given.epsilon,
                delta=1e-6,
                queries=given.queries,
                ledger=":memory:",
            )
            paid = PaidCharge(budget.quote(template), (), "simulated", 1)
            each = []
            for stages in (1, given.stages):
                each.append(
                    simulated(
                        parser,
                        paid,
                        agreement,
                        stages=stages,
                        stop_at=stop_at,
                        questions=given.questions,
                        seed=given.seed,
                    )
                )
                done(1)
            once, staged = each
            table.add_row(
                name,
                f"{rate:g}",
                "{:.2f} / {:.2f}".format(*agreement),
                f"{once.right:.1%} / {once.wrong:.1%}",
                f"{staged.calls:.1f}",
                f"{staged.right:.1%} / {staged.wrong:.1%}",
                f"{stop_at:.2f}",
            )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
