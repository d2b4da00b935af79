"""Checks of public parameters, shared by everything that computes with numbers.

Every value named in a message is a public parameter, never private data.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from langchain_dpicl.errors import InvalidParameterError

MIN_NOISE_MULTIPLIER = 1e-6
MAX_NOISE_MULTIPLIER = 1e6
MAX_INTEGER = 2**63 - 1
"""Largest count: what an index, a column of a database or an array can still hold."""


def finite(name: str, value: Any) -> float:
    """Return `value` as a float; refuse, by the name, what is no finite real number.

    Example:
        >>> finite("epsilon", 2)
        2.0
    """
    number = _real(name, value)
    if not math.isfinite(number):
        raise InvalidParameterError(f"{name} must be finite, not {number}.")
    return number


def positive(name: str, value: Any) -> float:
    """Return `value` as a float, refusing what is not finite and above 0.

    Example:
        >>> positive("radius", 0.5)
        0.5
    """
    number = finite(name, value)
    if number <= 0:
        raise InvalidParameterError(f"{name} must be greater than 0, not {number:g}.")
    return number


def extended(name: str, value: Any) -> float:
    """Return `value` as a float of 0 or more; it may be infinite.

    Example:
        >>> extended("rho", math.inf)
        inf
    """
    number = _real(name, value)
    if math.isnan(number) or number < 0:
        raise InvalidParameterError(f"{name} must be 0 or more, not {number:g}.")
    return number


def epsilon(value: Any, name: str = "epsilon") -> float:
    """Return a privacy loss bound: finite and greater than 0."""
    return positive(name, value)


def delta(value: Any, name: str = "delta") -> float:
    """Return a failure probability: strictly between 0 and 1."""
    number = finite(name, value)
    if not 0 < number < 1:
        raise InvalidParameterError(
            f"{name} must be strictly between 0 and 1, not {number:g}. "
            "Choose it below 1 / (number of units)."
        )
    return number


def noise_multiplier(value: Any, name: str = "noise_multiplier") -> float:
    """Return a noise multiplier z = sigma / sensitivity that can be drawn."""
    number = finite(name, value)
    if not MIN_NOISE_MULTIPLIER <= number <= MAX_NOISE_MULTIPLIER:
        raise InvalidParameterError(
            f"{name} must be between {MIN_NOISE_MULTIPLIER:g} and "
            f"{MAX_NOISE_MULTIPLIER:g}, not {number:g}."
        )
    return number


def sampling_rate(value: Any, name: str = "sampling_rate") -> float:
    """Return a Poisson sampling rate: greater than 0 and at most 1."""
    number = finite(name, value)
    if not 0 < number <= 1:
        raise InvalidParameterError(
            f"{name} must be greater than 0 and at most 1, not {number:g}."
        )
    return number


def count(value: Any, name: str, *, minimum: int = 1, unbounded: bool = False) -> int:
    """Return an integer of at least `minimum`, and of at most `MAX_INTEGER` if bounded.

    Example:
        >>> count(3, "k")
        3
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidParameterError(
            f"{name} must be an integer, not {type(value).__name__}."
        )
    number = int(value)
    if number < -MAX_INTEGER or (number > MAX_INTEGER and not unbounded):
        # Not shown: Python refuses to write down an integer of thousands of digits.
        raise InvalidParameterError(f"{name} must be from {minimum} to {MAX_INTEGER}.")
    if number < minimum:
        raise InvalidParameterError(f"{name} must be at least {minimum}, not {number}.")
    return number


def _real(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidParameterError(
            f"{name} must be a number, not {type(value).__name__}."
        )
    try:
        return float(value)
    except OverflowError:
        return math.inf if abs(value) == value else -math.inf
