"""What a collector keeps of randomized reports: counts, in bounded memory.

Every estimate needs only how often each value of a column was reported with each value
of the label; and how often each whole row was, where that table is small enough.
`ReportCounts` tallies these block by block and forgets the reports.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from langchain_dpicl.common.parameters import count
from langchain_dpicl.errors import InvalidParameterError

MAX_CELLS = 1 << 20
"""Largest table of whole rows that is kept, and most values a column may have."""

MAX_PAIR_CELLS = 1 << 25
"""Most cells that all tables of pairs may have together: 256 MiB."""

_MAX_REPORTS = 1 << 53
_BLOCK = 1 << 15

_Counts = npt.NDArray[np.int64]


class ReportCounts:
    """Counts of reports, added to block by block.

    Where a table of all columns has at most `MAX_CELLS` cells it is all that is kept,
    for every other count is a sum over it. Otherwise there is a table of the label with
    each other column.

    Args:
        domain_sizes: Number of values of each column, at least 2.
        label: The label's place among the columns.

    Raises:
        InvalidParameterError: If there is no column, the label is none of them, a
            column has fewer than 2 or more than `MAX_CELLS` values, or the pairs need
            more than `MAX_PAIR_CELLS` cells.

    Privacy:
        Post-processing of reports that are private already: no further cost.

    Example:
        >>> counts = ReportCounts([2, 3], label=0)
        >>> counts.add(np.array([[0, 2], [1, 2], [0, 0]]))
        >>> counts.n, counts.singles[0].tolist()
        (3, [2, 1])
        >>> counts.pairs[1].tolist()
        [[1, 0, 1], [0, 0, 1]]
    """

    def __init__(self, domain_sizes: Sequence[int], label: int) -> None:
        self._sizes = checked_sizes(domain_sizes, label)
        self._label = label
        self._n = 0
        self._joint: _Counts | None = None
        self._pairs: dict[int, _Counts] = {}
        if math.prod(self._sizes) <= MAX_CELLS:
            self._joint = np.zeros(self._sizes, dtype=np.int64)
        else:
            self._pairs = {
                column: np.zeros((self._sizes[label], size), dtype=np.int64)
                for column, size in enumerate(self._sizes)
                if column != label
            }

    def __repr__(self) -> str:
        return f"{type(self).__name__}(columns={len(self._sizes)})"

    @property
    def domain_sizes(self) -> tuple[int, ...]:
        """Number of values of each column."""
        return self._sizes

    @property
    def label(self) -> int:
        """The label's place among the columns."""
        return self._label

    @property
    def n(self) -> int:
        """Number of reports."""
        return self._n

    @property
    def joint(self) -> _Counts | None:
        """Counts of whole rows, one axis per column; None where it is too large."""
        return None if self._joint is None else self._joint.copy()

    @property
    def pairs(self) -> dict[int, _Counts]:
        """By column, how often each label came with each value: shape `(labels, d)`."""
        if self._joint is None:
            return {column: table.copy() for column, table in self._pairs.items()}
        return {
            column: self._summed(self._label, column)
            for column in range(len(self._sizes))
            if column != self._label
        }

    @property
    def singles(self) -> tuple[_Counts, ...]:
        """Counts of each column's values."""
        columns = range(len(self._sizes))
        if self._joint is not None:
            return tuple(self._summed(column) for column in columns)
        labels = next(iter(self._pairs.values())).sum(axis=1)
        return tuple(
            labels if column == self._label else self._pairs[column].sum(axis=0)
            for column in columns
        )

    def add(self, codes: Any) -> None:
        """Count a block of reports.

        Args:
            codes: Integers of shape `(rows, columns)`, the codes of column i between 0
                and its size - 1.

        Raises:
            InvalidParameterError: If the shape or type is wrong, or a code is outside
                its column's domain. Nothing of the block is counted then.
        """
        rows = _checked_codes(codes, self._sizes)
        if self._n + len(rows) > _MAX_REPORTS:
            raise InvalidParameterError(f"there may be at most {_MAX_REPORTS} reports.")
        for start in range(0, len(rows), _BLOCK):
            self._add_block(rows[start : start + _BLOCK].T)
        self._n += len(rows)

    def to_dict(self) -> dict[str, Any]:
        """Return all there is to store, ready for JSON.

        The table of whole rows is `joint`, flat; else `pairs` holds the tables of the
        label with each other column, one after the other.
        """
        stored = {
            "domain_sizes": list(self._sizes),
            "label": self._label,
            "n": self._n,
        }
        if self._joint is not None:
            return {**stored, "joint": self._joint.ravel().tolist()}
        tables = [table.ravel() for table in self._pairs.values()]
        return {**stored, "pairs": np.concatenate(tables).tolist()}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> ReportCounts:
        """Return the counts that `to_dict` gave, checked.

        Args:
            fields: As `to_dict` returned them.

        Raises:
            InvalidParameterError: If a list is missing, of the wrong size or type, or
                the counts contradict one another.

        Example:
            >>> counts = ReportCounts([2, 2], label=0)
            >>> ReportCounts.from_dict(counts.to_dict()).n
            0
        """
        sizes = _stored(fields, "domain_sizes")
        label = _stored(fields, "label", (1,))
        restored = cls(sizes.tolist(), int(label[0]))
        n = _stored(fields, "n", (1,))
        restored._n = count(int(n[0]), "n", minimum=0)
        if restored._n > _MAX_REPORTS:
            raise InvalidParameterError(f"n must be at most {_MAX_REPORTS}.")
        if restored._joint is not None:
            flat = _stored(fields, "joint", (restored._joint.size,))
            restored._joint[...] = flat.reshape(restored._sizes)
            _check_total("joint", restored._joint, restored._n)
            return restored
        cells = sum(table.size for table in restored._pairs.values())
        flat = _stored(fields, "pairs", (cells,))
        start = 0
        for table in restored._pairs.values():
            table[...] = flat[start : start + table.size].reshape(table.shape)
            _check_total("pairs", table, restored._n)
            start += table.size
        restored._check_agreement()
        return restored

    def _add_block(self, columns: _Counts) -> None:
        if self._joint is not None:
            _tally(self._joint.reshape(-1), _joined(columns, self._sizes))
            return
        for column, table in self._pairs.items():
            pair = columns[[self._label, column]]
            _tally(table.reshape(-1), _joined(pair, table.shape))

    def _summed(self, *kept: int) -> _Counts:
        """Return the joint table's sums over all columns but these, in their order."""
        assert self._joint is not None  # noqa: S101 - asked for where it is kept
        rest = tuple(n for n in range(len(self._sizes)) if n not in kept)
        summed: _Counts = self._joint.sum(axis=rest)
        return summed if list(kept) == sorted(kept) else summed.T

    def _check_agreement(self) -> None:
        labels = self.singles[self._label]
        for column, table in self._pairs.items():
            if not np.array_equal(table.sum(axis=1), labels):
                raise InvalidParameterError(
                    f"pairs: the table of column {column} contradicts the others. "
                    "The file is damaged: load another copy."
                )


def checked_sizes(domain_sizes: Any, label: Any) -> tuple[int, ...]:
    """Return the columns' sizes if reports of them can be counted; see `ReportCounts`.

    Example:
        >>> checked_sizes([2, 3], 0)
        (2, 3)
    """
    try:
        given = list(domain_sizes)
    except TypeError:
        raise InvalidParameterError(
            "domain_sizes must be a sequence, one size per column."
        ) from None
    if not given:
        raise InvalidParameterError(
            "domain_sizes must hold at least one column's size."
        )
    sizes = tuple(
        count(size, f"domain_sizes[{i}]", minimum=2) for i, size in enumerate(given)
    )
    if max(sizes) > MAX_CELLS:
        i = sizes.index(max(sizes))
        raise InvalidParameterError(
            f"domain_sizes[{i}] must be at most {MAX_CELLS}: merge values."
        )
    if count(label, "label", minimum=0) >= len(sizes):
        raise InvalidParameterError("label must be the place of a column.")
    pair_cells = sizes[label] * (sum(sizes) - sizes[label])
    if math.prod(sizes) > MAX_CELLS and pair_cells > MAX_PAIR_CELLS:
        raise InvalidParameterError(
            f"the tables of the label with each other column would have {pair_cells} "
            f"cells, more than {MAX_PAIR_CELLS}: merge values of the largest columns."
        )
    return sizes


def _checked_codes(codes: Any, sizes: tuple[int, ...]) -> _Counts:
    try:
        array = np.asarray(codes)
    except ValueError:
        raise InvalidParameterError("codes must be rows of one length.") from None
    if array.ndim != 2 or array.shape[1] != len(sizes):  # noqa: PLR2004  # Rows, columns.
        raise InvalidParameterError(
            f"codes must have shape (rows, {len(sizes)}), one column per column of the "
            "table."
        )
    if array.dtype.kind not in "iu":
        raise InvalidParameterError(f"codes must be integers, not {array.dtype}.")
    # Codes below 0 become huge as unsigned numbers: one comparison finds both ends.
    if array.size:
        largest = array.astype(np.int64, copy=False).view(np.uint64).max(axis=0)
        for i in np.flatnonzero(largest >= np.array(sizes, dtype=np.uint64)):
            raise InvalidParameterError(
                f"codes of column {i} must be between 0 and {sizes[i] - 1}."
            )
    return array.astype(np.int64, copy=False)


def _joined(columns: _Counts, sizes: Sequence[int]) -> _Counts:
    """Return one key per row: the columns as digits of a mixed-radix number."""
    keys: _Counts = columns[0].copy()
    for column, size in zip(columns[1:], sizes[1:], strict=True):
        keys *= size
        keys += column
    return keys


def _tally(table: _Counts, keys: _Counts) -> None:
    # A bincount makes an array of the table's size: not for a few rows.
    if table.size <= 2 * keys.size:
        table += np.bincount(keys, minlength=table.size)
    else:
        np.add.at(table, keys, 1)


def _stored(
    fields: Mapping[str, Any], name: str, shape: tuple[int, ...] | None = None
) -> _Counts:
    if not isinstance(fields, Mapping) or name not in fields:
        raise InvalidParameterError(
            f"the list {name!r} is missing: this is no stored count."
        )
    try:
        array = np.atleast_1d(np.asarray(fields[name]))
    except (ValueError, OverflowError):
        raise InvalidParameterError(f"{name} must be a list of integers.") from None
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidParameterError(f"{name} must be a list of integers.")
    if shape is not None and array.shape != shape:
        raise InvalidParameterError(
            f"{name} must have {shape[0]} entries, not {array.size}."
        )
    # Unsigned numbers beyond 63 bits come out negative, and are refused as such.
    return array.astype(np.int64)


def _check_total(name: str, table: _Counts, n: int) -> None:
    # Bounded first: the sum of cells of at most n < 2^53 is exact enough in floats to
    # see whether the sum of integers could overflow.
    if table.min() < 0 or table.max() > n or float(table.sum(dtype=np.float64)) > 2 * n:
        raise InvalidParameterError(f"{name} must hold counts between 0 and n.")
    if int(table.sum()) != n:
        raise InvalidParameterError(f"{name} must sum to n, the number of reports.")
