"""Randomized response: a value of a public domain, reported with deniability.

**What it is.** The domain has d values, 0 to d - 1. The true value is reported with
probability p = e^eps / (d - 1 + e^eps), each of the others with q = 1 / (d - 1 +
e^eps). This is k-ary randomized response: Warner, *Randomized Response*, JASA 1965, for
d = 2; Kairouz, Bonawitz and Ramage, *Discrete Distribution Estimation under Local
Privacy*, ICML 2016, for all d.

*Sensitivity.* There is none, and no aggregate: the collector learns nothing but the
reports. Any true value may be exchanged for any other.

*Noise.* A report has probability p or q, whatever the true value, and p / q = e^eps. So
any two true values give any report with probabilities that differ by a factor of e^eps
at most: pure epsilon local differential privacy.

*Event* (`reports_template`). Several reports of one unit cost the sum of their
epsilons.

**How it is drawn, exactly.** Trial i compares U_i ~ Uniform[0, 1) with p, which is
irrational for every float eps, and draws further bits of U_i where 64 don't decide
(`exponential_trials.py`). p in floating point is wrong by a few units of 2^-53: its
one exponential is at most 1, it is multiplied by an exact integer below 2^53, and the
errors of the terms of 1 + x are damped by 1 / (1 + x)^2. A lie is the true value plus
a uniform shift of 1 .. d - 1, modulo d: each other value is equally likely. Which
trials are decided late, or lie, does not depend on the true values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_dpicl.accounting.parts import PurePart
from langchain_dpicl.accounting.template import EventTemplate
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.exponential_trials import succeed
from langchain_dpicl.mechanisms.lazy_uniform import GUARD_BITS
from langchain_dpicl.mechanisms.noise import PureNoise
from langchain_dpicl.mechanisms.source import SecureRandom, checked_source

# Largest domain: its size is exact as a float, and shifted codes fit 64 bits.
MAX_DOMAIN_SIZE = 1 << 52
_BLOCK = 1 << 17
"""Codes that are reported at once; bounds what the trials need of memory."""


def response_chances(epsilon: float, domain_size: int) -> tuple[float, float]:
    """Return the probabilities of the true value and of each other value.

    Args:
        epsilon: Privacy loss bound of one report; any finite number above 0.
        domain_size: Number of values d, at least 2.

    Returns:
        p = e^eps / (d - 1 + e^eps) and q = 1 / (d - 1 + e^eps), to within a few
        units in the last place. q is 0.0 where it is below what a float can hold.

    Raises:
        InvalidParameterError: If an argument is out of its range.

    Example:
        >>> p, q = response_chances(math.log(3), domain_size=2)
        >>> round(p, 12), round(q, 12)
        (0.75, 0.25)
        >>> response_chances(1e6, domain_size=10)
        (1.0, 0.0)
    """
    others = _checked_size(domain_size) - 1
    # Written with exp(-eps), which can't overflow.
    decay = math.exp(-parameters.epsilon(epsilon))
    whole = 1.0 + others * decay
    return 1.0 / whole, decay / whole


def reports_template(
    mechanism: str, epsilon: float | None = None
) -> EventTemplate[PureNoise]:
    """Return what all reports about one person are charged: pure epsilon."""
    return EventTemplate(mechanism, (PurePart(epsilon),), PureNoise)


def randomize(
    codes: npt.ArrayLike,
    *,
    domain_size: int,
    epsilon: float,
    random: SecureRandom | None = None,
) -> npt.NDArray[np.int64]:
    """Report every code by k-ary randomized response, independently.

    Args:
        codes: Integers in 0 .. domain_size - 1, of any shape. Private.
        domain_size: Number of values d, at least 2. Public.
        epsilon: Privacy loss bound of each report.
        random: Source of the draws; None is the operating system's.

    Returns:
        The reports, integers in 0 .. domain_size - 1, in the shape of `codes`.

    Raises:
        InvalidParameterError: If an argument is malformed. Messages hold no code.

    Privacy:
        Unit: one code, in the local model. Relation: any two codes. Sensitivity:
        none is needed, there is no aggregate. Noise: the true code with probability
        e^eps / (d - 1 + e^eps), any other with 1 / (d - 1 + e^eps), exact. Event:
        pure epsilon a code; a person who reports several pays their sum. Source:
        Warner 1965; Kairouz, Bonawitz, Ramage 2016.

    Example:
        >>> randomize([[0, 1], [2, 2]], domain_size=3, epsilon=1.0).shape
        (2, 2)
        >>> randomize([0, 1, 2], domain_size=3, epsilon=1000.0).tolist()
        [0, 1, 2]
    """
    size = _checked_size(domain_size)
    loss = parameters.epsilon(epsilon)
    true = _checked_codes(codes, size)
    source = checked_source(random)

    reports = true.reshape(-1)
    for start in range(0, reports.size, _BLOCK):
        block = reports[start : start + _BLOCK]
        lies = np.flatnonzero(~_truthful(block.size, size, loss, source))
        shifts = source.integers(lies.size, size - 1) + 1
        block[lies] = (block[lies] + shifts) % size
    return reports.reshape(true.shape)


def _truthful(
    count: int, size: int, epsilon: float, random: SecureRandom
) -> npt.NDArray[np.bool_]:
    """Return independent trials of probability e^eps / (d - 1 + e^eps), exactly."""
    exact = _exact_chance(epsilon, size)
    return succeed(count, response_chances(epsilon, size)[0], lambda _: exact, random)


def _exact_chance(epsilon: float, size: int) -> Callable[[int], int]:
    """Return p as a bound function for `LazyUniform`: error below 2 units."""
    loss = Fraction(epsilon)

    def bound(bits: int) -> int:
        from mpmath import libmp  # 40 ms that almost no draw needs.

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


def _checked_codes(codes: Any, size: int) -> npt.NDArray[np.int64]:
    """Return a contiguous copy of the codes, each in the domain."""
    try:
        array = np.asarray(codes)
    except (ValueError, OverflowError):
        # The chain is cut: NumPy's message may quote what it was given.
        raise InvalidParameterError("codes must be an array of integers.") from None
    # An empty list has no type of its own: NumPy makes it one of floats.
    if array.size == 0:
        return np.zeros(array.shape, np.int64)
    if array.dtype.kind not in "iu":
        raise InvalidParameterError(
            f"codes must be integers, not {array.dtype}: positions in the public "
            "domain, counted from 0."
        )
    if int(array.min()) < 0 or int(array.max()) >= size:
        raise InvalidParameterError(
            "codes must be between 0 and domain_size - 1: positions in the public "
            "domain."
        )
    return np.array(array, dtype=np.int64, order="C")
