"""Handlers with a corpus, a period, a purpose, and a function for a low balance."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from support.corpora import CLINIC, Clock, clock_for

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    LedgerError,
    PlanMismatchError,
)
from langchain_dpicl.ledger import MemoryLedger, SQLLedger
from langchain_dpicl.mechanisms import voting

VOTE = voting.charge(name="vote")
TERMS: dict[str, Any] = {"epsilon": 8, "delta": 1e-6, "queries": 10}


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return clock_for(monkeypatch, "2026-12-10")


@pytest.fixture
def ledger(clock: Clock) -> MemoryLedger:
    assert clock
    return MemoryLedger()


def handler(ledger: Any, **arguments: Any) -> PrivacyBudgetHandler:
    given = {**TERMS, "corpus": CLINIC, "period": "2026-12", **arguments}
    return PrivacyBudgetHandler(ledger=ledger, **given)


def test_the_first_handler_creates_the_corpus_and_names_its_account(
    ledger: MemoryLedger,
) -> None:
    with pytest.raises(LedgerError, match="holds no corpus 'clinic'"):
        handler(ledger, corpus="clinic")
    first = handler(ledger, purpose="audit of wait times")
    assert first.account == "clinic/2026-12"
    assert "corpus='clinic', period='2026-12'" in repr(first)
    assert ledger.state(first.account).terms.purpose == "audit of wait times"
    again = handler(ledger, corpus="clinic", purpose="audit of wait times")
    assert again.account == first.account
    assert handler(ledger, corpus="clinic", period=None).account == "clinic"
    assert handler(ledger, account="mine").account == "mine"
    assert PrivacyBudgetHandler(ledger=ledger, **TERMS).account == "default"


def test_a_handler_is_refused_what_its_corpus_has_no_room_for(
    ledger: MemoryLedger,
) -> None:
    for number in range(3):
        handler(ledger, account=f"account {number}").charge(VOTE, **KEY)
    with pytest.raises(BudgetExhaustedError, match="corpus 'clinic' has a cap"):
        handler(ledger)


def test_a_handler_pays_for_its_unit_in_its_period(
    ledger: MemoryLedger, clock: Clock
) -> None:
    budget = handler(ledger)
    with pytest.raises(PlanMismatchError, match="protects 'patient'"):
        budget.charge(VOTE, unit_key="doctor")
    assert budget.can_afford(VOTE)
    assert budget.charge(VOTE, unit_key="patient").sequence == 1
    clock.set("2027-01-01")
    assert not budget.can_afford()
    assert not budget.can_afford(VOTE)
    for ask in (budget.require_payable, budget.charge):
        with pytest.raises(BudgetExhaustedError, match="is over"):
            ask(VOTE, **({} if ask == budget.require_payable else KEY))


KEY: dict[str, Any] = {"unit_key": "patient"}


def test_a_per_unit_account_of_a_corpus_wants_one_salt(ledger: MemoryLedger) -> None:
    budget = handler(ledger, scope="unit")
    named = {**KEY, "charges_units": True}
    with pytest.raises(InvalidParameterError, match="no salt"):
        budget.charge(VOTE, **named)
    # What is refused binds the account to nothing.
    with pytest.raises(PlanMismatchError):
        budget.charge(VOTE, charges_units=True, salt="bb", unit_key="doctor")
    budget.charge(VOTE, salt="aa", **named)
    with pytest.raises(PlanMismatchError, match="another salt"):
        budget.charge(VOTE, salt="bb", **named)
    alone = PrivacyBudgetHandler(ledger=ledger, scope="unit", **TERMS)
    alone.charge(VOTE, salt="aa", **named)
    alone.charge(VOTE, salt="bb", **named)


def test_a_handler_travels_with_its_corpus(clock: Clock, tmp_path: Path) -> None:
    assert clock
    ledger = SQLLedger(f"sqlite:///{tmp_path / 'ledger.db'}")
    budget = handler(ledger)
    there = pickle.loads(pickle.dumps(budget))
    assert there.charge(VOTE, **KEY).sequence == 1
    assert there.account == "clinic/2026-12"
    rehearsal = budget.in_memory()
    assert rehearsal.charge(VOTE, **KEY).sequence == 1
    assert rehearsal.ledger.corpora() == []
    there.ledger.dispose()
    ledger.dispose()
