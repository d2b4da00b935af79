"""Charges of disjoint classes: written, read back, verified, and not to be edited."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from langchain_dpicl.accounting import Failure, Gaussian, Parallel
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    LedgerError,
    PlanMismatchError,
)
from langchain_dpicl.ledger import AccountTerms, Ledger, Plan, SQLLedger

RARE = (
    Gaussian(noise_multiplier=8.0, sampling_rate=0.9, count=15),
    Failure(delta0=1e-9, count=15),
)
COMMON = (
    Gaussian(noise_multiplier=1.25, sampling_rate=0.0625, count=15),
    Failure(delta0=1e-10, count=15),
)
LABELS = Parallel(branches=(RARE, COMMON, COMMON), partition="topic")
OTHERS = Parallel(branches=(COMMON, COMMON), count=2)

PLANNED = AccountTerms("shots", 8.0, 1e-4, 3)
FILTERED = AccountTerms(
    "shots", 20.0, 1e-4, accounting="renyi", order=4.0, delta0_share=0.25
)
TERMS = [PLANNED, FILTERED]


def spend(ledger: Ledger, terms: AccountTerms, times: int = 2) -> None:
    ledger.open(terms)
    if terms is PLANNED:
        ledger.fix_plan("shots", Plan({"disjoint": True}, (LABELS,)))
    for _ in range(times):
        ledger.charge("shots", None if terms is PLANNED else (LABELS,))


@pytest.mark.parametrize("terms", TERMS, ids=["plan", "filter"])
def test_it_comes_back_as_it_was_charged(ledger: Ledger, terms: AccountTerms) -> None:
    spend(ledger, terms)
    records = ledger.charges("shots")
    assert [record.charge.events for record in records] == [(LABELS,)] * 2
    state = ledger.verify("shots")
    assert state.used == 2
    if terms.filter is not None:
        cost = terms.filter.cost((LABELS,))
        assert state.spent == (2 * cost.loss, 2 * cost.failure)
        ledger.charge("shots", (OTHERS, Gaussian(noise_multiplier=20.0)))
        ledger.verify("shots")
        return
    assert state.plan is not None
    assert state.plan.events == (LABELS,)
    with pytest.raises(PlanMismatchError):
        ledger.charge("shots", (Parallel(branches=LABELS.branches),))
    ledger.charge("shots")
    with pytest.raises(BudgetExhaustedError):
        ledger.charge("shots")


def test_a_filter_charges_the_dearest_class_and_no_more(ledger: Ledger) -> None:
    found = FILTERED.filter
    assert found is not None
    spend(ledger, FILTERED, times=0)
    charge = ledger.charge("shots", (LABELS,))
    assert charge.cost.loss == max(found.cost(x).loss for x in (RARE, COMMON))
    assert charge.cost.failure == found.cost(RARE).failure


EDITS = {
    "less noise, in the journal": "UPDATE dpicl_charge SET events = "
    "replace(events, '1.25', '9.25') WHERE sequence = 2",
    "a class less": "UPDATE dpicl_charge SET events = "
    "replace(events, '\"sampling_rate\": 0.9', '\"sampling_rate\": 0.1') "
    "WHERE sequence = 2",
    "another rule": "UPDATE dpicl_charge SET events = "
    "replace(events, 'topic', 'age') WHERE sequence = 1",
    "one inside another": "UPDATE dpicl_charge SET events = "
    'replace(events, \'"kind": "gaussian"\', \'"kind": "parallel"\') '
    "WHERE sequence = 1",
    "a smaller cost": "UPDATE dpicl_charge SET cost_loss = cost_loss - 1 "
    "WHERE sequence = 2",
    "fewer uses": "UPDATE dpicl_charge SET events = "
    "replace(events, '\"count\": 15', '\"count\": 1') WHERE sequence = 1",
}


@pytest.mark.parametrize("terms", TERMS, ids=["plan", "filter"])
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_found(tmp_path: Path, terms: AccountTerms, edit: str) -> None:
    def read() -> SQLLedger:
        opened.append(SQLLedger(f"sqlite:///{path}"))
        return opened[-1]

    path, opened = tmp_path / "ledger.db", list[SQLLedger]()
    spend(read(), terms)
    assert read().verify("shots").used == 2
    with closing(sqlite3.connect(path)) as database:
        assert database.execute(EDITS[edit]).rowcount == 1
        database.commit()
    uses: list[Callable[[], object]] = [
        lambda: read().verify("shots"),
        lambda: read().open(terms),
    ]
    for use in uses:
        with pytest.raises(LedgerError, match="charge"):
            use()
    for ledger in opened:
        ledger.dispose()


def test_an_edited_plan_is_found(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    ledger = SQLLedger(f"sqlite:///{path}")
    spend(ledger, PLANNED)
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE dpicl_account SET plan = replace(plan, '8.0', '1.0')")
        database.commit()
    with pytest.raises(LedgerError):
        ledger.verify("shots")
    with pytest.raises(LedgerError):
        ledger.charge("shots")
    ledger.dispose()
