"""Budgets that last: 500 questions in a row at one epsilon per person.

A service answers 500 questions about a census, as they come in (`utility_service.py`),
at (epsilon 10, delta 1e-6) for any one person over all of them. How many get a right
answer, by kind of account?

    python benchmarks/utility_budgets.py --data DIR [--quick] [--plot budgets.png]

* *whole corpus*: each question charges everybody. Planned for all 500 the noise is
  large; planned for fewer it is small, and the rest is refused.
* *per unit*: each question charges the people that it is about, and who can't pay any
  more takes no part any more.
* *cache*: a question that was paid for is answered again for nothing.

The groups are the same everywhere: 50 shards, each with its own best 10 of the records
that reach a public threshold, relation `REPLACE`; released by voting among the options.
50 calls a question is what a service may be ready to pay. (One record a group needs no
embedding and gives `ADD_REMOVE`, half the noise between two options, but hundreds of
calls a question.) The threshold was set once, on how the scores of fitting and other
records lie, before anything was asked.

Each run draws other questions (public seed: the number of the run), deals the units to
other shards, and draws fresh noise from the operating system.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from rich.console import Console
from rich.progress import Progress, TimeElapsedColumn
from utility_budgets_report import Tally, draw, figures, outcome_table
from utility_measures import Grader, Seen, arguments, caveat, watched, write_json
from utility_people import UNIT
from utility_service import Question, RememberingModel, Service, load_service
from utility_tables import OPTIONS_PROMPT, OPTIONS_PUBLIC_PROMPT

from langchain_dpicl import (
    BudgetExhaustedError,
    DPChain,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.cli.loading import load_model
from langchain_dpicl.common.prompts import DOCUMENT_SEPARATOR
from langchain_dpicl.ledger import MemoryLedger

EPSILON, DELTA = 10.0, 1e-6
N_QUESTIONS = 500
N_GROUPS, DOCS_PER_GROUP = 50, 10
SCORE_THRESHOLD = 0.3
ACCOUNT = "service"

PER_ROW = 18
"""Different questions that a row can be about: 3 pairs of values, 6 attributes each."""


@dataclass(frozen=True)
class System:
    """An account, and how to pay less."""

    name: str
    scope: Literal["corpus", "unit"]
    queries: int
    cache: bool = False
    short: str = ""
    """Its name in the picture; none: it is not drawn."""


SYSTEMS = (
    System("whole corpus, planned for 50", "corpus", 50),
    System("whole corpus, planned for 100", "corpus", 100, short="corpus, for 100"),
    System("whole corpus, planned for 200", "corpus", 200),
    System("whole corpus, planned for 500", "corpus", 500, short="corpus, for 500"),
    System(
        "whole corpus + cache, planned for 250",
        "corpus",
        250,
        cache=True,
        short="corpus + cache, for 250",
    ),
    System("per unit, 18 each", "unit", PER_ROW),
    System("per unit, 50 each", "unit", 50, short="per unit"),
    System("per unit, 100 each", "unit", 100),
    System("per unit + cache, 9 each", "unit", PER_ROW // 2, cache=True),
    System(
        "per unit + cache, 18 each",
        "unit",
        PER_ROW,
        cache=True,
        short="per unit + cache",
    ),
)
QUICK = tuple(system for system in SYSTEMS if system.short)


def run_system(
    system: System,
    groups: RetrievedGroups,
    model: RememberingModel,
    questions: Sequence[Question],
    advance: Any,
) -> Tally:
    """Ask all questions, one after the other, and grade what comes back."""
    ledger = MemoryLedger()
    budget = PrivacyBudgetHandler(
        epsilon=EPSILON,
        delta=DELTA,
        queries=system.queries,
        scope=system.scope,
        ledger=ledger,
        account=ACCOUNT,
    )
    seen: list[Seen] = []
    chains: dict[str, DPChain] = {}
    tally = Tally()
    calls = model.calls
    for question in questions:
        if question.about not in chains:
            chains[question.about] = DPChain(
                groups=groups,
                model=model,
                parser=watched(VoteOutputParser, seen, labels=list(question.options)),
                prompt=OPTIONS_PROMPT,
                public_prompt=OPTIONS_PUBLIC_PROMPT,
                budget=budget,
                max_concurrency=1,
                cache=system.cache,
            )
        try:
            answer = chains[question.about].invoke(_asked(question))
        except BudgetExhaustedError:
            tally.add("refused", right=False)
        else:
            record = answer.response_metadata["privacy"]
            how = record["status"]
            tally.add(how, right=str(answer.text) == question.truth)
        advance()
    tally.calls = model.calls - calls
    tally.noise = max((one.z or 0.0 for one in seen), default=0.0)
    _count_costs(tally, ledger, groups.n_units)
    return tally


def _count_costs(tally: Tally, ledger: MemoryLedger, n_units: int) -> None:
    """Count what was spent; the operator's view, which no caller of a chain has."""
    charges, state = ledger.charges(ACCOUNT), ledger.state(ACCOUNT)
    tally.charges = len(charges)
    limit = state.terms.limit.loss
    if state.terms.scope == "corpus":
        spent = [state.spent.loss] * n_units
    else:
        spent = [unit.spent.loss for unit in ledger.unit_balances(ACCOUNT)]
    price = max(record.charge.cost.loss for record in charges)
    tally.spent_units = sum(loss + price > limit for loss in spent)
    tally.used = sum(spent) / n_units / limit


def without_noise(
    groups: RetrievedGroups, model: RememberingModel, questions: Sequence[Question]
) -> Tally:
    """Return what the plurality of the same groups says: the ceiling."""
    found: dict[str, bool] = {}
    calls = model.calls
    for question in dict.fromkeys(questions):
        grader = Grader(question.options)
        asked = _asked(question)
        answers = []
        for slot in groups.draw(question.text):
            records = DOCUMENT_SEPARATOR.join(one.page_content for one in slot)
            prompt = OPTIONS_PROMPT.invoke({**asked, "context": records})
            answers.append(str(model.invoke(prompt).text))
        found[question.text] = grader.plurality(answers) == question.truth
    tally = Tally(calls=model.calls - calls)
    for question in questions:
        tally.add("released", right=found[question.text])
    return tally


def zero_shot(model: RememberingModel, questions: Sequence[Question]) -> Tally:
    """Return what the model says without any record: the floor."""
    tally = Tally(calls=len(questions))
    for question in questions:
        said = (OPTIONS_PUBLIC_PROMPT | model).invoke(_asked(question)).text
        stated = Grader(question.options).option(str(said))
        tally.add("released", right=stated == question.truth)
    return tally


def _asked(question: Question) -> dict[str, str]:
    return {"question": question.text, "options": ", ".join(question.options)}


def setting(service: Service, streams: Sequence[Sequence[Question]]) -> dict[str, Any]:
    """Return what the questions and the threshold are like."""
    distinct = list(dict.fromkeys(q for stream in streams for q in stream))
    eligible = {q.text: service.eligible(q, SCORE_THRESHOLD) for q in distinct}
    fitting = {q.text: service.fitting(q) for q in distinct}
    both = {text: (eligible[text] & fitting[text]).sum() for text in eligible}
    met = {text: both[text] / max(eligible[text].sum(), 1) for text in eligible}
    found = {text: both[text] / fitting[text].sum() for text in eligible}
    load = np.concatenate(
        [sum(eligible[q.text].astype(int) for q in stream) for stream in streams]
    )
    once = np.concatenate(
        [sum(eligible[q.text].astype(int) for q in set(stream)) for stream in streams]
    )
    every = [q for stream in streams for q in stream]
    return {
        "units": len(service.rows),
        "questions_in_the_pool": len(service.questions),
        "distinct_questions": statistics.fmean(len(set(s)) for s in streams),
        "asked_most": statistics.fmean(max(map(s.count, set(s))) for s in streams),
        "leads_below_a_tenth": statistics.fmean(q.lead < 0.1 for q in every),
        "median_eligible": statistics.median(
            int(eligible[q.text].sum()) for q in every
        ),
        "eligible_that_fit": statistics.fmean(met[q.text] for q in every),
        "fitting_that_are_eligible": statistics.fmean(found[q.text] for q in every),
        "questions_a_unit_mean": float(load.mean()),
        "questions_a_unit_99th": float(np.percentile(load, 99)),
        "questions_a_unit_max": int(load.max()),
        "distinct_questions_a_unit_mean": float(once.mean()),
        "distinct_questions_a_unit_max": int(once.max()),
    }


def described(found: dict[str, Any]) -> str:
    """Return the setting in words."""
    return (
        f"{N_QUESTIONS} questions in a row within epsilon {EPSILON:g} and delta "
        f"{DELTA:g} for any one of {found['units']:,} people. On average "
        f"{found['distinct_questions']:.0f} different ones; the first one comes "
        f"{found['asked_most']:.0f} times; the answer leads by less than 10 points in "
        f"{found['leads_below_a_tenth']:.0%}. A question finds "
        f"{found['median_eligible']:.0f} people (median); "
        f"{found['eligible_that_fit']:.0%} of them are those it is about, and it finds "
        f"{found['fitting_that_are_eligible']:.0%} of those. A person is found "
        f"by {found['questions_a_unit_mean']:.1f} of the {N_QUESTIONS} (99th "
        f"percentile {found['questions_a_unit_99th']:.0f}, most "
        f"{found['questions_a_unit_max']}), "
        f"by {found['distinct_questions_a_unit_mean']:.1f} different ones (most "
        f"{found['distinct_questions_a_unit_max']})."
    )


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--groups", type=int, default=N_GROUPS, help="groups, hence calls a question"
    )
    options = parser.parse_args()
    systems = QUICK if options.quick else SYSTEMS
    runs = options.runs or (1 if options.quick else 5)
    console, log = Console(width=200), Console(stderr=True)
    model = RememberingModel(inner=load_model(options.model))
    service = load_service(options.data)
    streams = [service.stream(N_QUESTIONS, seed) for seed in range(runs)]
    tallies: dict[str, list[Tally]] = {}
    with Progress(
        *Progress.get_default_columns(), TimeElapsedColumn(), console=log
    ) as bar:
        task = bar.add_task("asking", total=runs * len(systems) * N_QUESTIONS)
        for stream in streams:
            groups = RetrievedGroups.from_documents(
                service.documents,
                service.embedding,
                unit_key=UNIT,
                n_groups=options.groups,
                docs_per_group=DOCS_PER_GROUP,
                score_threshold=SCORE_THRESHOLD,
            )
            plain = zero_shot(model, stream)
            ceiling = without_noise(groups, model, stream)
            found = {"zero-shot": plain, "same groups, no noise": ceiling}
            for system in systems:
                start = time.perf_counter()
                found[system.name] = run_system(
                    system, groups, model, stream, lambda: bar.advance(task)
                )
                log.print(f"{system.name}: {time.perf_counter() - start:.0f} s")
            for name, tally in found.items():
                tally.known = plain.right
                tallies.setdefault(name, []).append(tally)
    like = setting(service, streams)
    console.print(
        f"{options.groups} groups. {described(like)} {caveat(options.model)}\n",
        soft_wrap=True,
    )
    console.print(outcome_table(tallies))
    if options.json:
        write_json(
            options.json,
            {
                "epsilon": EPSILON,
                "delta": DELTA,
                "groups": options.groups,
                "runs": runs,
                "caveat": caveat(options.model),
                "setting": like,
                "systems": figures(tallies),
            },
        )
    short = {
        "zero-shot": "model alone",
        **{system.name: system.short for system in systems if system.short},
        "same groups, no noise": "same groups, no noise",
    }
    title = (
        f"{N_QUESTIONS} questions within ε = {EPSILON:g}, δ = {DELTA:g} per person; "
        "offline stand-in, not a language model"
    )
    drawn = {name: tallies[name] for name in short}
    if options.plot and not draw(options.plot, drawn, title, short):
        console.print("matplotlib is not installed: no picture.")


if __name__ == "__main__":
    main()
