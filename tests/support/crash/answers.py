"""A service that answers questions, as the crash tests start and kill it."""

from __future__ import annotations

import functools
from typing import Any

from langchain_core.documents import Document

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.errors import BudgetExhaustedError
from langchain_dpicl.ledger import SQLLedger
from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel
from support.crash.nursery import Log
from support.crash.workers import Lives

QUESTION = "Which side effect did patients on lisinopril have?"
ACCOUNT = "service"
EPSILON, QUERIES = 500, 10_000


def warm_up() -> None:
    """Load what an answer needs, once."""
    budget = PrivacyBudgetHandler(epsilon=8, delta=1e-6, queries=1, ledger=":memory:")
    _chain().invoke(QUESTION, {"callbacks": [budget]})


@functools.cache
def _chain() -> DPChain:
    notes = [
        Document(
            f"The side effect of lisinopril was a cough. Note {i}.",
            metadata={"patient": f"unit-{i}"},
        )
        for i in range(60)
    ]
    groups = RetrievedGroups.from_documents(
        notes, HashingEmbeddings(), unit_key="patient", n_groups=12
    )
    parser = VoteOutputParser(labels=["cough", "rash"])
    return DPChain(groups=groups, model=OfflineChatModel(), parser=parser)


def answer_questions(log: Log, parent_lives: Lives, *, url: str) -> None:
    """Answer the same question again and again, and announce every answer."""
    budget = PrivacyBudgetHandler(
        epsilon=EPSILON,
        delta=1e-6,
        queries=QUERIES,
        ledger=SQLLedger(url),
        account=ACCOUNT,
    )
    config: Any = {"callbacks": [budget]}
    while parent_lives():
        try:
            message = _chain().invoke(QUESTION, config)
        except BudgetExhaustedError:
            log.write(end=ACCOUNT)
            return
        record = message.response_metadata["privacy"]
        log.write(
            account=ACCOUNT,
            sequence=record["charge"],
            events=record["events"],
            answer=str(message.content),
            status=record["status"],
        )
