"""What a record may claim."""

from __future__ import annotations

import math
from typing import Any

import pytest
from support.released_parts import (
    DELTA,
    EVENTS,
    as_json,
    public_record,
    record,
)

from langchain_dpicl.accounting import (
    Event,
    Failure,
    Gaussian,
    Parallel,
    Pure,
    compose,
)
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.released.checking import checked_record

MISSING = object()
(EVENT,) = as_json(*EVENTS)

BAD: dict[str, list[Any]] = {
    "status": [MISSING, None, "fallback", 1],
    "mechanism": [MISSING, " ", 1],
    "parameters": [MISSING, []],
    "unit": [MISSING, None, "\n"],
    "unit_key": [MISSING, "", []],
    "relation": [MISSING, None, "swap"],
    "neighbors": [MISSING, None, ""],
    "events": [
        *(MISSING, None, [], {}, [None], [{}]),
        [{"kind": "magic", "epsilon": 0.1, "count": 1}],
        [{**EVENT, "note": 1}],
        [{**EVENT, "noise_multiplier": 0}],
        [{**EVENT, "noise_multiplier": None}],
        [{**EVENT, "sampling_rate": 1.5}],
        [{**EVENT, "count": 10**30}],
        [EVENT] * 20_001,
        as_json(Parallel(branches=(EVENTS * 10_000, EVENTS * 10_001))),
    ],
    "epsilon": [MISSING, None, True, "1", -1, 0.1, 1e301, math.nan, math.inf],
    "delta": [MISSING, None, False, -1e-9, 0, 1, math.nan, 1e-9],
    "charge": [MISSING, 0, 1.0, True],
    "account": [MISSING, None, "notes", {}, {"name": ""}],
    "model": [MISSING, "", 1],
    "created": [MISSING, None, "yesterday", "2026-11-20T19:30:00Z", 20261120],
    "library": [MISSING, None, "latest", "0.1.0 ", "1" * 100],
}


def changed(made: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    return {k: v for k, v in {**made, name: value}.items() if v is not MISSING}


def test_a_record_is_kept_whole() -> None:
    more = record(random="seeded: for tests, not private", tokens=(1, 2))
    assert checked_record(more) == {**more, "tokens": [1, 2]}
    assert checked_record(public_record()) == public_record()
    assert checked_record(public_record(unit="none: no record was read"))
    for claim in ({"events": [EVENT]}, {"epsilon": 0.1}, {"charge": 1}):
        with pytest.raises(InvalidParameterError):
            checked_record({**public_record(), **claim})
    unpaid = record(charge=None, account=None, unit_key=None, model=None)
    assert checked_record(unpaid) == unpaid


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in BAD.items() for value in values],
)
def test_a_field_that_does_not_hold_is_refused_by_its_name(
    name: str, value: Any
) -> None:
    with pytest.raises(InvalidParameterError) as error:
        checked_record(changed(record(), name, value))
    said = str(error.value)
    # What delta says is part of what epsilon says.
    unwritable = isinstance(value, float) and not math.isfinite(value)
    assert unwritable or f"'{name}'" in said or (name == "delta" and "epsilon" in said)
    assert error.value.__cause__ is None


def test_a_record_that_is_nested_without_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    for parameters in ({"x": endless}, {"x": deep}):
        with pytest.raises(InvalidParameterError):
            checked_record(record(parameters=parameters))


MIXED: list[tuple[Event, ...]] = [
    EVENTS,
    (Gaussian(noise_multiplier=1.36, sampling_rate=0.096, count=15),),
    (Pure(epsilon=0.25, count=4), Gaussian(noise_multiplier=6.0)),
    (Gaussian(noise_multiplier=3.0, count=4), Failure(delta0=1e-7, count=3)),
    (Parallel(branches=(EVENTS, (Gaussian(noise_multiplier=3.0),))),),
]


@pytest.mark.parametrize("events", MIXED)
def test_epsilon_is_at_least_what_the_events_cost(events: tuple[Event, ...]) -> None:
    cost = compose(events, DELTA)
    checked_record(record(events, epsilon=cost))
    checked_record(record(events, epsilon=cost * 2))
    for less in (cost * (1 - 1e-5), cost / 2, 0.0):
        with pytest.raises(InvalidParameterError, match=r"'epsilon' is .* cost"):
            checked_record(record(events, epsilon=less))
    more = as_json(*events, *events)
    with pytest.raises(InvalidParameterError, match="'epsilon'"):
        checked_record(record(events) | {"events": more})


def test_at_delta_zero_only_pure_events_count() -> None:
    pure = (
        Pure(epsilon=0.5, count=3),
        Parallel(branches=((Pure(epsilon=0.25),), (Pure(epsilon=0.75),)), count=2),
    )
    checked_record(record(pure, delta=0.0, epsilon=3.0))
    checked_record(record(pure, delta=0, epsilon=3))
    with pytest.raises(InvalidParameterError, match="its events cost 3"):
        checked_record(record(pure, delta=0.0, epsilon=2.9))
    for event in (Gaussian(noise_multiplier=100.0), Failure(delta0=1e-9)):
        with pytest.raises(InvalidParameterError, match="cost inf"):
            checked_record(record((*pure, event), delta=0.0, epsilon=1e300))
        inside = Parallel(branches=(pure[:1], (event,)))
        with pytest.raises(InvalidParameterError, match="cost inf"):
            checked_record(record((inside,), delta=0.0, epsilon=1e300))
