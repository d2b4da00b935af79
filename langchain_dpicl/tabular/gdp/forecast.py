"""What a release will be able to tell: computed from public numbers alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from langchain_dpicl.accounting import Gaussian, Pure, compose
from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.common import parameters
from langchain_dpicl.tabular.gdp.margins import SummedNoise
from langchain_dpicl.tabular.gdp.terms import GDPTerms

WRONG = 0.05
"""How often a margin misses, or a lead comes out the wrong way round, or even."""

SMALL = 10
"""A margin above one in so many rows is large."""


@dataclass(frozen=True)
class TableForecast:
    """What one release costs, and what it can tell.

    Attributes:
        epsilon: What it is charged, at the account's delta where noise is Gaussian.
        noise: Which noise it has.
        n_rows: The rows that it was asked for.
        margin: What a count is off by at most, in 95 % of releases.
        lead: Rows that one value must have more than another one for its noisy count to
            be larger in 95 % of releases.
        means: By summed column, the standard error of the mean of all these rows, of
            a part of 1/n of them n times as large.
    """

    epsilon: float
    noise: str
    n_rows: int
    margin: int
    lead: int
    means: dict[str, float]

    def __str__(self) -> str:
        told = [
            (
                f"One charge of epsilon {self.epsilon:.4g}, {self.noise} noise; no "
                f"model calls. Each count is known to +- {self.margin}, and of two "
                f"values the one with {self.lead} rows more has the larger count, each "
                "in 95 % of releases."
            )
        ]
        told += [
            f"The mean {name} of {self.n_rows} rows is known to +- {error:.2g}."
            for name, error in self.means.items()
        ]
        if SMALL * self.margin > self.n_rows:
            told.append(
                f"That is much for {self.n_rows} rows: use a larger epsilon, fewer "
                "tables (measure=), or more rows."
            )
        return " ".join(told)


def forecast(
    terms: GDPTerms, budget: PrivacyBudgetHandler, n_rows: int
) -> TableForecast:
    """Return what one release costs and can tell; see `GDPTable.forecast`."""
    rows = parameters.count(n_rows, "n_rows")
    terms = terms.settled(budget)
    (paid,) = budget.quote(terms.charge())
    assert isinstance(paid, Pure | Gaussian)  # noqa: S101 - by `charge`
    means: dict[str, float] = {}
    laws = terms.noises(paid)
    for table, law in zip(terms.tables, laws, strict=True):
        if table.summed is not None:
            column = terms.table_schema.column(table.summed)
            span = getattr(column, "upper", 0) / 2 - getattr(column, "lower", 0) / 2
            draws = SummedNoise(law, table.size).standard_deviation
            means[table.summed] = draws / table.bound * span / rows
    counted = next(
        law
        for table, law in zip(terms.tables, laws, strict=True)
        if table.summed is None
    )
    cost = paid.epsilon if isinstance(paid, Pure) else compose([paid], budget.delta)
    return TableForecast(
        epsilon=cost or math.inf,
        noise=terms.noise or "",
        n_rows=rows,
        margin=SummedNoise(counted, 1).margin(WRONG),
        # The law of two draws' difference is that of their sum: both are even.
        lead=SummedNoise(counted, 2).threshold(WRONG, 1),
        means=means,
    )
