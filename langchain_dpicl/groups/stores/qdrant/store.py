"""Qdrant: one grouped, exact search finds each shard's best records.

A point is marked with its unit's shard, in its payload; see `marks`. Points that
others write have no mark, and are not in the corpus, until `refresh()`; neither are
points without a vector that can be compared.

A server's grouped search is a best effort: it can return fewer points of a shard than
there are. One more call counts them, and shards with too few points are searched once
more, each by itself. What does come back of a group is its best, as candidates are
taken from an exact order.

The local mode is read out instead, see `reader`.

Privacy:
    Every search asks for `exact=True` and the full vectors, whatever index there is or
    comes to be. A collection that may have an HNSW graph or quantized vectors is
    refused all the same unless the user says `exact=True`: whether it is fit to be
    searched must be decided by its configuration, which is public. The number of
    vectors at which the server starts to build its graph depends on the records.

    A mark that another writer made stale is seen when its point is found. To leave only
    that point out would be unsound: it took a place. All stale marks of its shard are
    removed then, and the question is asked again. The answer that is used holds no
    stale point, so it is the one of a corpus without any: taking away points that are
    not among the n best changes no n best. Whether a point is stale is decided by
    itself; that the server was asked twice shows in the time alone. (A point that is
    changed while it is asked about may be found as of its new unit, under the mark of
    the old: the caller refuses it in another shard than its unit's, and in that shard
    it may stay.)

    A server takes vectors that hold NaN. Their scores come before all others, and where
    a threshold is given, instead of all others. So a point's vector is looked at before
    the point is marked, once, which reads every vector when a store is opened for the
    first time. A marked point whose vector is spoiled later is treated as stale when it
    is found, and is looked for before a search with a threshold. (Over REST the client
    can't read such a point at all: every query fails, and nothing is released, until
    the record is written anew.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qdrant_client import models

from langchain_dpicl.errors import InvalidParameterError, UnsoundStoreError
from langchain_dpicl.groups.stores.contract import ShardStore, StoredHit
from langchain_dpicl.groups.stores.qdrant.marks import (
    Mark,
    Marking,
    UnitField,
    among,
    is_cosine,
    pages,
)
from langchain_dpicl.groups.stores.qdrant.reader import (
    QdrantReader,
    cosine_vectors,
    document_of,
    is_local,
    private_errors,
    shared_index,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from langchain_core.embeddings import Embeddings
    from qdrant_client import QdrantClient

    from langchain_dpicl.groups.ingest import Vectors

_MORE = 100  # Points that may be written between counting them and asking for them.
_TRIES = 3
"""Stale marks are removed and the question is asked again; only a writer that keeps
changing points in between can make it stale again."""


def adapter_for(store: Any, unit_key: str) -> QdrantReader | QdrantShards:
    """Return the adapter for a `QdrantVectorStore`: the local mode is read out."""
    if is_local(getattr(store, "client", None)):
        return QdrantReader(store)
    return QdrantShards(store, unit_key)


class QdrantShards(ShardStore):
    """The shards of a `QdrantVectorStore` of langchain-qdrant, on a server.

    It has dense vectors under the distance Cosine; `unit_key` is the metadata key that
    holds the unit id.
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
        self._unit_key = unit_key
        unit = UnitField(store.metadata_payload_key, unit_key)
        self._unit = unit
        self._marking = Marking(self._client, self._collection, self._using, unit)
        self._n_shards: int | None = None
        if is_local(self._client):
            raise UnsoundStoreError(
                "The scores of Qdrant's local mode depend on who else is there, and on "
                "earlier searches: read it out, with QdrantReader."
            )
        params = cosine_vectors(self._collection_info(), self._collection, self._using)
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

        That is one on a server whose configuration lets it build an HNSW graph (`m` and
        `indexing_threshold` are not 0, as is the default) or quantize vectors, or that
        has such a graph already.
        """
        info = self._collection_info()
        params = cosine_vectors(info, self._collection, self._using)
        if exact:
            return
        shared = shared_index(info, params)
        if shared is not None:
            raise UnsoundStoreError(
                f"The collection {self._collection!r} {shared}: an index of all "
                "records at once, so that one person more or less can change which "
                "records of others are found. Pass exact=True: the server is then "
                "asked to compare the question with every vector. Or configure it with "
                "m=0 or indexing_threshold=0 and without quantization."
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
        for point in self._marking.scroll([self._unit.path]):
            value = self._unit.value(point)
            found[type(value), value] = value
        return list(found.values())

    @private_errors
    def assign(self, shard_of: Mapping[Any, int], n_shards: int) -> None:
        """Mark each point with its unit's shard; see `ShardStore.assign`.

        Marks for several numbers of shards live side by side. A point is marked only
        if its vector is finite and not zero.
        """
        # Counting and filtering by it; there is nothing to do if it is there.
        self._client.create_payload_index(
            self._collection, Mark.of(n_shards).shard, models.PayloadSchemaType.INTEGER
        )
        self._marking.assign(Mark.of(n_shards), shard_of)
        self._n_shards = n_shards

    @private_errors
    def sizes(self, n_shards: int) -> list[int]:
        """Return the number of records of each shard, private."""
        key = Mark.of(n_shards).shard
        found = self._client.facet(self._collection, key, limit=n_shards, exact=True)
        sizes = {hit.value: hit.count for hit in found.hits}
        return [sizes.get(number, 0) for number in range(n_shards)]

    @private_errors
    def best(self, vector: Vectors, n: int, n_shards: int) -> list[StoredHit]:
        """Return the n best records of each shard, in any order.

        One grouped search. Only where it returns too few of a shard, their number is
        asked for, and then the shard. Both again, after stale marks were removed, if
        a point is found whose mark is stale.
        """
        mark = Mark.of(n_shards)
        for _ in range(_TRIES):
            groups = self._groups(vector, n, mark, n_shards)
            suspect: set[Any] = set()
            if len(groups) < n_shards or any(len(hits) < n for hits in groups.values()):
                suspect = self._ask_again(vector, n, n_shards, groups)
            points = [point for hits in groups.values() for point in hits]
            suspect |= {
                mark.shard_of(point) for point in self._marking.unfit(points, mark)
            }
            if not suspect - {None}:
                break
            self._marking.remove_unfit(mark, mark.within(suspect - {None}))
        return [self._hit(point, mark) for point in points]

    def _ask_again(
        self, vector: Vectors, n: int, n_shards: int, groups: dict[Any, list[Any]]
    ) -> set[int]:
        """Ask for each shard that came back short; return those that still are."""
        mark = Mark.of(n_shards)
        wanted = [min(n, size) for size in self.sizes(n_shards)]

        def short() -> list[int]:
            found = [len(groups.get(number, ())) for number in range(n_shards)]
            return [i for i in range(n_shards) if found[i] < wanted[i]]

        groups |= self._ask_each(vector, n, mark, short())
        return set(short())

    def _groups(
        self, vector: Vectors, n: int, mark: Mark, n_shards: int
    ) -> dict[Any, list[Any]]:
        found = self._client.query_points_groups(
            self._collection,
            mark.shard,
            query=vector[0].tolist(),
            using=self._using,
            limit=n_shards,
            group_size=n,
            with_payload=True,
            search_params=_exactly(),
        )
        return {group.id: group.hits for group in found.groups}

    @private_errors
    def of_shard(self, vector: Vectors, shard: int, score: float) -> list[StoredHit]:
        """Return all records of one shard with at least a score, in any order."""
        return self._all(vector, self._own_mark.within([shard]), score)

    @private_errors
    def above(self, vector: Vectors, threshold: float) -> list[StoredHit]:
        """Return every record, of any shard, whose score reaches the threshold."""
        return self._all(vector, self._own_mark.anywhere(), threshold)

    @private_errors
    def of_units(self, vector: Vectors, values: Sequence[Any]) -> list[StoredHit]:
        """Return every record of some units; values as in the records' metadata."""
        own = self._unit.matching(values)
        if not own:
            return []
        either = models.Filter(must=self._own_mark.anywhere().must, should=list(own))
        hits = self._all(vector, either, -2)
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
        found = self._marking.scroll([self._unit.path], models.Filter(must=list(own)))
        same = among([value])
        ids = [point.id for point in found if same(self._unit.value(point))]
        for some in pages(ids):
            self._client.delete(self._collection, some, wait=True)
        return len(ids)

    # -- what the client is asked ------------------------------------------------------

    def _collection_info(self) -> models.CollectionInfo:
        return self._client.get_collection(self._collection)

    def _ask_each(
        self, vector: Vectors, n: int, mark: Mark, shards: Sequence[int]
    ) -> dict[Any, list[Any]]:
        requests = [self._request(vector, mark.within([own]), n) for own in shards]
        if not requests:
            return {}
        answers = self._client.query_batch_points(self._collection, requests)
        return {
            shard: answer.points for shard, answer in zip(shards, answers, strict=True)
        }

    def _all(
        self, vector: Vectors, condition: models.Filter, least: float
    ) -> list[StoredHit]:
        """Return every point that meets a condition and reaches a score.

        No limit is in play, so that a stale point takes nobody's place: it is left out
        as it is found.
        """
        mark = self._own_mark
        reached = least if least > -1 else None
        for _ in range(_TRIES):
            count = self._client.count(self._collection, condition, exact=True).count
            # A vector that is not finite comes first, and hides the others.
            first, found = self._client.query_batch_points(
                self._collection,
                [
                    self._request(vector, condition, 1),
                    self._request(vector, condition, count + _MORE, reached),
                ],
            )
            is_missing = reached is None and len(found.points) < count
            if is_missing or not all(is_cosine(point.score) for point in first.points):
                self._marking.remove_unfit(mark, condition)
            elif len(found.points) < count + _MORE:
                unfit = {point.id for point in self._marking.unfit(found.points, mark)}
                self._marking.remove(mark, list(unfit))
                fit = [point for point in found.points if point.id not in unfit]
                return [self._hit(point, mark) for point in fit]
        raise UnsoundStoreError(
            "The Qdrant server did not return all points that it holds; nothing was "
            "released. This can happen while others write to it. Build the groups "
            "again with from_vectorstore()."
        )

    def _request(
        self,
        vector: Vectors,
        condition: models.Filter,
        limit: int,
        least: float | None = None,
    ) -> models.QueryRequest:
        return models.QueryRequest(
            query=vector[0].tolist(),
            using=self._using,
            filter=condition,
            score_threshold=least,
            limit=limit,
            with_payload=True,
            params=_exactly(),
        )

    @property
    def _own_mark(self) -> Mark:
        if self._n_shards is None:
            raise InvalidParameterError("assign() units to shards before searching.")
        return Mark.of(self._n_shards)

    def _hit(self, point: Any, mark: Mark) -> StoredHit:
        shard = mark.shard_of(point)
        document = document_of(point, self._store)
        return StoredHit(document, point.score, -1 if shard is None else shard)


def _exactly() -> models.SearchParams:
    full = models.QuantizationSearchParams(ignore=True)
    return models.SearchParams(exact=True, quantization=full)
