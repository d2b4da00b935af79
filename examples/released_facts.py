"""Visit notes are read once, their facts released once, and asked for nothing.

    python examples/released_facts.py

The notes were written by a language model, and read by one: its recorded replies are
replayed, so that this runs without a key and shows what a real model reads.
"""

from __future__ import annotations

import tempfile
from operator import itemgetter
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableBranch, RunnablePassthrough

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.demo import RecordedReader, visit_note_schema, visit_notes
from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel
from langchain_dpicl.released import ReleasedCorpus
from langchain_dpicl.tabular import GDPTable, TextRows

PROMPT = ChatPromptTemplate.from_template(
    'Answer from the facts below. If they do not tell, answer "I don\'t know."\n\n'
    "Facts:\n{context}\n\nQuestion: {question}\nAnswer:"
)
WHOLE: Any = RunnablePassthrough()
QUESTIONS = [
    "Which side effect do patients on lisinopril report most?",
    "Which drug do patients with asthma take most?",
    "Which trigger do patients with hypertension name most?",
]


def texts(found: list[Document]) -> str:
    """Return the documents' texts alone."""
    return "\n\n".join(one.page_content for one in found)


def main() -> None:
    """Read, release, ask."""
    notes = visit_notes()
    rows = TextRows(notes, visit_note_schema(), RecordedReader(), unit_key="patient_id")
    forecast = rows.forecast(240, tokens_per_record=90, price_in=0.15, price_out=0.6)
    print(f"{len(notes)} notes, {forecast}.")

    once = PrivacyBudgetHandler(
        epsilon=3, delta=1e-5, queries=1, ledger=":memory:", account="facts"
    )
    table = GDPTable(
        rows,
        rows.schema,
        measure=[
            ("condition", "drug"),
            ("condition", "trigger"),
            ("drug", "side effect"),
        ],
        budget=once,
    )
    print(table.forecast(240))
    facts = table.documents(
        people="patients",
        phrases={"drug": "on {value}", "condition": "with {value}"},
        untold=["none", "unknown"],
    )

    # Any RAG chain can have them; this one pays for a question they don't tell.
    model = OfflineChatModel()  # your model
    groups = RetrievedGroups.from_documents(
        notes, HashingEmbeddings(), unit_key="patient_id", n_groups=60
    )
    paid = DPChain(groups=groups, model=model, parser=VoteOutputParser(labels="draft"))
    budget = PrivacyBudgetHandler(
        epsilon=5, delta=1e-5, queries=10, ledger=":memory:", account="questions"
    )
    known = {"context": facts.as_retriever(k=2) | texts, "question": WHOLE}
    chain = {"question": WHOLE, "answer": known | PROMPT | model} | RunnableBranch(
        (lambda x: "don't know" in x["answer"].text, itemgetter("question") | paid),
        itemgetter("answer"),
    )
    for question in QUESTIONS:
        answer = chain.invoke(question, config={"callbacks": [budget]})
        print(f"\n{question}\n  {answer.content}")
    print(
        f"\nFacts answered {len(QUESTIONS)} questions; the account of questions was "
        f"charged for {budget.spent().queries}."
    )

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "facts.json"
        facts.save(path)
        again = ReleasedCorpus.load(path, ledger=once.ledger)
        print(f"{len(again)} documents, saved, loaded, and confirmed by the ledger.")
    print(f"Spent: epsilon {once.spent().epsilon:.2f}, once, for all that is asked.")


if __name__ == "__main__":
    main()
