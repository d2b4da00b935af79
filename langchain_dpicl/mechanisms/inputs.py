"""Checks of what mechanisms are given: the event that was paid, the relation, the data.

The data are private, so no message holds a value: messages name the argument, the rule
it breaks, and the way out. A check that fails on data is itself visible to the caller's
caller; the parsers of this library build their arguments so that none can.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_dpicl.accounting.events import Exponential, Failure, Gaussian, Pure
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError

MAX_COUNT = 1 << 32
"""Largest count accepted: a count is a number of slots. Sums stay within 64 bits."""

MASS_TOLERANCE = 1e-5
"""By how much probabilities, computed in single precision, may exceed 1."""

BLOCK = 1 << 17
"""Numbers that are put on a grid at a time, so that they stay in the cache."""

_MAX_DIMENSION = 1_000_000


def noise_multiplier(paid: Gaussian) -> float:
    """Return z of the Gaussian event that was paid."""
    if not isinstance(paid, Gaussian) or paid.noise_multiplier is None:
        raise InvalidParameterError(
            "paid must be the Gaussian event that was charged, with its "
            "noise_multiplier."
        )
    return paid.noise_multiplier


def epsilon(paid: Pure | Exponential, kind: type[Pure | Exponential]) -> Fraction:
    """Return epsilon of the event that was paid, exactly."""
    if not isinstance(paid, kind) or paid.epsilon is None:
        raise InvalidParameterError(
            f"paid must be the {kind.__name__} event that was charged, with its "
            "epsilon."
        )
    return Fraction(paid.epsilon)


def failure_of(paid: tuple[Gaussian | Pure, Failure]) -> float:
    """Return delta0 of two events of one charge, of which the second is a failure."""
    if not isinstance(paid, tuple) or len(paid) != 2:  # noqa: PLR2004 - a pair
        raise InvalidParameterError("paid must be two events: a test and its Failure.")
    test, failure = paid
    if not isinstance(failure, Failure) or failure.delta0 is None:
        raise InvalidParameterError(
            "paid must end with the Failure that was charged, with its delta0."
        )
    if (test.sampling_rate, test.count) != (failure.sampling_rate, failure.count):
        raise InvalidParameterError("The test and its failure are not of one charge.")
    return failure.delta0


def is_replace(relation: Relation | str) -> bool:
    """Return whether one slot changes, and not: appears or vanishes."""
    if not isinstance(relation, str) or relation not in list(Relation):
        raise InvalidParameterError(
            "relation must be a Relation or one of 'add_remove', 'replace', as the "
            "group source's `relation` says."
        )
    return relation == Relation.REPLACE


def root(square: int) -> float:
    """Return the least float whose square is at least an integer.

    Example:
        >>> root(4), root(2) ** 2 >= 2
        (2.0, True)
    """
    result = math.sqrt(square)
    while Fraction(result) ** 2 < square:
        result = math.nextafter(result, math.inf)
    return result


def at_least(noise_multiplier: float, sensitivity: float) -> float:
    """Return sigma = z times the sensitivity, rounded up, never down."""
    sigma = noise_multiplier * sensitivity
    if Fraction(sigma) < Fraction(noise_multiplier) * Fraction(sensitivity):
        sigma = math.nextafter(sigma, math.inf)
    return sigma


def integers(name: str, given: Any) -> npt.NDArray[Any]:
    """Return what is given as an array of integers of at most 64 bits, or refuse it."""
    try:
        array = np.asarray(given)
    except (ValueError, OverflowError):
        # The chain is cut: NumPy's message may quote what it was given.
        raise InvalidParameterError(f"{name} must be an array of integers.") from None
    # An empty list has no type of its own: NumPy makes it one of floats.
    if array.dtype.kind not in "iu" and array.size:
        raise InvalidParameterError(
            f"{name} must be integers of at most 64 bits, not {array.dtype}."
        )
    return array if array.size else array.astype(np.int64)


def count_array(name: str, counts: Any) -> npt.NDArray[np.int64]:
    """Return counts over a public domain, shape `(d,)` with d of at least 1."""
    array = integers(name, counts)
    if array.ndim != 1 or array.size == 0:
        raise InvalidParameterError(
            f"{name} must be a flat sequence: one count for each member of the public "
            "domain, 0 where no answer fell."
        )
    if int(array.min()) < 0 or int(array.max()) > MAX_COUNT:
        raise InvalidParameterError(f"{name} must be between 0 and {MAX_COUNT}.")
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


def probability_rows(name: str, rows: Any) -> npt.NDArray[np.float64]:
    """Return probabilities, shape `(m, D)`, each row at most 1 in all; m may be 0."""
    try:
        array = np.asarray(rows)
    except ValueError:
        raise InvalidParameterError(
            f"{name} must be rows of one length, one row per answering slot."
        ) from None
    if array.ndim != 2 or not 1 <= array.shape[1] <= _MAX_DIMENSION:  # noqa: PLR2004 - rows and columns
        raise InvalidParameterError(
            f"{name} must have shape (m, D), D from 1 to {_MAX_DIMENSION}; for no rows "
            "give numpy.empty((0, D))."
        )
    if array.dtype.kind not in "fiu":
        raise InvalidParameterError(f"{name} must be real numbers, not {array.dtype}.")
    array = array.astype(np.float64, copy=False)
    # Written so that a NaN fails both comparisons.
    with np.errstate(over="ignore", invalid="ignore"):
        within = array.sum(axis=1) <= 1 + MASS_TOLERANCE
        if array.size and not bool(array.min() >= 0 and within.all()):
            raise InvalidParameterError(
                f"{name} must be probabilities, at most 1 in all per row: leave out "
                "the rows of slots that abstain, as `token_distributions` does."
            )
    return array


def blocks(rows: npt.NDArray[np.float64]) -> Iterator[npt.NDArray[np.float64]]:
    """Yield some rows at a time, of an array whose rows are mapped one by one."""
    height = max(1, BLOCK // rows.shape[1])
    for start in range(0, len(rows), height):
        yield rows[start : start + height]
