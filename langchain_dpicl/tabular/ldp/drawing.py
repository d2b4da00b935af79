"""Rows drawn from what reports were made into: free, and public."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.mechanisms import SecureRandom
from langchain_dpicl.tabular.ldp.result import Collected


def draw_rows(
    found: Collected, k: int, random: SecureRandom, *, balanced: bool
) -> list[dict[str, Any]]:
    """Return rows as mappings from column to value, in random order.

    Args:
        found: What was collected.
        k: How many rows.
        random: Where they are drawn with.
        balanced: Whether every label comes equally often, as far as k allows: which
            labels come once more than others is random, and a label that the reports
            give no weight does not come.

    Privacy:
        Post-processing of reports.
    """
    if not balanced:
        return _rows(found, found.distribution.sample(k, random))
    place = found.terms.schema.names.index(found.terms.schema.label)
    labels = np.flatnonzero(found.distribution.marginal(place) > 0).tolist()
    random.shuffle(labels)
    every, more = divmod(k, len(labels))
    drawn = np.concatenate(
        [
            found.distribution.sample(
                every + (turn < more), random, given=(place, label)
            )
            for turn, label in enumerate(labels)
        ]
    )
    return _rows(found, drawn[random.permutation(k)])


def labels_without_weight(found: Collected) -> list[str]:
    """Return the labels that the reports give no weight, so that no row has them."""
    schema = found.terms.schema
    shares = found.distribution.marginal(schema.names.index(schema.label))
    return [
        str(schema.label_column.code_value(code))
        for code in np.flatnonzero(~(shares > 0)).tolist()
    ]


def _rows(found: Collected, codes: NDArray[np.int64]) -> list[dict[str, Any]]:
    columns = found.terms.schema.columns
    return [
        {
            column.name: column.code_value(code)
            for column, code in zip(columns, row, strict=True)
        }
        for row in codes.tolist()
    ]
