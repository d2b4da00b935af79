"""Distributions that rows are drawn from: one joint table, or the label first.

A row is an array of codes, one for each column. Everything here is computed from
released numbers: post-processing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_dpicl.common.parameters import count
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.random import SecureRandom, checked_source, current
from langchain_dpicl.tabular.simplex import project_to_simplex

_Floats = npt.NDArray[np.float64]
_Codes = npt.NDArray[np.int64]


class Distribution(ABC):
    """A distribution over rows of codes.

    Args:
        domain_sizes: The number of values of each column.
        label: The label's place among the columns.

    Attributes:
        kind: "joint" or "label".
        domain_sizes: The number of values of each column.
        label: The label's place among the columns.
    """

    kind: str

    def __init__(self, domain_sizes: tuple[int, ...], label: int) -> None:
        self.domain_sizes = domain_sizes
        self.label = label

    def __repr__(self) -> str:
        sizes = "x".join(str(size) for size in self.domain_sizes)
        return f"{type(self).__name__}({sizes})"

    @abstractmethod
    def marginal(self, column: int) -> _Floats:
        """Return the probabilities of one column's values, shape `(d,)`."""

    def sample(
        self, k: int, random: SecureRandom | None = None, *, label: int | None = None
    ) -> _Codes:
        """Draw rows independently of each other.

        Args:
            k: How many; 0 gives an empty array.
            random: The source to draw from; None: the context says.
            label: A code of the label that all rows shall have. The rest is drawn from
                the exact conditional distribution.

        Returns:
            Codes of shape `(k, columns)`.

        Raises:
            InvalidParameterError: If `k` is negative, the label has no such code, or
                the distribution gives that code no weight.

        Privacy:
            Post-processing: any number of rows, any number of times.
        """
        k = count(k, "k", minimum=0)
        source = checked_source(random) or current()
        if label is not None:
            self._check_label(label)
        if k == 0:
            return np.empty((0, len(self.domain_sizes)), dtype=np.int64)
        return self._draw(k, source, label)

    @abstractmethod
    def _draw(self, k: int, source: SecureRandom, label: int | None) -> _Codes: ...

    def _check_label(self, label: Any) -> None:
        code, size = count(label, "label", minimum=0), self.domain_sizes[self.label]
        if code >= size:
            raise InvalidParameterError(
                f"label must be a code below the label's domain size, {size}."
            )
        if not self.marginal(self.label)[code] > 0:
            raise InvalidParameterError(
                f"label: the release shows hardly any row with code {code}, and the "
                "distribution gives it no weight. Draw without it."
            )


class JointDistribution(Distribution):
    """A table of probabilities, one axis for each column.

    Args:
        estimate: The reconstructed table. The nearest distribution to it is taken.
        label: The label's place among the columns.

    Example:
        >>> diagonal = JointDistribution(np.array([[0.5, 0], [0, 0.5]]), label=0)
        >>> diagonal.marginal(1).tolist()
        [0.5, 0.5]
        >>> diagonal.sample(2, label=1).tolist()
        [[1, 1], [1, 1]]
    """

    kind = "joint"

    def __init__(self, estimate: _Floats, label: int) -> None:
        super().__init__(estimate.shape, label)
        self._table = project_to_simplex(estimate)

    @property
    def table(self) -> _Floats:
        """The probabilities, one axis for each column."""
        return np.array(self._table)

    def marginal(self, column: int) -> _Floats:
        """Return the probabilities of one column's values, shape `(d,)`."""
        rest = tuple(j for j in range(self._table.ndim) if j != column)
        probabilities: _Floats = self._table.sum(axis=rest)
        return probabilities

    def _draw(self, k: int, source: SecureRandom, label: int | None) -> _Codes:
        # The part of the table that has the label, scaled to 1, is the conditional.
        table = self._table
        if label is not None:
            table = np.take(table, [label], axis=self.label)
        cells = draw_codes(table.reshape(-1), k, source)
        rows = np.stack(np.unravel_index(cells, table.shape), axis=1)
        if label is not None:
            rows[:, self.label] = label
        return rows


class LabelDistribution(Distribution):
    """A label, and every other column by the label alone.

    Each column rests on a table of two columns, which noise spoils far less than a
    table of all. What goes together beyond the label is lost.

    Args:
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

    kind = "label"

    def __init__(
        self, weights: _Floats, columns: Mapping[int, _Floats], label: int
    ) -> None:
        sizes = {label: weights.size}
        sizes |= {place: table.shape[1] for place, table in columns.items()}
        super().__init__(tuple(sizes[place] for place in sorted(sizes)), label)
        self._weights = weights
        self._columns = dict(columns)

    def marginal(self, column: int) -> _Floats:
        """Return the probabilities of one column's values, shape `(d,)`."""
        if column == self.label:
            return np.array(self._weights)
        probabilities: _Floats = self._weights @ self._columns[column]
        return probabilities

    def _draw(self, k: int, source: SecureRandom, label: int | None) -> _Codes:
        rows = np.empty((k, len(self.domain_sizes)), dtype=np.int64)
        rows[:, self.label] = (
            draw_codes(self._weights, k, source) if label is None else label
        )
        for code in np.unique(rows[:, self.label]):
            here = rows[:, self.label] == code
            for column, table in self._columns.items():
                rows[here, column] = draw_codes(table[code], int(here.sum()), source)
        return rows


def shares_by_label(table: _Floats, weights: _Floats) -> _Floats:
    """Return how each label's rows divide among a column's values.

    Args:
        table: Estimated shares of pairs, shape `(labels, d)`; some may be negative.
        weights: The labels' probabilities. A label of none has even shares.

    Example:
        >>> shares_by_label(np.array([[0.5, -0.1], [0.2, 0.4]]), np.array([0.4, 0.6]))
        array([[1.        , 0.        ],
               [0.33333333, 0.66666667]])
    """
    return np.array(
        [
            project_to_simplex(row / weight)
            if weight > 0
            else np.full(row.size, 1 / row.size)
            for row, weight in zip(table, weights, strict=True)
        ]
    )


def draw_codes(weights: _Floats, k: int, source: SecureRandom) -> _Codes:
    """Draw codes with probabilities proportional to `weights`, by inversion.

    Each code takes one 64-bit word, of which 53 bits are used. Codes of weight 0 never
    come up.

    Args:
        weights: Nonnegative, not all 0, shape `(d,)`.
        k: How many.
        source: Where the bits come from.

    Returns:
        Codes of shape `(k,)`.

    Example:
        >>> draw_codes(np.array([0.0, 1.0, 0.0]), 3, current()).tolist()
        [1, 1, 1]
    """
    steps = np.cumsum(weights)
    heights = (source.words(k) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    found = np.searchsorted(steps, heights * steps[-1], side="right")
    # Rounding can lift a height to the very top, which is past the last code.
    last = int(np.flatnonzero(weights)[-1])
    drawn: _Codes = np.minimum(found, last).astype(np.int64)
    return drawn
