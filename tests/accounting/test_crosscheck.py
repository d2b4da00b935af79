from __future__ import annotations

import math
import sys
import types

import pytest

from langchain_dpicl.accounting import (
    CrossCheck,
    DeltaEvent,
    Event,
    ExponentialEvent,
    GaussianEvent,
    ParallelEvent,
    compose,
    cross_check,
    crosscheck,
)
from langchain_dpicl.common.parameters import ParameterError

PLANS = {
    "target": ([GaussianEvent(2.25, 0.005, 10_000)], 1e-6),
    "few-shot": ([GaussianEvent(0.51, 20 / 30000, 100)], 1 / 30000),
    "small noise": ([GaussianEvent(0.31, 20 / 30000, 100)], 1 / 30000),
    "trec": ([GaussianEvent(1.36, 80 / 835, 15)], 1 / 835),
    "no sampling": ([GaussianEvent(20.0, count=20)], 1e-6),
    "mixed": ([GaussianEvent(2.0, 0.01, 500), GaussianEvent(9.0, count=3)], 1e-6),
}


@pytest.mark.parametrize("name", PLANS)
def test_two_accountants_agree(name: str) -> None:
    events, delta = PLANS[name]
    result = cross_check(events, delta)
    assert result.agrees, result
    assert result.lower <= result.pld == compose(events, delta)
    assert result.upper - result.lower < 0.25 * result.upper


@pytest.mark.parametrize("factor", [0.5, 2.0])
@pytest.mark.parametrize("name", ["target", "trec"])
def test_an_accountant_with_wrong_noise_is_caught(
    monkeypatch: pytest.MonkeyPatch, name: str, factor: float
) -> None:
    def wrong(events: list[Event], delta: float) -> float:
        return compose(
            [
                GaussianEvent(e.noise_multiplier * factor, e.sampling_rate, e.count)
                for e in events
            ],
            delta,
        )

    monkeypatch.setattr(crosscheck, "compose", wrong)
    result = cross_check(*PLANS[name])
    assert not result.agrees
    assert ("below" if factor > 1 else "above") in result.reason


def test_an_accountant_that_overflows_to_zero_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crosscheck, "compose", lambda *_: 0.0)
    assert not cross_check(*PLANS["trec"]).agrees


@pytest.mark.parametrize(
    ("event", "delta"),
    [
        (GaussianEvent(0.01, 0.1), 1e-6),
        (GaussianEvent(1e-9), 1e-6),
        (GaussianEvent(1e5, 0.1), 1e-6),
        (GaussianEvent(1.0, 1e-9), 1e-6),
        (GaussianEvent(1.0, 0.1), 1e-30),
        (GaussianEvent(1e-200, 0.1), 1e-6),
        (GaussianEvent(0.3, 0.5, 100), 1e-5),
    ],
)
def test_what_cannot_be_computed_is_said_and_refused(
    event: Event, delta: float
) -> None:
    result = cross_check([event], delta)
    assert not result.agrees
    assert result.reason
    assert (result.lower, result.upper) == (0.0, math.inf)


def test_any_failure_of_the_other_library_is_a_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_args: object, **_kwargs: object) -> None:
        raise MemoryError("private text")

    fake = types.ModuleType("prv_accountant")
    fake.PoissonSubsampledGaussianMechanism = broken
    monkeypatch.setitem(sys.modules, "prv_accountant", fake)
    result = cross_check(*PLANS["trec"])
    assert not result.agrees
    assert "MemoryError" in result.reason
    assert "private" not in result.reason


def test_only_gaussians_are_compared() -> None:
    events, delta = PLANS["trec"]
    plain = cross_check(events, delta)
    assert cross_check([*events, ExponentialEvent(1.0)], delta) == plain
    assert cross_check([ExponentialEvent(1.0)], delta).agrees


def test_failure_probability_is_subtracted_on_both_sides() -> None:
    events, delta = PLANS["trec"]
    result = cross_check([*events, DeltaEvent(delta / 2)], delta)
    assert result.agrees
    assert result.pld == pytest.approx(compose(events, delta / 2), rel=1e-6)
    assert not cross_check([*events, DeltaEvent(delta)], delta).agrees


def test_too_many_kinds_of_events_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crosscheck, "compose", lambda *_: 1.0)
    events = [GaussianEvent(1.0 + k, 0.1) for k in range(65)]
    assert "different" in cross_check(events, 1e-6).reason


def test_too_many_branches_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one = CrossCheck(1.0, 0.9, 1.1, agrees=True)
    monkeypatch.setattr(crosscheck, "compose", lambda *_: 1.0)
    monkeypatch.setattr(crosscheck, "_cross_check", lambda *_: one)
    each = tuple((GaussianEvent(1.0 + k),) for k in range(101))
    assert cross_check([ParallelEvent(each[:100])], 1e-6) == one
    refused = cross_check([ParallelEvent(each)], 1e-6)
    reason = "more than 100 different branches to compare"
    assert refused == CrossCheck(1.0, 0.0, math.inf, agrees=False, reason=reason)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(ParameterError):
        cross_check([GaussianEvent(1.0)], 1.0)
    with pytest.raises(ParameterError):
        cross_check([object()], 0.1)
