"""All ledgers keep the same promises; these tests run on each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.ledgers import (
    ALL_TERMS,
    FILTERED,
    NOISY,
    PLAN,
    PLANNED,
    RENYI,
    opened,
    spend,
)

from langchain_dpicl.accounting import (
    Cost,
    Exponential,
    Failure,
    Gaussian,
)
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    LedgerError,
    PlanMismatchError,
)
from langchain_dpicl.ledger import (
    AccountTerms,
    Charge,
    Ledger,
    MemoryLedger,
    Plan,
    SQLLedger,
    open_ledger,
)


@pytest.mark.parametrize("terms", ALL_TERMS)
def test_charges_are_numbered_and_add_up(ledger: Ledger, terms: AccountTerms) -> None:
    opened(ledger, terms)
    charges = [spend(ledger, terms) for _ in range(3)]
    assert [charge.sequence for charge in charges] == [1, 2, 3]
    state = ledger.verify("notes")
    assert state == ledger.state("notes") == ledger.open(terms)
    assert state.terms == terms
    assert state.used == 3
    assert state.spent == (3 * charges[0].cost.loss, 3 * charges[0].cost.failure)
    assert charges[-1].spent == state.spent
    records = ledger.charges("notes")
    assert [record.charge for record in records] == charges
    assert [record.at for record in records] == sorted(r.at for r in records)


def test_a_plans_charges_carry_its_events(ledger: Ledger) -> None:
    opened(ledger)
    assert ledger.charge("notes").events == PLAN.events
    assert ledger.charge("notes", PLAN.events).cost == Cost(1, 0)
    with pytest.raises(PlanMismatchError, match="other events"):
        ledger.charge("notes", NOISY)
    assert ledger.state("notes").used == 2


def test_a_filter_pays_for_any_mix_up_to_its_limit(ledger: Ledger) -> None:
    opened(ledger, FILTERED)
    mix = [
        NOISY,
        (Exponential(epsilon=1.0),),
        (Gaussian(noise_multiplier=2.0), Failure(delta0=1e-8)),
    ]
    paid, refused = [], 0
    for turn in range(200):
        try:
            paid.append(ledger.charge("notes", mix[turn % 3]))
        except BudgetExhaustedError:
            refused += 1
    assert refused
    costs = [charge.cost for charge in paid]
    limit, spent = FILTERED.limit, ledger.verify("notes").spent
    assert spent == (sum(c.loss for c in costs), sum(c.failure for c in costs))
    assert spent.loss <= limit.loss
    assert spent.failure <= limit.failure
    cheapest = min(FILTERED.filter.cost(events) for events in mix)  # type: ignore[union-attr]
    assert spent.loss + cheapest.loss > limit.loss


def test_one_release_can_cost_more_than_the_account(ledger: Ledger) -> None:
    opened(ledger, FILTERED)
    with pytest.raises(BudgetExhaustedError, match="more than the whole"):
        ledger.charge("notes", [Gaussian(noise_multiplier=1e-3)])
    with pytest.raises(BudgetExhaustedError, match="more than the whole"):
        ledger.charge("notes", [Failure(delta0=1e-3)])
    with pytest.raises(LedgerError, match="must name its events"):
        ledger.charge("notes")
    assert ledger.state("notes").used == 0


def test_the_last_query_is_the_last(ledger: Ledger) -> None:
    opened(ledger)
    for _ in range(5):
        ledger.charge("notes")
    with pytest.raises(BudgetExhaustedError, match="all 5 queries"):
        ledger.charge("notes")
    assert ledger.state("notes").used == 5


def test_a_plan_is_fixed_once(ledger: Ledger) -> None:
    opened(ledger)
    other = Plan({"parts": ["other"]}, (Exponential(epsilon=1.0),))
    assert ledger.fix_plan("notes", other) == PLAN
    assert ledger.state("notes").plan == PLAN


@pytest.mark.parametrize(
    ("terms", "named"),
    [
        (AccountTerms("notes", 9.0, 1e-6, 5), "epsilon is 8.0, not 9.0"),
        (AccountTerms("notes", 8.0, 1e-7, 5), "delta"),
        (AccountTerms("notes", 8.0, 1e-6, 6), "queries is 5, not 6"),
        (AccountTerms("notes", 8.0, 1e-6, 5, scope="unit"), "scope is corpus, not"),
        (FILTERED, "accounting is plan, not renyi"),
    ],
)
def test_other_terms_are_refused(
    ledger: Ledger, terms: AccountTerms, named: str
) -> None:
    ledger.open(PLANNED)
    with pytest.raises(PlanMismatchError, match=named):
        ledger.open(terms)


def test_the_order_of_a_filter_is_part_of_its_terms(ledger: Ledger) -> None:
    ledger.open(RENYI)
    assert ledger.open(RENYI).terms.order == 5.5
    with pytest.raises(PlanMismatchError, match=r"order is 5.5, not 5.6"):
        ledger.open(replace(RENYI, order=5.6))


@pytest.mark.parametrize("epsilon", [float("nan"), float("inf"), "much", None])
def test_terms_that_are_no_numbers_are_not_written(
    connect: Callable[[], SQLLedger], epsilon: float
) -> None:
    ledger = connect()
    with pytest.raises(LedgerError):
        ledger.open(AccountTerms("odd", epsilon, 1e-6, 5))
    assert ledger.accounts() == []


def test_a_plan_comes_before_the_first_charge(ledger: Ledger) -> None:
    ledger.open(FILTERED)
    ledger.charge("notes", NOISY)
    with pytest.raises(LedgerError, match="without a plan"):
        ledger.fix_plan("notes", PLAN)
    ledger.verify("notes")


def test_a_closed_account_gets_no_plan(ledger: Ledger) -> None:
    ledger.open(PLANNED)
    ledger.close_account("notes")
    ledger.close_account("notes")
    with pytest.raises(LedgerError, match="closed"):
        ledger.fix_plan("notes", PLAN)
    assert ledger.verify("notes").closed


def test_no_charge_without_a_plan(ledger: Ledger) -> None:
    ledger.open(PLANNED)
    with pytest.raises(LedgerError, match="no plan"):
        ledger.charge("notes")


def test_a_closed_account_pays_for_nothing(ledger: Ledger) -> None:
    opened(ledger).close_account("notes")
    with pytest.raises(LedgerError, match="closed"):
        ledger.charge("notes")
    assert ledger.open(PLANNED).closed


@pytest.mark.parametrize(
    "call",
    [
        lambda ledger: ledger.charge("other"),
        lambda ledger: ledger.state("other"),
        lambda ledger: ledger.charges("other"),
        lambda ledger: ledger.close_account("other"),
        lambda ledger: ledger.fix_plan("other", PLAN),
        lambda ledger: ledger.verify("other"),
        lambda ledger: ledger.unit_tag("other", "p-1"),
        lambda ledger: list(ledger.unit_balances("other")),
        lambda ledger: ledger.charge_units(Charge("other", 1, ()), []),
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
