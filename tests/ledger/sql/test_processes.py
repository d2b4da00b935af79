"""Several processes on one account, on both databases."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Callable
from typing import Any

from support.ledgers import Database, opened

from langchain_dpicl.accounting import Cost
from langchain_dpicl.exceptions import BudgetExhaustedError
from langchain_dpicl.ledger import AccountTerms, SQLLedger

WORKERS, TURNS = 3, 15
Task = Callable[[str, int], object]

UNITS = [f"p-{i}" for i in range(6)]


def _create(url: str, turn: int) -> object:
    terms = AccountTerms(f"account {turn}", 8.0, 1e-6, 5)
    return opened(_kept(url), terms).state(terms.name).used


def _charge(url: str, _turn: int) -> object:
    try:
        return _kept(url).charge("notes").sequence
    except BudgetExhaustedError:
        return 0


def _collect(url: str, _turn: int) -> object:
    ledger = _kept(url)
    paid = ledger.charge_units(ledger.charge("notes"), UNITS)
    return [unit for unit, ok in zip(UNITS, paid, strict=True) if ok]


_ledgers: dict[str, SQLLedger] = {}


def _kept(url: str) -> SQLLedger:
    if url not in _ledgers:
        _ledgers[url] = SQLLedger(url)
    return _ledgers[url]


def _work(task: Task, url: str, start: Any, results: Any) -> None:
    start.wait()
    for turn in range(TURNS):
        try:
            results.put(task(url, turn))
        except Exception as error:  # noqa: BLE001 - the parent shows it
            results.put(repr(error))
    for ledger in _ledgers.values():
        ledger.dispose()


def race(task: Task, url: str) -> list[Any]:
    """Return what all processes found, each turn of each."""
    context = multiprocessing.get_context("forkserver")
    # What takes long to import is imported once.
    context.set_forkserver_preload(["langchain_dpicl.ledger.sql.ledger"])
    start, results = context.Barrier(WORKERS), context.Queue()
    workers = [
        context.Process(target=_work, args=(task, url, start, results))
        for _ in range(WORKERS)
    ]
    for worker in workers:
        worker.start()
    found = [results.get(timeout=60) for _ in range(WORKERS * TURNS)]
    for worker in workers:
        worker.join()
    results.close()
    results.join_thread()
    return found


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
