"""A failure probability beside another event, at every real eps and under sampling."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from random import Random

import numpy as np
import pytest
from scipy.stats import norm

from langchain_dpicl.mechanisms import ptr_pass_rate

Law = list[Fraction]


def curve(one: Law, other: Law, r: Fraction) -> Fraction:
    """Return the largest P(S) - r Q(S), which takes what is positive."""
    return sum(
        (max(p - r * q, Fraction(0)) for p, q in zip(one, other, strict=True)),
        Fraction(0),
    )


def mixed(share: Fraction, one: Law, other: Law) -> Law:
    return [share * p + (1 - share) * q for p, q in zip(one, other, strict=True)]


def pairs(source: Random) -> tuple[Law, Law, Law, Law]:
    """Return a private pair G, H, and the same with failures that say everything.

    Outcomes 0 to 3 are the private mechanism's, 4 and 5 those of a failure.
    """
    weights = [[Fraction(source.randint(1, 9)) for _ in range(4)] for _ in range(2)]
    g, h = ([w / sum(row) for w in row] + [Fraction(0)] * 2 for row in weights)
    delta0 = Fraction(source.randint(1, 40), 100)
    failed_a = [Fraction(0)] * 4 + [Fraction(1), Fraction(0)]
    failed_b = [Fraction(0)] * 4 + [Fraction(0), Fraction(1)]
    return g, h, mixed(delta0, failed_a, g), mixed(delta0, failed_b, h)


RATIOS = [Fraction(n, 20) for n in (0, 1, 3, 7, 12, 17, 19, 20, 21, 25, 40, 90)]
RATES = [Fraction(1, 50), Fraction(1, 3), Fraction(9, 10), Fraction(1)]


@pytest.mark.parametrize("seed", range(20))
def test_sampled_failures_are_covered_both_ways(seed: int) -> None:
    g, h, with_unit, without = pairs(Random(seed))
    delta0 = with_unit[4]
    for q, r in product(RATES, RATIOS):
        sampled, plain = mixed(q, with_unit, without), mixed(q, g, h)
        for found, beside in (
            (curve(sampled, without, r), curve(plain, h, r)),
            (curve(without, sampled, r), curve(h, plain, r)),
        ):
            assert found <= q * delta0 + (1 - q * delta0) * beside


def test_that_bound_is_met_and_a_smaller_one_is_not() -> None:
    """Twin: half of q delta0 would not do."""
    met = worse = 0
    for seed in range(20):
        g, h, with_unit, without = pairs(Random(seed))
        delta0 = with_unit[4]
        for q, r in product(RATES, RATIOS):
            found = curve(mixed(q, with_unit, without), without, r)
            beside = curve(mixed(q, g, h), h, r)
            half = q * delta0 / 2
            met += found == q * delta0 + (1 - q * delta0) * beside
            worse += found > half + (1 - half) * beside
    assert met
    assert worse


@pytest.mark.parametrize(("relation", "most"), [("add_remove", 1), ("replace", 2)])
@pytest.mark.parametrize("z", [0.5, 2.0, 10.0])
def test_propose_test_release_at_every_real_eps(
    relation: str, most: int, z: float
) -> None:
    """Its exact curve between neighbors' gaps, below that of Gaussian(z) and delta0."""
    delta0 = 1e-3

    def passes(gap: int) -> float:
        return ptr_pass_rate(gap, noise_multiplier=z, delta0=delta0, relation=relation)

    for gap, step in product(range(12), range(-most, most + 1)):
        if gap + step < 0:
            continue
        p, q = passes(gap), passes(gap + step)
        is_same = max(gap, gap + step) > most
        for eps in np.linspace(-6, 6, 49):
            r = math.exp(eps)
            nothing = max(0.0, (1 - p) - r * (1 - q))
            found = nothing + (max(0.0, p - r * q) if is_same else p)
            mu = 1 / z
            gaussian = norm.cdf(mu / 2 - eps / mu) - r * norm.cdf(-mu / 2 - eps / mu)
            assert found <= delta0 + (1 - delta0) * gaussian + 1e-12
