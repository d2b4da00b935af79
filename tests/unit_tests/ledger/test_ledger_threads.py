"""Many threads on one account: what was acknowledged is stored, and drawn once.

Every third transaction that writes fails: at its first write, which names a table that
is not there, or at its commit.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from faces import (
    BudgetExhaustedError,
    Charge,
    LedgerError,
    open_account,
    read,
    verify,
)
from unit_tests.ledger.faults import failing_writes, listening

THREADS, TURNS, QUERIES = 32, 6, 100


@contextmanager
def every_third_transaction_fails() -> Iterator[None]:
    numbers, lock = itertools.count(1), threading.Lock()

    def begin(connection: Any) -> None:
        connection.info["number"] = 0

    def write(connection: Any) -> bool:
        if connection.info["number"]:
            return False
        with lock:
            connection.info["number"] = next(numbers)
        return bool(connection.info["number"] % 6 == 3)

    def commit(connection: Any) -> None:
        if connection.info["number"] and connection.info["number"] % 6 == 0:
            raise sqlite3.OperationalError("disk I/O error")

    with listening("begin", begin), listening("commit", commit), failing_writes(write):
        yield


@pytest.fixture
def account(place: Callable[[], str]) -> Any:
    account = open_account(place(), queries=QUERIES)
    Charge(account).give_up()
    return account


def storm(account: Any, *, early: bool = False) -> tuple[list[int], dict[int, str]]:
    """Charge from all threads; return the charges and the draws that were told."""
    charged, drawn = list[int](), dict[int, str]()

    def work(thread: int) -> None:
        for turn in range(TURNS):
            try:
                if early:
                    charged.append(len(charged) + 2)
                charge = Charge(account)
                charged.extend([] if early else [charge.number])
                drawn[charge.number] = charge.once(lambda: f"{thread}, {turn}")  # noqa: B023
            except (LedgerError, BudgetExhaustedError):
                continue

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))
    return charged, drawn


def check(account: Any, charged: list[int], drawn: dict[int, str]) -> None:
    verify(account.ledger)
    book = read(account)
    assert sorted([1, *charged]) == list(book.charges)
    assert drawn == book.draws
    assert len(book.charges) <= QUERIES


@pytest.mark.promise("acknowledged-is-stored", "never-overspent")
def test_what_was_acknowledged_is_stored_and_nothing_else(account: Any) -> None:
    with every_third_transaction_fails():
        charged, drawn = storm(account)
    check(account, charged, drawn)
    assert len(charged) > QUERIES / 2


@pytest.mark.promise("acknowledged-is-stored", twin=True)
def test_twin_a_charge_that_was_told_too_early_is_found(account: Any) -> None:
    charged, drawn = storm(account, early=True)
    with pytest.raises(AssertionError):
        check(account, charged, drawn)


def check_draws(account: Any, once: Callable[[Any, Any], str]) -> None:
    """Ask one question from many threads; the owner's draw is the slowest."""
    barrier, turns = threading.Barrier(8), itertools.count()

    def draw() -> str:
        turn = next(turns)
        time.sleep(0.3 if turn == 0 else 0)
        return f"draw {turn}"

    def ask(_thread: int) -> str:
        barrier.wait()
        return once(Charge(account, key="a question"), draw)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(ask, range(8))) == {"draw 0"}


@pytest.mark.promise("one-owner-one-draw")
def test_of_many_who_ask_the_same_one_pays_and_draws(account: Any) -> None:
    check_draws(account, Charge.once)
    assert list(read(account).draws.values()) == ["draw 0"]
    assert len(read(account).charges) == 2


@pytest.mark.promise("one-owner-one-draw", twin=True)
def test_twin_the_quicker_draw_wins(account: Any) -> None:
    stored: list[str] = []

    def quicker(charge: Charge, draw: Callable[[], str]) -> str:
        drawn = draw()
        stored.append(drawn)
        charge.give_up()
        return stored[0]

    with pytest.raises(AssertionError):
        check_draws(account, quicker)


@pytest.mark.promise("lost-draw-charged-anew")
def test_who_waits_for_an_owner_that_fails_pays_for_an_own_draw(account: Any) -> None:
    first = Charge(account, key="a question")
    assert first.owns
    with ThreadPoolExecutor(1) as pool:
        second = Charge(account, key="a question")
        assert (second.owns, second.number) == (False, first.number)
        found = pool.submit(second.once, lambda: "the second draw")
        assert not found.done()
        with pytest.raises(ZeroDivisionError):
            first.once(lambda: str(1 / 0))
        assert found.result(30) == "the second draw"
    assert second.number == first.number + 1
    assert read(account).draws == {second.number: "the second draw"}
    assert Charge(account, key="a question").once(lambda: "x") == "the second draw"
