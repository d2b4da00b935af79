"""Marking the points of a Qdrant collection; see `qdrant_marks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qdrant_client import models

from langchain_dpicl.groups.stores.qdrant.marks import (
    PAGE,
    Mark,
    comparable,
    is_cosine,
    pages,
    value_digest,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from qdrant_client import QdrantClient

    from langchain_dpicl.groups.stores.qdrant.units import UnitField

_OPERATIONS = 500
"""Units that are marked in one call."""


class Marking:
    """Sets and removes the marks of one collection.

    Args:
        client: The client.
        collection: Name of the collection.
        using: Name of the vectors, None where there is one without a name.
        unit: Where a point has its unit's id.
    """

    def __init__(
        self, client: QdrantClient, collection: str, using: str | None, unit: UnitField
    ) -> None:
        self._client = client
        self._collection = collection
        self._using = using
        self._unit = unit

    def assign(self, mark: Mark, shard_of: Mapping[Any, int]) -> None:
        """Mark each point that can be compared with its unit's shard.

        Args:
            mark: The keys.
            shard_of: For each unit's value its shard.
        """
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
                # Assigned under another salt: so is everybody else who is marked.
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
