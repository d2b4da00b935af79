"""What a noisy table measures, and what each measurement may cost: public terms.

A table is cut into groups by public predicates: every combination of the declared
values of the `group_by` columns is one group, whether or not a row is in it. In every
group the same *quantities* are measured: for a categorical column (and a numeric one
that is shown by its bins) how many rows have each value; for a numeric column the sum
of its values; and once for all numeric columns the number of rows.

With `measure` there are no groups, and what is measured are histograms that were asked
for by name: of a column, or of the pairs of values of two.

Privacy:
    Sensitivity, noise and event: `mechanisms.tables`. A row is in one group,
    by its own values. There it adds 1 to one cell of every histogram, 1 to the number
    of rows, and to each sum a number of grid steps between -M and M: quantity i moves
    by at most `bound` in L1 for a row. With `measure` a row adds 1 to one cell of every
    histogram, so that Gaussian noise on all of them at once may be taken instead. What
    it names outside the lists of open columns: `tabular.gdp.names`.

    The paper (Carey et al. 2024, Algorithm 2) pays for a noisy number of rows in every
    numeric column and halves the column's budget for that; here it is paid for once.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any, Literal, TypeAlias, cast

from langchain_dpicl.accounting import Charge, Event, Failure, Gaussian, Pure
from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError, PlanMismatchError
from langchain_dpicl.mechanisms import keyword_threshold, tables
from langchain_dpicl.mechanisms.exact import DiscreteLaplace
from langchain_dpicl.tabular.gdp.margins import WholeNoise
from langchain_dpicl.tabular.gdp.measuring import table_name
from langchain_dpicl.tabular.gdp.names import check_open
from langchain_dpicl.tabular.schema.columns import CategoricalColumn
from langchain_dpicl.tabular.schema.numeric import NumericColumn
from langchain_dpicl.tabular.schema.table import TableSchema
from langchain_dpicl.tabular.split import Split, split_epsilon

MECHANISM = "gdp_table"

ROWS = "(rows)"
"""What the number of rows in a group is called among the columns."""

MAX_CELLS = 1 << 20
"""Most numbers of one release."""

_DESCRIBED = (
    "schema",
    "group_by",
    "numeric",
    "sampling_rate",
    "rows_per_unit",
    "split",
)
"""What a ledger keeps of `GDPTerms.described`."""

Numeric = Literal["mean", "bins"]

Noise = Literal["auto", "laplace", "gaussian"]

TableEvent: TypeAlias = Pure | Gaussian
"""What a charge pays for: discrete Laplace noise, or Gaussian."""

Test: TypeAlias = tuple[Gaussian, Failure]
"""What it pays for names in open columns."""


@dataclass(frozen=True)
class Quantity:
    """One thing that is measured in every group.

    Attributes:
        name: The column, or `ROWS`; of a pair, both columns (`table_name`).
        kind: A histogram over a column's codes, a sum of grid steps, or the rows.
        size: Numbers in a group.
        bound: Most that one row changes them by, in L1.
        columns: The columns of a histogram; its cells have the last one's values
            running fastest.
    """

    name: str
    kind: Literal["histogram", "sum", "rows"]
    size: int
    bound: int
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class GDPTerms:
    """The public terms of a `GDPTable`; `check` them before use.

    Attributes:
        schema: The columns.
        group_by: Columns whose values make the groups.
        sampling_rate: Of the Poisson sample of units.
        unit_key: Whose a row is; None: each row is a unit.
        rows_per_unit: Most rows of a unit that take part.
        split: How epsilon is shared between the quantities.
        numeric: Whether numeric columns are released as means or as bins.
        epsilon: Of the release, before sampling; None leaves it to the budget.
        measure: The columns of each histogram; None: one for each column, by groups.
        noise: Which; "auto" is settled by the account, or by a charge.
        row_unit: The `unit_key` of the records that rows were read from, one row a unit
            (`TextRows`); None: a row is not known to be more than a row.
    """

    schema: TableSchema
    group_by: tuple[str, ...]
    sampling_rate: float
    unit_key: str | None
    rows_per_unit: int
    split: Split
    numeric: Numeric
    epsilon: float | None
    measure: tuple[tuple[str, ...], ...] | None = None
    noise: Noise = "auto"
    row_unit: str | None = None

    def __post_init__(self) -> None:
        # Whatever kind of number was given, and whatever becomes of a mapping: from
        # here on these are plain, and what is charged, drawn and recorded is the same.
        own: dict[str, Any] = {
            "sampling_rate": parameters.sampling_rate(self.sampling_rate),
            "rows_per_unit": parameters.count(self.rows_per_unit, "rows_per_unit"),
        }
        if self.epsilon is not None:
            own["epsilon"] = parameters.epsilon(self.epsilon)
        if isinstance(self.split, Mapping):
            own["split"] = {
                self._called(name): parameters.epsilon(share, f"split[{name!r}]")
                for name, share in self.split.items()
            }
        if self.measure is not None and self.numeric == "mean":
            # Not asked for: numbers in a histogram are counted by their bins.
            own["numeric"] = "bins"
        for name, value in own.items():
            object.__setattr__(self, name, value)

    def check(self) -> None:
        """Refuse what is wrong with the terms.

        Raises:
            InvalidParameterError: If an argument is out of its range; it is named.
        """
        if not isinstance(self.numeric, str) or self.numeric not in ("mean", "bins"):
            raise InvalidParameterError("numeric must be 'mean' or 'bins'.")
        if ROWS in self.schema.names:
            raise InvalidParameterError(
                f"A column is called {ROWS!r}, which is what the number of rows is "
                "called in the split and the record: give the column another name."
            )
        if self.unit_key is None and self.rows_per_unit != 1:
            raise InvalidParameterError(
                "rows_per_unit= needs unit_key=, the column that says whose a row is: "
                "without one each row is a unit of its own."
            )
        if self.unit_key is not None and (
            not isinstance(self.unit_key, str) or not self.unit_key.strip()
        ):
            raise InvalidParameterError("unit_key must be the name of a column.")
        self._check_groups()
        self._check_noise()
        if self.measure is not None and self.sampling_rate < 1:
            raise InvalidParameterError(
                "measure= counts everybody, and a sample's counts are those of the "
                "sample: leave out sampling_rate=. All rows are read anyway, and at "
                "the same cost their counts are more exact."
            )
        check_open(
            self.schema,
            self.opened,
            is_measured=self.measure is not None,
            rows_are_units=self.unit_key is None,
        )
        if self.epsilon is not None:
            self.epsilons(Pure(epsilon=self.epsilon))
        elif isinstance(self.split, Mapping):
            raise InvalidParameterError(
                "A split by hand needs epsilon=: what its parts sum to."
            )

    @cached_property
    def quantities(self) -> tuple[Quantity, ...]:
        """What is measured in every group, in a public order."""
        if self.measure is not None:
            return tuple(self._histogram(own) for own in self.measure)
        found = []
        for column in self.schema.columns:
            if column.name in self.group_by:
                continue
            if isinstance(column, NumericColumn) and self.numeric == "mean":
                found.append(Quantity(column.name, "sum", 1, column.bound))
            else:
                found.append(self._histogram((column.name,)))
        if not found or any(one.kind == "sum" for one in found):
            found.append(Quantity(ROWS, "rows", 1, 1))
        return tuple(found)

    def shown_schema(self) -> TableSchema:
        """Return the schema of the columns that are released.

        Raises:
            InvalidParameterError: If there are not two of them, the label among them.
        """
        if self.measure is None:
            return self.schema
        names = self.measured_names
        if self.schema.label not in names or len(names) < 2:  # noqa: PLR2004 - the label and a feature
            raise InvalidParameterError(
                "An example shows the label and a feature, and measure= names "
                f"{', '.join(map(repr, names)):.200}: measure the label "
                f"{self.schema.label!r} with a feature too."
            )
        columns = tuple(map(self.schema.column, names))
        return self.schema.model_copy(update={"columns": columns})

    @property
    def bounds(self) -> list[int]:
        """How far one row moves each quantity, in L1."""
        return [quantity.bound for quantity in self.quantities]

    @property
    def measured_names(self) -> tuple[str, ...]:
        """The columns that `measure` names, in the schema's order."""
        named = {name for own in self.measure or () for name in own}
        return tuple(name for name in self.schema.names if name in named)

    @cached_property
    def opened(self) -> tuple[CategoricalColumn, ...]:
        """The measured columns that are open, in the schema's order."""
        named = map(self.schema.column, self.measured_names)
        return tuple(
            one for one in named if isinstance(one, CategoricalColumn) and one.open
        )

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
    def most_named(self) -> int:
        """How many names outside the lists a row counts for at most."""
        return sum(column.max_items for column in self.opened)

    @cached_property
    def group_sizes(self) -> tuple[int, ...]:
        """How many values each `group_by` column has."""
        return tuple(self.schema.column(name).domain_size for name in self.group_by)

    @property
    def n_groups(self) -> int:
        """How many groups there are: 1 without `group_by`."""
        return math.prod(self.group_sizes)

    def groups(self) -> list[tuple[int, ...]]:
        """Return each group's codes of the `group_by` columns, in a public order."""
        return list(product(*map(range, self.group_sizes)))

    def epsilons(self, paid: Pure) -> tuple[float, ...]:
        """Return what each quantity may spend of a release's epsilon.

        Raises:
            InvalidParameterError: If budgets were given that don't fit, or one is so
                small that its noise can't be drawn.
        """
        names = [one.name for one in self.quantities]
        shares = split_epsilon(float(paid.epsilon or 0), names, self.split)
        found = tuple(shares[one.name] for one in self.quantities)
        for one, share in zip(self.quantities, found, strict=True):
            # Before anything is charged; the same noise is drawn afterwards.
            moved = self.rows_per_unit * one.bound
            try:
                DiscreteLaplace.calibrated(moved, share)
            except InvalidParameterError:
                pass
            else:
                continue
            raise InvalidParameterError(
                f"epsilon {share:.3g} is too small for {one.name!r}, which one unit "
                f"changes by up to {moved:.3g} steps: the noise would not fit 64 bits. "
                "Use a larger epsilon, narrower bounds, bins, or fewer rows_per_unit."
            )
        return found

    def noises(self, paid: TableEvent) -> tuple[WholeNoise, ...]:
        """Return the law of the noise on each number of each quantity.

        Raises:
            InvalidParameterError: If there is noise among it that can't be drawn.
        """
        count, rows = len(self.quantities), self.rows_per_unit
        if isinstance(paid, Gaussian):
            noise = tables.gaussian_noise(paid, tables=count, rows_per_unit=rows)
            return (noise,) * count
        return tables.laplace_noises(
            paid, bounds=self.bounds, shares=self.epsilons(paid), rows_per_unit=rows
        )

    def deviations(self, paid: TableEvent) -> tuple[float, ...]:
        """Return the noises' standard deviations; see `noises`."""
        return tuple(noise.standard_deviation for noise in self.noises(paid))

    def charge(self) -> Charge:
        """Return what a release is charged; `paid` tells its events apart."""
        rate = self.sampling_rate
        counted = (
            tables.histograms_charge(sampling_rate=rate, name=MECHANISM)
            if self.noise == "gaussian"
            else tables.tallies_charge(
                epsilon=self.epsilon, sampling_rate=rate, name=MECHANISM
            )
        )
        if not self.opened:
            return counted
        # A row is in both: their costs add up.
        return Charge(
            name=f"{MECHANISM} with open columns",
            parts=counted.parts + keyword_threshold.charge().parts,
        )

    def paid(self, events: tuple[Event, ...]) -> tuple[TableEvent, Test | None]:
        """Return what was paid for the tables, and for the names in open columns."""
        counted, *names = events
        test = cast("Test", tuple(names)) if self.opened else None
        return cast("TableEvent", counted), test

    @property
    def is_pure(self) -> bool:
        """Whether a release costs no part of delta."""
        return self.noise != "gaussian" and not self.opened

    def settled(self, budget: PrivacyBudgetHandler) -> GDPTerms:
        """Return the terms with the noise of which an account needs the least.

        What is compared is the mean variance of a number. It depends on the account's
        public terms alone; an account that can't pay for the one gets the other.

        Raises:
            InvalidParameterError: If noise is left open that nothing determines.
            PlanMismatchError: If the account can't pay for either.
        """
        if self.measure is None or self.noise != "auto":
            return self
        kinds: list[Noise] = ["laplace"] if self.epsilon else ["laplace", "gaussian"]
        found: list[tuple[float, GDPTerms]] = []
        refusals: list[InvalidParameterError | PlanMismatchError] = []
        for kind in kinds:
            terms = replace(self, noise=kind)
            try:
                paid, _ = terms.paid(budget.quote(terms.charge()))
                found.append((math.hypot(*terms.deviations(paid)), terms))
            except (InvalidParameterError, PlanMismatchError) as error:
                refusals.append(error)
        if not found:
            raise refusals[0]
        return min(found, key=lambda one: one[0])[1]

    def described(self) -> dict[str, Any]:
        """Return the terms as JSON-able values, for the record."""
        measured = {
            "measure": [list(own) for own in self.measure or ()],
            "noise_kind": self.noise,
        }
        opened = {column.name: column.max_items for column in self.opened}
        return {
            **(measured if self.measure is not None else {}),
            **({"open": opened} if opened else {}),
            "schema": self.schema.fingerprint(),
            "group_by": list(self.group_by),
            "n_groups": self.n_groups,
            "numeric": self.numeric,
            "sampling_rate": self.sampling_rate,
            "rows_per_unit": self.rows_per_unit,
            "split": dict(self.split)
            if isinstance(self.split, Mapping)
            else self.split,
            "text_key": "text",
            "label_key": "label",
        }

    def stored(self) -> dict[str, Any]:
        """Return what a ledger keeps of the terms, ready for JSON; see `read`."""
        own = self.described()
        return {
            "measure": own.get("measure"),
            **{name: own[name] for name in _DESCRIBED},
            "unit_key": self.unit_key,
            "noise": self.noise,
            "epsilon": self.epsilon,
        }

    @classmethod
    def read(cls, schema: TableSchema, fields: Mapping[str, Any]) -> GDPTerms:
        """Return the terms that `stored` gave.

        Raises:
            InvalidParameterError: If they are of another schema.
        """
        own = dict(fields)
        if schema.fingerprint() != own.pop("schema", None):
            raise InvalidParameterError("The terms are of another schema.")
        own["group_by"] = tuple(own["group_by"])
        if own["measure"] is not None:
            own["measure"] = tuple(map(tuple, own["measure"]))
        terms = cls(schema=schema, **own)
        terms.check()
        return terms

    def fingerprint(self, *, is_secure: bool) -> str:
        """Return what tells releases apart that are not the same measurement."""
        public = {
            **self.described(),
            "unit_key": self.charged_unit,
            "epsilon": self.epsilon,
            "is_secure": is_secure,
        }
        data = json.dumps(public, sort_keys=True).encode()
        return hashlib.blake2b(data, digest_size=32).hexdigest()

    def _histogram(self, columns: tuple[str, ...]) -> Quantity:
        size = math.prod(self.schema.column(name).domain_size for name in columns)
        return Quantity(table_name(columns), "histogram", size, 1, columns)

    def _called(self, key: Any) -> Any:
        """Return what a key of the split is called: a pair may stand for itself."""
        if not isinstance(key, tuple):
            return key
        for own in self.measure or ():
            if set(own) == set(key):
                return table_name(own)
        return table_name(tuple(map(str, key)))

    def _check_noise(self) -> None:
        if not isinstance(self.noise, str) or self.noise not in (
            "auto",
            "laplace",
            "gaussian",
        ):
            raise InvalidParameterError(
                "noise must be 'auto', 'laplace' or 'gaussian'."
            )
        if self.noise != "gaussian":
            return
        if self.measure is None:
            raise InvalidParameterError(
                "noise='gaussian' is for the tables of measure=; groups of rows have "
                "discrete Laplace noise."
            )
        if self.epsilon is not None:
            raise InvalidParameterError(
                "epsilon= is that of Laplace noise. Leave Gaussian noise to the "
                "account, which then says its epsilon at its delta, or take "
                "noise='laplace'."
            )

    def _check_groups(self) -> None:
        for name in self.group_by:
            column = self.schema.column(name)
            if not column.has_codes:
                raise InvalidParameterError(
                    f"group_by names {name!r}, a number: give the column public bins "
                    "(bins=), which then are the groups."
                )
        if len(set(self.group_by)) != len(self.group_by):
            raise InvalidParameterError("group_by names a column twice.")
        cells = self.n_groups * sum(one.size for one in self.quantities)
        if cells > MAX_CELLS:
            raise InvalidParameterError(
                f"There are {self.n_groups} groups and {cells} numbers to release; at "
                f"most {MAX_CELLS} are. Group by fewer columns, measure fewer pairs, "
                "or declare fewer values or coarser bins."
            )
