"""The records of `RetrievedGroups`: the index in place, and who may change it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups import readers, saved
from langchain_dpicl.groups.base import HoldsRecords
from langchain_dpicl.groups.index import ShardIndex
from langchain_dpicl.groups.ingest import (
    Rows,
    check_document_ids,
    embed_documents,
    take_documents,
)
from langchain_dpicl.groups.terms import RetrievalTerms
from langchain_dpicl.groups.units import refuse_unknown_unit


class Records(HoldsRecords):
    """The records that groups and their filtered views share.

    Writers take turns. `index` may be read at any time: it is immutable, and put in
    place by one assignment, so a draw that has read it sees one state.

    Args:
        terms: The groups' terms.
        embedding: The embedding of the vectors.
        index: The index.
        base: The revision of a saved folder that the index comes from, if it does.
        follows: Whether each question looks first if the folder was saved anew.

    Privacy:
        *Following.* `follow` runs in the public half of a draw, so before the charge,
        and a failure costs nothing. A whole revision takes the place of a whole
        revision; a release reads `index` once. Revisions are of one corpus that changes
        over time, and the account's guarantee holds for all records that a unit has in
        any of them: a release sees one revision, in which the unit has one slot. That a
        revision came, and when, shows in how long a question takes. It is public: it
        says that the operator saved something, not whose records changed.
    """

    def __init__(
        self,
        terms: RetrievalTerms,
        embedding: Embeddings,
        index: ShardIndex,
        *,
        base: saved.Revision | None = None,
        follows: bool = False,
    ) -> None:
        self.terms = terms
        self.embedding = embedding
        self.index = index
        self._base = base
        self._follows = follows
        self._writing = threading.Lock()

    def add(
        self, documents: Iterable[Document], batch_size: int | None, *, progress: bool
    ) -> int:
        """Embed and add documents: all or, if an error is raised, none."""
        self._require_writable()
        taken, unit_ids = take_documents(documents, self.terms.unit_key)
        # Once before the embedding is paid for, once after.
        check_document_ids(taken, self.index.document_ids())
        if not taken:
            return 0
        vectors = embed_documents(
            self.embedding, taken, unit_ids, batch_size, progress=progress
        )
        with self._writing:
            index = self.index
            if vectors.shape[1] != index.dimension:
                raise InvalidParameterError(
                    f"The embedding returned vectors of {vectors.shape[1]} numbers, "
                    f"and the index holds vectors of {index.dimension}. Use the "
                    "embedding that the index was built with."
                )
            check_document_ids(taken, index.document_ids())
            self.index = index.with_documents(vectors, taken, unit_ids, batch_size)
        return len(taken)

    def delete_unit(self, unit_id: str | None) -> int:
        """Delete a unit by its canonical id; None stands for a value that is no id."""
        self._require_writable()
        with self._writing:
            index = self.index
            deleted = 0 if unit_id is None else len(index.documents_of(unit_id))
            if unit_id is None or not deleted:
                refuse_unknown_unit(self.terms.unit_key)
            self.index = index.without(unit_id)
        return deleted

    def refresh(self, store: Any) -> None:
        """Read a store out in place of all records, or look at a followed folder."""
        if store is None:
            if not self._follows:
                raise InvalidParameterError(
                    "refresh() without a store is for groups that follow a saved index "
                    "(load(..., follow=True)). Pass the store to read it out again."
                )
            self.follow()
            return
        self._require_writable()
        documents, vectors = readers.read_out(store)
        rows = rows_of(vectors, documents, self.terms.unit_key)
        with self._writing:
            index = self.index
            if not documents:
                rows = (np.empty((0, index.dimension), np.float32), [], [])
            elif rows[0].shape[1] != index.dimension:
                raise InvalidParameterError(
                    f"The store holds vectors of {rows[0].shape[1]} numbers now, and "
                    f"the index of {index.dimension}: build the groups anew."
                )
            self.index = ShardIndex.of(
                *rows, n_shards=len(index.shards), salt=index.salt
            )

    def follow(self) -> None:
        """Take over what others have saved, where these records follow a folder."""
        base = self._base
        if not self._follows or base is None:
            return
        if saved.read_stamp(base.path) == base.stamp:
            return
        with self._writing:
            base = self._base or base
            if saved.read_stamp(base.path) == base.stamp:
                return
            terms, index, revision = saved.load(base.path, memory_map=base.memory_map)
            if revision.number <= base.number:
                raise InvalidParameterError(
                    f"An older revision of the groups in {base.path} took the place of "
                    "the one that this process has loaded, and may hold who was "
                    "erased since: no question is asked. Repeat those erasures, then "
                    "start this process anew."
                )
            if terms != self.terms or index.dimension != self.index.dimension:
                raise InvalidParameterError(
                    f"The groups in {base.path} were saved with other parameters or "
                    "another embedding than those that this process has loaded: no "
                    "question is asked. Start it anew."
                )
            self.index, self._base = index, revision

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a directory."""
        with self._writing:
            revision = saved.save(path, self.terms, self.index, self._base)
            if not self._follows:
                self._base = replace(revision, memory_map=False)

    def _require_writable(self) -> None:
        """Refuse a change that would not last."""
        if self._follows:
            raise InvalidParameterError(
                "These groups follow a saved index (follow=True) and are not changed "
                "themselves. Load it without follow, change that, and save it: all "
                "that follow take it over. langchain_dpicl.operate.erase does so "
                "for one person."
            )


def rows_of(vectors: Any, documents: Iterable[Document], unit_key: str) -> Rows:
    """Return what was read out of a store as rows of an index."""
    taken, unit_ids = take_documents(documents, unit_key)
    return vectors, taken, unit_ids
