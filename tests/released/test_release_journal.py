"""What a release leaves in the ledger, and what becomes of damaged storage."""

from __future__ import annotations

from typing import Any

import pytest
from few_shot_fakes import budget_of

from langchain_dpicl.budget import Demand, GaussianPart, PrivacyBudgetHandler
from langchain_dpicl.exceptions import LedgerError
from langchain_dpicl.released.journal import Journal

KIND = "a kind"
MAKER = "a maker"


@pytest.fixture
def budget() -> PrivacyBudgetHandler:
    made = budget_of(accounting="zcdp", epsilon=50)
    made.admit(Demand("test", (GaussianPart(9.0),)), unit_key="who", n_units=100)
    return made


def header(charge: int) -> dict[str, Any]:
    return {"charge": charge, "rates": {"\u00e9": 0.25}}


def test_two_releases_of_one_kind_are_kept_apart(
    budget: PrivacyBudgetHandler,
) -> None:
    journal = Journal(budget, KIND, MAKER)
    one, two = journal.start(header(1)), journal.start(header(2))
    assert (one.number, two.number) == (0, 1)
    assert one.release(0, [1, 2]) == [1, 2]
    assert two.release(0, [3]) == [3]
    assert two.release(1, []) == []
    again = Journal(budget, KIND, MAKER).entries()
    assert [entry.header for entry in again] == [header(1), header(2)]
    assert [entry.step(0) for entry in again] == [[1, 2], [3]]
    assert [entry.step(1) for entry in again] == [None, []]


def test_other_kinds_and_other_accounts_see_nothing_of_it(
    budget: PrivacyBudgetHandler,
) -> None:
    Journal(budget, KIND, MAKER).start(header(1)).release(0, [1])
    assert Journal(budget, "another", MAKER).entries() == []
    assert Journal(budget, KIND, "another").entries() == []
    other = PrivacyBudgetHandler(
        epsilon=50,
        delta=1e-5,
        queries=1,
        accounting="zcdp",
        ledger=budget.ledger,
        account="other",
    )
    other.admit(Demand("test", (GaussianPart(9.0),)), unit_key="who", n_units=100)
    assert Journal(other, KIND, MAKER).entries() == []


def test_the_first_draw_that_is_stored_is_the_released_one(
    budget: PrivacyBudgetHandler,
) -> None:
    entry = Journal(budget, KIND, MAKER).start(header(1))
    assert entry.release(0, [4, 5]) == [4, 5]
    assert entry.release(0, [6, 7]) == [4, 5]
    assert entry.step(0) == [4, 5]


def test_one_charge_starts_one_entry(budget: PrivacyBudgetHandler) -> None:
    journal = Journal(budget, KIND, MAKER)
    assert journal.start(header(1)).number == journal.start(header(1)).number == 0
    assert len(journal.entries()) == 1


def test_no_two_stored_things_share_a_key(budget: PrivacyBudgetHandler) -> None:
    keys = [
        Journal(budget, kind, maker).key(number, what)
        for maker in ("m", "n")
        for kind in ("a", "b", "a0")
        for number in range(12)
        for what in ("start", *[f"step {n}" for n in range(12)])
    ]
    assert len(set(keys)) == len(keys)
    assert {len(key) for key in keys} == {64}


@pytest.mark.parametrize(
    "damage",
    ["", "nonsense", "[", "[" * 50_000, "null", "7", "[1]", "{}", '{"format": 2}'],
)
def test_damaged_starts_are_refused(damage: str, budget: PrivacyBudgetHandler) -> None:
    journal = Journal(budget, KIND, MAKER)
    journal.start(header(1))
    budget.ledger.store_answer(budget.account, journal.key(1, "start"), damage)
    with pytest.raises(LedgerError, match="can't be read") as caught:
        journal.entries()
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "damage",
    ["", "nonsense", "{}", "7", "null", "[1.0]", '["1"]', "[true]", "[[1]]", "[null]"],
)
def test_damaged_steps_are_refused(damage: str, budget: PrivacyBudgetHandler) -> None:
    journal = Journal(budget, KIND, MAKER)
    entry = journal.start(header(1))
    budget.ledger.store_answer(budget.account, journal.key(0, "step 0"), damage)
    for read in (lambda: entry.step(0), lambda: entry.release(0, [1])):
        with pytest.raises(LedgerError, match="can't be read"):
            read()


def test_a_ledger_that_keeps_nothing_releases_nothing(
    budget: PrivacyBudgetHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = Journal(budget, KIND, MAKER).start(header(1))
    for name in ("store_answer", "stored_answer"):
        monkeypatch.setattr(budget.ledger, name, lambda *_: None)
    with pytest.raises(LedgerError, match="did not keep"):
        entry.release(0, [1])
