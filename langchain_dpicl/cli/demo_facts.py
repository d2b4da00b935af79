"""The last part of `dpicl demo`: facts that are paid for once and asked for nothing."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.cli.demo_output import COLORS, RIGHT, SILENT, WRONG
from langchain_dpicl.common.prompts import DOCUMENT_SEPARATOR, FACTS_PROMPT
from langchain_dpicl.common.replies import answer_of
from langchain_dpicl.demo import RecordedReader, visit_note_schema, visit_notes
from langchain_dpicl.parsers.reading.refusal import says_nothing
from langchain_dpicl.parsers.words import domain_places
from langchain_dpicl.released import ReleasedCorpus
from langchain_dpicl.tabular import GDPTable, TextRows

ACCOUNT = "visit-notes"
EPSILON, DELTA = 3.0, 1e-5
PAIRS = [("condition", "drug"), ("condition", "trigger"), ("drug", "side effect")]
ASIDE = ("none", "other", "unknown")
"""Values that are counted and no answer to these questions."""
QUESTIONS = {
    ("side effect", "drug", "on {} report"): ("lisinopril", "metformin", "sertraline"),
    ("drug", "condition", "with {} take"): ("migraine", "asthma", "depression"),
    ("trigger", "condition", "with {} name"): ("migraine", "asthma", "hypertension"),
}


def ask_facts(
    console: Console, options: argparse.Namespace, model: Any
) -> dict[str, Any]:
    """Release facts of the visit notes, once, and ask them; return a report."""
    budget = PrivacyBudgetHandler(
        epsilon=EPSILON, delta=DELTA, queries=1, ledger=options.ledger, account=ACCOUNT
    )
    rows = TextRows(
        visit_notes(),
        visit_note_schema(),
        RecordedReader(),
        unit_key="patient_id",
        progress=False,
    )
    table = GDPTable(rows, rows.schema, measure=PAIRS, budget=budget, progress=False)
    corpus = table.release(resume=True).documents(
        people="patients",
        phrases={"drug": "on {value}", "condition": "with {value}"},
        untold=ASIDE,
    )
    console.rule("[bold]Facts: paid for once, asked for nothing")
    console.print(
        f"{len(visit_notes())} visit notes that a language model wrote, each read once "
        "by another one, whose replies are recorded. One charge of epsilon "
        f"{EPSILON:g}, delta {DELTA:g} released {len(corpus)} documents."
    )
    retriever = corpus.as_retriever(k=2)

    def ask(question: str) -> str:
        found = DOCUMENT_SEPARATOR.join(
            one.page_content for one in retriever.invoke(question)
        )
        asked = FACTS_PROMPT.invoke({"context": found, "question": question})
        return answer_of(model.invoke(asked)).strip()

    answers = [
        _answered(ask, list(rows), of, by, how, value)
        for (of, by, how), values in QUESTIONS.items()
        for value in values
    ]
    shown = Table("", "answer from released facts", "")
    for one in answers:
        verdict = one["verdict"]
        mark = f"[{COLORS.get(verdict, 'yellow')}]{verdict}[/]"
        shown.add_row(escape(one["question"]), escape(one["answer"]), mark)
    console.print(shown)
    console.print(
        "Nothing was charged for the questions: ask the documents with any model, as "
        "often as you like. docs/guides/facts.md says how."
    )
    return {"account": budget.public_state(), "answers": answers, **_told(corpus)}


def _answered(
    ask: Callable[[str], str],
    rows: list[Any],
    of: str,
    by: str,
    how: str,
    value: str,
) -> dict[str, Any]:
    question = f"Which {of} do patients {how.format(value)} most?"
    answer = ask(question)
    counts = Counter(row[of] for row in rows if row[by] == value)
    ranked = [name for name, _ in counts.most_common() if name not in ASIDE]
    if "too close" in answer or "too small" in answer:
        verdict = "too close to tell"
    elif says_nothing(answer):
        verdict = SILENT
    else:
        verdict = RIGHT if 0 in domain_places([answer], ranked)[0] else WRONG
    return {"question": question, "answer": answer, "verdict": verdict}


def _told(corpus: ReleasedCorpus) -> dict[str, Any]:
    statuses = Counter(one.metadata["status"] for one in corpus)
    return {"documents": len(corpus), "statuses": dict(statuses)}
