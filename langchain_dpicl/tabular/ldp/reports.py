"""Rows to reports, and reports to counts.

This is the one place where a row of the table meets noise. Client and curator both go
through it, so that a report has one distribution wherever it was made. A block of rows
or reports is a matrix of whole numbers, one column of codes for each of the schema's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms.responses import null_reports, randomize
from langchain_dpicl.tabular.schema import TableSchema

Codes = NDArray[np.int64]

MAX_CELLS = 1 << 16
"""Largest table of whole rows that is counted."""

MAX_PAIR_CELLS = 1 << 22
"""Most cells that the tables of the label with each other column have together."""

MOST_REPORTS = 1 << 40
"""No count is so large; a sum of them fits 64 bits."""


class ReportCounts:
    """How often which values were reported: all that is kept of reports.

    Args:
        sizes: Number of values of each column.
        label: The label's place among the columns.

    Attributes:
        n: Number of reports.
        pairs: By each other column, how often each label came with each value, shape
            `(labels, d)`.
        joint: How often each whole row came, one axis per column; None where that table
            would have more than `MAX_CELLS` cells.

    Raises:
        InvalidParameterError: If the pairs need more than `MAX_PAIR_CELLS` cells.

    Privacy:
        Post-processing of reports that are private already: no further cost. Counts
        have no order.

    Example:
        >>> counts = ReportCounts([2, 3], label=0)
        >>> counts.add(np.array([[0, 2], [1, 2], [0, 0]]))
        >>> counts.n, counts.single(0).tolist()
        (3, [2, 1])
        >>> counts.pairs[1].tolist()
        [[1, 0, 1], [0, 0, 1]]
    """

    def __init__(self, sizes: Sequence[int], label: int) -> None:
        self.sizes, self.label, self.n = tuple(sizes), label, 0
        cells = sizes[label] * (sum(sizes) - sizes[label])
        if cells > MAX_PAIR_CELLS:
            raise InvalidParameterError(
                f"The tables of the label with each other column would have {cells} "
                f"cells, more than {MAX_PAIR_CELLS}: put values of the largest columns "
                "together."
            )
        self.pairs = {
            column: np.zeros((sizes[label], size), np.int64)
            for column, size in enumerate(sizes)
            if column != label
        }
        is_small = math.prod(sizes) <= MAX_CELLS
        self.joint = np.zeros(self.sizes, np.int64) if is_small else None

    def __repr__(self) -> str:
        return f"{type(self).__name__}(columns={len(self.sizes)})"

    def single(self, column: int) -> Codes:
        """Return how often each value of a column was reported."""
        if column == self.label:
            return np.asarray(next(iter(self.pairs.values())).sum(axis=1))
        return np.asarray(self.pairs[column].sum(axis=0))

    def add(self, reports: Codes) -> None:
        """Count a block of reports, whose codes are within the columns' sizes."""
        columns = reports.T
        for column, pairs in self.pairs.items():
            _tally(pairs, (columns[self.label], columns[column]))
        if self.joint is not None:
            _tally(self.joint, tuple(columns))
        self.n += len(reports)

    @property
    def tables(self) -> list[Codes]:
        """All tables that are counted."""
        whole = [] if self.joint is None else [self.joint]
        return [*self.pairs.values(), *whole]

    def stored(self) -> list[list[int]]:
        """Return all there is to store, ready for JSON: each table, flat."""
        return [table.ravel().tolist() for table in self.tables]

    def restored(self, stored: Any) -> ReportCounts | None:
        """Return the counts that `stored` gave; None if they are not of such columns.

        Example:
            >>> empty = ReportCounts([2, 2], label=0)
            >>> empty.restored([[3, 0, 0, 1], [3, 0, 0, 1]]).pairs[1].tolist()
            [[3, 0], [0, 1]]
            >>> empty.restored([[3, -1, 0, 1], [3, -1, 0, 1]]) is None
            True
        """
        counts = type(self)(self.sizes, self.label)
        if not isinstance(stored, list) or len(stored) != len(counts.tables):
            return None
        for table, flat in zip(counts.tables, stored, strict=True):
            if not isinstance(flat, list) or len(flat) != table.size:
                return None
            if not all(type(n) is int and 0 <= n < MOST_REPORTS for n in flat):
                return None
            table.ravel()[:] = flat
        counts.n = int(counts.tables[0].sum())
        agree = all(table.sum() == counts.n for table in counts.tables)
        return counts if counts.n and agree else None


def _tally(table: Codes, columns: tuple[Codes, ...]) -> None:
    cells = np.ravel_multi_index(columns, table.shape)
    table += np.bincount(cells, minlength=table.size).reshape(table.shape)


def randomized(
    rows: Mapping[str, NDArray[Any]], sizes: Sequence[int], epsilons: Sequence[float]
) -> Codes:
    """Return one report for each row of codes: each column by itself.

    Privacy:
        Unit: one row. Neighbors: its values, all of them, replaced by any others. Each
        column f, the label too, goes through `mechanisms.responses` at epsilon_f, by
        draws of its own. Values and bins are the schema's, which is public. Nothing
        else of the row gets into a report: neither its order, nor whether a value was
        missing or out of bounds beyond the public category or bin that it counts as.
    """
    columns = zip(rows.values(), sizes, epsilons, strict=True)
    return np.column_stack(
        [
            randomize(codes.astype(np.int64), domain_size=size, epsilon=part)
            for codes, size, part in columns
        ]
    )


def null_rows(count: int, sizes: Sequence[int]) -> Codes:
    """Return the reports of invitations that nobody answered: uniform values."""
    return np.column_stack([null_reports(count, domain_size=d) for d in sizes])


def written(schema: TableSchema, report: Sequence[int]) -> dict[str, str]:
    """Return a report as text, for sending: values of the schema, texts of bins."""
    columns = zip(schema.columns, report, strict=True)
    return {column.name: column.options[code] for column, code in columns}


def read_reports(reports: Iterable[Any], schema: TableSchema) -> Iterator[list[int]]:
    """Yield the codes of each report that somebody sent.

    Raises:
        InvalidParameterError: If one is no client's of this schema. The message names
            the column, and holds no value.
    """
    codes = {
        column.name: {text: code for code, text in enumerate(column.options)}
        for column in schema.columns
    }
    for place, report in enumerate(reports):
        problem = ""
        if not isinstance(report, Mapping):
            problem = "it is no mapping from column to reported value"
        elif report.keys() != codes.keys():
            known = ", ".join(map(repr, codes))
            problem = f"it must have the columns {known}, and no other"
        else:
            for name, known_texts in codes.items():
                text = report[name]
                if not isinstance(text, str) or text not in known_texts:
                    problem = f"its column {name!r} holds none of the schema's values"
                    break
        if problem:
            raise InvalidParameterError(
                f"Report {place} (counted from 0) can't be read: {problem}. Leave it "
                "out, if clients of other schemas or strangers may send reports."
            )
        yield [own[report[name]] for name, own in codes.items()]
