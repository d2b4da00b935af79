"""What an account with a filter has left, to the last step."""

from __future__ import annotations

from typing import Any

import pytest
from support.release_templates import template

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.accounting import (
    BUDGET_UNITS,
    Failure,
    Gaussian,
    GaussianPart,
    PrivacyFilter,
)

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
