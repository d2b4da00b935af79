"""A per-unit account of a corpus stays with one dealing of units to groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.errors import InvalidParameterError, PlanMismatchError
from langchain_dpicl.groups import GroupSource
from langchain_dpicl.groups.units import salt_fingerprint
from langchain_dpicl.ledger import CorpusTerms, MemoryLedger
from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel

CLINIC = CorpusTerms("clinic", "patient", epsilon=30, delta=3e-6)
QUESTION = "Which side effect of lisinopril?"


def groups() -> RetrievedGroups:
    documents = [
        Document("Side effect of lisinopril: cough.", metadata={"patient": f"p{i}"})
        for i in range(100)
    ]
    return RetrievedGroups.from_documents(
        documents,
        HashingEmbeddings(),
        unit_key="patient",
        n_groups=20,
        docs_per_group=2,
        score_threshold=0.1,
    )


def chain(source: GroupSource) -> Any:
    parser = VoteOutputParser(labels=["cough", "nausea"])
    return DPChain(groups=source, model=OfflineChatModel(), parser=parser)


def account(ledger: MemoryLedger, **terms: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"epsilon": 8, "delta": 1e-6, "queries": 9, **terms}
    budget = PrivacyBudgetHandler(ledger=ledger, corpus=CLINIC, **given)
    return {"callbacks": [budget]}


def test_a_per_unit_account_refuses_groups_that_were_dealt_anew(tmp_path: Path) -> None:
    ledger = MemoryLedger()
    budget = account(ledger, scope="unit")
    first = groups()
    chain(first).invoke(QUESTION, budget)
    assert ledger.state("clinic").salt == salt_fingerprint(first._index.salt)
    first.save(tmp_path / "index")
    same = RetrievedGroups.load(tmp_path / "index", HashingEmbeddings())
    chain(same).invoke(QUESTION, budget)
    with pytest.raises(PlanMismatchError, match="another salt"):
        chain(groups()).invoke(QUESTION, budget)
    assert ledger.state("clinic").used == 2


def test_an_account_of_everybody_takes_groups_of_any_salt() -> None:
    ledger = MemoryLedger()
    budget = account(ledger)
    for _ in range(2):
        chain(groups()).invoke(QUESTION, budget)
    assert ledger.state("clinic").used == 2
    assert ledger.state("clinic").salt is None


def test_a_source_without_a_salt_can_not_be_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RetrievedGroups, "salt_fingerprint", None)
    ledger = MemoryLedger()
    with pytest.raises(InvalidParameterError, match="no salt"):
        chain(groups()).invoke(QUESTION, account(ledger, scope="unit"))
    assert ledger.state("clinic").used == 0
