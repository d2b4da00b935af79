"""Several processes on one account, on both databases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from support.ledgers import Database, opened
from support.races import TURNS, WORKERS, kept, race

from langchain_dpicl.accounting import Cost
from langchain_dpicl.errors import BudgetExhaustedError
from langchain_dpicl.ledger import AccountTerms, SQLLedger

UNITS = [f"p-{i}" for i in range(6)]


def _create(url: str, turn: int) -> object:
    terms = AccountTerms(f"account {turn}", 8.0, 1e-6, 5)
    return opened(kept(url), terms).state(terms.name).used


def _charge(url: str, _turn: int) -> object:
    try:
        return kept(url).charge("notes").sequence
    except BudgetExhaustedError:
        return 0


def _collect(url: str, _turn: int) -> object:
    ledger = kept(url)
    paid = ledger.charge_units(ledger.charge("notes"), UNITS)
    return [unit for unit, ok in zip(UNITS, paid, strict=True) if ok]


def test_processes_make_one_ledger_and_one_account_each(
    database: Database, connect: Callable[[], SQLLedger]
) -> None:
    assert race(_create, database.url) == [0] * WORKERS * TURNS
    ledger = connect()
    assert len(ledger.accounts()) == TURNS
    for name in ledger.accounts():
        ledger.verify(name)


def test_processes_never_overspend(
    database: Database, connect: Callable[[], SQLLedger]
) -> None:
    terms = AccountTerms("notes", 8.0, 1e-6, 30)
    ledger = opened(connect(), terms)
    found = race(_charge, database.url)
    assert sorted(found) == [0] * (WORKERS * TURNS - 30) + list(range(1, 31))
    assert ledger.verify("notes").used == 30


def test_processes_never_overspend_a_unit(
    database: Database, connect: Callable[[], SQLLedger]
) -> None:
    ledger = opened(connect(), AccountTerms("notes", 8.0, 1e-6, 20, scope="unit"))
    found = race(_collect, database.url)
    assert Counter(unit for paid in found for unit in paid) == dict.fromkeys(UNITS, 20)
    assert {b.spent for b in ledger.unit_balances("notes")} == {Cost(20, 0)}
    ledger.verify("notes")
