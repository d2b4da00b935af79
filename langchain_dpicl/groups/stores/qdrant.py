"""Qdrant: one grouped, exact search finds each shard's best records.

A point is marked with its unit's shard in a key of its own at the root of its payload,
`langchain_dpicl_shard_<number of shards>`, which LangChain does not show. Points that
others write have no mark, and are not in the corpus, until `refresh()`.

A server's grouped search is a best effort: it can return fewer points of a shard than
there are. How many there are is one more call, and shards that came back short are
asked for once more, each by itself. What does come back of a group is its best, as
candidates are taken from an exact order.

The local mode is searched in its own way, see `qdrant_local`.

Privacy:
    Every search asks for `exact=True` and the full vectors, whatever index there is or
    comes to be. A collection that may have an HNSW graph or quantized vectors is
    refused all the same unless the user says `exact=True`: whether it is fit to be
    searched must be decided by its configuration, which is public. The number of
    vectors at which the server starts to build its graph depends on the records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.documents import Document
from qdrant_client import models

from langchain_dpicl.exceptions import InvalidParameterError, UnsoundStoreError
from langchain_dpicl.groups.stores.contract import ShardStore, StoredHit
from langchain_dpicl.groups.stores.qdrant_collection import (
    dense_vectors,
    private_errors,
    shared_index,
)
from langchain_dpicl.groups.stores.qdrant_local import (
    EVERYTHING,
    is_local,
    near_the_best,
    rescored,
)
from langchain_dpicl.groups.stores.qdrant_units import UnitField, among

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

    from langchain_core.embeddings import Embeddings
    from qdrant_client import QdrantClient

    from langchain_dpicl.groups.ingest import Vectors

_PAGE = 5_000
"""Points of one call, read or marked."""

_MORE = 100
"""Points that may be written between counting them and asking for them."""


class QdrantShards(ShardStore):
    """The shards of a `QdrantVectorStore` of langchain-qdrant.

    Args:
        store: The store, local or on a server, with dense vectors under the distance
            Cosine.
        unit_key: The metadata key that holds the unit id.

    Raises:
        InvalidParameterError: If the store is another one, or has other vectors.
        GroupCallError: If the server can't be reached.

    Privacy:
        See the module's.
    """

    @private_errors
    def __init__(self, store: Any, unit_key: str) -> None:
        for name in ("client", "collection_name", "vector_name"):
            if not hasattr(store, name):
                raise InvalidParameterError(
                    "store must be a QdrantVectorStore of langchain-qdrant, not a "
                    f"{type(store).__name__}."
                )
        self._store = store
        self._client: QdrantClient = store.client
        self._collection: str = store.collection_name
        self._using: str | None = store.vector_name or None
        self._content: str = store.content_payload_key
        self._metadata: str = store.metadata_payload_key
        self._unit_key = unit_key
        self._unit = UnitField(self._metadata, unit_key)
        self._is_local = is_local(self._client)
        self._n_shards: int | None = None
        params = dense_vectors(self._collection_info(), self._collection, self._using)
        self._dimension: int = params.size

    @property
    def identity(self) -> str:
        """Collection, vector and unit key."""
        return repr((self._collection, self._using, self._unit_key))

    @property
    def embeddings(self) -> Embeddings | None:
        """The store's embeddings."""
        found: Embeddings | None = self._store.embeddings
        return found

    @private_errors
    def refuse_unsound(self, *, exact: bool) -> None:
        """Refuse a collection that may have a shared index, unless `exact`.

        That is one on a server whose configuration lets it build an HNSW graph (`m`
        and `indexing_threshold` are not 0, as is the default) or quantize vectors, or
        that has such a graph already. The local mode has no index.

        Raises:
            UnsoundStoreError: If it may have one.
            InvalidParameterError: If its vectors are not compared by cosine.
            GroupCallError: If the server can't be reached.
        """
        info = self._collection_info()
        params = dense_vectors(info, self._collection, self._using)
        if exact or self._is_local:
            return
        shared = shared_index(info, params)
        if shared is not None:
            raise UnsoundStoreError(
                f"The collection {self._collection!r} {shared}: an index of all "
                "records at once, so that one person more or less can change what is "
                "found of others. Pass exact=True: the server is then asked to compare "
                "the question with every vector. Or configure it with m=0 or "
                "indexing_threshold=0 and without quantization."
            )

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self._dimension

    @private_errors
    def unit_values(self) -> Iterable[Hashable]:
        """Yield the values of the unit key, each once; None if a record has none.

        Also None if a record's value can't be a unit id, such as a list.
        """
        found: dict[tuple[type, Hashable], Hashable] = {}
        for point in self._scroll([self._unit.path]):
            value = self._unit.value(point)
            found[type(value), value] = value
        return list(found.values())

    @private_errors
    def assign(self, shard_of: Mapping[Any, int], n_shards: int) -> None:
        """Mark each point with its unit's shard; see `ShardStore.assign`.

        Marks for several numbers of shards live side by side.
        """
        mark = _mark(n_shards)
        shards = {(type(value), value): shard for value, shard in shard_of.items()}
        wanted: dict[int, list[Any]] = {}
        others: list[Any] = []
        replaced = False
        for point in self._scroll([self._unit.path, mark]):
            value = self._unit.value(point)
            known = (point.payload or {}).get(mark)
            shard = shards.get((type(value), value))
            if shard is None:
                others += [point.id] if known is not None else []
            elif known != shard:
                wanted.setdefault(shard, []).append(point.id)
                replaced |= known is not None
        if not self._is_local:
            # Counting and filtering by it; there is nothing to do if it is there.
            self._client.create_payload_index(
                self._collection, mark, models.PayloadSchemaType.INTEGER
            )
        if replaced:
            self._unmark(mark, others)
        for shard, ids in wanted.items():
            for some in _pages(ids):
                self._client.set_payload(self._collection, {mark: shard}, some)
        self._n_shards = n_shards

    @private_errors
    def sizes(self, n_shards: int) -> list[int]:
        """Return the number of records of each shard, private."""
        mark = _mark(n_shards)
        found = self._client.facet(self._collection, mark, limit=n_shards, exact=True)
        sizes = {hit.value: hit.count for hit in found.hits}
        return [sizes.get(number, 0) for number in range(n_shards)]

    @private_errors
    def best(self, vector: Vectors, n: int, n_shards: int) -> list[StoredHit]:
        """Return the n best records of each shard, in any order.

        One grouped search. Only where it returns too few of a shard, their number is
        asked for, and then the shard.
        """
        mark = _mark(n_shards)
        if self._is_local:
            return self._best_of_local(vector, n, mark, n_shards)
        groups = self._groups(vector, n, mark, n_shards)
        if len(groups) < n_shards or any(len(hits) < n for hits in groups.values()):
            sizes = self.sizes(n_shards)
            short = [
                number
                for number, size in enumerate(sizes)
                if len(groups.get(number, ())) < min(n, size)
            ]
            groups |= self._ask_each(vector, n, mark, short)
        return [self._hit(point, mark) for hits in groups.values() for point in hits]

    def _best_of_local(
        self, vector: Vectors, n: int, mark: str, n_shards: int
    ) -> list[StoredHit]:
        groups = self._groups(vector, EVERYTHING, mark, n_shards)
        found = self._client.retrieve(
            self._collection,
            near_the_best(groups.values(), n),
            with_payload=True,
            with_vectors=True,
        )
        hits: dict[int, list[StoredHit]] = {}
        for point in rescored(found, vector, self._using):
            hit = self._hit(point, mark)
            hits.setdefault(hit.shard, []).append(hit)
        return [
            hit
            for some in hits.values()
            for hit in sorted(some, key=lambda hit: -hit.score)[:n]
        ]

    def _groups(
        self, vector: Vectors, n: int, mark: str, n_shards: int
    ) -> dict[Any, list[Any]]:
        found = self._client.query_points_groups(
            self._collection,
            mark,
            query=vector[0].tolist(),
            using=self._using,
            limit=n_shards,
            group_size=n,
            with_payload=not self._is_local or [mark],
            **self._exactly(),
        )
        return {group.id: group.hits for group in found.groups}

    @private_errors
    def of_shard(self, vector: Vectors, shard: int, score: float) -> list[StoredHit]:
        """Return all records of one shard with at least a score, in any order."""
        return self._all(vector, _in_shard(self._own_mark, shard), score)

    @private_errors
    def above(self, vector: Vectors, threshold: float) -> list[StoredHit]:
        """Return every record, of any shard, whose score reaches the threshold."""
        return self._all(vector, models.Filter(must=[self._marked()]), threshold)

    @private_errors
    def of_units(self, vector: Vectors, values: Sequence[Any]) -> list[StoredHit]:
        """Return every record of some units; values as in the records' metadata."""
        own = self._unit.matching(values)
        if not own:
            return []
        either = models.Filter(must=[self._marked()], should=list(own))
        hits = self._all(vector, either, None)
        # A filter also lets a list through that holds one of them.
        kept = among(values)
        key = self._unit_key
        return [hit for hit in hits if kept(hit.document.metadata.get(key))]

    @private_errors
    def delete(self, value: Any) -> int:
        """Delete a unit's points by a value of the unit key; return how many."""
        own = self._unit.matching([value])
        if not own:
            return 0
        found = self._scroll([self._unit.path], models.Filter(must=list(own)))
        same = among([value])
        ids = [point.id for point in found if same(self._unit.value(point))]
        for some in _pages(ids):
            self._client.delete(self._collection, some, wait=True)
        return len(ids)

    # -- what the client is asked ------------------------------------------------------

    def _collection_info(self) -> models.CollectionInfo:
        return self._client.get_collection(self._collection)

    def _exactly(self) -> dict[str, Any]:
        if self._is_local:
            return {}  # It knows nothing else, and warns.
        full = models.QuantizationSearchParams(ignore=True)
        return {"search_params": models.SearchParams(exact=True, quantization=full)}

    def _ask_each(
        self, vector: Vectors, n: int, mark: str, shards: Sequence[int]
    ) -> dict[Any, list[Any]]:
        requests = [
            models.QueryRequest(
                query=vector[0].tolist(),
                using=self._using,
                filter=_in_shard(mark, shard),
                limit=n,
                with_payload=True,
                params=self._exactly().get("search_params"),
            )
            for shard in shards
        ]
        if not requests:
            return {}
        answers = self._client.query_batch_points(self._collection, requests)
        return {
            shard: answer.points for shard, answer in zip(shards, answers, strict=True)
        }

    def _all(
        self, vector: Vectors, condition: models.Filter, least: float | None
    ) -> list[StoredHit]:
        """Return every point that meets a condition and reaches a score."""
        reached = None if least is None or least <= -1 else least
        while True:
            limit = self._more_than(condition)
            points: Sequence[Any] = self._client.query_points(
                self._collection,
                query=vector[0].tolist(),
                using=self._using,
                query_filter=condition,
                score_threshold=reached,
                limit=limit,
                with_payload=True,
                with_vectors=self._is_local,
                **self._exactly(),
            ).points
            if len(points) < limit:
                break
        if self._is_local:
            points = rescored(points, vector, self._using)
        return [self._hit(point, self._own_mark) for point in points]

    def _more_than(self, condition: models.Filter) -> int:
        """Return a number above that of the points that meet a condition."""
        if self._is_local:
            return EVERYTHING
        found = self._client.count(self._collection, condition, exact=True)
        return found.count + _MORE

    def _scroll(
        self, keys: list[str], condition: models.Filter | None = None
    ) -> Iterator[models.Record]:
        offset: Any = None
        while True:
            points, offset = self._client.scroll(
                self._collection,
                scroll_filter=condition,
                limit=_PAGE,
                offset=offset,
                with_payload=models.PayloadSelectorInclude(include=keys),
            )
            yield from points
            if offset is None:
                return

    def _unmark(self, mark: str, ids: Sequence[Any]) -> None:
        for some in _pages(ids):
            self._client.delete_payload(self._collection, [mark], some)

    # -- payloads ----------------------------------------------------------------------

    @property
    def _own_mark(self) -> str:
        if self._n_shards is None:
            raise InvalidParameterError("assign() units to shards before searching.")
        return _mark(self._n_shards)

    def _marked(self) -> models.FieldCondition:
        return models.FieldCondition(key=self._own_mark, range=models.Range(gte=0))

    def _hit(self, point: Any, mark: str) -> StoredHit:
        payload: dict[str, Any] = point.payload or {}
        content = payload.get(self._content)
        metadata = payload.get(self._metadata)
        document = Document(
            content if isinstance(content, str) else "",
            metadata=dict(metadata) if isinstance(metadata, dict) else {},
            id=str(point.id),
        )
        return StoredHit(document, point.score, payload.get(mark, -1))


def _mark(n_shards: int) -> str:
    return f"langchain_dpicl_shard_{n_shards}"


def _in_shard(mark: str, shard: int) -> models.Filter:
    own = models.FieldCondition(key=mark, match=models.MatchValue(value=shard))
    return models.Filter(must=[own])


def _pages(ids: Sequence[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(ids), _PAGE):
        yield list(ids[start : start + _PAGE])
