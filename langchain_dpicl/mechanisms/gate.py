"""A noisy threshold on whole counts: what propose-test-release and word thresholds use.

Input         A whole count v, and a public T. Two worlds of a neighbor pair have counts
              v and v'.
Sensitivity   That of v, and so of max(T, v).
Noise         K = round(N(0, sigma^2)) on a public grid, sigma = z times the
              sensitivity, rounded up; or discrete Laplace on whole counts, of scale
              sensitivity / epsilon. And t, the least quantile of K *as drawn* with
              P(K > t) <= the failure's probability. Pass if max(T, v) + K - t > T.
Event         Where v = T or less, it passes with probability P(K > t) at most. The
              mechanisms that use it say what follows from that.
What is free  The gate itself: everything in it is a function of public numbers.
Tested by     `tests/mechanisms/test_releases.py`: the law against mpmath. The net
              (`tests/unit_tests/laws`) has the quantile of another noise as the twin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.exact import (
    DiscreteLaplace,
    RoundedGaussian,
    count_grid,
)
from langchain_dpicl.mechanisms.inputs import MAX_COUNT

_LEAST_FAILURE = 1e-300


@dataclass(frozen=True)
class Gate:
    """The test in grid steps, `weight` a count."""

    threshold: int
    weight: int
    noise: RoundedGaussian | DiscreteLaplace
    quantile: int

    @classmethod
    def gaussian(cls, sigma: float, failure: float, threshold: int) -> Gate:
        """Return the test with rounded Gaussian noise; `failure` is P(K > t)."""
        weight, noise = count_grid(sigma)
        return cls.of(noise, failure, threshold, weight)

    @classmethod
    def of(
        cls,
        noise: RoundedGaussian | DiscreteLaplace,
        failure: float,
        threshold: int,
        weight: int = 1,
    ) -> Gate:
        """Return the test for a law of noise, in grid steps."""
        if not _LEAST_FAILURE <= failure < 1:
            raise InvalidParameterError(
                "The failure that was paid is too small to draw with, or 1: delta0 "
                f"must be at least {_LEAST_FAILURE:g} for each word, and below 1."
            )
        return cls(threshold, weight, noise, noise.upper_quantile(failure))

    def passes(self, values: Any, noise: Any) -> Any:
        """Return whether counts of T or more pass with this noise; arrays or numbers.

        int64 holds it: a weight of at most 2^29 times a count of at most 2^32.
        """
        return self.weight * (values - self.threshold) + noise > self.quantile

    def words(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Return the noisy counts of the words that pass, in grid steps, largest first.

        Each word has noise of its own. Equal noisy counts go by the word.
        """
        seen = sorted(counts.items())
        numbers = np.array([count for _, count in seen], np.int64)
        noise = self.noise.draw(len(seen))
        passed = self.passes(numbers, noise).tolist()
        noisy = (self.weight * numbers + noise).tolist()
        released = {
            word: count
            for (word, _), count, out in zip(seen, noisy, passed, strict=True)
            if out
        }
        return dict(sorted(released.items(), key=lambda pair: -pair[1]))

    def pass_rate(self, value: float) -> float:
        """Return how often a count passes, exactly. For planning, on an assumed one."""
        number = parameters.finite("count", value)
        if not 0 <= number <= MAX_COUNT:
            raise InvalidParameterError(f"count must be between 0 and {MAX_COUNT}.")
        excess = self.weight * (max(self.threshold, number) - self.threshold)
        return float(self.noise.reaches(math.floor(self.quantile - excess) + 1))

    def required(self, pass_rate: float, least: int) -> int:
        """Return the least whole count that passes so often, `least` or more."""
        rate = parameters.delta(pass_rate, "pass_rate")
        # P(K >= t + 1 - e) >= rate iff P(K > e - t - 1) <= 1 - rate, by symmetry.
        excess = self.quantile + self.noise.upper_quantile(1 - rate) + 1
        return max(least, self.threshold + math.ceil(excess / self.weight))
