"""Records in a store that searches by itself.

**Which shard a unit is in** must be the same for every process that draws from the
store. Without a `salt`, the key of the hash is therefore derived from the store's
identity and the unit key, so that there is nothing to keep.

Privacy:
    *A key that anybody can derive is sound.* Every sensitivity rests on one fact: a
    unit's shard depends on its own id, on the number of shards and on nothing else, so
    that one unit more or less changes one shard. That holds for any function of the
    id, known or not. With a secret key, an outsider who chooses ids of own records
    cannot put them into a chosen person's shard. What the outsider learns of that
    person is bounded by the same epsilon. But a shard full of the outsider's records
    leaves no room for the person's, which makes answers worse. Give `salt=`, and keep
    it, where outsiders can choose ids.

    *The corpus.* The units that were in the store at the last `refresh`, by this
    process or another. A record of a unit that was never assigned is not seen. A known
    unit's record that is written later is seen at once or after the next `refresh`, as
    the store keeps its assignment. None of it depends on other units.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, NoReturn

from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.groups.ingest import take_documents
from langchain_dpicl.groups.stores.searching import Assignment, StoreSearch
from langchain_dpicl.groups.stores.writing import StoreRecords
from langchain_dpicl.groups.units import SALT_BYTES, refuse_unknown_unit

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings

    from langchain_dpicl.groups.stores.contract import ShardStore
    from langchain_dpicl.groups.terms import RetrievalTerms

_KEY = b"dpicl.store"


class LiveRecords(StoreRecords):
    """Records in a `ShardStore`."""

    def __init__(
        self,
        store: ShardStore,
        terms: RetrievalTerms,
        *,
        embedding: Embeddings,
        salt: bytes | None,
        exact: bool,
        given: Any,
    ) -> None:
        super().__init__(terms, embedding, given, "store")
        self._store = store
        self._salt = salt or derived_salt(store.identity, terms.unit_key)
        self._exact = exact
        self._search = self._assigned()

    @property
    def index(self) -> StoreSearch:
        """The search, with the units as they were assigned last."""
        return self._search

    def delete_unit(self, unit_id: str | None) -> int:
        """Delete a unit from the store, under all spellings of its id."""
        with self._writing:
            spellings = [
                value
                for value in self._store.unit_values()
                if unit_id is not None and canonical_unit_id(value) == unit_id
            ]
            deleted = sum(self._store.delete(value) for value in spellings)
            if unit_id is None or not deleted:
                refuse_unknown_unit(self._terms.unit_key)
            known = self._search.assignment.values
            self._search = self._searching(
                {other: known[other] for other in known if other != unit_id}
            )
        return deleted

    def refresh(self) -> None:
        """Find the units in the store, and assign the new ones."""
        with self._writing:
            self._search = self._assigned()

    def save(
        self,
        path: str | os.PathLike[str],  # noqa: ARG002
        terms: RetrievalTerms,  # noqa: ARG002
    ) -> NoReturn:
        """Refuse: the records are in the store."""
        raise InvalidParameterError(
            f"The records are in the {self._name}, which keeps them: there is nothing "
            "to save. Call from_vectorstore() again instead of load()."
        )

    def _take(self, documents: Iterable[Document]) -> tuple[list[Document], list[str]]:
        return take_documents(documents, self._terms.unit_key)

    def _assigned(self) -> StoreSearch:
        self._store.refuse_unsound(exact=self._exact)
        search = self._searching(spellings_of(self._store, self._terms.unit_key))
        assignment = search.assignment
        self._store.assign(assignment.by_value(), assignment.n_shards)
        return search

    def _searching(self, values: Mapping[str, Sequence[Hashable]]) -> StoreSearch:
        return StoreSearch(
            self._store,
            Assignment(self._salt, self._terms.n_groups, values),
            name=self._name,
            unit_key=self._terms.unit_key,
            exact=self._exact,
        )


def derived_salt(identity: str, unit_key: str) -> bytes:
    """Return the key that all processes derive for a store; see the module docstring.

    Example:
        >>> derived_salt("table a", "patient") == derived_salt("table b", "patient")
        False
    """
    named = json.dumps([identity, unit_key]).encode()
    return hashlib.blake2b(named, digest_size=SALT_BYTES, person=_KEY).digest()


def spellings_of(store: ShardStore, unit_key: str) -> dict[str, list[Hashable]]:
    """Return how each unit's id is spelled in a store's records, by canonical id."""
    spellings: dict[str, list[Hashable]] = {}
    for value in store.unit_values():
        unit_id = canonical_unit_id(value)
        if unit_id is None:
            raise UnitError(
                "A record in the store has no usable unit id under the metadata key "
                f"{unit_key!r}. A unit id is a non-empty string or an integer. Name "
                "the key that holds it as unit_key=, or delete the records without "
                "one: a record without an id cannot count as a unit of its own."
            )
        spellings.setdefault(unit_id, []).append(value)
    return spellings
