"""Noisy votes: the law of a bin, the sensitivities, and thresholds for whole noise."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from scipy import stats
from support.exact_laws import gaussian_steps, keeps_to

from langchain_dpicl import InvalidParameterError
from langchain_dpicl.accounting import Failure, Gaussian
from langchain_dpicl.mechanisms import voting
from langchain_dpicl.mechanisms.random import seeded

RELATIONS = {"add_remove": 1.0, "replace": math.sqrt(2)}


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_bin_has_whole_noise_of_what_was_paid(relation: str) -> None:
    paid = Gaussian(noise_multiplier=1.5, sampling_rate=0.1, count=7)
    law = {
        k + 40: mass for k, mass in gaussian_steps(1.5 * RELATIONS[relation]).items()
    }
    with seeded(1):
        drawn = voting.noisy_counts([40] * 20_000, paid, relation)
        half = Gaussian(noise_multiplier=0.75)
        twin = voting.noisy_counts([40] * 20_000, half, relation)
    assert drawn.dtype == np.int64
    assert keeps_to(drawn.tolist(), law)
    assert not keeps_to(twin.tolist(), law)


@pytest.mark.parametrize("relation", RELATIONS)
def test_no_slot_moves_the_votes_farther_than_the_sensitivity(relation: str) -> None:
    bins = [None, 0, 1, 2]
    moves = []
    for before, after in itertools.product(bins, repeat=2):
        if relation == "add_remove" and None not in (before, after):
            continue
        votes = [[float(b == one) for one in range(3)] for b in (before, after)]
        moves.append(math.dist(*votes))
    assert max(moves) == pytest.approx(voting.sensitivity(relation))
    assert voting.sensitivity(relation) ** 2 >= round(max(moves) ** 2)


def chances(
    sigma: float, labels: int, least: float, lead: float
) -> tuple[float, float]:
    """Return how often nobody's label comes out, and one of two equal ones."""
    law = gaussian_steps(sigma)
    with mp.workdps(30):
        above = mp.fsum(p for k, p in law.items() if k >= least)  # type: ignore[operator]
        blank = 1 - (1 - above) ** labels
        masses = np.array([float(p) for p in law.values()])
    difference = np.convolve(masses, masses[::-1])
    middle = len(masses) - 1
    return float(blank), 2 * float(difference[middle + math.ceil(lead) :].sum())


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.3, 5.0, 41.7])
@pytest.mark.parametrize("labels", [1, 2, 7, 40])
def test_thresholds_are_the_least_that_hold_for_whole_noise(
    sigma: float, labels: int
) -> None:
    least, lead = voting.least_votes(sigma, labels), voting.lead_over_a_tie(sigma)
    blank, tie = chances(sigma, labels, least, lead)
    assert blank <= 0.01
    assert tie <= 0.05
    blank, tie = chances(sigma, labels, least - 1, lead - 1)
    assert blank > 0.01
    assert tie > 0.05


@pytest.mark.parametrize(("sigma", "labels"), [(1.0, 7), (5.0, 2)])
def test_quantiles_of_real_noise_are_too_low(sigma: float, labels: int) -> None:
    least = sigma * stats.norm.isf(-math.expm1(math.log1p(-0.01) / labels))
    lead = sigma * math.sqrt(2) * stats.norm.isf(0.025)
    blank, tie = chances(sigma, labels, least, lead)
    assert blank > 0.011
    assert tie > 0.05


def test_thresholds_of_large_noise_hold_too() -> None:
    for sigma in (1023.0, 1025.0, 5e4, 1.4e6):
        below = float(stats.norm.sf((voting.least_votes(sigma, 3) - 0.5) / sigma))
        assert -math.expm1(3 * math.log1p(-below)) == pytest.approx(0.01, rel=0.01)
        lead = voting.lead_over_a_tie(sigma)
        real = 2 * float(stats.norm.sf(lead / (sigma * math.sqrt(2))))
        assert real == pytest.approx(0.05, rel=0.01)
        found = voting.required_lead(4, sigma=sigma) / sigma
        assert found == pytest.approx(
            voting.required_lead(4, sigma=800.0) / 800, rel=0.01
        )


@pytest.mark.parametrize("min_lead", [0.0, 6.5])
def test_a_required_lead_is_the_least_that_comes_out(min_lead: float) -> None:
    sigma, labels, runs = 2.5, 3, 60_000
    lead = voting.required_lead(labels, sigma=sigma, min_lead=min_lead)
    least = voting.least_votes(sigma, labels)
    tie = voting.lead_over_a_tie(sigma, labels=1)

    def rate(votes: int) -> float:
        noise = np.rint(np.random.default_rng(2).normal(0, sigma, (runs, 6)))
        first = votes + noise[:, 0]
        others = first - noise[:, 1:3].max(axis=1)
        reasons = first - noise[:, 3:].max(axis=1)
        out = (others >= max(1, min_lead)) & (reasons >= max(tie, min_lead))
        return float((out & (first >= least)).mean())

    assert rate(lead) > 0.945
    assert rate(lead - 2) < 0.95


def test_what_was_not_paid_is_refused_and_no_count_is_told() -> None:
    paid = Gaussian(noise_multiplier=1.0)
    for wrong in (Failure(delta0=0.1), Gaussian(noise_multiplier=None), 2.0):
        with pytest.raises(InvalidParameterError):
            voting.noisy_counts([1], wrong, "replace")  # type: ignore[arg-type]
    for counts in ([], [-77], [77.5], [[77]], [77, [77]], [77 << 40], ["77"]):
        with pytest.raises(InvalidParameterError) as caught:
            voting.noisy_counts(counts, paid, "replace")  # type: ignore[arg-type]
        assert "77" not in str(caught.value)
    for relation in ("both", None, 1):
        with pytest.raises(InvalidParameterError):
            voting.noisy_counts([1], paid, relation)  # type: ignore[arg-type]
