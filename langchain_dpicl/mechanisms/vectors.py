"""Noisy sum of vectors: the release behind embedding space aggregation.

Wu, Panda, Wang, Mittal, ICLR 2024, Algorithm 2 and Theorem 4.

Input         One row a slot, clipped to the ball of radius R. Each row, alone, becomes
              a point of an integer grid whose norm is at most `limit` steps: `on_grid`
              computes the norm of the grid point itself, so it holds whatever the
              floating-point steps before it did.
Neighbors     One unit touches one slot. `replace`: its row changes to any other, or to
              none. `add_remove`: one row appears or vanishes.
Sensitivity   L2, in steps: `limit` (`add_remove`), 2 `limit` (`replace`: two points of
              a ball). The paper's 1 is the first only.
              *Tallies:* a slot without a vector may be counted in the same sum. Rows
              get k more coordinates, 0 for a vector, and the slot has the row R e_j of
              one of them alone. It lies on the surface of the ball of radius R in D + k
              dimensions, and a vector lies in the ball as before. So each slot still
              adds one point of one ball, or nothing. (A vector and a tally, or two
              tallies, are R sqrt 2 apart at most.) Divided by R, a tally's sum is the
              number of its slots, up to the clipping of the rows.
Noise         Rounded Gaussians of s = 2^14 steps, and limit = s / z or s / (2 z): the
              noise multiplier is z, exactly. Nothing is added to the sensitivity for
              the rounding of the rows, in contrast to rounding first and counting step
              * sqrt(D).
Event         Gaussian(z, rate), for all coordinates together.
What is free  Going back from steps to the rows' unit; which candidate is nearest to the
              sum, and its score; `least_sum` and `lead_over_a_tie`, of public numbers.
Tested by     `tests/mechanisms/test_sums.py`: the norms of extreme rows on the grid;
              the law of the noise against mpmath, with half the noise as the twin; the
              net (`tests/unit_tests/laws`) measures both sensitivities.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from langchain_dpicl.accounting.events import Charge, Gaussian
from langchain_dpicl.common import parameters
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import inputs, voting
from langchain_dpicl.mechanisms.exact import Floats, Integers, RoundedGaussian

SCALE = 2.0**14
"""Standard deviation of the noise, in grid steps."""

_LEAST_RADIUS, _MOST_RADIUS = 1e-100, 1e100
_SLACK = 1e-9
"""Relative error granted to a floating-point norm, at most D 2^-53, D <= 10^6, and to
the limit itself."""


def charge(
    *,
    noise_multiplier: float | None = None,
    sampling_rate: float = 1.0,
    name: str = "esa/cosine",
) -> Charge:
    """Return what `noisy_sum` costs: one Gaussian."""
    return voting.charge(
        noise_multiplier=noise_multiplier, sampling_rate=sampling_rate, name=name
    )


def sensitivity(relation: Relation | str) -> float:
    """Return the L2 sensitivity of the sum, in radii: 1 or 2.

    Example:
        >>> sensitivity("replace")
        2.0
    """
    return 2.0 if inputs.is_replace(relation) else 1.0


def sigma(paid: Gaussian, relation: Relation | str, radius: float) -> float:
    """Return the standard deviation of each coordinate's noise, in the rows' unit."""
    return inputs.noise_multiplier(paid) * sensitivity(relation) * radius


def noisy_sum(
    vectors: npt.ArrayLike,
    paid: Gaussian,
    relation: Relation | str,
    *,
    radius: float,
) -> Floats:
    """Release the sum of rows, each clipped to an L2 ball: S + N(0, (z Delta)^2 I).

    Args:
        vectors: One row per answering slot, shape `(m, D)`; m may be 0, and slots
            that abstain are left out. Longer rows are shortened to `radius`.
        paid: The event that was charged.
        relation: How the slots of neighbors differ.
        radius: Radius R of the ball around zero, public, in the rows' unit.

    Returns:
        The noisy sum, in the rows' unit, shape `(D,)`.

    Raises:
        InvalidParameterError: If an argument is malformed: rows that are ragged or not
            finite, a radius that is not positive. Messages hold no entry.

    Example:
        >>> paid = Gaussian(noise_multiplier=2.0)
        >>> noisy_sum([[1.0, 0.0], [0.6, 0.8]], paid, "replace", radius=1.0).shape
        (2,)
    """
    rows = inputs.float_rows("vectors", vectors)
    if not bool(np.isfinite(rows).all()):
        raise InvalidParameterError(
            "vectors must be finite: leave out the rows of slots that abstain."
        )
    ball = parameters.positive("radius", radius)
    if not _LEAST_RADIUS <= ball <= _MOST_RADIUS:
        raise InvalidParameterError(
            f"radius must be between {_LEAST_RADIUS:g} and {_MOST_RADIUS:g}."
        )
    limit = SCALE / (sensitivity(relation) * inputs.noise_multiplier(paid))
    total = on_grid(rows, ball, limit).sum(axis=0, dtype=np.int64)
    noise = RoundedGaussian(SCALE).draw(rows.shape[1])
    released: Floats = (total + noise) * (ball / limit)
    return released


def on_grid(rows: Floats, ball: float, limit: float) -> Integers:
    """Map each row, alone, to integers of norm at most `limit`; `ball` maps to it.

    Rows are clipped a little shorter than `limit` (2 + D / (8 limit) steps) and
    rounded to nearest, so that the rounding, which can lengthen a row, nearly always
    stays within. A row that is still too long is truncated toward zero instead, which
    shortens it. (Truncating all of them would pull every coordinate toward zero.)
    """
    dimension = rows.shape[1]
    clip = limit * (1 - 2 * _SLACK) - 2 - dimension / (8 * limit)
    clip = max(clip, limit / 2)
    with np.errstate(divide="ignore"):
        factors = np.minimum(limit / ball, clip / _norms(rows))
    scaled = rows * factors[:, np.newaxis]
    grid = np.rint(scaled)
    long = _norms(grid) > limit * (1 - _SLACK)
    grid[long] = np.trunc(scaled[long])
    # The line that the sensitivity rests on. Rounding errors above would have to be
    # far larger than floating point allows for it to find anything.
    grid[_norms(grid) > limit * (1 - _SLACK)] = 0
    points: Integers = grid.astype(np.int64)
    return points


def _norms(rows: Floats) -> Floats:
    """Return the L2 norms, shape `(m,)`, also of rows whose squares overflow."""
    with np.errstate(over="ignore", under="ignore"):
        norms: Floats = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        huge = ~np.isfinite(norms)
        if bool(huge.any()):
            peaks = np.abs(rows[huge]).max(axis=1)
            shrunk = rows[huge] / peaks[:, np.newaxis]
            norms[huge] = peaks * np.sqrt(np.einsum("ij,ij->i", shrunk, shrunk))
    return norms


def least_sum(sigma: float, directions: int) -> float:
    """Return what noise alone reaches in 1 % of cases, along one of some directions.

    `sigma` and the result are in the rows' unit; see `voting.least_votes`.

    Example:
        >>> round(least_sum(1.0, directions=2), 2)
        2.58
    """
    return voting.least_votes(SCALE, directions) * sigma / SCALE


def lead_over_a_tie(sigma: float, labels: int = 2) -> float:
    """Return the lead of one of two equal coordinates in 5 % of cases at most.

    `sigma` and the result are in the rows' unit; see `voting.lead_over_a_tie`.

    Example:
        >>> round(lead_over_a_tie(1.0), 2)
        2.77
    """
    return voting.lead_over_a_tie(SCALE, labels) * sigma / SCALE
