"""Both ledgers keep the same promises; these tests run on each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from langchain_dpicl.accounting import DeltaEvent, ExponentialEvent, GaussianEvent
from langchain_dpicl.exceptions import (
    BudgetExhaustedError,
    LedgerError,
    PlanMismatchError,
)
from langchain_dpicl.ledger import (
    AccountTerms,
    Ledger,
    MemoryLedger,
    Plan,
    SQLLedger,
    open_ledger,
)

TERMS = AccountTerms("notes", 8.0, 1e-6, 5)
PLAN = Plan({"parts": []}, (GaussianEvent(1 / 3), DeltaEvent(1e-9)))


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    if request.param == "memory":
        yield MemoryLedger()
        return
    ledger = SQLLedger(f"sqlite:///{tmp_path / 'ledger.db'}")
    yield ledger
    ledger.dispose()


def opened(ledger: Ledger, plan: Plan = PLAN) -> Ledger:
    ledger.open(TERMS)
    ledger.fix_plan("notes", plan)
    return ledger


def test_charges_are_numbered_and_carry_the_plans_events(ledger: Ledger) -> None:
    opened(ledger)
    charges = [ledger.charge("notes") for _ in range(3)]
    assert [charge.sequence for charge in charges] == [1, 2, 3]
    assert all(charge.events == PLAN.events for charge in charges)
    assert ledger.state("notes").used == 3
    assert [record.charge for record in ledger.charges("notes")] == charges


def test_the_last_query_is_the_last(ledger: Ledger) -> None:
    opened(ledger)
    for _ in range(5):
        ledger.charge("notes")
    with pytest.raises(BudgetExhaustedError, match="all 5 queries"):
        ledger.charge("notes")
    assert ledger.state("notes").used == 5


def test_a_plan_is_fixed_once(ledger: Ledger) -> None:
    opened(ledger)
    other = Plan({"parts": ["other"]}, (ExponentialEvent(1.0),))
    assert ledger.fix_plan("notes", other) == PLAN
    assert ledger.state("notes").plan == PLAN


@pytest.mark.parametrize(
    ("terms", "named"),
    [
        (AccountTerms("notes", 9.0, 1e-6, 5), "epsilon is 8.0, not 9.0"),
        (AccountTerms("notes", 8.0, 1e-7, 5), "delta"),
        (AccountTerms("notes", 8.0, 1e-6, 6), "queries is 5, not 6"),
    ],
)
def test_other_terms_are_refused(
    ledger: Ledger, terms: AccountTerms, named: str
) -> None:
    ledger.open(TERMS)
    with pytest.raises(PlanMismatchError, match=named):
        ledger.open(terms)


def test_no_charge_without_a_plan(ledger: Ledger) -> None:
    ledger.open(TERMS)
    with pytest.raises(LedgerError, match="no plan"):
        ledger.charge("notes")


def test_a_closed_account_pays_for_nothing(ledger: Ledger) -> None:
    opened(ledger).close_account("notes")
    with pytest.raises(LedgerError, match="closed"):
        ledger.charge("notes")
    assert ledger.open(TERMS).closed


@pytest.mark.parametrize(
    "call",
    [
        lambda ledger: ledger.charge("other"),
        lambda ledger: ledger.state("other"),
        lambda ledger: ledger.charges("other"),
        lambda ledger: ledger.close_account("other"),
        lambda ledger: ledger.fix_plan("other", PLAN),
    ],
)
def test_an_unknown_account_is_an_error(
    ledger: Ledger, call: Callable[[Ledger], object]
) -> None:
    opened(ledger)
    with pytest.raises(LedgerError, match="no account 'other'"):
        call(ledger)


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "x" * 201, 3, None])
def test_odd_names_are_refused(ledger: Ledger, name: str) -> None:
    with pytest.raises(LedgerError, match="name"):
        ledger.open(AccountTerms(name, 8.0, 1e-6, 5))


def test_accounts_are_listed_and_separate(ledger: Ledger) -> None:
    opened(ledger)
    ledger.open(AccountTerms("another \N{GREEK SMALL LETTER EPSILON}", 1.0, 1e-6, 1))
    ledger.charge("notes")
    assert ledger.accounts() == ["another \N{GREEK SMALL LETTER EPSILON}", "notes"]
    assert ledger.state("another \N{GREEK SMALL LETTER EPSILON}").used == 0


def test_threads_never_overspend(ledger: Ledger) -> None:
    ledger.open(AccountTerms("busy", 8.0, 1e-6, 40))
    ledger.fix_plan("busy", PLAN)
    paid: list[int] = []
    refused: list[Exception] = []

    def spend() -> None:
        for _ in range(10):
            try:
                paid.append(ledger.charge("busy").sequence)
            except BudgetExhaustedError as error:
                refused.append(error)

    threads = [threading.Thread(target=spend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(paid) == list(range(1, 41))
    assert len(refused) == 40


def test_open_ledger_takes_urls_ledgers_and_memory(tmp_path: Path) -> None:
    ledger = MemoryLedger()
    assert open_ledger(ledger) is ledger
    assert isinstance(open_ledger(":memory:"), MemoryLedger)
    sql = open_ledger(f"sqlite:///{tmp_path / 'x.db'}")
    assert isinstance(sql, SQLLedger)
    sql.dispose()


@pytest.mark.parametrize("value", [None, "", "clinic.db", 3, "sqlite://"])
def test_open_ledger_refuses_what_keeps_nothing(value: object) -> None:
    with pytest.raises(LedgerError):
        open_ledger(value)


def test_answers_are_kept_beside_the_charges(ledger: Ledger) -> None:
    opened(ledger)
    assert ledger.stored_answer("notes", "key") is None
    ledger.store_answer("notes", "key", "first")
    ledger.store_answer("notes", "key", "second")
    assert ledger.stored_answer("notes", "key") == "first"
    ledger.open(AccountTerms("other", 1.0, 1e-6, 1))
    assert ledger.stored_answer("other", "key") is None
    with pytest.raises(LedgerError, match="unknown"):
        ledger.stored_answer("unknown", "key")
