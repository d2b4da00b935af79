"""What each unit has spent: a few bytes a unit and account, and never an id.

Privacy:
    Which units were ever eligible, and how often, is private. A ledger that outlives
    the process keeps a keyed hash of the id (`unit_tag`) and the steps spent. The key
    is random and stays with the balances, so that the same unit id finds the same
    balance from every process and index, also after the unit was deleted and added
    again. It keeps ids out of files and dumps; whoever holds the ledger *and* a list of
    ids can look them up, so that a ledger is guarded like the records.

    The key stays until the account ends. Until then a person who has seen it can link
    balances with a list of ids.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from operator import itemgetter
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.accounting import Cost
from langchain_dpicl.common.units import NumberedUnits

KEY_BYTES = 32
TAG_BYTES = 16
_PERSON = b"dpicl.balance"
_FIRST_ROWS = 1024


def new_key() -> bytes:
    """Return a fresh key for `unit_tag`."""
    return os.urandom(KEY_BYTES)


def unit_tag(key: bytes, unit_id: str) -> bytes:
    """Return the keyed hash, 16 bytes, under which a unit's balance is kept.

    Two of a million units share a tag with probability below 1e-26.

    Example:
        >>> unit_tag(bytes(32), "p-1") == unit_tag(bytes(32), "p-2")
        False
    """
    return hashlib.blake2b(
        unit_id.encode("utf-8", "surrogatepass"),
        key=key,
        digest_size=TAG_BYTES,
        person=_PERSON,
    ).digest()


class UnitRows:
    """Numbers the units of one process, for all of its accounts."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        # For each index, the rows of its units by their numbers; -1 if not known yet.
        self._of_source: WeakKeyDictionary[object, NDArray[np.intp]] = (
            WeakKeyDictionary()
        )

    def of(self, unit_ids: Sequence[str]) -> NDArray[np.intp]:
        """Return the units' rows; a new unit gets the next one."""
        if isinstance(unit_ids, NumberedUnits):
            return self._numbered(unit_ids)
        try:
            return self._known(unit_ids)
        except KeyError:
            for unit_id in unit_ids:
                self._rows.setdefault(unit_id, len(self._rows))
            return self._known(unit_ids)

    def _numbered(self, units: NumberedUnits) -> NDArray[np.intp]:
        known = self._of_source.get(units.source)
        if known is None:
            known = self._of_source[units.source] = np.full(units.size, -1, np.intp)
        rows: NDArray[np.intp] = known[units.numbers]
        if len(rows) and rows.min() < 0:
            rows = known[units.numbers] = self.of(list(units))
        return rows

    def _known(self, unit_ids: Sequence[str]) -> NDArray[np.intp]:
        if len(unit_ids) < 2:  # noqa: PLR2004 - itemgetter returns no tuple then
            return np.array([self._rows[unit_id] for unit_id in unit_ids], np.intp)
        # Twice as fast as a loop; look-ups are most of what a bulk charge takes.
        return np.array(itemgetter(*unit_ids)(self._rows), np.intp)

    def ids(self) -> list[str]:
        """Return the unit ids in the order of their rows: private."""
        return list(self._rows)


def has_repeats(rows: NDArray[np.intp]) -> bool:
    """Return whether a row occurs twice."""
    ordered = np.sort(rows)
    return bool((ordered[1:] == ordered[:-1]).any())


class UnitBalances:
    """The balances of one account in memory: eight bytes a unit.

    Example:
        >>> balances = UnitBalances(Cost(2, 0))
        >>> rows = np.array([0, 5])
        >>> [bool(balances.charge(rows, Cost(1, 0)).all()) for _ in range(3)]
        [True, True, False]
    """

    def __init__(self, limit: Cost) -> None:
        self._limit = limit
        self._loss: NDArray[np.uint32] = np.zeros(_FIRST_ROWS, np.uint32)
        self._failure: NDArray[np.uint32] = np.zeros(_FIRST_ROWS, np.uint32)

    def charge(self, rows: NDArray[np.intp], cost: Cost) -> NDArray[np.bool_]:
        """Charge every unit that can pay, each row once; return which ones did.

        The price is within the limit.
        """
        self._grow(int(rows.max(initial=-1)) + 1)
        pays: NDArray[np.bool_] = self._loss[rows] <= self._limit.loss - cost.loss
        if cost.failure:
            pays &= self._failure[rows] <= self._limit.failure - cost.failure
            self._failure[rows[pays]] += np.uint32(cost.failure)
        self._loss[rows[pays]] += np.uint32(cost.loss)
        return pays

    def spent(self, row: int) -> Cost:
        """Return what the unit of a row has spent: private."""
        if row >= len(self._loss):
            return Cost(0, 0)
        return Cost(int(self._loss[row]), int(self._failure[row]))

    def _grow(self, rows: int) -> None:
        if rows > len(self._loss):
            more = max(rows, 2 * len(self._loss)) - len(self._loss)
            self._loss = np.concatenate([self._loss, np.zeros(more, np.uint32)])
            self._failure = np.concatenate([self._failure, np.zeros(more, np.uint32)])
