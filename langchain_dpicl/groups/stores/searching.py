"""Searching a store that searches by itself: the calls, their checks, the order.

Every document's score comes from the store; the order is made here, by score and then
by the keyed digest of `units.tie_key`, as the embedded index does it. So the groups
are those that the embedded index would find in the same vectors, but for scores so
close that they differ by the store's own rounding alone.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from langchain_dpicl.groups.stores.checking import HitCheck
from langchain_dpicl.groups.units import keyed_slot, keyed_slots, tie_key

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from langchain_core.documents import Document
    from numpy.typing import NDArray

    from langchain_dpicl.groups.filtering import UnitFilter
    from langchain_dpicl.groups.ingest import Vectors
    from langchain_dpicl.groups.sampling import UnitSample
    from langchain_dpicl.groups.stores.checking import Hit
    from langchain_dpicl.groups.stores.contract import ShardStore

# A store asked for scores from s on is asked for a little more, and cut here: what it
# compares with s may be rounded in another way than what it returns.
_MARGIN = 1e-6
_EVERYTHING = -2.0  # Below any cosine, rounding included.
# Others may write between two calls; answers that disagree are asked for again.
_TRIES = 5
_SHORT = "fewer documents than it holds"


class Assignment:
    """Which unit is in which shard: a keyed hash of its id, and of nothing else.

    `values` maps each known unit's canonical id to its spellings in records.
    """

    def __init__(
        self, salt: bytes, n_shards: int, values: Mapping[str, Sequence[Hashable]]
    ) -> None:
        self.salt = salt
        self.n_shards = n_shards
        self.values = values
        slots: list[int] = keyed_slots(salt, list(values), n_shards).tolist()
        self._known = dict(zip(values, slots, strict=True))

    def shard_of(self, unit_id: str) -> int:
        """Return a unit's shard; also that of a unit that others have assigned."""
        known = self._known.get(unit_id)
        if known is None:
            return keyed_slot(self.salt, unit_id, self.n_shards)
        return known

    def by_value(self) -> dict[Hashable, int]:
        """Return the shard for each spelling, as `ShardStore.assign` takes it."""
        return {
            value: self._known[unit_id]
            for unit_id, values in self.values.items()
            for value in values
        }


class StoreSearch:
    """A `ShardStore` that can be drawn from; implements `search.ShardSearch`.

    `exact` is the user's choice for a store with an index; `check` checks everything
    that the store returns.
    """

    def __init__(
        self,
        store: ShardStore,
        assignment: Assignment,
        *,
        name: str,
        unit_key: str,
        exact: bool,
    ) -> None:
        self.store = store
        self.assignment = assignment
        self.exact = exact
        self.check = HitCheck(name, unit_key, assignment.shard_of)

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        return self.store.dimension

    @property
    def n_units(self) -> int:
        """Number of units at the last refresh, private."""
        return len(self.assignment.values)

    @property
    def salt(self) -> bytes:
        """The key that sends units to shards."""
        return self.assignment.salt

    @property
    def can_sample(self) -> bool:
        """Whether the store can search a sample of the units by itself."""
        return self.store.can_sample

    def where(self, only: UnitFilter) -> StoreSearch:
        """Return the search of the units that match, if the store can tell."""
        return self._over(self.store.where(only))

    def top(
        self,
        vector: Vectors,
        n: int,
        threshold: float | None,
        sample: UnitSample | None = None,
    ) -> list[list[Document]]:
        """Return for each shard its n best documents that pass, best first."""
        self.store.refuse_unsound(exact=self.exact)
        if sample is not None:
            return self._over(self.store.sampled(sample)).top(vector, n, threshold)
        # One record more than needed shows whether the cut falls into a tie, in which a
        # store may keep any of them.
        shards = self._best(vector, n + 1)
        least = -1.0 if threshold is None else threshold
        slots = []
        for number, hits in enumerate(shards):
            found = self.ranked(hits)
            if len(found) > n and found[n].score == found[n - 1].score >= least:
                found = self.ranked(self._tied(vector, number, hits))
            passing = [hit.document for hit in found if hit.score >= least]
            slots.append(passing[:n])
        return slots

    def eligible(self, vector: Vectors, threshold: float) -> StoreUnits:
        """Return every unit whose own best document reaches the threshold."""
        self.store.refuse_unsound(exact=self.exact)
        hits = self._above(vector, threshold)
        return StoreUnits(self, hits)

    def ranked(self, hits: Iterable[Hit]) -> list[Hit]:
        """Return hits best first, ties in the order of their digests."""
        best_first = sorted(hits, key=lambda hit: -hit.score)
        if len({hit.score for hit in best_first}) == len(best_first):
            return best_first
        salt = self.assignment.salt
        return sorted(
            best_first, key=lambda hit: (-hit.score, tie_key(salt, hit.document))
        )

    def _over(self, store: ShardStore) -> StoreSearch:
        """Return the same search over a part of the store."""
        same = copy.copy(self)
        same.store = store
        return same

    def _best(self, vector: Vectors, n: int) -> list[list[Hit]]:
        n_shards = self.assignment.n_shards
        returned = self.store.best(vector, n, n_shards)
        shards = self.check.by_shard(returned, n, n_shards)
        if all(len(hits) == n for hits in shards):
            return shards
        # Too few: are there no more, or did the store return too few?
        for _ in range(_TRIES):
            returned, sizes = self.store.best_and_sizes(vector, n, n_shards)
            shards = self.check.by_shard(returned, n, n_shards)
            counted = zip(shards, sizes, strict=True)
            if all(len(hits) >= min(n, size) for hits, size in counted):
                return shards
        return self.check.refuse(_SHORT)

    def _tied(self, vector: Vectors, shard: int, hits: Sequence[Hit]) -> list[Hit]:
        """Return the hits of a shard, and all others that tie with the last of them.

        What was found first stays, also if it has been deleted since: both calls show
        records of this shard alone, so that their union is a function of it.
        """
        last = min(hit.score for hit in hits)
        least = last - _MARGIN if last > -1 else _EVERYTHING
        found = self.check.hits(self.store.of_shard(vector, shard, least))
        if any(hit.shard != shard for hit in found):
            self.check.refuse("a document under another shard than its own")
        both = {hit.id: hit for hit in hits}
        for hit in found:
            if hit.score >= last:
                both.setdefault(hit.id, hit)
        return list(both.values())

    def _above(self, vector: Vectors, threshold: float) -> list[Hit]:
        if threshold > -1:
            hits = self.check.hits(self.store.above(vector, threshold - _MARGIN))
            return [hit for hit in hits if hit.score >= threshold]
        n_shards = self.assignment.n_shards
        for _ in range(_TRIES):
            before = sum(self.store.sizes(n_shards))
            hits = self.check.hits(self.store.above(vector, _EVERYTHING))
            if len(hits) >= min(before, sum(self.store.sizes(n_shards))):
                return hits
        return self.check.refuse(_SHORT)


class StoreUnits:
    """The eligible units of a store; implements `search.EligibleUnits`.

    Privacy:
        A database keeps no snapshot between two calls. `by_shard` is cut out of the
        hits of the one search that said who is eligible. `by_unit` asks once more, for
        the records of the given units alone: a unit's list is a function of its own
        records at that moment, whatever others write meanwhile, and nobody contributes
        who was not found, and asked to pay, before.
    """

    def __init__(self, search: StoreSearch, hits: Sequence[Hit]) -> None:
        self._search = search
        self._hits: dict[str, list[Hit]] = defaultdict(list)
        for hit in hits:
            self._hits[hit.unit_id].append(hit)
        self._ids = list(self._hits)

    @property
    def count(self) -> int:
        """How many units there are. Private."""
        return len(self._ids)

    def unit_ids(self, places: NDArray[np.int64]) -> list[str]:
        """Return the canonical ids of some units, one for each place."""
        return [self._ids[place] for place in places.tolist()]

    def by_shard(self, places: NDArray[np.int64], n: int) -> list[list[Document]]:
        """Return for each shard the n best documents of some units, best first."""
        shards: list[list[Hit]] = [[] for _ in range(self._search.assignment.n_shards)]
        for unit_id in self.unit_ids(places):
            hits = self._hits[unit_id]
            shards[hits[0].shard].extend(hits)
        return [self._best(hits, n) for hits in shards]

    def _best(self, hits: Iterable[Hit], n: int) -> list[Document]:
        return [hit.document for hit in self._search.ranked(hits)[:n]]
