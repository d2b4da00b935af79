"""Vectors as points of an integer grid inside a ball: what Gaussian noise is added to.

A sensitivity has to hold for the numbers that are summed, and floating-point vectors
that were clipped to a norm are a little longer or shorter than that. So the norm that
counts is taken of integer points, after everything else was done to them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

SCALE = 2.0**14  # Standard deviation of the noise, in grid steps.
_SLACK = 1e-9
"""Relative error granted to a floating-point norm; at most D 2^-53, D <= 10^6."""


def on_grid(
    rows: npt.NDArray[np.float64], ball: float, limit: float
) -> npt.NDArray[np.int64]:
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
    points: npt.NDArray[np.int64] = grid.astype(np.int64)
    return points


def _norms(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the L2 norms, shape `(m,)`, also of rows whose squares overflow."""
    with np.errstate(over="ignore", under="ignore"):
        norms: npt.NDArray[np.float64] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        huge = ~np.isfinite(norms)
        if bool(huge.any()):
            peaks = np.abs(rows[huge]).max(axis=1)
            shrunk = rows[huge] / peaks[:, np.newaxis]
            norms[huge] = peaks * np.sqrt(np.einsum("ij,ij->i", shrunk, shrunk))
    return norms
