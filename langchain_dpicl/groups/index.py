"""The embedded index: for each shard one array of vectors, searched exactly.

Shards are immutable. Adding and deleting make a new `ShardIndex` that shares the
untouched shards, so that a search running in another thread sees the corpus before
or after, never in between, and needs no lock. Taking a person out, or putting one in,
makes one shard anew and changes no bit of another.

Privacy:
    *Order.* The rows of a shard stand in the order of (keyed digest of the unit, digest
    of the record), whatever order they came in: a database's order, or a number over
    all rows, is a function of everybody. Equal scores are put in the order of the rows.

    *Bits.* FAISS's exact search is called for one shard at a time, on an array of that
    shard's rows alone. Units that are not sampled or did not pay, and records that do
    not match a filter, are left out of the array before it is scored. They are not
    masked in it: a mask could leave traces in places and roundings.

    *Eligibility.* Whether a record reaches a threshold is decided by its exact cosine.
    FAISS's float32 score decides only where its rounding error can't matter. Products
    of float32 numbers are exact in float64, and `math.fsum` adds them exactly.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import faiss
import numpy as np
from langchain_core.documents import Document
from numpy.typing import NDArray

from langchain_dpicl.groups.base import HoldsRecords, RetrievalTerms
from langchain_dpicl.groups.filtering import RecordFilter, spelled
from langchain_dpicl.groups.records import (
    Lines,
    Rows,
    Vectors,
    no_rows,
    record_digest,
    require_stack,
)
from langchain_dpicl.groups.units import shard_number, unit_digest

T = TypeVar("T")

_FIRST_LOOK = 64
"""How many best records of a shard are looked at first for a threshold."""


@dataclass(frozen=True, eq=False)
class PreparedQuestion:
    """What `RetrievedGroups.prepare` makes of a question. Public throughout."""

    vector: Vectors  # Of norm 1, float32, shape (1, dimension).
    terms: RetrievalTerms
    only: RecordFilter | None = None  # Which records are looked at; None: all.


@dataclass(frozen=True, repr=False, eq=False)
class Shard(HoldsRecords):
    """The records of the units that hash to one shard, in their canonical order.

    Attributes:
        vectors: One row a document, norm 1, contiguous, never written to.
        lines: The documents, one a row.
        unit_ids: The units, each once, in the order of their digests.
        starts: Where each unit's rows start, and the number of rows at the end.
    """

    vectors: Vectors
    lines: Lines
    unit_ids: tuple[str, ...]
    starts: NDArray[np.int64]
    # For a metadata key that was asked for: each row's value.
    _values: dict[str, list[str | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Rows, salt: bytes, places: Sequence[int]) -> Shard:
        """Return the shard of some of the rows, whatever order they are in."""
        ids, lines = rows.unit_ids, rows.lines
        digests = {unit: unit_digest(salt, unit) for unit in {ids[i] for i in places}}
        keys = {i: (digests[ids[i]], record_digest(lines[i])) for i in places}
        rows = rows.take(np.asarray(sorted(places, key=keys.__getitem__), np.int64))
        counts = dict.fromkeys(rows.unit_ids, 0)
        for unit in rows.unit_ids:
            counts[unit] += 1
        starts = np.cumsum([0, *counts.values()], dtype=np.int64)
        # A mapped array's own class slows down every look into it.
        vectors = rows.vectors.view(np.ndarray)
        return cls(vectors, rows.lines, tuple(counts), starts)

    @cached_property
    def document_ids(self) -> frozenset[str | None]:
        """The ids of the documents."""
        return frozenset(document.id for document in self.lines.documents())

    @cached_property
    def metadata_keys(self) -> frozenset[str]:
        """Every key that any document's metadata has."""
        return frozenset(
            key for document in self.lines.documents() for key in document.metadata
        )

    @property
    def rows(self) -> Rows:
        """The records."""
        each = np.repeat(np.asarray(self.unit_ids, object), np.diff(self.starts))
        return Rows(self.vectors, self.lines, each.tolist())

    def rows_of(self, units: Collection[str]) -> NDArray[np.bool_]:
        """Return which rows belong to some units."""
        given = np.fromiter((unit in units for unit in self.unit_ids), bool)
        return np.repeat(given, np.diff(self.starts))

    def part(self, units: Collection[str]) -> Shard:
        """Return this shard with some of its units only, in the same order."""
        kept = np.flatnonzero(self.rows_of(units))
        places = [i for i, unit in enumerate(self.unit_ids) if unit in units]
        return Shard(
            self.vectors[kept],
            self.lines.take(kept),
            tuple(self.unit_ids[place] for place in places),
            np.cumsum([0, *np.diff(self.starts)[places]], dtype=np.int64),
        )

    def eligible(self, question: PreparedQuestion) -> list[str]:
        """Return the units with a record that matches and reaches the threshold."""
        rows = self._searched(question.only, None)
        threshold = question.terms.score_threshold
        if threshold is not None:
            vectors = self.vectors if rows is None else self.vectors[rows]
            floor = threshold - _margin(vectors)
            scores, found = _nearest(
                vectors, question.vector, _FIRST_LOOK, lambda scores: scores[-1] < floor
            )
            found = found[_reach(vectors[found], question.vector, scores, threshold)]
            rows = found if rows is None else rows[found]
        if rows is None:
            return list(self.unit_ids)
        units = np.unique(np.searchsorted(self.starts, rows, side="right") - 1)
        return [self.unit_ids[unit] for unit in units.tolist()]

    def best(
        self, question: PreparedQuestion, units: Collection[str] | None
    ) -> list[Document]:
        """Return the best records of some units (None: all) that match and pass."""
        n, threshold = question.terms.docs_per_group, question.terms.score_threshold
        rows = self._searched(question.only, units)
        vectors = self.vectors if rows is None else self.vectors[rows]
        # One more than asked for shows whether the cut falls into a tie.
        scores, found = _nearest(
            vectors, question.vector, n + 1, lambda scores: scores[-1] < scores[n - 1]
        )
        scores, found = scores[:n], found[:n]
        if threshold is not None:
            found = found[_reach(vectors[found], question.vector, scores, threshold)]
        chosen = found if rows is None else rows[found]
        return [self.lines.document(row) for row in chosen.tolist()]

    def _searched(
        self, only: RecordFilter | None, units: Collection[str] | None
    ) -> NDArray[np.int64] | None:
        """Return the rows that match, of some units; None is all rows."""
        if only is None and units is None:
            return None
        rows = np.ones(len(self.lines), bool)
        if units is not None:
            rows &= self.rows_of(units)
        # As `RecordFilter.matches` says of each.
        for key, allowed in () if only is None else only.allowed:
            if key not in self._values:
                documents = self.lines.documents()
                read = (spelled(document.metadata.get(key)) for document in documents)
                self._values[key] = [value and sys.intern(value) for value in read]
            values = frozenset(allowed)
            rows &= np.fromiter((each in values for each in self._values[key]), bool)
        return np.flatnonzero(rows)


@dataclass(frozen=True, repr=False, eq=False)
class ShardIndex(HoldsRecords):
    """All shards, and how a question is searched in them.

    Attributes:
        shards: The shards; their number is public and never changes.
        salt: The secret key that sends a unit to a shard.
        dimension: Length of a vector.
        batch_size: Most records of different units that shared a call of the embedding
            when one of them was embedded; None: no units did. Public.
    """

    shards: tuple[Shard, ...]
    salt: bytes
    dimension: int
    batch_size: int | None = None

    @classmethod
    def of(
        cls, rows: Rows, *, n_shards: int, salt: bytes, batch_size: int | None = None
    ) -> ShardIndex:
        """Return an index over records."""
        dimension = int(rows.vectors.shape[1])
        empty = Shard.of(no_rows(dimension), salt, ())
        return cls((empty,) * n_shards, salt, dimension).with_rows(rows, batch_size)

    def with_rows(self, more: Rows, batch_size: int | None = None) -> ShardIndex:
        """Return this index with more records, in whatever order they are."""
        numbers = {unit: self._shard_of(unit) for unit in dict.fromkeys(more.unit_ids)}
        by_shard: dict[int, list[int]] = {}
        for row, unit in enumerate(more.unit_ids):
            by_shard.setdefault(numbers[unit], []).append(row)
        shards = list(self.shards)
        for number, places in by_shard.items():
            if not shards[number].unit_ids:
                shards[number] = Shard.of(more, self.salt, places)
                continue
            new = more.take(np.asarray(places, np.int64))
            rows = shards[number].rows.joined(new)
            shards[number] = Shard.of(rows, self.salt, range(len(rows.unit_ids)))
        size = max(self.batch_size or 1, int(batch_size or 1))
        return replace(
            self, shards=tuple(shards), batch_size=size if size > 1 else None
        )

    def without(self, unit_id: str) -> ShardIndex:
        """Return this index without a unit, which may be unknown."""
        number = self._shard_of(unit_id)
        kept = {unit for unit in self.shards[number].unit_ids if unit != unit_id}
        if len(kept) == len(self.shards[number].unit_ids):
            return self
        shards = list(self.shards)
        shards[number] = shards[number].part(kept)
        return replace(self, shards=tuple(shards))

    def part(self, units: Collection[str]) -> ShardIndex:
        """Return this index with some of its units only."""
        return replace(self, shards=tuple(shard.part(units) for shard in self.shards))

    def rows_of(self, unit_id: str) -> Rows:
        """Return a unit's records; none where the unit is unknown."""
        return self.shards[self._shard_of(unit_id)].part({unit_id}).rows

    @property
    def n_documents(self) -> int:
        """Number of documents, private."""
        return sum(len(shard.lines) for shard in self.shards)

    def unit_ids(self) -> list[str]:
        """Return every unit's canonical id, shard by shard."""
        return [unit for shard in self.shards for unit in shard.unit_ids]

    def document_ids(self) -> frozenset[str | None]:
        """Return the ids of the documents."""
        return frozenset().union(*(shard.document_ids for shard in self.shards))

    def metadata_keys(self) -> frozenset[str]:
        """Return every key that any document's metadata has."""
        return frozenset().union(*(shard.metadata_keys for shard in self.shards))

    def units(self, question: PreparedQuestion) -> list[str]:
        """Return every eligible unit: with a record that matches and passes.

        Privacy:
            Whether a unit is eligible is a function of its own matching records, the
            question and the threshold, exactly: an asker can put a threshold on the
            edge. All of them are here: a unit that finds no room in its slot was looked
            at, too.
        """
        found = self._each(lambda shard: shard.eligible(question))
        return [unit for units in found for unit in units]

    def search(
        self, question: PreparedQuestion, units: Collection[str] | None = None
    ) -> list[list[Document]]:
        """Return for each shard its best records, best first.

        They belong to the given units (None: to any), match the filter, reach the
        threshold, and are `docs_per_group` at most.

        Privacy:
            The list of a shard is a function of the matching records of the given units
            of that shard, the question and public parameters, to the bit.
        """
        given = None if units is None else frozenset(units)
        return self._each(lambda shard: shard.best(question, given))

    def _each(self, search: Callable[[Shard], list[T]]) -> list[list[T]]:
        require_stack()
        # One thread of FAISS's own: a shard is too small to divide. The setting belongs
        # to the calling thread, so nobody else's search is slowed down.
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        try:
            return [search(shard) for shard in self.shards]
        finally:
            faiss.omp_set_num_threads(threads)

    def _shard_of(self, unit_id: str) -> int:
        return shard_number(unit_digest(self.salt, unit_id), len(self.shards))


def _nearest(
    vectors: Vectors,
    vector: Vectors,
    first: int,
    is_enough: Callable[[NDArray[np.float32]], bool],
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return scores and rows of the best, best first, equal scores by row.

    As many as `is_enough`, which looks at their scores; `first` are tried first.
    """
    k, total = 0, len(vectors)
    scores, rows = np.empty(0, np.float32), np.empty(0, np.int64)
    while k < total and (k == 0 or not is_enough(scores)):
        k = min(4 * k or first, total)
        found = faiss.knn(vector, vectors, k, metric=faiss.METRIC_INNER_PRODUCT)
        scores, rows = found[0][0], found[1][0]
    # FAISS keeps any of the rows that tie with the last one.
    order = np.lexsort((rows, -scores))
    return scores[order], rows[order]


def _reach(
    vectors: Vectors, vector: Vectors, scores: NDArray[np.float32], threshold: float
) -> NDArray[np.bool_]:
    """Return which vectors' exact cosines reach a threshold, given FAISS's scores."""
    away = scores.astype(np.float64) - threshold
    reach: NDArray[np.bool_] = away > 0
    for row in np.flatnonzero(np.abs(away) <= _margin(vectors)).tolist():
        products = vectors[row].astype(np.float64) * vector[0].astype(np.float64)
        # Rounding of the vectors can put a cosine just below -1, which every threshold
        # lets through.
        reach[row] = max(math.fsum(products.tolist()), -1.0) >= threshold
    return reach


def _margin(vectors: Vectors) -> float:
    """Return more than the rounding error of a float32 score.

    A sum of d products of float32 numbers, in whatever order, is off by at most
    d * 2^-24 times the sum of their sizes (but for terms in 2^-48), which is 1 at most
    for vectors of norm 1.
    """
    return float(vectors.shape[1]) * 2.0**-23
