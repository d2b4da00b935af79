"""What an account with a plan has left, and what it compares."""

from __future__ import annotations

from typing import Any

import pytest
from support.release_templates import template

from langchain_dpicl import Allowance, PrivacyBudgetHandler, accounting
from langchain_dpicl.accounting import Gaussian, GaussianPart, PurePart
from langchain_dpicl.budget import plan as plans
from langchain_dpicl.budget.plan import _uses_within
from langchain_dpicl.errors import PlanMismatchError

VOTE = template("vote", (GaussianPart(),))
FLIP = template("flip", (PurePart(),))


def account(**changes: Any) -> PrivacyBudgetHandler:
    terms: dict[str, Any] = {
        "epsilon": 8,
        "delta": 1e-6,
        "queries": 3,
        "ledger": ":memory:",
    }
    return PrivacyBudgetHandler(**{**terms, **changes})


@pytest.mark.parametrize("scope", ["corpus", "unit"])
def test_a_plan_counts_its_queries(scope: Any) -> None:
    budget = account(scope=scope)
    of_corpus = scope == "corpus"
    for used in range(4):
        assert budget.can_afford() is (used < 3 or not of_corpus)
        assert budget.can_afford(VOTE) is (used < 3 or not of_corpus)
        assert budget.remaining().queries == (3 - used if of_corpus else None)
        assert budget.spent().queries == used
        if used < 3:
            budget.charge(VOTE, charges_units=True)
    events = budget.price(VOTE)
    assert budget.spent() == accounting.spent(events, 3, 1e-6)
    if not of_corpus:
        # What a unit has spent that took part every time, and could pay three times.
        budget.charge(VOTE, charges_units=True)
        assert budget.spent() == accounting.spent(events, 3, 1e-6)


def test_before_the_first_charge_all_is_open() -> None:
    budget = account()
    assert budget.can_afford(VOTE)
    assert budget.can_afford(FLIP)
    z = budget.price(VOTE)[0].noise_multiplier
    assert budget.can_afford(Gaussian(z))
    assert not budget.can_afford(Gaussian(z * 0.999))
    alice = budget.for_caller(Allowance("alice", 0.001))
    # Nothing is planned, so nobody knows what a query will cost.
    assert alice.can_afford()
    assert alice.remaining().queries == 3
    assert alice.remaining() == 0.001
    assert not alice.can_afford(VOTE)
    budget.charge(VOTE)
    assert not alice.can_afford()
    assert alice.remaining().queries == 0


def test_afterwards_only_what_is_planned_fits() -> None:
    budget = account()
    events = budget.charge(VOTE).events
    z = events[0].noise_multiplier
    assert budget.can_afford(events)
    assert budget.can_afford(Gaussian(z))
    for other in (Gaussian(z * 2), Gaussian(z / 2), FLIP, [*events, *events]):
        assert not budget.can_afford(other)
    said = r"'default' is planned for another kind of release than this flip release: "
    with pytest.raises(PlanMismatchError, match=said) as caught:
        budget.price(FLIP)
    assert f"each of its queries spends {events[0]}. Ask" in str(caught.value)


def test_a_plan_of_long_events_is_cut_short() -> None:
    budget = account()
    long = template("both", (GaussianPart(),) * 12)
    events = budget.charge(long).events
    with pytest.raises(PlanMismatchError) as caught:
        budget.charge(FLIP)
    said = " and ".join(map(str, events))
    assert f"spends {said[:200]}. Ask" in str(caught.value)


def test_a_price_is_computed_once_before_it_is_paid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    inner = plans.plan_queries

    def counted(shape: Any, **terms: Any) -> Any:
        asked.append((shape, terms))
        return inner(shape, **terms)

    monkeypatch.setattr(plans, "plan_queries", counted)
    budget = account()
    price = budget.price(VOTE)
    assert budget.price(VOTE) == price
    assert budget.charge(VOTE).events == price
    assert budget.price(VOTE) == price
    terms = {"epsilon": 8.0, "delta": 1e-6, "queries": 3}
    assert asked == [(VOTE, terms)]
    account().price(FLIP)
    assert asked[1:] == [(FLIP, terms)]


def test_as_many_uses_as_compose_to_an_epsilon_are_within_it() -> None:
    events = account(queries=9).price(VOTE)
    each = [accounting.spent(events, uses, 1e-6) for uses in range(1, 10)]
    for uses, epsilon in enumerate(each, 1):
        assert _uses_within(events, 9, epsilon, 1e-6) == uses
        assert _uses_within(events, 9, epsilon - 1e-9, 1e-6) == uses - 1
    assert _uses_within(events, 9, 1e9, 1e-6) == 9
    assert _uses_within(events, 1, 1e9, 1e-6) == 1


def test_a_plan_that_was_stored_is_what_a_release_costs() -> None:
    budget = account()
    other = account(ledger=budget.ledger)
    events = budget.charge(VOTE).events
    assert other.price(VOTE) == events
    assert other.quote(VOTE).noise_multiplier == events[0].noise_multiplier
    assert other.charge(VOTE).sequence == 2
