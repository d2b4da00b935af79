from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import dp_accounting
import mpmath as mp
import numpy as np
import prv_accountant
import pytest
from dp_accounting import pld
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.accounting_strategies import events, sampled_curve, two_point_curve

from langchain_dpicl.accounting import (
    Event,
    Exponential,
    Failure,
    Gaussian,
    Pure,
    ZCDPEvent,
    compose,
    composition,
    epsilon,
    gaussian_epsilon,
    repeat,
    rho,
    spent,
    total_delta0,
    zcdp_epsilon,
)
from langchain_dpicl.accounting.discretization import COARSE, FINE
from langchain_dpicl.accounting.loss import _Composed, _epsilon_at, loss_epsilon
from langchain_dpicl.accounting.renyi import renyi_epsilon
from langchain_dpicl.errors import InvalidParameterError

DELTA = 1e-6
lists = st.lists(events, min_size=1, max_size=3)
few = settings(deadline=None, max_examples=40)


def exact_epsilon(curve: Callable[[float], mp.mpf], delta: float) -> float:
    """Return the root of a falling curve."""
    low, high = 0.0, 1.0
    while curve(high) > delta:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if curve(middle) > delta else (low, middle)
    return high


@pytest.mark.parametrize(
    ("z", "q", "uses", "delta", "expected"),
    [
        (0.51, 20 / 30000, 100, 1 / 30000, 0.965),
        (0.46, 20 / 30000, 100, 1 / 30000, 1.789),
        (0.39, 20 / 30000, 100, 1 / 30000, 3.815),
        (0.31, 20 / 30000, 100, 1 / 30000, 7.967),
        (1.36, 80 / 835, 15, 1 / 835, 0.950),
        (0.95, 80 / 835, 15, 1 / 835, 1.935),
        (0.69, 80 / 835, 15, 1 / 835, 3.955),
        (0.51, 80 / 835, 15, 1 / 835, 7.968),
    ],
)
def test_reference_figures_of_few_shot_generation(
    z: float, q: float, uses: int, delta: float, expected: float
) -> None:
    figure = epsilon(z, delta, uses=uses, sampling_rate=q)
    assert figure == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("q", [1e-5, 1e-3, 0.1, 0.9])
@pytest.mark.parametrize("z", [0.25, 0.7, 3.0, 40.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-7])
def test_one_sampled_release_against_the_exact_curve(
    z: float, q: float, delta: float
) -> None:
    figure = compose([Gaussian(z, q)], delta)
    assert sampled_curve(z, q, figure) <= delta
    if figure > 5e-5:
        assert sampled_curve(z, q, max(0.0, figure * 0.97 - 5e-5)) > delta


@pytest.mark.parametrize("factor", [0.5, 2.0])
def test_wrong_noise_is_caught_by_the_exact_curve(factor: float) -> None:
    # The twin of the test above, with an accountant that halves or doubles z.
    figure = compose([Gaussian(0.7 * factor, 0.1)], 1e-3)
    sound = sampled_curve(0.7, 0.1, figure) <= 1e-3
    tight = sampled_curve(0.7, 0.1, figure * 0.97 - 5e-5) > 1e-3
    assert not (sound and tight)


@pytest.mark.parametrize(
    ("z", "q", "uses"), [(0.8, 0.01, 50), (2.0, 0.05, 400), (5.0, 0.5, 2000)]
)
def test_many_sampled_releases_against_dp_accounting(
    z: float, q: float, uses: int
) -> None:
    def theirs(*, pessimistic: bool) -> float:
        return (
            pld.privacy_loss_distribution.from_gaussian_mechanism(
                z,
                sampling_prob=q,
                pessimistic_estimate=pessimistic,
                use_connect_dots=pessimistic,
                value_discretization_interval=1e-3 if pessimistic else 1e-4,
            )
            .self_compose(uses)
            .get_epsilon_for_delta(DELTA)
        )

    figure = compose([Gaussian(z, q, uses)], DELTA)
    assert theirs(pessimistic=False) <= figure <= theirs(pessimistic=True) * 1.002


def test_two_kinds_of_releases_against_dp_accounting() -> None:
    mixed = [Gaussian(0.8, 0.01, 50), Gaussian(3.0, count=4)]
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    for event in mixed:
        single = dp_accounting.GaussianDpEvent(event.noise_multiplier)
        if event.sampling_rate < 1:
            single = dp_accounting.PoissonSampledDpEvent(event.sampling_rate, single)
        accountant.compose(single, event.count)
    theirs = accountant.get_epsilon(DELTA)
    assert compose(mixed, DELTA) == pytest.approx(theirs, rel=2e-3)


@pytest.mark.parametrize(("eps", "uses"), [(0.1, 200), (0.5, 30), (3.0, 5)])
def test_pure_events_against_randomized_response(eps: float, uses: int) -> None:
    exact = exact_epsilon(lambda e: two_point_curve(eps, 2 * eps, uses, e), DELTA)
    figure = compose([Pure(eps, uses)], DELTA)
    assert exact * (1 - 1e-9) <= figure <= exact * 1.005


@pytest.mark.parametrize(("eps", "uses"), [(0.1, 200), (0.5, 30), (3.0, 5)])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_exponential_events_bound_every_bounded_range(
    eps: float, uses: int, share: float
) -> None:
    exact = exact_epsilon(lambda e: two_point_curve(share * eps, eps, uses, e), DELTA)
    assert compose([Exponential(eps, uses)], DELTA) >= exact * (1 - 1e-9)


def test_bounded_range_halves_the_price_of_selection() -> None:
    selection = compose([Exponential(0.1, 1000)], 1e-5)
    assert selection == pytest.approx(8.1, abs=0.05)
    assert compose([Pure(0.1, 1000)], 1e-5) == pytest.approx(17.8, abs=0.05)


def test_counts_of_pure_events_are_not_ignored() -> None:
    # The two traps: a count without effect, and 28 for 300.
    assert compose([Pure(3.0, 100)], DELTA) > 270
    assert compose([Pure(1.0, 2)], 1e-12) == pytest.approx(2.0, rel=1e-6)
    exact = exact_epsilon(lambda e: two_point_curve(3.0, 6.0, 100, e), DELTA)
    assert exact > 270


def test_pure_mechanism_of_prv_accountant_is_never_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_args: object, **_kwargs: object) -> None:
        raise AssertionError

    for name in ("PureDPMechanism", "ApproximateDPMechanism"):
        monkeypatch.setattr(prv_accountant, name, refuse)
    assert compose([Pure(0.123, 7), Gaussian(3.3, 0.1)], DELTA) > 0


def test_small_losses_are_never_dropped_beside_others() -> None:
    base = compose([Gaussian(2.0, 0.05, 100)], DELTA)
    for extra in (Pure(0.5), Exponential(0.5), ZCDPEvent(0.1)):
        assert compose([Gaussian(2.0, 0.05, 100), extra], DELTA) > base + 0.05


def test_a_mix_is_at_most_the_sum_of_its_parts() -> None:
    gaussian, pure = [Gaussian(2.0, 0.05, 100)], [Pure(0.5, 2)]
    mix = compose(gaussian + pure, DELTA)
    assert mix <= compose(gaussian, DELTA) + 1.0 + 1e-9


def test_sampling_never_costs_more_than_none() -> None:
    for q in (1e-9, 0.3, 0.999999):
        assert epsilon(1.0, DELTA, uses=10, sampling_rate=q) <= epsilon(
            1.0, DELTA, uses=10
        )


def test_failure_probabilities_count_for_every_use() -> None:
    plain = gaussian_epsilon(1.0, 1e-6 - 20 * 4e-8)
    figure = compose([Gaussian(1.0), Failure(4e-8, 20)], 1e-6)
    assert figure == pytest.approx(plain, rel=1e-9)
    assert figure > compose([Gaussian(1.0), Failure(4e-8)], 1e-6) + 0.05
    assert compose([Gaussian(1.0), Failure(1e-7, 10)], 1e-6) == math.inf
    assert compose([Failure(1e-7, 11)], 1e-6) == math.inf
    assert compose([Failure(1e-7, 9)], 1e-6) == 0.0


@pytest.mark.parametrize("delta", [1e-6, 0.1, 1 / 3, 7e-300])
def test_failures_that_reach_delta_leave_nothing(delta: float) -> None:
    for failures in (
        [Failure(delta)],
        [Failure(delta / 4, 4)],
        [Failure(delta / 2), Failure(delta / 4, 2)],
    ):
        assert compose(failures, delta) == math.inf
        assert compose([*failures, Gaussian(1.0)], delta) == math.inf


@given(
    st.floats(1e-11, 0.9),
    st.lists(
        st.builds(Failure, st.floats(1e-30, 1e-13), st.integers(1, 9)),
        min_size=1,
        max_size=3,
    ),
)
@settings(deadline=None)
@example(delta=0.1, failures=[Failure(1e-30)])
def test_what_failures_leave_of_delta_is_rounded_down(
    delta: float, failures: list[Failure]
) -> None:
    left: list[float] = []

    def seen(_events: object, rest: float, _resolution: float) -> float:
        left.append(rest)
        return 0.0

    taken = sum(Fraction(event.delta0) * event.count for event in failures)
    assert total_delta0(failures) >= taken
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(composition, "_plain_bound", seen)
        composition.bound.__wrapped__(tuple(failures), delta, FINE)
    assert Fraction(left[0]) <= Fraction(delta) - taken


def test_failure_probability_of_a_sampled_release_is_sampled() -> None:
    expected = compose([Gaussian(1.0, 0.1, 5), Failure(1e-8, 5)], 1e-6)
    assert epsilon(1.0, 1e-6, uses=5, sampling_rate=0.1, delta0=1e-7) == expected


@pytest.mark.parametrize("z", [1e-300, 1e-160, 1e-9, 1e-4, 0.01])
@pytest.mark.parametrize("q", [1e-6, 0.1, 1.0])
@pytest.mark.parametrize("uses", [1, 10**6])
def test_hardly_any_noise_never_reports_a_small_loss(
    z: float, q: float, uses: int
) -> None:
    # One release whose unit is in the sample (seen in more than delta of all
    # cases) has a loss of about log q + 1 / (2 z^2).
    least = math.log(q) + 0.5 / z / z
    assert compose([Gaussian(z, q, uses)], 1e-7) >= 0.9 * least


@pytest.mark.parametrize("delta", [1e-300, 1e-20, 0.5, 1 - 1e-12])
def test_extreme_deltas_give_sound_figures(delta: float) -> None:
    mixes = [
        [Gaussian(1.0, 0.1, 100)],
        [Gaussian(0.01, 0.1), Pure(0.1, 10**6)],
        [Exponential(0.1, 1000), ZCDPEvent(1e-3)],
    ]
    for mix in mixes:
        figure = compose(mix, delta)
        assert figure >= 0
        if delta < 1e-15:
            # Below pure 1000 * 0.1 only where that is all there is.
            assert figure > 5


def test_a_million_uses() -> None:
    figure = epsilon(100.0, DELTA, uses=10**6, sampling_rate=0.01)
    # The central limit: q / z * sqrt(uses) = 0.1.
    assert figure == pytest.approx(gaussian_epsilon(0.1, DELTA), rel=0.02)


@given(lists, lists)
@few
def test_more_events_never_cost_less(one: list[Event], other: list[Event]) -> None:
    both = compose([*one, *other], DELTA)
    assert both * (1 + 2e-3) + 1e-6 >= max(compose(one, DELTA), compose(other, DELTA))


@given(lists, st.integers(1, 1000))
@few
def test_loss_grows_with_uses(bundle: list[Event], uses: int) -> None:
    assert spent(bundle, uses + 1, DELTA) >= spent(bundle, uses, DELTA) * (1 - 1e-9)


@given(lists, st.floats(-9, -2), st.floats(0.01, 3))
@few
def test_loss_falls_with_delta(
    bundle: list[Event], exponent: float, step: float
) -> None:
    small, large = 10**exponent, min(10 ** (exponent + step), 0.5)
    assert compose(bundle, large) <= compose(bundle, small) * (1 + 1e-9)


@given(st.floats(0.3, 30), st.floats(1.02, 3), st.sampled_from([0.01, 1.0]))
@settings(deadline=None, max_examples=15)
def test_loss_falls_with_noise(z: float, factor: float, q: float) -> None:
    more = epsilon(z * factor, DELTA, uses=10, sampling_rate=q)
    assert more <= epsilon(z, DELTA, uses=10, sampling_rate=q)


@given(lists)
@few
def test_every_method_is_at_least_the_figure(bundle: list[Event]) -> None:
    private = [e for e in bundle if not isinstance(e, Failure)]
    figure = compose(private, DELTA)
    if private:
        total = zcdp_epsilon(rho(private), DELTA)
        assert figure <= total * (1 + 1e-6) + 1e-9
        assert figure <= renyi_epsilon(private, DELTA) * (1 + 1e-9)
        assert figure <= loss_epsilon(private, DELTA, resolution=COARSE) * 1.001 + 1e-6


@given(lists, st.integers(1, 5))
@few
def test_counts_and_repetition_are_the_same(bundle: list[Event], uses: int) -> None:
    assert compose(bundle * uses, DELTA) == compose(repeat(bundle, uses), DELTA)
    assert compose(bundle * uses, DELTA) == spent(bundle, uses, DELTA)


def test_nothing_private_costs_nothing() -> None:
    assert compose([], 0.1) == 0.0
    assert spent([Gaussian(1.0)], 0, 0.1) == 0.0
    assert zcdp_epsilon(0.0, 0.1) == 0.0


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan, "1e-6", None])
def test_delta_must_be_a_failure_probability(delta: float) -> None:
    for call in (
        lambda: compose([Gaussian(1.0)], delta),
        lambda: spent([], 0, delta),
        lambda: epsilon(1.0, delta, uses=1),
        lambda: zcdp_epsilon(1.0, delta),
    ):
        with pytest.raises(InvalidParameterError):
            call()


@pytest.mark.parametrize("slope", [0.0, 0.4])
def test_what_rounding_may_hide_is_added_to_the_curve(slope: float) -> None:
    """Noise of tilted mass n may weigh n exp(K - t epsilon) from epsilon on."""
    step, delta, hidden = 0.1, 1e-3, 2e-4
    losses = step * np.arange(200)
    mass = np.exp(-losses) / np.exp(-losses).sum()
    cumulant = math.log(np.sum(mass * np.exp(slope * losses)))
    tilted = mass * np.exp(slope * losses - cumulant)

    def curve(noise: float) -> float:
        composed = _Composed(0.0, tilted, slope, cumulant, 0.0, noise)
        epsilon = _epsilon_at(composed, delta, step)
        kept = np.sum(mass * np.maximum(0.0, -np.expm1(epsilon - losses)))
        return float(kept + hidden * math.exp(cumulant - slope * epsilon))

    assert delta * 0.9 < curve(hidden) <= delta
    assert curve(0.0) > delta


@pytest.mark.parametrize("bad", ["gaussian", 3, [object()], [None], [{"kind": "pure"}]])
def test_unknown_events_are_refused(bad: object) -> None:
    with pytest.raises(InvalidParameterError):
        compose(bad, 0.1)
    with pytest.raises(InvalidParameterError):
        rho([object()])


@pytest.mark.parametrize(
    ("rho_", "delta"),
    # Where delta is large the root is near 0: the last two need the exact slope.
    [(1e-12, 1e-9), (0.1, 0.3), (50, 1e-300), (0.1, 0.5), (3.2, 0.9)],
)
def test_zcdp_conversion_is_the_best_order(rho_: float, delta: float) -> None:
    def bound(x: float) -> float:
        return rho_ * (1 + x) + math.log(x / (1 + x)) - math.log(delta * (1 + x)) / x

    best = min(bound(10 ** (k / 200)) for k in range(-1600, 2000))
    assert zcdp_epsilon(rho_, delta) == pytest.approx(max(0.0, best), rel=1e-4)
    with pytest.raises(InvalidParameterError):
        zcdp_epsilon(-rho_, delta)


# -- which bound is the figure -------------------------------------------------------


def test_arguments_as_they_are_by_default_and_by_name() -> None:
    assert epsilon(4.0, 1e-5, uses=16) == epsilon(
        4.0, 1e-5, uses=16, sampling_rate=1.0, delta0=0.0
    )
    bundle = composition.gaussian_bundle(4.0, 0.25, 1e-8)
    assert bundle == (Gaussian(4.0, 0.25), Failure(0.25e-8))
    assert epsilon(4.0, 1e-5, uses=3, sampling_rate=0.25, delta0=1e-8) == compose(
        bundle * 3, 1e-5
    )
    with pytest.raises(InvalidParameterError, match="uses must be at least 1"):
        epsilon(4.0, 1e-5, uses=0)
    with pytest.raises(InvalidParameterError, match="uses must be at least 0"):
        spent([Gaussian(4.0)], -1, 1e-5)
    assert spent([Gaussian(4.0)], 1, 1e-5) == compose([Gaussian(4.0)], 1e-5)


@pytest.mark.parametrize("bad", ["ab", b"ab", 3, None, Gaussian(1.0)])
def test_events_must_be_a_list(bad: Any) -> None:
    with pytest.raises(InvalidParameterError) as refused:
        composition.own_events(bad)
    assert str(refused.value) == f"events must be a list, not {type(bad).__name__}."
