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
    Gaussian,
    Pure,
)
from langchain_dpicl.mechanisms import (
    ExponentialNoise,
    GaussianNoise,
    VectorNoise,
)

Make = Callable[..., EventTemplate[Any]]

Z, DELTA0 = 2.0, 1e-8

GAUSSIAN: dict[str, tuple[Make, type]] = {
    "histograms": (mechanisms.histograms_template, GaussianNoise),
    "next token": (mechanisms.next_token_template, GaussianNoise),
    "sum": (mechanisms.sum_template, VectorNoise),
    "vote": (mechanisms.vote_template, GaussianNoise),
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


def test_ranks_of_a_public_domain_are_charged_an_exponential_mechanism() -> None:
    open_, fixed = mechanisms.joint_template("j"), mechanisms.joint_template("j", 3.0)
    assert charged(open_, Exponential(1.0, 1)) == ExponentialNoise(1.0)
    assert charged(fixed, Exponential(3.0, 1)) == ExponentialNoise(3.0)
    sampled = mechanisms.joint_template("j", 3.0, sampling_rate=0.25)
    epsilon = math.log1p(0.25 * math.expm1(3.0))
    [event] = sampled.events(Z, 0.0)
    assert isinstance(event, Pure)
    assert event.epsilon == pytest.approx(epsilon)
