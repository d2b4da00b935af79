"""What `RetrievedGroups` needs of an index, wherever the vectors are.

The embedded FAISS index (`shards`) is one implementation; a vector store that searches
by itself (`stores.searching`) is another. The privacy argument depends on the promises
here, so each stands with its method.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from langchain_core.documents import Document
    from numpy.typing import NDArray

    from langchain_dpicl.groups.filtering import UnitFilter
    from langchain_dpicl.groups.ingest import Vectors
    from langchain_dpicl.groups.sampling import UnitSample
    from langchain_dpicl.groups.shards import Shard


class EligibleUnits(Protocol):
    """The units whose own best document reaches a threshold, found by one search.

    A *place* is a unit's number in this finding, below `count`. Places carry no
    meaning and must not be published; their order may follow insertion.

    Privacy:
        Holding a `EligibleUnits` is holding one snapshot: every method answers from
        the records that the search saw, so that nobody contributes to a slot who was
        not found, and asked to pay, before. A store that cannot keep a snapshot must
        answer `by_shard` from the records of the given units alone.
    """

    @property
    def count(self) -> int:
        """How many units there are. Private."""

    def unit_ids(self, places: NDArray[np.int64]) -> list[str]:
        """Return the canonical ids of some units, one for each place."""

    def by_shard(self, places: NDArray[np.int64], n: int) -> list[list[Document]]:
        """Return for each shard the n best documents of some units, best first.

        All of them reach the threshold themselves.

        Privacy:
            As if the units that are not in `places` were not in the corpus: their
            documents take no other document's place and break no tie.
        """


class ShardSearch(Protocol):
    """An index of documents, whose units are hashed to shards.

    Privacy:
        An implementation must search each shard, or hold each unit against the
        threshold, as if nothing else were there: exactly, or by an approximate index
        that was built from that shard alone.
    """

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    @property
    def salt(self) -> bytes:
        """The key that sends units to shards: secret, unless derived from a name."""

    @property
    def n_units(self) -> int:
        """Number of units, private."""

    @property
    def can_sample(self) -> bool:
        """Whether `top` can search a sample of the units."""

    def where(self, only: UnitFilter) -> ShardSearch:
        """Return the search of those units alone that match; `n_units` stays.

        Raises:
            InvalidParameterError: If the index can't be searched for them alone.

        Privacy:
            `top` and `eligible` answer as if no other unit were there. Whether a unit
            matches is a function of its own documents; see `filtering`.
        """

    def top(
        self,
        vector: Vectors,
        n: int,
        threshold: float | None,
        sample: UnitSample | None = None,
    ) -> list[list[Document]]:
        """Return for each shard its n best documents that pass, best first.

        Privacy:
            A shard's list is a function of that shard's documents alone, ties
            included; with a sample, of those of its sampled units alone.
        """

    def eligible(self, vector: Vectors, threshold: float) -> EligibleUnits:
        """Return every unit whose own best document reaches the threshold.

        Privacy:
            Whether a unit is among them is a function of its own documents, the
            question and the threshold, exactly: an approximate search that overlooks
            a unit because of others' vectors would let one unit decide who pays.
            All of them: a unit that finds no room in its slot has been looked at too.
        """


@dataclass(frozen=True, repr=False, eq=False)
class ShardHits:
    """One shard's documents that reach the threshold, and whose they are."""

    shard: Shard  # The shard, immutable.
    rows: NDArray[np.int64]  # Rows of the documents that pass.
    scores: NDArray[np.float32]  # Their scores, as FAISS computed them.
    # The eligible units' places in `shard.unit_ids`, ascending.
    units: NDArray[np.int64]

    @classmethod
    def of(
        cls, shard: Shard, rows: NDArray[np.int64], scores: NDArray[np.float32]
    ) -> ShardHits:
        """Return the hits of a shard, from the rows that pass and their scores."""
        reached = np.zeros(len(shard.unit_ids), bool)
        reached[shard.units[rows]] = True
        return cls(shard, rows, scores, np.flatnonzero(reached))

    def unit_id(self, place: int) -> str:
        """Return the id of the eligible unit at a place."""
        return self.shard.unit_ids[int(self.units[place])]

    def top(self, places: NDArray[np.int64], n: int, salt: bytes) -> list[Document]:
        """Return the n best of the documents that pass and belong to some units."""
        own = self._among(places)[self.shard.units[self.rows]]
        rows, scores = self.rows[own], self.scores[own]
        if len(rows) > n:
            last = np.partition(scores, -n)[-n]
            # All that tie with the last one stay: `ranked` breaks the tie.
            kept = scores >= last
            rows, scores = rows[kept], scores[kept]
        return self._documents(self.shard.ranked(rows, scores, salt)[:n])

    def _among(self, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        among = np.zeros(len(self.shard.unit_ids), bool)
        among[self.units[places]] = True
        return among

    def _documents(self, rows: Sequence[int]) -> list[Document]:
        return [self.shard.documents[row] for row in rows]


@dataclass(frozen=True, repr=False, eq=False)
class FoundUnits:
    """All shards' hits; implements `EligibleUnits`.

    The search over all vectors is done once. What a draw needs after the units have
    paid is cut out of its result. A unit's place counts through the shards, one after
    another.
    """

    hits: Sequence[ShardHits]  # One for each shard.
    salt: bytes  # The index's secret key, which breaks ties.

    @property
    def count(self) -> int:
        """How many units there are. Private."""
        return int(self._starts[-1])

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        counts = [len(hits.units) for hits in self.hits]
        return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])

    def unit_ids(self, places: NDArray[np.int64]) -> list[str]:
        """Return the canonical ids of some units, one for each place."""
        shards = np.searchsorted(self._starts, places, side="right") - 1
        own = places - self._starts[shards]
        return [
            self.hits[shard].unit_id(place)
            for shard, place in zip(shards.tolist(), own.tolist(), strict=True)
        ]

    def by_shard(self, places: NDArray[np.int64], n: int) -> list[list[Document]]:
        """Return for each shard the n best documents of some units, best first."""
        return [
            hits.top(places[chosen] - first, n, self.salt)
            for hits, first, chosen in self._each(places)
        ]

    def _each(
        self, places: NDArray[np.int64]
    ) -> Iterator[tuple[ShardHits, int, NDArray[np.int64]]]:
        # For each shard: the positions in `places` of its units, ascending by place.
        order = np.argsort(places, kind="stable")
        edges = np.searchsorted(places[order], self._starts)
        for hits, start, (first, end) in zip(
            self.hits, self._starts.tolist(), pairwise(edges.tolist()), strict=False
        ):
            yield hits, start, order[first:end]
