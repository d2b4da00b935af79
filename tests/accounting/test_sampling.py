"""A sampled pure epsilon against 60 digits, from the least doubles to the largest."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import pytest
from mpmath import mp, mpf

from langchain_dpicl.accounting import sampled_epsilon, unsampled_epsilon

TINY = 5e-324
EPSILONS = (
    *(TINY, 1e-320, 2.3e-308, 1e-200, 1e-30, 1e-16, 1e-9, 1e-3, 0.1, 0.5, 0.999),
    *(1.0, 1.001, 2.0, 3.0, 8.0, 40.0, 300.0, 699.9, 700.0, 709.7, 709.8, 745.0),
    *(1000.0, 1400.0, 1418.0, 1420.0, 1500.0, 1e6, 1e300, 1.7e308),
)
RATES = (
    *(TINY, 1e-320, 2.3e-308, 1e-300, 1e-100, 1e-30, 1e-20, 1e-16, 1e-9, 1e-3),
    *(0.01, 0.1, 1 / 3, 0.5, 0.9, 1 - 1e-9, math.nextafter(1, 0)),
)


def cases() -> Iterator[tuple[float, float]]:
    """Yield every pair of the extremes, and random ones of every size."""
    yield from ((epsilon, rate) for epsilon in EPSILONS for rate in RATES)
    source = random.Random(20)
    for _ in range(3000):
        epsilon = 10 ** source.uniform(-320, 4)
        yield epsilon, 10 ** source.uniform(-320, 0)
        yield source.uniform(0.01, 20), 10 ** source.uniform(-20, 0)


@pytest.fixture(autouse=True)
def digits() -> Iterator[None]:
    with mp.workdps(60):
        yield


def true_epsilon(epsilon: float, rate: float) -> mpf:
    # e^epsilon of a huge epsilon has more digits than there are: then its 1 is nothing.
    if epsilon > 10_000:
        return mpf(epsilon) + mp.log(mpf(rate))
    return mp.log1p(mpf(rate) * mp.expm1(mpf(epsilon)))


def test_a_sampled_epsilon_is_never_below_the_truth_and_hardly_above() -> None:
    for epsilon, rate in cases():
        found, truth = sampled_epsilon(epsilon, rate), true_epsilon(epsilon, rate)
        assert mpf(found) >= truth, (epsilon, rate)
        assert mpf(found) - truth <= 12 * mpf(math.ulp(found)), (epsilon, rate)
        assert 0 < found <= epsilon


def test_what_is_used_never_costs_more_than_what_was_charged() -> None:
    for charged, rate in cases():
        used = unsampled_epsilon(charged, rate)
        assert math.isfinite(used), (charged, rate)
        if used > 0:
            assert true_epsilon(used, rate) <= mpf(charged), (charged, rate)


def test_without_a_sample_nothing_is_rounded() -> None:
    for epsilon in EPSILONS:
        assert sampled_epsilon(epsilon, 1) == unsampled_epsilon(epsilon, 1) == epsilon


def test_there_and_back_loses_next_to_nothing() -> None:
    for epsilon, rate in cases():
        charged = sampled_epsilon(epsilon, rate)
        if charged > 1e-300 and charged > 1e-300 * rate:
            used = unsampled_epsilon(charged, rate)
            assert epsilon * (1 - 1e-9) <= used <= epsilon, (epsilon, rate)
