"""A corpus's cap, on every ledger: what counts, for how long, and what is refused."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from support.corpora import (
    CLINIC,
    DECEMBER,
    FOR_EVER,
    PATIENTS,
    PER_UNIT,
    Clock,
    clock_for,
    of_month,
    opened_in,
    pay,
)
from support.ledgers import PLAN

from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    LedgerError,
    PlanMismatchError,
)
from langchain_dpicl.ledger import AccountTerms, CorpusTerms, Ledger
from langchain_dpicl.ledger import clock as ledger_clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return clock_for(monkeypatch, "2026-12-10")


@pytest.fixture
def clinic(ledger: Ledger, clock: Clock) -> Ledger:
    ledger.create_corpus(CLINIC)
    return ledger


def test_a_corpus_is_created_once_and_keeps_its_terms(clinic: Ledger) -> None:
    clinic.create_corpus(FOR_EVER)
    assert clinic.create_corpus(CLINIC).terms == CLINIC
    assert clinic.corpora() == ["archive", "clinic"]
    assert clinic.corpus("clinic").accounts == ()
    for change in ({"epsilon": 30.0}, {"unit_key": None}, {"window_days": 30}):
        with pytest.raises(PlanMismatchError, match="is there with other terms"):
            clinic.create_corpus(replace(CLINIC, **change))
    with pytest.raises(LedgerError, match="holds no corpus 'other'"):
        clinic.corpus("other")
    with pytest.raises(LedgerError, match="holds no corpus 'other'"):
        clinic.open(replace(DECEMBER, corpus="other"))


@pytest.mark.parametrize(
    "terms",
    [
        {"epsilon": 0},
        {"delta": 1},
        {"epsilon": float("inf")},
        {"window_days": 0},
        {"window_days": 40_000},
        {"window_days": 1.5},
        {"unit_key": 3},
    ],
)
def test_a_cap_is_a_usable_promise(terms: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError):
        CorpusTerms(**{**vars(CLINIC), **terms})


def test_accounts_are_opened_up_to_the_cap_and_no_further(clinic: Ledger) -> None:
    for number in range(3):
        pay(clinic, opened_in(clinic, replace(DECEMBER, name=f"account {number}")))
    assert clinic.corpus("clinic").committed == (24.0, 3e-6)
    with pytest.raises(BudgetExhaustedError) as caught:
        clinic.open(replace(DECEMBER, epsilon=1e-9, delta=1e-12))
    said = str(caught.value)
    assert "corpus 'clinic' has a cap of epsilon 24 and delta 3e-06" in said
    assert "'account 0', 'account 1', 'account 2'" in said
    assert "There is room after 2028-01-01 00:00 UTC" in said
    # What is open is found, however full the cap is.
    assert clinic.open(replace(DECEMBER, name="account 1")).used == 1
    assert len(clinic.accounts()) == 3


@pytest.mark.parametrize("part", [{"epsilon": 24.1}, {"delta": 3.1e-6}])
def test_epsilon_and_delta_are_both_capped(
    clinic: Ledger, part: dict[str, Any]
) -> None:
    with pytest.raises(BudgetExhaustedError, match="It alone is more than the cap"):
        clinic.open(replace(DECEMBER, **part))


def test_terms_add_up_in_decimals(ledger: Ledger) -> None:
    """In floats three times 0.1 is more than 0.3."""
    ledger.create_corpus(CorpusTerms("tenths", "patient", 0.3, 3e-7))
    tenth = AccountTerms("a", 0.1, 1e-7, 1, corpus="tenths")
    for name in "abc":
        pay(ledger, opened_in(ledger, replace(tenth, name=name)))
    with pytest.raises(BudgetExhaustedError, match="will never be room"):
        ledger.open(replace(tenth, name="d", epsilon=1e-15, delta=1e-20))


def test_an_account_counts_until_a_window_after_its_period(
    clinic: Ledger, clock: Clock
) -> None:
    whole = {"epsilon": 24.0, "delta": 3e-6}
    opened_in(clinic, of_month("2026-12", **whole))
    pay(clinic)
    clock.set("2028-01-01")
    with pytest.raises(BudgetExhaustedError, match="after 2028-01-01 00:00 UTC"):
        clinic.open(of_month("2028-01", **whole))
    clock.wait(microseconds=1)
    later = of_month("2028-01", **whole)
    pay(clinic, opened_in(clinic, later))
    assert [one.terms.period for one in clinic.corpus("clinic").counted] == ["2028-01"]


def test_a_closed_account_counts_until_a_window_after_its_closing(
    clinic: Ledger, clock: Clock
) -> None:
    whole = AccountTerms("open", 24.0, 3e-6, 20, corpus="clinic")
    opened_in(clinic, whole)
    pay(clinic, whole)
    clock.set("2030-01-01")
    again = replace(whole, name="again")
    with pytest.raises(BudgetExhaustedError, match="will never be room"):
        clinic.open(again)
    clinic.close_account("open")
    clinic.close_account("open")
    clock.set("2030-12-31")
    with pytest.raises(BudgetExhaustedError, match="after 2031-01-01"):
        clinic.open(again)
    clock.set("2031-01-02")
    clinic.open(again)


def test_without_a_window_an_account_counts_for_ever(
    ledger: Ledger, clock: Clock
) -> None:
    ledger.create_corpus(FOR_EVER)
    whole = of_month("2026-12", epsilon=24.0, delta=3e-6, corpus="archive")
    pay(ledger, opened_in(ledger, whole))
    ledger.close_account(whole.name)
    clock.set("2999-01-01")
    with pytest.raises(BudgetExhaustedError, match="will never be room"):
        ledger.open(of_month("2999-12", corpus="archive"))


def test_an_account_counts_from_its_first_charge(clinic: Ledger) -> None:
    """Both are open; the first that is charged takes the room, and keeps it."""
    whole: dict[str, Any] = {"epsilon": 24.0, "delta": 3e-6}
    first = opened_in(clinic, of_month("2026-12", **whole))
    second = opened_in(clinic, replace(first, name="second"))
    assert clinic.corpus("clinic").committed == (0.0, 0.0)
    pay(clinic, second)
    for _ in range(2):
        with pytest.raises(BudgetExhaustedError, match=r"2026-12' .* has no room"):
            pay(clinic, first)
    assert clinic.state(first.name).used == 0
    assert pay(clinic, second).sequence == 2
    assert clinic.corpus("clinic").committed == (24.0, 3e-6)
    clinic.verify(first.name)


def test_a_first_charge_is_held_against_what_counts_at_its_own_time(
    clinic: Ledger, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time goes on while the ledger reads: the old account may cease to count."""
    whole: dict[str, Any] = {"epsilon": 24.0, "delta": 3e-6}
    terms = AccountTerms("late", **whole, queries=5, corpus="clinic")
    late = [opened_in(clinic, replace(terms, name=f"late {n}")) for n in range(6)]
    pay(clinic, opened_in(clinic, of_month("2026-12", **whole)))

    def ticking(_: Any = None) -> datetime:
        clock.wait(microseconds=1)
        return clock.now

    monkeypatch.setattr(ledger_clock, "database_time", ticking)
    until = datetime(2028, 1, 1, tzinfo=timezone.utc)
    for number, one in reversed(list(enumerate(late))):
        clock.now = until - timedelta(microseconds=number)
        with suppress(BudgetExhaustedError):
            pay(clinic, one)
    [(paid, at)] = [
        (name, clinic.charges(name)[-1].at)
        for name in clinic.accounts()
        if name.startswith("late") and clinic.charges(name)
    ]
    assert at > until, paid


def test_an_account_pays_within_its_period_alone(ledger: Ledger, clock: Clock) -> None:
    clock.set("2026-11-30T23:59:59.999999")
    clinic = ledger
    clinic.create_corpus(CLINIC)
    opened_in(clinic)
    with pytest.raises(BudgetExhaustedError, match=r"2026-12 .* has not begun"):
        pay(clinic)
    clock.set("2026-12-01")
    assert pay(clinic).sequence == 1
    clock.set("2026-12-31T23:59:59.999999")
    assert pay(clinic).sequence == 2
    clock.set("2027-01-01")
    with pytest.raises(BudgetExhaustedError, match=r"is over.*ledger renew"):
        pay(clinic)
    assert clinic.verify("clinic/2026-12").used == 2
    with pytest.raises(BudgetExhaustedError, match="period 2026-12 is over"):
        clinic.open(replace(DECEMBER, name="late"))


def test_a_clock_that_goes_back_opens_and_pays_for_nothing_old(
    clinic: Ledger, clock: Clock
) -> None:
    opened_in(clinic)
    pay(clinic)
    clock.set("2028-02-01")
    whole = of_month("2028-02", epsilon=24.0, delta=3e-6)
    opened_in(clinic, whole)
    clock.set("2026-12-20")
    with pytest.raises(BudgetExhaustedError, match="is over"):
        pay(clinic)
    # The time stands still until the clock has caught up.
    assert pay(clinic, whole).sequence == 1
    at = clinic.charges(whole.name)[-1].at
    assert at.isoformat() == "2028-02-01T00:00:00+00:00"
    assert clinic.corpus("clinic").at == at
    clinic.verify(whole.name)


def test_a_charge_moves_the_time_of_its_whole_corpus(
    clinic: Ledger, clock: Clock
) -> None:
    opened_in(clinic)
    endless = opened_in(clinic, AccountTerms("open", 1.0, 1e-7, 5, corpus="clinic"))
    clock.set("2027-01-02")
    pay(clinic, endless)
    clock.set("2026-12-20")
    with pytest.raises(BudgetExhaustedError, match="is over"):
        pay(clinic)


def test_a_closing_moves_the_time_of_its_whole_corpus(
    clinic: Ledger, clock: Clock
) -> None:
    opened_in(clinic)
    clinic.open(AccountTerms("open", 1.0, 1e-7, 5, corpus="clinic"))
    clock.set("2027-01-02")
    clinic.close_account("open")
    clock.set("2026-12-20")
    assert clinic.state("open").closed_at == clinic.corpus("clinic").at
    with pytest.raises(BudgetExhaustedError, match="is over"):
        pay(clinic)


def test_all_accounts_of_a_corpus_protect_its_unit(clinic: Ledger) -> None:
    clinic.open(DECEMBER)
    with pytest.raises(LedgerError, match="fix a plan that names its unit"):
        clinic.charge(DECEMBER.name, PLAN.events)
    for key in ("doctor", None):
        with pytest.raises(PlanMismatchError, match="protects 'patient'"):
            clinic.fix_plan(DECEMBER.name, replace(PLAN, template={"unit_key": key}))
    assert clinic.fix_plan(DECEMBER.name, PATIENTS) == PATIENTS


def test_a_per_unit_account_is_bound_to_one_salt(clinic: Ledger) -> None:
    opened_in(clinic, PER_UNIT)
    clinic.bind_salt("each", "aa")
    clinic.bind_salt("each", "aa")
    with pytest.raises(PlanMismatchError, match="another salt"):
        clinic.bind_salt("each", "bb")
    assert clinic.state("each").salt == "aa"
    charge = pay(clinic, PER_UNIT)
    assert clinic.charge_units(charge, ["ann"]) == [True]
    clinic.verify("each")
    clinic.open(DECEMBER)
    with pytest.raises(LedgerError, match="charges the whole corpus"):
        clinic.bind_salt(DECEMBER.name, "aa")


def test_a_per_unit_account_counts_with_its_cap_while_it_is_open(
    clinic: Ledger, clock: Clock
) -> None:
    whole = replace(PER_UNIT, epsilon=24.0, delta=3e-6)
    opened_in(clinic, whole)
    pay(clinic, whole)
    clock.set("2040-01-01")
    with pytest.raises(BudgetExhaustedError, match="will never be room"):
        clinic.open(of_month("2040-01"))


@pytest.mark.parametrize(
    "terms", [{"period": "2027-01"}, {"purpose": "research"}, {"corpus": "archive"}]
)
def test_corpus_period_and_purpose_are_terms(
    clinic: Ledger, terms: dict[str, Any]
) -> None:
    clinic.create_corpus(FOR_EVER)
    clinic.open(DECEMBER)
    with pytest.raises(PlanMismatchError, match=next(iter(terms))):
        clinic.open(replace(DECEMBER, **terms))


def test_terms_that_bind_nothing_are_refused(clinic: Ledger) -> None:
    with pytest.raises(LedgerError, match="a period and no corpus"):
        clinic.open(replace(DECEMBER, corpus=None))
    with pytest.raises(LedgerError, match="purpose"):
        clinic.open(replace(DECEMBER, purpose="a\nb"))
    with pytest.raises(InvalidParameterError, match="no period"):
        clinic.open(replace(DECEMBER, period="soon"))
    for epsilon in (-1.0, 0.0, float("nan"), float("inf")):
        with pytest.raises(InvalidParameterError, match="epsilon"):
            clinic.open(replace(DECEMBER, epsilon=epsilon))
    assert clinic.accounts() == []
