"""What an account with a filter has left, to the last step."""

from __future__ import annotations

from typing import Any

import pytest
from support.release_templates import template

from langchain_dpicl import Allowance, PrivacyBudgetHandler
from langchain_dpicl.accounting import (
    BUDGET_UNITS,
    Cost,
    Failure,
    Gaussian,
    GaussianPart,
    PrivacyFilter,
)
from langchain_dpicl.budget.filter import _loss_within
from langchain_dpicl.errors import BudgetExhaustedError

VOTE = template("vote", (GaussianPart(),))


def account(**changes: Any) -> PrivacyBudgetHandler:
    terms: dict[str, Any] = {
        "epsilon": 8,
        "delta": 1e-6,
        "ledger": ":memory:",
        "accounting": "zcdp",
    }
    return PrivacyBudgetHandler(**{**terms, **changes})


def filter_of(budget: PrivacyBudgetHandler) -> PrivacyFilter:
    found = budget._terms.filter
    assert found is not None
    return found


@pytest.mark.parametrize("scope", ["corpus", "unit"])
def test_the_whole_budget_pays_for_a_release_of_just_that_cost(scope: Any) -> None:
    whole = account(queries=1, scope=scope)
    events = whole.price(VOTE)
    assert filter_of(whole).cost(events).loss == BUDGET_UNITS
    failures = (*events, Failure(0.2e-6))
    assert filter_of(whole).cost(failures) == (BUDGET_UNITS, BUDGET_UNITS)
    assert whole.can_afford(events)
    assert whole.can_afford(failures)
    costlier = (Gaussian(events[0].noise_multiplier * (1 - 1e-6)),)
    assert not whole.can_afford(costlier)
    assert not whole.can_afford((*events, Failure(0.2001e-6)))
    assert not whole.can_afford((Failure(0.9e-6),))


def test_what_was_spent_counts_in_both_parts() -> None:
    budget = account(queries=2)
    half = budget.price(VOTE)
    fails = template("p", (GaussianPart(500.0),), needs_delta0=True, delta0=0.15e-6)
    budget.charge(fails)
    assert budget.can_afford(Failure(0.04e-6))
    assert not budget.can_afford(Failure(0.06e-6))
    budget.charge(VOTE)
    assert not budget.can_afford((*half, *half))
    assert not budget.can_afford(half)
    assert budget.can_afford(Gaussian(half[0].noise_multiplier * 1.1))
    # What was refused as an event is refused as a charge.
    with pytest.raises(BudgetExhaustedError):
        budget.charge(VOTE)


def test_a_spent_account_of_a_corpus_says_so_and_one_of_units_never_does() -> None:
    for scope in ("corpus", "unit"):
        budget = account(queries=1, scope=scope)
        assert budget.can_afford()
        budget.charge(VOTE, charges_units=True)
        assert budget.can_afford() is (scope == "unit")
        assert budget.can_afford(VOTE) is (scope == "unit")


def test_one_step_that_is_left_is_something() -> None:
    budget = account(queries=2)
    budget.charge(VOTE)
    budget.charge(VOTE)
    # Two halves of an odd number of steps.
    assert budget.ledger.state("default").spent.loss == BUDGET_UNITS - 1
    assert budget.can_afford()
    assert not budget.can_afford(VOTE)


@pytest.mark.parametrize(
    ("fixed", "left"), [(0.1, 9), (0.11, 8), (0.35, 6), (1.0, 0), (None, 9)]
)
def test_failures_use_up_queries_as_losses_do(fixed: float | None, left: int) -> None:
    """Of ten queries; a tenth of the failures' part is one query's."""
    budget = account(queries=10, delta0_share=0.5)
    if fixed is None:
        budget.charge(VOTE)
    else:
        part = (GaussianPart(500.0),)
        delta0 = fixed * 0.5e-6 * (1 - 1e-9)
        budget.charge(template("p", part, needs_delta0=True, delta0=delta0))
    assert budget.remaining().queries == left


def test_without_a_part_for_failures_only_losses_count() -> None:
    budget = account(queries=10, delta0_share=0.0)
    for left in range(9, -1, -1):
        budget.charge(VOTE)
        assert budget.remaining().queries == left


def test_queries_that_are_left_may_be_as_many_as_steps() -> None:
    budget = account(queries=BUDGET_UNITS)
    assert budget.remaining().queries == BUDGET_UNITS
    assert account(queries=BUDGET_UNITS // 2 + 1).remaining().queries == BUDGET_UNITS
    assert account(queries=None).remaining().queries is None


@pytest.mark.parametrize("kind", ["zcdp", "gdp"])
def test_the_loss_of_an_epsilon_is_the_largest_within_it(kind: Any) -> None:
    found = PrivacyFilter(kind, 8.0, 1e-6, delta0_share=0.2)
    for loss in (1, 2, 3, 10**6, BUDGET_UNITS - 1, BUDGET_UNITS):
        epsilon = found.epsilon_spent(Cost(loss, BUDGET_UNITS))
        most = _loss_within(found, epsilon)
        assert most >= loss
        assert found.epsilon_spent(Cost(most, BUDGET_UNITS)) <= epsilon
        if most < BUDGET_UNITS:
            assert found.epsilon_spent(Cost(most + 1, BUDGET_UNITS)) > epsilon
    assert _loss_within(found, 8.0) == BUDGET_UNITS
    assert _loss_within(found, 1e-12) == 0


def test_a_caller_without_losses_has_spent_nothing_whatever_failed() -> None:
    budget = account(queries=4)
    budget.charge(VOTE)
    alice = budget.for_caller(Allowance("alice", 5.0))
    assert alice.spent() == 0.0
    assert alice.remaining() == budget.remaining() < 5.0
    alice.charge(VOTE)
    # As if all of the failures' part had been spent.
    state = budget.ledger.state("default")
    loss = state.spent.loss // 2
    found = filter_of(budget).epsilon_spent(Cost(loss, BUDGET_UNITS))
    assert alice.spent() == found
    assert found > filter_of(budget).epsilon_spent(Cost(loss, 0))


def test_an_account_of_units_counts_no_further_than_a_balance() -> None:
    budget = account(queries=2, scope="unit")
    fails = template("p", (GaussianPart(),), needs_delta0=True)
    for _ in range(3):
        budget.charge(fails, charges_units=True)
    limit = filter_of(budget).limit
    assert budget.ledger.state("default").spent.loss > limit.loss
    assert budget.spent() == filter_of(budget).epsilon_spent(limit) <= 8.0
