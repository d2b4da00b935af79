"""A plan and a filter answer the same questions; nothing above asks which it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from support.release_templates import template

import langchain_dpicl
from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.accounting import (
    GaussianPart,
)
from langchain_dpicl.budget.account import Account
from langchain_dpicl.budget.filter import AccountFilter
from langchain_dpicl.budget.plan import AccountPlan
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    PlanMismatchError,
)
from langchain_dpicl.mechanisms import vote_template

PACKAGE = Path(langchain_dpicl.__file__).parent
ASKS = re.compile(r"""accounting [!=]= "plan"|\.filter\b(?!\()|isinstance\(.*Account""")
DECIDES = {
    "budget/terms.py": "chooses between the two, once, and writes a handler's repr",
    "budget/handler.py": "opens a copy by the constructor's own argument",
    "ledger/base.py": "what a charge costs, and the limit",
    "ledger/sql/rows.py": "refuses a stored row that is neither",
    "report/curve.py": "draws epsilon over delta of each",
}

VOTE = vote_template("vote")


def handler(kind: Any, **terms: Any) -> PrivacyBudgetHandler:
    given = {"epsilon": 8, "delta": 1e-6, "queries": 2, "ledger": ":memory:", **terms}
    return PrivacyBudgetHandler(accounting=kind, **given)


def test_which_of_the_two_an_account_is_gets_decided_once() -> None:
    asking = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if ASKS.search(file.read_text())
    }
    assert asking == set(DECIDES)


@pytest.mark.parametrize("kind", [None, "zcdp", "gdp"])
def test_both_answer_the_same_questions(kind: Any) -> None:
    budget = handler(kind)
    quoted = budget.quote(VOTE)
    budget.require_payable(VOTE)
    assert budget.can_afford(VOTE)
    first = budget.charge(VOTE)
    assert first.noise == quoted
    assert budget.spent().queries == first.sequence == 1
    assert budget.remaining().queries == 1
    assert budget.charge(VOTE).noise == quoted
    assert budget.remaining().queries == 0
    assert not budget.can_afford(VOTE)
    for refused in (budget.require_payable, budget.charge):
        with pytest.raises(BudgetExhaustedError):
            refused(VOTE)
    assert budget.public_state(first)["queries_spent"] == 1
    assert budget.public_state(first)["epsilon_spent"] < budget.spent()


def test_both_fill_in_one_interface() -> None:
    assert isinstance(handler(None)._account, AccountPlan)
    assert isinstance(handler("zcdp")._account, AccountFilter)
    shared = {name for name in vars(Account) if not name.startswith("_")}
    for kind in (AccountPlan, AccountFilter):
        own = {name for name in vars(kind) if not name.startswith("_")}
        assert own <= shared | {"fixes_classes"}
        assert not kind.__abstractmethods__


def test_a_release_that_does_not_fit_is_no_spent_budget() -> None:
    budget = handler("gdp")
    budget.charge(VOTE)
    sampled = template("vote", (GaussianPart(3.0),), 0.1)
    with pytest.raises(PlanMismatchError, match="gdp"):
        budget.charge(sampled)
    planned = handler(None)
    planned.charge(VOTE)


def test_classes_are_fixed_by_a_plan_of_several_charges_alone() -> None:
    assert handler(None).fixes_classes
    assert not handler(None, queries=1).fixes_classes
    assert not handler("renyi").fixes_classes


# -- what a ledger of somebody else's returns ------------------------------------------


# -- what is left, exactly -------------------------------------------------------------


# -- one kind of unit ------------------------------------------------------------------
