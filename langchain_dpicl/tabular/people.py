"""From a private table to the rows that take part in a release: `read_people`.

Privacy:
    Unit: what one value of `unit_key` names, or one row. Neighbors: a table and the
    same with all rows of one unit more.

    For fixed secret bits the units do not meet: with which rows a unit takes part
    depends on that unit's own rows and the bits, not on who else is there, in which
    order rows come, or where chunks are cut. So one unit more adds at most
    `rows_per_unit` rows, and nothing else changes.

    *Which rows.* Those with the lowest hashes, BLAKE2b-128 under a secret key of 256
    bits, of unit and content; the i-th of several equal rows has the hash of i besides,
    so that a row that is there twice has twice the chance. The key is drawn afresh for
    each reading, and shared by the parts of one table. "The first ones" would be a
    trap: a database's order may depend on everybody's rows, so that one unit more could
    swap the rows of all others.

    Every row is checked and encoded *before* rows are chosen. Otherwise the same table
    would pass or fail by chance. An error tells that there is a faulty row: it is for
    who brings the table, not for who gets the release. How many rows there are, and
    their order, is private.

Memory: about 300 bytes a row of 20 columns while rows are chosen (280 MiB measured at a
million), of which 4 a cell and 16 a row with `unit_key` stay.
Beyond that an engine tallies parts (`tabular.tally`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.common.hidden import hidden_repr, hiding
from langchain_dpicl.common.progress import Advance, is_watched, progress_bar
from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import UnitError
from langchain_dpicl.mechanisms.random import current
from langchain_dpicl.tabular.cells import distinct_cells
from langchain_dpicl.tabular.columns import NumericColumn
from langchain_dpicl.tabular.rows import Columns, read_chunks
from langchain_dpicl.tabular.schema import Column, TableSchema

Digests = NDArray[np.uint64]
"""Digests of 128 bits as rows of two words, the high one first: shape (n, 2)."""

_DIGEST_BYTES = 16
_KEY_WORDS = 4


@dataclass(frozen=True, repr=False)
class People:
    """The rows that take part in a release. Private; the repr shows nothing.

    Attributes:
        codes: By column, one code or number of grid steps a row; m codes, shape
            (rows, m), where a cell holds up to m values, -1 beyond the last.
        n_rows: How many rows were read.
        units: The digests of all units, ascending, where a key was given.
    """

    codes: dict[str, NDArray[np.int32]]
    n_rows: int
    units: Digests | None = None

    def __repr__(self) -> str:
        return hidden_repr(self)

    def __len__(self) -> int:
        return len(next(iter(self.codes.values())))


@hiding
def read_people(
    data: Any,
    schema: TableSchema,
    *,
    unit_key: str | None,
    rows_per_unit: int = 1,
    progress: bool | None = None,
    key: bytes | None = None,
) -> People:
    """Read a table once: check and encode all rows, and return those that take part.

    Every column is checked, whether it is used or not. `key` is the secret key of 32
    bytes of a table that is read in parts; the result has all units' digests then.
    Without one a fresh key is drawn.

    Raises:
        InvalidParameterError: If the table is not what the schema allows. No message
            holds a cell.
        UnitError: If a row has no usable unit id.
    """
    draw = UnitDraw(key or current().words(_KEY_WORDS).tobytes())
    shown = is_watched() if progress is None else progress
    with progress_bar("Reading rows", None, shown=shown, speed="rows/s") as done:
        matrix, units = _read(data, schema, unit_key, draw, done)
    n_rows, everybody = len(matrix), None
    if units is not None:
        everybody = None if key is None else distinct_digests(units)
        taken = draw.rows(matrix, units, rows_per_unit)
        matrix = matrix if len(taken) == n_rows else matrix[taken]
    codes: dict[str, NDArray[np.int32]] = {}
    start = 0
    for column in schema.columns:
        own = matrix[:, start : start + _width(column)]
        codes[column.name] = own if _is_set(column) else own[:, 0]
        start += _width(column)
    return People(codes, n_rows, everybody)


def encoded(column: Column, cells: Any) -> NDArray[np.int64]:
    """Return a column's cells as codes, or as grid steps where it has none.

    All fit 32 bits: a domain is a list, and `NumericColumn.bound` is 2^30 at most.
    """
    if isinstance(column, NumericColumn) and not column.bins:
        return column.grid(cells)
    return column.codes(cells)


def _is_set(column: Column) -> bool:
    return getattr(column, "max_items", None) is not None


def _width(column: Column) -> int:
    return getattr(column, "max_items", None) or 1


def _read(
    data: Any,
    schema: TableSchema,
    unit_key: str | None,
    draw: UnitDraw,
    done: Advance,
) -> tuple[NDArray[np.int32], Digests | None]:
    """Return all rows as one matrix, and each row's unit where there are ids."""
    wanted = tuple(dict.fromkeys([*schema.names, *([unit_key] if unit_key else [])]))
    parts: list[NDArray[np.int32]] = []
    units: list[Digests] = []
    n_rows = 0
    for columns, size in read_chunks(data, wanted):
        parts.append(_matrix(columns, size, schema))
        if unit_key is not None:
            units.append(draw.digests(columns[unit_key], unit_key, n_rows))
        n_rows += size
        done(size)
    matrix = np.empty((n_rows, sum(map(_width, schema.columns))), np.int32, order="F")
    row = 0
    while parts:  # Each is let go of when it is copied.
        part = parts.pop(0)
        matrix[row : row + len(part)] = part
        row += len(part)
    if unit_key is None:
        return matrix, None
    return matrix, np.concatenate(units) if units else np.empty((0, 2), np.uint64)


def _matrix(columns: Columns, size: int, schema: TableSchema) -> NDArray[np.int32]:
    # Column by column in memory: that is how they are added up.
    width = sum(map(_width, schema.columns))
    matrix = np.empty((size, width), np.int32, order="F")
    start = 0
    for column in schema.columns:
        own = encoded(column, columns[column.name]).reshape(size, -1)
        matrix[:, start : start + own.shape[1]] = own
        start += own.shape[1]
    return matrix


class UnitDraw:
    """Which rows of a unit take part: a hash says it, by a secret key of 32 bytes.

    Example:
        >>> draw = UnitDraw(b"k" * 32)
        >>> one, same, other = draw.digests(["p-1", " p-1 ", "p-2"], "patient", 0)
        >>> bool((one == same).all()), bool((one == other).all())
        (True, False)
    """

    def __init__(self, key: bytes) -> None:
        self._unit, self._row, self._copy = (
            hashlib.blake2b(key=key, digest_size=_DIGEST_BYTES, person=purpose)
            for purpose in (b"dpicl.tableunit", b"dpicl.tablerow", b"dpicl.tablecopy")
        )

    def digests(self, units: Any, unit_key: str, start: int) -> Digests:
        """Return the digest of each row's unit; see `canonical_ids`."""
        cells, places = distinct_cells(units)
        if places is None:
            return self._of_ids(canonical_ids(cells, unit_key, start))
        if (places < 0).any():
            canonical_ids([None], unit_key, start + int(np.argmin(places)))
        usable = np.isin(np.arange(len(cells)), places)
        own = [cell for cell, has_rows in zip(cells, usable, strict=True) if has_rows]
        digests = np.zeros((len(cells), 2), np.uint64)
        digests[usable] = self._of_ids(canonical_ids(own, unit_key, start))
        return digests[places]

    def _of_ids(self, ids: Sequence[str]) -> Digests:
        known = dict.fromkeys(ids, b"")
        for unit in known:
            # surrogatepass: a lone surrogate in an id is odd, and no reason to fail.
            known[unit] = _digest(self._unit, unit.encode("utf-8", "surrogatepass"))
        return _words(b"".join([known[unit] for unit in ids]))

    def rows(
        self, matrix: NDArray[np.int32], units: Digests, cap: int
    ) -> NDArray[np.int64]:
        """Return the places of the rows that take part, at most `cap` of a unit."""
        order = np.lexsort((units[:, 1], units[:, 0]))
        own = units[order]
        unit = np.cumsum(run_starts(own)) - 1
        is_over = np.bincount(unit)[unit] > cap
        over = order[is_over]
        ranks = self._ranks(matrix[over], own[is_over])
        lowest = np.lexsort((ranks[:, 1], ranks[:, 0], unit[is_over]))
        kept = over[lowest[_copies(unit[is_over][lowest]) < cap]]
        return np.sort(np.concatenate([order[~is_over], kept]))

    def _ranks(self, matrix: NDArray[np.int32], units: Digests) -> Digests:
        """Return what ranks the rows of a unit; equal rows get different ranks."""
        rows = zip(units, np.ascontiguousarray(matrix), strict=True)
        hashes = [_digest(self._row, u.tobytes() + row.tobytes()) for u, row in rows]
        ranks = _words(b"".join(hashes))
        order = np.lexsort((ranks[:, 1], ranks[:, 0]))
        copies = _copies(ranks[order])
        # The first of equal rows keeps its hash; the others get one of their own.
        for place in np.flatnonzero(copies):
            own = ranks[order[place]].tobytes() + copies[place].tobytes()
            ranks[order[place]] = _words(_digest(self._copy, own))[0]
        return ranks


def canonical_ids(cells: Sequence[Any], unit_key: str, start: int) -> list[str]:
    """Return the one spelling of each row's unit id.

    Raises:
        UnitError: If one is neither text nor a whole number. It names the column, and
            the row, of which there are `start` before.
    """
    # NumPy takes spans of time for integers.
    ids = [
        None if isinstance(cell, np.timedelta64) else canonical_unit_id(cell)
        for cell in cells
    ]
    if None in ids:
        place = ids.index(None)
        kind = type(cells[place]).__name__
        raise UnitError(
            f"Row {start + place} (counted from 0) has a {kind} for {unit_key!r}, "
            "which must be text or a whole number that says whose the row is. Read "
            "ids as text: pandas dtype=str, polars infer_schema=False."
        )
    return [unit for unit in ids if unit is not None]


def distinct_digests(digests: Digests) -> Digests:
    """Return the distinct digests, in ascending order."""
    ordered = digests[np.lexsort((digests[:, 1], digests[:, 0]))]
    return ordered[run_starts(ordered)]


def run_starts(keys: NDArray[Any]) -> NDArray[np.bool_]:
    """Say of each sorted row whether it differs from the one before it.

    Example:
        >>> run_starts(np.array([4, 4, 7])).tolist()
        [True, False, True]
    """
    starts = np.ones(len(keys), dtype=np.bool_)
    changed = keys[1:] != keys[:-1]
    starts[1:] = changed if changed.ndim == 1 else changed.any(axis=1)
    return starts


def _copies(keys: NDArray[Any]) -> NDArray[np.int64]:
    """Return each sorted row's place among its equals: 0, 1, 0 for 4, 4, 7."""
    starts = run_starts(keys)
    firsts = np.flatnonzero(starts)
    places: NDArray[np.int64] = np.arange(len(keys)) - firsts[np.cumsum(starts) - 1]
    return places


def _digest(keyed: hashlib.blake2b, data: bytes) -> bytes:
    hashed = keyed.copy()
    hashed.update(data)
    return hashed.digest()


def _words(data: bytes) -> Digests:
    return np.frombuffer(data, dtype=">u8").reshape(-1, 2).astype(np.uint64)
