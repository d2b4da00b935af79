"""Rows made of a table's noisy statistics: free, and public."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.errors import UnitError
from langchain_dpicl.tabular.columns import NumericColumn
from langchain_dpicl.tabular.distribution import (
    LabelDistribution,
    project_to_simplex,
    shares_by_label,
)
from langchain_dpicl.tabular.gdp.statistics import NoisyStatistics

SMALLEST = 3.0
"""A label is seen when its noisy count is this many standard errors above 0."""

Floats = NDArray[np.float64]


def draw_rows(
    found: NoisyStatistics, k: int, *, balanced: bool
) -> list[dict[str, Any]]:
    """Return rows of the measured columns as mappings from column to value.

    The label is drawn first (where it was not measured, the first column), and by it
    each column that was measured with it; others are independent. A number that was
    summed has its mean, a column that holds sets one of its values.

    `balanced`: labels take turns, larger ones first; the first row of each has the most
    frequent values. Otherwise every row is drawn.

    Raises:
        UnitError: If the noise hides every label.
    """
    label, names = found.terms.table_schema.label, found.terms.counted
    first = names.index(label) if label in names else 0
    counts, error = _alone(found, names[first])
    seen = np.where(counts >= max(1.0, SMALLEST * error), counts, 0.0)
    if not seen.any():
        raise UnitError(
            "The noise hides how many rows any label has: there are too few rows for "
            "this epsilon and so many tables. Use a larger epsilon, fewer tables "
            "(measure=) or values, or more rows."
        )
    columns = {
        place: _by_first(found, names[first], name)
        for place, name in enumerate(names)
        if place != first
    }
    distribution = LabelDistribution(seen / seen.sum(), columns, first)
    if not balanced or names[first] != label:
        drawn = distribution.sample(k)
    else:
        typical = np.zeros((len(seen), len(names)), np.int64)
        for place, shares in columns.items():
            typical[:, place] = shares.argmax(axis=1)
        drawn = distribution.balanced(k, typical)
    return [_row(found, names, codes) for codes in drawn.tolist()]


def _alone(found: NoisyStatistics, name: str) -> tuple[Floats, float]:
    """Return a column's counts and their standard error; of mentions, if need be."""
    if found.can_tell((name,)):
        table = found.table(name)
        return table.unbiased, table.error
    place, own = next(
        (n, table)
        for n, table in enumerate(found.terms.tables)
        if name in table.columns and table.summed is None
    )
    counts = found.tallies[place].sum(axis=own.others((name,))).astype(float)
    deviation = found.noises[place].standard_deviation
    return counts, deviation * (own.size / counts.size) ** 0.5


def _by_first(found: NoisyStatistics, first: str, name: str) -> Floats:
    """Return the shares of a column's values by each value of the first column."""
    if found.can_tell((first, name)):
        pairs = found.table((first, name)).unbiased
        return shares_by_label(pairs, pairs.sum(axis=1))
    counts, _ = _alone(found, name)
    total = float(counts.sum())
    shares = counts / total if total > 0 else np.full(counts.shape, 1 / counts.size)
    size = found.terms.table_schema.column(first).domain_size
    return np.tile(project_to_simplex(shares), (size, 1))


def _row(
    found: NoisyStatistics, names: Sequence[str], codes: Sequence[int]
) -> dict[str, Any]:
    column = found.terms.table_schema.column
    row: dict[str, Any] = {
        name: column(name).options[code]
        for name, code in zip(names, codes, strict=True)
    }
    for table in found.terms.tables:
        if table.summed is not None and table.summed not in row:
            where = {name: row[name] for name in table.columns}
            mean = found.mean(table.summed, where).value
            summed = column(table.summed)
            is_whole = isinstance(summed, NumericColumn) and summed.kind == "integer"
            row[table.summed] = round(mean) if is_whole else mean
    return {name: row[name] for name in found.terms.names}
