from __future__ import annotations

import math
import sys
import types
from typing import Any

import mpmath as mp
import pytest

from langchain_dpicl.accounting import (
    CrossCheck,
    Event,
    Exponential,
    Failure,
    Gaussian,
    Parallel,
    compose,
    cross_check,
    crosscheck,
)
from langchain_dpicl.errors import InvalidParameterError

PLANS = {
    "target": ([Gaussian(2.25, 0.005, 10_000)], 1e-6),
    "few-shot": ([Gaussian(0.51, 20 / 30000, 100)], 1 / 30000),
    "small noise": ([Gaussian(0.31, 20 / 30000, 100)], 1 / 30000),
    "trec": ([Gaussian(1.36, 80 / 835, 15)], 1 / 835),
    "no sampling": ([Gaussian(20.0, count=20)], 1e-6),
    "mixed": ([Gaussian(2.0, 0.01, 500), Gaussian(9.0, count=3)], 1e-6),
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
                Gaussian(e.noise_multiplier * factor, e.sampling_rate, e.count)
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
        (Gaussian(0.01, 0.1), 1e-6),
        (Gaussian(1e-9), 1e-6),
        (Gaussian(1e5, 0.1), 1e-6),
        (Gaussian(1.0, 1e-9), 1e-6),
        (Gaussian(1.0, 0.1), 1e-30),
        (Gaussian(1e-200, 0.1), 1e-6),
        (Gaussian(0.3, 0.5, 100), 1e-5),
    ],
)
def test_what_cannot_be_computed_is_said_and_is_no_disagreement(
    event: Event, delta: float
) -> None:
    result = cross_check([event], delta)
    # Without a finite figure of our own there is nothing to release on.
    assert result.agrees is (False if math.isinf(result.pld) else None)
    assert result.reason
    assert (result.lower, result.upper) == (0.0, math.inf)


@pytest.mark.parametrize("z", [0.01, 0.15, 400.0, 1e5])
@pytest.mark.parametrize("q", [1e-8, 0.01, 0.5])
def test_a_figure_that_nobody_confirms_is_an_upper_bound(z: float, q: float) -> None:
    found = cross_check([Gaussian(z, q)], 1e-6)
    assert found.agrees is None
    # The exact delta of (1 - q) N(0, 1) + q N(1 / z, 1) against N(0, 1) at the figure.
    with mp.workdps(50):
        factor, shift = mp.e**found.pld, mp.mpf(1) / z
        at = mp.log1p((factor - 1) / q) / shift + shift / 2
        exact = (1 - q) * _tail(at) + q * _tail(at - shift) - factor * _tail(at)
    assert exact <= 1e-6


def _tail(x: Any) -> Any:
    return mp.erfc(x / mp.sqrt(2)) / 2


def test_any_failure_of_the_other_library_is_a_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_args: object, **_kwargs: object) -> None:
        raise MemoryError("private text")

    fake = types.ModuleType("prv_accountant")
    fake.PoissonSubsampledGaussianMechanism = broken
    monkeypatch.setitem(sys.modules, "prv_accountant", fake)
    result = cross_check(*PLANS["trec"])
    assert result.agrees is None
    assert "MemoryError" in result.reason
    assert "private" not in result.reason


def test_only_gaussians_are_compared() -> None:
    events, delta = PLANS["trec"]
    plain = cross_check(events, delta)
    assert cross_check([*events, Exponential(1.0)], delta) == plain
    assert cross_check([Exponential(1.0)], delta).agrees


def test_failure_probability_is_subtracted_on_both_sides() -> None:
    events, delta = PLANS["trec"]
    result = cross_check([*events, Failure(delta / 2)], delta)
    assert result.agrees
    assert result.pld == pytest.approx(compose(events, delta / 2), rel=1e-6)
    assert not cross_check([*events, Failure(delta)], delta).agrees


def test_too_many_kinds_of_events_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crosscheck, "compose", lambda *_: 1.0)
    events = [Gaussian(1.0 + k, 0.1) for k in range(65)]
    assert "different" in cross_check(events, 1e-6).reason


def test_too_many_branches_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    one = CrossCheck(1.0, 0.9, 1.1, agrees=True)
    monkeypatch.setattr(crosscheck, "compose", lambda *_: 1.0)
    monkeypatch.setattr(crosscheck, "_cross_check", lambda *_: one)
    each = tuple((Gaussian(1.0 + k),) for k in range(101))
    assert cross_check([Parallel(each[:100])], 1e-6) == one
    refused = cross_check([Parallel(each)], 1e-6)
    reason = "more than 100 different branches to compare"
    assert refused == CrossCheck(1.0, 0.0, math.inf, agrees=None, reason=reason)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(InvalidParameterError):
        cross_check([Gaussian(1.0)], 1.0)
    with pytest.raises(InvalidParameterError):
        cross_check([object()], 0.1)


# -- what is asked of prv-accountant -------------------------------------------------


def answers(monkeypatch: pytest.MonkeyPatch, figure: float) -> None:
    monkeypatch.setattr(crosscheck, "compose", lambda *_: figure)


MIXED = [
    Gaussian(2.0, 0.01, 5000),
    Gaussian(8.0, count=3),
    Gaussian(8.0),
]


def test_releases_without_a_sample_are_one_to_it() -> None:
    one = [(pytest.approx(0.3), 1.0, 1)]
    assert crosscheck._distinct([Gaussian(0.3)]) == one
    assert crosscheck._distinct([Gaussian(0.6, count=4)]) == one
    assert crosscheck._distinct([Gaussian(0.6, 0.5, 4)]) == [(0.6, 0.5, 4)]


# -- when the two agree --------------------------------------------------------------


def test_a_lower_end_alone_contradicts_a_smaller_figure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crosscheck, "_prv_interval", lambda *_: (2.0, math.inf))
    answers(monkeypatch, 1.9)
    assert cross_check(MIXED, 1e-6).agrees is False


@pytest.mark.parametrize("is_first", [True, False])
def test_the_dearest_branch_is_told_or_the_first_that_does_not_agree(
    monkeypatch: pytest.MonkeyPatch, *, is_first: bool
) -> None:
    def one(own: list[Event], _delta: float) -> CrossCheck:
        (event,) = own
        assert isinstance(event, Gaussian)
        z = event.noise_multiplier
        agrees = None if z == 4 else z < 5
        return CrossCheck(10 - z, 0.0, 10.0, agrees=agrees, reason=f"of {z}")

    monkeypatch.setattr(crosscheck, "_cross_check", one)
    branches = [(Gaussian(z),) for z in (3.0, 1.0, 2.0)]
    if not is_first:
        branches.reverse()
    assert cross_check([Parallel(branches)], 1e-6).reason == "of 1.0"
    branches[1:1] = [(Gaussian(4.0),)]
    assert cross_check([Parallel(branches)], 1e-6).reason == "of 4.0"
    branches[1:1] = [(Gaussian(7.0),), (Gaussian(6.0),)]
    assert cross_check([Parallel(branches)], 1e-6).reason == "of 7.0"


# -- what it is not asked ------------------------------------------------------------
