"""Per-unit accounts: units pay once for a charge, durably, before anything is drawn."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from langchain_dpicl import (
    BudgetExhaustedError,
    InvalidParameterError,
    LedgerError,
    PrivacyBudgetHandler,
    UnsoundStoreError,
)
from langchain_dpicl.accounting import Charge, Gaussian
from langchain_dpicl.budget import charges
from langchain_dpicl.ledger.book import Transaction

VOTE = Charge(name="vote", parts=(Gaussian(noise_multiplier=None),))
UNITS: Any = {"charges_units": True, "unit_key": "patient"}


def opened(**terms: Any) -> PrivacyBudgetHandler:
    terms = {"queries": 2, "scope": "unit", **terms}
    return PrivacyBudgetHandler(epsilon=8, delta=1e-6, ledger=":memory:", **terms)


def ask(budget: PrivacyBudgetHandler, *units: str, key: str | None = None) -> Any:
    """Return who has paid, as a draw that shows it would."""
    with budget.buy(VOTE, key=key, **UNITS) as paid:
        return paid.once(lambda: sorted(paid.collect(units)) if paid.collect else None)


def test_a_unit_pays_until_its_own_balance_is_spent() -> None:
    budget = opened()
    assert [ask(budget, "a", "b"), ask(budget, "a"), ask(budget, "a", "b")] == [
        ["a", "b"],
        ["a"],
        ["b"],
    ]
    # Nobody can pay: the question costs a charge and shows nobody, and no error.
    assert ask(budget, "a", "b") == []
    assert ask(budget) == []
    assert ask(budget, "c") == ["c"]
    assert budget.remaining().queries is None
    budget.ledger.verify()


def test_nothing_is_drawn_for_units_that_were_not_asked_to_pay() -> None:
    budget = opened()
    with pytest.raises(UnsoundStoreError, match="pass `collect` on"):
        budget.buy(VOTE, **UNITS).once(lambda: "drawn")
    stored = charges(budget.ledger, "default")
    assert [c.values for c in stored] == [()]


def test_a_source_that_swallows_a_failed_payment_releases_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget, append = opened(), Transaction.append

    def full(self: Transaction, book: Any, kind: str, body: Any, **more: Any) -> Any:
        if kind == "units":
            raise LedgerError("The disk is full.")
        return append(self, book, kind, body, **more)

    monkeypatch.setattr(Transaction, "append", full)
    paid = budget.buy(VOTE, **UNITS)

    def swallowing() -> str:
        with suppress(LedgerError):
            paid.collect(["a"])
        return "drawn"

    with pytest.raises(UnsoundStoreError):
        paid.once(swallowing)
    assert [c.values for c in charges(budget.ledger, "default")] == [()]


def test_units_pay_once_for_a_charge() -> None:
    budget = opened()

    def twice() -> Any:
        assert paid.collect is not None
        return [sorted(paid.collect(["a"])), sorted(paid.collect(["b"]))]

    with (
        budget.buy(VOTE, **UNITS) as paid,
        pytest.raises(UnsoundStoreError, match="exactly once"),
    ):
        paid.once(twice)
    assert ask(budget, "a", "b") == ["a", "b"]
    assert ask(budget, "a", "b") == ["b"], "a has paid for the draw that was refused"


def test_a_lost_draw_is_charged_anew_and_its_payers_pay_again() -> None:
    budget = opened()

    def lost() -> Any:
        assert paid.collect is not None
        paid.collect(["a"])
        raise ZeroDivisionError

    for number in (1, 2):
        with budget.buy(VOTE, key="q", **UNITS) as paid:
            assert paid.charge == number
            with pytest.raises(ZeroDivisionError):
                paid.once(lost)
    assert ask(budget, "a", "b", key="q") == ["b"]
    again = budget.buy(VOTE, key="q", **UNITS)
    assert (again.is_again, again.collect) == (True, None)
    assert again.once(lambda: "x") == ["b"]


def test_who_was_replaced_charges_nobody() -> None:
    budget = opened()
    paid = budget.buy(VOTE, key="q", **UNITS)
    paid.leave()
    assert paid.collect is not None
    with pytest.raises(LedgerError, match="Nothing is left to draw here"):
        paid.collect(["a"])
    assert [ask(budget, "a"), ask(budget, "a")] == [["a"], ["a"]]


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({}, "can't name the units"),
        ({"charges_units": True, "steps": 2}, "draws several times"),
        ({"charges_units": True, "resumable": True}, "or goes on"),
    ],
)
def test_what_units_cannot_pay_for_is_refused_before_the_charge(
    terms: Any, words: str
) -> None:
    budget = opened()
    with pytest.raises(InvalidParameterError, match=words):
        budget.buy(VOTE, **terms)
    assert budget.spent().queries == 0


def test_a_filter_charges_each_unit_what_a_release_is() -> None:
    budget = opened(accounting="renyi", queries=None)
    loud = Charge(name="vote", parts=(Gaussian(noise_multiplier=1.0),))
    paid: list[list[str]] = []
    for units in (["a", "b"], ["a"], ["a", "b"], ["a", "b"]):
        with budget.buy(loud, **UNITS) as bought:
            collect = bought.collect
            assert collect is not None
            paid.append(bought.once(lambda u=units: sorted(collect(u))))  # noqa: B023
    most = sum("a" in units for units in paid)
    assert most == sum("b" in units for units in paid) + (paid[-1] == ["b"]) >= 1
    assert budget.can_afford(loud)
    huge = Charge(name="vote", parts=(Gaussian(noise_multiplier=0.1),))
    assert not budget.can_afford(huge)
    with pytest.raises(BudgetExhaustedError):
        budget.buy(huge, **UNITS)
