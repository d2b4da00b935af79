"""Rows made of what reports say: free, and public.

The first row of each label is its *telling* row: in every column it has the value whose
share among the label's rows is furthest above its share among all rows. Few examples of
a label can't show how its rows vary, and rows drawn at random would mostly show chance;
telling rows show how labels differ. Each of their values rests on a table of two
columns, which reports know far better than a whole row. What that is worth is in
`docs/reviewers/figures.md`. All further rows are drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.mechanisms.random import SecureRandom
from langchain_dpicl.tabular.distribution import shares_by_label
from langchain_dpicl.tabular.ldp.fitting import pair_shares
from langchain_dpicl.tabular.ldp.result import Collected


def draw_rows(
    found: Collected, k: int, random: SecureRandom | None, *, balanced: bool
) -> list[dict[str, Any]]:
    """Return rows as mappings from column to value.

    Args:
        found: What was collected.
        k: How many rows.
        random: Where they are drawn with.
        balanced: Whether labels take turns, the most frequent first, each with its
            telling row and then with drawn ones; a label that the reports give no
            weight does not come. Otherwise all rows are drawn, labels as often as in
            the table.

    Privacy:
        Post-processing of reports.
    """
    if not balanced:
        return _rows(found, found.distribution.sample(k, random))
    labels = _labels(found)
    turns = [labels[turn % len(labels)] for turn in range(k)]
    rows = telling_rows(found, turns[: len(labels)])
    drawn = {
        label: iter(
            found.distribution.sample(turns.count(label) - 1, random, label=label)
        )
        for label in set(turns)
    }
    more = [next(drawn[label]) for label in turns[len(labels) :]]
    return _rows(found, np.array([*rows, *more], dtype=np.int64))


def telling_rows(found: Collected, labels: list[int]) -> list[NDArray[np.int64]]:
    """Return the telling row of each of some labels, as codes.

    Args:
        found: What was collected.
        labels: The labels' codes.

    Privacy:
        Post-processing of reports.
    """
    place = found.counts.label
    rows = [np.zeros(len(found.epsilons), dtype=np.int64) for _ in labels]
    for row, label in zip(rows, labels, strict=True):
        row[place] = label
    every = _labels(found)
    weights = found.distribution.marginal(place)[every]
    for column in range(len(found.epsilons)):
        if column == place:
            continue
        shares = _shares(found, column)
        # Weighted: of a label that is rare, reports say little but chance.
        telling = shares - weights @ shares if len(every) > 1 else shares
        for row, label in zip(rows, labels, strict=True):
            row[column] = int(np.argmax(telling[every.index(label)]))
    return rows


def _labels(found: Collected) -> list[int]:
    """Return the labels that the reports give weight, the most frequent first."""
    weights = found.distribution.marginal(found.counts.label)
    order = np.argsort(-weights, kind="stable").tolist()
    return [code for code in order if weights[code] > 0]


def _shares(found: Collected, column: int) -> NDArray[np.float64]:
    """Return how each weighty label's rows divide among a column's values.

    Out of the reports of the two columns alone, whatever model was fitted.
    """
    weights = found.distribution.marginal(found.counts.label)
    table = pair_shares(found.counts, list(found.epsilons.values()), column)
    return shares_by_label(table, weights)[_labels(found)]


def _rows(found: Collected, codes: NDArray[np.int64]) -> list[dict[str, Any]]:
    columns = found.terms.schema.columns
    return [
        {
            column.name: column.code_value(code)
            for column, code in zip(columns, row, strict=True)
        }
        for row in codes.tolist()
    ]
