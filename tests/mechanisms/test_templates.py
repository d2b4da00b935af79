"""What each release is charged, and which noise it takes of that charge."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from langchain_dpicl import mechanisms
from langchain_dpicl.accounting import (
    Event,
    EventTemplate,
    Exponential,
    Failure,
    Gaussian,
    Pure,
    RenyiEvent,
)
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import (
    ExponentialNoise,
    GaussianNoise,
    PTRCurve,
    PTRNoise,
    PureNoise,
    ThresholdCurve,
    ThresholdNoise,
    VectorNoise,
    WordLead,
)

Make = Callable[..., EventTemplate[Any]]

Z, DELTA0 = 2.0, 1e-8

GAUSSIAN: dict[str, tuple[Make, type]] = {
    "agreement": (mechanisms.agreement_template, GaussianNoise),
    "histograms": (mechanisms.histograms_template, GaussianNoise),
    "next token": (mechanisms.next_token_template, GaussianNoise),
    "sum": (mechanisms.sum_template, VectorNoise),
    "vote": (mechanisms.vote_template, GaussianNoise),
}
PURE: dict[str, Make] = {
    "flip": mechanisms.flip_template,
    "max token": mechanisms.max_token_template,
    "reports": mechanisms.reports_template,
    "tallies": mechanisms.tallies_template,
}
FAILING: dict[str, tuple[Make, type]] = {
    "ptr": (mechanisms.ptr_template, PTRNoise),
    "threshold": (mechanisms.threshold_template, ThresholdNoise),
}


def charged(template: EventTemplate[Any], *events: Event) -> Any:
    """Check the events at a scale of 2, and return what is read of them."""
    found = template.events(Z, DELTA0 if template.needs_delta0 else 0.0)
    assert found == events
    return template.read(found)


@pytest.mark.parametrize("name", GAUSSIAN)
def test_gaussian_releases_are_charged_one_gaussian(name: str) -> None:
    make, noise = GAUSSIAN[name]
    open_, fixed = make(name), make(name, 5.0)
    assert charged(open_, Gaussian(2.0, 1.0, 1)) == noise(2.0)
    assert charged(fixed, Gaussian(5.0, 1.0, 1)) == noise(5.0)
    assert charged(make(name, sampling_rate=0.25), Gaussian(2.0, 0.25, 1))
    assert (open_.is_fixed, fixed.is_fixed) == (False, True)
    assert (open_.mechanism, open_.share, open_.needs_delta0) == (name, 1.0, False)


@pytest.mark.parametrize("name", PURE)
def test_pure_releases_are_charged_their_epsilon(name: str) -> None:
    make = PURE[name]
    open_, fixed = make(name), make(name, 3.0)
    assert charged(open_, Pure(0.5, 1)) == PureNoise(0.5)
    assert charged(fixed, Pure(3.0, 1)) == PureNoise(3.0)
    assert (open_.is_fixed, fixed.is_fixed) == (False, True)
    assert (open_.mechanism, open_.share, open_.needs_delta0) == (name, 1.0, False)
    if name != "reports":
        event = make(name, 3.0, sampling_rate=0.25).events(Z, 0.0)[0]
        assert isinstance(event, Pure)
        assert event.epsilon == pytest.approx(math.log1p(0.25 * math.expm1(3.0)))


@pytest.mark.parametrize("name", FAILING)
def test_releases_that_may_fail_are_charged_for_that_too(name: str) -> None:
    make, noise = FAILING[name]
    open_, fixed = make(name), make(name, 5.0, delta0=1e-7)
    gaussian, failure = Gaussian(2.0, 1.0, 1), Failure(DELTA0, 1)
    assert charged(open_, gaussian, failure) == noise(2.0, DELTA0)
    assert (open_.is_fixed, fixed.is_fixed) == (False, True)
    assert (open_.needs_delta0, fixed.needs_delta0) == (True, True)
    assert (open_.delta0, fixed.delta0) == (None, 1e-7)
    assert not make(name, 5.0).is_fixed
    sampled = make(name, sampling_rate=0.25)
    found = charged(sampled, Gaussian(2.0, 0.25, 1), Failure(DELTA0 * 0.25, 1))
    assert found.delta0 == pytest.approx(DELTA0, rel=1e-11)


def test_ranks_of_a_public_domain_are_charged_an_exponential_mechanism() -> None:
    open_, fixed = mechanisms.joint_template("j"), mechanisms.joint_template("j", 3.0)
    assert charged(open_, Exponential(1.0, 1)) == ExponentialNoise(1.0)
    assert charged(fixed, Exponential(3.0, 1)) == ExponentialNoise(3.0)
    sampled = mechanisms.joint_template("j", 3.0, sampling_rate=0.25)
    epsilon = math.log1p(0.25 * math.expm1(3.0))
    [event] = sampled.events(Z, 0.0)
    assert isinstance(event, Pure)
    assert event.epsilon == pytest.approx(epsilon)


def test_choosing_k_takes_a_fifth_of_the_loss() -> None:
    """In zCDP: epsilon^2 / 8 of the choice, and 1 / (2 z^2) of the test."""
    template = mechanisms.ptr_range_template("range")
    choice, test, failure = template.events(Z, DELTA0)
    assert isinstance(choice, Exponential)
    assert (test, failure) == (Gaussian(2.0, 1.0, 1), Failure(DELTA0, 1))
    assert choice.epsilon**2 / 8 == pytest.approx(0.2 / 0.8 / (2 * Z**2))
    assert template.read((choice, test, failure)) == PTRNoise(2.0, DELTA0, 0.5)
    assert template.needs_delta0
    fixed = mechanisms.ptr_range_template(
        "range", 5.0, delta0=1e-7, selection_epsilon=3.0
    )
    assert fixed.is_fixed
    assert fixed.events(Z, 1e-7)[:2] == (
        Exponential(3.0, 1),
        Gaussian(5.0, 1.0, 1),
    )
    with pytest.raises(InvalidParameterError, match="2 randomized steps on one sample"):
        mechanisms.ptr_range_template("range", sampling_rate=0.5)


@pytest.mark.parametrize("name", ["agreement", "vote"])
def test_a_release_may_take_a_part_of_a_querys_share(name: str) -> None:
    assert GAUSSIAN[name][0](name, share=0.25).share == 0.25


@pytest.mark.parametrize("name", ["next token", "max token"])
def test_tokens_are_charged_together(name: str) -> None:
    make = GAUSSIAN[name][0] if name in GAUSSIAN else PURE[name]
    assert make(name).uses == 1
    [event] = make(name, uses=7).events(Z, 0.0)
    assert event.count == 7


def test_curves_are_charged_their_divergence_and_their_failure() -> None:
    ptr = mechanisms.ptr_curve_template(
        "c", order=8.0, divergence=0.25, sampling_rate=0.5
    )
    found = charged(ptr, RenyiEvent(8.0, 0.25, 1), Failure(DELTA0 / 2, 1))
    assert (found.order, found.divergence, found.sampling_rate) == (8.0, 0.25, 0.5)
    assert found.delta0 == pytest.approx(DELTA0, rel=1e-11)
    words = mechanisms.threshold_curve_template("c", order=8.0, divergence=0.25)
    failure = Failure(DELTA0, 1)
    found = charged(words, RenyiEvent(8.0, 0.25, 1), failure)
    assert found == ThresholdCurve(8.0, 0.25, DELTA0)
    for template in (ptr, words):
        # A quarter of a plan's delta is for failures.
        assert template.delta0_share == 0.25
        assert template.needs_delta0
        assert not template.is_fixed
    # Without a sample, and for one word an answer, where nothing is said.
    terms = {"order": 8.0, "divergence": 0.25, "delta0": 1e-7}
    assert mechanisms.ptr_curve_template("c", **terms).sampling_rate == 1.0
    assert mechanisms.ptr_curve_template("c", **terms).is_fixed
    assert mechanisms.threshold_curve_template("c", **terms).lead == WordLead(1)
    assert mechanisms.threshold_curve_template("c", 3, **terms).lead == WordLead(3)


# -- at which lead a noise releases ----------------------------------------------------


def test_a_gap_is_that_of_the_release_under_replace() -> None:
    noise = PTRNoise(2.0, 1e-6)
    gap = mechanisms.required_gap(
        noise_multiplier=2.0, delta0=1e-6, relation="replace", pass_rate=0.95
    )
    assert mechanisms.gap_lead(noise) == mechanisms.gap_lead(noise, is_rough=True)
    assert mechanisms.gap_lead(noise) == gap
    # 21 steps of 2, of which the first begins at a gap of 1; 20.2 of them, roughly.
    assert mechanisms.gap_lead(PTRCurve(8.0, 0.25, 1e-6)) == 41
    rough = mechanisms.gap_lead(PTRCurve(8.0, 0.25, 1e-6), is_rough=True)
    assert rough == pytest.approx(2 * 19.2086 + 1, abs=1e-3)
    # Noise for a sample of half the units: another table.
    half = PTRCurve(8.0, 0.25, 1e-6, 0.5)
    exact = mechanisms.gap_lead(half)
    assert exact == mechanisms.curve_gap(**vars(half), relation="replace") < 41
    assert exact - 2 <= mechanisms.gap_lead(half, is_rough=True) <= exact


@pytest.mark.parametrize("words", [1, 2])
def test_a_words_count_is_that_of_the_release_under_replace(words: int) -> None:
    lead = WordLead(words)
    noise = ThresholdNoise(2.0, 1e-6)
    count = mechanisms.required_count(
        items_per_answer=words,
        noise_multiplier=2.0,
        delta0=1e-6,
        relation="replace",
        pass_rate=0.95,
    )
    assert lead(noise) == lead(noise, is_rough=True) == count
    curve = ThresholdCurve(8.0, 0.5 * words, 1e-6 * words)
    # The same table for each word, of a divergence of 0.25 and a delta0 of 1e-6.
    assert lead(curve) == 21
    assert lead(curve, is_rough=True) == pytest.approx(20.2086, abs=1e-3)


def test_a_gap_passes_as_often_as_its_steps_say() -> None:
    paid = {"order": 8.0, "divergence": 0.25, "delta0": 1e-6}
    for relation, step in (("add_remove", 1), ("replace", 2)):
        rates = [
            mechanisms.curve_gap_pass_rate(gap, **paid, relation=relation)
            for gap in range(25 * step)
        ]
        assert rates[0] == 0
        assert 0.999e-6 < rates[1] <= 1e-6
        assert rates[1] == rates[step] < rates[step + 1] == rates[2 * step]
        least = mechanisms.curve_gap(**paid, relation=relation)
        assert least == 20 * step + 1
        assert rates[20 * step] < 0.95 <= rates[20 * step + 1]
        sooner = mechanisms.curve_gap(**paid, relation=relation, pass_rate=0.5)
        assert rates[int(sooner) - 1] < 0.5 <= rates[int(sooner)]
        sampled = mechanisms.curve_gap(**paid, relation=relation, sampling_rate=0.5)
        assert sampled < least
        for gap, other in ((sampled - 1, False), (sampled, True)):
            rate = mechanisms.curve_gap_pass_rate(
                int(gap), **paid, relation=relation, sampling_rate=0.5
            )
            assert (rate >= 0.95) == other


def test_a_word_comes_out_as_often_as_its_steps_say() -> None:
    paid = {"order": 8.0, "divergence": 0.5, "delta0": 2e-6, "relation": "add_remove"}
    rates = [
        mechanisms.curve_count_pass_rate(count, items_per_answer=2, **paid)
        for count in range(25)
    ]
    assert rates[0] == 0
    assert 0.999e-6 < rates[1] <= 1e-6
    assert rates[20] < 0.95 <= rates[21]
    assert mechanisms.curve_count(items_per_answer=2, **paid) == 21
    sooner = mechanisms.curve_count(items_per_answer=2, **paid, pass_rate=0.5)
    assert rates[int(sooner) - 1] < 0.5 <= rates[int(sooner)]


@pytest.mark.parametrize("number", [-1, 1.0, True, None])
def test_planned_numbers_are_checked(number: Any) -> None:
    paid = {"order": 8.0, "divergence": 0.5, "delta0": 1e-6, "relation": "replace"}
    with pytest.raises(InvalidParameterError, match="gap"):
        mechanisms.curve_gap_pass_rate(number, **paid)
    with pytest.raises(InvalidParameterError, match="count"):
        mechanisms.curve_count_pass_rate(number, items_per_answer=1, **paid)


def test_a_given_k_has_no_choice_and_a_curve_no_sample() -> None:
    assert PTRNoise(1.0, 0.1).selection_epsilon is None
    assert PTRCurve(2.0, 1.0, 0.1).sampling_rate == 1.0
