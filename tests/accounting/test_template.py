"""What a release asks for, and that it may do no more than what is charged."""

from __future__ import annotations

import math

import pytest
from support.release_templates import template

from langchain_dpicl import accounting
from langchain_dpicl.accounting import (
    EventTemplate,
    Exponential,
    ExponentialPart,
    Failure,
    Gaussian,
    GaussianPart,
    Pure,
    PurePart,
)
from langchain_dpicl.budget import Bundle, forecast, plan_queries
from langchain_dpicl.errors import InvalidParameterError, PlanMismatchError
from langchain_dpicl.mechanisms import PTRNoise, sum_template
from langchain_dpicl.parsers import KSAPTROutputParser

VOTE = template("vote", (GaussianPart(),))
PTR = template("ptr", (ExponentialPart(), GaussianPart()), needs_delta0=True)


def total(events: tuple[accounting.Event, ...], queries: int, delta: float) -> float:
    return accounting.compose(list(events) * queries, delta)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 8.0])
@pytest.mark.parametrize("queries", [1, 20, 1000])
@pytest.mark.parametrize(
    "shape",
    [
        VOTE,
        PTR,
        template("ptr", (GaussianPart(),), needs_delta0=True),
        template("joint", (ExponentialPart(),)),
        template("flip", (PurePart(),)),
    ],
    ids=["vote", "ptr range", "ptr", "joint", "flip"],
)
def test_all_queries_together_keep_within_the_budget_and_use_it(
    shape: EventTemplate, epsilon: float, queries: int
) -> None:
    events = plan_queries(shape, epsilon=epsilon, delta=1e-6, queries=queries)
    cost = total(events, queries, 1e-6)
    assert 0.99 * epsilon <= cost <= epsilon


def test_twin_with_less_noise_overspends() -> None:
    (event,) = plan_queries(VOTE, epsilon=8, delta=1e-6, queries=20)
    assert isinstance(event, Gaussian)
    weaker = Gaussian(event.noise_multiplier * 0.99)
    assert total((weaker,), 20, 1e-6) > 8


def test_a_sampled_plan_is_checked_by_both_accountants() -> None:
    shape = template("vote", (GaussianPart(),), sampling_rate=0.02)
    events = plan_queries(shape, epsilon=1, delta=1e-5, queries=100)
    cost = total(events, 100, 1e-5)
    assert 0.98 <= cost <= 1
    check = accounting.cross_check(list(events) * 100, 1e-5)
    assert check.agrees


def test_disagreeing_accountants_stop_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    disagreement = accounting.CrossCheck(1.0, 2.0, 3.0, agrees=False)
    monkeypatch.setattr(accounting, "cross_check", lambda *_args: disagreement)
    shape = template("vote", (GaussianPart(),), sampling_rate=0.02)
    with pytest.raises(PlanMismatchError, match="disagree"):
        plan_queries(shape, epsilon=1, delta=1e-5, queries=10)


def test_a_plan_that_the_second_accountant_cannot_judge_is_kept() -> None:
    shape = template("vote", (GaussianPart(),), sampling_rate=0.25)
    with pytest.warns(UserWarning, match="can't judge this plan: .* noise multiplier"):
        (event,) = plan_queries(shape, epsilon=0.1, delta=1e-6, queries=10_000)
    assert isinstance(event, Gaussian)
    assert event.noise_multiplier > 300
    assert 0.098 <= total((event,), 10_000, 1e-6) <= 0.1


def test_fixed_noise_is_checked_not_believed() -> None:
    fixed = template("vote", (GaussianPart(1.0),))
    with pytest.raises(PlanMismatchError, match="more noise or fewer queries"):
        plan_queries(fixed, epsilon=1, delta=1e-6, queries=20)
    enough = template("vote", (GaussianPart(30.0),))
    assert plan_queries(enough, epsilon=1, delta=1e-6, queries=20) == (Gaussian(30.0),)


def test_a_fixed_delta0_that_eats_up_delta_is_refused() -> None:
    greedy = template("ptr", (GaussianPart(),), needs_delta0=True, delta0=1e-6)
    with pytest.raises(PlanMismatchError, match="delta0"):
        plan_queries(greedy, epsilon=8, delta=1e-6, queries=20)


def test_delta0_is_charged_for_every_query() -> None:
    events = plan_queries(PTR, epsilon=8, delta=1e-6, queries=20)
    delta0 = [event for event in events if isinstance(event, Failure)]
    assert sum(event.delta0 for event in delta0) * 20 == pytest.approx(0.5e-6)


def test_releases_of_the_same_units_share_one_delta0() -> None:
    sampled = template("x", (GaussianPart(),), 0.1, needs_delta0=True, uses=3)
    without = template("x", (GaussianPart(),), 0.1)
    together = Bundle("x", (sampled, without, sampled), disjoint=False)
    events = plan_queries(together, epsilon=4, delta=1e-6, queries=5)
    delta0s = {event for event in events if isinstance(event, Failure)}
    assert len(delta0s) == 1
    assert 5 * accounting.total_delta0(events) == pytest.approx(0.5e-6)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 300.0])
@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_sampling_amplifies_a_pure_part_exactly(epsilon: float, rate: float) -> None:
    shape = template("joint", (ExponentialPart(epsilon),), sampling_rate=rate)
    (event,) = shape.events(1.0, 0.0)
    assert isinstance(event, Pure)
    exact = math.log1p(rate * math.expm1(epsilon))
    assert exact <= event.epsilon <= exact * (1 + 1e-12)
    used = shape.read((event,)).epsilon
    assert epsilon * (1 - 1e-9) <= used <= epsilon


@pytest.mark.parametrize("queries", [1, 20])
def test_choosing_k_takes_a_fifth_of_a_releases_loss(queries: int) -> None:
    shape = KSAPTROutputParser(k=(1, 3)).event_template()
    events = plan_queries(shape, epsilon=4, delta=1e-6, queries=queries)
    choice, noise, _ = events
    assert isinstance(choice, Exponential)
    assert isinstance(noise, Gaussian)
    losses = accounting.rho([choice]), accounting.rho([noise])
    assert losses[0] / sum(losses) == pytest.approx(0.2)


def test_parameters_are_read_back_from_what_was_charged() -> None:
    events = (Exponential(0.25), Gaussian(3.5), Failure(2e-8))
    assert PTR.read(events) == PTRNoise(3.5, 2e-8, selection_epsilon=0.25)
    sampled = template("ptr", (GaussianPart(),), 0.1, needs_delta0=True)
    noise = sampled.read((Gaussian(3.5, 0.1), Failure(2e-8)))
    assert (noise.noise_multiplier, noise.selection_epsilon) == (3.5, None)
    assert noise.delta0 == pytest.approx(2e-7)
    assert noise.delta0 * 0.1 <= 2e-8


@pytest.mark.parametrize(
    "events",
    [
        (),
        (Gaussian(1.0),),
        (Gaussian(3.5), Exponential(0.25), Failure(2e-8)),
        (Exponential(0.25), Gaussian(3.5), Gaussian(3.5)),
    ],
)
def test_events_of_another_shape_are_refused(
    events: tuple[accounting.Event, ...],
) -> None:
    with pytest.raises(InvalidParameterError, match="do not fit"):
        PTR.read(events)


def test_two_steps_on_one_sample_are_refused() -> None:
    with pytest.raises(InvalidParameterError, match="single k"):
        template("ptr", (ExponentialPart(), GaussianPart()), sampling_rate=0.1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: template("x", (GaussianPart(0.0),)),
        lambda: template("x", (GaussianPart(float("nan")),)),
        lambda: template("x", (ExponentialPart(-1.0),)),
        lambda: template("x", (PurePart(float("inf")),)),
        lambda: template("x", (GaussianPart(),), sampling_rate=0.0),
        lambda: template("x", (GaussianPart(),), sampling_rate=1.5),
        lambda: template("x", (GaussianPart(),), delta0=1.0),
    ],
)
def test_values_out_of_range_are_refused(make: object) -> None:
    with pytest.raises(InvalidParameterError):
        make()  # type: ignore[operator]


def test_a_forecast_is_refused_where_there_is_no_lead_to_speak_of() -> None:
    with pytest.raises(InvalidParameterError, match="select='vote'"):
        forecast(
            sum_template("mine"),
            epsilon=8,
            delta=1e-6,
            queries=20,
            groups=100,
        )


@pytest.mark.parametrize(
    ("shape", "lead"),
    [
        (template("vote", (GaussianPart(),)), 21.9),
        (template("joint", (ExponentialPart(),)), 32.4),
        (template("ptr", (GaussianPart(),), needs_delta0=True), 44.4),
    ],
)
def test_a_forecast_states_the_lead(shape: EventTemplate, lead: float) -> None:
    found = forecast(shape, epsilon=8, delta=1e-6, queries=20, groups=100, choices=10)
    assert found.required_lead == pytest.approx(lead, abs=0.1)
    assert found.is_possible
    assert str(math.ceil(lead)) in found.advice()
    hopeless = forecast(
        shape, epsilon=0.1, delta=1e-6, queries=20, groups=100, choices=10
    )
    assert not hopeless.is_possible
    assert "more groups" in hopeless.advice()
