"""A sample of fixed size is not a Poisson sample, and must not be accounted as one.

Exactly n of N units are drawn, and a unit's record is replaced. Where the unit is drawn
the sum has its contribution b or, replaced, c; where it is not, another's contribution
a is there instead, so that the pair of a step is

    (1 - q) N(a, z^2) + q N(b, z^2)   against   (1 - q) N(a, z^2) + q N(c, z^2).

Any two contributions are at most one sensitivity apart. Where a, b and c are all of
them one apart, the two mixtures differ on *both* sides of a. A Poisson step's pair,
N(0, z^2) against (1 - q) N(0, z^2) + q N(1, z^2), differs on one.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import fft

from langchain_dpicl.accounting import GaussianEvent, compose

Floats = npt.NDArray[np.float64]
Point = tuple[float, float]

Z, Q, BUDGET_UNITS, DELTA = 0.8, 0.005, 20_000, 1e-5
A, B, C = (0.0, math.sqrt(0.75)), (0.5, 0.0), (-0.5, 0.0)


def mixture(z: float, q: float, usual: Point, drawn: Point) -> Floats:
    """The density of one step on a grid in the plane of the three contributions."""
    reach = 7 * z + 1
    x = np.linspace(-reach, reach, 201)
    cell = (x[1] - x[0]) ** 2 / (2 * math.pi * z * z)
    at = {
        point: cell
        * np.exp(-((x[:, None] - point[0]) ** 2) / (2 * z * z))
        * np.exp(-((x[None, :] - point[1]) ** 2) / (2 * z * z))
        for point in (usual, drawn)
    }
    return (1 - q) * at[usual] + q * at[drawn]


def delta_of(left: Floats, right: Floats, steps: int, epsilon: float) -> float:
    """delta(epsilon) of many steps, by convolution; precise to a few percent."""
    reach, step = 40.0, 1e-3
    size = round(2 * reach / step)
    losses = np.log(left / right) / step
    cells = np.floor(losses).astype(np.int64)
    upper = left * (losses - cells)
    masses = np.zeros(size)
    np.add.at(masses, cells % size, left - upper)
    np.add.at(masses, (cells + 1) % size, upper)
    composed = np.maximum(fft.irfft(fft.rfft(masses) ** steps, size), 0.0)
    total = np.arange(size) * step
    total[total >= reach] -= 2 * reach
    above = total > epsilon
    return float((composed[above] * -np.expm1(epsilon - total[above])).sum())


def test_a_sample_of_fixed_size_loses_more_than_poisson_accounting_says() -> None:
    accounted = compose([GaussianEvent(Z, Q, BUDGET_UNITS)], DELTA)
    poisson = mixture(Z, Q, C, B), mixture(Z, Q, C, C)
    fixed = mixture(Z, Q, A, B), mixture(Z, Q, A, C)
    # The same computation finds the accountant's figure for what it is the figure of.
    assert abs(delta_of(*poisson, BUDGET_UNITS, accounted) / DELTA - 1) < 0.05
    assert delta_of(*fixed, BUDGET_UNITS, accounted) > 5 * DELTA
