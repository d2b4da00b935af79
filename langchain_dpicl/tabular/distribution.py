"""Distributions that rows are drawn from: one joint table, or the label first.

A row is an array of codes, one for each column. Everything here is computed from
released numbers: post-processing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import current

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]


class Distribution(ABC):
    """A distribution over rows of codes.

    Attributes:
        label: The label's place among the columns.
    """

    label: int

    @abstractmethod
    def marginal(self, column: int) -> Floats:
        """Return the probabilities of one column's values, shape `(d,)`."""

    @abstractmethod
    def sample(self, k: int, *, label: int | None = None) -> Codes:
        """Draw k rows independently of each other, shape `(k, columns)`.

        With a label's code, of a weight above 0, all rows have it, and the rest is
        drawn from the exact conditional distribution.
        """

    def balanced(self, k: int, firsts: Codes) -> Codes:
        """Return k rows whose labels take turns, the most frequent first.

        `firsts` has the first row of each label; others are drawn. A label of no weight
        does not come.
        """
        weights = self.marginal(self.label)
        order = np.argsort(-weights, kind="stable")
        labels = order[weights[order] > 0]
        rows = np.array(firsts[labels[np.arange(k) % len(labels)]])
        for turn, code in enumerate(labels[:k].tolist()):
            own = rows[turn :: len(labels)]
            own[1:] = self.sample(len(own) - 1, label=code)
            own[:, self.label] = code
        return rows


class JointDistribution(Distribution):
    """A table of probabilities, one axis for each column: the nearest to an estimate.

    Example:
        >>> diagonal = JointDistribution(np.array([[0.5, 0], [0, 0.5]]), label=0)
        >>> diagonal.marginal(1).tolist()
        [0.5, 0.5]
        >>> diagonal.sample(2, label=1).tolist()
        [[1, 1], [1, 1]]
    """

    def __init__(self, estimate: Floats, label: int) -> None:
        self.table, self.label = project_to_simplex(estimate), label

    def marginal(self, column: int) -> Floats:
        """Return the sums over all other columns."""
        rest = tuple(j for j in range(self.table.ndim) if j != column)
        return np.asarray(self.table.sum(axis=rest))

    def sample(self, k: int, *, label: int | None = None) -> Codes:
        """Draw rows; see `Distribution.sample`."""
        # The part of the table that has the label, scaled to 1, is the conditional.
        table = self.table
        if label is not None:
            table = np.take(table, [label], axis=self.label)
        cells = draw_codes(table.reshape(-1), k)
        rows = np.stack(np.unravel_index(cells, table.shape), axis=1)
        if label is not None:
            rows[:, self.label] = label
        return rows


@dataclass(frozen=True, eq=False)
class LabelDistribution(Distribution):
    """A label, and every other column by the label alone.

    Each column rests on a table of two columns, which noise spoils far less than a
    table of all. What goes together beyond the label is lost.

    Attributes:
        weights: The label's probabilities.
        columns: By place, every other column's probabilities for each label, shape
            `(labels, d)`.
        label: The label's place among the columns.

    Example:
        >>> rain = np.array([[1.0, 0.0], [0.0, 1.0]])
        >>> weather = LabelDistribution(np.array([0.5, 0.5]), {1: rain}, label=0)
        >>> weather.sample(2, label=1).tolist()
        [[1, 1], [1, 1]]
    """

    weights: Floats
    columns: Mapping[int, Floats]
    label: int

    def marginal(self, column: int) -> Floats:
        """Return the label's weights, or a column's shares weighted by them."""
        if column == self.label:
            return self.weights
        return np.asarray(self.weights @ self.columns[column])

    def sample(self, k: int, *, label: int | None = None) -> Codes:
        """Draw rows; see `Distribution.sample`."""
        rows = np.empty((k, len(self.columns) + 1), dtype=np.int64)
        rows[:, self.label] = draw_codes(self.weights, k) if label is None else label
        for code in np.unique(rows[:, self.label]):
            here = rows[:, self.label] == code
            for column, table in self.columns.items():
                rows[here, column] = draw_codes(table[code], int(here.sum()))
        return rows


def project_to_simplex(values: Any) -> Floats:
    """Return the distribution that is nearest to `values` in Euclidean distance.

    It is max(values - t, 0) for the one t that makes the sum 1 (within 1e-12). Duchi,
    Shalev-Shwartz, Singer and Chandra, *Efficient Projections onto the l1-Ball*, ICML
    2008, Figure 1.

    Raises:
        InvalidParameterError: If the values are not finite, or there are none.

    Example:
        >>> project_to_simplex([1.1, 0.2, -0.3]).round(6)
        array([0.95, 0.05, 0.  ])
    """
    table = np.array(values, dtype=np.float64)
    if not table.size or not np.isfinite(table).all():
        raise InvalidParameterError("values must be finite real numbers, at least one.")
    # A constant added to all cells changes nothing. With the largest at 0, t lies in
    # [-1, 0), so estimates as large as 1e30 lose no digits that matter.
    with np.errstate(over="ignore"):
        table -= table.max()
    # t is at least what it would be if every cell stayed; those below it are 0.
    near = table[table > -1]
    near = np.sort(near[near > (near.sum() - 1) / near.size])[::-1]
    levels = (np.cumsum(near) - 1) / np.arange(1, near.size + 1)
    kept = int(np.flatnonzero(near > levels)[-1])
    table = np.maximum(table - levels[kept], 0)
    return np.asarray(table / table.sum())


def shares_by_label(table: Floats, weights: Floats) -> Floats:
    """Return how each label's rows divide among a column's values.

    The estimated shares of pairs, shape `(labels, d)`, may be negative. A label of no
    weight has even shares.

    Example:
        >>> shares_by_label(np.array([[0.5, -0.1], [0.2, 0.4]]), np.array([0.4, 0.6]))
        array([[1.        , 0.        ],
               [0.33333333, 0.66666667]])
    """
    return np.array(
        [
            project_to_simplex(row / weight if weight > 0 else np.ones(row.size))
            for row, weight in zip(table, weights, strict=True)
        ]
    )


def draw_codes(weights: Floats, k: int) -> Codes:
    """Draw codes with probabilities proportional to `weights`, by inversion.

    Each code takes one 64-bit word, of which 53 bits are used. Codes of weight 0 never
    come up.

    Example:
        >>> draw_codes(np.array([0.0, 1.0, 0.0]), 3).tolist()
        [1, 1, 1]
    """
    steps = np.cumsum(weights)
    heights = (current().words(k) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    found = np.searchsorted(steps, heights * steps[-1], side="right")
    # Rounding can lift a height to the very top, which is past the last code.
    last = int(np.flatnonzero(weights)[-1])
    return np.asarray(np.minimum(found, last), np.int64)
