"""Releases from disjoint classes of units: the dearest class, never less or more."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.accounting_strategies import any_event, selections

from langchain_dpicl.accounting import (
    BUDGET_UNITS,
    Cost,
    Event,
    Exponential,
    Failure,
    Gaussian,
    Parallel,
    PlainEvent,
    PrivacyFilter,
    Pure,
    ZCDPEvent,
    calibrate,
    compose,
    cross_check,
    event_from_dict,
    event_to_dict,
    gdp_mu,
    merge,
    parallel,
    repeat,
    rho,
    spent,
    total_delta0,
)
from langchain_dpicl.accounting.parallel import one_by_one, ways
from langchain_dpicl.errors import InvalidParameterError

A, B = (Pure(0.4, 3),), (Gaussian(4.0, count=2), Failure(1e-9))
LABELS = Parallel((A, B, A))

plain_gaussian = st.builds(
    Gaussian, st.sampled_from([2.0, 5.0, 9.0]), count=st.integers(1, 9)
)
failure = st.builds(Failure, st.sampled_from([0.0, 1e-9, 3e-8]), st.integers(1, 9))
branches = st.lists(
    st.lists(st.one_of(plain_gaussian, selections, failure), min_size=1, max_size=3),
    min_size=1,
    max_size=4,
)
any_parallel = st.builds(
    Parallel,
    st.lists(st.lists(any_event, min_size=1, max_size=3), min_size=1, max_size=4),
    st.integers(1, 10**12),
    st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20),
)
filters = st.sampled_from(
    [PrivacyFilter("zcdp", 4.0, 1e-5), PrivacyFilter("renyi", 4.0, 1e-5, order=6.0)]
)


# -- the event -----------------------------------------------------------------------


@given(any_parallel)
@settings(deadline=None)
def test_json_round_trip_is_exact(event: Parallel) -> None:
    assert event_from_dict(json.loads(json.dumps(event_to_dict(event)))) == event


@pytest.mark.parametrize(
    "bad",
    [
        (),
        ((),),
        (A, ()),
        A,
        "ab",
        None,
        ((LABELS,),),
        ((Pure(1.0), "x"),),
        (A,) * 10_001,
    ],
)
def test_branches_must_be_lists_of_plain_events(bad: object) -> None:
    with pytest.raises(InvalidParameterError):
        Parallel(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [None, 3, "a\nb", "x" * 201])
def test_a_partition_has_a_printable_name(name: object) -> None:
    with pytest.raises(InvalidParameterError, match="partition"):
        Parallel((A,), partition=name)  # type: ignore[arg-type]


def nested(stored: dict[str, object], depth: int) -> dict[str, object]:
    for _ in range(depth):
        stored = {**stored, "branches": [[stored]]}
    return stored


STORED = event_to_dict(LABELS)


@pytest.mark.parametrize(
    "stored",
    [
        {**STORED, "branches": []},
        {**STORED, "branches": [[]]},
        {**STORED, "branches": "[[]]"},
        {**STORED, "branches": [{"kind": "pure", "epsilon": 1.0, "count": 1}]},
        {**STORED, "branches": [[["kind", "pure"]]]},
        {**STORED, "branches": [[{"kind": "pure", "epsilon": 1.0}]]},
        {**STORED, "branches": [[{"kind": "pure", "epsilon": 0.0, "count": 1}]]},
        {**STORED, "branches": STORED["branches"] * 5_000},
        {**STORED, "count": 0},
        {**STORED, "partition": None},
        {key: STORED[key] for key in ("kind", "branches", "count")},
        {**STORED, "more": 1},
        nested(STORED, 1),
        nested(STORED, 5_000),
    ],
)
def test_what_was_not_written_so_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(InvalidParameterError):
        event_from_dict(stored)


def test_merging_knows_equal_events_however_their_branches_are_spelled() -> None:
    other = Parallel(((Pure(0.4), Pure(0.4, 2)), B[::-1], A), 4)
    in_order = (Failure(1e-9), Gaussian(4.0, count=2))
    assert merge([LABELS, other]) == (Parallel((A, in_order, A), 5),)
    renamed = Parallel(LABELS.branches, partition="topic")
    swapped = Parallel((B, A, A))
    assert len(merge([LABELS, renamed, swapped])) == 3
    assert merge([renamed, LABELS, A[0]]) == merge([A[0], LABELS, renamed])
    assert repeat([LABELS], 3)[0].count == 3


def test_a_class_that_costs_nothing_stays_a_class() -> None:
    free = Parallel(((Failure(0.0),), B))
    (merged,) = merge([free])
    assert isinstance(merged, Parallel)
    assert len(merged.branches) == 2
    assert compose([free], 1e-5) == compose(B, 1e-5)
    assert compose([Parallel(((Failure(0.0),),))], 1e-5) == 0.0


# -- what it costs --------------------------------------------------------------------


@given(branches, st.integers(1, 5), st.lists(selections, max_size=1))
@settings(deadline=None, max_examples=40)
def test_it_costs_what_its_dearest_branch_costs(
    lists: list[list[PlainEvent]], count: int, others: list[PlainEvent]
) -> None:
    events = [Parallel(tuple(map(tuple, lists)), count), *others]
    each = [compose([*repeat(one, count), *others], 1e-5) for one in lists]
    assert compose(events, 1e-5) == max(each)
    assert spent([*events], 3, 1e-5) == compose(events * 3, 1e-5)


@given(branches, filters, st.integers(1, 5))
@settings(deadline=None, max_examples=40)
def test_a_filter_charges_the_dearest_loss_and_failure(
    lists: list[list[PlainEvent]], account: PrivacyFilter, count: int
) -> None:
    event = Parallel(tuple(map(tuple, lists)), count)
    each = [account.cost(repeat(one, count)) for one in lists]
    assert account.cost([event]) == Cost(
        max(cost.loss for cost in each), max(cost.failure for cost in each)
    )


@given(
    st.lists(st.sampled_from([LABELS, Parallel((B, A), 2, "other")]), max_size=6),
    st.randoms(use_true_random=False),
    filters,
)
@settings(deadline=None, max_examples=40)
def test_whatever_class_a_unit_is_in_the_filter_has_charged_for_it(
    charges: list[Parallel], random: object, account: PrivacyFilter
) -> None:
    charged = sum(account.cost([event]).loss for event in charges)
    path = [
        repeat(random.choice(event.branches), event.count)  # type: ignore[attr-defined]
        for event in charges
    ]
    lost = account.cost([event for branch in path for event in branch]).loss
    assert lost <= charged


def test_different_events_cost_the_dearest_way_through_both() -> None:
    topics = Parallel((A, B))
    ages = Parallel((A, B), partition="age")
    both = [compose([*one, *two], 1e-5) for one in (A, B) for two in (A, B)]
    assert compose([topics, ages], 1e-5) == max(both)
    assert compose([topics] * 2, 1e-5) == max(compose(x * 2, 1e-5) for x in (A, B))
    assert ways(merge([topics, ages])) == 4


def test_a_mixed_pair_can_cost_more_than_two_that_are_alike() -> None:
    # Why a unit must stay in its class: otherwise the figure would not be a bound.
    common, rare = (Pure(2.0),), (Gaussian(0.5, 0.01),)
    alike = Parallel((common, rare))
    mixed = compose([*common, *rare], 1e-7)
    assert compose([alike] * 2, 1e-7) < mixed - 1.5
    moving = Parallel((common, rare), partition="again")
    assert compose([alike, moving], 1e-7) >= mixed
    # A filter has charged enough for it all the same.
    account = PrivacyFilter("renyi", 10.0, 1e-7)
    charged = 2 * account.cost([alike]).loss
    assert account.cost([*common, *rare]).loss <= charged


def test_too_many_ways_are_bounded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = tuple((Gaussian(2.0 + k, 0.1, 10),) for k in range(3))
    events = [Parallel(labels), Parallel(labels, partition="age")]
    exact = compose(events, 1e-5)
    assert len(list(one_by_one(merge(events)))) == 9
    monkeypatch.setattr("langchain_dpicl.accounting.composition.MAX_COMBINATIONS", 8)
    looser = compose([*events, Failure(1e-12)], 1e-5)
    # Not by the little that the failure takes: by what Renyi divergences lose.
    assert 1.01 * exact < looser < 1.5 * exact
    assert parallel.MAX_COMBINATIONS >= 14 * 14


def test_every_sum_takes_the_largest_branch() -> None:
    labels = Parallel((A, B, (ZCDPEvent(0.3),)), 2)
    assert rho([labels, Pure(1.0)]) == pytest.approx(2 * 0.3 + 0.5)
    gaussians = Parallel(((Gaussian(2.0),), (Gaussian(4.0, count=8),)))
    assert gdp_mu([gaussians, Gaussian(2.0, count=2)]) == 1.0
    with pytest.raises(InvalidParameterError):
        gdp_mu([LABELS])
    assert 2e-9 < total_delta0([LABELS, LABELS]) < 2.0000001e-9
    assert compose([Parallel((A, (Failure(1e-5),)))], 1e-5) == math.inf
    gdp = PrivacyFilter("gdp", 4.0, 1e-5)
    assert gdp.cost([gaussians]) == gdp.cost([Gaussian(4.0, count=8)])
    with pytest.raises(InvalidParameterError, match="gdp"):
        gdp.cost([LABELS])


def test_the_second_opinion_is_asked_about_every_branch() -> None:
    labels = tuple((Gaussian(z, q, 15),) for z, q in ((1.4, 0.1), (3.0, 0.4)))
    found = cross_check([Parallel(labels), Exponential(1.0)], 1e-5)
    assert found.agrees
    assert found.pld == max(compose(label, 1e-5) for label in labels)
    impossible = ((Gaussian(0.1, 0.1),), *labels)
    assert not cross_check([Parallel(impossible)], 1e-5).agrees
    many = tuple((Gaussian(9.0 + k),) for k in range(101))
    assert "branches" in cross_check([Parallel(many)], 1e-5).reason


def test_a_common_scale_is_calibrated_to_the_dearest_branch() -> None:
    def events_at(t: float) -> tuple[Event, ...]:
        return (Parallel(((Gaussian(t),), (Gaussian(t, count=9),))),)

    t = calibrate(events_at, 1.0, 1e-5, uses=2)
    alone = calibrate(lambda s: [Gaussian(s, count=9)], 1.0, 1e-5, uses=2)
    assert t == pytest.approx(alone, rel=2e-3)


# -- twins ----------------------------------------------------------------------------


def as_sum(event: Parallel) -> list[PlainEvent]:
    return [e for branch in event.branches for e in repeat(branch, event.count)]


def as_first(event: Parallel) -> list[PlainEvent]:
    return list(repeat(event.branches[0], event.count))


def as_one_use(event: Parallel) -> list[PlainEvent]:
    return max(map(list, event.branches), key=lambda one: compose(one, 1e-5))


@pytest.mark.parametrize("broken", [as_sum, as_first, as_one_use])
def test_twins_are_told_from_the_maximum(
    broken: Callable[[Parallel], list[PlainEvent]],
) -> None:
    event = Parallel(((Gaussian(4.0, 0.3, 15),), (Gaussian(3.0),)), 4)
    right = max(compose(repeat(one, 4), 1e-5) for one in event.branches)
    assert compose([event], 1e-5) == right
    assert abs(compose(broken(event), 1e-5) - right) > 0.05
    account = PrivacyFilter("renyi", 4.0, 1e-5, order=6.0)
    cost = account.cost([event]).loss
    assert abs(account.cost(broken(event)).loss - cost) > BUDGET_UNITS // 1_000


@given(
    z=st.floats(0.6, 5.0),
    rates=st.tuples(st.floats(0.005, 1.0), st.floats(0.005, 1.0)),
    order=st.sampled_from([2.0, 6.5, 32.0]),
)
@settings(deadline=None, max_examples=60)
def test_a_larger_rate_never_costs_less(
    z: float, rates: tuple[float, float], order: float
) -> None:
    low, high = sorted(rates)
    account = PrivacyFilter("renyi", 20.0, 1e-5, order=order)
    costs = [account.cost([Gaussian(z, q, 15)]).loss for q in (low, high)]
    assert costs[0] <= costs[1]
    labels = Parallel(tuple((Gaussian(z, q, 15),) for q in rates))
    assert account.cost([labels]).loss == costs[1]
