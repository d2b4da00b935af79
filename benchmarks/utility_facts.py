"""What released facts tell of 240 visit notes, beside questions paid one by one.

The notes were written by a language model from sheets of facts, and models read them;
both are in the package. A table of three pairs is released from the readings; what the
counts and the documents say is compared with the sheets. No model is asked here.

    python benchmarks/utility_facts.py [--runs 200]

"One by one, at best" is an upper bound for a chain that asks groups: each of the people
concerned is a group alone, found without fail, and answers what the reading says; the
noise is that of a plan for so many questions.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Sequence
from math import sqrt
from random import Random
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.accounting import noise_multiplier
from langchain_dpicl.demo import RecordedReader, visit_note_schema, visit_notes
from langchain_dpicl.demo.visit_notes import visit_note_facts
from langchain_dpicl.mechanisms import lead_over_a_tie, least_votes
from langchain_dpicl.released import ReleasedCorpus
from langchain_dpicl.tabular import GDPTable, TextRows

DELTA = 1e-5
EPSILONS = (1.0, 3.0, 8.0)
ASIDE = ("none", "other", "unknown")
PAIRS = [("condition", "drug"), ("condition", "trigger"), ("drug", "side effect")]
_COUNTED = re.compile(r"([\w/ -]+?)(?: \(|: )about (\d+) ± (\d+)")

Row = dict[str, Any]
Question = tuple[str, str, str]
"""What is asked for, among people of which column's which value."""


def rows_read(replies: Any = "choice_card") -> tuple[TextRows, list[Row]]:
    reader = RecordedReader(replies=replies)
    rows = TextRows(
        visit_notes(),
        visit_note_schema(),
        reader,
        unit_key="patient_id",
        progress=False,
    )
    return rows, [dict(row) for row in rows]


def asked(rows: Sequence[Row]) -> list[Question]:
    """Return the questions that one value answers, of two people or more."""
    schema = visit_note_schema()
    ways = [
        ("drug", "condition"),
        ("trigger", "condition"),
        ("side effect", "drug"),
    ]
    all_of_them = [
        (of, by, value)
        for of, by in ways
        for value in schema.column(by).values  # type: ignore[union-attr]
    ]
    found = []
    for question in all_of_them:
        ranked = counted(rows, question).most_common(2)
        lead = ranked[0][1] - (ranked[1][1] if ranked[1:] else 0) if ranked else 0
        if lead > 0 and ranked[0][1] > 1:
            found.append(question)
    return found


def counted(rows: Sequence[Row], question: Question) -> Counter[str]:
    of, by, value = question
    told = (row[of] for row in rows if not by or row[by] == value)
    return Counter(one for one in told if str(one).casefold() not in ASIDE)


def released(rows: TextRows | Sequence[Row], schema: Any, epsilon: float) -> GDPTable:
    budget = PrivacyBudgetHandler(
        epsilon=epsilon, delta=DELTA, queries=1, ledger=":memory:"
    )
    return GDPTable(rows, schema, budget=budget, measure=PAIRS).release()


def first_of(table: GDPTable, question: Question) -> str:
    of, by, value = question
    ranked = table.statistics.counts(of, {by: value})
    return next(one for one, _ in ranked if str(one).casefold() not in ASIDE)


def stated(corpus: ReleasedCorpus, rows: Sequence[Row]) -> tuple[int, int]:
    """Return how many statements the documents make, and how many are not true."""
    told = wrong = 0
    for one in corpus:
        meta = one.metadata
        question = (meta["of"], meta["by"], meta["value"])
        full = Counter(
            row[meta["of"]]
            for row in rows
            if not meta["by"] or row[meta["by"]] == meta["value"]
        )
        for text, count, margin in _COUNTED.findall(one.page_content.split(", of ")[0]):
            names = [name for name in full if text.endswith(str(name))]
            true = full[max(names, key=len)] if names else 0
            told += 1
            wrong += abs(true - int(count)) > int(margin)
        if meta["status"] == "ranked":
            numbers = json.loads(meta["numbers"])
            ranked = [n for n in numbers if str(n).casefold() not in ASIDE]
            counts = counted(rows, question)
            told += 1
            wrong += counts[ranked[0]] < max(counts.values(), default=0)
    return told, wrong


def one_by_one(rows: Sequence[Row], questions: list[Question], total: int) -> Any:
    """Return right and wrong answers, of all, at each epsilon; see the module."""
    found = {}
    for epsilon in EPSILONS:
        sigma = noise_multiplier(epsilon, DELTA, uses=total)
        generator = np.random.default_rng(7)
        right = wrong = 0
        for question in questions:
            counts = counted(rows, question)
            labels = visit_note_schema().column(question[0]).values  # type: ignore[union-attr]
            named = [v for v in labels if str(v).casefold() not in ASIDE]
            exact = np.array([counts[v] for v in named], dtype=float)
            best = named[int(exact.argmax())]
            lead, least = lead_over_a_tie(sigma), least_votes(sigma, len(named))
            for _ in range(50):
                noisy = exact + generator.normal(0, sigma, len(named))
                second, first = np.sort(noisy)[-2:]
                if first >= least and first - max(second, 0) >= lead:
                    is_right = named[int(noisy.argmax())] == best
                    right, wrong = right + is_right, wrong + (not is_right)
        asked_times = 50 * len(questions)
        found[epsilon] = (right / asked_times, wrong / asked_times)
    return found


def attack(
    notes: Sequence[str], rows: Sequence[Row], schema: Any, epsilon: float, runs: int
) -> list[str]:
    """Return the AUC of two attacks that tell members of a release from others.

    Half of the people are released. *Likeness*: how near a person's note is to the
    nearest document. *Counting*: the sum of the z-scores of the released counts that
    the person would be in, for an attacker that knows the person's row.
    """
    random = Random(1)
    found: list[tuple[float, float]] = []
    for _ in range(runs):
        order = random.sample(range(len(rows)), len(rows))
        members = set(order[: len(rows) // 2])
        table = released([rows[n] for n in members], schema, epsilon)
        store = table.documents().as_vectorstore()
        tables = {pair: table.statistics.table(pair) for pair in PAIRS}
        like, count = [], []
        for note, row in zip(notes, rows, strict=True):
            ((_, score),) = store.similarity_search_with_score(note, k=1)
            like.append(score)
            count.append(sum(_z_score(row, one) for one in tables.values()))
        is_in = [n in members for n in range(len(rows))]
        found.append((_auc(like, is_in), _auc(count, is_in)))
    each = np.array(found)
    errors = 1.96 * each.std(axis=0) / sqrt(runs)
    return [
        f"{mean:.2f} ± {error:.2f}"
        for mean, error in zip(each.mean(axis=0), errors, strict=True)
    ]


def _z_score(row: Row, table: Any) -> float:
    place = tuple(
        values.index(row[name])
        for name, values in zip(table.columns, table.values, strict=True)
    )
    return float(table.noisy[place]) / table.noise


def _auc(scores: Sequence[float], is_in: Sequence[bool]) -> float:
    inside = np.array([s for s, yes in zip(scores, is_in, strict=True) if yes])
    outside = np.array([s for s, yes in zip(scores, is_in, strict=True) if not yes])
    wins = (inside[:, None] > outside).mean() + (inside[:, None] == outside).mean() / 2
    return float(wins)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    console = Console(width=140)
    rows, read = rows_read()
    facts = visit_note_facts()
    _compare_cells(console, read, rows_read("card")[1], facts)
    questions = asked(read)
    table = Table(box=box.MARKDOWN)
    for name in ("epsilon", "questions", "right, %", "right where the lead is 5, %"):
        table.add_column(name, justify="right")
    for name in ("statements", "not true, %", "right document, %"):
        table.add_column(name, justify="right")
    for name in ("AUC: likeness", "counting"):
        table.add_column(name, justify="right", no_wrap=True)
    for epsilon in EPSILONS:
        table.add_row(*_measured(rows, read, questions, epsilon, runs))
    console.print(table)
    beside = Table(box=box.MARKDOWN)
    beside.add_column("one by one, at best: right / wrong, %")
    for epsilon in EPSILONS:
        beside.add_column(f"epsilon {epsilon:g}", justify="right")
    for total in (20, 100, 1000):
        cells = [
            f"{100 * right:.0f} / {100 * wrong:.0f}"
            for right, wrong in one_by_one(read, questions, total).values()
        ]
        beside.add_row(f"{total} questions", *cells)
    console.print(beside)


def _measured(
    rows: TextRows,
    read: list[Row],
    questions: list[Question],
    epsilon: float,
    runs: int,
) -> list[str]:
    right = clear = clear_right = told = wrong = found = 0
    for _ in range(runs):
        table = released(rows, rows.schema, epsilon)
        corpus = table.documents(
            people="patients", phrases={"drug": "on {value}"}, untold=ASIDE
        )
        more, not_true = stated(corpus, read)
        told, wrong = told + more, wrong + not_true
        for question in questions:
            ranked = counted(read, question).most_common(2)
            is_right = first_of(table, question) == ranked[0][0]
            right += is_right
            if ranked[0][1] - (ranked[1][1] if ranked[1:] else 0) >= 5:
                clear, clear_right = clear + 1, clear_right + is_right
    retriever = corpus.as_retriever(k=1)
    for of, by, value in questions:
        who = f"on {value}" if by == "drug" else f"with {value}"
        (one,) = retriever.invoke(f"Which {of} do patients {who} have most?")
        meta = one.metadata
        found += (meta["of"], meta["by"], meta["value"]) == (of, by, value)
    notes = [note.page_content for note in visit_notes()]
    every = runs * len(questions)
    return [
        f"{epsilon:g}",
        str(len(questions)),
        f"{100 * right / every:.0f}",
        f"{100 * clear_right / clear:.0f}",
        str(told // runs),
        f"{100 * wrong / told:.1f}",
        f"{100 * found / len(questions):.0f}",
        *attack(notes, read, rows.schema, epsilon, max(runs // 5, 2)),
    ]


def _compare_cells(
    console: Console, choice: list[Row], words: list[Row], facts: Any
) -> None:
    table = Table(box=box.MARKDOWN)
    table.add_column("cells as in the facts, %")
    for name in ("condition", "drug", "side effect"):
        table.add_column(name, justify="right")
    ids = [note.metadata["patient_id"] for note in visit_notes()]
    for title, rows in (("chosen from values", choice), ("own words", words)):
        cells = []
        for name in ("condition", "drug", "side effect"):
            true = [facts[one][name.replace(" ", "_")] for one in ids]
            same = sum(row[name] == fact for row, fact in zip(rows, true, strict=True))
            cells.append(f"{100 * same / len(ids):.1f}")
        table.add_row(title, *cells)
    console.print(table)


if __name__ == "__main__":
    main()
