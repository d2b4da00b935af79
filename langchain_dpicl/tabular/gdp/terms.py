"""What a noisy table measures, and what a release is charged: public terms.

A *count table* counts rows by one column, or by the pairs of two: by the values of a
categorical column, by the bins of a numeric one. A numeric column without bins has no
codes. It is summed, by the values of the column beside it, or over all rows.

Privacy:
    A row adds 1 to one cell of a count table, or to up to m cells where a column holds
    sets (`max_items=m`), m m' of a pair of two. To a sum it adds between -M and M grid
    steps (`NumericColumn.grid`), in as many cells. Sensitivity, noise, event:
    `mechanisms.tables`.

    The paper (Carey et al. 2024, Algorithm 2) pays for a noisy number of rows in every
    numeric column; here a mean is a sum beside a count that is there anyway.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import field_validator, model_validator
from typing_extensions import Self, override

from langchain_dpicl.accounting import Charge, Gaussian, Pure
from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.errors import InvalidParameterError, PlanMismatchError
from langchain_dpicl.mechanisms import tables
from langchain_dpicl.tabular.columns import NumericColumn
from langchain_dpicl.tabular.gdp.margins import WholeNoise
from langchain_dpicl.tabular.schema import TableSchema
from langchain_dpicl.tabular.terms import TableTerms

MECHANISM = "gdp_table"

MAX_CELLS = 1 << 20
"""Most numbers of one release."""

Noise = Literal["laplace", "gaussian"]

Measure: TypeAlias = Sequence[str | tuple[str, ...]]
"""Names of columns, and pairs of names."""

TableEvent: TypeAlias = Pure | Gaussian
"""What is charged: for discrete Laplace noise, or for Gaussian."""


@dataclass(frozen=True)
class MeasuredTable:
    """One table of counts, or of sums.

    Attributes:
        columns: The columns that rows are counted or summed by: none, one, or two.
        summed: The numeric column that is summed; None: rows are counted.
        shape: How many values each of `columns` has.
        bound: Most that one row adds to a cell, either way.
        cells: Most cells that one row adds to.
        sets: Those of `columns` whose cells hold sets.
    """

    columns: tuple[str, ...]
    summed: str | None
    shape: tuple[int, ...]
    bound: int
    cells: int
    sets: frozenset[str]

    @classmethod
    def of(cls, schema: TableSchema, names: Sequence[str]) -> MeasuredTable:
        """Return the table of one or two columns.

        Raises:
            InvalidParameterError: If the schema has no such column.
        """
        columns = [schema.column(name) for name in names]
        coded = [column for column in columns if column.domain_size]
        summed = next((c for c in columns if c not in coded), None)
        items = {column.name: getattr(column, "max_items", None) for column in coded}
        return cls(
            columns=tuple(column.name for column in coded),
            summed=summed.name if summed else None,
            shape=tuple(column.domain_size for column in coded),
            bound=summed.bound if isinstance(summed, NumericColumn) else 1,
            cells=math.prod(most or 1 for most in items.values()),
            sets=frozenset(name for name, most in items.items() if most is not None),
        )

    @property
    def name(self) -> str:
        """What the record calls it."""
        return " x ".join((*self.columns, *filter(None, [self.summed])))

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    def others(self, columns: Collection[str]) -> tuple[int, ...]:
        """Return the axes of the other columns than these."""
        return tuple(n for n, name in enumerate(self.columns) if name not in columns)

    def tells(self, columns: Collection[str]) -> bool:
        """Return whether its sums over the other columns count by these columns.

        Rows are counted once in a sum over a column of single values. A sum over a
        column that holds sets counts mentions, and no rows.
        """
        summed_over = {self.columns[axis] for axis in self.others(columns)}
        is_part = all(name in self.columns for name in columns)
        return self.summed is None and is_part and not self.sets & summed_over


class GDPTerms(TableTerms):
    """The public terms of a `GDPTable`.

    Attributes:
        measure: The columns of each table, one or two.
        noise: Which; None leaves it to the account (`settled`).
    """

    mechanism: ClassVar[str] = MECHANISM

    measure: tuple[tuple[str, ...], ...]
    noise: Noise | None = None

    @field_validator("measure", mode="before")
    @classmethod
    def _tuples(cls, given: Any) -> Any:
        return tuple(map(tuple, given)) if isinstance(given, list) else given

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.epsilon is not None and self.noise == "gaussian":
            raise ValueError(
                "epsilon= is that of Laplace noise. Leave Gaussian noise to the "
                "account, which then says its epsilon at its delta"
            )
        size = sum(table.size for table in self.tables)
        if size > MAX_CELLS:
            raise ValueError(
                f"There are {size} numbers to release; at most {MAX_CELLS} are. "
                "Measure fewer pairs, or declare fewer values or coarser bins"
            )
        return self

    @property
    def tables(self) -> tuple[MeasuredTable, ...]:
        """What is measured, in the order of `measure`."""
        return tuple(MeasuredTable.of(self.table_schema, own) for own in self.measure)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are measured, in the schema's order."""
        named = {name for own in self.measure for name in own}
        return tuple(name for name in self.table_schema.names if name in named)

    @property
    def counted(self) -> tuple[str, ...]:
        """Those of `names` that rows are counted by."""
        column = self.table_schema.column
        return tuple(name for name in self.names if column(name).domain_size)

    @property
    def moved(self) -> dict[str, list[int]]:
        """What one row moves of each table, as `mechanisms.tables` takes it."""
        return {
            "bounds": [table.bound for table in self.tables],
            "cells": [table.cells for table in self.tables],
        }

    @override
    def charge(self) -> Charge:
        """Return what a release is charged, of settled terms."""
        if self.noise == "gaussian":
            return tables.histograms_charge(name=MECHANISM)
        return tables.tallies_charge(epsilon=self.epsilon, name=MECHANISM)

    def noises(self, paid: TableEvent) -> tuple[WholeNoise, ...]:
        """Return the law of the noise on each number of each table.

        Raises:
            InvalidParameterError: If there is noise among it that can't be drawn.
        """
        count, rows = len(self.measure), self.rows_per_unit
        return (*tables.noises(paid, count, **self.moved, rows=rows),)

    def settled(self, budget: PrivacyBudgetHandler) -> GDPTerms:
        """Return the terms with the noise that is smaller for what the account pays.

        It depends on public terms alone. An account that can't pay for the one gets the
        other.

        Raises:
            InvalidParameterError: If there is no noise that can be drawn.
            PlanMismatchError: If the account can't pay.
        """
        if self.epsilon:
            self.noises(Pure(epsilon=self.epsilon))  # Before an account prices it.
        kinds: list[Noise] = ["laplace"] if self.epsilon else ["laplace", "gaussian"]
        found: list[tuple[float, GDPTerms]] = []
        refusals: list[InvalidParameterError | PlanMismatchError] = []
        for kind in kinds if self.noise is None else [self.noise]:
            terms = self.model_copy(update={"noise": kind})
            try:
                (paid,) = budget.quote(terms.charge())
                deviation = terms.noises(paid)[0].standard_deviation  # type: ignore[arg-type]  # by `charge`
                found.append((deviation, terms))
            except (InvalidParameterError, PlanMismatchError) as error:
                refusals.append(error)
        if not found:
            raise refusals[0]
        return min(found, key=lambda quoted: quoted[0])[1]


def read_measure(measure: Any, schema: TableSchema) -> tuple[tuple[str, ...], ...]:
    """Return each table's columns.

    Where nothing is given: the label with each feature, and the label alone where none
    of these counts it.

    Raises:
        InvalidParameterError: If it is no list of names and pairs of names, a column is
            unknown, a table is there twice, or a sum has no count beside it.
    """
    if measure is None:
        pairs = tuple((schema.label, column.name) for column in schema.features)
        counted = [MeasuredTable.of(schema, own) for own in pairs]
        is_told = any(table.tells((schema.label,)) for table in counted)
        return pairs if is_told else ((schema.label,), *pairs)
    listed = measure if isinstance(measure, list) else []
    found = [(own,) if isinstance(own, str) else own for own in listed]
    if not found or not all(map(_is_table, found)):
        raise InvalidParameterError(
            "measure must be a list of columns and pairs of columns: "
            "[('condition', 'drug'), 'age'] counts by the pair and by the age."
        )
    names = [frozenset(own) for own in found]
    for own, named in zip(found, names, strict=True):
        if len(own) > 2 or len(named) < len(own):  # noqa: PLR2004
            raise InvalidParameterError(
                f"measure lists {own!r:.200}: a table is of one column or of two "
                "different ones."
            )
        if names.count(named) > 1:
            raise InvalidParameterError(
                f"measure lists {own!r:.200} twice. The order of a pair does not "
                "matter: name each table once."
            )
    _require_counts(found, schema)
    return tuple(map(tuple, found))


def _require_counts(measure: Sequence[tuple[str, ...]], schema: TableSchema) -> None:
    """Refuse sums that no count stands beside."""
    made = [MeasuredTable.of(schema, own) for own in measure]
    for own, table in zip(measure, made, strict=True):
        if table.summed is None:
            continue
        if len(table.columns) < len(own) - 1:
            raise InvalidParameterError(
                f"measure lists {own!r:.200}, two numbers without bins: give one of "
                "them public bins (bins=)."
            )
        if not any(other.tells(table.columns) for other in made):
            raise InvalidParameterError(
                f"measure lists a sum of {table.summed!r}, and no count that makes a "
                f"mean of it: measure {(*table.columns, schema.label)[0]!r} too, or "
                f"give {table.summed!r} public bins (bins=)."
            )


def _is_table(given: Any) -> bool:
    is_pair = isinstance(given, (list, tuple)) and len(given) > 0
    return is_pair and all(isinstance(name, str) for name in given)
