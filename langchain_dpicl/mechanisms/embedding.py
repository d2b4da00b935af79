"""Noisy sum of vectors: the release behind embedding space aggregation.

Wu, Panda, Wang, Mittal, *Privacy-Preserving In-Context Learning for Large Language
Models*, ICLR 2024, Algorithm 2 and Theorem 4.

1. *Sensitivity.* Each row becomes a point of an integer grid whose norm is at most
   `limit` grid steps; `on_grid` establishes that by computing the norm of the grid
   point itself, so it holds whatever the floating-point steps before it did. One row
   appears or vanishes (`ADD_REMOVE`): the integer sum moves by at most `limit`. One
   row changes (`REPLACE`): by at most 2 `limit`. The paper's 1 is the first only.
   *Tallies.* A slot without a vector may be counted in the same sum: rows get k more
   coordinates, 0 for a vector, and the slot has the row R e_j, of one of them alone. It
   lies on the surface of the ball of radius R in D + k dimensions, as do all rows of
   that kind, and a vector lies in the ball as before. So each slot still adds one point
   of one ball, or nothing, and the sensitivity is R or 2 R for any exchange. It is
   reached by two opposite vectors alone: a vector and a tally, or two tallies, are
   orthogonal, and R sqrt(2) apart at most. Divided by R, a tally's sum is the number of
   its slots, up to the clipping of the rows.
2. *Noise.* Rounded Gaussians of s = 2^14 grid steps, and limit = s / z or s / (2 z):
   the noise multiplier is z, exactly. Nothing is added to the sensitivity for the
   rounding of the rows, in contrast to rounding first and counting step * sqrt(D).
3. *Event* (`sum_template`). Gaussian with noise multiplier z. Going back from grid
   steps to the rows' unit is post-processing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from langchain_dpicl.accounting.parts import GaussianPart
from langchain_dpicl.accounting.template import EventTemplate
from langchain_dpicl.common import parameters
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import sensitivity
from langchain_dpicl.mechanisms.ball_grid import SCALE, on_grid
from langchain_dpicl.mechanisms.inputs import vector_rows
from langchain_dpicl.mechanisms.noise import VectorNoise
from langchain_dpicl.mechanisms.rounded_gaussian import RoundedGaussian
from langchain_dpicl.mechanisms.source import SecureRandom, checked_source

_MIN_RADIUS, _MAX_RADIUS = 1e-100, 1e100


def sum_template(
    mechanism: str,
    noise_multiplier: float | None = None,
    *,
    sampling_rate: float = 1.0,
) -> EventTemplate[VectorNoise]:
    """Return what `noisy_sum` is charged: Gaussian(z)."""
    part = GaussianPart(noise_multiplier)
    return EventTemplate(mechanism, (part,), VectorNoise, sampling_rate)


def noisy_sum(
    vectors: npt.ArrayLike,
    *,
    radius: float,
    noise_multiplier: float,
    relation: Relation | str,
    random: SecureRandom | None = None,
) -> npt.NDArray[np.float64]:
    """Release the sum of rows, each clipped to an L2 ball: S + N(0, (z Delta)^2 I).

    Args:
        vectors: One row per answering slot, shape `(m, D)`; m may be 0, and slots
            that abstain are left out. Longer rows are shortened to `radius`.
        radius: Radius R of the ball around zero, public, in the rows' unit.
        noise_multiplier: z = sigma / sensitivity.
        relation: How the slots of neighbors differ.
        random: Source of the noise; None is the operating system's.

    Returns:
        The noisy sum, in the rows' unit, shape `(D,)`.

    Raises:
        InvalidParameterError: If an argument is malformed: rows that are ragged or not
            finite, a radius that is not positive. Messages hold no entry.

    Privacy:
        Unit and relation: one row, as `relation` says. Sensitivity: L2, R under
        `ADD_REMOVE` and 2 R under `REPLACE`, after clipping. Noise: rounded Gaussian,
        sigma = z Delta, exact. Event: Gaussian(z). Source: ICLR 2024 paper,
        Theorem 4, with the sensitivity of the relation in force.

    Example:
        >>> noisy_sum(
        ...     [[1.0, 0.0], [0.6, 0.8]],
        ...     radius=1.0,
        ...     noise_multiplier=2.0,
        ...     relation="add_remove",
        ... ).shape
        (2,)
    """
    rows = vector_rows(vectors)
    ball = parameters.positive("radius", radius)
    if not _MIN_RADIUS <= ball <= _MAX_RADIUS:
        raise InvalidParameterError(
            f"radius must be between {_MIN_RADIUS:g} and {_MAX_RADIUS:g}, not {ball:g}."
        )
    z = parameters.noise_multiplier(noise_multiplier)
    per_limit = sensitivity.embedding_l2(relation, 1.0)
    source = checked_source(random)

    limit = SCALE / (per_limit * z)
    total = on_grid(rows, ball, limit).sum(axis=0, dtype=np.int64)
    noise = RoundedGaussian(SCALE).draw(rows.shape[1], source)
    step = ball / limit
    released: npt.NDArray[np.float64] = (total + noise) * step
    return released
