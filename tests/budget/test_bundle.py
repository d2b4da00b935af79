"""Several releases under one charge: each gets its own noise, or all share it."""

from __future__ import annotations

import dataclasses
import functools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.release_templates import template

from langchain_dpicl import accounting
from langchain_dpicl.accounting import (
    BUDGET_UNITS,
    Event,
    EventTemplate,
    Exponential,
    ExponentialPart,
    Failure,
    Gaussian,
    GaussianPart,
    Parallel,
    PrivacyFilter,
    Pure,
    PurePart,
    Template,
    crosscheck,
)
from langchain_dpicl.budget import Bundle, PrivacyBudgetHandler, plan_queries
from langchain_dpicl.budget.pricing import price_release
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    PlanMismatchError,
)
from langchain_dpicl.ledger import AccountTerms, MemoryLedger, Plan
from langchain_dpicl.mechanisms import GaussianNoise

DELTA = 1e-4
RATES = (0.09, 0.4, 0.09)
GAUSSIAN = "few-shot/gaussian"


def step(
    rate: float, part: Any = None, uses: int = 15, **changes: Any
) -> EventTemplate:
    return template(GAUSSIAN, (part or GaussianPart(),), rate, uses=uses, **changes)


def bundle(*, disjoint: bool = True, part: Any = None, partition: str = "") -> Bundle:
    shapes = tuple(step(rate, part) for rate in RATES)
    return Bundle(GAUSSIAN, shapes, disjoint, partition)


def handler(**changes: Any) -> PrivacyBudgetHandler:
    terms = {"epsilon": 4, "delta": DELTA, "queries": 1, "ledger": ":memory:"}
    return PrivacyBudgetHandler(**{**terms, **changes})


@functools.lru_cache(maxsize=64)
def second_opinion(events: tuple[Event, ...], delta: float) -> accounting.CrossCheck:
    return crosscheck.cross_check(events, delta)


@pytest.fixture(autouse=True)
def asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask prv-accountant once about each plan: it takes half a second."""
    monkeypatch.setattr(
        accounting, "cross_check", lambda e, delta: second_opinion(tuple(e), delta)
    )


KINDS: list[Any] = [None, "zcdp", "renyi"]
PARTS = [GaussianPart(), PurePart()]


# -- uses ----------------------------------------------------------------------------


def test_every_use_is_charged() -> None:
    shape = template("x", (GaussianPart(3.0),), 0.1, needs_delta0=True, uses=7)
    assert shape.events(1.0, 1e-8) == (
        Gaussian(3.0, 0.1, 7),
        Failure(1e-8 * 0.1, 7),
    )
    assert step(0.1, PurePart(0.5)).events(1.0, 0.0)[0].count == 15
    joint = template("x", (ExponentialPart(0.5),), uses=3)
    assert joint.events(1.0, 0.0) == (Exponential(0.5, 3),)


@pytest.mark.parametrize("uses", [0, -1, 1.5, True, 10**12 + 1])
def test_uses_are_a_count(uses: Any) -> None:
    with pytest.raises(InvalidParameterError, match="uses"):
        step(0.1, uses=uses)


@pytest.mark.parametrize("part", PARTS)
def test_uses_and_queries_cost_the_same(part: Any) -> None:
    (many,) = plan_queries(step(0.09, part), epsilon=2, delta=DELTA, queries=1)
    (few,) = plan_queries(step(0.09, part, uses=1), epsilon=2, delta=DELTA, queries=15)
    assert dataclasses.replace(many, count=1) == few


def test_a_delta0_is_shared_out_to_every_use() -> None:
    shape = step(0.09, needs_delta0=True)
    events = plan_queries(shape, epsilon=2, delta=DELTA, queries=2)
    assert 2 * accounting.total_delta0(events) == pytest.approx(DELTA / 2)
    assert shape.read(events).delta0 * 0.09 * 30 == pytest.approx(DELTA / 2)
    greedy = step(0.09, needs_delta0=True, delta0=DELTA)
    with pytest.raises(PlanMismatchError, match="15 releases"):
        plan_queries(greedy, epsilon=2, delta=DELTA, queries=1)
    found = PrivacyFilter("zcdp", 4.0, DELTA)
    assert found.cost(price_release(shape, found, 2)).failure <= BUDGET_UNITS // 2


def test_a_plan_of_many_uses_pays_for_no_single_one() -> None:
    budget = handler(queries=3)
    budget.charge(step(0.09))
    for other in (step(0.09, uses=1), step(0.09, uses=14), bundle()):
        assert not budget.can_afford(other)
        with pytest.raises(PlanMismatchError, match="another kind"):
            budget.charge(other)
    assert budget.spent().queries == 1


# -- bundles under a plan and under filters --------------------------------------------


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_label_of_its_own_units_gets_its_own_noise(kind: Any, part: Any) -> None:
    budget = handler(accounting=kind)
    paid = budget.charge(bundle(part=part))
    (event,) = paid.events
    assert isinstance(event, Parallel)
    alone = [
        handler(accounting=kind, ledger=MemoryLedger()).charge(step(rate, part)).noise
        for rate in RATES
    ]
    assert list(paid.noise) == alone
    assert paid.noise[0] == paid.noise[2]
    assert 3.9 < budget.spent() <= 4
    with pytest.raises(BudgetExhaustedError):
        budget.charge(bundle(part=part))


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", KINDS)
def test_labels_that_share_units_share_one_scale(kind: Any, part: Any) -> None:
    budget = handler(accounting=kind)
    paid = budget.charge(bundle(disjoint=False, part=part))
    assert len(paid.events) == 3
    rare, other = paid.noise[1], paid.noise[0]
    assert paid.noise[2] == other
    if isinstance(part, GaussianPart):
        assert rare.noise_multiplier == other.noise_multiplier
    else:  # It is read back from the event, after sampling.
        assert rare.epsilon == pytest.approx(other.epsilon)
    assert 3.9 < budget.spent() <= 4
    apart = handler(accounting=kind).charge(bundle(part=part))
    for together, alone in zip(paid.noise, apart.noise, strict=True):
        if isinstance(part, GaussianPart):
            assert together.noise_multiplier > alone.noise_multiplier
        else:
            assert together.epsilon < alone.epsilon


def test_twins_that_compose_labels_in_the_other_way_are_caught() -> None:
    (apart,) = plan_queries(bundle(), epsilon=4, delta=DELTA, queries=1)
    shared = plan_queries(bundle(disjoint=False), epsilon=4, delta=DELTA, queries=1)
    assert isinstance(apart, Parallel)
    assert 3.98 < accounting.compose([apart], DELTA) <= 4
    assert 3.98 < accounting.compose(shared, DELTA) <= 4
    # The maximum where units are shared spends too much, the sum where they are not
    # too little.
    in_turn = [event for branch in apart.branches for event in branch]
    assert accounting.compose(in_turn, DELTA) > 5
    disjoint = Parallel(tuple((e,) for e in shared))  # type: ignore[misc]
    assert accounting.compose([disjoint], DELTA) < 3.95


@settings(deadline=None, max_examples=15)
@given(
    rates=st.lists(st.sampled_from([0.01, 0.1, 0.5, 1.0]), min_size=1, max_size=4),
    queries=st.integers(1, 50),
    disjoint=st.booleans(),
    part=st.sampled_from(PARTS),
    kind=st.sampled_from(["zcdp", "renyi"]),
    failing=st.booleans(),
)
def test_an_open_bundle_costs_its_share_and_hardly_less(
    rates: list[float],
    queries: int,
    disjoint: bool,
    part: Any,
    kind: Any,
    failing: bool,
) -> None:
    found = PrivacyFilter(kind, 4.0, DELTA)
    shapes = tuple(step(rate, part, needs_delta0=failing) for rate in rates)
    asked = Bundle(GAUSSIAN, shapes, disjoint)
    events = price_release(asked, found, queries)
    cost = found.cost(events)
    assert cost.loss <= BUDGET_UNITS / queries
    assert cost.loss >= BUDGET_UNITS / queries * 0.999 - 2
    assert cost.failure <= BUDGET_UNITS / queries
    assert len(asked.read(events)) == len(rates)


def test_fixed_noise_is_checked_and_kept() -> None:
    fixed = bundle(part=GaussianPart(8.0))
    assert fixed.is_fixed
    paid = handler(queries=2).charge(fixed)
    assert {noise.noise_multiplier for noise in paid.noise} == {8.0}
    with pytest.raises(PlanMismatchError, match="noise you fixed"):
        handler(epsilon=0.1).charge(fixed)
    together = Bundle(GAUSSIAN, fixed.templates, disjoint=False)
    assert handler(accounting="zcdp", epsilon=9).charge(together).noise == paid.noise
    with pytest.raises(PlanMismatchError, match="noise you fixed"):
        handler(epsilon=0.1).charge(together)


def test_equal_labels_are_calibrated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    known = accounting.cross_check

    def counted(*arguments: Any) -> accounting.CrossCheck:
        calls.append(arguments)
        return known(*arguments)

    monkeypatch.setattr(accounting, "cross_check", counted)
    fourteen = Bundle(GAUSSIAN, (step(0.09),) * 14, disjoint=True)
    events = plan_queries(fourteen, epsilon=4, delta=DELTA, queries=1)
    assert len(calls) == 1
    assert len(fourteen.read(events)) == 14


def test_a_disagreement_about_one_label_stops_the_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = accounting.cross_check

    def doubtful(events: list[Gaussian], delta: float) -> accounting.CrossCheck:
        if events[0].sampling_rate == 0.4:
            return accounting.CrossCheck(1.0, 2.0, 3.0, agrees=False)
        return known(events, delta)

    monkeypatch.setattr(accounting, "cross_check", doubtful)
    budget = handler()
    assert not budget.can_afford(bundle())
    with pytest.raises(PlanMismatchError, match="disagree"):
        budget.charge(bundle())


# -- what does not fit -----------------------------------------------------------------


def test_a_plan_pays_for_its_own_bundle_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    first = handler(ledger=url, queries=3).charge(bundle(partition="topic"))
    again = handler(ledger=url, queries=3)
    assert again.charge(bundle(partition="topic")).noise == first.noise
    assert again.can_afford(bundle(partition="topic"))
    others: list[Template] = [
        bundle(),
        bundle(partition="age"),
        bundle(disjoint=False),
        Bundle(GAUSSIAN, bundle().templates[:2], disjoint=True, partition="topic"),
        Bundle(GAUSSIAN, bundle().templates[::2], disjoint=True, partition="topic"),
        step(0.09),
    ]
    for other in others:
        assert not again.can_afford(other)
        with pytest.raises(PlanMismatchError, match="another kind"):
            again.charge(other)
    assert again.spent().queries == 2
    with pytest.raises(PlanMismatchError, match="units named by"):
        again.charge(bundle(partition="topic"), unit_key="patient")


ONE = (Gaussian(2.0, 0.09, 15),)
TWO = (Gaussian(5.0, 0.4, 15),)


@pytest.mark.parametrize(
    "events",
    [
        (),
        (*ONE, *TWO, *ONE),
        (Parallel((ONE, TWO)),),
        (Parallel((ONE, TWO, ONE, ONE)),),
        (Parallel((ONE, ONE, TWO)),),
        (Parallel((ONE, TWO, ONE), count=2),),
        (Parallel((ONE, TWO, ONE), partition="age"),),
        (Parallel((ONE, TWO, ONE)), Failure(1e-9)),
        (Parallel(((Gaussian(2.0, 0.09, 14),), TWO, ONE)),),
        (Parallel(((Gaussian(2.0, 0.09),), TWO, ONE)),),
        (Parallel(((Gaussian(2.0, 0.08, 15),), TWO, ONE)),),
        (Parallel(((Pure(2.0, 15),), TWO, ONE)),),
        (Parallel(((*ONE, Failure(1e-9)), TWO, ONE)),),
    ],
)
def test_stored_events_that_do_not_fit_are_refused(events: tuple[Event, ...]) -> None:
    with pytest.raises(InvalidParameterError, match="do not fit"):
        bundle().read(events)
    ledger = MemoryLedger()
    if events:
        ledger.open(AccountTerms("default", 4.0, DELTA, 1))
        asked = {**bundle().to_dict(), "unit_key": None}
        ledger.fix_plan("default", Plan(asked, events))
        with pytest.raises(InvalidParameterError, match="do not fit"):
            handler(ledger=ledger).charge(bundle())
        assert ledger.state("default").used == 0


@pytest.mark.parametrize(
    "events", [(*ONE, *TWO), (*ONE, *TWO, *ONE, *ONE), (*TWO, *ONE, *ONE)]
)
def test_so_are_those_of_labels_in_turn(events: tuple[Event, ...]) -> None:
    shared = bundle(disjoint=False)
    assert len(shared.read((*ONE, *TWO, *ONE))) == 3
    with pytest.raises(InvalidParameterError, match="do not fit"):
        shared.read(events)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Bundle("x", (), disjoint=True),
        lambda: Bundle("x", (step(0.1),) * 10_001, disjoint=True),
        lambda: Bundle("x", ("vote",), disjoint=True),  # type: ignore[arg-type]
        lambda: Bundle("x", (step(0.1), "vote"), disjoint=True),  # type: ignore[arg-type]
        lambda: Bundle("x", (step(0.1, share=0.5),), disjoint=True),
        lambda: Bundle("x", (step(0.1), step(0.1, share=0.5)), disjoint=True),
        lambda: Bundle("x", (step(0.1),), disjoint=False, partition="topic"),
        lambda: Bundle("x", (step(0.1),), disjoint=True, partition="a\nb"),
    ],
)
def test_bundles_that_mean_nothing_are_refused(make: Any) -> None:
    with pytest.raises(InvalidParameterError):
        make()


def test_accounts_of_single_units_take_no_bundle() -> None:
    budget = handler(scope="unit")
    with pytest.raises(InvalidParameterError, match="one by one"):
        budget.charge(Bundle("x", (step(1.0),), disjoint=True), charges_units=True)


def test_a_gdp_account_refuses_samples_and_charges_nothing() -> None:
    budget = handler(accounting="gdp")
    with pytest.raises(PlanMismatchError, match="gdp"):
        budget.charge(bundle())
    assert budget.spent().queries == 0
    plain = Bundle("x", (step(1.0), step(1.0, uses=30)), disjoint=True)
    first, second = budget.charge(plain).noise
    assert second.noise_multiplier == pytest.approx(2**0.5 * first.noise_multiplier)


async def test_every_way_to_ask_takes_a_bundle() -> None:
    budget = handler(queries=2, accounting="renyi")
    budget.require_payable(bundle())
    paid = await budget.acharge(bundle())
    assert paid.sequence == 1
    assert budget.can_afford(bundle())
    assert budget.public_state(paid)["epsilon_spent"] < 4
    json.dumps([accounting.event_to_dict(event) for event in paid.events])
    plain = budget.charge(step(0.09))
    assert isinstance(plain.noise, GaussianNoise)
    with pytest.raises(BudgetExhaustedError):
        budget.require_payable(bundle())


# -- failures --------------------------------------------------------------------------


def test_a_release_that_can_not_fail_is_charged_no_failure() -> None:
    shapes = (step(1.0, needs_delta0=True), step(1.0), step(1.0, needs_delta0=True))
    shared = Bundle("x", shapes, disjoint=False)
    events = plan_queries(shared, epsilon=4, delta=DELTA, queries=2)
    kinds = [type(event).__name__ for event in events]
    one = ["Gaussian", "Failure"]
    assert kinds == [*one, "Gaussian", *one]
    # Half of delta, for 2 queries of 2 releases of 15 uses that may fail.
    failures = [event for event in events if isinstance(event, Failure)]
    assert failures == [Failure(failures[0].delta0, 15)] * 2
    assert failures[0].delta0 == pytest.approx(DELTA / 2 / 60)
