"""Where the documents of `RetrievedGroups` are kept.

`EmbeddedRecords` holds them in this process, in the exact index of `shards`. Records in
a LangChain vector store are in `stores.snapshot` and `stores.live`.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups import storage
from langchain_dpicl.groups.columns import ColumnNames, read_embedded
from langchain_dpicl.groups.ingest import (
    Vectors,
    check_document_ids,
    check_embedding,
    embed_documents,
    take_documents,
)
from langchain_dpicl.groups.search import ShardSearch
from langchain_dpicl.groups.shards import ShardIndex
from langchain_dpicl.groups.terms import RetrievalTerms, check_enough_units
from langchain_dpicl.groups.units import check_salt, new_salt, refuse_unknown_unit
from langchain_dpicl.release.flow import Flow


class Records(ABC):
    """Keeps documents, and the index that is searched for a draw.

    Writers take turns; `index` may be read at any time. What it returns stays as it is
    while others write, or, for a live store, shows their writes but never moves a unit
    to another shard.
    """

    @property
    @abstractmethod
    def index(self) -> ShardSearch:
        """The index, for one draw."""

    @property
    @abstractmethod
    def embedding(self) -> Embeddings:
        """The embedding of the stored vectors, for the questions."""

    @property
    def description(self) -> Mapping[str, Any]:
        """The public description of where the records are, for an answer's record."""
        return {}

    @property
    def metadata_keys(self) -> frozenset[str] | None:
        """Every key that any record's metadata has; None if unknown."""
        return None

    @abstractmethod
    def add(
        self,
        documents: Iterable[Document],
        batch_size: int | None = None,
        *,
        progress: bool = False,
    ) -> Flow[int]:
        """Add documents; see `RetrievedGroups.add_documents`."""

    @abstractmethod
    def delete_unit(self, unit_id: str | None) -> int:
        """Delete a unit by its canonical id; None stands for a value that is no id."""

    @abstractmethod
    def refresh(self) -> None:
        """Read the store's contents again; see `RetrievedGroups.refresh`."""

    @property
    def follows(self) -> bool:
        """Whether `refresh` has to come before each draw."""
        return False

    @abstractmethod
    def save(self, path: str | os.PathLike[str], terms: RetrievalTerms) -> None:
        """Write everything to a directory; see `RetrievedGroups.save`."""


class EmbeddedRecords(Records):
    """Documents in this process only."""

    def __init__(
        self,
        unit_key: str,
        embedding: Embeddings,
        index: ShardIndex,
        base: storage.Revision | None = None,
    ) -> None:
        self.unit_key = unit_key
        self._base = base
        self._embedding = embedding
        self._index = index
        self._writing = threading.Lock()
        self._document_ids: set[str] | None = None  # Looked up at the first change.

    @classmethod
    def of(
        cls,
        documents: Iterable[Document],
        embedding: Embeddings,
        terms: RetrievalTerms,
        batch_size: int | None = None,
        *,
        progress: bool = False,
    ) -> Flow[EmbeddedRecords]:
        """Embed documents and index them; see `RetrievedGroups.from_documents`."""
        check_embedding(embedding)
        taken, unit_ids = take_documents(documents, terms.unit_key)
        check_enough_units(len(set(unit_ids)), terms.n_groups)
        vectors = yield from embed_documents(
            embedding, taken, unit_ids, batch_size, progress=progress
        )
        index = ShardIndex.from_vectors(
            vectors, taken, unit_ids, n_shards=terms.n_groups, salt=new_salt()
        )
        return cls(terms.unit_key, embedding, index)

    @classmethod
    def of_columns(
        cls,
        columns: Mapping[str, Any],
        embedding: Embeddings,
        terms: RetrievalTerms,
        names: ColumnNames,
        *,
        salt: bytes | None,
        progress: bool,
    ) -> EmbeddedRecords:
        """Index embedded records; see `RetrievedGroups.from_embeddings`."""
        check_embedding(embedding)
        salt = new_salt() if salt is None else salt
        check_salt(salt)
        found = read_embedded(columns, names, terms, salt=salt, progress=progress)
        index = ShardIndex.from_vectors(
            found.vectors,
            found.documents,
            found.unit_ids,
            n_shards=terms.n_groups,
            salt=salt,
            shared=True,
        )
        return cls(terms.unit_key, embedding, index)

    @property
    def index(self) -> ShardIndex:
        """The index, immutable: a draw that holds it sees one state."""
        return self._index

    @property
    def embedding(self) -> Embeddings:
        """The embedding of documents and questions."""
        return self._embedding

    @property
    def metadata_keys(self) -> frozenset[str]:
        """Every key that any record's metadata has."""
        return self._index.metadata_keys()

    def add(
        self,
        documents: Iterable[Document],
        batch_size: int | None = None,
        *,
        progress: bool = False,
    ) -> Flow[int]:
        """Embed and add documents: all or, if an error is raised, none."""
        self._check_writable()
        taken, unit_ids = take_documents(documents, self.unit_key)
        # Once before the embedding is paid for, once after.
        with self._writing:
            known = self._known_ids()
        check_document_ids(taken, known)
        if taken:
            vectors = yield from embed_documents(
                self._embedding, taken, unit_ids, batch_size, progress=progress
            )
            self._add(vectors, taken, unit_ids)
        return len(taken)

    def delete_unit(self, unit_id: str | None) -> int:
        """Delete a unit by its canonical id."""
        self._check_writable()
        with self._writing:
            index = self._index
            deleted = [] if unit_id is None else index.documents_of(unit_id)
            if unit_id is None or not deleted:
                refuse_unknown_unit(self.unit_key)
            known = self._known_ids()
            self._index = index.without(unit_id)
            self._document_ids = known - {
                document.id for document in deleted if document.id is not None
            }
        return len(deleted)

    def refresh(self) -> None:
        """Do nothing: there is no other writer."""

    def save(self, path: str | os.PathLike[str], terms: RetrievalTerms) -> None:
        """Write documents, vectors, terms and salt to a directory."""
        with self._writing:
            self._base = storage.save(path, terms, self._index, base=self._base)

    def _check_writable(self) -> None:
        """Refuse a change that would not last."""

    def _add(
        self, vectors: Vectors, documents: Sequence[Document], unit_ids: Sequence[str]
    ) -> None:
        with self._writing:
            dimension = self._index.dimension
            if vectors.shape[1] != dimension:
                raise InvalidParameterError(
                    f"The embedding returned vectors of {vectors.shape[1]} numbers, "
                    f"and the index holds vectors of {dimension}. Use the embedding "
                    "that the index was built with."
                )
            known = self._known_ids()
            check_document_ids(documents, known)
            self._index = self._index.with_documents(vectors, documents, unit_ids)
            self._document_ids = known.union(
                document.id for document in documents if document.id is not None
            )

    def _known_ids(self) -> set[str]:
        if self._document_ids is None:
            self._document_ids = self._index.document_ids()
        return self._document_ids


class FollowedRecords(EmbeddedRecords):
    """What a directory holds that others save anew: see `RetrievedGroups.load`.

    Privacy:
        `refresh` runs in the public half of a draw, so before the charge, and a failure
        costs nothing. It puts a whole revision in the place of a whole revision, by one
        assignment; a release reads `index` once. Revisions are of one corpus that
        changes over time, and the account's guarantee holds for all records that a unit
        has in any of them: a release sees one revision, in which the unit has one slot.
        That a revision came, and when, shows in how long a question takes. It is
        public: it says that the operator saved something, not whose records changed.
    """

    def __init__(
        self,
        terms: RetrievalTerms,
        embedding: Embeddings,
        index: ShardIndex,
        base: storage.Revision,
    ) -> None:
        super().__init__(terms.unit_key, embedding, index, base)
        self._terms = terms
        self._base: storage.Revision = base

    @property
    def follows(self) -> bool:
        """Whether `refresh` has to come before each draw: yes."""
        return True

    def refresh(self) -> None:
        """Read the directory again if it holds another revision now."""
        if storage.read_stamp(self._base.path) == self._base.stamp:
            return
        with self._writing:
            now = self._base
            if storage.read_stamp(now.path) == now.stamp:
                return
            terms, index, revision = storage.load(now.path, memory_map=now.memory_map)
            if revision.number <= now.number:
                raise InvalidParameterError(
                    f"An older revision of the groups in {now.path} took the place of "
                    "the one that this process has loaded, and may hold who was "
                    "erased since: no question is asked. Repeat those erasures, then "
                    "start this process anew."
                )
            if terms != self._terms or index.dimension != self._index.dimension:
                raise InvalidParameterError(
                    f"The groups in {now.path} were saved with other parameters or "
                    "another embedding than those that this process has loaded: no "
                    "question is asked. Start it anew."
                )
            self._index, self._base = index, revision

    def save(self, path: str | os.PathLike[str], terms: RetrievalTerms) -> None:
        """Write the current revision to another directory."""
        storage.save(path, terms, self._index, base=self._base)

    def _check_writable(self) -> None:
        raise InvalidParameterError(
            "These groups follow a saved index (follow=True) and are not changed "
            "themselves. Load it without follow, change that, and save it: all that "
            "follow take it over. langchain_dpicl.erase does so for one person."
        )
