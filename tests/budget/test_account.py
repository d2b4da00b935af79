"""A plan and a filter answer the same questions; nothing above asks which it is."""

from __future__ import annotations

from typing import Any

import pytest

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.budget.account import Account
from langchain_dpicl.budget.filter import AccountFilter
from langchain_dpicl.budget.plan import AccountPlan
from langchain_dpicl.errors import (
    BudgetExhaustedError,
)
from langchain_dpicl.mechanisms import voting

VOTE = voting.charge(name="vote")


def handler(kind: Any, **terms: Any) -> PrivacyBudgetHandler:
    given = {"epsilon": 8, "delta": 1e-6, "queries": 2, "ledger": ":memory:", **terms}
    return PrivacyBudgetHandler(accounting=kind, **given)


@pytest.mark.parametrize("kind", [None, "renyi"])
def test_both_answer_the_same_questions(kind: Any) -> None:
    budget = handler(kind)
    quoted = budget.quote(VOTE)
    budget.require_payable(VOTE)
    assert budget.can_afford(VOTE)
    first = budget.charge(VOTE)
    assert first.events == quoted
    assert budget.spent().queries == first.sequence == 1
    assert budget.remaining().queries == 1
    assert budget.charge(VOTE).events == quoted
    assert budget.remaining().queries == 0
    assert not budget.can_afford(VOTE)
    for refused in (budget.require_payable, budget.charge):
        with pytest.raises(BudgetExhaustedError):
            refused(VOTE)
    assert budget.public_state(first)["queries_spent"] == 1
    assert budget.public_state(first)["epsilon_spent"] < budget.spent()


def test_both_fill_in_one_interface() -> None:
    assert isinstance(handler(None)._account, AccountPlan)
    assert isinstance(handler("renyi")._account, AccountFilter)
    shared = {name for name in vars(Account) if not name.startswith("_")}
    for kind in (AccountPlan, AccountFilter):
        own = {name for name in vars(kind) if not name.startswith("_")}
        assert own <= shared | {"fixes_classes"}
        assert not kind.__abstractmethods__


def test_classes_are_fixed_by_a_plan_of_several_charges_alone() -> None:
    assert handler(None).fixes_classes
    assert not handler(None, queries=1).fixes_classes
    assert not handler("renyi").fixes_classes
