"""What released facts tell of 240 visit notes, beside questions paid one by one.

The notes were written by a language model from sheets of facts, and models read them;
both are in the package (`langchain_dpicl.demo`). A table of three pairs is released
from the readings, and what its counts and documents say is compared with them. With
`--model` that model reads the notes; else the recorded readings count.

"One by one" is an upper bound for a chain that asks groups: each of the people
concerned is a group alone, found without fail, and answers what the reading says.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from benchmarks.common import (
    Options,
    Relation,
    Scripted,
    Slots,
    account,
    table,
)
from langchain_dpicl import DPChain, VoteOutputParser
from langchain_dpicl.demo import (
    RecordedReader,
    visit_note_schema,
    visit_notes,
)
from langchain_dpicl.tabular import GDPTable, TextRows

DELTA, EPSILONS = 1e-5, (1.0, 3.0, 8.0)
ASIDE = ("none", "other", "unknown")
PAIRS = [("condition", "drug"), ("condition", "trigger"), ("drug", "side effect")]
WAYS = [("drug", "condition"), ("trigger", "condition"), ("side effect", "drug")]
COUNTED = re.compile(r"([\w/ -]+?)(?: \(|: )about (\d+) ± (\d+)")

Row = dict[str, Any]
Question = tuple[str, str, str]
"""What is asked for, among people of which column's which value."""


def counted(rows: Sequence[Row], question: Question) -> Counter[str]:
    """Return how many of the people concerned say what, those who say nothing aside."""
    of, by, value = question
    said = (str(row[of]) for row in rows if not by or row[by] == value)
    return Counter(one for one in said if one.casefold() not in ASIDE)


def lead(rows: Sequence[Row], question: Question) -> int:
    first, second, *_ = [*(n for _, n in counted(rows, question).most_common(2)), 0, 0]
    return first - second


def questions_of(rows: Sequence[Row]) -> list[Question]:
    """Return the questions that one value answers, of two people or more."""
    schema: Any = visit_note_schema()
    every = [(of, by, value) for of, by in WAYS for value in schema.column(by).values]
    return [
        q for q in every if lead(rows, q) > 0 and max(counted(rows, q).values()) > 1
    ]


def right_answer(rows: Sequence[Row], question: Question) -> str:
    return counted(rows, question).most_common(1)[0][0]


def statements(corpus: Any, rows: Sequence[Row]) -> tuple[int, int]:
    """Return how many counts the documents state, and how many miss by their margin."""
    stated = wrong = 0
    for document in corpus:
        meta = document.metadata
        concerned = [
            r for r in rows if not meta["by"] or r[meta["by"]] == meta["value"]
        ]
        true = Counter(str(row[meta["of"]]) for row in concerned)
        text = document.page_content.split(", of ")[0]
        for words, count, margin in COUNTED.findall(text):
            names = [name for name in true if words.endswith(name)]
            exact = true[max(names, key=len)] if names else 0
            stated += 1
            wrong += abs(exact - int(count)) > int(margin)
    return stated, wrong


def released(rows: Any, read: list[Row], epsilon: float, runs: int) -> list[str]:
    """Return a line of figures: what the facts of one epsilon tell."""
    questions = questions_of(read)
    clear = [question for question in questions if lead(read, question) >= 5]
    right, stated, wrong, found = Counter[Question](), 0, 0, 0
    for _ in range(runs):
        facts = GDPTable(
            rows, rows.schema, budget=account(epsilon, DELTA), measure=PAIRS
        ).release()
        corpus = facts.documents(
            people="patients", phrases={"drug": "on {value}"}, untold=ASIDE
        )
        more, missed = statements(corpus, read)
        stated, wrong = stated + more, wrong + missed
        for question in questions:
            of, by, value = question
            ranked = facts.statistics.counts(of, {by: value})
            first = next(v for v, _ in ranked if str(v).casefold() not in ASIDE)
            right[question] += first == right_answer(read, question)
        retriever = corpus.as_retriever(k=1)
        for of, by, value in questions:
            who = f"on {value}" if by == "drug" else f"with {value}"
            (one,) = retriever.invoke(f"Which {of} do patients {who} have most?")
            meta = one.metadata
            found += (meta["of"], meta["by"], meta["value"]) == (of, by, value)
    share = 100 / runs
    return [
        f"{epsilon:g}",
        f"{share * right.total() / len(questions):.0f}",
        f"{share * sum(right[q] for q in clear) / len(clear):.0f}",
        f"{stated / runs:.0f}",
        f"{100 * wrong / max(stated, 1):.1f}",
        f"{share * found / len(questions):.0f}",
    ]


def one_by_one(read: list[Row], epsilon: float, total: int, runs: int) -> str:
    """Return right and wrong answers to the same questions, asked of a chain."""
    schema: Any = visit_note_schema()
    questions = questions_of(read)
    right = wrong = 0
    for question in questions:
        of, by, value = question
        said = [str(row[of]) for row in read if row[by] == value]
        labels = [v for v in schema.column(of).values if v.casefold() not in ASIDE]

        def reply(prompt: str, said: list[str] = said) -> str:
            found = re.search(r"group (\d+)", prompt)
            return said[int(found[1])] if found else "I don't know."

        chain = DPChain(
            groups=Slots(len(said), Relation.ADD_REMOVE),
            model=Scripted(said=reply),
            parser=VoteOutputParser(labels=labels),
            cache=False,
        )
        budget = account(epsilon, DELTA, queries=total)
        for _ in range(min(runs, total)):
            answer: Any = chain.invoke("Which?", {"callbacks": [budget]})
            if answer.response_metadata["privacy"]["status"] == "released":
                is_right = answer.text == right_answer(read, question)
                right, wrong = right + is_right, wrong + (not is_right)
    every = len(questions) * min(runs, total)
    return f"{100 * right / every:.0f} / {100 * wrong / every:.0f}"


def run(options: Options) -> None:
    """Print what facts tell, and what questions one by one would."""
    runs = 2 if options.quick else 50
    is_recorded = options.model == "offline"
    reader: Any = (
        RecordedReader(replies="choice_card") if is_recorded else options.chat()
    )
    if is_recorded:
        print("Readings of a language model, recorded; no model is asked.")
    rows = TextRows(
        visit_notes(),
        visit_note_schema(),
        reader,
        unit_key="patient_id",
        progress=False,
    )
    read = [dict(row) for row in rows]
    count = len(questions_of(read))
    heads = ("ε", "right, %", "where the lead is 5, %", "statements", "not true, %")
    rows_of = [released(rows, read, epsilon, runs) for epsilon in EPSILONS]
    title = f"{count} questions to facts released once; {runs} runs, delta {DELTA:g}"
    table(title, (*heads, "right document, %"), rows_of)
    few = 2 if options.quick else 10
    table(
        "The same questions one by one, at best: right / wrong, %",
        ("planned for", *(f"ε = {epsilon:g}" for epsilon in EPSILONS)),
        [
            [f"{n} questions", *(one_by_one(read, e, n, few) for e in EPSILONS)]
            for n in (20, 100)
        ],
    )
