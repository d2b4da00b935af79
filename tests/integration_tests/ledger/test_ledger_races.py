"""Six processes on one ledger: nothing is overspent, lost, numbered or drawn twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faces import open_account, open_ledger, read, verify
from integration_tests.ledger import workers
from integration_tests.ledger.workers import PEOPLE, PROCESSES, QUERIES, UNITS


def race(task: Any, url: str, folder: Path) -> list[Any]:
    start = workers.CONTEXT.Barrier(PROCESSES)
    return workers.run(task, folder / "log", url, start, processes=PROCESSES)


def check_numbers(said: list[Any]) -> dict[int, str]:
    """All of a budget is spent, and each charge is told once; return the draws."""
    told = [(line["charged"], line["drawn"]) for line in said if "charged" in line]
    assert sorted(number for number, _ in told) == [*range(1, QUERIES + 1)]
    return dict(told)


@pytest.mark.promise("never-overspent", "acknowledged-is-stored")
def test_charges_are_numbered_once_and_end_with_the_budget(
    place: Callable[[], str], folder: Path
) -> None:
    url = place()
    account = open_account(url, queries=QUERIES)
    said = race(workers.charge_all, url, folder)
    assert check_numbers(said) == read(account).draws
    assert sum("refused" in line for line in said) == 6 * workers.TURNS - QUERIES
    verify(account.ledger)
    account.ledger.dispose()


@pytest.mark.promise("never-overspent", twin=True)
def test_twin_a_counter_without_a_lock_is_found(folder: Path) -> None:
    url = f"sqlite:///{folder}/counter"
    with pytest.raises(AssertionError):
        check_numbers(race(workers.charge_without_lock, url, folder))


@pytest.mark.promise("no-unit-overspends", "units-pay-together")
def test_no_unit_pays_more_than_it_has(place: Callable[[], str], folder: Path) -> None:
    url = place()
    account = open_account(url, **UNITS)
    said = race(workers.collect_all, url, folder)
    paid = Counter(tuple(line["paid"]) for line in said)
    assert paid == {tuple(PEOPLE): 3, (): PROCESSES * workers.TURNS - 3}
    assert read(account, *PEOPLE).paid == dict.fromkeys(PEOPLE, 3)
    verify(account.ledger)
    account.ledger.dispose()


@pytest.mark.promise("one-draw-a-charge", "one-owner-one-draw")
def test_a_charge_is_drawn_for_once(place: Callable[[], str], folder: Path) -> None:
    url = place()
    account = open_account(url, queries=QUERIES)
    said = race(workers.ask_the_same, url, folder)
    draws = read(account).draws
    assert sorted(line["drew"] for line in said if "drew" in line) == sorted(
        draws.values()
    )
    answers = defaultdict(set)
    for line in said:
        if "question" in line:
            answers[line["question"]].add(line["drawn"])
    # Two processes that ask at the same moment may both pay; nobody pays twice.
    assert all(len(found) <= PROCESSES for found in answers.values())
    assert {one for found in answers.values() for one in found} <= {*draws.values()}
    verify(account.ledger)
    account.ledger.dispose()


@pytest.mark.promise("caps-are-kept")
def test_of_six_accounts_the_cap_has_room_for_three(
    place: Callable[[], str], folder: Path
) -> None:
    url = place()
    open_ledger(url).dispose()
    said = race(workers.open_first, url, folder)
    assert Counter(next(iter(line)) for line in said) == {"charged": 3, "refused": 3}
    ledger = open_ledger(url)
    verify(ledger)
    ledger.dispose()
