from __future__ import annotations

import dataclasses
import math
import sys
import types
import warnings
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from support.filter_oracle import sampled_divergence

from langchain_dpicl.accounting import (
    CrossCheck,
    Event,
    Exponential,
    Failure,
    FixedSampleGaussianEvent,
    Gaussian,
    Parallel,
    Pure,
    RenyiEvent,
    ZCDPEvent,
    compose,
    cross_check,
    crosscheck,
    total_delta0,
)
from langchain_dpicl.accounting.renyi import renyi_epsilon
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


class OtherAccountant:
    """Stands in for prv-accountant: keeps what it was asked, fails a few times."""

    failures: int = 0
    interval: tuple[float, float] = (1.0, 1.2)
    asked: list[dict[str, Any]]

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = []
        fake: Any = types.ModuleType("prv_accountant")
        fake.GaussianMechanism = lambda noise_multiplier: (noise_multiplier, 1.0)
        fake.PoissonSubsampledGaussianMechanism = (
            lambda sampling_probability, noise_multiplier: (
                noise_multiplier,
                sampling_probability,
            )
        )
        fake.PRVAccountant = self._made
        monkeypatch.setitem(sys.modules, "prv_accountant", fake)

    def _made(self, variables: list[tuple[float, float]], **more: Any) -> Any:
        warnings.warn("the integral is not exact", RuntimeWarning, stacklevel=1)
        self.asked.append({"variables": variables, **more})
        return self

    def compute_epsilon(
        self, delta: float, counts: list[int]
    ) -> tuple[float, float, float]:
        self.asked[-1] |= {"delta": delta, "counts": counts}
        if len(self.asked) <= self.failures:
            raise RuntimeError
        lower, upper = self.interval
        return lower, (lower + upper) / 2, upper


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> OtherAccountant:
    return OtherAccountant(monkeypatch)


def answers(monkeypatch: pytest.MonkeyPatch, figure: float) -> None:
    monkeypatch.setattr(crosscheck, "compose", lambda *_: figure)


def provable(events: list[Gaussian], delta_error: float, points: int) -> float:
    """The error that a grid of so many points proves, as prv-accountant's paper has it.

    The domain is [-L, L]; L is 3 more than all uses' epsilon at a quarter of the error,
    or one use's at its share of an eighth.
    """
    uses = sum(event.count for event in events)
    alone = [
        renyi_epsilon([dataclasses.replace(event, count=1)], delta_error / (8 * uses))
        for event in events
    ]
    domain = 2 * (3 + max(renyi_epsilon(events, delta_error / 4), *alone))
    return domain / points * math.sqrt(uses * math.log(12 / delta_error) / 2)


MIXED = [
    Gaussian(2.0, 0.01, 5000),
    Gaussian(8.0, count=3),
    Gaussian(8.0),
]
AS_ONE = [Gaussian(2.0, 0.01, 5000), Gaussian(4.0)]


def test_prv_accountant_is_asked_with_the_error_that_its_grid_proves(
    monkeypatch: pytest.MonkeyPatch, other: OtherAccountant
) -> None:
    answers(monkeypatch, 1.1)
    small = provable(AS_ONE, 1e-9, 60_000)
    assert cross_check(MIXED, 1e-6) == CrossCheck(1.1, 1.0, 1.2, agrees=True)
    assert 0.02 < small < 0.06 * 1.1
    assert other.asked == [
        {
            "variables": [(2.0, 0.01), (4.0, 1.0)],
            "eps_error": pytest.approx(small, rel=1e-12),
            "delta_error": 1e-9,
            "max_self_compositions": [5000, 1],
            "delta": 1e-6,
            "counts": [5000, 1],
        }
    ]
    # A single use may need the wider domain.
    other.asked.clear()
    one = [Gaussian(0.5, 0.3)]
    assert cross_check(one, 1e-6).agrees
    needed = provable(one, 1e-9, 300_000)
    assert other.asked[0]["eps_error"] == pytest.approx(needed, rel=1e-12) or (
        other.asked[0]["eps_error"] == pytest.approx(5 * needed, rel=1e-12)
    )


@pytest.mark.parametrize(("share", "points"), [(1.0001, 60_000), (0.9999, 300_000)])
def test_a_grid_of_more_points_is_taken_where_the_small_one_proves_too_little(
    monkeypatch: pytest.MonkeyPatch, other: OtherAccountant, share: float, points: int
) -> None:
    # Wanted is an error of 6 % of the figure.
    figure = provable(AS_ONE, 1e-9, 60_000) / 0.06 * share
    answers(monkeypatch, figure)
    other.interval = (figure, figure)
    assert cross_check(MIXED, 1e-6).agrees
    expected = provable(AS_ONE, 1e-9, points)
    assert other.asked[0]["eps_error"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("z", "points"), [(60.0, 60_000), (50.0, 300_000)])
def test_of_a_tiny_figure_an_error_of_two_hundredths_is_enough(
    monkeypatch: pytest.MonkeyPatch, other: OtherAccountant, z: float, points: int
) -> None:
    events = [Gaussian(z, 0.01, 120)]
    small = provable(events, 1e-9, 60_000)
    monkeypatch.setattr(crosscheck, "_LEAST_ERROR", small * (1.0001 if z > 55 else 0.9))
    answers(monkeypatch, 1e-3)
    other.interval = (1e-3, 1e-3)
    assert cross_check(events, 1e-6).agrees
    expected = provable(events, 1e-9, points)
    assert other.asked[0]["eps_error"] == pytest.approx(expected, rel=1e-12)


def test_a_refused_grid_is_widened_while_the_error_is_small_enough(
    monkeypatch: pytest.MonkeyPatch, other: OtherAccountant
) -> None:
    small = provable(AS_ONE, 1e-9, 60_000)
    figure = small / 0.06 * 4.001
    answers(monkeypatch, figure)
    other.interval = (figure, figure)
    other.failures = 2
    assert cross_check(MIXED, 1e-6).agrees
    errors = [asked["eps_error"] for asked in other.asked]
    assert errors == pytest.approx([small, 2 * small, 4 * small], rel=1e-12)
    other.failures = 99
    other.asked.clear()
    result = cross_check(MIXED, 1e-6)
    assert len(other.asked) == 3
    assert result == CrossCheck(
        figure,
        0.0,
        math.inf,
        agrees=None,
        reason="prv-accountant can't compute this plan: RuntimeError",
    )


@pytest.mark.parametrize("interval", [(-math.inf, 1.0), (1.0, math.inf), (math.nan, 1)])
def test_an_end_that_is_no_number_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
    other: OtherAccountant,
    interval: tuple[float, float],
) -> None:
    answers(monkeypatch, 1.0)
    other.interval = interval
    reason = "prv-accountant can't compute this plan: ArithmeticError"
    assert cross_check(MIXED, 1e-6) == CrossCheck(
        1.0, 0.0, math.inf, agrees=None, reason=reason
    )


def test_releases_without_a_sample_are_one_to_it() -> None:
    one = [(pytest.approx(0.3), 1.0, 1)]
    assert crosscheck._distinct([Gaussian(0.3)]) == one
    assert crosscheck._distinct([Gaussian(0.6, count=4)]) == one
    assert crosscheck._distinct([Gaussian(0.6, 0.5, 4)]) == [(0.6, 0.5, 4)]


def test_an_interval_below_zero_is_cut_there(
    monkeypatch: pytest.MonkeyPatch, other: OtherAccountant
) -> None:
    answers(monkeypatch, 0.0)
    other.interval = (-0.5, -0.1)
    assert cross_check(MIXED, 1e-6) == CrossCheck(0.0, 0.0, 0.0, agrees=True)


# -- when the two agree --------------------------------------------------------------

FIXED = [FixedSampleGaussianEvent(2.0, 0.5)]


@pytest.mark.parametrize(
    ("events", "margin"), [(MIXED, 0.02), ([*MIXED, *FIXED], 0.5), (FIXED, 0.5)]
)
@pytest.mark.parametrize("upper", [0.001, 0.02, 2.0])
def test_a_figure_may_be_above_by_a_margin_and_never_below(
    monkeypatch: pytest.MonkeyPatch, events: list[Event], margin: float, upper: float
) -> None:
    lower = upper / 2
    monkeypatch.setattr(crosscheck, "_prv_interval", lambda *_: (lower, upper))
    most = upper + margin * max(upper, 0.02)
    for figure, reason in (
        (math.nextafter(lower, 0), "the figure is below prv-accountant's interval"),
        (lower, ""),
        (upper, ""),
        (most, ""),
        (math.nextafter(most, 9), "the figure is above prv-accountant's interval"),
    ):
        answers(monkeypatch, figure)
        assert cross_check(events, 1e-6) == CrossCheck(
            figure, lower, upper, agrees=not reason, reason=reason
        )


@pytest.mark.parametrize("interval", [(1.0, 0.9), (0.5, float("inf")), (math.nan, 1.0)])
def test_an_interval_must_be_one(
    monkeypatch: pytest.MonkeyPatch, interval: tuple[float, float]
) -> None:
    monkeypatch.setattr(crosscheck, "_prv_interval", lambda *_: interval)
    answers(monkeypatch, 0.95)
    result = cross_check(MIXED, 1e-6)
    assert result.agrees is None
    assert result.reason == "prv-accountant's interval is empty or has no end"


def test_a_lower_end_alone_contradicts_a_smaller_figure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crosscheck, "_prv_interval", lambda *_: (2.0, math.inf))
    answers(monkeypatch, 1.9)
    assert cross_check(MIXED, 1e-6).agrees is False


def test_nothing_to_compare_agrees_and_nothing_left_of_delta_does_not() -> None:
    nothing = [Exponential(1.0), Pure(1.0), ZCDPEvent(1.0), Failure(1e-9)]
    assert cross_check(nothing, 1e-6) == CrossCheck(0.0, 0.0, 0.0, agrees=True)
    used_up = CrossCheck(
        math.inf, 0.0, math.inf, agrees=False, reason="delta is used up by delta0"
    )
    failures = [Failure(1e-7, 3)]
    delta = total_delta0(failures)
    for other in ([], [Gaussian(1.0)], [RenyiEvent(3.0, 1.0)]):
        events = [*failures, *other]
        assert cross_check(events, delta) == used_up
        assert cross_check(events, math.nextafter(delta, 0)) == used_up
        assert cross_check(events, delta * 1.1) != used_up


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

NOISE = "prv-accountant needs a noise multiplier from 0.2 to 300 for sampled releases"
KINDS = [Gaussian(1.0 + k, 0.1) for k in range(64)]


@pytest.mark.parametrize(
    ("inside", "outside", "delta", "reason"),
    [
        ([Gaussian(0.2, 0.1)], [Gaussian(0.19999999, 0.1)], 1e-6, NOISE),
        ([Gaussian(300.0, 0.1)], [Gaussian(300.0001, 0.1)], 1e-6, NOISE),
        (
            [Gaussian(0.1)],
            [Gaussian(0.1), Gaussian(0.1, 0.9)],
            1e-6,
            NOISE,
        ),
        (
            [Gaussian(1.0, 1e-6)],
            [Gaussian(1.0, 9.99e-7)],
            1e-6,
            "prv-accountant needs a sampling rate of 1e-06 at least",
        ),
        (
            [
                Gaussian(9.0, 0.1, 999_999),
                Gaussian(8.0, 0.1),
                Gaussian(9.0),
            ],
            [Gaussian(9.0, 0.1, 999_999), Gaussian(8.0, 0.1, 2)],
            1e-6,
            "prv-accountant is asked about 1000000 sampled uses at most",
        ),
        (
            KINDS,
            [*KINDS, Gaussian(0.5, 0.1)],
            1e-6,
            "prv-accountant is asked about 64 different events at most",
        ),
        (
            [*KINDS[:63], Gaussian(5.0), Gaussian(6.0)],
            [*KINDS, Gaussian(5.0)],
            1e-6,
            "prv-accountant is asked about 64 different events at most",
        ),
        (
            [Gaussian(1.0, 0.1)],
            [Gaussian(1.0, 0.1)],
            1e-10,
            "prv-accountant needs a delta of 1e-10 at least",
        ),
    ],
)
def test_the_ends_of_what_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
    inside: list[Event],
    outside: list[Event],
    delta: float,
    reason: str,
) -> None:
    answers(monkeypatch, 1.0)
    monkeypatch.setattr(crosscheck, "_prv_interval", lambda *_: (1.0, 1.0))
    assert cross_check(inside, delta) == CrossCheck(1.0, 1.0, 1.0, agrees=True)
    delta = math.nextafter(delta, 0) if inside == outside else delta
    assert cross_check(outside, delta) == CrossCheck(
        1.0, 0.0, math.inf, agrees=None, reason=reason
    )


@pytest.mark.parametrize("event", [Gaussian(1.0), RenyiEvent(4.0, 0.1)])
def test_an_infinite_figure_is_not_compared(
    monkeypatch: pytest.MonkeyPatch, event: Event
) -> None:
    answers(monkeypatch, math.inf)
    assert cross_check([event], 1e-6) == CrossCheck(
        math.inf,
        0.0,
        math.inf,
        agrees=False,
        reason="there is no finite figure to compare",
    )


# -- lists with Renyi events ---------------------------------------------------------

INTEGRATED = (
    "orders up to 5000 and a noise multiplier from 0.2 to 300 are integrated for "
    "sampled releases"
)


@pytest.mark.parametrize(
    ("events", "order", "reason"),
    [
        ([], 1.0220001, ""),
        ([], 1.0219999, "dp-accounting needs an order above 1.022"),
        ([Gaussian(0.1)], 9000.0, ""),
        ([Gaussian(0.2, 0.5)], 5000.0, ""),
        ([Gaussian(300.0, 0.5)], 4.0, ""),
        ([Gaussian(1.0, 0.5)], 5000.001, INTEGRATED),
        ([Gaussian(0.1), Gaussian(0.199, 0.5)], 4.0, INTEGRATED),
        ([Gaussian(0.1), Gaussian(300.1, 0.5)], 4.0, INTEGRATED),
        ([FixedSampleGaussianEvent(0.199, 0.5)], 4.0, INTEGRATED),
    ],
)
def test_the_ends_of_what_is_integrated(
    monkeypatch: pytest.MonkeyPatch, events: list[Event], order: float, reason: str
) -> None:
    answers(monkeypatch, 1.0)
    monkeypatch.setattr(crosscheck, "_renyi_interval", lambda *_: (1.0, 1.0))
    lists = [*events, RenyiEvent(order, 0.1), RenyiEvent(1e4, 0.1)]
    found = cross_check(lists, 1e-6)
    assert found.reason == reason
    assert found.agrees is (None if reason else True)
    assert (found.lower, found.upper) == ((0.0, math.inf) if reason else (1.0, 1.0))


@pytest.mark.parametrize(
    ("events", "margin"), [([], 0.02), (MIXED, 0.02), ([*MIXED, *FIXED], 0.5)]
)
def test_the_figure_with_curves_is_held_against_the_same_margin(
    monkeypatch: pytest.MonkeyPatch, events: list[Event], margin: float
) -> None:
    monkeypatch.setattr(crosscheck, "_renyi_interval", lambda *_: (1.0, 2.0))
    most = 2.0 + margin * 2.0
    for figure, reason in (
        (math.nextafter(1.0, 0), "the figure is below dp-accounting's interval"),
        (1.0, ""),
        (most, ""),
        (math.nextafter(most, 9), "the figure is above dp-accounting's interval"),
    ):
        answers(monkeypatch, figure)
        assert cross_check([*events, RenyiEvent(4.0, 0.1)], 1e-6) == CrossCheck(
            figure, 1.0, 2.0, agrees=not reason, reason=reason
        )


@pytest.mark.parametrize(
    ("z", "q"), [(0.3, 0.4), (1.0, 0.01), (7.0, 0.5), (90.0, 0.25)]
)
def test_the_integral_of_a_sampled_gaussian_is_the_moment_at_whole_orders(
    z: float, q: float
) -> None:
    found = crosscheck._log_moments(z, q, np.array([2.0, 3.0, 8.0, 50.0]))
    with mp.workdps(60):
        moments = [
            float((order - 1) * sampled_divergence(z, q, order))
            for order in (2, 3, 8, 50)
        ]
    assert found.tolist() == pytest.approx(moments, rel=1e-9, abs=3e-15)
    assert crosscheck._log_moments(z, q, np.array([1.0])) == pytest.approx(0, abs=1e-14)


CURVES: dict[str, tuple[list[Event], tuple[float, float]]] = {
    "alone": ([RenyiEvent(7.6, 0.04, 20)], (2.442440502817342, 2.4448853882055475)),
    "two": (
        [
            RenyiEvent(7.6, 0.04, 20),
            RenyiEvent(5.5, 0.01, 3),
            Gaussian(9.0, 1.0, 20),
        ],
        (3.995622575957783, 3.999622198155939),
    ),
    "between whole orders": (
        [RenyiEvent(3.4, 0.1, 20), Gaussian(1.5, 0.25, 20)],
        (8.265315937403761, 8.353271948559131),
    ),
    "at the last whole order": (
        [RenyiEvent(3.4, 0.001, 1), Gaussian(0.7, 0.02, 100)],
        (5.733804273413736, 6.203284945895247),
    ),
    "at a whole order": (
        [RenyiEvent(3.0, 0.001, 1), Gaussian(0.8, 0.02, 300)],
        (6.739397470566359, 6.746143614180539),
    ),
    "near one": (
        [RenyiEvent(1.3, 0.5, 20), Gaussian(1.0, 0.5, 3)],
        (54.23788217558823, 54.78293930138887),
    ),
    "far": (
        [RenyiEvent(400.0, 0.0001, 1), Gaussian(60.0, 0.25, 20)],
        (0.07259166347984398, 0.0855920218703224),
    ),
    "fixed sample": (
        [
            RenyiEvent(60.4, 0.01, 5),
            FixedSampleGaussianEvent(4.0, 0.25, 20),
            Gaussian(9.0, 0.1, 9),
        ],
        (1.5026244662319834, 1.504675585535089),
    ),
}


@pytest.mark.parametrize("name", CURVES)
def test_recorded_intervals_of_lists_with_curves(name: str) -> None:
    events, (lower, upper) = CURVES[name]
    found = cross_check(events, 1e-6)
    assert found.agrees
    assert (found.lower, found.upper) == pytest.approx((lower, upper), rel=1e-10)
