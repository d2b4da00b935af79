"""Margins and thresholds of counts: against the exact law, and on known truth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from langchain_dpicl.mechanisms.exact import DiscreteLaplace, RoundedGaussian
from langchain_dpicl.tabular.gdp.margins import SummedNoise, WholeNoise

NOISES = [
    DiscreteLaplace.calibrated(1, 0.3),
    DiscreteLaplace.calibrated(1, 4.0),
    RoundedGaussian(0.4),
    RoundedGaussian(6.5),
]


def exact(noise: WholeNoise, draws: int) -> Any:
    """Return P(sum = k) by convolution, and where k = 0 stands."""
    reach = math.ceil(50 * noise.standard_deviation) + 2
    each = -np.diff([noise.reaches(k) for k in range(-reach, reach + 2)])
    law = each
    for _ in range(draws - 1):
        law = np.convolve(law, each)
    return law, draws * reach


@pytest.mark.parametrize("noise", NOISES, ids=repr)
@pytest.mark.parametrize("draws", [1, 2, 7])
def test_what_follows_from_the_law_is_exact(noise: WholeNoise, draws: int) -> None:
    (law, zero), told = exact(noise, draws), SummedNoise(noise, draws)

    def reached(t: int) -> float:
        return float(law[zero + t :].sum())

    for rate in (0.01, 0.05):
        margin = told.margin(rate)
        assert 2 * reached(margin + 1) <= rate
        assert margin == 0 or 2 * reached(margin) > rate
        t = told.threshold(rate, among=40)
        assert 1 - (1 - reached(t)) ** 40 <= rate * (1 + 1e-6)
        assert t == 1 or 1 - (1 - reached(t - 1)) ** 40 > rate
        twice, middle = exact(noise, 2 * draws)
        lead = told.lead(rate)
        assert 2 * float(twice[middle + lead :].sum()) <= rate
        assert lead == 1 or 2 * float(twice[middle + lead - 1 :].sum()) > rate
