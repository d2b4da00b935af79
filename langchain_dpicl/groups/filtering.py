"""Filters on attributes of units: who takes part in a question at all.

Privacy:
    *Unit and relation.* What one value of `unit_key` names; all records of one unit
    more or less. A unit's attribute is what all its records agree on, and nothing else:
    whether a unit matches is a function of its own records and the public filter. So
    the matching parts of two neighboring corpora are the same, or are neighbors that
    differ by the same unit. All that holds for groups over a corpus holds for groups
    over the part: the relation, one slot a unit, and a Poisson sample, whose coins are
    a unit's own. *Order.* The filter comes before the sample, the search and the cap on
    groups. Applied to what a search has found it would not do: a unit that does not
    match would have taken another one's place in a slot, or in the cap.

    *Sensitivity, noise and event* are the mechanism's own, and the charge is the same
    as without a filter. One person can match many filters, and filters need not be
    disjoint: all charges add up in one account, and no parallel composition is claimed.
    In a per-unit account those who match are eligible; the others change nothing, and
    pay nothing.

    *What is public.* The filter: its keys and values come from the caller, as the
    question does. How many units match is private. So a filter that nobody matches is
    no error, and neither is a unit whose records do not agree: it does not match. The
    number of units that delta is checked against is that of the whole corpus.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import InvalidParameterError

if TYPE_CHECKING:
    from langchain_core.documents import Document
    from numpy.typing import NDArray

_ATOMS = frozenset({str, int, bool})
_EXAMPLE = "such as {'ward': '3'} or {'country': ['DE', 'AT']}"


@dataclass(frozen=True)
class UnitFilter:
    """Which units take part: for each attribute, the values that match. Public.

    Attributes:
        allowed: Metadata keys with the values that match, in one spelling, sorted. A
            unit has to match for every key.
    """

    allowed: tuple[tuple[str, tuple[str, ...]], ...]

    @classmethod
    def of(cls, given: Any) -> UnitFilter:
        """Read a filter: keys of metadata, each with a value or several.

        Raises:
            InvalidParameterError: If it is no such mapping, or has no key or value.

        Example:
            >>> UnitFilter.of({"ward": 3, "country": ["DE", "AT"]}).description()
            {'country': ['AT', 'DE'], 'ward': ['3']}
        """
        if isinstance(given, UnitFilter):
            return given
        if not isinstance(given, Mapping) or not given:
            raise InvalidParameterError(
                f"filter must be a mapping of attributes to values, {_EXAMPLE}."
            )
        for key in given:
            if not isinstance(key, str) or not key:
                raise InvalidParameterError(
                    f"A key of filter must be the name of a metadata key, {_EXAMPLE}."
                )
        return cls(tuple((key, _values(key, given[key])) for key in sorted(given)))

    def also(self, other: UnitFilter) -> UnitFilter:
        """Return the filter of those who match both.

        Raises:
            InvalidParameterError: If the two have a key, and no value of it, in common.
        """
        both = dict(self.allowed)
        for key, values in other.allowed:
            both[key] = tuple(one for one in both.get(key, values) if one in values)
            if not both[key]:
                raise InvalidParameterError(
                    f"The filter allows no value of {key!r} that these groups have not "
                    "left out by their own filter."
                )
        return UnitFilter(tuple(sorted(both.items())))

    def description(self) -> dict[str, list[str]]:
        """Return the filter, ready for JSON: for records and keys of the cache."""
        return {key: list(values) for key, values in self.allowed}


class UnitAttributes:
    """What the records of each unit agree on. Private.

    A key is read when it is asked for, and kept: the records do not change.

    Args:
        documents: The records.
        units: For each record, its unit's number.
        n_units: How many units there are.
    """

    def __init__(
        self, documents: Sequence[Document], units: NDArray[np.int64], n_units: int
    ) -> None:
        self._documents, self._units, self._n_units = documents, units, n_units
        self._known: dict[str, tuple[dict[str, int], NDArray[np.int64]]] = {}

    def matching(self, only: UnitFilter) -> NDArray[np.bool_]:
        """Return for each unit whether it matches a filter.

        Privacy:
            A unit's answer is a function of its own records.
        """
        found = np.ones(self._n_units, bool)
        for key, values in only.allowed:
            if key not in self._known:
                self._known[key] = self._read(key)
            numbers, own = self._known[key]
            found &= np.isin(own, [numbers[one] for one in values if one in numbers])
        return found

    def _read(self, key: str) -> tuple[dict[str, int], NDArray[np.int64]]:
        """Return the values that there are, and for each unit its own or -1."""
        numbers: dict[str, int] = {}
        # Few values repeat in many records: each is spelled once.
        known: dict[tuple[type, Any], int] = {}
        rows = np.empty(len(self._documents), np.int64)
        for row, document in enumerate(self._documents):
            value = document.metadata.get(key)
            kind = type(value)
            number = known.get((kind, value)) if kind in _ATOMS else None
            if number is None:
                own = _spelled(value)
                number = -1 if own is None else numbers.setdefault(own, len(numbers))
                if kind in _ATOMS:
                    known[kind, value] = number
            rows[row] = number
        least = np.full(self._n_units, len(self._documents), np.int64)
        most = np.full(self._n_units, -1, np.int64)
        np.minimum.at(least, self._units, rows)
        np.maximum.at(most, self._units, rows)
        return numbers, np.where(least == most, least, -1)


def spelled(value: Any) -> str | None:
    """Return the one spelling of an attribute's value; None where it can't be one.

    Texts, integers and UUIDs are spelled as unit ids are, and booleans as in JSON.

    Example:
        >>> spelled(" 3 "), spelled(3), spelled(True), spelled(3.5), spelled(["3"])
        ('3', '3', 'true', None, None)
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return canonical_unit_id(value)


def _spelled(value: Any) -> str | None:
    try:
        return spelled(value)
    except Exception:  # noqa: BLE001  # a value of any class may refuse to be read
        return None


def _values(key: str, given: Any) -> tuple[str, ...]:
    several = isinstance(given, Collection) and not isinstance(given, str | bytes)
    if isinstance(given, Mapping):
        several = False
    found = {spelled(one) for one in (given if several else [given])}
    if not found or None in found:
        raise InvalidParameterError(
            f"filter[{key!r}] must be a text, an integer or a boolean, or a list of "
            f"them that is not empty, {_EXAMPLE}."
        )
    return tuple(sorted(one for one in found if one is not None))
