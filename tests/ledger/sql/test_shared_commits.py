"""Charges of several threads in one transaction: each as if it were alone."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine
from support.ledgers import MANY, PLANNED, made, opened

from langchain_dpicl.errors import (
    BudgetExhaustedError,
    LedgerError,
)
from langchain_dpicl.ledger import Charge, SQLLedger
from langchain_dpicl.ledger.sql import shared_commits


class Stopped(BaseException):
    """A thread that is stopped in the middle, as far as one can be in a test."""


@pytest.fixture
def ledger(memory_folder: Path) -> Iterator[SQLLedger]:
    ledger = made(memory_folder / "ledger.db")
    ledger.charge("notes")
    yield ledger
    ledger.dispose()


def together(ledger: SQLLedger, calls: list[Callable[[], Charge]]) -> list[Any]:
    """Return what each call returned or raised; all wait for the first one's commit."""
    inner, gathered = ledger._commits._run, ledger._commits._gathered

    def run(write: Any) -> None:
        end = time.monotonic() + 30
        while len(gathered.waiting) < len(calls) - 1 and time.monotonic() < end:
            time.sleep(0.001)
        ledger._commits._run = inner
        inner(write)

    def said(call: Callable[[], Charge]) -> Any:
        try:
            return call()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            return error

    ledger._commits._run = run
    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(said, calls))


def commits(ledger: SQLLedger) -> list[int]:
    found: list[int] = []
    event.listen(ledger._database.engine, "commit", lambda _: found.append(1))
    return found


def test_those_that_wait_share_a_commit(ledger: SQLLedger) -> None:
    seen = commits(ledger)
    found = together(ledger, [lambda: ledger.charge("notes")] * 12)
    assert sorted(charge.sequence for charge in found) == list(range(2, 14))
    assert len(seen) == 2
    assert ledger.verify("notes").used == 13


def test_there_is_an_end_to_what_one_transaction_holds(
    ledger: SQLLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_commits, "MOST", 4)
    seen = commits(ledger)
    found = together(ledger, [lambda: ledger.charge("notes")] * 12)
    assert sorted(charge.sequence for charge in found) == list(range(2, 14))
    assert len(seen) == 4  # The first alone, then 4, 4 and 3.


def test_a_refusal_is_its_own_and_leaves_nothing(ledger: SQLLedger) -> None:
    opened(ledger, type(PLANNED)("small", 8.0, 1e-6, 3))

    def fail(_charge: Charge) -> str:
        raise LedgerError("no header")

    calls: list[Callable[[], Charge]] = [
        lambda: ledger.charge("notes"),
        *[lambda: ledger.charge("small")] * 5,
        lambda: ledger.charge("nobody's"),
        lambda: ledger.charge("notes", starts=("kind", fail)),
        lambda: ledger.charge("notes", starts=("kind", str)),
    ]
    ledger._checked["nobody's"] = ledger._checked["notes"]
    found = together(ledger, calls)
    kinds = [type(one).__name__ for one in found]
    assert sorted(kinds[1:6]) == ["BudgetExhaustedError"] * 2 + ["Charge"] * 3
    assert kinds[0::6] == ["Charge", "LedgerError"]
    assert str(found[7]) == "no header"
    assert (ledger.verify("notes").used, ledger.verify("small").used) == (3, 3)
    assert [r.charge for r in ledger.releases("notes")] == [found[8].sequence]


def test_an_account_that_can_not_be_read_fails_alone(ledger: SQLLedger) -> None:
    opened(ledger, type(PLANNED)("small", 8.0, 1e-6, 3))
    ledger.charge("small")
    with closing(sqlite3.connect(str(ledger.path), isolation_level=None)) as edited:
        edited.execute("UPDATE dpicl_charge SET charged_at = 'x' WHERE account_id = 2")
    calls = [partial(ledger.charge, name) for name in ("notes", "small") * 3]
    found = together(ledger, [*calls])
    assert all(isinstance(one, Charge) for one in found[0::2])
    assert {type(one) for one in found[1::2]} == {LedgerError}
    assert all("(ValueError)" in str(one) for one in found[1::2])
    assert ledger.verify("notes").used == 4


def test_a_commit_that_fails_fails_all(
    ledger: SQLLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_connection: Any) -> None:
        raise OSError

    event.listen(ledger._database.engine, "commit", broken)
    found = together(ledger, [lambda: ledger.charge("notes")] * 5)
    event.remove(ledger._database.engine, "commit", broken)
    assert {type(one) for one in found} == {LedgerError}
    assert len({id(one) for one in found}) == 5
    assert ledger.verify("notes").used == 1
    assert ledger.charge("notes").sequence == 2


def test_a_second_failure_acknowledges_nothing_that_was_undone(
    ledger: SQLLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of memory, say, or stopped while it tells the others."""

    def broken(_connection: Any) -> None:
        monkeypatch.setattr(shared_commits, "_copied", stop)
        raise OSError

    def stop(_error: BaseException) -> BaseException:
        raise Stopped

    event.listen(ledger._database.engine, "commit", broken)
    found = together(ledger, [lambda: ledger.charge("notes")] * 5)
    event.remove(ledger._database.engine, "commit", broken)
    assert not [one for one in found if isinstance(one, Charge)]
    assert ledger.verify("notes").used == 1


def test_a_thread_that_is_stopped_answers_for_the_others(ledger: SQLLedger) -> None:
    def stop(_connection: Any) -> None:
        raise Stopped

    event.listen(ledger._database.engine, "commit", stop, once=True)
    found = together(ledger, [lambda: ledger.charge("notes")] * 5)
    kinds = sorted(type(one).__name__ for one in found)
    # The one whose commit it was is stopped alone, or with those in its transaction.
    assert kinds.count("Stopped") == 1
    paid = [one for one in found if isinstance(one, Charge)]
    assert ledger.verify("notes").used == 1 + len(paid)
    assert ledger.charge("notes").sequence == 2 + len(paid)


def test_a_fork_does_not_wait_for_its_parents_turn(ledger: SQLLedger) -> None:
    gathered = ledger._commits._gathered
    gathered.is_led = True  # By a thread that does not come along.
    try:
        child = os.fork()
        if not child:
            code = 1
            try:
                code = 0 if ledger.charge("notes").sequence == 2 else 2
            finally:
                os._exit(code)
        end = time.monotonic() + 60
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            assert time.monotonic() < end, "the child waits for a thread of its parent"
            time.sleep(0.01)
    finally:
        gathered.is_led = False
    assert os.waitstatus_to_exitcode(ended[1]) == 0
    assert ledger.charge("notes").sequence == 3


def test_threads_of_several_accounts_never_overspend(ledger: SQLLedger) -> None:
    opened(ledger, type(MANY)("small", 8.0, 1e-6, 20))
    refused: list[Any] = []

    def spend() -> None:
        for name in ("small", "notes") * 5:
            try:
                ledger.charge(name)
            except BudgetExhaustedError as error:
                refused.append(error)

    threads = [threading.Thread(target=spend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (ledger.verify("small").used, ledger.verify("notes").used) == (20, 41)
    assert len(refused) == 80 - 20 - 40


def test_a_thread_that_is_stopped_while_it_waits_stops_nobody_else(
    ledger: SQLLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it was just about to lead."""
    gathered = ledger._commits._gathered
    inner = threading.Event.wait

    def stopped(self: threading.Event, timeout: float | None = None) -> bool:
        inner(self, timeout)
        if threading.current_thread() is threading.main_thread():
            raise Stopped
        return True

    with monkeypatch.context() as patched:
        patched.setattr(threading.Event, "wait", stopped)
        with pytest.raises(Stopped):
            ledger._commits.charge(lambda _: pytest.fail("it was written"))
    assert (gathered.waiting, gathered.is_led) == ([], False)
    assert ledger.charge("notes").sequence == 2


def test_a_thread_that_is_stopped_as_it_takes_the_charges_lets_no_one_wait(
    ledger: SQLLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = ledger._commits._gathered
    inner = gathered.take
    taken: list[Any] = []

    def take(*given: Any) -> Any:
        taken.append(inner(*given))
        if len(taken) == 2:
            raise Stopped
        return taken[-1]

    monkeypatch.setattr(gathered, "take", take)
    found: list[Any] = []
    calls: list[Callable[[], Charge]] = [partial(ledger.charge, "notes")] * 4
    waiting = threading.Thread(
        target=lambda: found.extend(together(ledger, calls)), daemon=True
    )
    waiting.start()
    waiting.join(30)
    kinds = sorted(type(one).__name__ for one in found)
    assert kinds == ["Charge", "LedgerError", "LedgerError", "Stopped"]
    assert ledger.charge("notes").sequence == ledger.verify("notes").used == 3


# -- twins -----------------------------------------------------------------------------


def test_twin_without_savepoints_half_a_charge_stays(
    ledger: SQLLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def skip(
        _c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any
    ) -> tuple[str, Any]:
        named = "dpicl_charge"
        mine = statement in {f"SAVEPOINT {named}", f"RELEASE {named}"}
        is_ours = mine or statement == f"ROLLBACK TO {named}"
        return ("SELECT 1" if is_ours else statement), parameters

    event.listen(Engine, "before_cursor_execute", skip, retval=True)
    try:
        with pytest.raises(AssertionError):
            test_a_refusal_is_its_own_and_leaves_nothing(ledger)
    finally:
        event.remove(Engine, "before_cursor_execute", skip)


# -- who waits, who leads --------------------------------------------------------------


def waiting(number: int) -> list[Any]:
    return [shared_commits._Waiting(partial(Charge, "notes", n)) for n in range(number)]
