"""What a release asks for, and that it may do no more than what is charged."""

from __future__ import annotations

import math

import pytest

from langchain_dpicl import accounting
from langchain_dpicl.accounting import (
    DeltaEvent,
    ExponentialEvent,
    GaussianEvent,
    PureEvent,
)
from langchain_dpicl.budget import (
    Bundle,
    Demand,
    ExponentialPart,
    GaussianPart,
    PurePart,
    forecast,
    plan_queries,
)
from langchain_dpicl.budget.demand import read_parameters
from langchain_dpicl.exceptions import InvalidParameterError, PlanMismatchError
from langchain_dpicl.parsers import KSAPTROutputParser

VOTE = Demand("vote", (GaussianPart(),))
PTR = Demand("ptr", (ExponentialPart(), GaussianPart()), needs_delta0=True)


def total(events: tuple[accounting.Event, ...], queries: int, delta: float) -> float:
    return accounting.compose(list(events) * queries, delta)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0])
@pytest.mark.parametrize("queries", [1, 20, 1000])
@pytest.mark.parametrize(
    "demand",
    [
        VOTE,
        PTR,
        Demand("ptr", (GaussianPart(),), needs_delta0=True),
        Demand("joint", (ExponentialPart(),)),
        Demand("flip", (PurePart(),)),
    ],
    ids=["vote", "ptr range", "ptr", "joint", "flip"],
)
def test_all_queries_together_keep_within_the_budget_and_use_it(
    demand: Demand, epsilon: float, queries: int
) -> None:
    events = plan_queries(demand, epsilon=epsilon, delta=1e-6, queries=queries)
    cost = total(events, queries, 1e-6)
    assert 0.99 * epsilon <= cost <= epsilon


def test_twin_with_less_noise_overspends() -> None:
    (event,) = plan_queries(VOTE, epsilon=8, delta=1e-6, queries=20)
    assert isinstance(event, GaussianEvent)
    weaker = GaussianEvent(event.noise_multiplier * 0.99)
    assert total((weaker,), 20, 1e-6) > 8


def test_a_sampled_plan_is_checked_by_both_accountants() -> None:
    demand = Demand("vote", (GaussianPart(),), sampling_rate=0.02)
    events = plan_queries(demand, epsilon=1, delta=1e-5, queries=100)
    cost = total(events, 100, 1e-5)
    assert 0.98 <= cost <= 1
    check = accounting.cross_check(list(events) * 100, 1e-5)
    assert check.agrees


def test_disagreeing_accountants_stop_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    disagreement = accounting.CrossCheck(1.0, 2.0, 3.0, agrees=False)
    monkeypatch.setattr(accounting, "cross_check", lambda *_args: disagreement)
    demand = Demand("vote", (GaussianPart(),), sampling_rate=0.02)
    with pytest.raises(PlanMismatchError, match="disagree"):
        plan_queries(demand, epsilon=1, delta=1e-5, queries=10)


def test_fixed_noise_is_checked_not_believed() -> None:
    fixed = Demand("vote", (GaussianPart(1.0),))
    with pytest.raises(PlanMismatchError, match="more noise or fewer queries"):
        plan_queries(fixed, epsilon=1, delta=1e-6, queries=20)
    enough = Demand("vote", (GaussianPart(30.0),))
    assert plan_queries(enough, epsilon=1, delta=1e-6, queries=20) == (
        GaussianEvent(30.0),
    )


def test_a_fixed_delta0_that_eats_up_delta_is_refused() -> None:
    greedy = Demand("ptr", (GaussianPart(),), needs_delta0=True, delta0=1e-6)
    with pytest.raises(PlanMismatchError, match="delta0"):
        plan_queries(greedy, epsilon=8, delta=1e-6, queries=20)


def test_delta0_is_charged_for_every_query() -> None:
    events = plan_queries(PTR, epsilon=8, delta=1e-6, queries=20)
    delta0 = [event for event in events if isinstance(event, DeltaEvent)]
    assert sum(event.delta0 for event in delta0) * 20 == pytest.approx(0.5e-6)


def test_releases_of_the_same_units_share_one_delta0() -> None:
    sampled = Demand("x", (GaussianPart(),), 0.1, needs_delta0=True, uses=3)
    without = Demand("x", (GaussianPart(),), 0.1)
    together = Bundle("x", (sampled, without, sampled), disjoint=False)
    events = plan_queries(together, epsilon=4, delta=1e-6, queries=5)
    delta0s = {event for event in events if isinstance(event, DeltaEvent)}
    assert len(delta0s) == 1
    assert 5 * accounting.total_delta0(events) == pytest.approx(0.5e-6)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 300.0])
@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_sampling_amplifies_a_pure_part_exactly(epsilon: float, rate: float) -> None:
    demand = Demand("joint", (ExponentialPart(epsilon),), sampling_rate=rate)
    (event,) = demand.events(1.0, 0.0)
    assert isinstance(event, PureEvent)
    exact = math.log1p(rate * math.expm1(epsilon))
    assert exact <= event.epsilon <= exact * (1 + 1e-12)
    _, used, _ = read_parameters(demand, (event,))
    assert used is not None
    assert epsilon * (1 - 1e-9) <= used <= epsilon


@pytest.mark.parametrize("queries", [1, 20])
def test_choosing_k_takes_a_fifth_of_a_releases_loss(queries: int) -> None:
    demand = KSAPTROutputParser(k=(1, 3)).demand()
    events = plan_queries(demand, epsilon=4, delta=1e-6, queries=queries)
    choice, noise, _ = events
    assert isinstance(choice, ExponentialEvent)
    assert isinstance(noise, GaussianEvent)
    losses = accounting.rho([choice]), accounting.rho([noise])
    assert losses[0] / sum(losses) == pytest.approx(0.2)


def test_parameters_are_read_back_from_what_was_charged() -> None:
    events = (ExponentialEvent(0.25), GaussianEvent(3.5), DeltaEvent(2e-8))
    assert read_parameters(PTR, events) == (3.5, 0.25, 2e-8)
    sampled = Demand("ptr", (GaussianPart(),), 0.1, needs_delta0=True)
    z, epsilon, delta0 = read_parameters(
        sampled, (GaussianEvent(3.5, 0.1), DeltaEvent(2e-8))
    )
    assert (z, epsilon) == (3.5, None)
    assert delta0 == pytest.approx(2e-7)
    assert delta0 * 0.1 <= 2e-8


@pytest.mark.parametrize(
    "events",
    [
        (),
        (GaussianEvent(1.0),),
        (GaussianEvent(3.5), ExponentialEvent(0.25), DeltaEvent(2e-8)),
        (ExponentialEvent(0.25), GaussianEvent(3.5), GaussianEvent(3.5)),
    ],
)
def test_events_of_another_shape_are_refused(
    events: tuple[accounting.Event, ...],
) -> None:
    with pytest.raises(InvalidParameterError):
        read_parameters(PTR, events)


def test_two_steps_on_one_sample_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="single k"):
        Demand("ptr", (ExponentialPart(), GaussianPart()), sampling_rate=0.1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Demand("x", (GaussianPart(0.0),)),
        lambda: Demand("x", (GaussianPart(float("nan")),)),
        lambda: Demand("x", (ExponentialPart(-1.0),)),
        lambda: Demand("x", (PurePart(float("inf")),)),
        lambda: Demand("x", (GaussianPart(),), sampling_rate=0.0),
        lambda: Demand("x", (GaussianPart(),), sampling_rate=1.5),
        lambda: Demand("x", (GaussianPart(),), delta0=1.0),
    ],
)
def test_values_out_of_range_are_refused(make: object) -> None:
    with pytest.raises(InvalidParameterError):
        make()  # type: ignore[operator]


def test_a_forecast_is_refused_where_there_is_no_lead_to_speak_of() -> None:
    with pytest.raises(InvalidParameterError, match="select='vote'"):
        forecast(
            Demand("esa/cosine", (GaussianPart(),)),
            epsilon=8,
            delta=1e-6,
            queries=20,
            groups=100,
        )


@pytest.mark.parametrize(
    ("demand", "lead"),
    [
        (Demand("vote", (GaussianPart(),)), 14.8),
        (Demand("joint", (ExponentialPart(),)), 31.7),
        (Demand("ptr", (GaussianPart(),), needs_delta0=True), 44.4),
    ],
)
def test_a_forecast_states_the_lead(demand: Demand, lead: float) -> None:
    found = forecast(demand, epsilon=8, delta=1e-6, queries=20, groups=100, choices=10)
    assert found.required_lead == pytest.approx(lead, abs=0.1)
    assert found.is_possible
    assert str(math.ceil(lead)) in found.advice()
    hopeless = forecast(
        demand, epsilon=0.1, delta=1e-6, queries=20, groups=100, choices=10
    )
    assert not hopeless.is_possible
    assert "more groups" in hopeless.advice()
