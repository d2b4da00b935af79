"""What a noisy table says: counts and means by the names of columns and values.

Everything here is computed from released numbers and public terms: post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.columns import NumericColumn
from langchain_dpicl.tabular.gdp.consistency import Overlap
from langchain_dpicl.tabular.gdp.margins import SummedNoise, WholeNoise
from langchain_dpicl.tabular.gdp.terms import GDPTerms, TableEvent

MISSED = 0.05
"""How often a count's margin does not hold, at most."""


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

    A row counts for each of the values that a cell of a set holds.

    Attributes:
        columns: The names of the columns, one for each axis.
        values: Each column's values, in the order of its axis: the declared categories,
            or the texts of the bins.
        noisy: The counts as they were released, whole numbers; some may be negative.
            They are right on average; `noise` and `margin` are theirs.
        law: The law of the noise on each of `noisy`.
        unbiased: Counts that agree with all other tables (equal sums), right on
            average, too; some may be negative. They are nearer to the truth.
        error: The standard error of each of `unbiased`.
    """

    columns: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    noisy: NDArray[np.int64] = field(repr=False)
    law: SummedNoise = field(repr=False)
    unbiased: NDArray[np.float64] = field(repr=False)
    error: float

    @property
    def noise(self) -> float:
        """The standard deviation of the noise on each of `noisy`."""
        return self.law.standard_deviation

    @property
    def margin(self) -> int:
        """What each of `noisy` is off by at most, in 95 % of releases or more."""
        return self.law.margin(MISSED)


@dataclass(frozen=True, eq=False)
class NoisyStatistics:
    """The released numbers of a table, and what follows from them. Public.

    Attributes:
        terms: What was measured.
        paid: The event that was paid for.
        tallies: The noisy numbers, an array for each table, in its shape.

    Privacy:
        Post-processing of `mechanisms.tables`: using it costs nothing.
    """

    terms: GDPTerms
    paid: TableEvent
    tallies: tuple[NDArray[np.int64], ...] = field(repr=False)

    @classmethod
    def of(
        cls, terms: GDPTerms, paid: TableEvent, numbers: Sequence[int]
    ) -> NoisyStatistics | None:
        """Return the statistics of all numbers in a row; None if they don't fit."""
        flat = np.array(numbers, dtype=np.int64)
        sizes = [table.size for table in terms.tables]
        if flat.size != sum(sizes):
            return None
        parts = zip(np.split(flat, np.cumsum(sizes)[:-1]), terms.tables, strict=True)
        return cls(
            terms, paid, tuple(part.reshape(table.shape) for part, table in parts)
        )

    @cached_property
    def noises(self) -> tuple[WholeNoise, ...]:
        """The law of the noise on each number of each table."""
        return self.terms.noises(self.paid)

    def can_tell(self, columns: Sequence[str]) -> bool:
        """Return whether rows are counted by these columns."""
        return any(table.tells(columns) for table in self.terms.tables)

    def table(self, columns: str | Sequence[str]) -> CountTable:
        """Return how many rows have each value of a column, or of a pair of columns.

        Args:
            columns: A measured column or pair, in any order: the axes come in it. A
                column of a measured pair is a table too, of the pair's sums, unless
                the other one holds sets.

        Raises:
            InvalidParameterError: If they were not measured.

        Example:
            >>> from langchain_dpicl import PrivacyBudgetHandler
            >>> from langchain_dpicl.tabular import CategoricalColumn as Column
            >>> from langchain_dpicl.tabular import GDPTable, TableSchema
            >>> schema = TableSchema(
            ...     label="effect",
            ...     columns=[
            ...         Column(name="drug", values=["aspirin", "codeine"]),
            ...         Column(name="effect", values=["none", "nausea"]),
            ...     ],
            ... )
            >>> rows = [
            ...     {"drug": "aspirin", "effect": "none"},
            ...     {"drug": "codeine", "effect": "nausea"},
            ... ] * 500
            >>> budget = PrivacyBudgetHandler(
            ...     epsilon=2, delta=1e-6, queries=1, ledger=":memory:"
            ... )
            >>> table = GDPTable(rows, schema, budget=budget)
            >>> found = table.release().statistics
            >>> pairs = found.table(("effect", "drug"))
            >>> pairs.columns, pairs.values[0], pairs.unbiased.shape
            (('effect', 'drug'), ('none', 'nausea'), (2, 2))
            >>> bool(abs(pairs.noisy[1, 1] - 500) < 20 * pairs.margin)
            True
            >>> first, second = found.counts(of="effect", where={"drug": "codeine"})
            >>> first[0], round(first[1].value, -2)
            ('nausea', 500.0)
        """
        wanted = tuple(columns) if isinstance(columns, (list, tuple)) else (columns,)
        if not wanted or len(set(map(repr, wanted))) < len(wanted):
            raise self._unmeasured(wanted)
        return self._table(wanted)

    def counts(
        self, of: str, where: Mapping[str, Any] | None = None
    ) -> list[tuple[str, Count]]:
        """Return a column's values by the number of their rows, largest first.

        Args:
            of: The column.
            where: At most one other column and its value (a category, a number, or the
                text of a bin): only its rows are counted. The pair must be measured.

        Returns:
            Each value of `of` (as the schema declares it; a bin by its text) with its
            noisy count, which may be below 0, the count's standard error, and a
            `margin` that holds for it in 95 % of releases. Equal counts come in the
            schema's order.

        Raises:
            InvalidParameterError: If this was not measured, or the column can't have
                the value.
        """
        names, place = self._where(where)
        table = self.table((*names, of))
        counts, noise, margin = table.noisy[place], table.noise, table.margin
        return [
            (table.values[-1][code], Count(float(counts[code]), noise, margin))
            for code in np.argsort(-counts, kind="stable").tolist()
        ]

    def mean(self, of: str, where: Mapping[str, Any] | None = None) -> Estimate:
        """Return the mean of a numeric column that was summed, within its bounds.

        Args:
            of: The column.
            where: Another column and its value, of whose rows it is the mean. That of
                all rows is a sum of its own (`measure=["age"]`), or adds up.

        Raises:
            InvalidParameterError: If this was not measured, or the column can't have
                the value.
        """
        names, place = self._where(where)
        for n, table in enumerate(self.terms.tables):
            # A sum over the values of a set is one of mentions, and of no rows.
            has_rows = not table.sets.difference(names)
            if table.summed == of and has_rows and set(names) <= set(table.columns):
                sums = self.tallies[n][place]
                noise = SummedNoise(self.noises[n], np.size(sums)).standard_deviation
                counted = self._table(names)
                size = max(float(counted.unbiased[place]), 1.0)
                return self._mean(of, sums.sum() / size, noise, size, counted.error)
        raise self._unmeasured((*names, of))

    def total(self) -> tuple[int, SummedNoise]:
        """Return the noisy number of rows, and the law of the noise on it.

        Raises:
            InvalidParameterError: If no table counts each row once.
        """
        table = self._table(())
        return int(table.noisy), table.law

    def _mean(
        self, of: str, steps: float, noise: float, size: float, error: float
    ) -> Estimate:
        """Return a mean of grid steps from the middle of bounds, as a number."""
        column = self.terms.table_schema.column(of)
        assert isinstance(column, NumericColumn)  # noqa: S101  # Only these are summed.
        steps = min(max(float(steps), -column.bound), column.bound)
        step = column.half / column.bound
        value = min(max(column.middle + steps * step, column.lower), column.upper)
        return Estimate(value, math.hypot(noise, steps * error) / size * step)

    def _where(
        self, where: Mapping[str, Any] | None
    ) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """Return the columns that are given, and the codes of their values."""
        if where is not None and not isinstance(where, Mapping):
            raise InvalidParameterError(
                "where must be a mapping from a column to its value, not "
                f"{type(where).__name__}."
            )
        given = dict(where or {})
        for name in given:
            if name not in self.terms.counted:
                raise self._unmeasured((name,))
        column = self.terms.table_schema.column
        codes = (column(name).code_of(value) for name, value in given.items())
        return tuple(given), tuple(codes)

    def _table(self, wanted: tuple[Any, ...]) -> CountTable:
        """Return the counts by these columns, of the table whose sums tell most."""
        schema = self.terms.table_schema
        told = [
            (SummedNoise(self.noises[n], table.size // self._cells(wanted)), n)
            for n, table in enumerate(self.terms.tables)
            if table.tells(wanted)
        ]
        if not told:
            raise self._unmeasured(wanted)
        law, place = min(told, key=lambda found: found[0].standard_deviation)
        table, (overlap, fitted) = self.terms.tables[place], self._agreed
        kept = [name for name in table.columns if name in wanted]
        order = [kept.index(name) for name in wanted]
        noisy, unbiased = (
            np.asarray(counts.sum(axis=table.others(wanted))).transpose(order)
            for counts in (self.tallies[place], fitted[place])
        )
        return CountTable(
            wanted,
            tuple(schema.column(name).options for name in wanted),
            noisy,
            law,
            unbiased,
            overlap.error([*fitted].index(place), wanted),
        )

    @cached_property
    def _agreed(self) -> tuple[Overlap, dict[int, NDArray[np.float64]]]:
        """The count tables, and the counts of each that agree, by its place."""
        tables = self.terms.tables
        places = [n for n, table in enumerate(tables) if table.summed is None]
        overlap = Overlap(
            tuple(tables[n] for n in places),
            tuple(self.noises[n].standard_deviation for n in places),
        )
        fitted = overlap.agreeing([self.tallies[n].astype(float) for n in places])
        return overlap, dict(zip(places, fitted, strict=True))

    def _cells(self, columns: Sequence[str]) -> int:
        column = self.terms.table_schema.column
        return math.prod(column(name).domain_size for name in columns)

    def _unmeasured(self, wanted: Sequence[Any]) -> InvalidParameterError:
        known = ", ".join(repr(table.name) for table in self.terms.tables)
        asked = " with ".join(map(repr, wanted)) or "The number of rows"
        return InvalidParameterError(
            f"{asked:.200} was not measured. What was: {known:.500}. Sums over a "
            "column that holds sets count no rows."
        )
