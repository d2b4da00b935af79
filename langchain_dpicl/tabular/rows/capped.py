"""The sampled units' rows until all are read, and at most so many of each unit."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.tabular.rows.units import DIGEST_BYTES, Digests, run_starts

Columns: TypeAlias = "dict[str, NDArray[np.int64]]"

_ROW = b"dpicl.tablerow"
_COPY = b"dpicl.tablecopy"
_INDEX_BYTES = 8

_BLOCK_ROWS = 1 << 16
_NARROW = ("int8", "uint8", "int16", "uint16", "int32", "uint32")
_KINDS = tuple((np.dtype(kind), np.iinfo(kind)) for kind in _NARROW)


class CappedRows:
    """Holds encoded rows and hands on at most `rows_per_unit` of each unit.

    Which rows of a unit those are can be told only when all its rows are known, so the
    rows of sampled units wait here. A row takes 16 bytes for its unit and, for each
    column, 1, 2, 4 or 8 bytes by the largest value around it: about 36 bytes for
    20 columns of codes. They are handed on in ranges of the units' digests, about
    65,000 rows at a time, so that sorting them takes little more (a unit with more
    rows than that is sorted as a whole, at about 600 bytes a row).

    Args:
        key: The reading's secret key.
        rows_per_unit: The cap.

    Privacy:
        Which rows of a unit take part is a function of the key and of *that unit's
        multiset of rows*, and so is what it adds to any sum. Not of the order in which
        rows come: "the first ones" would be a trap, since a database's order may
        depend on everybody's rows (pages, plans, parallel scans, a shared sort), so
        that one unit more could swap the rows of all others, and no cap would bound
        that. Rows are ranked by BLAKE2b-128, under the secret key, of unit and content;
        the i-th of several equal rows (which one is of no matter) has the hash of i
        besides, so that a row that is there twice has twice the chance. The key makes
        the choice uniform; the sensitivity does not rest on it.
    """

    def __init__(self, key: bytes, rows_per_unit: int) -> None:
        self._rows = _keyed(key, _ROW)
        self._copies = _keyed(key, _COPY)
        self._cap = rows_per_unit
        self._units: list[Digests] = []
        self._columns: dict[str, list[NDArray[np.integer]]] = {}
        self._waiting: list[tuple[Digests, Columns]] = []
        self._total = self._n_waiting = 0

    def __repr__(self) -> str:
        return "CappedRows(<hidden>)"

    def add(self, units: Digests, columns: Mapping[str, NDArray[np.int64]]) -> None:
        """Keep some rows.

        Args:
            units: The digest of each row's unit.
            columns: The rows' encoded cells, the same columns every time.
        """
        self._waiting.append((units, dict(columns)))
        self._n_waiting += len(units)
        if self._n_waiting >= _BLOCK_ROWS:
            self._store()

    def blocks(self) -> Iterator[Columns]:
        """Yield the rows that take part."""
        self._store()
        ranges = -(-self._total // _BLOCK_ROWS)
        # The digests are uniform up to the largest one.
        top = max((int(units[-1, 0]) for units in self._units), default=0)
        edges = [top * k // max(ranges, 1) for k in range(1, ranges)]
        cuts = [
            [0, *np.searchsorted(units[:, 0], np.array(edges, np.uint64)), len(units)]
            for units in self._units
        ]
        for k in range(ranges):
            slices = [slice(cut[k], cut[k + 1]) for cut in cuts]
            units = np.concatenate(
                [u[s] for u, s in zip(self._units, slices, strict=True)]
            )
            columns = {
                name: np.concatenate(
                    [v[s] for v, s in zip(values, slices, strict=True)]
                ).astype(np.int64)
                for name, values in self._columns.items()
            }
            if len(units):
                yield self._capped(units, columns)

    def _store(self) -> None:
        """Pack the rows that came since the last time, sorted by unit."""
        if self._n_waiting:
            units = np.concatenate([units for units, _ in self._waiting])
            order = np.argsort(units[:, 0])
            self._units.append(units[order])
            for name in self._waiting[0][1]:
                values = np.concatenate([columns[name] for _, columns in self._waiting])
                stored = self._columns.setdefault(name, [])
                stored.append(_narrowed(values[order]))
            self._total += self._n_waiting
        self._waiting, self._n_waiting = [], 0

    def _capped(self, units: Digests, columns: Columns) -> Columns:
        order = np.lexsort((units[:, 1], units[:, 0]))
        starts = run_starts(units[order])
        unit = np.cumsum(starts) - 1
        is_over = np.bincount(unit)[unit] > self._cap
        kept = order[~is_over]
        over = order[is_over]
        if len(over):
            drawn = over[self._lowest(units[over], unit[is_over], columns, over)]
            kept = np.concatenate([kept, drawn])
        return {name: values[kept] for name, values in columns.items()}

    def _lowest(
        self,
        units: Digests,
        unit: NDArray[np.int64],
        columns: Columns,
        rows: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Return which rows have the lowest hashes of their units.

        Args:
            units: Each row's unit's digest.
            unit: Each row's unit, as a number.
            columns: All columns.
            rows: The rows' places in the columns.
        """
        content = np.column_stack(
            [units.view(np.int64), *(columns[name][rows] for name in sorted(columns))]
        )
        ranks = _hashed(self._rows, content)
        order = np.lexsort((ranks[:, 1], ranks[:, 0], unit))
        copy = _places(run_starts(unit[order], ranks[order]))
        again = np.flatnonzero(copy)
        # The first of equal rows keeps its hash; the others get one of their own.
        repeated = np.column_stack(
            [ranks[order[again]].view(np.int64), copy[again].astype(np.int64)]
        )
        ranks[order[again]] = _hashed(self._copies, repeated)
        order = np.lexsort((ranks[:, 1], ranks[:, 0], unit))
        lowest: NDArray[np.int64] = order[_places(run_starts(unit[order])) < self._cap]
        return lowest


def _places(starts: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return each row's place in its run, from 0.

    Example:
        >>> _places(np.array([True, False, True])).tolist()
        [0, 1, 0]
    """
    firsts = np.flatnonzero(starts)
    places: NDArray[np.int64] = np.arange(len(starts)) - firsts[np.cumsum(starts) - 1]
    return places


def _keyed(key: bytes, purpose: bytes) -> hashlib.blake2b:
    return hashlib.blake2b(key=key, digest_size=DIGEST_BYTES, person=purpose)


def _hashed(keyed: hashlib.blake2b, rows: NDArray[np.int64]) -> Digests:
    """Return the keyed digest of each row of a matrix."""
    data = memoryview(np.ascontiguousarray(rows, dtype="<i8").tobytes())
    width = rows.shape[1] * _INDEX_BYTES
    found = bytearray()
    for start in range(0, len(data), width):
        hashed = keyed.copy()
        hashed.update(data[start : start + width])
        found += hashed.digest()
    return np.frombuffer(found, dtype=">u8").reshape(-1, 2).astype(np.uint64)


def _narrowed(values: NDArray[np.int64]) -> NDArray[np.integer]:
    """Return the values in the smallest integers that hold them."""
    low, high = int(values.min()), int(values.max())
    for kind, limits in _KINDS:
        if limits.min <= low and high <= limits.max:
            return values.astype(kind)
    return values
