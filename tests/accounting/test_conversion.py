from __future__ import annotations

import math
from fractions import Fraction

import pytest
from dp_accounting import DpEvent
from dp_accounting import dp_event as dp
from hypothesis import example, given
from hypothesis import strategies as st

from langchain_dpicl.accounting import (
    Event,
    Exponential,
    Failure,
    Gaussian,
    Pure,
    ZCDPEvent,
    compose,
    from_dp_event,
    to_dp_event,
)
from langchain_dpicl.errors import InvalidParameterError

GAUSSIAN = dp.GaussianDpEvent(2.0)


@pytest.mark.parametrize(
    "event",
    [
        Gaussian(2.0),
        Gaussian(2.0, 0.1),
        Gaussian(2.0, 0.1, 7),
        ZCDPEvent(0.3, 4),
    ],
)
def test_round_trip(event: Event) -> None:
    assert from_dp_event(to_dp_event(event)) == [event]


def test_exponential_event_becomes_its_zcdp_bound() -> None:
    assert to_dp_event(Exponential(2.0)) == dp.ZCDpEvent(0.5)


@pytest.mark.parametrize("event", [Pure(1.0), Failure(0.1)])
def test_what_does_not_fit_is_refused(event: Event) -> None:
    with pytest.raises(InvalidParameterError):
        to_dp_event(event)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (dp.NoOpDpEvent(), []),
        (dp.ZCDpEvent(0.0), []),
        (dp.SelfComposedDpEvent(GAUSSIAN, 0), []),
        (dp.PoissonSampledDpEvent(0.0, GAUSSIAN), []),
        (dp.PoissonSampledDpEvent(0.5, dp.NoOpDpEvent()), []),
        (dp.ComposedDpEvent([]), []),
        (
            dp.SelfComposedDpEvent(dp.ComposedDpEvent([GAUSSIAN, GAUSSIAN]), 3),
            [Gaussian(2.0, count=6)],
        ),
        (
            dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, GAUSSIAN), 3),
            [Gaussian(2.0, 0.1, 3)],
        ),
    ],
)
def test_exact_conversions(theirs: DpEvent, ours: list[Event]) -> None:
    assert from_dp_event(theirs) == ours


@pytest.mark.parametrize(
    ("theirs", "epsilon"),
    [
        (dp.LaplaceDpEvent(0.5), 2.0),
        (dp.DiscreteLaplaceDpEvent(0.5, 3), 1.5),
        (
            dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(0.5)),
            math.log1p(0.1 * math.expm1(2.0)),
        ),
        (
            dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(5.0)),
            math.log1p(0.1 * math.expm1(0.2)),
        ),
        (dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(1e-5)), 1e5 + math.log(0.1)),
    ],
)
def test_pure_conversions_are_rounded_up(theirs: DpEvent, epsilon: float) -> None:
    (event,) = from_dp_event(theirs)
    assert isinstance(event, Pure)
    assert epsilon <= event.epsilon <= epsilon * (1 + 1e-12)


def test_releases_on_one_sample_are_one_release_on_it() -> None:
    both = dp.PoissonSampledDpEvent(0.1, dp.SelfComposedDpEvent(GAUSSIAN, 4))
    (event,) = from_dp_event(both)
    assert event.noise_multiplier == pytest.approx(1.0, rel=1e-12)
    assert (event.sampling_rate, event.count) == (0.1, 1)
    # Four releases on one sample cost more than on four fresh ones.
    fresh = dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.1, GAUSSIAN), 4)
    assert compose([both], 1e-6) > compose([fresh], 1e-6)


@given(
    st.lists(st.tuples(st.floats(0.1, 100), st.integers(1, 20)), min_size=2, max_size=4)
)
@example([(3.4326591162126343, 4), (3.4326591162126343, 5)])
@example([(15.795594687596711, 2), (15.795594687596711, 2)])
def test_noise_of_one_sample_is_rounded_down(parts: list[tuple[float, int]]) -> None:
    each = [dp.SelfComposedDpEvent(dp.GaussianDpEvent(z), n) for z, n in parts]
    (event,) = from_dp_event(dp.PoissonSampledDpEvent(0.1, dp.ComposedDpEvent(each)))
    assert isinstance(event, Gaussian)
    squares = sum(n / Fraction(z) ** 2 for z, n in parts)
    assert 1 / Fraction(event.noise_multiplier) ** 2 >= squares


@pytest.mark.parametrize(
    "theirs",
    [
        dp.NonPrivateDpEvent(),
        dp.UnsupportedDpEvent(),
        dp.RandomizedResponseDpEvent(0.5, 2),
        dp.SelfComposedDpEvent(dp.RandomizedResponseDpEvent(0.5, 2), 2),
        dp.GaussianDpEvent(0.0),
        dp.GaussianDpEvent(-1.0),
        dp.GaussianDpEvent(math.nan),
        dp.LaplaceDpEvent(0.0),
        dp.ZCDpEvent(0.1, 0.1),
        dp.ZCDpEvent(-0.1),
        dp.SampledWithoutReplacementDpEvent(100, 10, GAUSSIAN),
        dp.SampledWithReplacementDpEvent(100, 10, GAUSSIAN),
        dp.PoissonSampledDpEvent(1.5, GAUSSIAN),
        dp.PoissonSampledDpEvent(0.1, dp.ZCDpEvent(0.1)),
        dp.PoissonSampledDpEvent(0.1, dp.PoissonSampledDpEvent(0.1, GAUSSIAN)),
        dp.PoissonSampledDpEvent(
            0.1, dp.ComposedDpEvent([GAUSSIAN, dp.LaplaceDpEvent(1.0)])
        ),
        dp.SelfComposedDpEvent(GAUSSIAN, 1.5),
        dp.SelfComposedDpEvent(GAUSSIAN, -1),
        "gaussian",
        None,
    ],
)
def test_everything_else_is_refused(theirs: DpEvent) -> None:
    with pytest.raises(InvalidParameterError):
        from_dp_event(theirs)
    with pytest.raises(InvalidParameterError):
        compose([Gaussian(1.0), theirs], 0.1)


def test_a_subclass_is_another_mechanism() -> None:
    class Weaker(dp.GaussianDpEvent):
        pass

    with pytest.raises(InvalidParameterError):
        from_dp_event(Weaker(1.0))


def test_compose_takes_both_kinds() -> None:
    ours = compose([Gaussian(2.0, count=3)], 1e-6)
    assert compose([Gaussian(2.0), dp.SelfComposedDpEvent(GAUSSIAN, 2)], 1e-6) == ours


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Gaussian(2.0), GAUSSIAN),
        (Gaussian(2.0, count=2), dp.SelfComposedDpEvent(GAUSSIAN, 2)),
        (Gaussian(2.0, 0.5), dp.PoissonSampledDpEvent(0.5, GAUSSIAN)),
        (
            Gaussian(2.0, 0.5, 7),
            dp.SelfComposedDpEvent(dp.PoissonSampledDpEvent(0.5, GAUSSIAN), 7),
        ),
        (Exponential(4.0, 3), dp.SelfComposedDpEvent(dp.ZCDpEvent(2.0), 3)),
        (ZCDPEvent(0.3), dp.ZCDpEvent(0.3)),
    ],
)
def test_what_states_an_event(ours: Event, theirs: DpEvent) -> None:
    assert to_dp_event(ours) == theirs
