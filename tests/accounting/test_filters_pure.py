"""The filter that adds up pure epsilons: basic composition, in whole steps."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp
from support.release_templates import template

from langchain_dpicl.accounting import (
    Event,
    Exponential,
    Failure,
    Gaussian,
    GaussianPart,
    Parallel,
    PrivacyFilter,
    Pure,
    PurePart,
    ZCDPEvent,
    limits,
)
from langchain_dpicl.accounting.filters import BUDGET_UNITS, Cost
from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    PlanMismatchError,
)

epsilons = st.floats(1e-6, 50)


def total(events: list[Event]) -> Fraction:
    found = Fraction(0)
    for event in events:
        assert isinstance(event, Pure | Exponential)
        found += Fraction(event.epsilon) * event.count
    return found


def fails(loss: float, epsilon: float) -> mp.mpf:
    """Return the least delta at which every mechanism of a pure loss keeps epsilon."""
    with mp.workdps(60):
        if loss <= epsilon:
            return mp.mpf(0)
        return (mp.exp(loss) - mp.exp(epsilon)) / (1 + mp.exp(loss))


@given(limit=st.floats(1e-9, 300), delta=st.floats(1e-12, 0.5))
def test_the_limit_is_the_largest_private_loss(limit: float, delta: float) -> None:
    found = limits.pure_budget(limit, delta)
    assert fails(found, limit) <= delta
    # What doubles can't tell from epsilon, or little more, is left.
    if delta > 1e-9 * limit:
        assert fails(limit + (found - limit) * 1.001 + 1e-12, limit) > delta * 0.99


@pytest.mark.parametrize("parts", [[1.0, 2.0], [0.1] * 30, [0.75] * 4, [3.0]])
def test_parts_that_add_up_to_epsilon_are_paid_for(parts: list[float]) -> None:
    budget = PrivacyBudgetHandler(
        epsilon=3.0, delta=1e-6, accounting="pure", ledger=":memory:"
    )
    for part in parts:
        budget.charge(template("table", (PurePart(part),)))
    assert budget.spent().epsilon == pytest.approx(3.0)
    assert budget.spent().epsilon <= 3.0
    with pytest.raises(BudgetExhaustedError):
        budget.charge(template("table", (PurePart(1e-5),)))


@given(limit=epsilons, parts=st.lists(epsilons, max_size=12))
def test_what_is_admitted_never_passes_epsilon(
    limit: float, parts: list[float]
) -> None:
    account = PrivacyFilter("pure", limit, 1e-6)
    spent, admitted = Cost(0, 0), []
    for part in parts:
        cost = account.cost([Pure(part)])
        if account.affords(spent, cost):
            spent = Cost(spent.loss + cost.loss, spent.failure + cost.failure)
            admitted.append(Pure(part))
    found = total(list(admitted))
    assert found <= Fraction(account.budget)
    assert found <= Fraction(account.epsilon_spent(spent)) + Fraction(1e-6)
    assert fails(float(found), limit) <= account.delta_left


@given(limit=epsilons, n=st.integers(1, 1000))
def test_n_equal_parts_are_lost_by_one_step_each_at_most(limit: float, n: int) -> None:
    account = PrivacyFilter("pure", limit, 1e-6)
    cost = account.cost([Pure(limit / n * (1 - 1e-6))])
    assert cost.loss * n <= BUDGET_UNITS


def test_two_releases_cost_their_sum() -> None:
    account = PrivacyFilter("pure", 6.0, 1e-6)
    cost = account.cost([Pure(1.0), Exponential(2.0)])
    assert account.epsilon_spent(cost) == pytest.approx(3.0)
    zcdp = PrivacyFilter("zcdp", 6.0, 1e-6)
    same = zcdp.cost([Pure(1.0), Exponential(2.0)])
    assert zcdp.epsilon_spent(same) > 4.0


def test_disjoint_classes_cost_the_dearest() -> None:
    account = PrivacyFilter("pure", 4.0, 1e-6)
    event = Parallel([[Pure(1.0)], [Pure(0.5, count=3)]])
    assert account.epsilon_spent(account.cost([event])) == pytest.approx(1.5)


def test_failures_have_their_own_limit() -> None:
    account = PrivacyFilter("pure", 4.0, 1e-6)
    cost = account.cost([Pure(1.0), Failure(2.5e-7)])
    assert cost.failure == math.ceil(BUDGET_UNITS / 2)


@pytest.mark.parametrize("event", [Gaussian(9.0), ZCDPEvent(0.1)])
def test_what_has_no_pure_epsilon_is_refused(event: Any) -> None:
    with pytest.raises(InvalidParameterError, match="'zcdp'"):
        PrivacyFilter("pure", 4.0, 1e-6).cost([event])


def test_an_account_by_it() -> None:
    budget = PrivacyBudgetHandler(
        epsilon=3.0, delta=1e-6, accounting="pure", queries=4, ledger=":memory:"
    )
    open_one = template("table", (PurePart(),))
    assert budget.charge(open_one).noise.epsilon == pytest.approx(0.75, rel=1e-6)
    budget.charge(template("table", (PurePart(2.0),)))
    assert budget.spent().epsilon == pytest.approx(2.75, rel=1e-6)
    with pytest.raises(BudgetExhaustedError):
        budget.charge(template("table", (PurePart(0.5),)))
    with pytest.raises(PlanMismatchError, match="pure"):
        budget.charge(template("vote", (GaussianPart(),)))


def test_the_account_opens_again(tmp_path: Any) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    for spent in (1.0, 2.0):
        budget = PrivacyBudgetHandler(
            epsilon=3.0, delta=1e-6, accounting="pure", ledger=url
        )
        budget.charge(template("table", (PurePart(1.0),)))
        assert budget.spent().epsilon == pytest.approx(spent)
