"""What a release will be able to tell: computed from public numbers alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from langchain_dpicl.accounting import compose
from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.common import parameters
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.mechanisms.keyword_threshold import required_count
from langchain_dpicl.released.checking import pure_epsilon
from langchain_dpicl.tabular.gdp.margins import SummedNoise
from langchain_dpicl.tabular.gdp.statistics import SMALLEST
from langchain_dpicl.tabular.gdp.terms import GDPTerms, Quantity

LARGE = 0.1
"""An error of a tenth of all rows, or of a column's range, is called large."""

WRONG = 0.05
"""How often a lead that is called clear comes out the wrong way round, or even."""


@dataclass(frozen=True)
class ColumnForecast:
    """What the noise does to one column, or pair, in a group of average size.

    Attributes:
        name: The column; of a pair both, as "condition x drug".
        error: Standard error of each value's share; of a mean, as a part of the range
            between the column's bounds.
        lead: Rows that one value must have more than another one for its noisy count to
            be larger in 95 % of releases, at least; None for a mean.
    """

    name: str
    error: float
    lead: int | None = None


@dataclass(frozen=True)
class TableForecast:
    """What one release costs, and what it can tell.

    Attributes:
        epsilon: What it is charged, at the account's delta where noise is Gaussian.
        group_size: Rows in a group, on average, that take part.
        size_error: Standard error of a group's number of rows.
        columns: One forecast for each column, or each table of `measure`.
        measured: Whether tables were asked for by name.
        named: Rows that must name what an open column does not list for it to come out
            in 95 % of releases; None where no column is open.
    """

    epsilon: float
    group_size: float
    size_error: float
    columns: tuple[ColumnForecast, ...]
    measured: bool = False
    named: int | None = None

    @property
    def is_possible(self) -> bool:
        """Whether a group of average size can be told from an empty one."""
        return self.group_size >= SMALLEST * self.size_error

    def __str__(self) -> str:
        return self.advice()

    def advice(self) -> str:
        """Return what the numbers mean, in a few sentences."""
        rows = f"{self.group_size:.0f} rows"
        told = (
            f"One charge of epsilon {self.epsilon:.4g}; no model calls. "
            f"{rows if self.measured else f'Groups of {rows} on average'}, known to +- "
            f"{self.size_error:.1f}."
        )
        if not self.is_possible:
            fewer = "tables (measure)" if self.measured else "groups (group_by)"
            return (
                f"{told} The noise hides whether a group has any rows: use a larger "
                f"epsilon, fewer {fewer} or columns, or more rows."
            )
        if self.measured:
            leads = ", ".join(f"{one.lead} ({one.name})" for one in self.columns)
            told = (
                f"{told} Of two values, the one with more rows has the larger count in "
                f"95 % of releases where it leads by so many rows: {leads}."
            )
            if self.named is None:
                return told
            return (
                f"{told} What an open column does not list comes out in 95 % where "
                f"{self.named} rows name it."
            )
        poor = [one for one in self.columns if one.error > LARGE]
        if poor:
            worst = max(poor, key=lambda one: one.error)
            names = ", ".join(repr(one.name) for one in poor)
            return (
                f"{told} Mostly noise in {names}; {worst.name!r} is known to "
                f"+- {worst.error:.0%} of its range or rows: use "
                "a larger epsilon, fewer groups or columns, or give these columns "
                "more of epsilon (split)."
            )
        if not self.columns:
            return told
        worst = max(self.columns, key=lambda one: one.error)
        return (
            f"{told} Every column is known to +- {worst.error:.1%} of its range or "
            "rows, or better."
        )


def forecast(
    terms: GDPTerms, budget: PrivacyBudgetHandler, n_rows: int
) -> TableForecast:
    """Return what one release costs and can tell; see `GDPTable.forecast`."""
    rows = parameters.count(n_rows, "n_rows")
    terms = terms.settled(budget)
    events = budget.quote(terms.charge())
    paid, names = terms.paid(events)
    size = rows * terms.sampling_rate / terms.n_groups
    laws = {
        one.name: law
        for one, law in zip(terms.quantities, terms.noises(paid), strict=True)
    }
    noise = {name: law.standard_deviation for name, law in laws.items()}
    columns = tuple(
        ColumnForecast(
            one.name,
            _error(one, noise[one.name], size),
            # The law of two draws' difference is that of their sum: both are even.
            None
            if one.kind == "sum"
            else SummedNoise(laws[one.name], 2).threshold(WRONG, 1),
        )
        for one in terms.quantities
        if one.kind != "rows"
    )
    epsilon = pure_epsilon(events)
    return TableForecast(
        epsilon if math.isfinite(epsilon) else compose(events, budget.delta),
        size,
        _size_error(terms, noise),
        columns,
        terms.measure is not None,
        None
        if names is None
        else required_count(
            names,
            Relation.ADD_REMOVE,
            items_per_answer=terms.most_named,
            pass_rate=1 - WRONG,
        ),
    )


def _error(quantity: Quantity, noise: float, size: float) -> float:
    """Return the standard error of a share, or of a mean in parts of the range."""
    part = 2.0 * quantity.bound if quantity.kind == "sum" else 1.0
    return noise / (part * max(size, 1.0))


def _size_error(terms: GDPTerms, noise: dict[str, float]) -> float:
    weights = [
        1.0 / (one.size * max(noise[one.name], 1e-9) ** 2)
        for one in terms.quantities
        if one.kind != "sum"
    ]
    return 1.0 / math.sqrt(math.fsum(weights))
