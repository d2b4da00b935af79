"""Make a distribution of an estimate with negative cells: the nearest one."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_dpicl.errors import InvalidParameterError


def project_to_simplex(values: Any) -> npt.NDArray[np.float64]:
    """Return the distribution that is nearest to `values` in Euclidean distance.

    It is max(values - t, 0) for the one t that makes the sum 1. Duchi, Shalev-Shwartz,
    Singer and Chandra, *Efficient Projections onto the l1-Ball*, ICML 2008, Figure 1.

    Args:
        values: Finite real numbers, of any shape.

    Returns:
        An array of the same shape, nonnegative, that sums to 1 within 1e-12.

    Raises:
        InvalidParameterError: If the values are not finite real numbers, or there are
            none.

    Privacy:
        Post-processing of reports: no further cost.

    Example:
        >>> project_to_simplex([1.1, 0.2, -0.3]).round(6)
        array([0.95, 0.05, 0.  ])
    """
    table = np.array(values, dtype=np.float64)
    if not table.size or not np.isfinite(table).all():
        raise InvalidParameterError("values must be finite real numbers, at least one.")
    # A constant added to all cells changes nothing. With the largest at 0, t lies in
    # [-1, 0), so estimates as large as 1e30 lose no digits that matter.
    with np.errstate(over="ignore"):
        table -= table.max()
    # t is at least what it would be if every cell stayed; those below it are 0.
    near = table[table > -1]
    near = near[near > (near.sum() - 1) / near.size]
    near = np.sort(near)[::-1]
    levels = (np.cumsum(near) - 1) / np.arange(1, near.size + 1)
    kept = int(np.flatnonzero(near > levels)[-1])
    table -= levels[kept]
    np.maximum(table, 0, out=table)
    table /= table.sum()
    return table
