"""The embedded index: one exact FAISS index per shard.

Shards are immutable. Adding and deleting make a new `ShardIndex` that shares the
untouched shards, so that a search running in another thread sees the corpus before
or after, never in between, and needs no lock.

Vectors may be in a mapped file (`shared` rows), and documents lines of one (`lines`).

Scores are inner products of vectors of norm 1, so cosines on a public scale. FAISS
computes a single query's product with each vector on its own, whatever else the
index holds and in whatever order; nothing about a shard's result depends on another
shard. Equal scores are put in the order of a keyed digest of the content.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, pairwise
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import faiss
import numpy as np

from langchain_dpicl.groups.filtering import UnitAttributes, UnitFilter
from langchain_dpicl.groups.flat import FlatIndex
from langchain_dpicl.groups.lines import require_stack, taken
from langchain_dpicl.groups.search import FoundUnits, ShardHits
from langchain_dpicl.groups.units import keyed_slot, keyed_slots, tie_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_core.documents import Document
    from numpy.typing import NDArray

    from langchain_dpicl.groups.ingest import Vectors
    from langchain_dpicl.groups.sampling import UnitSample

_T = TypeVar("_T")
_Rows: TypeAlias = "NDArray[np.int64] | None"
"""The rows of a shard that are searched; None is all rows."""

_MAX_WORKERS = 16
_TASKS_PER_WORKER = 4
_PARALLEL_FROM = 50_000_000
"""Numbers to read (vectors x dimension) from which on threads pay."""


@dataclass(frozen=True, repr=False, eq=False)
class Shard:
    """The documents of the units that hash to one shard, and their exact index."""

    index: FlatIndex  # Row i is the vector of document i.
    documents: Sequence[Document] = ()  # The documents, one a row.
    unit_ids: tuple[str, ...] = ()  # The units of this shard, each once.
    # For each row, the place of its unit in `unit_ids`.
    units: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    # Digests already computed, by row: boilerplate repeats, and ties with itself.
    _tie_keys: dict[int, bytes] = field(default_factory=dict)

    def vectors(self) -> Vectors:
        """Return the vectors, shape (rows, dimension): a view, not to be written."""
        return self.index.rows

    def top(
        self,
        vector: Vectors,
        n: int,
        threshold: float | None,
        salt: bytes,
        only: _Rows = None,
    ) -> list[int]:
        """Return the rows of the n best documents that pass, best first.

        With `only` as if the shard had no other rows.
        """
        total = self.index.ntotal if only is None else len(only)
        if total == 0:
            return []
        # One more than asked for shows whether the cut falls into a tie, where FAISS
        # would keep the rows that came first.
        found = self.index.search(vector, min(n + 1, total), only)
        scores, rows = found[0][0], found[1][0]
        if len(rows) > n and scores[n] == scores[n - 1]:
            below = np.nextafter(scores[n - 1], np.float32(-np.inf))
            scores, rows = self.index.range_search(vector, float(below))
            if only is not None:
                own = np.isin(rows, only)
                scores, rows = scores[own], rows[own]
        if threshold is not None:
            keep = _passes(scores, threshold)
            scores, rows = scores[keep], rows[keep]
        return self.ranked(rows, scores, salt)[:n]

    @cached_property
    def attributes(self) -> UnitAttributes:
        """What the documents of each unit agree on."""
        return UnitAttributes(self.documents, self.units, len(self.unit_ids))

    def hits(self, vector: Vectors, threshold: float, only: _Rows = None) -> ShardHits:
        """Return every document that reaches the threshold, and whose they are.

        With `only` as if the shard had no other rows.
        """
        below = np.nextafter(np.float32(max(threshold, -2.0)), np.float32(-np.inf))
        scores, rows = self.index.range_search(
            vector, -np.inf if threshold <= -1 else float(below)
        )
        keep = _passes(scores, threshold)
        if only is not None:
            keep &= np.isin(rows, only)
        return ShardHits.of(self, rows[keep], scores[keep])

    def ranked(
        self, rows: NDArray[np.int64], scores: NDArray[np.float32], salt: bytes
    ) -> list[int]:
        """Return rows by score, best first, ties in the order of their digests."""
        order = np.argsort(-scores, kind="stable")
        best_first: list[int] = rows[order].tolist()
        values: list[float] = scores[order].tolist()
        if len(set(values)) == len(values):
            return best_first
        pairs = sorted(
            zip(values, best_first, strict=True),
            key=lambda pair: (-pair[0], self._tie_key(pair[1], salt)),
        )
        return [row for _, row in pairs]

    def with_rows(
        self, vectors: Vectors, documents: Sequence[Document], unit_ids: Sequence[str]
    ) -> Shard:
        """Return this shard with more documents."""
        place = {unit_id: number for number, unit_id in enumerate(self.unit_ids)}
        units = [place.setdefault(unit_id, len(place)) for unit_id in unit_ids]
        if self.documents:
            vectors = np.concatenate([self.vectors(), vectors])
            documents = (*self.documents, *documents)
        return Shard(
            index=FlatIndex(vectors),
            documents=documents,
            unit_ids=tuple(place),
            units=np.concatenate([self.units, np.asarray(units, np.int64)]),
        )

    def without(self, unit_id: str) -> Shard:
        """Return this shard without a unit, which may be unknown."""
        if unit_id not in self.unit_ids:
            return self
        gone = self.unit_ids.index(unit_id)
        kept = np.flatnonzero(self.units != gone)
        units = self.units[kept]
        return Shard(
            index=FlatIndex(self.vectors()[kept]),
            documents=taken(self.documents, kept),
            unit_ids=self.unit_ids[:gone] + self.unit_ids[gone + 1 :],
            units=units - (units > gone),
        )

    def documents_of(self, unit_id: str) -> list[Document]:
        """Return a unit's documents; none where the unit is unknown."""
        if unit_id not in self.unit_ids:
            return []
        own = np.flatnonzero(self.units == self.unit_ids.index(unit_id))
        return [self.documents[row] for row in own.tolist()]

    def _tie_key(self, row: int, salt: bytes) -> bytes:
        key = self._tie_keys.get(row)
        if key is None:
            key = self._tie_keys[row] = tie_key(salt, self.documents[row])
        return key


@dataclass(frozen=True, repr=False, eq=False)
class ShardIndex:
    """All shards, and the secret salt that sends a unit to one of them.

    Implements `search.ShardSearch`.
    """

    shards: tuple[Shard, ...]  # The shards; their number is public and never changes.
    salt: bytes  # The secret key of `keyed_slot`.
    dimension: int  # Length of a vector.
    # Whose documents are searched; None: everybody's. It hides no unit from the other
    # methods, which are the operator's.
    only: UnitFilter | None = None

    @classmethod
    def from_vectors(
        cls,
        vectors: Vectors,
        documents: Sequence[Document],
        unit_ids: Sequence[str],
        *,
        n_shards: int,
        salt: bytes,
        shared: bool = False,
    ) -> ShardIndex:
        """Return an index over float32 vectors of norm 1, one a document.

        `shared`: shards whose rows stand one after another use them where they are.
        Nobody may write to them then.
        """
        dimension = int(vectors.shape[1])
        empty = Shard(FlatIndex(np.empty((0, dimension), np.float32)))
        index = cls((empty,) * n_shards, salt, dimension)
        return index.with_documents(vectors, documents, unit_ids, shared=shared)

    def with_documents(
        self,
        vectors: Vectors,
        documents: Sequence[Document],
        unit_ids: Sequence[str],
        *,
        shared: bool = False,
    ) -> ShardIndex:
        """Return this index with more documents; the arguments of `from_vectors`."""
        n_shards = len(self.shards)
        slots = keyed_slots(self.salt, unit_ids, n_shards)
        by_shard = np.argsort(slots, kind="stable")
        edges = np.searchsorted(slots[by_shard], np.arange(n_shards + 1))
        shards = list(self.shards)
        for number, (first, end) in enumerate(pairwise(edges)):
            rows = by_shard[first:end]
            if len(rows):
                # Ascending, so that as many as from the first to the last are all.
                is_one_block = rows[-1] - rows[0] + 1 == len(rows)
                own = slice(rows[0], rows[-1] + 1) if shared and is_one_block else rows
                shards[number] = shards[number].with_rows(
                    vectors[own],
                    taken(documents, rows),
                    [unit_ids[row] for row in rows],
                )
        return replace(self, shards=tuple(shards))

    def where(self, only: UnitFilter) -> ShardIndex:
        """Return this index with its search limited to the units that match."""
        return replace(self, only=only)

    def without(self, unit_id: str) -> ShardIndex:
        """Return this index without a unit, which may be unknown."""
        number = keyed_slot(self.salt, unit_id, len(self.shards))
        shard = self.shards[number].without(unit_id)
        shards = (*self.shards[:number], shard, *self.shards[number + 1 :])
        return replace(self, shards=shards)

    def documents_of(self, unit_id: str) -> list[Document]:
        """Return a unit's documents; none where the unit is unknown."""
        number = keyed_slot(self.salt, unit_id, len(self.shards))
        return self.shards[number].documents_of(unit_id)

    @property
    def n_units(self) -> int:
        """Number of units, private."""
        return sum(len(shard.unit_ids) for shard in self.shards)

    @cached_property
    def unit_starts(self) -> NDArray[np.int64]:
        """How many units are in all shards before each, and in all."""
        counts = [len(shard.unit_ids) for shard in self.shards]
        return np.cumsum([0, *counts], dtype=np.int64)

    @property
    def n_documents(self) -> int:
        """Number of documents, private."""
        return sum(len(shard.documents) for shard in self.shards)

    def document_ids(self) -> set[str]:
        """Return the ids of the documents that have one."""
        return {
            document.id
            for shard in self.shards
            for document in shard.documents
            if document.id is not None
        }

    def metadata_keys(self) -> frozenset[str]:
        """Return every key that any document's metadata has."""
        return frozenset(
            key
            for shard in self.shards
            for document in shard.documents
            for key in document.metadata
        )

    can_sample = True

    def top(
        self,
        vector: Vectors,
        n: int,
        threshold: float | None,
        sample: UnitSample | None = None,
    ) -> list[list[Document]]:
        """Return for each shard its n best documents that pass, best first."""
        rows = self._searched(sample)
        found = self._each(
            lambda shard, only: shard.top(vector, n, threshold, self.salt, only), rows
        )
        return [
            [shard.documents[row] for row in rows]
            for shard, rows in zip(self.shards, found, strict=True)
        ]

    def eligible(self, vector: Vectors, threshold: float) -> FoundUnits:
        """Return every unit whose own best document reaches the threshold."""
        hits = self._each(
            lambda shard, only: shard.hits(vector, threshold, only), self._searched()
        )
        return FoundUnits(hits, self.salt)

    def _searched(self, sample: UnitSample | None = None) -> list[_Rows]:
        """Return for each shard the rows of the units that match and are sampled."""
        require_stack()
        if sample is None and self.only is None:
            return [None] * len(self.shards)
        starts = self.unit_starts
        takes_part = np.full(starts[-1], sample is None)
        if sample is not None:
            takes_part[sample.places(len(takes_part))] = True
        rows: list[_Rows] = []
        for shard, (first, end) in zip(self.shards, pairwise(starts), strict=True):
            own = takes_part[first:end]
            if self.only is not None:
                own = own & shard.attributes.matching(self.only)
            rows.append(np.flatnonzero(own[shard.units]))
        return rows

    def _each(
        self, search: Callable[[Shard, _Rows], _T], rows: Sequence[_Rows]
    ) -> list[_T]:
        searched = list(zip(self.shards, rows, strict=True))
        workers = min(_cores(), len(self.shards), _MAX_WORKERS)
        if workers == 1 or self.n_documents * self.dimension < _PARALLEL_FROM:
            return _search_shards(search, searched)
        # Few large tasks: with one task a shard, the queue would take most of the time.
        size = -(-len(self.shards) // (_TASKS_PER_WORKER * workers))
        tasks = [
            searched[first : first + size] for first in range(0, len(searched), size)
        ]
        # A pool of its own for each draw: threads kept between draws would be dead
        # in a forked worker process.
        with ThreadPoolExecutor(workers) as pool:
            found = pool.map(lambda task: _search_shards(search, task), tasks)
            return list(chain.from_iterable(found))


def _search_shards(
    search: Callable[[Shard, _Rows], _T], shards: Sequence[tuple[Shard, _Rows]]
) -> list[_T]:
    # One FAISS thread: a shard is too small to divide, and on busy cores a hundred
    # waits for a second thread take longer than the search. The setting belongs to the
    # calling thread, so nobody else's search is slowed down.
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        return [search(shard, rows) for shard, rows in shards]
    finally:
        faiss.omp_set_num_threads(threads)


def _passes(scores: NDArray[np.float32], threshold: float) -> NDArray[np.bool_]:
    # Rounding can put a cosine just below -1, which every threshold lets through.
    passes: NDArray[np.bool_] = np.maximum(scores.astype(np.float64), -1.0) >= threshold
    return passes


def _cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1
