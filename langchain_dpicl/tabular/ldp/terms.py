"""What is public about a locally private table: schema, budget split, unit.

Privacy:
    *Who takes part.* Randomized response hides what a report says. An exact number of
    reports tells a table from the same with one person more, with certainty. So there
    are two ways, and one of them is stated:

    * `participation="public"`: that a report was made, and how many there are, is
      public. Neighbors: one unit's values replaced by any others. The release promises
      less than the others of an account do, where one unit more or less changes
      nothing. So it is charged to another kind of unit, "reports of each ...", and an
      account or a corpus that protects one kind refuses the other.
    * `invited=N`: there is a public, fixed list of N invited units, drawn up whether or
      not they answer. Each has exactly `rows_per_unit` reports; those that nobody
      answered are null (`mechanisms.responses`). Counts have no order, so a unit more
      or less changes as many reports, each from null to its own or back: epsilon, by
      the proof there. Neighbors: all rows of one unit added or removed.

    Filling up a private number of rows to a declared one is no third way: what is above
    it would have to be dropped, and who is dropped would depend on the others. Here
    more rows than invitations are refused: then the list is not what was stated.

    *How epsilon is divided.* A unit's rows are randomized independently of each other,
    and so are a row's columns, so that their epsilons add up (basic composition; Carey
    et al., *DP-TabICL*, 2024, Algorithm 1). The parts are rounded so that their exact
    sum over all columns and rows is never above epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic import PositiveInt, field_validator, model_validator
from typing_extensions import Self, override

from langchain_dpicl.accounting import Charge, Event, Pure
from langchain_dpicl.common import parameters
from langchain_dpicl.common.units import REPORTS_OF
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import responses
from langchain_dpicl.tabular.ldp.reports import MOST_REPORTS, ReportCounts
from langchain_dpicl.tabular.terms import TableTerms

MECHANISM = "ldp_table"

LEAST_EPSILON = 1e-9
"""Least epsilon of a column: to see through its noise takes about 1e18 rows."""

TOLERANCE = 1e-9
"""How far a given split may miss epsilon, relatively: decimals don't add up exactly."""

Split: TypeAlias = Literal["even"] | Mapping[str, float]
"""Equal parts, or each column's epsilon."""


class LDPTerms(TableTerms):
    """The public terms of reports.

    Attributes:
        split: How a row's epsilon is divided among its columns.
        invited: How many units were invited; None: who takes part is public.
    """

    mechanism: ClassVar[str] = MECHANISM

    split: Literal["even"] | Mapping[str, float] = "even"
    invited: PositiveInt | None = None

    @field_validator("split", mode="before")
    @classmethod
    def _numbers(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {name: parameters.epsilon(part, "it") for name, part in given.items()}

    @model_validator(mode="after")
    def _possible(self) -> Self:
        for column in self.table_schema.columns:
            if not column.domain_size:
                raise ValueError(
                    f"Column {column.name!r} has no bins: give bins=, public edges or "
                    "a number of bins"
                )
            if getattr(column, "max_items", None) is not None:
                raise ValueError(
                    f"Column {column.name!r} holds sets of values (max_items=), which "
                    "only GDPTable counts"
                )
        if self.unit_key in self.table_schema.names:
            raise ValueError(
                f"unit_key: {self.unit_key!r} is a column of the schema, and would be "
                "reported. Take it out of the schema"
            )
        self.no_reports()
        if (self.invited or 0) * self.rows_per_unit >= MOST_REPORTS:
            raise ValueError(f"invited: it makes {MOST_REPORTS} reports or more")
        if self.epsilon is None and self.split != "even":
            raise ValueError("split: one by hand needs epsilon=, which it sums to")
        # Else the smallest claim shows what is wrong with the columns.
        self.column_epsilons(self.epsilon or 1.0)
        return self

    @property
    def sizes(self) -> list[int]:
        """Each column's number of public values or bins, the label's too."""
        return [column.domain_size for column in self.table_schema.columns]

    def no_reports(self) -> ReportCounts:
        """Return counts of no reports yet."""
        schema = self.table_schema
        return ReportCounts(self.sizes, schema.names.index(schema.label))

    def column_epsilons(self, epsilon: float) -> dict[str, float]:
        """Return each column's epsilon for one row, given that of a unit.

        Raises:
            InvalidParameterError: If the split is not of these columns and this
                epsilon, or too little is left of it for a column.

        Privacy:
            `rows_per_unit` times the exact sum of what is returned is at most
            `epsilon`.

        Example:
            >>> column = {"kind": "categorical", "values": [0, 1]}
            >>> columns = [{"name": name, **column} for name in "ab"]
            >>> schema = {"label": "a", "columns": columns}
            >>> LDPTerms(table_schema=schema).column_epsilons(3.0)
            {'a': 1.5, 'b': 1.5}
        """
        names, rows = self.table_schema.names, self.rows_per_unit
        parts = dict.fromkeys(names, epsilon / len(names) / rows)
        if not isinstance(self.split, str):
            total = sum(map(Fraction, self.split.values()), Fraction(0))
            if set(self.split) != set(names):
                raise InvalidParameterError(
                    "split gives an epsilon for each of the columns, and no other: "
                    f"{', '.join(map(repr, names)):.500}."
                )
            if abs(total - Fraction(epsilon)) > TOLERANCE * Fraction(epsilon):
                raise InvalidParameterError(
                    "split: its parts must sum to epsilon: each column's loss adds up "
                    "for the row it is in."
                )
            fit = min(1.0, float(Fraction(epsilon) / total))
            parts = {name: self.split[name] * fit / rows for name in names}
        while sum(map(Fraction, parts.values())) * rows > Fraction(epsilon):
            parts = {n: math.nextafter(part, 0.0) for n, part in parts.items()}
        for name, part in parts.items():
            if part < LEAST_EPSILON:
                raise InvalidParameterError(
                    f"Column {name!r} would be reported at epsilon {part:g}: below "
                    f"{LEAST_EPSILON:g} no number of rows says anything. Give more "
                    "epsilon, or take the column out of the schema."
                )
        return parts

    @override
    def charge(self) -> Charge:
        """Return what one collection costs."""
        return responses.charge(epsilon=self.epsilon, name=MECHANISM)

    def paid_by(self, events: tuple[Event, ...]) -> LDPTerms:
        """Return the terms with the epsilon that was paid."""
        epsilons = [event.epsilon for event in events if isinstance(event, Pure)]
        return self.model_copy(update={"epsilon": epsilons[0]})

    @property
    def reports(self) -> int | None:
        """How many reports there are; None: as many as rows."""
        return None if self.invited is None else self.invited * self.rows_per_unit

    @property
    @override
    def charged_unit(self) -> str | None:
        unit = super().charged_unit
        return unit if self.invited is not None else f"{REPORTS_OF}{unit or 'row'}"

    @property
    def relation(self) -> str:
        """How a unit changes what is counted."""
        return "replace" if self.invited is None else "add_remove"

    @property
    @override
    def unit(self) -> str:
        most = f", of which at most {self.rows_per_unit} are reported"
        return f"{super().unit}{most if self.unit_key else ''}"

    @property
    def neighbors(self) -> str:
        """What one unit may change, for the record."""
        if self.invited is not None:
            return (
                "all rows of one unit added or removed; how many units were invited is "
                "public, and invitations without an answer are reported as uniform "
                "values"
            )
        return (
            "the rows behind the reports of one unit replaced by any others: it "
            "protects what a report says, not that it was made; who reports, and how "
            "often, is public"
        )

    @override
    def parameters(self) -> dict[str, Any]:
        epsilons = self.epsilon and self.column_epsilons(self.epsilon)
        return {**super().parameters(), "epsilons": epsilons}

    def require_same(self, given: Any) -> None:
        """Refuse to read reports by other terms than `LDPClient.terms` gave.

        Raises:
            InvalidParameterError: If they differ.
        """
        if not isinstance(given, Mapping):
            raise InvalidParameterError(
                f"terms must be what LDPClient.terms gave, not {type(given).__name__}."
            )
        own = self.parameters()
        for name in ("schema", "epsilon", "split", "epsilons"):
            if given.get(name) != own[name]:
                raise InvalidParameterError(
                    f"terms: the clients' {name!r} is not that of these arguments. "
                    "Their reports would be read wrongly, or the record claim a wrong "
                    "epsilon."
                )


def require_participation(participation: Any, invited: Any) -> None:
    """Refuse a table that does not say who takes part, or says it twice.

    Raises:
        InvalidParameterError: If it does not. It names both ways.
    """
    if (participation, invited) != ("public", None) and (
        participation is not None or invited is None
    ):
        raise InvalidParameterError(
            "How many reports there are tells who takes part. State one of two: "
            'participation="public" protects what a report says, and not that it was '
            "made; invited=N, the number of units on a public list of invitations, "
            "makes a uniform report of each that was not answered, and protects that "
            "too."
        )
