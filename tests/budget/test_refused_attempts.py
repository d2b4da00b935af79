"""A corpus's cap after attempts that were refused: its room is what it was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.corpora import CLINIC, clock_for

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    DPError,
    InvalidParameterError,
    LedgerError,
    PlanMismatchError,
)
from langchain_dpicl.ledger import Ledger, open_ledger
from langchain_dpicl.mechanisms import voting

VOTE = voting.charge(name="vote")
TOO_DEAR = voting.charge(name="vote", noise_multiplier=0.01)
KEY: dict[str, Any] = {"unit_key": "patient"}
WHOLE: dict[str, Any] = {"epsilon": 24, "delta": 3e-6, "queries": 5}
Attempt = Callable[[Callable[..., PrivacyBudgetHandler]], Any]


@pytest.fixture(params=["memory", "sqlite"])
def ledger(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Ledger:
    clock_for(monkeypatch, "2026-12-10")
    kept = {"memory": ":memory:", "sqlite": f"sqlite:///{tmp_path}/ledger.db"}
    return open_ledger(kept[request.param])


ATTEMPTS: dict[str, tuple[type[DPError], Attempt]] = {
    "another unit": (
        PlanMismatchError,
        lambda opened: opened().charge(VOTE, unit_key="doctor"),
    ),
    "no unit": (PlanMismatchError, lambda opened: opened().charge(VOTE)),
    "no release": (InvalidParameterError, lambda opened: opened().charge("vote")),
    "too little noise": (
        PlanMismatchError,
        lambda opened: opened().charge(TOO_DEAR, **KEY),
    ),
    "more than all of it": (
        BudgetExhaustedError,
        lambda opened: opened(accounting="renyi").charge(TOO_DEAR, **KEY),
    ),
    "a period to come": (
        BudgetExhaustedError,
        lambda opened: opened(period="2027-03").charge(VOTE, **KEY),
    ),
    "unnamed units": (
        InvalidParameterError,
        lambda opened: opened(scope="unit").charge(VOTE, salt="aa", **KEY),
    ),
    "no salt": (
        InvalidParameterError,
        lambda opened: opened(scope="unit").charge(VOTE, charges_units=True, **KEY),
    ),
    "a closed account": (LedgerError, lambda opened: _closed(opened())),
}


def _closed(budget: PrivacyBudgetHandler) -> None:
    budget.ledger.close_account(budget.account)
    budget.charge(VOTE, **KEY)


@pytest.mark.parametrize("kind", ATTEMPTS)
def test_a_refused_attempt_leaves_the_whole_room_to_another_account(
    ledger: Ledger, kind: str
) -> None:
    error, attempt = ATTEMPTS[kind]

    def opened(**terms: Any) -> PrivacyBudgetHandler:
        given = {**WHOLE, "ledger": ledger, "corpus": CLINIC, **terms}
        return PrivacyBudgetHandler(**given)

    with pytest.raises(error):
        attempt(opened)
    assert ledger.corpus("clinic").committed == (0.0, 0.0)
    other = opened(account="other")
    assert other.charge(VOTE, **KEY).sequence == 1
    assert ledger.corpus("clinic").committed == (24.0, 3e-6)
    # What was refused finds no room from now on, and says so before it is asked.
    with pytest.raises(BudgetExhaustedError, match=r"'third' .* has no room"):
        opened(account="third")


def test_an_open_account_without_room_can_afford_nothing(ledger: Ledger) -> None:
    first, second = (
        PrivacyBudgetHandler(**WHOLE, ledger=ledger, corpus=CLINIC, account=name)
        for name in ("first", "second")
    )
    assert first.can_afford(VOTE)
    second.charge(VOTE, **KEY)
    assert not first.can_afford()
    for ask in (first.require_payable, lambda asked: first.charge(asked, **KEY)):
        with pytest.raises(BudgetExhaustedError, match=r"'first' .* has no room"):
            ask(VOTE)
    assert second.can_afford(VOTE)


def test_an_account_above_the_cap_creates_no_corpus(ledger: Ledger) -> None:
    small = replace(CLINIC, epsilon=8.0)
    for terms in (WHOLE, {**WHOLE, "epsilon": 4, "purpose": "a\nb"}):
        with pytest.raises((BudgetExhaustedError, LedgerError)):
            PrivacyBudgetHandler(**terms, ledger=ledger, corpus=small)
    assert ledger.corpora() == []
    assert ledger.accounts() == []
    assert PrivacyBudgetHandler(**WHOLE, ledger=ledger, corpus=CLINIC)
