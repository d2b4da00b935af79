"""The marks of points in Qdrant: which shard a point is in, and for whom it was said.

A mark is two keys at the root of a point's payload, which LangChain does not show:
`langchain_dpicl_shard_<number of shards>`, and `langchain_dpicl_unit_<...>`, a digest
of the unit's value that the point had when it was marked.

Privacy:
    Whoever changes a point's metadata alone (`set_payload`) leaves the mark where it
    is: the shard of a unit that the point is no longer of. The digest tells, from the
    record alone. A point whose digest does not fit its value is *stale*, and so is one
    without a vector that can be compared; a stale point is not assigned.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError
from qdrant_client import models
from qdrant_client.http.exceptions import ResponseHandlingException

from langchain_dpicl.groups.ingest import have_direction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from qdrant_client import QdrantClient

PAGE = 5_000
"""Points of one call, read or marked."""

_VECTORS_PAGE = 500
"""The same, where vectors are read."""


class Mark(NamedTuple):
    """The keys of the marks for one number of shards."""

    shard: str
    """Key of the shard."""

    unit: str
    """Key of the digest of the unit's value."""

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

    Args:
        client: The client.
        collection: Name of the collection.
        using: Name of the vectors, None where there is one without a name.
        ids: The points.
    """
    found: set[Any] = set()
    for some in pages(ids, _VECTORS_PAGE):
        found |= _comparable(client, collection, using, some)
    return found


def vector_of(point: Any, using: str | None) -> list[float] | None:
    """Return a point's vector of a name, None if it has none.

    Args:
        point: The point.
        using: Name of the vector, None where there is one without a name.
    """
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
