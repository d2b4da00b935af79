"""Randomized response and its matrices written out plainly, for the tests of the fit.

It is independent of the package's own mechanism on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def response_matrix(size: int, epsilon: float) -> np.ndarray:
    other = 1 / (np.exp(epsilon) + size - 1)
    matrix = np.full((size, size), other)
    np.fill_diagonal(matrix, np.exp(epsilon) * other)
    return matrix


def randomized(
    codes: np.ndarray,
    sizes: Sequence[int],
    epsilons: Sequence[float],
    rng: np.random.Generator,
) -> np.ndarray:
    reports = codes.copy()
    for column, (size, epsilon) in enumerate(zip(sizes, epsilons, strict=True)):
        keep = 1 / (1 + (size - 1) * np.exp(-epsilon))
        lies = rng.random(len(codes)) >= keep
        shift = rng.integers(1, size, len(codes))
        reports[lies, column] = (codes[lies, column] + shift[lies]) % size
    return reports


def chain(
    sizes: Sequence[int], n: int, stick: float, rng: np.random.Generator
) -> np.ndarray:
    """A planted Markov chain: each column mostly follows the one before."""
    codes = np.empty((n, len(sizes)), dtype=np.int64)
    codes[:, 0] = rng.integers(0, sizes[0], n)
    for column in range(1, len(sizes)):
        size = sizes[column]
        follow = codes[:, column - 1] * size // sizes[column - 1]
        fresh = rng.integers(0, size, n)
        codes[:, column] = np.where(rng.random(n) < stick, follow, fresh)
    return codes


def table_of(codes: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    counts = np.zeros(tuple(sizes))
    np.add.at(counts, tuple(codes.T), 1)
    return counts / len(codes)
