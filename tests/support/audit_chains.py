"""Small chains whose every answer is known, for the tests of audits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.documents import Document

from langchain_dpicl import DPChain, PrivacyBudgetHandler, RetrievedGroups
from langchain_dpicl.groups.base import RetrievalTerms
from langchain_dpicl.groups.index import ShardIndex
from langchain_dpicl.groups.records import embed_documents, read_documents
from langchain_dpicl.offline import HashingEmbeddings
from support.fakes import ScriptedModel
from support.groups_fakes import SALT

QUESTIONS = ["What did lisinopril give?", "Which side effect was seen?"]
EMBEDDING = HashingEmbeddings()


def people(count: int = 12) -> list[Document]:
    """Return two notes of each person: one in three has a rash."""
    return [
        Document(
            f"Lisinopril gave a {'rash' if i % 3 == 0 else 'cough'}, visit {visit}.",
            metadata={"patient": f"unit-{i}"},
        )
        for i in range(count)
        for visit in range(2)
    ]


def majority(text: str) -> str:
    """Say what most notes of a prompt say."""
    return "cough" if text.count("a cough") > text.count("a rash") else "rash"


def groups_of(
    documents: Sequence[Document],
    kind: type[RetrievedGroups] = RetrievedGroups,
    embedding: Any = EMBEDDING,
    **terms: Any,
) -> RetrievedGroups:
    """Return groups with the same salt every time."""
    given: dict[str, Any] = {
        "unit_key": "patient",
        "n_groups": 4,
        "docs_per_group": 3,
        "score_threshold": None,
        **terms,
    }
    checked = RetrievalTerms(**given)
    lines, units = read_documents(documents, "patient")
    rows = embed_documents(embedding, lines, units)
    index = ShardIndex.of(rows, n_shards=checked.n_groups, salt=SALT)
    return kind(checked, embedding, index)


def chain_of(
    parser: Any,
    groups: RetrievedGroups | None = None,
    model: Any = None,
    *,
    epsilon: float = 8.0,
    queries: int = 2,
    **more: Any,
) -> DPChain:
    """Return a chain with an account of its own."""
    budget = PrivacyBudgetHandler(
        epsilon=epsilon, delta=1e-6, queries=queries, ledger=":memory:"
    )
    given = {"budget": budget, **more}
    return DPChain(
        groups=groups or groups_of(people()),
        model=model or ScriptedModel(reply=majority),
        parser=parser,
        **given,
    )
