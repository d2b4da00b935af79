"""What noise alone reaches in a vote, and with what lead a label comes out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import signal, stats

from langchain_dpicl import mechanisms
from langchain_dpicl.mechanisms.rounded_gaussian import count_grid


def law_of_noise(sigma: float) -> tuple[int, np.ndarray]:
    """Return how many steps of the noise a vote is, and each step's probability."""
    weight, noise = count_grid(sigma)
    edges = np.arange(-8 * int(noise.scale) - 0.5, 8 * noise.scale + 1) / noise.scale
    return weight, np.diff(stats.norm.cdf(edges))


def tail(law: np.ndarray, steps: float) -> float:
    """Return the probability of that many steps or more, of a law around 0."""
    return float(law[len(law) // 2 + math.ceil(steps) :].sum())


def least_before(sigma: float, labels: int) -> float:
    share = -math.expm1(math.log1p(-0.01) / labels)
    return sigma * float(stats.norm.isf(share))


def lead_before(sigma: float, labels: int) -> float:
    return sigma * math.sqrt(2) * float(stats.norm.isf(0.05 / labels))


SIGMAS = [0.3, 0.5, 1.0, 1.7, 2.9, 4.1, 30.0, 400.0, 700.0]


def rates_of_nobody(least: Any, sigma: float) -> list[float]:
    """Return how often a label that nobody chose comes out, by the law as drawn."""
    weight, law = law_of_noise(sigma)
    return [
        1 - (1 - tail(law, least(sigma, labels) * weight)) ** labels
        for labels in (1, 2, 7, 50)
    ]


def rates_of_ties(lead: Any, sigma: float) -> list[float]:
    """Return how often a tie comes out, by the law as drawn."""
    weight, law = law_of_noise(sigma)
    both = signal.fftconvolve(law, law)  # A difference: the law is symmetric.
    return [labels * tail(both, lead(sigma, labels) * weight) for labels in (1, 2)]


@pytest.mark.parametrize("sigma", SIGMAS)
def test_votes_and_leads_of_noise_alone_have_their_rates_as_it_is_drawn(
    sigma: float,
) -> None:
    """The noise is whole steps: its exact law holds the bounds, and hardly more."""
    nobody = rates_of_nobody(mechanisms.least_votes, sigma)
    assert max(nobody) <= 0.01
    assert min(nobody) > 0.0096
    ties = rates_of_ties(mechanisms.lead_over_a_tie, sigma)
    assert max(ties) <= 0.05
    assert min(ties) > 0.047


def test_twin_the_quantiles_of_a_real_number_are_exceeded() -> None:
    assert max(max(rates_of_nobody(least_before, sigma)) for sigma in SIGMAS) > 0.01
    ties = [max(rates_of_ties(lead_before, sigma)) for sigma in SIGMAS]
    assert max(ties) > 0.05
