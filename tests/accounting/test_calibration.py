from __future__ import annotations

import math

import pytest
from dp_accounting import gaussian_mechanism
from hypothesis import given, settings
from hypothesis import strategies as st

from langchain_dpicl.accounting import (
    Exponential,
    Failure,
    Gaussian,
    Pure,
    ZCDPEvent,
    calibrate,
    epsilon,
    noise_multiplier,
    spent,
    total_delta0,
)
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
