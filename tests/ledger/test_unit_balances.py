"""Balances of units: who pays, what is kept, and what an operator looks up."""

from __future__ import annotations

import logging
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger.book_parts import charge, opened, pay

from langchain_dpicl.accounting import Cost
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.ledger.units import balance

PEOPLE = ["p1", "p2", "p3", "p4"]


@given(draws=st.lists(st.sets(st.sampled_from(PEOPLE)), max_size=8))
def test_a_unit_pays_while_it_has_something_left(draws: list[set[str]]) -> None:
    ledger, paid = Ledger(":memory:"), Counter[str]()
    opened(ledger, "units", queries=2, scope="unit")
    for people in draws:
        able = {unit for unit in people if paid[unit] < 2}
        assert pay(ledger, people, "units") == able
        paid.update(able)
    found = {row.tag: row.spent.loss for row in ledger.unit_balances("units")}
    assert found == {ledger.unit_tag("units", u): n for u, n in paid.items() if n}
    ledger.verify()


def test_ids_have_one_spelling_and_come_back_as_they_were_given(ledger: Ledger) -> None:
    opened(ledger, "units", queries=2, scope="unit")
    assert pay(ledger, [" p1", 7], "units") == {" p1", 7}
    assert pay(ledger, ["p1", "7"], "units") == {"p1", "7"}
    assert pay(ledger, ["p1", 7, "p2"], "units") == {"p2"}
    for twice in (["p1", " p1"], [7, "7"]):
        with pytest.raises(LedgerError, match="named a unit twice"):
            pay(ledger, twice, "units")
    with pytest.raises(LedgerError, match="unit id is a non-empty"):
        pay(ledger, [""], "units")
    assert ledger.verify()


def test_a_balance_is_looked_up_by_the_operator(ledger: Ledger) -> None:
    opened(ledger, "units", queries=2, scope="unit")
    opened(ledger)
    pay(ledger, ["p1"], "units")

    def spent(name: str, unit: str) -> Cost:
        read = lambda t: balance(t, t.load("account", name), unit)  # noqa: E731
        return ledger.run(read, writes=False)

    assert spent("units", "p1") == Cost(1, 0)
    assert spent("units", "p2") == Cost(0, 0)
    with pytest.raises(LedgerError, match="charges the whole corpus"):
        ledger.unit_tag("notes", "p1")
    charge(ledger)
    with pytest.raises(LedgerError, match="charges the whole corpus"):
        pay(ledger, ["p1"], "notes")


def test_who_paid_changes_nothing_that_a_reader_of_the_book_sees(
    ledger: Ledger,
) -> None:
    opened(ledger, "units", queries=2, scope="unit")
    for people in ([], ["p1"], PEOPLE):
        pay(ledger, people, "units")
    entries = [e for e in ledger.entries("units") if e["kind"] == "units"]
    digests = [entry["body"].pop("balances") for entry in entries]
    assert len({*digests}) == 3
    assert {len(digest) for digest in digests} == {64}
    assert all(entry["body"] == {} for entry in entries)
    assert [entry["step"] for entry in entries] == [-2] * 3


def test_keys_and_tags_are_in_no_log(
    ledger: Ledger, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        key = opened(ledger, "units", queries=2, scope="unit").unit_key
        pay(ledger, ["p1"], "units")
        assert list(ledger.unit_balances("units"))
    tag = ledger.unit_tag("units", "p1")
    assert len(key) == 64
    for secret in (str(key), tag):
        assert secret not in caplog.text
        assert secret not in repr(ledger.state("units"))
    assert str(key) not in repr(list(ledger.entries("units")))
