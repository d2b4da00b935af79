"""Checks of what a store returns, before any of it is used.

If a check fails, the whole draw fails. Whether a record can be left out instead depends
on whether it has taken another record's place:

* *A record under another shard than its unit's own*: fail. It took one of that shard's
  n places, so that its unit has changed a second slot already; leaving it out
  afterwards does not bring back the record that it displaced.
* *A record twice*: fail, for the same reason: the second copy took a place.
* *Fewer than n where the shard has more*: fail. Somewhere a limit was applied before
  the filter: what is missing depends on who else is in the store.
* *More than n*: fail. Cutting a longer list would be sound if it held the n best; a
  store that does not keep to n says nothing of which it holds.
* *A score that is not finite, or no cosine*: fail. The order is not known, and neither
  is who passed a threshold.
* *A record without a usable unit id, or without an id of its own*: fail. It belongs to
  no unit that could be protected, or cannot be told from its double.
* *A record below the score asked for*: left out. No limit was in play: whether a record
  counts is a function of itself.

The failure is an `UnsoundStoreError`. It is raised after the charge and names the kind
of fault, never a number, an id or a text. Callers can see that a draw has failed. With
a store that keeps its contract this never happens. With one that does not, a released
answer could reveal any amount, so only the failure is shown. It is not enough that one
slot abstains: the fault shows that slots are not separate.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from numbers import Integral, Real
from typing import Any, NamedTuple, NoReturn

from langchain_core.documents import Document

from langchain_dpicl.common.slots import hidden_repr
from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import UnsoundStoreError
from langchain_dpicl.groups.stores.contract import StoredHit

ROUNDING = 1e-3
"""How far rounding may put a cosine beyond 1: some stores compute in half precision."""


class Hit(NamedTuple):
    """A document that a store found, checked. Private; the repr shows nothing of it."""

    document: Document  # The document.
    id: str  # `Document.id`.
    unit_id: str  # The canonical id of its unit.
    value: Hashable  # The unit id as it stands in the metadata.
    shard: int  # Its shard, from the unit id, which is the one that the store said.
    score: float  # Cosine, from -1 to 1.

    def __repr__(self) -> str:
        return hidden_repr(self)


class HitCheck:
    """Checks what one store returns; messages call it by its name."""

    def __init__(
        self, name: str, unit_key: str, shard_of: Callable[[str], int]
    ) -> None:
        self.name = name
        self.unit_key = unit_key
        self.shard_of = shard_of

    def hits(self, returned: Any) -> list[Hit]:
        """Return what a search returned, each hit checked, and each document once."""
        if not isinstance(returned, list | tuple):
            self.refuse("something else than a list of hits")
        hits = [self._hit(one) for one in returned]
        if len({hit.id for hit in hits}) < len(hits):
            self.refuse("one document twice")
        return hits

    def by_shard(self, returned: Any, n: int, n_shards: int) -> list[list[Hit]]:
        """Return what `ShardStore.best` returned, checked, n at most of each shard."""
        shards: list[list[Hit]] = [[] for _ in range(n_shards)]
        for hit in self.hits(returned):
            shards[hit.shard].append(hit)
        if any(len(hits) > n for hits in shards):
            self.refuse("more documents of a shard than were asked for")
        return shards

    def refuse(self, what: str) -> NoReturn:
        """Fail the draw; `what` is the kind of fault and depends on no record."""
        raise UnsoundStoreError(
            f"{self.name} returned {what}, so that one person may have changed several "
            "groups; nothing was released. If others have written to the store, or "
            "opened it with other n_groups= or salt=, build the groups again with "
            "from_vectorstore(). If it happens again, the store cannot be searched "
            "shard by shard: copy the records with RetrievedGroups.from_documents()."
        )

    def _hit(self, one: Any) -> Hit:
        if not isinstance(one, StoredHit) or not isinstance(one.document, Document):
            self.refuse("something else than a list of hits")
        document: Document
        score: Any
        shard: Any
        document, score, shard = one
        value = document.metadata.get(self.unit_key)
        unit_id = canonical_unit_id(value)
        if unit_id is None:
            self.refuse("a document without a usable unit id")
        if not isinstance(document.id, str) or not document.id:
            self.refuse("a document without an id of its own")
        own = self.shard_of(unit_id)
        # Plain types first: to look at abstract ones takes a microsecond each.
        if not isinstance(shard, (int, Integral)) or int(shard) != own:
            self.refuse("a document under another shard than its own")
        # Any object may refuse to be a number; NaN is in no range.
        cosine = float(score) if isinstance(score, (float, Real)) else math.nan
        if not -1 - ROUNDING <= cosine <= 1 + ROUNDING:
            self.refuse("a score that is no cosine")
        cosine = min(max(cosine, -1.0), 1.0)
        return Hit(document, document.id, unit_id, value, own, cosine)
