"""How a plan sets noise: what it spends, exactly, and when it asks twice."""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.release_templates import template

from langchain_dpicl import accounting
from langchain_dpicl.accounting import (
    CrossCheck,
    Event,
    ExponentialPart,
    Failure,
    Gaussian,
    GaussianPart,
    Pure,
    PurePart,
    unsampled_epsilon,
)
from langchain_dpicl.budget import Bundle, planning
from langchain_dpicl.budget.planning import is_affordable, plan_queries
from langchain_dpicl.errors import InvalidParameterError, PlanMismatchError

TERMS: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-6, "queries": 20}
PTR = template("ksa/ptr", (GaussianPart(),), needs_delta0=True)


# -- releases that are pure ------------------------------------------------------------


@pytest.mark.parametrize("rate", [1.0, 0.25])
@pytest.mark.parametrize(("queries", "uses"), [(1, 1), (2, 1), (1, 3), (2, 3)])
def test_few_pure_releases_spend_all_of_epsilon(
    queries: int, uses: int, rate: float
) -> None:
    """Their epsilons add up to the account's, to the last place but a few."""
    shape = template("flip", (PurePart(),), rate, uses=uses)
    terms: Any = {"epsilon": 1.0, "delta": 1e-9, "queries": queries}
    (event,) = plan_queries(shape, **terms)
    assert isinstance(event, Pure)
    assert event.count == uses
    each = 1.0 / (queries * uses)
    assert event.epsilon == pytest.approx(each, rel=1e-10)
    assert event.epsilon <= each
    noise = shape.read((event,))
    assert noise.epsilon == pytest.approx(unsampled_epsilon(each, rate), rel=1e-9)


def test_one_unsampled_pure_release_spends_epsilon_to_the_last_place() -> None:
    shape = template("flip", (PurePart(),))
    for epsilon in (0.1, 1.0, 3.0):
        (event,) = plan_queries(shape, epsilon=epsilon, delta=1e-9, queries=1)
        assert event == Pure(epsilon)


def test_many_pure_releases_compose_to_more_than_their_sum_allows() -> None:
    (event,) = plan_queries(template("flip", (PurePart(),)), **TERMS)
    assert isinstance(event, Pure)
    assert event.epsilon > 1.001 * 8.0 / 20


@pytest.mark.parametrize(
    "shape",
    [
        template("flip", (PurePart(),), needs_delta0=True),
        template("twice", (PurePart(), PurePart())),
        template("mixed", (PurePart(), GaussianPart())),
        template("joint", (ExponentialPart(),)),
        template("vote", (GaussianPart(),)),
        Bundle("both", (template("flip", (PurePart(),)),) * 2, disjoint=False),
    ],
)
@pytest.mark.parametrize("queries", [1, 20])
def test_all_other_releases_stay_within_epsilon_and_use_it(
    shape: Any, queries: int
) -> None:
    terms = {**TERMS, "queries": queries}
    events = plan_queries(shape, **terms)
    assert 7.99 < accounting.spent(events, queries, 1e-6) <= 8.0
    assert is_affordable(events, **terms)


# -- noise and failures that the user fixed --------------------------------------------


def test_fixed_noise_may_cost_all_of_epsilon_and_no_more() -> None:
    fixed = template("flip", (PurePart(0.5),))
    cost = accounting.spent((Pure(0.5),), 2, 1e-6)
    terms: Any = {"delta": 1e-6, "queries": 2}
    assert plan_queries(fixed, epsilon=cost, **terms) == (Pure(0.5),)
    assert is_affordable((Pure(0.5),), epsilon=cost, **terms)
    less = math.nextafter(cost, 0)
    assert not is_affordable((Pure(0.5),), epsilon=less, **terms)
    said = r"2 releases by flip with the noise you fixed cost epsilon 1 at delta 1e-06"
    with pytest.raises(PlanMismatchError, match=f"{said}; the account has 0.999997"):
        plan_queries(fixed, epsilon=less, **terms)


def test_what_can_not_be_composed_is_not_affordable() -> None:
    assert not is_affordable((Failure(0.5),), **TERMS)
    assert not is_affordable((Gaussian(1e-6),), **TERMS)


def test_given_failures_must_leave_something_of_delta() -> None:
    """2 queries of 4 uses at a rate of 1/2 charge four times delta0."""

    def planned(delta0: float) -> tuple[Event, ...]:
        shape = template(
            "ptr", (GaussianPart(),), 0.5, needs_delta0=True, delta0=delta0, uses=4
        )
        return plan_queries(shape, epsilon=8.0, delta=2**-20, queries=2)

    quarter = 2**-22
    assert planned(math.nextafter(quarter, 0) * 0.99)[-1].count == 4
    said = (
        r"8 releases with delta0 2.38419e-07 each use up a delta of 9.53674e-07, and "
        r"the account has 9.53674e-07. .* or give less than 2.4e-07\."
    )
    with pytest.raises(PlanMismatchError, match=said):
        planned(quarter)
    with pytest.raises(PlanMismatchError, match=r"8 releases with delta0 4\.76837e-07"):
        planned(2 * quarter)


@pytest.mark.parametrize("queries", [1, 20])
def test_failures_that_are_left_open_take_half_of_delta(queries: int) -> None:
    terms = {**TERMS, "queries": queries}
    assert plan_queries(PTR, **terms)[-1] == Failure(0.5e-6 / queries)
    both = Bundle("both", (PTR, PTR, template("v", (GaussianPart(),))), disjoint=False)
    failures = [e for e in plan_queries(both, **terms) if isinstance(e, Failure)]
    assert failures == [Failure(0.5e-6 / queries / 2)] * 2


def test_where_no_noise_is_enough_the_terms_are_named() -> None:
    many = template("vote", (GaussianPart(),), uses=10**12)
    said = r"lets vote answer 20 queries within epsilon 0.001 and delta 1e-06 \("
    with pytest.raises(PlanMismatchError, match=said):
        plan_queries(many, epsilon=0.001, delta=1e-6, queries=20)


@pytest.mark.parametrize("name", TERMS)
def test_terms_are_checked_by_name(name: str) -> None:
    with pytest.raises(InvalidParameterError, match=name):
        plan_queries(PTR, **{**TERMS, name: 0})
    assert plan_queries(PTR, **{**TERMS, "queries": 1})


# -- the second opinion ----------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, float]]:
    """Return what the second accountant is asked, which agrees with everything."""
    found: list[tuple[Any, float]] = []

    def agree(events: Any, delta: float) -> CrossCheck:
        found.append((tuple(events), delta))
        return CrossCheck(1.0, 1.0, 1.0, agrees=True)

    monkeypatch.setattr(accounting, "cross_check", agree)
    return found


SAMPLED = Gaussian(9.0, 0.5)


@pytest.mark.parametrize(
    ("events", "is_asked"),
    [
        ((SAMPLED,), True),
        ((Gaussian(9.0), SAMPLED), True),
        ((Gaussian(9.0),), False),
        ((Pure(0.1),), False),
        ((Gaussian(9.0), Failure(1e-9)), False),
        ((), False),
    ],
)
def test_samples_are_computed_twice(
    asked: list[Any], events: Any, is_asked: bool
) -> None:
    planning._require_second_opinion(events, 1e-6, 3)
    whole = tuple(accounting.repeat(events, 3))
    assert asked == ([(whole, 1e-6)] if is_asked else [])
