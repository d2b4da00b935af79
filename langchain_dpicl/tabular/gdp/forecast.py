"""What a release will be able to tell: computed from public numbers alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.common import parameters
from langchain_dpicl.common.validation import checked
from langchain_dpicl.tabular.gdp.statistics import SMALLEST, noise_of
from langchain_dpicl.tabular.gdp.terms import GDPTerms, Quantity

LARGE = 0.1
"""An error of a tenth of all rows, or of a column's range, is called large."""


@dataclass(frozen=True)
class ColumnForecast:
    """What the noise does to one column in a group of average size.

    Attributes:
        name: The column.
        error: Standard error of each value's share; of a mean, as a part of the range
            between the column's bounds.
    """

    name: str
    error: float


@dataclass(frozen=True)
class TableForecast:
    """What one release costs, and what it can tell.

    Attributes:
        epsilon: What it is charged.
        group_size: Rows in a group, on average, that take part.
        size_error: Standard error of a group's number of rows.
        columns: One forecast for each column.
    """

    epsilon: float
    group_size: float
    size_error: float
    columns: tuple[ColumnForecast, ...]

    @property
    def is_possible(self) -> bool:
        """Whether a group of average size can be told from an empty one."""
        return self.group_size >= SMALLEST * self.size_error

    def __str__(self) -> str:
        return self.advice()

    def advice(self) -> str:
        """Return what the numbers mean, in a few sentences."""
        told = (
            f"One charge of epsilon {self.epsilon:.4g}; no model calls. Groups of "
            f"{self.group_size:.0f} rows on average, known to +- {self.size_error:.1f}."
        )
        if not self.is_possible:
            return (
                f"{told} The noise hides whether a group has any rows: use a larger "
                "epsilon, fewer groups (group_by) or columns, or more rows."
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
    rows = checked(parameters.count, n_rows, "n_rows")
    template = terms.event_template()
    epsilon = budget.quote(template).epsilon
    size = rows * terms.sampling_rate / terms.n_groups
    noise = {
        one.name: noise_of(one, share, terms.rows_per_unit)
        for one, share in zip(terms.quantities, terms.epsilons(epsilon), strict=True)
    }
    (event,) = template.events(1.0 / epsilon, 0.0)
    columns = tuple(
        ColumnForecast(one.name, _error(one, noise[one.name], size))
        for one in terms.quantities
        if one.kind != "rows"
    )
    return TableForecast(
        getattr(event, "epsilon", math.nan), size, _size_error(terms, noise), columns
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
