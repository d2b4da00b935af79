from __future__ import annotations

import dataclasses
import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.accounting_strategies import any_event

from langchain_dpicl.accounting import (
    Event,
    Exponential,
    Failure,
    FixedSampleGaussianEvent,
    Gaussian,
    Parallel,
    Pure,
    RenyiEvent,
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
        (FixedSampleGaussianEvent, (1.0,), (1e-9, BELOW), (BELOW * 1e-9, 1)),
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


EVENTS: list[tuple[type, tuple[Any, ...], dict[str, Any]]] = [
    (Gaussian, (2.0,), {"kind": "gaussian", "noise_multiplier": 2.0}),
    (
        FixedSampleGaussianEvent,
        (2.0, 0.5),
        {"kind": "fixed_sample_gaussian", "noise_multiplier": 2.0},
    ),
    (Exponential, (2.0,), {"kind": "exponential", "epsilon": 2.0}),
    (Pure, (2.0,), {"kind": "pure", "epsilon": 2.0}),
    (ZCDPEvent, (2.0,), {"kind": "zcdp", "rho": 2.0}),
    (RenyiEvent, (2.0, 3.0), {"kind": "renyi", "order": 2.0, "divergence": 3.0}),
    (Failure, (0.5,), {"kind": "delta", "delta0": 0.5}),
    (
        Parallel,
        (((Pure(2.0, 3), Failure(0.5)), (Pure(1.0),)),),
        {
            "kind": "parallel",
            "branches": [
                [
                    {"kind": "pure", "epsilon": 2.0, "count": 3},
                    {"kind": "delta", "delta0": 0.5, "count": 1},
                ],
                [{"kind": "pure", "epsilon": 1.0, "count": 1}],
            ],
            "partition": "",
        },
    ),
]
RATES = {Gaussian: 1.0, FixedSampleGaussianEvent: 0.5}


@pytest.mark.parametrize(("cls", "arguments", "stored"), EVENTS)
def test_an_event_is_one_use_that_cannot_be_changed(
    cls: Any, arguments: tuple[Any, ...], stored: dict[str, Any]
) -> None:
    event = cls(*arguments)
    assert event.count == 1
    stored = {**stored, "count": 1}
    if cls in RATES:
        stored["sampling_rate"] = RATES[cls]
    assert event_to_dict(event) == stored
    assert event_from_dict(stored) == event
    for name in dataclasses.asdict(event):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(event, name, 2)
    assert cls(*arguments) == event
    assert hash(cls(*arguments)) == hash(event)
    most = cls(*arguments, count=10**12)
    assert most.count == 10**12
    with pytest.raises(InvalidParameterError) as refused:
        cls(*arguments, count=10**12 + 1)
    assert str(refused.value) == (
        "count must be at most 1000000000000, not 1000000000001."
    )


def test_numbers_of_other_kinds_become_floats_and_integers() -> None:
    for event in (
        Gaussian(2, 1, np.int64(3)),
        FixedSampleGaussianEvent(np.float32(2), np.float32(0.5), np.int64(3)),
        RenyiEvent(2, 1, np.int64(3)),
        ZCDPEvent(2, np.int64(3)),
        Failure(1, np.int64(3)),
    ):
        *numbers, count = dataclasses.astuple(event)
        assert all(type(number) is float for number in numbers)
        assert type(count) is int


def test_the_reasons_for_which_events_are_refused() -> None:
    names: list[tuple[Any, str]] = [
        (lambda: Failure(1.5), "delta0 must be from 0 to 1, not 1.5."),
        (
            lambda: FixedSampleGaussianEvent(1.0, 1.0),
            (
                "sampling_rate must be at least 1e-09 and below 1: where nothing is "
                "sampled, the event is a Gaussian."
            ),
        ),
        (
            lambda: Parallel(((Pure(1.0),),) * 10_001),
            "branches must hold 1 to 10000 classes, not 10001.",
        ),
        (lambda: Parallel(()), "branches must hold 1 to 10000 classes, not 0."),
        (
            lambda: Parallel(((Parallel(((Pure(1.0),),)),),)),  # type: ignore[arg-type]
            "A branch can't hold a Parallel, only plain events.",
        ),
        (
            lambda: Parallel(((Pure(1.0),),), partition="x" * 201),
            "partition must be a printable name of at most 200 characters.",
        ),
        (
            lambda: event_from_dict({"kind": "pure", "epsilon": 1.0, "b": 1, "a": 2}),
            (
                "A pure event has the fields count, epsilon, kind; "
                "stored are a, b, epsilon, kind."
            ),
        ),
        (
            lambda: event_from_dict({"kind": "laplace"}),
            (
                "Unknown event kind 'laplace'; known are delta, exponential, "
                "fixed_sample_gaussian, gaussian, parallel, pure, renyi, zcdp."
            ),
        ),
        (
            lambda: event_to_dict(3.0),  # type: ignore[arg-type]
            "Not a privacy event: float.",
        ),
    ]
    for call, message in names:
        with pytest.raises(InvalidParameterError) as refused:
            call()
        assert str(refused.value) == message


def test_the_most_classes_and_the_longest_name_are_taken_and_stored() -> None:
    event = Parallel(((Pure(1.0),),) * 10_000, 2, "x" * 200)
    assert event_from_dict(event_to_dict(event)) == event
    assert Parallel([[Pure(1.0)]]).branches == ((Pure(1.0),),)  # type: ignore[arg-type]
    one = Parallel(((Pure(1.0),),))
    assert event_from_dict(event_to_dict(one)) == one


@pytest.mark.parametrize(
    ("branches", "message"),
    [
        ([], "Branches are stored as 1 to 10000 lists."),
        ([[{}]] * 10_001, "Branches are stored as 1 to 10000 lists."),
        ((), "Branches are stored as 1 to 10000 lists."),
        ([{}], "A branch is stored as a list of events."),
        ([[{"kind": "parallel"}]], "A branch can't hold a parallel event."),
        ([["parallel"]], "An event is stored as a mapping, not 'parallel'."),
    ],
)
def test_stored_branches_are_lists_of_plain_events(
    branches: object, message: str
) -> None:
    stored = {"kind": "parallel", "branches": branches, "count": 1, "partition": ""}
    with pytest.raises(InvalidParameterError) as refused:
        event_from_dict(json.loads(json.dumps(stored)) if branches else stored)
    assert str(refused.value) == message


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
