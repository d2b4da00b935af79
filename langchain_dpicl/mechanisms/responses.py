"""Randomized response: a value of a public domain, reported with deniability.

Warner, *Randomized Response*, JASA 1965, for d = 2; Kairouz, Bonawitz, Ramage,
*Discrete Distribution Estimation under Local Privacy*, ICML 2016, for all d.

Input         One value of d, 0 to d - 1.
Neighbors     Any true value may be exchanged for any other, in the local model.
Sensitivity   There is none, and no aggregate: the collector learns nothing but the
              reports.
Noise         The true value is reported with probability p = e^eps / (d - 1 + e^eps),
              each of the others with q = 1 / (d - 1 + e^eps).
              *Exactly:* trial i compares U_i with p, which is irrational for every
              float eps (see `exact`). p in floating point is wrong by a few units of
              2^-53: its one exponential is at most 1, it is multiplied by an exact
              integer below 2^53, and the errors of the terms of 1 + x are damped by 1 /
              (1 + x)^2. A lie is the true value plus a uniform shift of 1 .. d - 1,
              modulo d: each other value is equally likely. Which trials are decided
              late, or lie, does not depend on the true values.
              *Nobody there:* `null_reports` says each value with probability 1 / d.
Event         Pure(epsilon): a report has probability p or q, whatever the true value,
              and p / q = e^eps. Several reports of one unit cost the sum. Against a
              null report it is no more: q <= 1 / d <= p, since p + (d - 1) q = 1. So
              where the number of reports is fixed and public, they are told without
              their order, and the reports of a unit that is not there are null, the
              same event holds for a unit that is added or removed.
What is free  Every estimate from the reports; p and q are public.
Tested by     `tests/unit_tests/laws`: the law, with half the noise as the twin.
              `tests/mechanisms/test_exact.py`: words on the edge of p.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from mpmath import libmp

from langchain_dpicl.accounting.events import Charge, Pure
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import inputs
from langchain_dpicl.mechanisms.exact import GUARD_BITS, Bound, Integers, bernoulli
from langchain_dpicl.mechanisms.random import current

MAX_DOMAIN_SIZE = 1 << 52
"""Largest domain: its size is exact as a float, and shifted codes fit 64 bits."""

_BLOCK = 1 << 17
"""Codes that are reported at once; bounds what the trials need of memory."""


def charge(*, epsilon: float | None = None, name: str = "reports") -> Charge:
    """Return what all reports about one person cost: pure epsilon, of their sum."""
    return Charge(name=name, parts=(Pure(epsilon=epsilon),))


def response_chances(epsilon: float, domain_size: int) -> tuple[float, float]:
    """Return the probabilities of the true value and of each other value.

    Args:
        epsilon: Privacy loss bound of one report; any finite number above 0.
        domain_size: Number of values d, at least 2.

    Returns:
        p = e^eps / (d - 1 + e^eps) and q = 1 / (d - 1 + e^eps), to within a few
        units in the last place. q is 0.0 where it is below what a float can hold.

    Example:
        >>> p, q = response_chances(math.log(3), domain_size=2)
        >>> round(p, 12), round(q, 12)
        (0.75, 0.25)
    """
    # Written with exp(-eps), which can't overflow.
    decay = math.exp(-parameters.epsilon(epsilon))
    whole = 1.0 + (_checked_size(domain_size) - 1) * decay
    return 1.0 / whole, decay / whole


def randomize(codes: npt.ArrayLike, *, domain_size: int, epsilon: float) -> Integers:
    """Report every code by k-ary randomized response, independently.

    Args:
        codes: Integers in 0 .. domain_size - 1, of any shape. Private.
        domain_size: Number of values d, at least 2. Public.
        epsilon: Privacy loss bound of each report: its part of what a person pays.

    Returns:
        The reports, integers in 0 .. domain_size - 1, in the shape of `codes`.

    Example:
        >>> randomize([[0, 1], [2, 2]], domain_size=3, epsilon=1.0).shape
        (2, 2)
        >>> randomize([0, 1, 2], domain_size=3, epsilon=1000.0).tolist()
        [0, 1, 2]
    """
    size = _checked_size(domain_size)
    chance, _ = response_chances(epsilon, size)
    exact = _exact_chance(Fraction(parameters.epsilon(epsilon)), size)
    true = _checked_codes(codes, size)
    reports = true.reshape(-1)
    for start in range(0, reports.size, _BLOCK):
        block = reports[start : start + _BLOCK]
        truthful = bernoulli(np.full(block.size, chance), lambda _: exact)
        lies = np.flatnonzero(~truthful)
        shifts = current().integers(lies.size, size - 1) + 1
        block[lies] = (block[lies] + shifts) % size
    return reports.reshape(true.shape)


def null_reports(count: int, *, domain_size: int) -> Integers:
    """Return reports in place of values that nobody gave: uniform, drawn exactly.

    Args:
        count: How many. Private: it is told with other reports, and never alone.
        domain_size: Number of values d, at least 2. Public.

    Example:
        >>> null_reports(4, domain_size=3).shape
        (4,)
    """
    return current().integers(count, _checked_size(domain_size))


def _exact_chance(loss: Fraction, size: int) -> Bound:
    """Return p as a bound: 1 / (1 + (d - 1) e^-loss)."""

    def bound(bits: int) -> int:
        # The exponent's relative error is multiplied by epsilon: its bits are added.
        precision = bits + GUARD_BITS
        exponent = libmp.from_rational(
            -loss.numerator, loss.denominator, precision + int(loss).bit_length()
        )
        decay = libmp.mpf_exp(exponent, precision)
        lies = libmp.mpf_mul(libmp.from_int(size - 1), decay, precision)
        whole = libmp.mpf_add(libmp.fone, lies, precision)
        return int(libmp.to_fixed(libmp.mpf_div(libmp.fone, whole, precision), bits))

    return bound


def _checked_size(domain_size: Any) -> int:
    size = parameters.count(domain_size, "domain_size", minimum=2)
    if size > MAX_DOMAIN_SIZE:
        raise InvalidParameterError("domain_size must be at most 2**52.")
    return size


def _checked_codes(codes: Any, size: int) -> Integers:
    """Return a contiguous copy of the codes, each in the domain."""
    array = inputs.integers("codes", codes)
    if array.size and not 0 <= int(array.min()) <= int(array.max()) < size:
        raise InvalidParameterError(
            "codes must be between 0 and domain_size - 1: positions in the public "
            "domain."
        )
    return np.array(array, dtype=np.int64, order="C")
