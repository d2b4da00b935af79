"""Exact laws and divergences of releases that have finitely many outcomes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import mpmath as mp

Law = Mapping[Hashable, mp.mpf]
"""The probability of each outcome."""


def renyi(p: Law, q: Law, order: float) -> mp.mpf:
    """Return the Renyi divergence of two laws, perhaps infinite, in 60 digits."""
    with mp.workdps(60):
        a, total = mp.mpf(order), mp.mpf(0)
        for outcome, mass in p.items():
            if mass == 0:
                continue
            if not q.get(outcome):
                return mp.inf
            total += mass**a * q[outcome] ** (1 - a)
        return mp.log(total) / (a - 1)


def worst(p: Law, q: Law, order: float) -> mp.mpf:
    """Return the larger divergence of the two orders."""
    return max(renyi(p, q, order), renyi(q, p, order))


def delta(p: Law, q: Law, epsilon: float) -> mp.mpf:
    """Return the exact delta at epsilon, in the worse order."""
    with mp.workdps(60):
        e = mp.exp(mp.mpf(epsilon))
        both = {*p, *q}
        one = mp.fsum(max(0, p.get(o, 0) - e * q.get(o, 0)) for o in both)
        other = mp.fsum(max(0, q.get(o, 0) - e * p.get(o, 0)) for o in both)
        return max(one, other)


def product(*laws: Law) -> Law:
    """Return the law of independent outcomes together."""
    found: dict[Hashable, mp.mpf] = {(): mp.mpf(1)}
    with mp.workdps(60):
        for law in laws:
            found = {
                (*so_far, outcome): mass * own  # type: ignore[misc]
                for so_far, mass in found.items()
                for outcome, own in law.items()
            }
    return found


def mixture(rate: Any, p: Law, q: Law) -> Law:
    """Return (1 - rate) p + rate q."""
    with mp.workdps(60):
        r = mp.mpf(rate)
        return {
            o: (1 - r) * p.get(o, mp.mpf(0)) + r * q.get(o, mp.mpf(0)) for o in {*p, *q}
        }


def bit(probability: Any, *outcomes: Hashable) -> Law:
    """Return the law of a bit with a rational probability: of True, or the first."""
    one, zero = outcomes or (True, False)
    with mp.workdps(60):
        p = mp.mpf(probability.numerator) / probability.denominator
        return {one: p, zero: 1 - p}


def claimed(order: float, divergence: Any, failure: Any, epsilon: float) -> mp.mpf:
    """Return the delta that a divergence and a failure allow at epsilon.

    Canonne, Kamath, Steinke 2020, Proposition 12, solved for delta.
    """
    with mp.workdps(60):
        a, loss = mp.mpf(order), mp.mpf(divergence)
        own = mp.exp((a - 1) * (loss - epsilon)) / (a - 1) * (1 - 1 / a) ** a
        return min(mp.mpf(1), failure + (1 - mp.mpf(failure)) * own)
