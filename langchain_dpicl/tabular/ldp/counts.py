"""What a collector keeps of randomized reports: counts, in bounded memory.

Every estimate needs only how often each value, and each pair of values of two columns,
was reported; and how often each whole row was, where that table is small enough.
`ReportCounts` tallies these block by block and forgets the reports.
"""

from __future__ import annotations

import itertools
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
_CLUSTER = 128

_Counts = npt.NDArray[np.int64]
_Pair = tuple[int, int]


class ReportCounts:
    """Counts of reports, added to block by block.

    Where a table of all columns has at most `MAX_CELLS` cells it is all that is kept,
    for every other count is a sum over it. Otherwise there is a table for each pair of
    columns. Both are filled by few passes: small columns are joined into clusters, and
    one tally of two clusters gives the tables of all their pairs.

    Args:
        domain_sizes: Number of values of each column, at least 2.

    Raises:
        InvalidParameterError: If there is no column, a column has fewer than 2 or more
            than `MAX_CELLS` values, or the pairs need more than `MAX_PAIR_CELLS` cells.

    Privacy:
        Post-processing of reports that are private already: no further cost.

    Example:
        >>> counts = ReportCounts([2, 3])
        >>> counts.add(np.array([[0, 2], [1, 2], [0, 0]]))
        >>> counts.n, counts.singles[0].tolist()
        (3, [2, 1])
        >>> counts.pairs[0, 1].tolist()
        [[1, 0, 1], [0, 0, 1]]
    """

    def __init__(self, domain_sizes: Sequence[int]) -> None:
        self._sizes = checked_sizes(domain_sizes)
        self._n = 0
        self._joint: _Counts | None = None
        self._pairs: dict[_Pair, _Counts] = {}
        self._pending: dict[_Pair, _Counts] = {}
        self._clusters: list[range] = []
        if math.prod(self._sizes) <= MAX_CELLS:
            self._joint = np.zeros(self._sizes, dtype=np.int64)
        else:
            self._clusters = _clusters(self._sizes)
            for i, j in itertools.combinations(range(len(self._sizes)), 2):
                shape = (self._sizes[i], self._sizes[j])
                self._pairs[i, j] = np.zeros(shape, dtype=np.int64)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(columns={len(self._sizes)})"

    @property
    def domain_sizes(self) -> tuple[int, ...]:
        """Number of values of each column."""
        return self._sizes

    @property
    def n(self) -> int:
        """Number of reports."""
        return self._n

    @property
    def joint(self) -> _Counts | None:
        """Counts of whole rows, one axis per column; None where it is too large."""
        return None if self._joint is None else self._joint.copy()

    @property
    def pairs(self) -> dict[_Pair, _Counts]:
        """Counts of value pairs, shape `(d_i, d_j)`, for every i < j."""
        if self._joint is not None:
            return _pairs_of(self._joint)
        self._settle()
        return {columns: table.copy() for columns, table in self._pairs.items()}

    @property
    def singles(self) -> tuple[_Counts, ...]:
        """Counts of each column's values."""
        columns = range(len(self._sizes))
        if self._joint is not None:
            joint = self._joint
            return tuple(
                joint.sum(axis=tuple(j for j in columns if j != i)) for i in columns
            )
        self._settle()
        first = self._pairs[0, 1].sum(axis=1)
        return (first, *(self._pairs[0, j].sum(axis=0) for j in columns[1:]))

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

    def merge(self, other: ReportCounts) -> None:
        """Add the counts of other reports, which another process may have made.

        Raises:
            InvalidParameterError: If the other is of columns of other sizes.
        """
        if not isinstance(other, ReportCounts) or other._sizes != self._sizes:
            raise InvalidParameterError(
                "only counts of the same columns, with the same domain sizes, can be "
                "merged."
            )
        if self._n + other._n > _MAX_REPORTS:
            raise InvalidParameterError(f"there may be at most {_MAX_REPORTS} reports.")
        if self._joint is not None and other._joint is not None:
            self._joint += other._joint
        else:
            for columns, table in other.pairs.items():
                self._pairs[columns] += table
        self._n += other._n

    def to_dict(self) -> dict[str, Any]:
        """Return all there is to store, ready for JSON.

        The table of whole rows is `joint`, flat; else `pairs` holds the tables of the
        pairs (0, 1), (0, 2), ..., one after the other.
        """
        stored = {"domain_sizes": list(self._sizes), "n": self._n}
        if self._joint is not None:
            return {**stored, "joint": self._joint.ravel().tolist()}
        self._settle()
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
            >>> counts = ReportCounts([2, 2])
            >>> ReportCounts.from_dict(counts.to_dict()).n
            0
        """
        sizes = _stored(fields, "domain_sizes")
        restored = cls(sizes.tolist())
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
            keys = _joined(columns, self._sizes)
            _tally(self._joint.reshape(-1), keys)
            return
        joined = [
            _joined(columns[members.start : members.stop], self._widths(members))
            for members in self._clusters
        ]
        for g, h in itertools.combinations(range(len(joined)), 2):
            width = math.prod(self._widths(self._clusters[h]))
            table = self._pending.get((g, h))
            if table is None:
                height = math.prod(self._widths(self._clusters[g]))
                table = np.zeros(height * width, dtype=np.int64)
                self._pending[g, h] = table
            _tally(table, joined[g] * width + joined[h])

    def _settle(self) -> None:
        """Move the counts of cluster pairs into the tables of column pairs."""
        inner: set[int] = set()
        for (g, h), table in self._pending.items():
            left, right = self._clusters[g], self._clusters[h]
            members = [*left, *right]
            # The pairs within a cluster are in many tables; they are taken from one.
            wanted = set(itertools.product(left, right))
            for cluster, columns in ((g, left), (h, right)):
                if cluster not in inner:
                    inner.add(cluster)
                    wanted.update(itertools.combinations(columns, 2))
            whole = table.reshape(self._widths(members))
            for i, j in wanted:
                rest = tuple(k for k, m in enumerate(members) if m not in (i, j))
                self._pairs[i, j] += whole.sum(axis=rest)
        self._pending = {}

    def _widths(self, columns: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._sizes[column] for column in columns)

    def _check_agreement(self) -> None:
        singles = self.singles
        for (i, j), table in self._pairs.items():
            agree = np.array_equal(table.sum(axis=1), singles[i])
            if not agree or not np.array_equal(table.sum(axis=0), singles[j]):
                raise InvalidParameterError(
                    f"pairs: the tables of columns {i} and {j} contradict the others. "
                    "The file is damaged: load another copy."
                )


def checked_sizes(domain_sizes: Any) -> tuple[int, ...]:
    """Return the columns' sizes if reports of them can be counted; see `ReportCounts`.

    Example:
        >>> checked_sizes([2, 3])
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
    pair_cells = _pair_cells(sizes)
    if math.prod(sizes) > MAX_CELLS and pair_cells > MAX_PAIR_CELLS:
        raise InvalidParameterError(
            f"the tables of all pairs of columns would have {pair_cells} cells, more "
            f"than {MAX_PAIR_CELLS}: merge values of the largest columns."
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


def _pair_cells(sizes: Sequence[int]) -> int:
    """Return how many cells the tables of all pairs have together."""
    total = sum(sizes)
    return (total * total - sum(size * size for size in sizes)) // 2


def _clusters(sizes: tuple[int, ...]) -> list[range]:
    """Return runs of neighboring columns, small enough that two of them are tallied.

    There are two runs or more, since all columns together exceed `MAX_CELLS`. Beside a
    column of many values the runs are shorter: a table of it with a cluster of seven
    binary columns has 128 cells for each value, and those with the seven only 14.
    """
    most, limit = max(MAX_CELLS, _pair_cells(sizes)), _CLUSTER
    while True:
        runs = _runs(sizes, limit)
        cells = [math.prod(sizes[run.start : run.stop]) for run in runs]
        # One column a run: the tables are those of the pairs themselves.
        if limit == 1 or _pair_cells(cells) <= most:
            return runs
        limit //= 2


def _runs(sizes: tuple[int, ...], limit: int) -> list[range]:
    """Return runs of columns of at most `limit` value combinations, or of one."""
    runs: list[range] = []
    start, cells = 0, 1
    for i, size in enumerate(sizes):
        if i > start and cells * size > limit:
            runs.append(range(start, i))
            start, cells = i, 1
        cells *= size
    return [*runs, range(start, len(sizes))]


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


def _pairs_of(joint: _Counts) -> dict[_Pair, _Counts]:
    """Return every pair's table; the first column is summed away step by step."""
    tables: dict[_Pair, _Counts] = {}
    columns = joint.ndim
    for i in range(columns - 1):
        for j in range(i + 1, columns):
            rest = tuple(k - i for k in range(i + 1, columns) if k != j)
            tables[i, j] = joint.sum(axis=rest)
        joint = joint.sum(axis=0)
    return tables


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
