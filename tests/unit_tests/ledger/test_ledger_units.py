"""Accounts of single units: who can pay pays, all at once, in whatever order."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faces import (
    Charge,
    Exponential,
    Gaussian,
    LedgerError,
    open_account,
    read,
    verify,
)
from hypothesis import given
from hypothesis import strategies as st
from unit_tests.ledger.faults import failing_writes

PEOPLE = [f"someone-{number}" for number in range(6)]
TERMS: list[dict[str, Any]] = [
    {"queries": 2, "scope": "unit"},
    {"accounting": "renyi", "order": 8.0, "scope": "unit"},
]
RELEASES = [(Gaussian(1.5),), (Gaussian(3.0),), (Exponential(1.0),)]
DRAWS = st.lists(
    st.tuples(st.integers(0, 2), st.permutations(PEOPLE), st.integers(0, 6)),
    max_size=10,
)


def play(
    url: str, terms: Any, draws: Any, order: Callable[[list[str]], list[str]]
) -> Any:
    """Collect a history of charges; check it step by step; return who paid when."""
    account, found = open_account(url, **terms), list[set[str]]()
    paid: Counter[str] = Counter()
    before = read(account)
    for which, people, size in draws:
        taking_part = people[:size]
        charge = Charge(account, () if "queries" in terms else RELEASES[which])
        found.append(charge.collect(order(taking_part)))
        book = read(account, *PEOPLE)
        price, before = book.spent[0] - before.spent[0], book
        can_pay = {who for who in taking_part if paid[who] + price <= book.most[0]}
        assert found[-1] == can_pay
        paid.update(dict.fromkeys(can_pay, price))
        assert book.paid == {who: paid[who] for who in PEOPLE}
    verify(account.ledger)
    return found


@pytest.mark.promise("all-eligible-pay", "no-unit-overspends", "order-decides-nothing")
@pytest.mark.parametrize("terms", TERMS, ids=["plan", "filter"])
@given(draws=DRAWS)
def test_who_can_pay_pays_in_whatever_order(terms: Any, draws: Any) -> None:
    assert play(":memory:", terms, draws, list) == play(
        ":memory:", terms, draws, lambda people: sorted(people, reverse=True)
    )


@pytest.mark.promise("all-eligible-pay", twin=True)
def test_twin_paying_for_the_first_few_alone_is_found() -> None:
    draws = [(0, PEOPLE, 6), (0, PEOPLE, 4)]
    with pytest.raises(AssertionError):
        play(":memory:", TERMS[0], draws, lambda people: people[:3])


@pytest.mark.promise("units-pay-together")
def test_all_units_pay_or_none(folder: Path) -> None:
    account = open_account(f"sqlite:///{folder}/a.db", **TERMS[0])
    for number in itertools.count(1):
        charge, before = Charge(account), read(account, *PEOPLE).paid
        writes = itertools.count(1)
        with failing_writes(lambda _: next(writes) == number):  # noqa: B023
            try:
                charge.collect(PEOPLE)
            except LedgerError:
                assert read(account, *PEOPLE).paid == before
                verify(account.ledger)
                continue
        assert number > 2, "it writes balances and their digest, at least"
        assert set(read(account, *PEOPLE).paid.values()) == {1}
        break


@pytest.mark.promise("units-pay-together")
def test_a_unit_that_is_named_twice_is_refused(place: Any) -> None:
    account = open_account(place(), **TERMS[0])
    charge = Charge(account)
    with pytest.raises(LedgerError):
        charge.collect([*PEOPLE, PEOPLE[0]])
    assert not any(read(account, *PEOPLE).paid.values())


@pytest.mark.promise("no-id-in-the-ledger")
def test_no_id_of_a_unit_is_in_the_files(folder: Path) -> None:
    account = open_account(f"sqlite:///{folder}/a.db", **TERMS[0])
    Charge(account).collect(PEOPLE)
    for file in folder.iterdir():
        assert b"someone" not in file.read_bytes()
