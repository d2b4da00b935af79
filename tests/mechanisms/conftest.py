"""The statistical checks that the tests of the mechanisms share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping

import numpy as np
import pytest
from scipy import stats

SIGNIFICANCE = 1e-6

Fits = Callable[[Iterable[Hashable], Mapping[Hashable, float]], bool]


@pytest.fixture
def fits() -> Fits:
    """Whether draws follow a discrete distribution: chi-square at 1e-6.

    Outcomes with fewer than ten expected draws are pooled. Mass that the distribution
    does not list is an outcome of its own.
    """

    def check(draws: Iterable[Hashable], law: Mapping[Hashable, float]) -> bool:
        seen = Counter(draws)
        n = seen.total()
        assert sum(law.values()) < 1 + 1e-9
        big = [outcome for outcome, p in law.items() if n * p >= 10]
        observed = [seen[outcome] for outcome in big]
        expected = [n * law[outcome] for outcome in big]
        rest = max(n - sum(expected), 0.0)
        if rest >= 10:
            observed.append(n - sum(observed))
            expected.append(rest)
        elif n - sum(observed) > 60:
            return False
        else:
            # Too little mass for a cell of its own: compare among the listed.
            expected = list(np.array(expected) * (sum(observed) / sum(expected)))
        if len(observed) == 1:
            return True
        return bool(stats.chisquare(observed, expected).pvalue > SIGNIFICANCE)

    return check


@pytest.fixture
def is_gaussian() -> Callable[[np.ndarray, float], bool]:
    """Whether noise is N(0, sigma^2): its scale (chi-square) and its shape (KS)."""

    def check(noise: np.ndarray, sigma: float) -> bool:
        energy = float(np.sum((noise / sigma) ** 2))
        n = noise.size
        tail = min(stats.chi2.cdf(energy, n), stats.chi2.sf(energy, n))
        shape = stats.kstest(noise / sigma, "norm").pvalue
        return bool(2 * tail > SIGNIFICANCE and shape > SIGNIFICANCE)

    return check
