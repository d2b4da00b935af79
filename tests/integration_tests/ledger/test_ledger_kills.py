"""Death at each statement: what was acknowledged is there, whole, and drawn once."""

from __future__ import annotations

import gc
import itertools
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from faces import Charge, LedgerError, open_account, read, verify
from integration_tests.ledger.workers import PEOPLE, UNITS, ask_once, fill_disk, run
from suite import WHOLE
from support.postgres import PostgresServer


def check(url: str, said: list[Any]) -> None:
    """Compare a ledger with what a killed worker has told of it, and ask again."""
    account = open_account(url, **UNITS)
    verify(account.ledger)
    book = read(account, *PEOPLE)
    told = {name: value for line in said for name, value in line.items()}
    assert len(book.charges) <= ("charged" in told) + 1
    assert "charged" not in told or told["charged"] in book.charges, "a charge is lost"
    assert "drawn" not in told or book.draws == {1: told["drawn"]}, "a draw is lost"
    paid = set(book.paid.values())
    assert paid in ({0}, {1}), "some units have paid, and some have not"
    assert paid == {1} or not {"paid", "drawn"} & {*told}
    charge = Charge(account, key="a question")
    assert charge.owns == (not book.draws)
    assert charge.number == (1 if book.draws else len(book.charges) + 1)
    drawn = charge.once(lambda: "a second draw")
    assert read(account).draws == (book.draws or {charge.number: drawn})
    verify(account.ledger)
    account.ledger.dispose()


@pytest.mark.promise("death-loses-no-charge", "one-draw-a-charge", "units-pay-together")
def test_death_at_any_statement_loses_and_doubles_nothing(
    place: Callable[[], str], folder: Path
) -> None:
    log, url = folder / "log", place()
    said = run(ask_once, log, url, 0, False)
    check(url, said)
    opened, points = said[0]["opened"], said[-1]["points"]
    assert points - opened > 20
    # A ledger is made once, and a server is slow: most points are for the whole suite.
    making, step = (1, 1) if WHOLE else (9, 2 if url.startswith("sqlite") else 5)
    later = range(opened, points + 1, step)
    for point in [*range(1, opened, making), *later]:
        url = place()
        check(url, run(ask_once, log, url, point, False))


@pytest.mark.promise("death-loses-no-charge", twin=True)
def test_twin_a_charge_that_is_told_before_its_commit_is_found(
    folder: Path,
) -> None:
    log, numbers = folder / "log", itertools.count()
    with pytest.raises(AssertionError, match="a charge is lost"):
        for point in range(20, 200, 4):
            url = f"sqlite:///{folder}/{next(numbers)}.db"
            check(url, run(ask_once, log, url, point, True))


@pytest.mark.promise("fail-closed", "acknowledged-is-stored")
def test_a_disk_that_the_system_calls_full_charges_nothing(folder: Path) -> None:
    url = f"sqlite:///{folder}/ledger.db"
    said = run(fill_disk, folder / "log", url)
    refused = [line["refused"] for line in said if "refused" in line]
    assert refused
    assert not any(refused), "it was refused with room, too"
    account = open_account(url, queries=500)
    verify(account.ledger)
    book = read(account)
    assert {*book.charges} == {1} | {one["charged"] for one in said if "charged" in one}
    assert {*book.draws} == {one["number"] for one in said if "number" in one}
    account.ledger.dispose()


@pytest.mark.whole
# The driver's cursors of the broken connections are never closed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.promise("death-loses-no-charge")
def test_a_server_that_crashes_loses_no_charge_that_was_told() -> None:
    server, told = PostgresServer(), dict[int, str]()
    account = open_account(server.new_database(), queries=100_000)
    is_over = threading.Event()

    def work() -> None:
        while not is_over.is_set():
            with suppress(LedgerError):
                charge = Charge(account)
                told[charge.number] = charge.once(lambda: secrets.token_hex(4))

    with ThreadPoolExecutor(4) as pool:
        works = [pool.submit(work) for _ in range(4)]
        for _ in range(5):
            time.sleep(1)
            server.stop()
            server.start()
        time.sleep(1)
        is_over.set()
    assert [one.result() for one in works] == [None] * 4
    verify(account.ledger)
    assert told
    assert told.items() <= read(account).draws.items()
    account.ledger.dispose()
    server.close()
    gc.collect()
