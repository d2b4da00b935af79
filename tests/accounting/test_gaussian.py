from __future__ import annotations

import math

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
    gaussian_delta,
    gaussian_epsilon,
    gdp_mu,
)
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


def test_a_mu_is_refused_with_the_event_that_has_none() -> None:
    with pytest.raises(
        InvalidParameterError, match=r"have a mu, not Pure\(epsilon=0.5"
    ):
        gdp_mu([Gaussian(1.0), Pure(0.5)])


def test_mu_of_parallel_releases_is_that_of_the_worst_branch_for_every_use() -> None:
    branches = ((Gaussian(1.0),), (Gaussian(0.5), Failure(1e-9)))
    events = [Parallel(branches, count=3), Gaussian(1.0, count=4)]
    assert gdp_mu(events) == 4.0
