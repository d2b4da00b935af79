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
    DeltaEvent,
    Event,
    ExponentialEvent,
    FixedSampleGaussianEvent,
    GaussianEvent,
    PureEvent,
    ZCDPEvent,
    event_from_dict,
    event_to_dict,
    merge,
    repeat,
    total_delta0,
)
from langchain_dpicl.common.parameters import ParameterError

BAD_NUMBERS = [0, -1.0, math.nan, math.inf, "1", None, True]


@given(any_event)
@settings(deadline=None)
def test_json_round_trip_is_exact(event: Event) -> None:
    stored = json.dumps(event_to_dict(event))
    assert event_from_dict(json.loads(stored)) == event


@pytest.mark.parametrize("bad", BAD_NUMBERS)
@pytest.mark.parametrize("cls", [GaussianEvent, ExponentialEvent, PureEvent, ZCDPEvent])
def test_parameters_must_be_positive_and_finite(cls: type, bad: object) -> None:
    with pytest.raises(ParameterError):
        cls(bad)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, 10**13, math.inf, "2"])
@pytest.mark.parametrize(
    "cls", [GaussianEvent, ExponentialEvent, PureEvent, DeltaEvent]
)
def test_counts_must_be_positive_integers(cls: type, bad: object) -> None:
    with pytest.raises(ParameterError):
        cls(0.5, count=bad)


@pytest.mark.parametrize("bad", [0, -0.1, 1.0001, math.nan, True])
def test_sampling_rate_must_be_a_rate(bad: object) -> None:
    with pytest.raises(ParameterError):
        GaussianEvent(1.0, bad)


@pytest.mark.parametrize("bad", [-1e-9, 1.1, math.nan, "0"])
def test_delta0_must_be_a_probability(bad: object) -> None:
    with pytest.raises(ParameterError):
        DeltaEvent(bad)


BELOW, ABOVE = math.nextafter(1, 0), math.nextafter(1, 2)


@pytest.mark.parametrize(
    ("cls", "arguments", "ends", "beyond"),
    [
        (DeltaEvent, (), (0, 1), (-5e-324, ABOVE)),
        (GaussianEvent, (1.0,), (5e-324, 1), (0, ABOVE)),
        (FixedSampleGaussianEvent, (1.0,), (1e-9, BELOW), (BELOW * 1e-9, 1)),
    ],
)
def test_the_ends_of_a_range_belong_to_it(
    cls: Any, arguments: Any, ends: Any, beyond: Any
) -> None:
    for end in ends:
        assert end in dataclasses.astuple(cls(*arguments, end))
    for number in beyond:
        with pytest.raises(ParameterError):
            cls(*arguments, number)


def test_events_are_immutable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        PureEvent(1.0).epsilon = 2.0


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
    with pytest.raises(ParameterError):
        event_from_dict(stored)


def test_only_events_are_stored() -> None:
    with pytest.raises(ParameterError):
        event_to_dict({"kind": "pure"})


def test_merge_adds_counts_and_forgets_the_order() -> None:
    one = [PureEvent(0.1), GaussianEvent(2, 0.5, 3), PureEvent(0.1, count=4)]
    assert merge(one) == merge(reversed(one))
    assert merge(one) == (GaussianEvent(2, 0.5, 3), PureEvent(0.1, count=5))


def test_merge_keeps_different_events_apart() -> None:
    assert len(merge([GaussianEvent(2, 0.5), GaussianEvent(2), PureEvent(2)])) == 3


def test_repeat_multiplies_every_count() -> None:
    assert repeat([PureEvent(0.1, 2), DeltaEvent(1e-9)], 5) == (
        DeltaEvent(1e-9, 5),
        PureEvent(0.1, 10),
    )


def test_delta0_is_counted_for_every_use() -> None:
    assert total_delta0([DeltaEvent(1e-9, 20)]) == pytest.approx(2e-8)
    assert total_delta0([DeltaEvent(1e-9)] * 20) >= 2e-8


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
    found = total_delta0([DeltaEvent(*failure) for failure in failures])
    assert exact <= found <= float(exact) * (1 + 1e-15)
