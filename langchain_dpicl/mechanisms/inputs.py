"""Checks of the data that mechanisms are given.

The data are private, so no message holds a value: messages name the argument, the
rule it breaks, and the way out. A check that fails on data is itself visible to the
caller's caller; the parsers of this library build their arguments so that none can.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_dpicl.errors import InvalidParameterError

# Largest count accepted: a count is a number of slots. Keeps sums within 64 bits.
MAX_COUNT = 1 << 32
MAX_DIMENSION = 1_000_000

MASS_TOLERANCE = 1e-5
"""By how much probabilities, computed in single precision, may exceed 1."""


def count_array(counts: Any) -> npt.NDArray[np.int64]:
    """Return a non-empty histogram over a public domain, shape `(d,)`, or refuse it."""
    try:
        array = np.asarray(counts)
    except ValueError:
        # The chain is cut: NumPy's message may quote what it was given.
        raise InvalidParameterError(
            "counts must be a flat sequence of integers."
        ) from None
    if array.ndim != 1:
        raise InvalidParameterError(
            f"counts must be one-dimensional, not of {array.ndim} dimensions."
        )
    if array.size == 0:
        raise InvalidParameterError(
            "counts must not be empty: give one count per member of the public domain, "
            "0 where no answer fell."
        )
    if array.dtype.kind not in "iu":
        raise InvalidParameterError(
            "counts must be integers, one count of answers each, of at most 64 bits; "
            f"not {array.dtype}."
        )
    if int(array.min()) < 0:
        raise InvalidParameterError("counts must not be negative: they count answers.")
    if int(array.max()) > MAX_COUNT:
        raise InvalidParameterError(f"counts must be at most {MAX_COUNT}.")
    return array.astype(np.int64, copy=False)


def count_mapping(counts: Any) -> list[tuple[str, int]]:
    """Return keyword counts as pairs, most frequent first, equal counts by the word.

    An empty mapping is accepted: whether any word was seen is private, and an error
    would tell it.
    """
    if not isinstance(counts, Mapping):
        raise InvalidParameterError(
            f"counts must map words to integers, not be a {type(counts).__name__}."
        )
    pairs: list[tuple[str, int]] = []
    for word, number in counts.items():
        if not isinstance(word, str):
            raise InvalidParameterError("counts must have strings as keys.")
        if isinstance(number, bool) or not isinstance(number, Integral):
            raise InvalidParameterError("counts must be integers: they count answers.")
        if not 0 <= int(number) <= MAX_COUNT:
            raise InvalidParameterError(f"counts must be between 0 and {MAX_COUNT}.")
        pairs.append((word, int(number)))
    return sorted(pairs, key=lambda pair: (-pair[1], pair[0]))


def vector_rows(vectors: Any) -> npt.NDArray[np.float64]:
    """Return a finite float array of shape `(m, D)`, or refuse it; m may be 0."""
    rows = _matrix("vectors", vectors)
    if not bool(np.isfinite(rows).all()):
        raise InvalidParameterError(
            "vectors must be finite: leave out the rows of slots that abstain."
        )
    return rows


def probability_rows(distributions: Any) -> npt.NDArray[np.float64]:
    """Return an array of shape `(m, K)`, nonnegative, rows of at most 1 in all."""
    rows = _matrix("distributions", distributions)
    # Written so that a NaN fails both comparisons.
    with np.errstate(over="ignore", invalid="ignore"):
        within = rows.sum(axis=1) <= 1 + MASS_TOLERANCE
        if rows.size and not bool(rows.min() >= 0 and within.all()):
            raise InvalidParameterError(
                "distributions must be probabilities, at most 1 in all per row: leave "
                "out the rows of slots that abstain, as `token_distribution` does."
            )
    return rows


def index_array(name: str, indices: Any) -> npt.NDArray[np.integer]:
    """Return public indices, at least one of them, shape `(k,)`."""
    array = np.asarray(indices)
    if array.ndim != 1 or array.size == 0 or array.dtype.kind not in "iu":
        raise InvalidParameterError(
            f"{name} must be a flat sequence of one index or more."
        )
    if int(array.min()) < 0:
        raise InvalidParameterError(f"{name} must not be negative.")
    return array


def _matrix(name: str, rows: Any) -> npt.NDArray[np.float64]:
    try:
        array = np.asarray(rows)
    except ValueError:
        raise InvalidParameterError(
            f"{name} must be rows of one length, one row per answering slot."
        ) from None
    if array.ndim != 2 or array.shape[1] == 0:  # noqa: PLR2004  # Rows and columns.
        raise InvalidParameterError(
            f"{name} must have shape (m, D) with D of at least 1; for no rows give "
            "numpy.empty((0, D))."
        )
    if array.dtype.kind not in "fiu":
        raise InvalidParameterError(f"{name} must be real numbers, not {array.dtype}.")
    if array.shape[1] > MAX_DIMENSION:
        raise InvalidParameterError(
            f"{name} must have at most {MAX_DIMENSION} columns."
        )
    return array.astype(np.float64, copy=False)
