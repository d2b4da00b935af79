"""How a plan sets noise, and when it asks twice."""

from __future__ import annotations

from typing import Any

import pytest

from langchain_dpicl import accounting
from langchain_dpicl.accounting import Charge, Check, Pure, merge
from langchain_dpicl.budget.planning import is_affordable, plan_queries
from langchain_dpicl.errors import InvalidParameterError, PlanMismatchError
from langchain_dpicl.mechanisms import keyword_joint, keyword_ptr, tables, voting

TERMS: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-6, "queries": 20}
SAMPLED = voting.charge(sampling_rate=0.5)


@pytest.mark.parametrize(
    "charge",
    [
        voting.charge(),
        SAMPLED,
        keyword_ptr.charge(),
        keyword_ptr.range_charge(),
        keyword_joint.charge(),
        tables.tallies_charge(),
    ],
)
@pytest.mark.parametrize("queries", [1, 20])
def test_releases_stay_within_epsilon_and_use_it(charge: Charge, queries: int) -> None:
    terms = {**TERMS, "queries": queries}
    events = plan_queries(charge, **terms)
    assert charge.fits(events)
    assert 7.99 < accounting.compose(merge(events, queries), 1e-6) <= 8.0
    assert is_affordable(events, **terms)


def test_fixed_noise_is_checked() -> None:
    fixed = Charge(name="flip", parts=(Pure(epsilon=0.5),))
    terms: dict[str, Any] = {"delta": 1e-6, "queries": 2}
    assert plan_queries(fixed, epsilon=1.0, **terms) == (Pure(epsilon=0.5),)
    with pytest.raises(PlanMismatchError, match="flip answer 2 queries at the noise"):
        plan_queries(fixed, epsilon=0.9, **terms)


@pytest.mark.parametrize("name", TERMS)
def test_terms_are_checked_by_name(name: str) -> None:
    with pytest.raises(InvalidParameterError, match=name):
        plan_queries(SAMPLED, **{**TERMS, name: 0})


def test_a_sampled_plan_is_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    plan_queries(SAMPLED, **TERMS)
    answers = iter([False, None])
    monkeypatch.setattr(
        accounting, "check", lambda *_: Check(1.0, 2.0, 3.0, next(answers), "why")
    )
    with pytest.raises(PlanMismatchError, match="disagree"):
        plan_queries(SAMPLED, **TERMS)
    with pytest.warns(UserWarning, match="can't judge this plan: why"):
        plan_queries(SAMPLED, **TERMS)
