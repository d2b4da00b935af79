"""Accounts, plans and accountants, asked with numbers that nobody means."""

from __future__ import annotations

from typing import Any

import pytest
from support.extremes import NUMBERS, OTHERS, soon, sweep
from support.release_templates import template

from langchain_dpicl import PrivacyBudgetHandler, accounting
from langchain_dpicl.accounting import (
    EventTemplate,
    Exponential,
    ExponentialPart,
    Failure,
    Gaussian,
    GaussianPart,
    PrivacyFilter,
    Pure,
    PurePart,
    ZCDPEvent,
)
from langchain_dpicl.budget import Bundle, forecast, plan_queries
from langchain_dpicl.errors import InvalidParameterError

VOTE = template("vote", (GaussianPart(),))
TERMS = {"epsilon": 8.0, "delta": 1e-6, "queries": 20}
RELEASES = {
    "vote": VOTE,
    "sampled": template("vote", (GaussianPart(),), sampling_rate=0.1),
    "pure": template("vote", (PurePart(),)),
    "joint": template("ksa/joint", (ExponentialPart(),)),
    "ptr": template("ksa/ptr", (ExponentialPart(), GaussianPart()), needs_delta0=True),
    "fixed": template("vote", (GaussianPart(50.0),)),
    "fixed pure": template("vote", (PurePart(1e-3),)),
}


def account(**terms: Any) -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(ledger=":memory:", **terms)


def use_account(shape: EventTemplate, **terms: Any) -> None:
    budget = account(**terms)
    budget.can_afford(shape)
    budget.quote(shape)
    budget.charge(shape)
    budget.spent()
    budget.remaining()
    budget.public_state()
    repr(budget)


def test_accounts() -> None:
    refused = sweep(lambda **terms: use_account(VOTE, **terms), TERMS)
    # No number of queries among them can be, and of deltas the two smallest.
    every = len(NUMBERS) + len(OTHERS)
    assert refused["queries"] == every
    assert refused["delta"] >= every - 2


@pytest.mark.parametrize("method", ["zcdp", "gdp", "renyi"])
def test_filters(method: Any) -> None:
    terms = {**TERMS, "delta0_share": 0.2}
    sweep(lambda **changed: use_account(VOTE, accounting=method, **changed), terms)


def test_orders() -> None:
    sweep(
        lambda order: account(epsilon=8, delta=1e-6, accounting="renyi", order=order),
        {"order": 8.0},
    )


@pytest.mark.filterwarnings("ignore:The second accountant can't judge:UserWarning")
@pytest.mark.parametrize("name", RELEASES)
def test_plans(name: str) -> None:
    sweep(lambda **terms: plan_queries(RELEASES[name], **terms), TERMS)


def test_ten_billion_queries_are_refused_whatever_the_release() -> None:
    for shape in RELEASES.values():
        with soon(shape), pytest.raises(InvalidParameterError, match="queries"):
            use_account(shape, **{**TERMS, "queries": 10**10})


def test_demands() -> None:
    good = {
        "sampling_rate": 1.0,
        "delta0": 1e-9,
        "share": 1.0,
        "uses": 1,
        "parts": (GaussianPart(),),
    }
    sweep(lambda **terms: template("vote", needs_delta0=True, **terms), good)
    for part in (GaussianPart, PurePart, ExponentialPart):
        sweep(lambda value, part=part: template("vote", (part(value),)), {"value": 2.0})
    sweep(lambda ratio: template("x", (ExponentialPart(None, ratio),)), {"ratio": 2.0})
    sweep(lambda shapes: Bundle("x", shapes, disjoint=True), {"shapes": (VOTE,)})


@pytest.mark.parametrize("terms", [{}, {"accounting": "zcdp"}])
def test_what_is_no_release_is_refused_and_costs_nothing(terms: Any) -> None:
    budget = account(**TERMS, **terms)
    for value in (*NUMBERS, *OTHERS, Gaussian(2.0), [VOTE], VOTE.to_dict()):
        for ask in (budget.charge, budget.quote, budget.require_payable):
            with pytest.raises(InvalidParameterError, match=r"EventTemplate"):
                ask(value)
        if value is not None and not isinstance(value, Gaussian):
            with pytest.raises(InvalidParameterError, match=r"EventTemplate"):
                budget.can_afford(value)
        with pytest.raises(InvalidParameterError, match=r"EventTemplate"):
            forecast(value, **TERMS, groups=10)
    assert budget.spent().queries == 0
    assert budget.can_afford([Gaussian(50.0)])
    sweep(
        lambda **more: budget.charge(VOTE, **more) if budget.can_afford() else None,
        {"unit_key": "patient"},
    )


@pytest.mark.parametrize("name", ["vote", "joint", "ptr"])
def test_forecasts(name: str) -> None:
    good = {
        **TERMS,
        "groups": 100,
        "public_calls": 1,
        "choices": 5,
        "items_per_answer": 2,
    }
    sweep(lambda **more: forecast(RELEASES[name], **more).advice(), good)


def test_a_forecast_for_very_many_choices_is_a_number() -> None:
    leads = [
        forecast(VOTE, **TERMS, groups=100, choices=10**power).required_lead
        for power in (1, 6, 12, 18)
    ]
    assert leads == sorted(set(leads))


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        (Gaussian, {"noise_multiplier": 2.0, "sampling_rate": 0.5, "count": 2}),
        (Exponential, {"epsilon": 1.0, "count": 2}),
        (Pure, {"epsilon": 1.0, "count": 2}),
        (ZCDPEvent, {"rho": 1.0, "count": 2}),
        (Failure, {"delta0": 1e-9, "count": 2}),
    ],
)
def test_events_cost_something_at_once(event: Any, arguments: dict[str, Any]) -> None:
    budget = PrivacyFilter("renyi", 8.0, 1e-6)

    def use(**changed: Any) -> None:
        one = event(**changed)
        assert accounting.compose([one], 1e-6) >= 0
        assert accounting.spent([one], 3, 1e-6) >= 0
        assert min(budget.cost([one])) >= 0
        assert accounting.cross_check([one], 1e-6).lower >= 0

    sweep(use, arguments)


def test_the_largest_counts_take_no_time() -> None:
    for event in (
        Exponential(1e-5, count=10**12),
        Pure(1e-5, count=10**12),
        Gaussian(300.0, 0.1, count=10**12),
    ):
        with soon(event):
            assert accounting.compose([event], 1e-6) > 0


def test_figures() -> None:
    more = {"delta": 1e-6, "uses": 3, "sampling_rate": 0.5, "delta0": 0.0}
    sweep(accounting.epsilon, {"noise_multiplier": 2.0, **more})
    sweep(accounting.noise_multiplier, {"epsilon": 2.0, **more})
    sweep(accounting.gaussian_epsilon, {"mu": 1.0, "delta": 1e-6})
    sweep(accounting.gaussian_delta, {"mu": 1.0, "epsilon": 1.0})
    sweep(accounting.zcdp_epsilon, {"rho": 1.0, "delta": 1e-6})
    sweep(accounting.sampled_epsilon, {"epsilon": 1.0, "sampling_rate": 0.5})
    sweep(accounting.unsampled_epsilon, {"charged": 1.0, "sampling_rate": 0.5})
