"""Which shape an account pays for: a release curve or a Gaussian, by the lead."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import mpmath as mp
import pytest
from support.curve_audit import bit, mixture

from langchain_dpicl import PrivacyBudgetHandler, accounting
from langchain_dpicl.accounting import (
    CrossCheck,
    EventTemplate,
    Failure,
    FixedSampleGaussianEvent,
    Gaussian,
    GaussianPart,
    RenyiEvent,
    compose,
    repeat,
)
from langchain_dpicl.budget import Bundle, forecast, planning
from langchain_dpicl.budget.choosing import least
from langchain_dpicl.budget.planning import plan_queries
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.errors import InvalidParameterError, PlanMismatchError
from langchain_dpicl.ledger import AccountTerms, MemoryLedger, Plan
from langchain_dpicl.mechanisms import (
    PTRCurve,
    PTRNoise,
    ThresholdCurve,
    ptr_curve,
    ptr_curve_template,
    ptr_template,
)
from langchain_dpicl.parsers import (
    KSAPTROutputParser,
    KSAThresholdOutputParser,
    VoteOutputParser,
)

TERMS: dict[str, Any] = {"epsilon": 8, "delta": 1e-6, "queries": 20}


def ptr(rate: float = 1.0, **terms: Any) -> EventTemplate[Any]:
    return KSAPTROutputParser(**terms).event_template(rate)


def words(items: int = 1, **terms: Any) -> EventTemplate[Any]:
    return KSAThresholdOutputParser(items_per_answer=items, **terms).event_template()


def account(**changes: Any) -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(**{**TERMS, "ledger": ":memory:", **changes})


LEADS = {
    "one set": (ptr(), 1, {8: 33, 3: 71, 1: 185}),
    "one word": (words(1), 1, {8: 20, 3: 45, 1: 119}),
    "two words": (words(2), 2, {8: 26, 3: 58, 1: 155}),
    "a set, sampled": (ptr(0.25), 1, {8: 17, 3: 27, 1: 57}),
}


@pytest.mark.parametrize("epsilon", [8, 3, 1])
@pytest.mark.parametrize("name", LEADS)
def test_a_plan_takes_the_curve_and_needs_a_smaller_lead(
    name: str, epsilon: int
) -> None:
    template, items, leads = LEADS[name]
    terms: dict[str, Any] = {**TERMS, "epsilon": epsilon, "groups": 100}
    found = forecast(template, items_per_answer=items, **terms)
    plain = forecast(template.shapes[0], items_per_answer=items, **terms)
    assert found.mechanism == f"{plain.mechanism} curve"
    assert found.noise is None
    assert found.noise_multiplier is None
    assert found.required_lead <= leads[epsilon]
    assert found.required_lead < math.ceil(plain.required_lead)
    assert found.delta0 is not None
    assert f"{found.required_lead:g} of 100 groups" in found.advice() or (
        not found.is_possible
    )


@pytest.mark.parametrize("name", LEADS)
def test_the_events_of_all_queries_are_within_the_account(name: str) -> None:
    template, _, _ = LEADS[name]
    events = plan_queries(template, epsilon=3, delta=1e-6, queries=20)
    curve, failure = events
    assert isinstance(curve, RenyiEvent)
    assert isinstance(failure, Failure)
    assert 20 * failure.delta0 == pytest.approx(0.25e-6)
    assert 2.999 < compose(repeat(events, 20), 1e-6) <= 3
    # The noise is that of the events, and of nothing else.
    noise = template.read(events)
    assert isinstance(noise, PTRCurve | ThresholdCurve)
    assert (noise.order, noise.divergence) == (curve.order, curve.divergence)
    rate = template.sampling_rate
    assert noise.delta0 * rate == pytest.approx(failure.delta0)
    assert noise.delta0 * rate <= failure.delta0
    assert getattr(noise, "sampling_rate", 1.0) == rate


@pytest.mark.parametrize(
    ("epsilon", "delta", "queries"), [(3, 1e-6, 20), (300, 1e-2, 100)]
)
def test_no_other_order_has_a_smaller_lead(
    epsilon: float, delta: float, queries: int
) -> None:
    template = ptr_curve_template("ksa/ptr curve")
    terms: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "queries": queries}
    events = plan_queries(template, **terms)
    assert isinstance(events[0], RenyiEvent)
    best = template.lead_of(template.read(events), is_rough=True)
    for factor in (0.5, 0.8, 0.95, 1.05, 1.3, 2.0):
        order = 1 + (events[0].order - 1) * factor
        other = template.at_order(order)
        try:
            tried = other.read(plan_queries(other, **terms))
        except PlanMismatchError:
            continue
        assert other.lead_of(tried, is_rough=True) >= best * (1 - 1e-4)


@pytest.mark.parametrize(("epsilon", "lead"), [(8, 5), (1, 35)])
def test_one_release_is_best_at_a_high_order(epsilon: float, lead: int) -> None:
    template = ptr_curve_template("ksa/ptr curve")
    terms: dict[str, Any] = {"epsilon": epsilon, "delta": 1e-6, "queries": 1}
    [curve, failure] = plan_queries(template, **terms)
    assert template.lead_of(template.read((curve, failure))) == lead
    for factor in (1 / 16, 1 / 8, 1 / 4, 2, 4):
        other = template.at_order(1 + (curve.order - 1) * factor)
        try:
            tried = other.read(plan_queries(other, **terms))
        except PlanMismatchError:
            continue
        assert other.lead_of(tried) >= lead


@pytest.mark.parametrize("relation", Relation)
def test_a_forecast_knows_the_relation(relation: Relation) -> None:
    terms: dict[str, Any] = {**TERMS, "groups": 100, "relation": relation}
    leads = [forecast(one, **terms).required_lead for one in (ptr(), words())]
    assert leads == ([31, 20] if relation is Relation.REPLACE else [16, 16])


# -- what the account can pay for ------------------------------------------------------


@pytest.mark.parametrize("method", ["zcdp", "gdp"])
@pytest.mark.parametrize("make", [ptr, words])
def test_a_filter_without_an_order_takes_the_gaussian(method: Any, make: Any) -> None:
    budget = account(accounting=method)
    assert isinstance(budget.price(make())[0], Gaussian)
    assert budget.price(make()) == budget.price(make(mechanism="gaussian"))
    with pytest.raises(PlanMismatchError, match="mechanism='gaussian'"):
        budget.price(make(mechanism="curve"))
    assert not budget.can_afford(make(mechanism="curve"))


def test_a_pure_filter_takes_neither() -> None:
    budget = account(accounting="pure")
    for mechanism in (None, "curve", "gaussian"):
        with pytest.raises(PlanMismatchError):
            budget.price(ptr(mechanism=mechanism))


@pytest.mark.parametrize("order", [None, 4.0, 12.0])
def test_a_renyi_filter_takes_its_own_order(order: float | None) -> None:
    budget = account(accounting="renyi", order=order)
    terms = budget.ledger.state(budget.account).terms
    event = budget.price(ptr(mechanism="curve"))[0]
    assert isinstance(event, RenyiEvent)
    assert event.order == terms.order
    chosen, gaussian = (budget.price(ptr(mechanism=m)) for m in (None, "gaussian"))
    leads = [ptr().lead_of(ptr().read(events)) for events in (chosen, gaussian)]
    assert leads[0] <= math.ceil(leads[1])
    assert isinstance(chosen[0], RenyiEvent) == (leads[0] < math.ceil(leads[1]))


def test_a_renyi_filter_pays_for_as_many_curves_as_it_is_shared_into() -> None:
    budget = account(accounting="renyi", queries=5)
    for left in (4, 3, 2, 1, 0):
        budget.charge(words(mechanism="curve"))
        assert budget.remaining().queries == left
    assert budget.spent().epsilon <= 8
    assert not budget.can_afford(words(mechanism="curve"))


def test_without_queries_a_curve_can_not_be_priced() -> None:
    budget = account(accounting="renyi", queries=None)
    with pytest.raises(InvalidParameterError, match="mechanism='gaussian'"):
        budget.price(ptr(mechanism="curve"))
    fixed = ptr(noise_multiplier=5.0, delta0=1e-9)
    assert isinstance(budget.price(fixed)[0], Gaussian)


def test_a_per_unit_plan_takes_the_curve() -> None:
    budget = account(scope="unit")
    paid = budget.charge(ptr(), charges_units=True)
    assert isinstance(paid.noise, PTRCurve)


def test_where_no_curve_releases_anything_the_gaussian_is_taken() -> None:
    terms: dict[str, Any] = {"epsilon": 8, "delta": 1e-14, "queries": 1000}
    assert isinstance(plan_queries(ptr(), **terms)[0], Gaussian)
    with pytest.raises(PlanMismatchError, match="No lead is enough"):
        plan_queries(ptr(mechanism="curve"), **terms)


def test_where_no_noise_is_enough_the_reason_is_the_gaussians() -> None:
    with pytest.raises(PlanMismatchError, match="use up a delta"):
        plan_queries(ptr(delta0=1e-3), **TERMS)


def test_two_accountants_must_agree_on_a_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = CrossCheck(1.0, 2.0, 3.0, agrees=False, reason="below")
    monkeypatch.setattr(accounting, "cross_check", lambda *_: wrong)
    with pytest.raises(PlanMismatchError, match="disagree"):
        plan_queries(ptr(mechanism="curve"), **TERMS)
    # It needs no second opinion.
    assert isinstance(plan_queries(ptr(), **TERMS)[0], Gaussian)


# -- what was stored -------------------------------------------------------------------


def stored_as(template: EventTemplate[Any]) -> PrivacyBudgetHandler:
    """Return an account whose plan was stored for a template."""
    ledger = MemoryLedger()
    budget = account(ledger=ledger)
    events = plan_queries(template, **TERMS)
    asked = {**template.to_dict(), "unit_key": None}
    ledger.fix_plan(budget.account, Plan(template=asked, events=events))
    return budget


def test_a_plan_of_an_earlier_version_stays_a_gaussian_one() -> None:
    budget = stored_as(ptr_template("ksa/ptr"))
    paid = budget.charge(ptr())
    assert isinstance(paid.noise, PTRNoise)
    assert isinstance(paid.events[0], Gaussian)
    with pytest.raises(PlanMismatchError, match="another kind"):
        budget.charge(ptr(mechanism="curve"))


def test_a_plan_of_a_curve_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later version may choose another order; the stored events count."""
    template = ptr_curve_template("ksa/ptr curve", order=5.0)
    events = template.filled(planning._Plan(8, 1e-6, 20))
    ledger = MemoryLedger()
    budget = account(ledger=ledger)
    asked = {**ptr(mechanism="curve").to_dict(), "unit_key": None}
    ledger.fix_plan(budget.account, Plan(template=asked, events=events))

    def never(*_: Any) -> float:
        raise AssertionError

    monkeypatch.setattr(planning, "_best_order", never)
    for template in (ptr(), ptr(mechanism="curve")):
        paid = budget.charge(template)
        assert paid.noise.order == 5.0
        assert paid.events == events
    with pytest.raises(PlanMismatchError, match="another kind"):
        budget.charge(ptr(mechanism="gaussian"))


def test_a_file_keeps_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    first = account(ledger=url).charge(words())
    again = account(ledger=url).charge(words())
    assert isinstance(first.noise, ThresholdCurve)
    assert (again.noise, again.events) == (first.noise, first.events)
    terms = AccountTerms("default", 8, 1e-6, 20)
    stored = account(ledger=url).ledger.state(terms.name).plan
    assert stored is not None
    assert stored.template["parts"][0]["kind"] == "CurvePart"


def test_events_of_the_other_shape_are_never_read_as_this_one() -> None:
    curve, gaussian = ptr(mechanism="curve"), ptr(mechanism="gaussian")
    of_curve, of_gaussian = (plan_queries(t, **TERMS) for t in (curve, gaussian))
    for template, events in ((curve, of_gaussian), (gaussian, of_curve)):
        with pytest.raises(ValueError, match="do not fit"):
            template.read(events)
    assert ptr().read(of_curve) == curve.read(of_curve)
    assert ptr().read(of_gaussian) == gaussian.read(of_gaussian)
    assert ptr().name_of(curve.read(of_curve)) == "ksa/ptr curve"
    assert ptr().name_of(gaussian.read(of_gaussian)) == "ksa/ptr"


def test_on_a_sample_of_fixed_size_both_shapes_are_of_it() -> None:
    poisson = ptr(0.25)
    fixed = dataclasses.replace(poisson, is_fixed_size=True)
    assert [shape.is_fixed_size for shape in fixed.shapes] == [True, True]
    events = plan_queries(fixed, **TERMS)
    assert events == plan_queries(poisson, **TERMS)
    asked = dataclasses.replace(ptr(0.25, mechanism="curve"), is_fixed_size=True)
    assert fixed.shape_of(events).to_dict() == asked.to_dict()
    assert fixed.read(events) == asked.read(events)
    gaussian = fixed.shapes[0]
    of_gaussian = plan_queries(gaussian, **TERMS)
    assert isinstance(of_gaussian[0], FixedSampleGaussianEvent)
    assert fixed.read(of_gaussian) == gaussian.read(of_gaussian)


# -- several releases at once ----------------------------------------------------------


def bundle(then: EventTemplate[Any], rate: float = 1.0) -> Bundle[Any]:
    vote = VoteOutputParser(labels=["yes", "no"]).event_template(rate)
    return Bundle("both", (vote, then), disjoint=False)


@pytest.mark.parametrize("epsilon", [8, 1])
@pytest.mark.parametrize("then", [ptr(), words(2)])
def test_beside_a_curve_a_vote_gets_no_more_noise(
    then: EventTemplate[Any], epsilon: float
) -> None:
    terms: dict[str, Any] = {**TERMS, "epsilon": epsilon}
    both = bundle(then)
    events = plan_queries(both, **terms)
    plain = plan_queries(bundle(then.shapes[0]), **terms)
    assert isinstance(events[1], RenyiEvent)
    vote, curve = both.read(events)
    other, gaussian = bundle(then.shapes[0]).read(plain)
    assert vote.noise_multiplier <= other.noise_multiplier
    assert then.lead_of(curve) < 0.8 * then.lead_of(gaussian)
    assert compose(repeat(events, 20), 1e-6) <= epsilon
    assert both.shape_of(events).templates[1].mechanism.endswith("curve")


def test_on_samples_a_bundle_holds_gaussians() -> None:
    both = bundle(ptr(0.25), 0.25)
    assert len(both.shapes) == 1
    events = plan_queries(both, **TERMS)
    assert all(isinstance(event, Gaussian) for event in events[:2])


def test_a_bundle_of_curves_has_one_order() -> None:
    both = Bundle("both", (ptr(mechanism="curve"), words()), disjoint=False)
    events = plan_queries(both, **TERMS)
    assert isinstance(events[0], RenyiEvent)
    assert isinstance(events[2], RenyiEvent)
    assert events[0].order == events[2].order


def test_a_template_without_an_order_is_charged_nothing() -> None:
    with pytest.raises(ValueError, match="chosen by its account"):
        ptr(mechanism="curve").events(1.0, 1e-9)


def test_the_least_value_is_found_where_some_are_infinite() -> None:
    found = least(lambda x: math.inf if x < 1 else (x - 1.2) ** 2, -3.0, 4.0)
    assert found == pytest.approx(1.2, abs=0.01)


def shape(lead: float, noise: float, fails: str = "") -> Any:
    """Return a Gaussian shape with a lead, or one that can't be paid for."""
    name = f"mine {fails}".strip()
    parts = (GaussianPart(noise),)
    return EventTemplate(name, parts, float, lead=lambda *_, **__: lead)


# -- the whole plan, exactly -----------------------------------------------------------


def exact_delta(p: Any, q: Any, uses: int, epsilon: float) -> mp.mpf:
    """Return the exact delta of `uses` bits of one pair, in the worse order."""
    with mp.workdps(60):
        worst = mp.mpf(0)
        for one, other in ((p, q), (q, p)):
            masses = [
                mp.binomial(uses, k)
                * (
                    one[True] ** k * one[False] ** (uses - k)
                    - mp.exp(epsilon) * other[True] ** k * other[False] ** (uses - k)
                )
                for k in range(uses + 1)
            ]
            worst = max(worst, mp.fsum(max(0, mass) for mass in masses))
        return worst


@pytest.mark.parametrize("is_broken", [False, True])
@pytest.mark.parametrize("rate", [1.0, 0.25])
@pytest.mark.parametrize("epsilon", [8, 1])
def test_a_whole_plan_at_any_pair_is_within_epsilon_and_delta(
    epsilon: float, rate: float, is_broken: bool
) -> None:
    """The twin has twice the divergence that was charged."""
    template = ptr(rate, mechanism="curve")
    events = plan_queries(template, epsilon=epsilon, delta=1e-6, queries=20)
    noise = template.read(events)
    if is_broken:
        noise = dataclasses.replace(noise, divergence=2 * noise.divergence)
    table = ptr_curve._curve(**vars(noise))
    found = []
    for n in range(len(table.entries) + 1):
        low, high = bit(table.probability(n)), bit(table.probability(n + 1))
        found += [
            exact_delta(low, mixture(rate, low, high), 20, epsilon),
            exact_delta(high, mixture(rate, high, low), 20, epsilon),
        ]
    assert (max(found) > 1e-6) is is_broken
