"""The marks of points in Qdrant: the shard of a point, and the unit it was set for.

A mark is two keys at the root of a point's payload, which LangChain does not show:
`langchain_dpicl_shard_<number of shards>`, and `langchain_dpicl_unit_<...>`, a digest
of the unit's value that the point had when it was marked.

Privacy:
    A writer that changes only a point's metadata (`set_payload`) leaves the mark: the
    shard of the unit that the point belonged to before. The digest tells, from the
    record alone. A point whose digest does not fit its value is *stale*, and so is one
    without a vector that can be compared; a stale point is not assigned.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import (
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, NamedTuple

from pydantic import ValidationError
from qdrant_client import QdrantClient, models
from qdrant_client.http.exceptions import ResponseHandlingException

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.ingest import have_direction

PAGE = 5_000  # Points of one call, read or marked.
_VECTORS_PAGE = 500  # The same, where vectors are read.
_INTEGERS = range(-(2**63), 2**63)

_OPERATIONS = 500  # Units that are marked in one call.


class Mark(NamedTuple):
    """The keys of the marks for one number of shards."""

    shard: str  # Key of the shard.
    unit: str  # Key of the digest of the unit's value.

    @classmethod
    def of(cls, n_shards: int) -> Mark:
        """Return the keys for a number of shards."""
        return cls(
            f"langchain_dpicl_shard_{n_shards}", f"langchain_dpicl_unit_{n_shards}"
        )

    def shard_of(self, point: Any) -> Any:
        """Return the shard that a point is marked with, None without a mark."""
        return (point.payload or {}).get(self.shard)

    def fits(self, point: Any, value: Any) -> bool:
        """Return whether a point was marked while it had a value."""
        found = (point.payload or {}).get(self.unit)
        return isinstance(found, str) and found == value_digest(value)

    def anywhere(self) -> models.Filter:
        """Return the filter for all points that are marked."""
        return models.Filter(
            must=[models.FieldCondition(key=self.shard, range=models.Range(gte=0))]
        )

    def within(self, shards: Iterable[int]) -> models.Filter:
        """Return the filter for the points of some shards."""
        some = models.MatchAny(any=list(shards))
        return models.Filter(must=[models.FieldCondition(key=self.shard, match=some)])


def value_digest(value: Any) -> str:
    """Return the digest of a unit's value, by type: 7 is not "7".

    Example:
        >>> value_digest(7) == value_digest("7")
        False
    """
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=16).hexdigest()


def is_cosine(score: Any) -> bool:
    """Return whether a score is a finite number."""
    return isinstance(score, int | float) and math.isfinite(score)


def comparable(
    client: QdrantClient, collection: str, using: str | None, ids: Sequence[Any]
) -> set[Any]:
    """Return the ids of those points whose vector is there, finite and not zero.

    A server takes vectors that are not finite. Their scores come before all others,
    and, with a threshold, instead of all others: such a point must never be searched.
    """
    found: set[Any] = set()
    for some in pages(ids, _VECTORS_PAGE):
        found |= _comparable(client, collection, using, some)
    return found


def vector_of(point: Any, using: str | None) -> list[float] | None:
    """Return a point's vector of the name `using`, None if it has none."""
    found = point.vector
    if isinstance(found, dict):
        found = found.get(using or "")
    elif using is not None:
        found = None
    return found if isinstance(found, list) and found else None


def pages(items: Sequence[Any], size: int = PAGE) -> Iterator[list[Any]]:
    """Yield lists of at most some items, in their order.

    Example:
        >>> list(pages([1, 2, 3], 2))
        [[1, 2], [3]]
    """
    for start in range(0, len(items), size):
        yield list(items[start : start + size])


def _comparable(
    client: QdrantClient, collection: str, using: str | None, ids: list[Any]
) -> set[Any]:
    try:
        points = client.retrieve(
            collection,
            ids,
            with_payload=False,
            with_vectors=[using] if using else True,
        )
    except ResponseHandlingException as error:
        # Over REST, NaN comes as null, which the client does not read: one of them.
        if not isinstance(error.source, ValidationError):
            raise
    else:
        found = [(point.id, vector_of(point, using)) for point in points]
        there = [(own, vector) for own, vector in found if vector is not None]
        good = have_direction([vector for _, vector in there])
        return {own for (own, _), is_good in zip(there, good, strict=True) if is_good}
    if len(ids) == 1:
        return set()
    half = len(ids) // 2
    return _comparable(client, collection, using, ids[:half]) | _comparable(
        client, collection, using, ids[half:]
    )


class UnitField:
    """Where a point has its unit's id: under which keys of the payload."""

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


class Marking:
    """Sets and removes the marks of one collection.

    `using` names the vectors, None where there is one without a name; `unit` is where a
    point has its unit's id.
    """

    def __init__(
        self, client: QdrantClient, collection: str, using: str | None, unit: UnitField
    ) -> None:
        self._client = client
        self._collection = collection
        self._using = using
        self._unit = unit

    def assign(self, mark: Mark, shard_of: Mapping[Any, int]) -> None:
        """Mark each point that can be compared with its unit's shard."""
        shards = {(type(value), value): shard for value, shard in shard_of.items()}
        wanted: dict[Hashable, tuple[Any, list[Any]]] = {}
        others: list[Any] = []
        stale: list[Any] = []
        is_replaced = False
        for point in self.scroll([self._unit.path, *mark]):
            value = self._unit.value(point)
            own: tuple[type[Any], Any] = (type(value), value)
            known = mark.shard_of(point)
            is_stale = known is not None and not mark.fits(point, value)
            if is_stale:
                stale.append(point.id)
            if own not in shards:
                others += [point.id] if known is not None else []
            elif is_stale or known != shards[own]:
                wanted.setdefault(own, (value, []))[1].append(point.id)
                # Another salt made this mark, and so all other marks.
                is_replaced |= known is not None and not is_stale
        self.remove(mark, [*stale, *others] if is_replaced else stale)
        self._set(mark, shards, wanted)

    def unfit(self, points: Iterable[Any], mark: Mark) -> list[Any]:
        """Return found points whose mark is stale, or whose score is no number."""
        return [
            point
            for point in points
            if not (
                mark.fits(point, self._unit.value(point)) and is_cosine(point.score)
            )
        ]

    def remove_unfit(self, mark: Mark, condition: models.Filter) -> None:
        """Unmark what is stale or can't be compared, of points under a condition."""
        points = list(self.scroll([self._unit.path, *mark], condition))
        fit = [
            point.id for point in points if mark.fits(point, self._unit.value(point))
        ]
        good = self._comparable(fit)
        self.remove(mark, [point.id for point in points if point.id not in good])

    def remove(self, mark: Mark, ids: Sequence[Any]) -> None:
        """Take the marks from some points."""
        for some in pages(ids):
            self._client.delete_payload(self._collection, list(mark), some)

    def scroll(
        self, keys: list[str], condition: models.Filter | None = None
    ) -> Iterator[models.Record]:
        """Yield every point under a condition, with some keys of its payload."""
        offset: Any = None
        while True:
            points, offset = self._client.scroll(
                self._collection,
                scroll_filter=condition,
                limit=PAGE,
                offset=offset,
                with_payload=models.PayloadSelectorInclude(include=keys),
            )
            yield from points
            if offset is None:
                return

    def _set(
        self,
        mark: Mark,
        shards: Mapping[Any, int],
        wanted: Mapping[Hashable, tuple[Any, list[Any]]],
    ) -> None:
        good = self._comparable([own for _, ids in wanted.values() for own in ids])
        operations = [
            models.SetPayloadOperation(
                set_payload=models.SetPayload(
                    payload={mark.shard: shards[key], mark.unit: value_digest(value)},
                    points=some,
                )
            )
            for key, (value, ids) in wanted.items()
            for some in pages([own for own in ids if own in good])
        ]
        for some in pages(operations, _OPERATIONS):
            self._client.batch_update_points(self._collection, some)

    def _comparable(self, ids: Sequence[Any]) -> set[Any]:
        return comparable(self._client, self._collection, self._using, ids)
