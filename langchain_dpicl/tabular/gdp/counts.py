"""Measured tables as they are asked: by the names of columns and values.

Everything here is computed from released numbers and public terms: post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.distribution import LabelDistribution, shares_by_label
from langchain_dpicl.tabular.gdp.consistency import Overlap
from langchain_dpicl.tabular.gdp.margins import SummedNoise, WholeNoise
from langchain_dpicl.tabular.gdp.measuring import table_name
from langchain_dpicl.tabular.gdp.terms import GDPTerms
from langchain_dpicl.tabular.schema.columns import CategoricalColumn
from langchain_dpicl.tabular.schema.numeric import NumericColumn
from langchain_dpicl.tabular.simplex import project_to_simplex

MISSED = 0.05
"""How often a count's margin does not hold, at most."""

_SHOWN = 5
"""Counts of each table in a summary."""


@dataclass(frozen=True)
class Estimate:
    """A number and the standard error that the noise gives it.

    Attributes:
        value: The estimate.
        error: Its standard error; the noise alone, not how far rows differ.
    """

    value: float
    error: float


@dataclass(frozen=True)
class Count(Estimate):
    """A count as it was released, with a margin.

    Attributes:
        margin: The true count is within `value` +- `margin` in 95 % of releases, or in
            more of them: exactly computed, and said of this count by itself.
    """

    margin: int


# Not compared by value: arrays have no one answer to `==`.
@dataclass(frozen=True, eq=False)
class CountTable:
    """How many rows have each value of a column, or each pair of values. Public.

    Attributes:
        columns: The names of the columns, one for each axis.
        values: Each column's values, in the order of its axis: the declared categories,
            or the texts of the bins.
        noisy: The counts as they were released, whole numbers; some may be negative.
            They are right on average, and `noise` and `margin` are theirs.
        law: The law of the noise on each of `noisy`.
        counts: Counts that agree with all other tables (equal sums); some may be
            negative. They are nearer to the truth on the whole; no margin is stated
            for them.
    """

    columns: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    noisy: NDArray[np.int64] = field(repr=False)
    law: SummedNoise = field(repr=False)
    counts: NDArray[np.float64] = field(repr=False)

    @property
    def noise(self) -> float:
        """The standard deviation of the noise on each of `noisy`."""
        return self.law.standard_deviation

    @property
    def margin(self) -> int:
        """What each of `noisy` is off by at most, in 95 % of releases or more."""
        return self.law.margin(MISSED)


@dataclass(frozen=True, eq=False)
class MeasuredCounts:
    """The tables of one release, side by side.

    Attributes:
        terms: What was measured.
        tallies: The noisy numbers of each table.
        noises: The law of the noise on each table's cells.
    """

    terms: GDPTerms
    tallies: tuple[NDArray[np.int64], ...] = field(repr=False)
    noises: tuple[WholeNoise, ...]

    def table(self, columns: Any) -> CountTable:
        """Return the counts of one measured table, or sums of one."""
        is_listed = isinstance(columns, (list, tuple)) and columns
        wanted = tuple(columns) if is_listed else (columns,)
        places = [
            place
            for place, own in enumerate(self.measured)
            # By `==`: what is no name is in no table, whatever it is.
            if all(name in own and wanted.count(name) == 1 for name in wanted)
        ]
        if not places:
            known = ", ".join(repr(table_name(own)) for own in self.measured)
            raise InvalidParameterError(
                f"{' with '.join(map(repr, wanted)):.200} was not measured. What was: "
                f"{known:.500}."
            )
        # The least noisy sums tell most.
        law, place = self._best(wanted, places)
        own = self.measured[place]
        return CountTable(
            wanted,
            tuple(_values(self.terms.schema.column(name)) for name in wanted),
            _summed(self._noisy[place], own, wanted),
            law,
            _summed(self._fitted[place], own, wanted),
        )

    def total(self) -> tuple[int, SummedNoise]:
        """Return the noisy number of rows, and the law of its noise."""
        law, place = self._best((), range(len(self.measured)))
        return int(self._noisy[place].sum()), law

    def ranked(
        self, of: str, where: Mapping[str, Any] | None = None
    ) -> list[tuple[str, Count]]:
        """Return a column's values by their counts, largest first."""
        if where is not None and not isinstance(where, Mapping):
            raise InvalidParameterError(
                "where must be a mapping from a column to its value, not "
                f"{type(where).__name__}."
            )
        given = dict(where or {})
        table = self.table((*given, of))
        counts = table.noisy
        for name, value in given.items():
            counts = counts[_code(self.terms.schema.column(name), value)]
        order = np.argsort(-counts, kind="stable").tolist()
        noise, margin = table.noise, table.margin
        return [
            (table.values[-1][code], Count(float(counts[code]), noise, margin))
            for code in order
        ]

    def largest(self, columns: Sequence[str]) -> str:
        """Return the largest counts of a table in words, with their margin."""
        table = self.table(columns)
        order = np.argsort(-table.noisy, axis=None, kind="stable")[:_SHOWN]
        shown = []
        for place in order.tolist():
            codes = np.unravel_index(place, table.noisy.shape)
            texts = (
                self.terms.schema.column(name).code_text(int(code))
                for name, code in zip(columns, codes, strict=True)
            )
            shown.append(f"{' with '.join(texts)} {table.noisy.flat[place]}")
        return f"{', '.join(shown)}, ... (each +- {table.margin})"

    @cached_property
    def distribution(self) -> LabelDistribution:
        """A distribution of rows of the measured columns, in the schema's order.

        The label is drawn first (where it was not measured, the first column), and by
        it each column that was measured with it. All others are independent.
        """
        names, label = self.names, self.terms.schema.label
        first = label if label in names else names[0]
        weights = project_to_simplex(self._shares((first,)))
        columns = {}
        for place, name in enumerate(names):
            if name == first:
                continue
            if any({first, name} == set(own) for own in self.measured):
                pairs = self._shares((first, name))
                columns[place] = shares_by_label(pairs, weights)
            else:
                own = project_to_simplex(self._shares((name,)))
                columns[place] = np.tile(own, (weights.size, 1))
        return LabelDistribution(weights, columns, names.index(first))

    @property
    def names(self) -> tuple[str, ...]:
        """The measured columns, in the schema's order."""
        return self.terms.measured_names

    @property
    def measured(self) -> tuple[tuple[str, ...], ...]:
        """Each table's columns."""
        if self.terms.measure is None:
            raise InvalidParameterError(
                "This table was released by groups of rows: sizes, shares and means "
                "tell of them. Counts by name come of GDPTable(..., measure=[...])."
            )
        return self.terms.measure

    @cached_property
    def _noisy(self) -> list[NDArray[np.int64]]:
        column = self.terms.schema.column
        return [
            tally.reshape([column(name).domain_size for name in own])
            for own, tally in zip(self.measured, self.tallies, strict=True)
        ]

    @cached_property
    def _overlap(self) -> Overlap:
        sizes = {n: self.terms.schema.column(n).domain_size for n in self.names}
        noise = tuple(one.standard_deviation for one in self.noises)
        return Overlap(self.measured, sizes, noise)

    @cached_property
    def _fitted(self) -> list[NDArray[np.float64]]:
        return self._overlap.agreeing([noisy.astype(float) for noisy in self._noisy])

    def _shares(self, columns: Sequence[str]) -> NDArray[np.float64]:
        """Return agreeing counts as shares; even ones where there are none."""
        counts = self.table(columns).counts
        total = float(counts.sum())
        if total > 0:
            return counts / total
        return np.full(counts.shape, 1.0 / counts.size)

    def _best(
        self, wanted: Sequence[str], places: Iterable[int]
    ) -> tuple[SummedNoise, int]:
        """Return the table whose sums over these columns have the least noise."""
        cells = math.prod(self.terms.schema.column(n).domain_size for n in wanted)
        laws = [
            (SummedNoise(self.noises[place], self._noisy[place].size // cells), place)
            for place in places
        ]
        return min(laws, key=lambda one: one[0].standard_deviation)


def _summed(table: Any, own: Sequence[str], wanted: Sequence[str]) -> Any:
    """Return a table's sums over the columns that are wanted, in this order."""
    others = tuple(axis for axis, name in enumerate(own) if name not in wanted)
    kept = [name for name in own if name in wanted]
    return table.sum(axis=others).transpose([kept.index(name) for name in wanted])


def _values(column: CategoricalColumn | NumericColumn) -> tuple[str, ...]:
    return tuple(map(column.code_value, range(column.domain_size)))


def _code(column: CategoricalColumn | NumericColumn, value: Any) -> int:
    """Return the code of a value, or of a bin by its text."""
    values = _values(column)
    if isinstance(value, str) and value in values:
        return values.index(value)
    # What the column would count as another value is none of its own.
    strict: dict[str, Any] = {"missing": None}
    strict |= (
        {"outside": "refuse"}
        if isinstance(column, NumericColumn)
        else {"other": None, "open": False}
    )
    try:
        return int(column.model_copy(update=strict).codes([value])[0])
    except InvalidParameterError:
        pass
    raise InvalidParameterError(
        f"where names {value!r:.100}, which is no value of column {column.name!r}. "
        f"Its values are {', '.join(map(repr, values)):.400}."
    )
