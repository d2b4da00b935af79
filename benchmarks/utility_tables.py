"""Utility per unit of privacy on two tables: right answers about a population.

Each row of two public tables is written as a short text about one person
(`utility_people.py`). Ten questions about groups of people are asked of each table, all
ten within (epsilon 8, delta 1e-6) for any one person, by each parser and from several
group sources. Every run opens a new account and draws fresh noise from the operating
system; nothing is seeded.

    python benchmarks/utility_tables.py --data DIR [--quick] [--plot tables.png]

Beside the private answers stand what the same groups say without noise (their
plurality), what the model says without any record (zero-shot), and the rate at which
propose-test-release passes next to what is computed from the true gap.

The sources, and why these:

* *groups*: units are sampled and dealt to groups of about 9 to 12 rows. A group of
  rows already agrees better than one row does, and few calls are needed; but one row
  can turn a whole group's answer, so the relation is `REPLACE` and the noise is
  doubled. The heart table is small: every row takes part (rate 1, no amplification).
  Of the census 4.6 % take part in a draw, and this secrecy cuts the noise by 4.
* *rows*: one row is one group. `ADD_REMOVE` halves noise and threshold, and the votes
  are counted row by row: the strongest statistic where calls on one short record are
  cheap, at nine times the calls on the heart table.
* *retrieved*: each shard hands over its rows nearest to the question. It finds the few
  rows that a rare condition asks for, where the embedding can tell them apart. But the
  nearest rows are no random sample of those that fit, and nothing is amplified.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from rich.console import Console
from utility_measures import (
    Grader,
    Seen,
    arguments,
    caveat,
    watched,
    write_json,
)
from utility_people import UNIT, Asked, Table, load_table
from utility_tables_report import (
    REPLAYS,
    Result,
    draw,
    pass_rates,
    pass_table,
    question_table,
    share_table,
)

from langchain_dpicl import (
    DPChain,
    ESAOutputParser,
    KSAJointOutputParser,
    KSAPTROutputParser,
    PrivacyBudgetHandler,
    RetrievedGroups,
    SampledGroups,
    VoteOutputParser,
    mechanisms,
)
from langchain_dpicl.budget.forecast import Forecast, forecast
from langchain_dpicl.cli.loading import load_model
from langchain_dpicl.common.prompts import PUBLIC_PROMPT
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups import GroupSource
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.parsers.base import DPOutputParser
from langchain_dpicl.parsers.words import keyword_counts

EPSILON, DELTA = 8.0, 1e-6
K_RANGE = (1, 3)
OPTIONS_PROMPT = ChatPromptTemplate.from_template(
    "Answer the question from the records below with one of the options.\n"
    "Options: {options}\n\nRecords:\n{context}\n\nQuestion: {question}\nAnswer:"
)
OPTIONS_PUBLIC_PROMPT = ChatPromptTemplate.from_template(
    "Answer the question with one of the options.\n"
    "Options: {options}\n\nQuestion: {question}\nAnswer:"
)

Build = Callable[[list[Document]], GroupSource]


def sampled(n_groups: int, rate: float, grouping: Any = "shard") -> Build:
    return lambda documents: SampledGroups.from_documents(
        documents,
        unit_key=UNIT,
        n_groups=n_groups,
        sampling_rate=rate,
        grouping=grouping,
    )


def retrieved(n_groups: int, docs_per_group: int) -> Build:
    return lambda documents: RetrievedGroups.from_documents(
        documents,
        HashingEmbeddings(),
        unit_key=UNIT,
        n_groups=n_groups,
        docs_per_group=docs_per_group,
    )


SOURCES: dict[str, dict[str, Build]] = {
    "heart": {
        "80 groups of all rows": sampled(80, 1.0),
        "all 734 rows, one a group": sampled(734, 1.0, "unit"),
        "80 groups, 4 rows retrieved": retrieved(80, 4),
    },
    "adult": {
        "150 groups of 12 sampled": sampled(
            150, SampledGroups.rate_for(39_073, n_groups=150, records_per_group=12)
        ),
        "400 rows sampled, one a group": sampled(400, 0.01, "unit"),
        "150 groups, 12 retrieved": retrieved(150, 12),
    },
}

Kind = tuple[type[DPOutputParser], dict[str, Any]]

METHODS: dict[str, Callable[[Asked, tuple[str, ...]], Kind]] = {
    "KSA-PTR, k = 1": lambda _, __: (KSAPTROutputParser, {"k": 1}),
    "KSA-PTR, k in 1..3": lambda _, __: (KSAPTROutputParser, {"k": K_RANGE}),
    "KSA-joint": lambda _, options: (
        KSAJointOutputParser,
        {"k": 1, "domain": list(options)},
    ),
    "vote": lambda _, options: (VoteOutputParser, {"labels": list(options)}),
    "ESA, cosine": lambda asked, options: (
        ESAOutputParser,
        esa(asked, options, "cosine"),
    ),
    "ESA, vote": lambda asked, options: (ESAOutputParser, esa(asked, options, "vote")),
}


def esa(asked: Asked, options: Sequence[str], select: str) -> dict[str, Any]:
    about = asked.about
    said = [f"The most common {about} is {option}." for option in options]
    return {"embedding": HashingEmbeddings(), "candidates": said, "select": select}


def run_method(
    table: Table, name: str, groups: GroupSource, method: str, model: Any, run: int
) -> Iterator[Result]:
    """Yield one graded answer per question, or nothing where the library refuses."""
    budget = PrivacyBudgetHandler(
        epsilon=EPSILON, delta=DELTA, queries=len(table.questions), ledger=":memory:"
    )
    for number, asked in enumerate(table.questions):
        options, truth = table.options(asked), table.truth(asked).answer
        grader = Grader(options)
        seen: list[Seen] = []
        kind, parameters = METHODS[method](asked, options)
        voting = method == "vote"
        try:
            chain = DPChain(
                groups=groups,
                model=model,
                parser=watched(kind, seen, **parameters),
                prompt=OPTIONS_PROMPT if voting else None,
                public_prompt=OPTIONS_PUBLIC_PROMPT if voting else None,
            )
        except InvalidParameterError:
            return
        question = {"question": asked.text, "options": ", ".join(options)}
        message = chain.invoke(question, config={"callbacks": [budget]})
        status = message.response_metadata["privacy"]["status"]
        said = grader.option(str(message.text))
        outcome = status
        if status == "released":
            outcome = {truth: "right", None: "unclear"}.get(said, "wrong")
        (one,) = seen
        yield Result(
            table.name,
            name,
            method,
            run,
            number,
            outcome,
            grader.plurality(one.answers) == truth,
            **(ptr_figures(one) if kind is KSAPTROutputParser else {}),
        )


def ptr_figures(seen: Seen) -> dict[str, Any]:
    counts = keyword_counts(seen.answers, dropped=seen.prepared)
    k = seen.outcome.details["k"]
    ranked = [*sorted(counts.values(), reverse=True), *[0] * (k + 1)]
    test: dict[str, Any] = {
        "noise_multiplier": seen.paid.noise.noise_multiplier,
        "delta0": seen.paid.noise.delta0,
        "relation": seen.relation,
    }
    figures: dict[str, Any] = {
        "gap": ranked[k - 1] - ranked[k],
        "predicted": mechanisms.ptr_pass_rate(ranked[k - 1] - ranked[k], **test),
    }
    if seen.paid.noise.selection_epsilon is None and ranked[k - 1]:
        passed = [
            mechanisms.ptr_top_k(counts, k, **test) is not None for _ in range(REPLAYS)
        ]
        figures["replayed"] = sum(passed) / REPLAYS
    return figures


def measure(
    tables: Sequence[Table],
    model: Any,
    runs: int,
    built: dict[tuple[str, str], GroupSource],
    log: Console,
) -> list[Result]:
    results: list[Result] = []
    for run in range(runs):
        for table in tables:
            for name, build in SOURCES[table.name].items():
                # Retrieved shards hang on a secret salt: a new one for every run.
                if run == 0 or "retrieved" in name:
                    built[table.name, name] = build(table.documents)
                groups = built[table.name, name]
                start = time.perf_counter()
                for method in METHODS:
                    results.extend(run_method(table, name, groups, method, model, run))
                seconds = time.perf_counter() - start
                log.print(
                    f"run {run + 1} of {runs}: {table.name}, {name}, {seconds:.0f} s"
                )
    return results


def zero_shot(table: Table, model: Any) -> tuple[float, float]:
    """Return the share right without records: asked freely, and with the options."""
    free = given = 0
    for asked in table.questions:
        options, truth = table.options(asked), table.truth(asked).answer
        grader = Grader(options)
        question = {"question": asked.text, "options": ", ".join(options)}
        free += grader.option(_ask(PUBLIC_PROMPT, model, question)) == truth
        given += grader.option(_ask(OPTIONS_PUBLIC_PROMPT, model, question)) == truth
    return free / len(table.questions), given / len(table.questions)


def _ask(prompt: ChatPromptTemplate, model: Any, question: dict[str, str]) -> str:
    return str((prompt | model).invoke(question).text)


def planned(table: Table, groups: GroupSource, method: str) -> Forecast:
    asked = table.questions[0]
    kind, parameters = METHODS[method](asked, table.options(asked))
    parser: DPOutputParser = kind(**parameters)
    return forecast(
        parser.event_template(groups.sampling_rate),
        epsilon=EPSILON,
        delta=DELTA,
        queries=len(table.questions),
        groups=groups.n_groups,
        relation=groups.relation,
        choices=max(len(table.options(asked)), 2),
    )


def main() -> None:
    options = arguments(__doc__).parse_args()
    runs = options.runs or (2 if options.quick else 10)
    # Wide enough that no cell is folded, also where the output goes to a file.
    console, log = Console(width=250), Console(stderr=True)
    model = load_model(options.model)
    tables = [load_table(name, options.data) for name in SOURCES]
    built: dict[tuple[str, str], GroupSource] = {}
    results = measure(tables, model, runs, built, log)
    rates = pass_rates(results)
    by_name = {table.name: table for table in tables}
    plans = {
        name: planned(by_name[name[0]], built[name[:2]], name[2])
        for name in dict.fromkeys(
            (one.table, one.source, one.method) for one in results
        )
        # How far cosine must lead hangs on the candidates, not on the groups alone.
        if name[2] != "ESA, cosine"
    }
    console.print(
        f"Ten questions a table, all within epsilon {EPSILON:g} and delta {DELTA:g} "
        f"for any one person. {caveat(options.model)}\n",
        soft_wrap=True,
    )
    zero: dict[str, tuple[float, float]] = {}
    for table in tables:
        console.print(share_table(table, results, runs, plans))
        zero[table.name] = zero_shot(table, model)
        console.print(
            f"Zero-shot, without any record: {zero[table.name][0]:.0%} right asked "
            f"freely, {zero[table.name][1]:.0%} with the options given.\n"
        )
        console.print(question_table(table, results))
        console.print()
    console.print(pass_table(rates))
    if options.json:
        figures = {
            "epsilon": EPSILON,
            "delta": DELTA,
            "runs": runs,
            "caveat": caveat(options.model),
            "zero_shot": zero,
            "pass_rates": [asdict(line) for line in rates],
            "results": [asdict(one) for one in results],
        }
        write_json(options.json, figures)
    name = "offline stand-in, not a language model" * (options.model == "offline")
    title = (
        f"Ten questions within ε = {EPSILON:g}, δ = {DELTA:g} per person; "
        f"{name or options.model}"
    )
    if options.plot and not draw(options.plot, tables, results, runs, title):
        console.print("matplotlib is not installed: no picture.")


if __name__ == "__main__":
    main()
