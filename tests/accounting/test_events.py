from __future__ import annotations

import dataclasses
import json
import math
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.accounting_strategies import any_event

from langchain_dpicl.accounting import (
    Event,
    Exponential,
    Failure,
    Gaussian,
    Parallel,
    Pure,
    ZCDPEvent,
    event_from_dict,
    event_to_dict,
    merge,
    repeat,
    total_delta0,
)
from langchain_dpicl.errors import InvalidParameterError

BAD_NUMBERS = [0, -1.0, math.nan, math.inf, "1", None, True]


@given(any_event)
@settings(deadline=None)
def test_json_round_trip_is_exact(event: Event) -> None:
    stored = json.dumps(event_to_dict(event))
    assert event_from_dict(json.loads(stored)) == event


@pytest.mark.parametrize("bad", BAD_NUMBERS)
@pytest.mark.parametrize("cls", [Gaussian, Exponential, Pure, ZCDPEvent])
def test_parameters_must_be_positive_and_finite(cls: type, bad: object) -> None:
    with pytest.raises(InvalidParameterError):
        cls(bad)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, 10**13, math.inf, "2"])
@pytest.mark.parametrize("cls", [Gaussian, Exponential, Pure, Failure])
def test_counts_must_be_positive_integers(cls: type, bad: object) -> None:
    with pytest.raises(InvalidParameterError):
        cls(0.5, count=bad)


@pytest.mark.parametrize("bad", [0, -0.1, 1.0001, math.nan, True])
def test_sampling_rate_must_be_a_rate(bad: object) -> None:
    with pytest.raises(InvalidParameterError):
        Gaussian(1.0, bad)


@pytest.mark.parametrize("bad", [-1e-9, 1.1, math.nan, "0"])
def test_delta0_must_be_a_probability(bad: object) -> None:
    with pytest.raises(InvalidParameterError):
        Failure(bad)


BELOW, ABOVE = math.nextafter(1, 0), math.nextafter(1, 2)


@pytest.mark.parametrize(
    ("cls", "arguments", "ends", "beyond"),
    [
        (Failure, (), (0, 1), (-5e-324, ABOVE)),
        (Gaussian, (1.0,), (5e-324, 1), (0, ABOVE)),
    ],
)
def test_the_ends_of_a_range_belong_to_it(
    cls: Any, arguments: Any, ends: Any, beyond: Any
) -> None:
    for end in ends:
        assert end in dataclasses.astuple(cls(*arguments, end))
    for number in beyond:
        with pytest.raises(InvalidParameterError):
            cls(*arguments, number)


def test_events_are_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Pure(1.0).epsilon = 2.0


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {"kind": "laplace", "epsilon": 1.0, "count": 1},
        {"kind": ["pure"], "epsilon": 1.0, "count": 1},
        {"kind": "pure", "epsilon": 1.0},
        {"kind": "pure", "epsilon": 1.0, "count": 1, "sampling_rate": 0.1},
        {"kind": "pure", "epsilon": -1.0, "count": 1},
        {"kind": "pure", "epsilon": 1.0, "count": 1.0},
        {"epsilon": 1.0, "count": 1},
        [("kind", "pure")],
        "pure",
    ],
)
def test_unknown_stored_events_are_refused(stored: object) -> None:
    with pytest.raises(InvalidParameterError):
        event_from_dict(stored)


def test_only_events_are_stored() -> None:
    with pytest.raises(InvalidParameterError):
        event_to_dict({"kind": "pure"})


def test_merge_adds_counts_and_forgets_the_order() -> None:
    one = [Pure(0.1), Gaussian(2, 0.5, 3), Pure(0.1, count=4)]
    assert merge(one) == merge(reversed(one))
    assert merge(one) == (Gaussian(2, 0.5, 3), Pure(0.1, count=5))


def test_merge_keeps_different_events_apart() -> None:
    assert len(merge([Gaussian(2, 0.5), Gaussian(2), Pure(2)])) == 3


def test_repeat_multiplies_every_count() -> None:
    assert repeat([Pure(0.1, 2), Failure(1e-9)], 5) == (
        Failure(1e-9, 5),
        Pure(0.1, 10),
    )


def test_delta0_is_counted_for_every_use() -> None:
    assert total_delta0([Failure(1e-9, 20)]) == pytest.approx(2e-8)
    assert total_delta0([Failure(1e-9)] * 20) >= 2e-8


@given(st.lists(st.tuples(st.floats(1e-30, 1e-3), st.integers(1, 99)), max_size=9))
@example(
    [
        (1.3631712092532426e-07, 7),
        (6.813411086815028e-08, 7),
        (3.406314594993626e-08, 7),
        (9.176406150637493e-09, 13),
        (8.522029684304719e-09, 7),
    ]
)
def test_failures_add_up_rounded_up(failures: list[tuple[float, int]]) -> None:
    exact = sum(Fraction(delta0) * count for delta0, count in failures)
    found = total_delta0([Failure(*failure) for failure in failures])
    assert exact <= found <= float(exact) * (1 + 1e-15)


def test_the_most_classes_and_the_longest_name_are_taken_and_stored() -> None:
    event = Parallel(((Pure(1.0),),) * 10_000, 2, "x" * 200)
    assert event_from_dict(event_to_dict(event)) == event
    assert Parallel([[Pure(1.0)]]).branches == ((Pure(1.0),),)  # type: ignore[arg-type]
    one = Parallel(((Pure(1.0),),))
    assert event_from_dict(event_to_dict(one)) == one


def test_the_canonical_order_is_by_kind_and_then_by_parameters() -> None:
    inner = (Pure(0.1),)
    ordered = [
        Failure(1e-9, 2),
        Gaussian(1.0, 0.5),
        Gaussian(1.0, count=3),
        Gaussian(2.0, 0.1),
        Parallel((inner, inner)),
        Parallel((inner, (Pure(0.2),)), 2),
        Parallel(((Pure(0.2),),), partition="a"),
        Parallel(((Pure(0.2),),), partition="b"),
        Pure(0.1, 7),
    ]
    assert merge(reversed(ordered)) == tuple(ordered)
    assert merge([ordered[4], Failure(0.0), ordered[4]]) == (
        Parallel((inner, inner), 2),
    )
    assert merge([]) == ()
    (same,) = merge([ordered[0]])
    assert same == ordered[0]


def test_the_failures_of_a_parallel_event_are_those_of_its_worst_branch() -> None:
    branches = (
        (Failure(0.125, 2), Pure(1.0), Failure(0.0625)),
        (Failure(0.25),),
    )
    up = math.nextafter(math.nextafter(0.3125, 1), 1)
    expected = math.nextafter(math.nextafter(3 * up + 0.5, 9), 9)
    failing = [Parallel(branches, 3), Failure(0.25, 2), Pure(1.0)]
    assert total_delta0(failing) == expected
    assert total_delta0([Pure(1.0), Failure(0.0, 9)]) == 0.0
    assert total_delta0([Failure(5e-324)]) == 1.5e-323
