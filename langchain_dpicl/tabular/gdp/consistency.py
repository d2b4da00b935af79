"""Noisy tables of the same rows made to agree: equal sums, by weighted least squares.

Tables over columns that overlap count the same rows: each column's sums, and the total,
are told several times, with noise of their own. The tables over all sets of columns
split into orthogonal components, one for each set A of columns: what A's sums tell
beyond those of the sets in A (the total, each column's own effect, what goes together
in a pair). Noise that is independent and of one variance in each table has independent
components. So each component alone is averaged over the tables that tell it, weighed by
one over its variance: table i of D_i cells and noise sigma_i says the component A with
information 1 / (sigma_i^2 D_i), up to a factor that is the same for all of them. That
is the least-squares fit, exactly. (Qardaji, Yang and Li, *PriView*, 2014, section 4.4,
average in the same order; Hay et al. 2010 do so for trees.)
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_LEAST_NOISE = 1e-9
"""Noise below a rounding error is none: weights must stay finite."""


@dataclass(frozen=True)
class Overlap:
    """Which tables there are, and how much noise each has.

    Attributes:
        columns: Each table's columns, one or two.
        sizes: How many values each column has.
        noise: The standard deviation of the noise on each table's cells.

    Example:
        >>> two = Overlap((("a", "b"), ("b",)), {"a": 2, "b": 2}, (1.0, 1.0))
        >>> told = [np.array([[3.0, 1.0], [0.0, 4.0]]), np.array([5.0, 3.0])]
        >>> [table.round(2).tolist() for table in two.agreeing(told)]
        [[[3.67, 0.33], [0.67, 3.33]], [4.33, 3.67]]
    """

    columns: tuple[tuple[str, ...], ...]
    sizes: Mapping[str, int]
    noise: tuple[float, ...]

    def agreeing(self, tables: Sequence[Floats]) -> list[Floats]:
        """Return the least-squares fit with equal sums, which may be negative.

        Args:
            tables: Noisy counts, one axis for each of a table's columns.
        """
        weights = self._weights()
        told = [float(table.sum()) for table in tables]
        total = float(np.average(told, weights=weights))
        found = [table + (total - table.sum()) / table.size for table in tables]
        for name, places in self._shared():
            margins = [self._margin(found[place], place, name) for place in places]
            mean = np.average(margins, axis=0, weights=[weights[p] for p in places])
            for place, margin in zip(places, margins, strict=True):
                table = found[place]
                more = (mean - margin) * (mean.size / table.size)
                is_rows = len(self.columns[place]) > 1 and self._axis(place, name) == 0
                found[place] = table + (more[:, None] if is_rows else more)
        return found

    def _shared(self) -> Iterator[tuple[str, list[int]]]:
        for name in self.sizes:
            places = [n for n, own in enumerate(self.columns) if name in own]
            if len(places) > 1:
                yield name, places

    def _margin(self, table: Floats, place: int, name: str) -> Floats:
        if table.ndim == 1:
            return table
        margin: Floats = table.sum(axis=1 - self._axis(place, name))
        return margin

    def _axis(self, place: int, name: str) -> int:
        return self.columns[place].index(name)

    def _weights(self) -> list[float]:
        return [
            1.0 / (max(noise, _LEAST_NOISE) ** 2 * self._cells(own))
            for own, noise in zip(self.columns, self.noise, strict=True)
        ]

    def _cells(self, columns: Sequence[str]) -> int:
        return math.prod(self.sizes[name] for name in columns)
