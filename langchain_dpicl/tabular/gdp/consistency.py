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

*The error in closed form.* A cell's noise sigma_i^2 is the sum of its components': of
table i it is sigma_i^2 / D_i times the component's dimension. Averaging leaves the part
w_i / (sum of w_j over the tables that tell the component), w = 1 / (sigma^2 D).

*Columns that hold sets.* A sum over such a column counts mentions, not people, so it is
no number that another table tells, and no equality is made of it. What stays equal are
the sums over the *other* column of a pair, if that one has single values: how many have
each value of the set, told by every such table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.tabular.gdp.terms import MeasuredTable

Floats = NDArray[np.float64]

_LEAST_NOISE = 1e-9
"""Noise below a rounding error is none: weights must stay finite."""


@dataclass(frozen=True)
class Overlap:
    """Which count tables there are, and how much noise each has.

    Attributes:
        tables: The tables, over one or two columns each.
        noise: The standard deviation of the noise on each table's cells.
    """

    tables: tuple[MeasuredTable, ...]
    noise: tuple[float, ...]

    def agreeing(self, counts: Sequence[Floats]) -> list[Floats]:
        """Return the least-squares fit with equal sums, which may be negative."""
        found = [table.astype(float) for table in counts]
        for columns, places in self._shared():
            sums = [found[p].sum(axis=self.tables[p].others(columns)) for p in places]
            weights = [self._weight(place) for place in places]
            mean = np.average(sums, axis=0, weights=weights)
            for place, own in zip(places, sums, strict=True):
                table = self.tables[place]
                spread = np.expand_dims(mean - own, table.others(columns))
                found[place] = found[place] + spread * (mean.size / table.size)
        return found

    def error(self, place: int, columns: Sequence[str]) -> float:
        """Return the standard error of one table's fit, summed by columns it tells."""
        table = self.tables[place]
        size = self._size(table, columns)
        left, kept = size, 0.0
        for shared, places in self._shared():
            if place in places and set(shared) <= set(columns):
                # A column's sums have the total in them, which is a part of its own.
                whole = bool(shared) and table.tells(())
                dimension = self._size(table, shared) - whole
                total = sum(map(self._weight, places))
                kept += dimension * self._weight(place) / total
                left -= dimension
        draws = table.size / size
        return self.noise[place] * math.sqrt(draws * (kept + left) / size)

    def _shared(self) -> Iterator[tuple[tuple[str, ...], list[int]]]:
        """Yield what several tables tell: the total first, then each column's sums."""
        names = dict.fromkeys(chain(*(table.columns for table in self.tables)))
        for columns in ((), *((name,) for name in names)):
            places = [n for n, t in enumerate(self.tables) if t.tells(columns)]
            if len(places) > 1:
                yield columns, places

    def _weight(self, place: int) -> float:
        return 1.0 / (
            max(self.noise[place], _LEAST_NOISE) ** 2 * self.tables[place].size
        )

    @staticmethod
    def _size(table: MeasuredTable, columns: Sequence[str]) -> int:
        return math.prod(table.shape[table.columns.index(name)] for name in columns)
