"""Exact laws of releases that have finitely many outcomes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import mpmath as mp

Law = Mapping[Hashable, mp.mpf]
"""The probability of each outcome."""


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
