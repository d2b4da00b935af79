"""Units of a table by a keyed hash: who is in the sample, and who was read at all.

Rows of one unit may come thousands of chunks apart, so that a coin cannot be tossed for
each unit as it comes up without remembering all coins. A keyed hash of the id *is* the
coin: it can be looked at again at any time and takes no memory.
"""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.common.hidden import Hidden
from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import UnitError
from langchain_dpicl.tabular.schema.arrow_cells import arrow_cells, is_arrow

Digests = NDArray[np.uint64]
"""Digests of 128 bits as rows of two words, the high one first: shape (n, 2)."""

DIGEST_BYTES = 16
KEY_WORDS = 4

_UNIT = b"dpicl.tableunit"
_WORD_BITS = 64
_WORD_MASK = (1 << _WORD_BITS) - 1
_DIGEST_BITS = 8 * DIGEST_BYTES

_NO_DIGEST = bytes(DIGEST_BYTES)

_SHARES = 64
_LEAST_PENDING = 2048


class UnitDraw:
    """A Poisson sample of units that does not remember them.

    Args:
        key: A fresh secret key of 32 bytes, used for one reading and thrown away.
        unit_key: The column of the ids, for messages.
        rate: The sampling rate q.

    Example:
        >>> draw = UnitDraw(b"k" * 32, "patient", 0.5)
        >>> digests = draw.digests(["p-1", " p-1 ", "p-2"], 0)
        >>> (
        ...     bool((digests[0] == digests[1]).all()),
        ...     bool((digests[0] == digests[2]).all()),
        ... )
        (True, False)

    Privacy:
        A unit is in the sample iff D(id) < floor(q 2^128), where D is BLAKE2b-128 under
        the secret key. Were D a random function, the D(id) of distinct ids would be
        independent and uniform, so that this is Poisson sampling with a probability
        that is never above q and below it by less than 2^-128 (integers decide, no
        float does). Who tells BLAKE2b from a random function without its 256-bit key
        breaks it as a PRF (BLAKE2 specification, RFC 7693, section 2.9 for the keyed
        mode), so the guarantee is computational to the same degree as that of the
        shards' hash. The key is fresh for every reading: with a key kept, the sample
        would be the same each time, and nothing would be amplified.
    """

    def __init__(self, key: bytes, unit_key: str, rate: float) -> None:
        self._keyed = hashlib.blake2b(key=key, digest_size=DIGEST_BYTES, person=_UNIT)
        self._unit_key = unit_key
        self._threshold = int(Fraction(rate) * 2**_DIGEST_BITS)

    def digests(self, units: Any, start: int) -> Digests:
        """Return the digest of each row's unit.

        Args:
            units: Each row's id as it was found: a sequence or array.
            start: The number of rows before, for the message.

        Raises:
            UnitError: If a row has no usable id; the message has its place and the
                type of what is there, and no value.
        """
        cells: Hidden[Any] = Hidden(units)
        del units
        places: NDArray[np.int64] | None = None
        if isinstance(cells.value, np.ndarray) and cells.value.dtype.kind in "iu":
            # Integers are quickly told apart before they are spelled.
            distinct, places = np.unique(cells.value, return_inverse=True)
            cells.value = distinct.tolist()
            del distinct  # Ids are private.
        elif is_arrow(cells.value):
            places, cells.value = arrow_cells(cells.value)
            # A missing id is the last one: place -1.
            cells.value = [*cells.value, None]
        ids = Hidden([_canonical(cell) for cell in cells.value])
        if None in ids.value:
            self._require_ids(ids, cells, places, start)
        table = Hidden({unit: self._digest(unit) for unit in set(ids.value) if unit})
        # What no row has may be no id.
        joined = b"".join(
            [table.value.get(unit or "", _NO_DIGEST) for unit in ids.value]
        )
        found = np.frombuffer(joined, dtype=">u8").reshape(-1, 2).astype(np.uint64)
        return found if places is None else found[places]

    def chosen(self, digests: Digests) -> NDArray[np.bool_]:
        """Say for each digest whether its unit is in the sample."""
        if self._threshold >> _DIGEST_BITS:
            return np.ones(len(digests), dtype=np.bool_)
        high = np.uint64(self._threshold >> _WORD_BITS)
        low = np.uint64(self._threshold & _WORD_MASK)
        tied = (digests[:, 0] == high) & (digests[:, 1] < low)
        chosen: NDArray[np.bool_] = (digests[:, 0] < high) | tied
        return chosen

    def _require_ids(
        self,
        ids: Hidden[list[str | None]],
        cells: Hidden[Any],
        places: NDArray[np.int64] | None,
        start: int,
    ) -> None:
        """Refuse the first row that has no id."""
        usable = np.array([unit is not None for unit in ids.value])
        rows = usable if places is None else usable[places]
        if not rows.all():
            row = int(np.argmin(rows))
            place = row if places is None else int(places[row])
            found = cells.value[place]
            kind, found = type(found).__name__, None
            raise UnitError(_no_id(self._unit_key, start + row, kind))

    def _digest(self, unit: str) -> bytes:
        hashed = self._keyed.copy()
        # surrogatepass: a lone surrogate in an id is odd, and no reason to fail.
        hashed.update(unit.encode("utf-8", "surrogatepass"))
        return hashed.digest()


class DistinctUnits:
    """Keeps distinct digests, each once, wherever they come.

    Memory: 16 bytes a unit, and while they wait to be merged up to 8 more, in shares
    of a 64th; so 24 bytes a unit and about 2 MB. Two units of one digest would count
    as one: among n units that happens with a chance below n^2 2^-129.

    Example:
        >>> units = DistinctUnits()
        >>> units.add(np.array([[1, 2], [1, 3], [1, 2]], np.uint64))
        >>> units.add(np.array([[1, 2]], np.uint64))
        >>> len(units.digests())
        2
    """

    def __init__(self) -> None:
        nothing = np.empty((0, 2), dtype=np.uint64)
        self._merged: list[Digests] = [nothing] * _SHARES
        self._pending: list[list[Digests]] = [[] for _ in range(_SHARES)]
        self._waiting = [0] * _SHARES

    def __repr__(self) -> str:
        return "DistinctUnits(<hidden>)"

    def add(self, digests: Digests) -> None:
        """Keep the units of some rows."""
        distinct = distinct_digests(digests)
        # By the high word's leading bits, on which the rows are sorted already.
        step = 1 << (_WORD_BITS - _SHARES.bit_length() + 1)
        edges = np.arange(1, _SHARES, dtype=np.uint64) * np.uint64(step)
        for share, part in enumerate(
            np.split(distinct, np.searchsorted(distinct[:, 0], edges))
        ):
            if not len(part):
                continue
            # A copy: a view would keep the whole chunk's digests.
            self._pending[share].append(part.copy())
            self._waiting[share] += len(part)
            if self._waiting[share] > max(
                _LEAST_PENDING, len(self._merged[share]) // 2
            ):
                self._merge(share)

    def digests(self) -> Digests:
        """Return them, in ascending order. Private."""
        for share in range(_SHARES):
            self._merge(share)
        return np.concatenate(self._merged)

    def _merge(self, share: int) -> None:
        if not self._pending[share]:
            return
        parts = [self._merged[share], *self._pending[share]]
        self._merged[share] = distinct_digests(np.concatenate(parts))
        self._pending[share] = []
        self._waiting[share] = 0


def distinct_digests(digests: Digests) -> Digests:
    """Return the distinct digests, in ascending order."""
    ordered = digests[np.lexsort((digests[:, 1], digests[:, 0]))]
    return ordered[run_starts(ordered)]


def run_starts(*keys: NDArray[Any]) -> NDArray[np.bool_]:
    """Say of each sorted row whether it differs from the one before it.

    Args:
        keys: Arrays of one length, of one or two axes.

    Example:
        >>> run_starts(np.array([4, 4, 7])).tolist()
        [True, False, True]
    """
    starts = np.zeros(len(keys[0]), dtype=np.bool_)
    starts[:1] = True
    for key in keys:
        changed = key[1:] != key[:-1]
        starts[1:] |= changed if changed.ndim == 1 else changed.any(axis=1)
    return starts


def _canonical(cell: Any) -> str | None:
    # NumPy derives spans of time from its integers; how many depends on their unit.
    return None if isinstance(cell, np.timedelta64) else canonical_unit_id(cell)


def _no_id(unit_key: str, place: int, kind: str) -> str:
    return (
        f"Row {place} (counted from 0) has a {kind} under unit_key "
        f"{unit_key!r} that is no unit id: a non-empty string or an integer. Drop such "
        "rows; a row without an id cannot count as a unit of its own. (pandas turns a "
        "column of integers into floats where a value is missing; read it as 'Int64' "
        "or str.)"
    )
