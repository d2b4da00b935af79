from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from dp_accounting import gaussian_mechanism
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_dpicl.accounting import (
    Event,
    Exponential,
    Failure,
    Gaussian,
    Pure,
    RenyiEvent,
    ZCDPEvent,
    calibrate,
    epsilon,
    merge,
    noise_multiplier,
    repeat,
    spent,
    total_delta0,
)
from langchain_dpicl.accounting.calibration import _root
from langchain_dpicl.accounting.composition import CHEAP, bound
from langchain_dpicl.errors import InvalidParameterError

budgets = st.floats(-2, 2).map(lambda x: 10**x)


@given(budgets, st.floats(-12, -2), st.integers(1, 10**6))
@settings(deadline=None, max_examples=100)
def test_closed_form_is_met_and_nearly_minimal(
    target: float, exponent: float, uses: int
) -> None:
    delta = 10**exponent
    z = noise_multiplier(target, delta, uses=uses)
    assert epsilon(z, delta, uses=uses) <= target
    assert epsilon(z / (1 + 2e-9), delta, uses=uses) > target


def test_closed_form_agrees_with_dp_accounting() -> None:
    sigma = gaussian_mechanism.get_sigma_gaussian(1.0, 1e-6)
    assert noise_multiplier(1.0, 1e-6, uses=1) == pytest.approx(sigma, rel=1e-8)


@pytest.mark.parametrize(
    ("target", "q", "uses", "delta"),
    [
        (1.0, 0.005, 10_000, 1e-6),
        (0.05, 0.01, 100, 1e-6),
        (8.0, 80 / 835, 15, 1 / 835),
        (50.0, 0.3, 30, 1e-5),
    ],
)
def test_sampled_plan_is_met_and_nearly_minimal(
    target: float, q: float, uses: int, delta: float
) -> None:
    z = noise_multiplier(target, delta, uses=uses, sampling_rate=q)
    assert epsilon(z, delta, uses=uses, sampling_rate=q) <= target
    assert epsilon(z / 1.0012, delta, uses=uses, sampling_rate=q) > target


BUNDLES = {
    "test and selection": lambda t: (
        Gaussian(t),
        Exponential(0.5 / t),
        Failure(1e-9),
    ),
    "selection alone": lambda t: [Exponential(1 / t)],
    "pure": lambda t: [Pure(1 / t)],
    "zcdp": lambda t: [ZCDPEvent(1 / t**2)],
    "a share that stays": lambda t: [Gaussian(t), Pure(0.05)],
    "sampled": lambda t: [Gaussian(t, 0.1), Exponential(0.1 / t)],
}


@pytest.mark.parametrize("name", BUNDLES)
def test_bundles_are_met_and_nearly_minimal(name: str) -> None:
    t = calibrate(BUNDLES[name], 2.0, 1e-6, uses=20)
    assert spent(BUNDLES[name](t), 20, 1e-6) <= 2.0
    assert spent(BUNDLES[name](t / 1.0012), 20, 1e-6) > 2.0


def test_failure_probability_needs_more_noise() -> None:
    plain = noise_multiplier(1.0, 1e-6, uses=20)
    with_failure = noise_multiplier(1.0, 1e-6, uses=20, delta0=2e-8)
    assert with_failure > plain
    assert epsilon(with_failure, 1e-6, uses=20, delta0=2e-8) <= 1.0
    assert epsilon(plain, 1e-6, uses=20, delta0=2e-8) > 1.0


def test_half_the_noise_would_break_the_budget() -> None:
    # The twin: a calibration that is off by a factor of two fails the same check.
    z = noise_multiplier(1.0, 1e-6, uses=50, sampling_rate=0.1)
    assert epsilon(z / 2, 1e-6, uses=50, sampling_rate=0.1) > 1.0


def test_failure_probability_alone_may_break_the_budget() -> None:
    with pytest.raises(InvalidParameterError, match="add up"):
        noise_multiplier(1.0, 1e-6, uses=20, delta0=1e-7)


def test_an_unreachable_budget_is_refused() -> None:
    with pytest.raises(InvalidParameterError, match="No noise"):
        noise_multiplier(1e-9, 1e-12, uses=10**6)
    with pytest.raises(InvalidParameterError, match="No noise"):
        calibrate(lambda _: [Pure(1.0)], 2.0, 1e-6, uses=20)


def test_a_budget_that_needs_no_noise_gets_the_smallest() -> None:
    assert noise_multiplier(1e300, 1e-6, uses=1) == 1e-6
    assert calibrate(lambda _: [], 1.0, 1e-6, uses=1) == 1e-6


@pytest.mark.parametrize(
    "change",
    [
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"epsilon": math.inf},
        {"epsilon": math.nan},
        {"delta": 0.0},
        {"delta": 1.0},
        {"uses": 0},
        {"uses": 1.5},
        {"sampling_rate": 0.0},
        {"sampling_rate": 1.1},
        {"delta0": -1e-9},
        {"delta0": math.nan},
    ],
)
def test_bad_arguments_are_refused(change: dict[str, float]) -> None:
    arguments = {"epsilon": 1.0, "delta": 1e-6, "uses": 1} | change
    with pytest.raises(InvalidParameterError):
        noise_multiplier(**arguments)


# -- the search -----------------------------------------------------------------------

EXCESSES: dict[str, Callable[[float], float]] = {
    "a line": lambda x: 1.7 - x,
    "steep": lambda x: 40 * (0.3 - x),
    "flat": lambda x: 1e-3 * (2.5 - x),
    "bent": lambda x: 3 - x if x < 1 else 2 * (2 - x),
    "a jump": lambda x: 5.0 if x < 1.234 else -7.0,
    "at the start": lambda x: -x,
    "free from somewhere on": lambda x: -math.inf if x > -2 else 1.0,
    "not known before": lambda x: math.inf if x < 4.5 else 4.6 - x,
    "far up": lambda x: 13.0 - x,
    "far down": lambda x: -13.0 - x,
}


@pytest.mark.parametrize("tolerance", [0.05, 1e-3, 1e-9])
@pytest.mark.parametrize("start", [0.0, -3.0, 7.0])
@pytest.mark.parametrize("name", EXCESSES)
def test_a_root_is_met_from_above_and_within_the_tolerance(
    name: str, start: float, tolerance: float
) -> None:
    asked: list[float] = []

    def excess(x: float) -> float:
        asked.append(x)
        return EXCESSES[name](x)

    found = _root(excess, start, tolerance)
    assert EXCESSES[name](found) <= 0 < EXCESSES[name](found - tolerance)
    # Both ends were looked at, within reach of a scale, and nothing much besides.
    assert found in asked
    assert any(found - tolerance <= x < found and EXCESSES[name](x) > 0 for x in asked)
    assert math.log(1e-6) <= min(asked) <= max(asked) <= math.log(1e6)
    smooth = name in ("a line", "steep", "bent", "far up", "far down")
    assert len(asked) <= (13 if smooth else 75)


def test_a_search_ends_at_the_ends_of_the_scale() -> None:
    for start in (0.0, 3.0):
        assert _root(lambda _: -1.0, start, 1e-3) == math.log(1e-6)
        assert _root(lambda _: -math.inf, start, 1e-3) == math.log(1e-6)
        assert _root(lambda _: 1.0, start, 1e-3) == math.inf
        assert _root(lambda _: math.inf, start, 1e-3) == math.inf
    # A root at the very ends is one.
    assert _root(lambda x: math.log(1e6) - x, 0.0, 1e-9) == math.log(1e6)
    low = math.log(1e-6)
    assert _root(lambda x: low - x, 0.0, 1e-9) == low


def test_scales_that_are_tried_stay_within_their_ends() -> None:
    for budget in (1e-9, 1e300):
        asked: list[float] = []

        def events_at(t: float, asked: list[float] = asked) -> list[Event]:
            asked.append(t)
            return [Gaussian(t, 0.5)]

        if budget < 1:
            with pytest.raises(InvalidParameterError):
                calibrate(events_at, budget, 1e-12, uses=10**9)
            assert max(asked) == 1e6
        else:
            assert calibrate(events_at, budget, 1e-12, uses=1) == 1e-6
            assert min(asked) == 1e-6


def test_what_only_the_best_bound_allows_is_found() -> None:
    # At the largest scale the quick bound is still above the budget.
    def events_at(t: float) -> list[Event]:
        return [Gaussian(t * 3e-5, 0.05)]

    most = events_at(1e6)
    quick = bound(merge(repeat(most, 1000)), 1e-6, CHEAP)
    best = spent(most, 1000, 1e-6)
    assert best < 0.99 * quick
    budget = 0.1 * quick + 0.9 * best
    t = calibrate(events_at, budget, 1e-6, uses=1000)
    assert 9e5 < t < 1e6
    assert spent(events_at(t), 1000, 1e-6) <= budget


def test_the_reasons_are_told_with_their_numbers() -> None:
    with pytest.raises(InvalidParameterError) as refused:
        calibrate(lambda _: [Failure(0.25)], 1.0, 0.75, uses=3)
    assert str(refused.value) == (
        "The failure probabilities of 3 uses add up to 0.75; delta is 0.75. "
        "Lower delta0 or the number of uses."
    )
    failure = total_delta0([Failure(0.25, 3)])
    with pytest.raises(InvalidParameterError, match="add up"):
        calibrate(lambda _: [Failure(0.25)], 1.0, failure, uses=3)
    with pytest.raises(InvalidParameterError) as refused:
        calibrate(lambda _: [Pure(1.0)], 2.0, 1e-6, uses=20)
    assert str(refused.value) == (
        "No noise up to 1e+06 keeps 20 uses within epsilon 2 at delta 1e-06. Raise "
        "epsilon, or lower the number of uses."
    )
    for call in (
        lambda: noise_multiplier(1.0, 1e-6, 20),  # type: ignore[misc]
        lambda: calibrate(lambda t: [Pure(1 / t)], 1.0, 1e-6, 20),  # type: ignore[misc]
        lambda: epsilon(1.0, 1e-6, 20),  # type: ignore[misc]
    ):
        with pytest.raises(TypeError):
            call()


def test_a_failure_beside_a_plain_gaussian_leaves_the_closed_form() -> None:
    def events_at(t: float) -> list[Event]:
        return [Gaussian(t), Failure(1e-9)]

    t = calibrate(events_at, 2.0, 1e-6, uses=20)
    assert spent(events_at(t), 20, 1e-6) <= 2.0
    assert spent(events_at(t / (1 + 2e-9)), 20, 1e-6) > 2.0


def renyi(t: float) -> list[Event]:
    return [RenyiEvent(8.0, 4 / (t * t)), Gaussian(t, 0.1)]


def test_recorded_scales() -> None:
    """Each is met and nearly the least, as the tests above have it of any."""
    bundles = {**BUNDLES, "Renyi": renyi, "Gaussian": lambda t: [Gaussian(t)]}
    found = {name: calibrate(bundles[name], 2.0, 1e-6, uses=20) for name in bundles}
    assert found == pytest.approx(
        {
            "test and selection": 10.991272947535487,
            "selection alone": 5.327176657718774,
            "pure": 8.965798541590805,
            "zcdp": 15.06753095700603,
            "a share that stays": 11.442440426621836,
            "sampled": 1.6687926928110928,
            "Renyi": 13.297927363224607,
            "Gaussian": 9.974993132486677,
        },
        rel=1e-11,
    )
