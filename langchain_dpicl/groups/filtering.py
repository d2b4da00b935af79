"""Filters on records: which of them a question looks at at all.

**The rule.** A filter is a predicate of *one record*. It names metadata keys and, for
each, the values that match. A record matches if it has every key with one of its values
(texts and integers are compared as unit ids are). Records that do not match are as if
they were not in the corpus. A person takes part with those records that match, whatever
the person's other records say. The order is: filter, eligibility, payment, sample,
search.

Privacy:
    *Unit and relation.* What one value of `unit_key` names; all records of one unit
    more or less. Whether a record matches is a function of that record and the public
    filter. So the matching parts of two neighboring corpora are the same, or are
    neighbors that differ by the same unit. All that holds for groups over a corpus
    holds for groups over the part: the relation, one slot a unit, and a Poisson sample,
    whose coins are a unit's own. *Order.* Applied to what a search has found, a filter
    would not do: a record that does not match would have taken another one's place.

    *Sensitivity, noise and event* are the mechanism's own, and the charge is the same
    as without a filter. One person can match many filters, also such as exclude each
    other for one record, and the asker chooses the next filter after the last answer:
    all charges add up in one account, and no parallel composition is claimed. In a
    per-unit account those who have a matching record are eligible; the others change
    nothing, and pay nothing.

    *What is public.* The filter: its keys and values come from the caller, as the
    question does. How many records match is private. So a filter that no record matches
    is no error, and neither is a record without the key. The number of units that delta
    is checked against is that of the whole corpus.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import InvalidParameterError

_EXAMPLE = "such as {'ward': '3'} or {'country': ['DE', 'AT']}"


@dataclass(frozen=True)
class RecordFilter:
    """Which records take part: for each metadata key, the values that match. Public.

    Attributes:
        allowed: Metadata keys with the values that match, in one spelling, sorted. A
            record has to match for every key.
    """

    allowed: tuple[tuple[str, tuple[str, ...]], ...]

    @classmethod
    def of(cls, given: Any) -> RecordFilter:
        """Read a filter: keys of metadata, each with a value or several.

        Example:
            >>> RecordFilter.of({"ward": 3, "country": ["DE", "AT"]}).description()
            {'country': ['AT', 'DE'], 'ward': ['3']}
        """
        if isinstance(given, RecordFilter):
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

    def also(self, other: RecordFilter) -> RecordFilter:
        """Return the filter of the records that match both, if any can."""
        both = dict(self.allowed)
        for key, values in other.allowed:
            both[key] = tuple(v for v in both.get(key, values) if v in values)
            if not both[key]:
                raise InvalidParameterError(
                    f"The filter allows no value of {key!r} that these groups have not "
                    "left out by their own filter."
                )
        return RecordFilter(tuple(sorted(both.items())))

    def matches(self, metadata: Mapping[str, Any]) -> bool:
        """Return whether a record matches, by its metadata alone."""
        return all(spelled(metadata.get(key)) in values for key, values in self.allowed)

    def keys(self) -> set[str]:
        """Return the metadata keys that it looks at."""
        return {key for key, _ in self.allowed}

    def description(self) -> dict[str, list[str]]:
        """Return the filter, ready for JSON: for records and keys of the cache."""
        return {key: list(values) for key, values in self.allowed}


def narrowed(
    bound: RecordFilter | None, given: Any, values: Mapping[str, Any]
) -> RecordFilter:
    """Return the filter of `where(given, **values)`, under the groups' own `bound`."""
    if given is None or isinstance(given, Mapping):
        given = {**(given or {}), **values}
    only = RecordFilter.of(given)
    return only if bound is None else bound.also(only)


def spelled(value: Any) -> str | None:
    """Return the one spelling of an attribute's value; None where it can't be one.

    Texts, integers and UUIDs are spelled as unit ids are, and booleans as in JSON. A
    value of any class may refuse to be read; it is none then, and no error.

    Example:
        >>> spelled(" 3 "), spelled(3), spelled(True), spelled(3.5), spelled(["3"])
        ('3', '3', 'true', None, None)
    """
    try:
        if isinstance(value, bool):
            return "true" if value else "false"
        return canonical_unit_id(value)
    except Exception:  # noqa: BLE001  # see the docstring
        return None


def _values(key: str, given: Any) -> tuple[str, ...]:
    several = isinstance(given, Collection) and not isinstance(
        given, str | bytes | Mapping
    )
    read = {spelled(value) for value in (given if several else [given])}
    if not read or None in read:
        raise InvalidParameterError(
            f"filter[{key!r}] must be a text, an integer or a boolean, or a list of "
            f"them that is not empty, {_EXAMPLE}."
        )
    return tuple(sorted(value for value in read if value is not None))
