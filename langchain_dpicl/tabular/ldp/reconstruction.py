r"""Undo randomized response on average: from the reports' frequencies to the truth's.

Column f of domain size d reports its true value with chance e^eps / (e^eps + d - 1)
and each other value with 1 / (e^eps + d - 1). As a matrix this is

    P_f = a I + b 1 1^T,   a = (e^eps - 1) / (e^eps + d - 1),   b = 1 / (e^eps + d - 1),

and since a + d b = 1 its inverse is (I - b 1 1^T) / a. Columns are randomized
independently, so the matrix of a whole row is the Kronecker product of the columns'
matrices, and so is its inverse. It is applied one axis at a time, in place: a table of
20 binary columns takes 20 passes, where the product would have 2^40 entries.

Everything here is post-processing of reports. It costs no privacy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_dpicl.common.parameters import count
from langchain_dpicl.errors import InvalidParameterError

_Floats = npt.NDArray[np.float64]


def reconstruct(frequencies: Any, epsilons: Sequence[float]) -> _Floats:
    """Return the unbiased estimate of the true frequencies behind randomized reports.

    pi = (P_1 x ... x P_F)^-1 lambda, where lambda are the reports' frequencies. The
    estimate sums to what `frequencies` sums to; single cells may be negative, and
    stay so: `project_to_simplex` makes a distribution of it.

    Args:
        frequencies: Table with one axis per column; shape `(d_1, ..., d_F)`. Counts
            do as well: the map is linear, and the estimate is of counts then.
        epsilons: The budget each column was randomized with, one per axis, in the
            order of the axes; `math.inf` for a column that was not randomized.

    Returns:
        An array of the same shape.

    Raises:
        InvalidParameterError: If the table is not of finite real numbers, or an epsilon
            is not above 0, or there is not one of them per axis.

    Privacy:
        Post-processing of reports: no further cost. Carey, Bhaila, Edemacu and Wu,
        *DP-TabICL*, 2024, Algorithm 1; the closed inverse replaces their matrix.

    Example:
        >>> reports = np.array([0.6, 0.4])  # Of a column that is always 0.
        >>> reconstruct(reports, [math.log(1.5)]).round(6) + 0
        array([1., 0.])
    """
    table = checked_table(frequencies)
    budgets = checked_epsilons(epsilons, table.ndim)
    shares, gain = [], 1.0
    for size, epsilon in zip(table.shape, budgets, strict=True):
        agree, other = response_terms(size, epsilon)
        shares.append(-other)
        gain /= agree
    _mix_axes(table, shares)
    return _scaled(table, gain)


def standard_errors(frequencies: Any, epsilons: Sequence[float], n: int) -> _Floats:
    """Return the standard error of every cell that `reconstruct` estimates.

    The reports of n independent rows are multinomial, and pi = A lambda with
    A = (P_1 x ... x P_F)^-1, so Var(pi) = ((A * A) lambda - pi^2) / n, cell by cell.
    A * A, the inverse with squared entries, is a Kronecker product too, and is
    applied axis by axis. The error holds both the randomness of the responses and
    that of which rows were met.

    Args:
        frequencies: The reports' frequencies or counts, nonnegative. They are scaled
            to sum to 1.
        epsilons: One per axis, as for `reconstruct`.
        n: Number of reports, at least 1.

    Returns:
        An array of the same shape, of errors of frequencies (not of counts).

    Raises:
        InvalidParameterError: As for `reconstruct`; or a frequency is negative, or all
            are 0, or `n` is below 1.

    Example:
        >>> standard_errors([50, 50], [math.inf], 100)
        array([0.05, 0.05])
    """
    table, budgets, n = _checked_reports(frequencies, epsilons, n)
    estimate = reconstruct(table, budgets)
    variance: _Floats = _second_moment(table, budgets) - estimate**2
    return np.sqrt(np.maximum(variance, 0) / n)


def checked_table(values: Any, name: str = "frequencies") -> _Floats:
    """Return a fresh, contiguous float table of one axis or more, no axis empty.

    Raises:
        InvalidParameterError: If it is ragged, not of finite real numbers, or empty.
    """
    try:
        array = np.asarray(values)
    except ValueError:
        # The chain is cut: NumPy's message may quote what it was given.
        raise InvalidParameterError(
            f"{name} must be a table, not ragged lists."
        ) from None
    if array.ndim == 0 or array.size == 0:
        raise InvalidParameterError(
            f"{name} must have one axis per column, each of the column's size."
        )
    if array.dtype.kind not in "fiu":
        raise InvalidParameterError(f"{name} must be real numbers, not {array.dtype}.")
    table = np.array(array, dtype=np.float64, order="C")
    if not bool(np.isfinite(table).all()):
        raise InvalidParameterError(f"{name} must be finite.")
    return table


def checked_epsilons(epsilons: Any, columns: int) -> tuple[float, ...]:
    """Return one epsilon per column, each above 0; infinity stands for no noise.

    Raises:
        InvalidParameterError: If one is missing, not a number, or not above 0.

    Example:
        >>> checked_epsilons([1, math.inf], 2)
        (1.0, inf)
    """
    try:
        given = list(epsilons)
    except TypeError:
        raise InvalidParameterError(
            "epsilons must be a sequence, one per column."
        ) from None
    if len(given) != columns:
        raise InvalidParameterError(
            f"epsilons must hold one value per column: {columns}, not {len(given)}."
        )
    for axis, value in enumerate(given):
        if isinstance(value, bool) or not isinstance(value, Real):
            raise InvalidParameterError(
                f"epsilons[{axis}] must be a number, not {type(value).__name__}."
            )
        # Written so that NaN fails.
        if not float(value) > 0:
            raise InvalidParameterError(
                f"epsilons[{axis}] must be greater than 0, not {float(value):g}."
            )
    return tuple(float(value) for value in given)


def _checked_reports(
    frequencies: Any, epsilons: Any, n: Any
) -> tuple[_Floats, tuple[float, ...], int]:
    table = checked_table(frequencies)
    budgets = checked_epsilons(epsilons, table.ndim)
    n = count(n, "n")
    if float(table.min()) < 0:
        raise InvalidParameterError(
            "frequencies must not be negative: they are of reports."
        )
    total = float(table.sum())
    if not 0 < total < math.inf:
        raise InvalidParameterError(
            "frequencies must not all be 0, and have a finite sum."
        )
    table /= total
    return table, budgets, n


def response_terms(size: int, epsilon: float) -> tuple[float, float]:
    """Return a and b of P = a I + b 11^T, without overflow for any epsilon.

    A column of one value cannot be randomized, so P = 1 whatever epsilon is.

    Example:
        >>> response_terms(4, math.inf)
        (1.0, 0.0)
    """
    if size == 1:
        return 1.0, 0.0
    shrink = math.exp(-epsilon)
    whole = 1 + (size - 1) * shrink
    return -math.expm1(-epsilon) / whole, shrink / whole


def _second_moment(frequencies: _Floats, epsilons: Sequence[float]) -> _Floats:
    """Return (A * A) lambda, where A is the inverse: its entries are squared.

    On one axis the squares are (1 - b)^2 / a^2 on the diagonal and b^2 / a^2 beside
    it, that is (1 - 2b) / a^2 times (I + b^2 / (1 - 2b) 11^T).
    """
    table = frequencies.copy()
    shares, gain = [], 1.0
    for size, epsilon in zip(table.shape, epsilons, strict=True):
        agree, other = response_terms(size, epsilon)
        # 1 - 2b = a + (d - 2) b: no difference of near numbers where a is tiny.
        rest = agree + (size - 2) * other if size > 1 else 1.0
        shares.append(other * other / rest)
        gain *= rest / agree / agree
    _mix_axes(table, shares)
    return _scaled(table, gain)


def _scaled(table: _Floats, gain: float) -> _Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        table *= gain
    if not bool(np.isfinite(table).all()):
        raise InvalidParameterError(
            "epsilons are so small that the estimate has no finite value: reports say "
            "nothing at this budget. Give more budget or fewer columns."
        )
    return table


def _mix_axes(table: _Floats, shares: Sequence[float]) -> None:
    """Apply I + share 11^T along every axis, in place.

    Passes over trailing axes would step through memory one number at a time. So the
    table is seen as a matrix, leading axes by trailing axes, and is transposed between
    the two halves: every pass then works on long contiguous runs.
    """
    sizes = table.shape
    half, rows = 0, 1
    while half < len(sizes) - 1 and rows * rows < table.size:
        rows *= sizes[half]
        half += 1
    half = max(half, 1)
    rows = math.prod(sizes[:half])
    matrix = table.reshape(rows, -1)
    _mix_leading(matrix, sizes[:half], shares[:half])
    if half < len(sizes):
        turned = np.ascontiguousarray(matrix.T)
        _mix_leading(turned, sizes[half:], shares[half:])
        matrix[...] = turned.T


def _mix_leading(
    matrix: _Floats, sizes: Sequence[int], shares: Sequence[float]
) -> None:
    left, right = 1, matrix.size
    for size, share in zip(sizes, shares, strict=True):
        right //= size
        if share:
            runs = matrix.reshape(left, size, right)
            # Two slices are added faster than an axis of two is summed.
            both = size == 2  # noqa: PLR2004
            totals = runs[:, 0] + runs[:, 1] if both else runs.sum(axis=1)
            totals *= share
            runs += totals[:, None, :]
        left *= size
