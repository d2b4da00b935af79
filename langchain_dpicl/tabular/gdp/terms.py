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

import hashlib
import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from pydantic import field_serializer, field_validator, model_validator
from typing_extensions import Self

from langchain_dpicl.accounting import Charge, Gaussian, Pure
from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.errors import InvalidParameterError, PlanMismatchError
from langchain_dpicl.mechanisms import tables
from langchain_dpicl.public import Public
from langchain_dpicl.tabular.gdp.margins import WholeNoise
from langchain_dpicl.tabular.schema.numeric import NumericColumn
from langchain_dpicl.tabular.schema.table import TableSchema

MECHANISM = "gdp_table"

MAX_CELLS = 1 << 20
"""Most numbers of one release."""

Noise = Literal["laplace", "gaussian"]

Measure: TypeAlias = Sequence[str | tuple[str, ...]]
"""Names of columns, and pairs of names."""

TableEvent: TypeAlias = Pure | Gaussian
"""What is charged: for discrete Laplace noise, or for Gaussian."""

_MOST = 2
_ASKED = (
    "measure must list columns and pairs of columns: "
    "[('condition', 'drug'), ('drug', 'side effect'), 'age']."
)


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

    @property
    def name(self) -> str:
        """What the record calls it."""
        return table_name((*self.columns, self.summed) if self.summed else self.columns)

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)

    def tells(self, columns: Collection[str]) -> bool:
        """Return whether its sums over the other columns count by these columns.

        Rows are counted once in a sum over a column of single values. A sum over a
        column that holds sets counts mentions, and no rows.
        """
        others = [name for name in self.columns if name not in columns]
        is_part = all(name in self.columns for name in columns)
        return self.summed is None and is_part and not self.sets.intersection(others)


def table_name(columns: Sequence[str]) -> str:
    """Return what a table is called in the record.

    Example:
        >>> table_name(("condition", "drug"))
        'condition x drug'
    """
    return " x ".join(columns)


class GDPTerms(Public):
    """The public terms of a `GDPTable`: its identity, its key, and its record.

    Attributes:
        table_schema: The public schema.
        measure: The columns of each table, one or two.
        unit_key: The column that says whose a row is; None: each row is a unit.
        rows_per_unit: Most rows of a unit that take part.
        noise: Which; None leaves it to the account (`settled`).
        epsilon: Of Laplace noise; None leaves it to the account.
        row_unit: The `unit_key` of the records that rows were read from, one row a unit
            (`TextRows`); None: a row is not known to be more than a row.
    """

    table_schema: TableSchema
    measure: tuple[tuple[str, ...], ...]
    unit_key: str | None = None
    rows_per_unit: int = 1
    noise: Noise | None = None
    epsilon: float | None = None
    row_unit: str | None = None

    @field_validator("table_schema", mode="before")
    @classmethod
    def _schema(cls, given: Any) -> Any:
        return TableSchema(**given) if isinstance(given, Mapping) else given

    @field_serializer("table_schema")
    def _described(self, schema: TableSchema) -> dict[str, Any]:
        return schema.describe()

    @field_validator("unit_key")
    @classmethod
    def _named(cls, given: str | None) -> str | None:
        if given is not None and not given.strip():
            raise ValueError("it must be the name of a column")
        return given

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.unit_key is None and self.rows_per_unit != 1:
            raise ValueError(
                "rows_per_unit= needs unit_key=, the column that says whose a row is: "
                "without one each row is a unit of its own"
            )
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
        return tuple(measured_table(self.table_schema, own) for own in self.measure)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are measured, in the schema's order."""
        named = {name for own in self.measure for name in own}
        return tuple(name for name in self.table_schema.names if name in named)

    @property
    def charged_unit(self) -> str | None:
        """What names the protected unit for the account; None: a row."""
        return self.unit_key or self.row_unit

    @property
    def unit(self) -> str:
        """What is protected, for the record."""
        if self.unit_key is not None:
            return f"all rows with the same {self.unit_key!r}"
        if self.row_unit is not None:
            return f"all records with the same {self.row_unit!r}, read as one row"
        return "one row"

    @property
    def moved(self) -> dict[str, list[int]]:
        """What one row moves of each table, as `mechanisms.tables` takes it."""
        return {
            "bounds": [table.bound for table in self.tables],
            "cells": [table.cells for table in self.tables],
        }

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
        count, rows = len(self.tables), self.rows_per_unit
        if isinstance(paid, Gaussian):
            return (*tables.gaussian_noises(paid, count, **self.moved, rows=rows),)
        return (*tables.laplace_noises(paid, count, **self.moved, rows=rows),)

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

    def digest(self) -> str:
        """Return what tells releases apart that are not the same measurement."""
        data = json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()
        return hashlib.blake2b(data, digest_size=32).hexdigest()

    def parameters(self) -> dict[str, Any]:
        """Return the terms for the record, the schema by its digest."""
        found = self.model_dump(
            mode="json", exclude={"unit_key", "row_unit", "epsilon"}
        )
        schema = self.table_schema.fingerprint()
        del found["table_schema"]
        return {"schema": schema, **found, "text_key": "text", "label_key": "label"}


def measured_table(schema: TableSchema, own: Sequence[str]) -> MeasuredTable:
    """Return the table of one or two columns.

    Raises:
        InvalidParameterError: If the schema has no such column.
    """
    columns = [schema.column(name) for name in own]
    summed = [c for c in columns if isinstance(c, NumericColumn) and not c.has_codes]
    coded = [column for column in columns if column.has_codes]
    items = {c.name: getattr(c, "max_items", None) for c in coded}
    return MeasuredTable(
        columns=tuple(column.name for column in coded),
        summed=summed[0].name if summed else None,
        shape=tuple(column.domain_size for column in coded),
        bound=summed[0].bound if summed else 1,
        cells=math.prod(most or 1 for most in items.values()),
        sets=frozenset(name for name, most in items.items() if most is not None),
    )


def read_measure(measure: Any, schema: TableSchema) -> tuple[tuple[str, ...], ...]:
    """Return each table's columns.

    Args:
        measure: Columns and pairs of columns; None: the label with each feature, and
            the label alone where none of these counts it.
        schema: The public schema.

    Raises:
        InvalidParameterError: If it is no list of names and pairs of names, a column is
            unknown, a table is there twice, a pair has no list around it, or a sum has
            no count beside it.
    """
    if measure is None:
        pairs = tuple((schema.label, column.name) for column in schema.features)
        counted = [measured_table(schema, own) for own in pairs]
        is_told = any(table.tells((schema.label,)) for table in counted)
        return pairs if is_told else ((schema.label,), *pairs)
    if isinstance(measure, tuple) and list(map(type, measure)) == [str, str]:
        raise InvalidParameterError(
            f"measure={measure!r:.200} may mean one pair or two columns: write a list, "
            "[('drug', 'side effect')] for the pair, ['drug', 'side effect'] for both."
        )
    found = [_columns(own) for own in _listed(measure)]
    if not found:
        raise InvalidParameterError(_ASKED)
    for place, own in enumerate(found):
        if len(own) > _MOST or len(set(own)) < len(own):
            raise InvalidParameterError(
                f"measure lists {own!r:.200}: a table is of one column or of two "
                "different ones."
            )
        if any(
            set(own) == set(other) or table_name(own) == table_name(other)
            for other in found[:place]
        ):
            raise InvalidParameterError(
                f"measure lists {table_name(own)!r:.200} twice. The order of a pair "
                "does not matter: name each table once."
            )
    _require_counts(found, schema)
    return tuple(found)


def _require_counts(measure: Sequence[tuple[str, ...]], schema: TableSchema) -> None:
    """Refuse sums that no count stands beside."""
    made = [measured_table(schema, own) for own in measure]
    for own, table in zip(measure, made, strict=True):
        if table.summed is None:
            continue
        if len(table.columns) < len(own) - 1:
            raise InvalidParameterError(
                f"measure lists {own!r:.200}, two numbers without bins: give one of "
                "them public bins (bins=)."
            )
        if not any(other.tells(table.columns) for other in made):
            by = table_name(table.columns) or schema.label
            raise InvalidParameterError(
                f"measure lists a sum of {table.summed!r}, and no count that makes a "
                f"mean of it: measure {by!r} too, or give {table.summed!r} public bins "
                "(bins=)."
            )


def _listed(given: Any) -> list[Any]:
    # A set has another order in every process; a text is a list of letters.
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Sequence):
        raise InvalidParameterError(_ASKED)
    return list(given)


def _columns(given: Any) -> tuple[str, ...]:
    own = (given,) if isinstance(given, str) else tuple(_listed(given))
    if not own or not all(isinstance(name, str) for name in own):
        raise InvalidParameterError(_ASKED)
    return own
