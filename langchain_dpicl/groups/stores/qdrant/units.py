"""The unit key in the payloads of Qdrant's points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qdrant_client import models

from langchain_dpicl.exceptions import InvalidParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_INTEGERS = range(-(2**63), 2**63)


class UnitField:
    """Where a point has its unit's id.

    Args:
        metadata_key: The key of the payload under which the metadata are.
        unit_key: The key of the metadata.

    Raises:
        InvalidParameterError: If Qdrant has no path for one of them.
    """

    def __init__(self, metadata_key: str, unit_key: str) -> None:
        self.path = f"{path_step(metadata_key)}.{path_step(unit_key)}"
        self._metadata_key = metadata_key
        self._unit_key = unit_key

    def value(self, point: Any) -> str | float | None:
        """Return a point's value; None if it can't be a unit's id."""
        metadata = (point.payload or {}).get(self._metadata_key)
        value = metadata.get(self._unit_key) if isinstance(metadata, dict) else None
        return value if isinstance(value, (str, int, float)) else None

    def matching(self, values: Sequence[Any]) -> list[models.FieldCondition]:
        """Return conditions of which a point with one of the values meets one."""
        # Of one type each: the server takes no mixed list.
        texts = [value for value in values if isinstance(value, str)]
        numbers = [
            value
            for value in values
            if isinstance(value, int)
            and not isinstance(value, bool)
            and value in _INTEGERS
        ]
        return [
            models.FieldCondition(key=self.path, match=models.MatchAny(any=some))
            for some in (texts, numbers)
            if some
        ]


def among(values: Sequence[Any]) -> Callable[[Any], bool]:
    """Return whether a value is one of some, and of its type.

    Example:
        >>> is_seven = among([7])
        >>> is_seven(7), is_seven(7.0), is_seven("7"), is_seven([7])
        (True, False, False, False)
    """
    known = {(type(value), value) for value in values}

    def is_one(value: Any) -> bool:
        return isinstance(value, (str, int, float)) and (type(value), value) in known

    return is_one


def path_step(key: str) -> str:
    """Return a key as one step of a path in Qdrant's payloads.

    Raises:
        InvalidParameterError: If it can't be one.

    Example:
        >>> path_step("patient_id"), path_step("patient.id")
        ('patient_id', '"patient.id"')
    """
    if not isinstance(key, str) or not key or '"' in key:
        raise InvalidParameterError(
            "An empty key, or one with a quotation mark, can't be searched in Qdrant: "
            "rename it."
        )
    plain = key.replace("_", "a").replace("-", "a")
    return key if plain.isascii() and plain.isalnum() else f'"{key}"'
