"""What a noisy table says: sizes, shares and means of groups, with their errors.

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

from langchain_dpicl.accounting import Gaussian, Pure
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.distribution import LabelDistribution
from langchain_dpicl.tabular.gdp.counts import (
    MISSED,
    Count,
    CountTable,
    Estimate,
    MeasuredCounts,
)
from langchain_dpicl.tabular.gdp.margins import SummedNoise
from langchain_dpicl.tabular.gdp.measuring import table_name
from langchain_dpicl.tabular.gdp.terms import ROWS, GDPTerms
from langchain_dpicl.tabular.schema.numeric import NumericColumn
from langchain_dpicl.tabular.simplex import project_to_simplex

SMALLEST = 3.0
"""A group counts as seen when its noisy size is this many standard errors above 0."""


# Not compared by value: arrays have no one answer to `==`.
@dataclass(frozen=True, eq=False)
class NoisyStatistics:
    """The released numbers of a table, and what follows from them. Public.

    Attributes:
        terms: What was measured.
        paid: The event that was paid for the tables.
        tallies: The noisy numbers: one array per quantity, shape (groups, size).
        named: By open column, what enough rows name outside its list.

    Privacy:
        Post-processing of `mechanisms.noisy_tallies`, or `noisy_histograms`, and
        `threshold_words`: using it costs nothing.
    """

    terms: GDPTerms
    paid: Pure | Gaussian
    tallies: tuple[NDArray[np.int64], ...] = field(repr=False)
    named: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        terms: GDPTerms,
        paid: Pure | Gaussian,
        numbers: Sequence[int],
        named: Mapping[str, tuple[str, ...]] | None = None,
    ) -> NoisyStatistics | None:
        """Return the statistics of a flat list of numbers; None if it is too short.

        Args:
            terms: What was measured.
            paid: The event that was paid for the tables.
            numbers: All tallies, one after the other.
            named: What open columns name.
        """
        flat = np.array(numbers, dtype=np.int64)
        sizes = [terms.n_groups * one.size for one in terms.quantities]
        if flat.size != sum(sizes):
            return None
        parts = np.split(flat, np.cumsum(sizes)[:-1])
        shaped = tuple(part.reshape(terms.n_groups, -1) for part in parts)
        return cls(terms, paid, shaped, named or {})

    @property
    def epsilons(self) -> tuple[float, ...]:
        """What each quantity spent, before sampling; nothing for Gaussian noise."""
        if isinstance(self.paid, Gaussian):
            return ()
        return self.terms.epsilons(self.paid)

    def table(self, columns: str | Sequence[str]) -> CountTable:
        """Return how many rows have each value of a column, or of a pair of columns.

        Args:
            columns: A measured column or pair, in any order: the axes come in it. A
                column of a measured pair is a table too, of the pair's sums.

        Returns:
            Values, the noisy counts with their margin, and counts that agree with all
            other tables.

        Raises:
            InvalidParameterError: If they were not measured (`measure=`).

        Example:
            >>> from langchain_dpicl import PrivacyBudgetHandler
            >>> from langchain_dpicl.tabular import (
            ...     CategoricalColumn, GDPTable, TableSchema
            ... )
            >>> schema = TableSchema(
            ...     label="effect",
            ...     columns=[
            ...         CategoricalColumn(name="drug", values=["aspirin", "codeine"]),
            ...         CategoricalColumn(name="effect", values=["none", "nausea"]),
            ...     ],
            ... )
            >>> rows = [
            ...     {"drug": "aspirin", "effect": "none"},
            ...     {"drug": "codeine", "effect": "nausea"},
            ... ] * 500
            >>> budget = PrivacyBudgetHandler(
            ...     epsilon=2, delta=1e-6, queries=1, ledger=":memory:"
            ... )
            >>> table = GDPTable(
            ...     rows, schema, budget=budget, measure=[("drug", "effect")]
            ... )
            >>> found = table.release().statistics
            >>> pairs = found.table(("effect", "drug"))
            >>> pairs.columns, pairs.values[0], pairs.counts.shape
            (('effect', 'drug'), ('none', 'nausea'), (2, 2))
            >>> bool(abs(pairs.noisy[1, 1] - 500) < 20 * pairs.margin)
            True
            >>> first, second = found.counts(of="effect", where={"drug": "codeine"})
            >>> first[0], round(first[1].value, -2)
            ('nausea', 500.0)
        """  # fmt: skip
        names = (columns,) if isinstance(columns, str) else columns
        return self._counted.table(names)

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
        return self._counted.ranked(of, where)

    def open_values(self, column: str) -> tuple[str, ...]:
        """Return what enough rows name outside the list of an open column.

        Returns:
            Names of up to three words, lemmas in lower case, by the alphabet. How often
            each is named is not released; `forecast().named` says how often it takes.

        Raises:
            InvalidParameterError: If the column is not open, or not measured.
        """
        if column not in self.named:
            raise InvalidParameterError(
                f"{column!r:.80} is no measured open column. Open are: "
                f"{', '.join(map(repr, self.named)) or 'none'} (open=True)."
            )
        return self.named[column]

    def total(self) -> tuple[int, SummedNoise]:
        """Return the noisy number of rows, and the law of the noise on it.

        Raises:
            InvalidParameterError: If there are no tables by name (`measure=`).
        """
        return self._counted.total()

    def noise(self, name: str) -> float:
        """Return the standard deviation of the noise on each number of a quantity."""
        return self._noise[self._place(name)]

    @cached_property
    def sizes(self) -> list[Estimate]:
        """Each group's number of rows (of the sample), out of all that tells it.

        The number of rows, where it was measured, and the sum of every histogram, each
        weighted by one over its variance.
        """
        total = np.zeros(self.terms.n_groups)
        weights = 0.0
        for quantity, noise, tally in zip(
            self.terms.quantities, self._noise, self.tallies, strict=True
        ):
            if quantity.kind == "sum":
                continue
            # Noise below a rounding error is no noise: the weights must stay finite.
            weight = 1.0 / (quantity.size * max(noise, 1e-9) ** 2)
            total += weight * tally.sum(axis=1)
            weights += weight
        error = 1.0 / math.sqrt(weights)
        return [Estimate(float(size), error) for size in total / weights]

    @cached_property
    def seen(self) -> list[bool]:
        """Whether each group is large enough to be told from an empty one."""
        return [size.value >= max(1.0, SMALLEST * size.error) for size in self.sizes]

    def shares(self, group: int, name: str) -> NDArray[np.float64]:
        """Return how a group's rows divide among a column's codes; sums to one."""
        tally = self.tallies[self._place(name, "histogram")][self._checked(group)]
        size = max(self.sizes[group].value, 1.0)
        shares: NDArray[np.float64] = project_to_simplex(tally / size)
        return shares

    def most(self, group: int, name: str) -> int:
        """Return the code with the largest noisy count in a group."""
        place = self._place(name, "histogram")
        return int(np.argmax(self.tallies[place][self._checked(group)]))

    def mean(self, group: int, name: str) -> Estimate:
        """Return a group's mean of a numeric column, within its bounds.

        That of an integer column is not rounded: its error would be too small.

        Raises:
            InvalidParameterError: If the column was not released as a mean.
        """
        column, steps = self._mean_steps(group, name)
        size = self.sizes[group]
        noise = self._noise[self._place(name, "sum")]
        spread = math.hypot(noise, steps * size.error) / max(size.value, 1.0)
        # Halves, because the distance of the bounds may be too large for a float.
        step = (column.upper / 2 - column.lower / 2) / column.bound
        value = column.upper / 2 + column.lower / 2 + steps * step
        return Estimate(min(max(value, column.lower), column.upper), spread * step)

    def share_error(self, group: int, name: str) -> float:
        """Return the standard error of a value's noisy count over the group's size.

        That is a share before `shares` makes all of them 0 or more, with a sum of one.
        The size's own error comes on top.
        """
        return self.noise(name) / max(self.sizes[group].value, 1.0)

    def typical(self, group: int) -> dict[str, Any]:
        """Return the row of a group's most frequent values and its means."""
        return self._row(
            group,
            {
                one.name: self.most(group, one.name)
                for one in self.terms.quantities
                if one.kind == "histogram"
            },
        )

    def drawn(self, group: int, uniforms: Sequence[float]) -> dict[str, Any]:
        """Return a row drawn column by column from a group's shares, and its means.

        Args:
            group: Which group.
            uniforms: A number from 0 to below 1 for each quantity.
        """
        codes = {}
        for one, uniform in zip(self.terms.quantities, uniforms, strict=True):
            if one.kind == "histogram":
                steps = np.cumsum(self.shares(group, one.name))
                place = int(np.searchsorted(steps, uniform * steps[-1], side="right"))
                codes[one.name] = min(place, one.size - 1)
        return self._row(group, codes)

    def described_group(self, group: int) -> dict[str, str]:
        """Return the values that make a group, as text."""
        codes = self.terms.groups()[self._checked(group)]
        return {
            name: self.terms.schema.column(name).code_text(code)
            for name, code in zip(self.terms.group_by, codes, strict=True)
        }

    @property
    def distribution(self) -> LabelDistribution:
        """A distribution of rows of the measured columns: the label, the others by it.

        A column that was not measured with the label is independent.
        """
        return self._counted.distribution

    def summary(self) -> str:
        """Return the statistics in a table for people, with their errors."""
        if self.terms.measure is not None:
            return self._measured_summary()
        lines: list[str] = []
        if self.terms.sampling_rate < 1:
            lines.append(
                "Of a sample, which each unit was in with probability "
                f"{self.terms.sampling_rate:g}; all numbers are the sample's:"
            )
        for group in range(self.terms.n_groups):
            made_of = ", ".join(
                f"{name} is {text}"
                for name, text in self.described_group(group).items()
            )
            size = self.sizes[group]
            note = "" if self.seen[group] else "  (too small to be told from none)"
            lines.append(
                f"{made_of or 'all rows'}: {size.value:.0f} rows "
                f"+- {size.error:.1f}{note}"
            )
            if self.seen[group]:
                lines.extend(f"  {line}" for line in self._lines(group))
        return "\n".join([*lines, "Each +- is a standard error of the noise."])

    def _measured_summary(self) -> str:
        total, law = self.total()
        note = "" if self.seen[0] else "  (too small to be told from none)"
        lines = [f"all rows: {total} rows +- {law.margin(MISSED)}{note}"]
        lines += [
            f"  {table_name(columns)}: {self._counted.largest(columns)}"
            for columns in self._counted.measured
            if self.seen[0]
        ]
        lines += [
            f"{name}, not listed: {', '.join(names) or 'too few to tell'}"
            for name, names in self.named.items()
        ]
        lines.append("Each +- holds in 95 % of releases, taken by itself.")
        return "\n".join(lines)

    def _mean_steps(self, group: int, name: str) -> tuple[NumericColumn, float]:
        """Return a column and its mean in grid steps from the middle of its bounds."""
        tally = self.tallies[self._place(name, "sum")][self._checked(group), 0]
        column = self.terms.schema.column(name)
        assert isinstance(column, NumericColumn)  # noqa: S101  # Only sums come here.
        steps = float(tally) / max(self.sizes[group].value, 1.0)
        return column, min(max(steps, -float(column.bound)), float(column.bound))

    def _lines(self, group: int) -> list[str]:
        lines = []
        for one in self.terms.quantities:
            if one.kind == "rows":
                continue
            column = self.terms.schema.column(one.name)
            if one.kind == "sum":
                mean = self.mean(group, one.name)
                lines.append(f"{one.name}: mean {mean.value:.6g} +- {mean.error:.2g}")
            else:
                code = self.most(group, one.name)
                tally = self.tallies[self._place(one.name)][group, code]
                size = self.sizes[group]
                # Not one of `shares`, which are biased by being made to sum to one.
                share = float(tally) / max(size.value, 1.0)
                error = math.hypot(
                    self.share_error(group, one.name),
                    share * size.error / max(size.value, 1.0),
                )
                lines.append(
                    f"{one.name}: {column.code_text(code)} ({share:.1%} +- {error:.1%})"
                )
        return lines

    def _row(self, group: int, codes: dict[str, int]) -> dict[str, Any]:
        schema = self.terms.schema
        row: dict[str, Any] = {}
        made_by = dict(
            zip(
                self.terms.group_by,
                self.terms.groups()[self._checked(group)],
                strict=True,
            )
        )
        for column in schema.columns:
            code = {**made_by, **codes}.get(column.name)
            if code is None:
                numeric, steps = self._mean_steps(group, column.name)
                row[column.name] = numeric.from_grid(steps)
            else:
                row[column.name] = column.code_value(code)
        return row

    def _checked(self, group: int) -> int:
        if not 0 <= group < self.terms.n_groups:
            raise InvalidParameterError(
                f"Groups are numbered from 0 to {self.terms.n_groups - 1}; this is "
                "none of them."
            )
        return group

    def _place(self, name: str, kind: str | None = None) -> int:
        """Return a quantity's place, if there is one of this name and kind."""
        released = [
            one.name for one in self.terms.quantities if kind in (None, one.kind)
        ]
        if name not in released:
            raise InvalidParameterError(
                f"{name!r:.80} was not released so. What was: "
                f"{', '.join(map(repr, released)) or 'nothing'}."
            )
        return [one.name for one in self.terms.quantities].index(name)

    @cached_property
    def _noise(self) -> tuple[float, ...]:
        return self.terms.deviations(self.paid)

    @cached_property
    def _counted(self) -> MeasuredCounts:
        return MeasuredCounts(self.terms, self.tallies, self.terms.noises(self.paid))


__all__ = ["ROWS", "Count", "CountTable", "Estimate", "NoisyStatistics"]
