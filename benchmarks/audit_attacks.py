"""Four membership attacks on the demo's clinic: a plain RAG chain, and a private one.

Patients are put into the corpus or left out at random, so that members and others are
alike. One note of each is asked about. Target: an AUC of 0.9 and more on plain RAG; for
the private chain an interval that contains 0.5.

    python benchmarks/audit_attacks.py [--members 400] [--others 1000] [--quick]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import Runnable, RunnableLambda
from rich.console import Console
from rich.table import Table

from langchain_dpicl import (
    DPChain,
    ESAOutputParser,
    KSAJointOutputParser,
    KSAPTROutputParser,
    PrivacyBudgetHandler,
    RetrievedGroups,
)
from langchain_dpicl.audit import attack
from langchain_dpicl.audit.report import shown
from langchain_dpicl.cli.loading import load_model
from langchain_dpicl.common.prompts import (
    DOCUMENT_SEPARATOR,
    GROUP_PROMPT,
    SENTENCE_INSTRUCTIONS,
)
from langchain_dpicl.demo import clinic
from langchain_dpicl.demo.wording import CONDITIONS
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.parsers import DPOutputParser

PATIENTS = 2000  # Of the demo's corpus.
PER_PROMPT = 8
DOMAIN = sorted(
    {
        word
        for one in CONDITIONS
        for word in (one.name, one.topic, *one.drugs, *one.effects, *one.values)
    }
)
PARSERS: dict[str, Callable[[], DPOutputParser]] = {
    "ptr": KSAPTROutputParser,
    "joint": lambda: KSAJointOutputParser(domain=DOMAIN, k=5),
    "esa": lambda: ESAOutputParser(embedding=HashingEmbeddings(), min_score=-1),
}


def split(others: int, seed: int) -> tuple[list[Document], ...]:
    """Return the corpus, one note of each patient in it, and one of each other."""
    random = Random(seed)
    visits: dict[str, list[Document]] = {}
    for note in clinic(PATIENTS + others):
        visits.setdefault(note.metadata["patient_id"], []).append(note)
    notes = list(visits.values())
    random.shuffle(notes)
    inside, outside = notes[:PATIENTS], notes[PATIENTS:]
    corpus = [note for patient in inside for note in patient]
    return corpus, *([random.choice(p) for p in side] for side in (inside, outside))


def plain_chain(corpus: list[Document], model: Any) -> Runnable[str, str]:
    """Return the RAG chain that everybody writes."""
    embedding = HashingEmbeddings()
    texts = [note.page_content for note in corpus]
    vectors = np.asarray(embedding.embed_documents(texts), np.float32)

    def prompt(question: str) -> Any:
        near = np.argsort(vectors @ np.asarray(embedding.embed_query(question)))
        context = DOCUMENT_SEPARATOR.join(texts[at] for at in near[::-1][:PER_PROMPT])
        return GROUP_PROMPT.format_prompt(
            context=context,
            question=question,
            format_instructions=SENTENCE_INSTRUCTIONS,
        )

    rag: Runnable[str, str] = RunnableLambda(prompt) | model | StrOutputParser()
    return rag


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=400)
    parser.add_argument("--others", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", default="offline", help="or provider:name")
    parser.add_argument("--parser", default="ptr", choices=PARSERS)
    parser.add_argument("--quick", action="store_true", help="40 members and others")
    options = parser.parse_args()
    most = (40, 40) if options.quick else (options.members, options.others)
    corpus, inside, outside = split(most[1], options.seed)
    model = load_model(options.model)
    chain = DPChain(
        groups=RetrievedGroups.from_documents(
            corpus,
            HashingEmbeddings(),
            unit_key="patient_id",
            n_groups=options.groups,
            docs_per_group=PER_PROMPT,
        ),
        model=model,
        parser=PARSERS[options.parser](),
        budget=PrivacyBudgetHandler(
            epsilon=8, delta=1e-6, queries=20, ledger=":memory:"
        ),
    )
    report = attack(chain, inside[: most[0]], outside, plain=plain_chain(corpus, model))
    title = (
        f"{most[0]} members, {most[1]} others, {options.groups} groups, "
        f"parser {options.parser}"
    )
    table = Table(*report.columns, title=title)
    for row in report.rows:
        table.add_row(*map(shown, row))
    console = Console(width=160)
    console.print(table)
    console.print(report.summary)


if __name__ == "__main__":
    main()
