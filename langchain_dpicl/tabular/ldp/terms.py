"""What is public about a locally private table: schema, budget split, unit, model.

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
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from langchain_dpicl.accounting import Charge, Event, Pure
from langchain_dpicl.common import parameters
from langchain_dpicl.common.units import REPORTS_OF
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import responses
from langchain_dpicl.tabular.ldp.model import Model
from langchain_dpicl.tabular.ldp.reports import MAX_CELLS, MOST_REPORTS, ReportCounts
from langchain_dpicl.tabular.schema.table import TableSchema
from langchain_dpicl.tabular.split import Split, share_epsilon, split_epsilon

MECHANISM = "ldp_table"
"""The release's public name, in the account and in records."""

LEAST_EPSILON = 1e-9
"""Least epsilon of a column: to see through its noise takes about 1e18 rows."""


@dataclass(frozen=True)
class LDPTerms:
    """The public terms of reports and of what is made of them; checked when made.

    Attributes:
        schema: The columns with their public values and bins.
        epsilon: What all reports about one unit cost; None leaves it to the budget.
        split: How a row's epsilon is divided among its columns.
        model: What rows are drawn from: `label` first, or the `joint` table.
        unit_key: The column that says whose a row is; None: each row is a unit.
        rows_per_unit: Most rows of a unit that are reported.
        invited: How many units were invited; None: who takes part is public.
        row_unit: What a row stands for, where it was made of all records of a unit.

    Raises:
        InvalidParameterError: If a term is out of its range, or terms do not go
            together. The message names the argument, or the column that has no bins.
    """

    schema: TableSchema
    epsilon: float | None
    split: Split = "even"
    model: Model = "label"
    unit_key: str | None = None
    rows_per_unit: int = 1
    invited: int | None = None
    row_unit: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.schema, TableSchema):
            raise InvalidParameterError(
                f"schema must be a TableSchema, not {type(self.schema).__name__}."
            )
        if isinstance(self.split, Mapping):
            # A copy: who changes a split later must not change what reports claim.
            object.__setattr__(self, "split", dict(self.split))
        if self.model not in ("label", "joint"):
            raise InvalidParameterError('model must be "label" or "joint".')
        # Also for a client: what nobody can count need not be reported and paid for.
        if self.no_reports().joint is None and self.model == "joint":
            raise InvalidParameterError(
                f"The joint table of these columns has more than {MAX_CELLS} cells: it "
                'is too large. Use model="label", or fewer columns.'
            )
        parameters.count(self.rows_per_unit, "rows_per_unit")
        if self.invited is not None:
            parameters.count(self.invited, "invited")
            if self.invited * self.rows_per_unit >= MOST_REPORTS:
                raise InvalidParameterError(
                    f"invited= makes {MOST_REPORTS} reports or more: invite fewer."
                )
        self._check_unit_key()
        if self.epsilon is not None:
            self.epsilons(parameters.epsilon(self.epsilon))
        elif isinstance(self.split, Mapping):
            raise InvalidParameterError(
                "A split by hand needs epsilon=, which it sums to."
            )
        else:
            # The smallest claim shows what is wrong with the columns.
            self.epsilons(1.0)

    def _check_unit_key(self) -> None:
        if self.unit_key is None:
            if self.rows_per_unit > 1:
                raise InvalidParameterError(
                    "rows_per_unit goes with unit_key=, the column that says whose a "
                    "row is; without one each row is a unit of its own."
                )
        elif not isinstance(self.unit_key, str) or not self.unit_key:
            raise InvalidParameterError(
                "unit_key must be the name of the column that says whose a row is."
            )
        elif self.unit_key in self.schema.names:
            raise InvalidParameterError(
                f"unit_key {self.unit_key!r} is a column of the schema: it would be "
                "reported. Take it out of the schema."
            )

    @property
    def sizes(self) -> list[int]:
        """Each column's number of public values or bins, the label's too."""
        return [column.domain_size for column in self.schema.columns]

    def no_reports(self) -> ReportCounts:
        """Return counts of no reports yet."""
        label = self.schema.names.index(self.schema.label)
        return ReportCounts(self.sizes, label)

    def epsilons(self, epsilon: float) -> dict[str, float]:
        """Return each column's epsilon for one row, given that of a unit.

        Privacy:
            A unit's rows are randomized independently of each other, and so are a
            row's columns: the total is at most `rows_per_unit` times the sum returned,
            which is rounded to be at most `epsilon`.
        """
        whole = split_epsilon(epsilon, self.schema.names, self.split)
        parts = {
            name: share_epsilon(part, self.rows_per_unit)
            for name, part in whole.items()
        }
        for name, part in parts.items():
            if part < LEAST_EPSILON:
                raise InvalidParameterError(
                    f"Column {name!r} would be reported at epsilon {part:g}: below "
                    f"{LEAST_EPSILON:g} no number of rows says anything. Give more "
                    "epsilon, or take the column out of the schema."
                )
        return parts

    def charge(self) -> Charge:
        """Return what one collection costs."""
        return responses.charge(epsilon=self.epsilon, name=MECHANISM)

    def paid(self, events: tuple[Event, ...]) -> float:
        """Return the epsilon of all reports about one unit, of what was paid."""
        (pure,) = events
        return float(cast("Pure", pure).epsilon or 0)

    @property
    def reports(self) -> int | None:
        """How many reports there are; None: as many as rows."""
        return None if self.invited is None else self.invited * self.rows_per_unit

    @property
    def charged_unit(self) -> str | None:
        """The kind of unit that the account protects."""
        unit = self.unit_key or self.row_unit
        return unit if self.invited is not None else f"{REPORTS_OF}{unit or 'row'}"

    @property
    def relation(self) -> str:
        """How a unit changes what is counted."""
        return "replace" if self.invited is None else "add_remove"

    @property
    def unit(self) -> str:
        """What is protected, for the record."""
        if self.unit_key is None:
            made = f", made of all records with the same {self.row_unit!r}"
            return f"one row{made if self.row_unit else ''}"
        return (
            f"all rows with the same {self.unit_key!r}, of which at most "
            f"{self.rows_per_unit} are reported"
        )

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

    def described(self) -> dict[str, Any]:
        """Return the terms as JSON-able values: the same ones, the same reports."""
        is_given = isinstance(self.split, Mapping)
        return {
            "schema": self.schema.fingerprint(),
            "epsilon": self.epsilon,
            "split": "given" if is_given else self.split,
            "epsilons": None if self.epsilon is None else self.epsilons(self.epsilon),
            "rows_per_unit": self.rows_per_unit,
        }

    def stored(self) -> dict[str, Any]:
        """Return what the ledger keeps of the terms. Which model is fitted is free."""
        kept = ("epsilon", "split", "unit_key", "rows_per_unit", "invited", "row_unit")
        return {name: getattr(self, name) for name in kept}

    def fingerprint(self, *, is_secure: bool) -> str:
        """Return what tells collections apart that are not the same measurement."""
        public = {**self.described(), **self.stored(), "is_secure": is_secure}
        data = json.dumps(public, sort_keys=True).encode()
        return hashlib.blake2b(data, digest_size=32).hexdigest()

    def require_same(self, given: Any) -> None:
        """Refuse to read reports by other terms than they were made with.

        Args:
            given: What `LDPClient.terms` gave.

        Raises:
            InvalidParameterError: If they differ.
        """
        if not isinstance(given, Mapping):
            raise InvalidParameterError(
                f"terms must be what LDPClient.terms gave, not {type(given).__name__}."
            )
        for name, value in self.described().items():
            if given.get(name) != value:
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
