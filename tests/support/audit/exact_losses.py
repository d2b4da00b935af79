"""Exact privacy losses of finite and Gaussian outputs, and the verdict on them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

SLACK = 1e-9
"""Relative: claims are held against figures that a float can hold."""

_DIGITS = 40
_HALVINGS = 60

Pair = tuple[float, float]
"""An outcome's probability in either world."""


Figure = Callable[[float, float], float]
"""What a transcript of probability p here and q there adds to a figure."""


class PrivacyViolationError(AssertionError):
    """Two worlds can be told apart better than the account claims."""


def hockey_stick(epsilon: float) -> Figure:
    """Return what adds up to the hockey-stick divergence."""
    factor = math.exp(epsilon)
    return lambda p, q: max(p - factor * q, 0.0)


def renyi_moment(order: float) -> Figure:
    """Return what adds up to exp((order - 1) times the Renyi divergence)."""

    def moment(p: float, q: float) -> float:
        if p == 0:
            return 0.0
        return math.inf if q == 0 else p * (p / q) ** (order - 1)

    return moment


def require(measured: float, claimed: float, what: Callable[[], Any]) -> None:
    """Raise `PrivacyViolationError` where a measured delta is above the claimed one."""
    if measured > claimed * (1 + SLACK):
        raise PrivacyViolationError(f"delta {measured:.4g} > {claimed:.4g}: {what()}")
