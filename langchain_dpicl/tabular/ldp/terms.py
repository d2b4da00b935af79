"""What is public about a locally private table: schema, budget split, unit, model."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from langchain_dpicl.accounting import Charge, Event, Pure
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import responses
from langchain_dpicl.tabular.ldp.counts import MAX_CELLS, checked_sizes
from langchain_dpicl.tabular.ldp.fitting import Model
from langchain_dpicl.tabular.schema.table import TableSchema
from langchain_dpicl.tabular.split import TOLERANCE, Split, share_epsilon, split_epsilon

MECHANISM = "ldp_table"
"""The release's public name, in the account and in records."""

RELATION = "replace"
"""How a unit changes what is counted: its reports are there, and say something else."""

SECURE = "secure"
"""What a client says of randomness that comes from the operating system."""

LEAST_EPSILON = 1e-9
"""Least epsilon of a column: to see through its noise takes about 1e18 rows."""


@dataclass(frozen=True)
class LDPTerms:
    """The public terms of reports and of what is made of them.

    Attributes:
        schema: The columns with their public values and bins.
        epsilon: What all reports about one unit cost; None leaves it to the budget.
        split: How a row's epsilon is divided among its columns.
        model: What rows are drawn from: `label` first, or the `joint` table.
        unit_key: The column that says whose a row is; None: each row is a unit.
        rows_per_unit: Most rows of a unit that are reported.
    """

    schema: TableSchema
    epsilon: float | None
    split: Split = "even"
    model: Model = "label"
    unit_key: str | None = None
    rows_per_unit: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.split, Mapping):
            # A copy: who changes a split later must not change what reports claim.
            object.__setattr__(self, "split", dict(self.split))

    def check(self) -> None:
        """Refuse terms that are out of range or do not go together.

        Raises:
            InvalidParameterError: If they are; the message names the argument, or the
                column that has no bins.
        """
        if not isinstance(self.schema, TableSchema):
            raise InvalidParameterError(
                f"schema must be a TableSchema, not {type(self.schema).__name__}."
            )
        # Also for a client: what nobody can count need not be reported and paid for.
        checked_sizes(list(self.sizes.values()), self.label)
        if self.model not in ("label", "joint"):
            raise InvalidParameterError("model must be 'label' or 'joint'.")
        parameters.count(self.rows_per_unit, "rows_per_unit")
        if self.unit_key is not None:
            if not isinstance(self.unit_key, str) or not self.unit_key:
                raise InvalidParameterError(
                    "unit_key must be the name of the column that says whose a row is."
                )
            if self.unit_key in self.schema.names:
                raise InvalidParameterError(
                    f"unit_key {self.unit_key!r} is a column of the schema: it would "
                    "be reported. Take it out of the schema."
                )
        elif self.rows_per_unit > 1:
            raise InvalidParameterError(
                "rows_per_unit goes with unit_key=, the column that says whose a row "
                "is; without one each row is a unit of its own."
            )
        if self.epsilon is not None:
            self.row_epsilons(self.epsilon)
        elif isinstance(self.split, Mapping):
            raise InvalidParameterError(
                "A split by hand needs epsilon=, which it sums to."
            )
        else:
            # The smallest claim shows what is wrong with the columns or the name.
            self.row_epsilons(1.0)

    @property
    def sizes(self) -> dict[str, int]:
        """Each column's number of public values or bins, the label's too.

        Raises:
            InvalidParameterError: If a column of numbers has no bins, or a column has
                too many values.
        """
        sizes = {column.name: column.domain_size for column in self.schema.columns}
        for name, size in sizes.items():
            if size > MAX_CELLS:
                raise InvalidParameterError(
                    f"Column {name!r} has {size} values; at most {MAX_CELLS} can be "
                    "counted. Put values together."
                )
        return sizes

    @property
    def label(self) -> int:
        """The label's place among the columns."""
        return self.schema.names.index(self.schema.label)

    def row_epsilons(self, epsilon: float) -> dict[str, float]:
        """Return each column's epsilon for one row, given that of a unit.

        Args:
            epsilon: What all reports about a unit cost.

        Privacy:
            A unit's rows are randomized independently of each other, and so are a
            row's columns: the total is at most `rows_per_unit` times the sum returned,
            which is rounded to be at most `epsilon`.
        """
        if isinstance(self.split, Mapping):
            whole = split_epsilon(epsilon, self.sizes, self.split)
            parts = {
                name: share_epsilon(part, self.rows_per_unit)
                for name, part in whole.items()
            }
        else:
            row = share_epsilon(epsilon, self.rows_per_unit)
            parts = split_epsilon(row, self.sizes, self.split)
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
    def unit(self) -> str:
        """What is protected, for the record."""
        if self.unit_key is None:
            return "one row"
        return (
            f"all rows with the same {self.unit_key!r}, of which at most "
            f"{self.rows_per_unit} are reported"
        )

    @property
    def neighbors(self) -> str:
        """What one unit may change, for the record."""
        if self.unit_key is None:
            return (
                "one row's values replaced by any others; how many rows there "
                "are is public"
            )
        return (
            "the values of one unit's rows replaced by any others; how many rows "
            "of each unit are reported is public"
        )

    def described(self) -> dict[str, Any]:
        """Return the terms as JSON-able values: the same ones, the same reports."""
        by_hand = isinstance(self.split, Mapping)
        return {
            "schema": self.schema.fingerprint(),
            "epsilon": self.epsilon,
            "split": "given" if by_hand else self.split,
            "epsilons": None
            if self.epsilon is None
            else self.row_epsilons(self.epsilon),
            "rows_per_unit": self.rows_per_unit,
        }

    def fingerprint(self, *, is_secure: bool) -> str:
        """Return what tells collections apart that are not the same measurement."""
        split = self.split
        public = {
            **self.described(),
            "split": dict(split) if isinstance(split, Mapping) else split,
            "unit_key": self.unit_key,
            "is_secure": is_secure,
        }
        data = json.dumps(public, sort_keys=True).encode()
        return hashlib.blake2b(data, digest_size=32).hexdigest()


def require_same_terms(own: LDPTerms, given: Mapping[str, Any] | None) -> None:
    """Refuse to read reports by other terms than they were made with.

    Args:
        own: The terms by which reports would be read.
        given: What `LDPClient.terms` gave; None compares nothing.

    Raises:
        InvalidParameterError: If they differ.
    """
    if given is None:
        return
    if not isinstance(given, Mapping):
        raise InvalidParameterError(
            f"terms must be what LDPClient.terms gave, not {type(given).__name__}."
        )
    described = own.described()
    mine, theirs = described.pop("epsilons"), given.get("epsilons")
    wrong = [name for name, value in described.items() if given.get(name) != value]
    if not same_epsilons(mine, theirs):
        wrong.append("epsilons")
    if wrong:
        raise InvalidParameterError(
            f"terms: the clients' {wrong[0]!r} is not that of these arguments. Their "
            "reports would be read wrongly, or the record claim a wrong epsilon."
        )


def same_epsilons(own: Mapping[str, float], given: Any) -> bool:
    """Say whether columns' epsilons, read from JSON, are these.

    Args:
        own: Each column's epsilon.
        given: What should be the same, of any form.

    Example:
        >>> same_epsilons({"job": 1.0}, {"job": 1}), same_epsilons({"job": 1.0}, {})
        (True, False)
    """
    if not isinstance(given, Mapping) or given.keys() != own.keys():
        return False
    return all(
        isinstance(given[name], int | float)
        # An integer of JSON may be larger than any float: bounded before it is one.
        and 0 < given[name] < 2 * part
        # Another processor's logarithms may differ in the last place.
        and math.isclose(part, given[name], rel_tol=TOLERANCE)
        for name, part in own.items()
    )
