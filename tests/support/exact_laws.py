"""Exact laws of releases, by formulas of their own, and whether draws keep to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import mpmath as mp
import numpy as np
from scipy import stats

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


def keeps_to(drawn: Iterable[Hashable], law: Mapping[Hashable, Any]) -> bool:
    """Return whether draws keep to a law, by a chi-square test at one in a million."""
    seen = Counter(drawn)
    count = seen.total()
    if not set(seen) <= {outcome for outcome, mass in law.items() if mass > 0}:
        return False
    pairs = sorted((float(mass) * count, seen[o]) for o, mass in law.items())
    expected, found = (np.array(side) for side in zip(*pairs, strict=True))
    # Rare outcomes, and those beyond what is listed, share a cell.
    rare = int(np.searchsorted(np.cumsum(expected), 5)) + 1
    expected = np.array([count - expected[rare:].sum(), *expected[rare:]])
    found = np.array([count - found[rare:].sum(), *found[rare:]])
    score = float(((found - expected) ** 2 / np.maximum(expected, 1e-9)).sum())
    return bool(stats.chi2.sf(score, max(1, len(expected) - 1)) > 1e-6)


def gaussian_steps(sigma: float, far: int = 0) -> dict[Hashable, mp.mpf]:
    """Return the law of round(N(0, sigma^2))."""
    far = far or int(8 * sigma) + 2
    with mp.workdps(40):
        root = mp.mpf(sigma) * mp.sqrt(2)
        edges = [mp.erf((j - mp.mpf("0.5")) / root) / 2 for j in range(-far, far + 2)]
        pairs = pairwise(edges)
        return {j - far: b - a for j, (a, b) in enumerate(pairs)}


def laplace_steps(scale: float, far: int = 0) -> dict[Hashable, mp.mpf]:
    """Return the law proportional to exp(-|k| / scale)."""
    far = far or int(25 * scale) + 2
    with mp.workdps(40):
        decay = mp.exp(-1 / mp.mpf(scale))
        flat = (1 - decay) / (1 + decay)
        return {k: flat * decay ** abs(k) for k in range(-far, far + 1)}
