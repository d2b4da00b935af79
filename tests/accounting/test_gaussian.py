from __future__ import annotations

import math

import mpmath as mp
import pytest
from dp_accounting import gaussian_mechanism
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.accounting_strategies import gaussian_curve

from langchain_dpicl.accounting import (
    Event,
    Failure,
    Gaussian,
    Parallel,
    Pure,
    gaussian,
    gaussian_delta,
    gaussian_epsilon,
    gdp_mu,
)
from langchain_dpicl.accounting.gaussian import _erfcx, _erfcx_slope, inverse_square
from langchain_dpicl.errors import InvalidParameterError

mus = st.floats(-6, 4).map(lambda x: 10**x)
deltas = st.one_of(
    st.floats(-300, -0.01).map(lambda x: 10**x), st.floats(0.5, 1 - 1e-6)
)


@given(mus, deltas)
@settings(deadline=None, max_examples=300)
def test_epsilon_is_an_upper_bound_and_tight(mu: float, delta: float) -> None:
    epsilon = gaussian_epsilon(mu, delta)
    assert gaussian_curve(mu, epsilon) <= delta
    # Near delta = 1 the curve is so flat that epsilon itself is small and uncertain.
    slack = 1e-9 if delta < 0.99 else 1e-4
    smaller = epsilon * (1 - slack) - 1e-8
    if smaller > 0:
        assert gaussian_curve(mu, smaller) > delta


@given(mus, st.floats(-6, 3).map(lambda x: 10**x))
@settings(deadline=None, max_examples=300)
def test_delta_is_an_upper_bound_and_tight(mu: float, epsilon: float) -> None:
    exact = gaussian_curve(mu, epsilon)
    delta = gaussian_delta(mu, epsilon)
    assert delta >= exact
    if 1e-280 < exact < 1 - 1e-6 and epsilon / mu < 1e3:
        assert delta <= exact * (1 + 1e-7)


@given(st.floats(5, 9).map(lambda x: 10**x), st.floats(-4, 6))
@settings(deadline=None, max_examples=50)
@example(mu=951095611.005164, deviations=0.70263)
def test_delta_is_an_upper_bound_where_large_numbers_cancel(
    mu: float, deviations: float
) -> None:
    epsilon = mu * (deviations + mu / 2)
    assert gaussian_delta(mu, epsilon) >= gaussian_curve(mu, epsilon)


def test_a_halved_noise_is_caught_by_the_reference() -> None:
    # The twin of the test above: the same check on a wrong accountant fails.
    assert gaussian_curve(1.0, gaussian_epsilon(0.5, 1e-5)) > 1e-5


@pytest.mark.parametrize("sigma", [0.05, 0.5, 1, 7, 300])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_agrees_with_dp_accounting(sigma: float, delta: float) -> None:
    theirs = gaussian_mechanism.get_epsilon_gaussian(sigma, delta)
    assert gaussian_epsilon(1 / sigma, delta) == pytest.approx(theirs, rel=1e-8)


@pytest.mark.parametrize("mu", [1e3, 1e6, 1e9, 1e100, 1e153])
@pytest.mark.parametrize("delta", [1e-300, 1e-6, 0.5])
def test_no_noise_never_reports_a_small_loss(mu: float, delta: float) -> None:
    assert gaussian_epsilon(mu, delta) >= 0.99 * (mu * mu / 2)


def test_overflow_is_infinite() -> None:
    assert gaussian_epsilon(1e200, 1e-6) == math.inf
    assert gaussian_epsilon(math.inf, 1e-6) == math.inf
    assert gdp_mu([Gaussian(1e-200)]) == math.inf
    assert gaussian_delta(1e9, 1.0) == 1.0


@pytest.mark.parametrize("epsilon", [1e3, 1e17, 1e300])
def test_a_delta_below_all_doubles_is_the_smallest_of_them(epsilon: float) -> None:
    assert gaussian_delta(1.0, epsilon) == math.nextafter(0.0, 1.0)


def test_so_is_one_of_a_loss_that_no_double_holds() -> None:
    assert gaussian_delta(1e-310, 1.0) == math.nextafter(0.0, 1.0)


def test_no_release_costs_nothing() -> None:
    assert gaussian_epsilon(0.0, 1e-9) == 0.0
    assert gaussian_delta(0.0, 0.0) == 0.0
    assert gdp_mu([]) == 0.0


def test_mu_adds_up_in_squares() -> None:
    assert gdp_mu([Gaussian(2, count=3), Gaussian(2)]) == 1.0


@pytest.mark.parametrize("event", [Gaussian(1, 0.5), Pure(1.0)])
def test_other_events_have_no_mu(event: Event) -> None:
    assert gdp_mu([Failure(1e-9)]) == 0.0
    with pytest.raises(InvalidParameterError):
        gdp_mu([event])


@pytest.mark.parametrize("delta", [0, 1, -1, math.nan, 2])
def test_delta_must_be_a_failure_probability(delta: float) -> None:
    with pytest.raises(InvalidParameterError):
        gaussian_epsilon(1.0, delta)


@pytest.mark.parametrize(("mu", "epsilon"), [(-1, 1), (1, -1), (math.nan, 1)])
def test_arguments_must_not_be_negative(mu: float, epsilon: float) -> None:
    with pytest.raises(InvalidParameterError):
        gaussian_delta(mu, epsilon)
    if epsilon == 1:
        with pytest.raises(InvalidParameterError):
            gaussian_epsilon(mu, 0.1)


@pytest.mark.parametrize("mu", [-1.0, -5e-324])
def test_a_negative_loss_is_refused_wherever_it_stands(mu: float) -> None:
    for arguments in ((mu, 1.0), (1.0, mu), (mu, mu)):
        with pytest.raises(
            InvalidParameterError, match="mu and epsilon must be 0 or more"
        ):
            gaussian_delta(*arguments)


def shifted_root(mu: float, log_delta: mp.mpf) -> mp.mpf:
    """Return epsilon where the exact curve has a certain logarithm."""
    low, high = -mp.mpf(mu) / 2, mp.mpf(60)
    for _ in range(80):
        middle = (low + high) / 2
        curve = gaussian_curve(mu, mu * (middle + mp.mpf(mu) / 2))
        low, high = (middle, high) if mp.log(curve) > log_delta else (low, middle)
    return mu * (mp.mpf(mu) / 2 + high)


@pytest.mark.parametrize("mu", [1e-3, 0.0706, 0.0708, 0.3, 1.0, 4.0, 30.0, 300.0])
@pytest.mark.parametrize("delta", [1e-300, 1e-30, 1e-6, 0.01, 0.2, 0.9])
def test_epsilon_is_the_curves_root_a_known_hair_up(mu: float, delta: float) -> None:
    """1e-11 of delta for the logarithm's error, and 1e-12 of epsilon."""
    found = gaussian_epsilon(mu, delta)
    with mp.workdps(60):
        expected = shifted_root(mu, mp.log(mp.mpf(delta)) - mp.mpf("1e-11"))
        expected = max(mp.mpf(0), expected) * (1 + mp.mpf("1e-12"))
        assert found == pytest.approx(float(expected), rel=2e-14, abs=1e-20)


@pytest.mark.parametrize(
    ("mu", "deviations"),
    [
        (mu, deviations)
        for mu in (1e-3, 0.0706, 0.0708, 0.3, 1.0, 4.0, 30.0)
        for deviations in (-1.001, -0.999, -0.3, 0.0, 1.5, 7.0, 20.0)
        if mu / 2 + deviations >= 0
    ],
)
def test_delta_is_the_curve_a_known_hair_up(mu: float, deviations: float) -> None:
    epsilon = mu * (mu / 2 + deviations)
    with mp.workdps(60):
        exact = gaussian_curve(mu, epsilon) * mp.exp(mp.mpf("1e-11"))
        found = gaussian_delta(mu, epsilon)
        # `deviations` and their rounding, which is taken on the safe side.
        slack = 3e-13 + 1e-15 * (1 + abs(deviations)) * (abs(deviations) + mu)
        assert found == pytest.approx(float(exact), rel=slack, abs=0)
        assert found > gaussian_curve(mu, epsilon)


@pytest.mark.parametrize("delta", [1e-6, 0.1, 0.5])
def test_epsilon_is_zero_up_to_the_delta_of_no_loss(delta: float) -> None:
    with mp.workdps(30):
        # delta at epsilon = 0 is erf(mu / sqrt 8).
        mu = float(mp.erfinv(mp.mpf(delta)) * mp.sqrt(8))
    assert gaussian_epsilon(mu * (1 - 3e-11), delta) == 0.0
    assert gaussian_epsilon(mu * (1 + 3e-11), delta) > 0.0
    # Within the error of the logarithm nothing is said to be free.
    assert gaussian_epsilon(mu * (1 - 1e-12), delta) > 0.0


def test_almost_no_mass_is_kept_where_the_noise_is_next_to_none() -> None:
    for deviations in (-19.0, -20.0, -20.5, -21.5, -40.0):
        mu = 100.0
        assert gaussian_delta(mu, mu * (mu / 2 + deviations)) == 1.0


@pytest.mark.parametrize(
    ("x", "rel", "slope_rel"),
    [
        (-5.9, 3e-15, 3e-15),
        (-1.0, 1e-15, 1e-15),
        (0.0, 1e-15, 1e-15),
        (0.3, 1e-15, 1e-15),
        (4.0, 1e-15, 3e-15),
        (9.5, 1e-15, 2e-14),
        (9.999, 1.5e-14, 2e-12),
        (10.0, 1e-14, 2e-12),
        (10.5, 3e-15, 6e-13),
        (20.0, 1e-15, 1e-15),
        (30.0, 1e-15, 1e-15),
        (1e6, 1e-15, 1e-15),
    ],
)
def test_the_scaled_error_function_against_many_digits(
    x: float, rel: float, slope_rel: float
) -> None:
    with mp.workdps(60):
        exact = mp.exp(mp.mpf(x) ** 2) * mp.erfc(mp.mpf(x))
        slope = 2 / mp.sqrt(mp.pi) - 2 * mp.mpf(x) * exact
    assert _erfcx(x) == pytest.approx(float(exact), rel=rel, abs=0)
    assert _erfcx_slope(x) == pytest.approx(float(slope), rel=slope_rel, abs=0)


@pytest.mark.parametrize("share", [0.25, 0.9])
def test_a_search_that_ends_too_early_still_bounds_epsilon(
    monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    true, mu, delta = gaussian._log_delta, 1.0, 1e-6
    exact = gaussian_epsilon(mu, delta)

    def short_of_the_root(a: float, mu: float) -> tuple[float, float]:
        value, slope = true(a, mu)
        return value, slope / share

    monkeypatch.setattr(gaussian, "_log_delta", short_of_the_root)
    monkeypatch.setattr(gaussian, "_MAX_STEPS", 1)
    found = gaussian_epsilon(mu, delta)
    assert exact * (1 - 1e-12) <= found < exact + 3


def test_a_mu_is_refused_with_the_event_that_has_none() -> None:
    with pytest.raises(
        InvalidParameterError, match=r"have a mu, not Pure\(epsilon=0.5"
    ):
        gdp_mu([Gaussian(1.0), Pure(0.5)])


def test_mu_of_parallel_releases_is_that_of_the_worst_branch_for_every_use() -> None:
    branches = ((Gaussian(1.0),), (Gaussian(0.5), Failure(1e-9)))
    events = [Parallel(branches, count=3), Gaussian(1.0, count=4)]
    assert gdp_mu(events) == 4.0


@pytest.mark.parametrize(
    ("z", "square"), [(0.5, 4.0), (4.0, 0.0625), (1e-162, math.inf), (1e-170, math.inf)]
)
def test_an_inverse_square_is_infinite_where_it_overflows(
    z: float, square: float
) -> None:
    assert inverse_square(z) == square
