"""What a secret sample of people before each search is worth, and what it costs.

    python benchmarks/utility_sampling.py --data DIR [--answers FOLDER] [--quick]

*Public table.* `QUESTIONS` questions about a census (`utility_people.py`): which value
of one column is most common among people with a value of another, drawn by a public
seed from all that are about `LEAST_PEOPLE` people or more. 100 groups, 10 records each,
`REPLACE`. Each question is asked by the library's own chain, at each sampling rate, in
`--runs` runs that draw people and noise anew. The same groups' answers are then
released at the noise of each account, and once without noise (what most groups say).
Of some questions the answer hardly leads in the table (clerks are 13.3 % of the people
with a low income, helpers 13.1 %): the second table has those where it leads by
`CLEAR` or more. The model is the offline stand-in.

*Recorded answers.* The answers of a language model (`recorded_answers.py`), 100 of the
60 groups drawn with replacement in each run: how a group answers does not depend on
the rate there, so that only the noise does.

*Few calls.* Votes of 25 groups with a sample of a quarter of the people, beside those
of 100 groups of everybody, at three agreements (share of the right label, of the
runner-up, and nine others that share the rest); drawn from these shares, no model.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from recorded_answers import load_recordings
from rich import box
from rich.console import Console
from rich.progress import track
from rich.table import Table
from utility_measures import Grader, arguments, caveat, write_json
from utility_people import UNIT, Asked, load_table
from utility_people import Table as People
from utility_recorded import PARSERS, graded
from utility_recorded import _prepared as prepared_for
from utility_service import KnownEmbeddings, RememberingModel

from langchain_dpicl import (
    DPChain,
    KSAPTROutputParser,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.cli.loading import load_model
from langchain_dpicl.common.outcome import Outcome, Status
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import answered
from langchain_dpicl.parsers.base import DPOutputParser

DELTA = 1e-6
N_GROUPS, DOCS_PER_GROUP, SCORE_THRESHOLD = 100, 10, 0.3
QUESTIONS, LEAST_PEOPLE, SEED = 40, 1_600, 0
CLEAR = 0.1
COLUMNS = (
    "Sex",
    "Race",
    "Education",
    "Marital status",
    "Family role",
    "Employer",
    "Occupation",
    "Income class",
)
ACCOUNTS = ((8.0, 20), (8.0, 100), (3.0, 20), (3.0, 100), (1.0, 20))
RATES = (1.0, 1 / 4, 1 / 8)
TARGETS = {
    (8.0, 100, 1 / 4): 0.9,
    (3.0, 20, 1 / 4): 0.9,
    (3.0, 100, 1 / 8): 0.8,
    (1.0, 20, 1 / 8): 0.8,
}
"""Of the share without noise, that KSA-PTR is to reach."""
AGREEMENTS = ((0.80, 0.05), (0.60, 0.15), (0.45, 0.25))


def noise_of(
    parser: DPOutputParser[Any], rate: float, epsilon: float, queries: int
) -> PaidCharge[Any]:
    """Return what a plan for so many questions pays for each of them."""
    budget = PrivacyBudgetHandler(
        epsilon=epsilon, delta=DELTA, queries=queries, ledger=":memory:"
    )
    return budget.charge(parser.event_template(rate))


@dataclass
class Tally:
    """Right, wrong and no answers."""

    found: Counter[str] = field(default_factory=Counter)

    def share(self, what: str) -> float:
        """Return a share in percent."""
        return 100 * self.found[what] / max(1, self.found.total())

    def __str__(self) -> str:
        return " / ".join(
            f"{self.share(one):.0f}" for one in ("right", "wrong", "none")
        )


class _Every(KSAPTROutputParser):
    """Releases the same answers for every account, and keeps what came out."""

    charges: Any = None
    kept: Any = None

    def release(self, slots: Any, **terms: Any) -> Outcome:
        for account, paid in self.charges.items():
            outcome = super().release(slots, **{**terms, "paid": paid})
            self.kept.append((account, outcome))
        counts = self._counts(slots, terms["prepared"])
        if counts:
            ((top, _),) = counts.most_common(1)
            self.kept.append((None, Outcome(Status.RELEASED, keywords=(top,))))
        return super().release(slots, **terms)


def asked(
    groups: RetrievedGroups,
    model: RememberingModel,
    people: People,
    questions: Sequence[Asked],
) -> Iterator[tuple[Any, bool, str]]:
    """Ask every question; yield account, whether the answer leads, and the grade."""
    rate = groups.sampling_rate
    plain = KSAPTROutputParser(k=1)
    charges = {account: noise_of(plain, rate, *account) for account in ACCOUNTS}
    kept: list[Any] = []
    parser = _Every(k=1, charges=charges, kept=kept)
    budget = PrivacyBudgetHandler(
        epsilon=8, delta=DELTA, queries=len(questions), ledger=":memory:"
    )
    chain = DPChain(
        groups=groups,
        model=model,
        parser=parser,
        budget=budget,
        max_concurrency=1,
        fallback="refuse",
    )
    for question in questions:
        kept.clear()
        chain.invoke(question.text)
        grader = Grader(people.options(question))
        true = people.truth(question)
        is_clear = true.share - true.second >= CLEAR
        for account, outcome in kept:
            if outcome.status is not Status.RELEASED:
                yield account, is_clear, "none"
                continue
            said = {grader.option(word) for word in outcome.keywords} - {None}
            right = said == {true.answer}
            yield account, is_clear, "right" if right else "wrong"


def questions_about(people: People) -> list[Asked]:
    """Return questions about one value of a column, drawn by a public seed."""
    found = []
    for given, about in itertools.permutations(COLUMNS, 2):
        sizes = Counter(row[given] for row in people.rows)
        found += [
            Asked(
                f"Which {about.lower()} is most common among people whose "
                f"{given.lower()} is {value}?",
                about,
                {given: value},
            )
            for value, size in sorted(sizes.items())
            if size >= LEAST_PEOPLE and value != "unknown"
        ]
    return Random(SEED).sample(found, QUESTIONS)


def public_table(
    data: Path, name: str, runs: int, console: Console
) -> list[dict[str, Any]]:
    """Ask the census at each rate."""
    people, model = load_table("adult", data), RememberingModel(inner=load_model(name))
    questions, embedding = questions_about(people), KnownEmbeddings()
    about = [people.truth(question).rows for question in questions]
    console.print(
        f"{len(people.rows):,} people; {len(questions)} questions, each about "
        f"{min(about):,} to {max(about):,} (median {statistics.median(about):,.0f})."
    )
    every: dict[tuple[Any, float], Tally] = {}
    clear: dict[tuple[Any, float], Tally] = {}
    rounds = [(rate, run) for run in range(runs) for rate in RATES]
    for rate, _ in track(rounds, "asking", console=Console(stderr=True)):
        groups = RetrievedGroups.from_documents(
            people.documents,
            embedding,
            unit_key=UNIT,
            n_groups=N_GROUPS,
            docs_per_group=DOCS_PER_GROUP,
            score_threshold=SCORE_THRESHOLD,
            sampling_rate=rate,
        )
        for account, is_clear, grade in asked(groups, model, people, questions):
            every.setdefault((account, rate), Tally()).found[grade] += 1
            if is_clear:
                clear.setdefault((account, rate), Tally()).found[grade] += 1
    console.print(caveat("offline"))
    console.print(_shown("KSA-PTR, k = 1, all questions", every))
    console.print(_shown(f"the answer leads by {CLEAR:.0%} or more", clear))
    return [
        {"account": account, "rate": rate, **tally.found}
        for (account, rate), tally in every.items()
    ]


def _shown(title: str, tallies: dict[tuple[Any, float], Tally]) -> Table:
    shown = Table("right / wrong / none, %", box=box.MARKDOWN, title=title)
    for rate in RATES:
        shown.add_column(f"q = {rate:g}", justify="right")
    for account in (None, *ACCOUNTS):
        name = (
            "no noise" if account is None else "ε = {:g}, {} questions".format(*account)
        )
        cells = [_cell(tallies, account, rate) for rate in RATES]
        shown.add_row(name, *cells)
    return shown


def _cell(tallies: dict[tuple[Any, float], Tally], account: Any, rate: float) -> str:
    tally = tallies[account, rate]
    target = TARGETS.get((*account, rate)) if account else None
    if target is None:
        return str(tally)
    reached = tally.share("right") / max(1e-9, tallies[None, rate].share("right"))
    return f"{tally}, {reached:.2f}x (>= {target:g}x)"


def recorded(folder: Path, runs: int, console: Console) -> None:
    """Release recorded answers, drawn with replacement, at the noise of each rate."""
    random = np.random.default_rng(0)
    shown = Table("answers", "account", box=box.MARKDOWN, title="recorded answers")
    for rate in RATES:
        shown.add_column(f"q = {rate:g}", justify="right")
    for one in load_recordings(folder):
        parser = PARSERS["KSA-PTR, k = 1"](one)
        prepared = prepared_for(parser, one)
        for epsilon, queries in ACCOUNTS:
            cells = []
            for rate in RATES:
                paid, tally = noise_of(parser, rate, epsilon, queries), Tally()
                for _ in range(runs):
                    chosen = random.integers(0, len(one.answers["terse"]), N_GROUPS)
                    slots = [answered(one.answers["terse"][place]) for place in chosen]
                    outcome = parser.release(
                        slots,
                        paid=paid,
                        relation=Relation.REPLACE,
                        slot_count=N_GROUPS,
                        prepared=prepared,
                    )
                    tally.found[graded(outcome, one)] += 1
                cells.append(str(tally))
            shown.add_row(one.name, f"ε = {epsilon:g}, {queries}", *cells)
    console.print(shown)


def few_calls(runs: int, console: Console) -> None:
    """Vote with 25 groups of a sample, and with 100 of everybody."""
    random = np.random.default_rng(0)
    shown = Table("votes: agreement", "account", box=box.MARKDOWN, title="right, %")
    terms = ((100, 1.0), (25, 1 / 4), (100, 1 / 4))
    for groups, rate in terms:
        shown.add_column(f"{groups} calls, q = {rate:g}", justify="right")
    labels = [f"label{place}" for place in range(11)]
    parser = VoteOutputParser(labels=labels)
    for share, runner_up in AGREEMENTS:
        rest = (1 - share - runner_up) / (len(labels) - 2)
        shares = [share, runner_up, *[rest] * (len(labels) - 2)]
        for epsilon, queries in ACCOUNTS:
            cells = []
            for groups, rate in terms:
                paid, right = noise_of(parser, rate, epsilon, queries), 0
                for _ in range(runs):
                    votes = random.choice(len(labels), groups, p=shares)
                    outcome = parser.release(
                        [answered(labels[vote]) for vote in votes],
                        paid=paid,
                        relation=Relation.REPLACE,
                        slot_count=groups,
                        prepared=tuple(labels),
                    )
                    right += outcome.text == labels[0]
                cells.append(f"{100 * right / runs:.0f}")
            shown.add_row(
                f"{share:.2f} / {runner_up:.2f}", f"ε = {epsilon:g}, {queries}", *cells
            )
    console.print(shown)


def main() -> None:
    """Measure everything."""
    parser = arguments(__doc__)
    parser.add_argument("--answers", type=Path, help="folder of recorded answers")
    options = parser.parse_args()
    runs = options.runs or (1 if options.quick else 10)
    console = Console(width=200)
    few_calls(20 * runs, console)
    if options.answers:
        recorded(options.answers, 20 * runs, console)
    figures = public_table(options.data, options.model, runs, console)
    if options.json:
        write_json(options.json, figures)


if __name__ == "__main__":
    main()
