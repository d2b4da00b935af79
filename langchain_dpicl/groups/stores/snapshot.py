"""Records of a store that is read out: a snapshot, searched by the embedded index.

For a store in memory, and for one whose only index is an approximate one of all
records. What is written to the store or deleted from it elsewhere shows after
`refresh`, deletions too.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from langchain_core.documents import Document

from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups import storage
from langchain_dpicl.groups.ingest import (
    check_document_ids,
    have_direction,
    take_documents,
    unit_rows,
)
from langchain_dpicl.groups.shards import ShardIndex
from langchain_dpicl.groups.stores.writing import StoreRecords
from langchain_dpicl.groups.units import new_salt, refuse_unknown_unit

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from langchain_core.embeddings import Embeddings

    from langchain_dpicl.groups.ingest import Vectors
    from langchain_dpicl.groups.stores.contract import VectorReader
    from langchain_dpicl.groups.terms import RetrievalTerms

_BATCH = 1000


class SnapshotRecords(StoreRecords):
    """Records read from a `VectorReader` into a `ShardIndex`."""

    def __init__(
        self,
        reader: VectorReader,
        terms: RetrievalTerms,
        *,
        embedding: Embeddings,
        salt: bytes | None,
        given: Any,
    ) -> None:
        super().__init__(terms, embedding, given, "embedded index")
        self._reader = reader
        empty = np.empty((0, 1), np.float32)
        self._index = ShardIndex.from_vectors(
            empty, [], [], n_shards=terms.n_groups, salt=salt or new_salt()
        )
        self._index = self._read()

    @property
    def index(self) -> ShardIndex:
        """The index of what was read last, immutable."""
        return self._index

    @property
    def metadata_keys(self) -> frozenset[str]:
        """Every key that any record's metadata had when it was read."""
        return self._index.metadata_keys()

    def delete_unit(self, unit_id: str | None) -> int:
        """Delete a unit from the store and from what was read.

        The store is searched for records of the unit that were added later.
        """
        with self._writing:
            found = [] if unit_id is None else self._documents_of(unit_id)
            if unit_id is None or not found:
                refuse_unknown_unit(self._terms.unit_key)
            ids = [document.id for document in found if document.id is not None]
            if len(ids) < len(found):
                raise InvalidParameterError(
                    f"The {self._name} gave a document of that unit without an id, so "
                    "that it cannot be deleted there; nothing was deleted. Delete the "
                    "unit with the store's own methods, then call refresh()."
                )
            self._reader.delete(ids)
            self._index = self._index.without(unit_id)
        return len(found)

    def refresh(self) -> None:
        """Read the store again."""
        with self._writing:
            self._index = self._read()

    def save(self, path: str | os.PathLike[str], terms: RetrievalTerms) -> None:
        """Write what was read last to a directory."""
        storage.save(path, terms, self._index)

    def _take(self, documents: Iterable[Document]) -> tuple[list[Document], list[str]]:
        taken, unit_ids = take_documents(documents, self._terms.unit_key)
        check_document_ids(taken, self._index.document_ids())
        return taken, unit_ids

    def _documents_of(self, unit_id: str) -> list[Document]:
        key = self._terms.unit_key
        return [
            document
            for document in self._reader.everything()
            if canonical_unit_id(document.metadata.get(key)) == unit_id
        ]

    def _read(self) -> ShardIndex:
        found, vectors = read_out(self._reader)
        documents, unit_ids = take_documents(found, self._terms.unit_key)
        salt = self._index.salt
        if not documents:
            # Same dimension as before: the questions have not changed.
            vectors = np.empty((0, self._index.dimension), np.float32)
        return ShardIndex.from_vectors(
            vectors, documents, unit_ids, n_shards=self._terms.n_groups, salt=salt
        )


def read_out(reader: VectorReader) -> tuple[list[Document], Vectors]:
    """Return all documents of a store, and their vectors scaled to norm 1, float32.

    Vectors that are not all of one dimension are an `InvalidParameterError`. One that
    is zero or not finite is left out with its document.
    """
    documents: list[Document] = []
    parts: list[Vectors] = []
    rows = iter(reader.read())
    while batch := list(islice(rows, _BATCH)):
        if not all(_is_pair(row) for row in batch):
            raise InvalidParameterError(
                f"{type(reader).__name__}.read() must yield pairs of a Document and "
                "its vector."
            )
        # A record without a direction is near to no question. To refuse it would let
        # one record stop everybody's refresh, and keep erased records in the index.
        good = have_direction([vector for _, vector in batch])
        batch = [row for row, is_good in zip(batch, good, strict=True) if is_good]
        if not batch:
            continue
        vectors = [vector for _, vector in batch]
        places = range(len(documents), len(documents) + len(batch))
        parts.append(unit_rows(vectors, places))
        documents += [document for document, _ in batch]
    if len({part.shape[1] for part in parts}) > 1:
        raise InvalidParameterError(
            "The store holds vectors of different dimensions: they come from several "
            "embeddings. Keep the records of each embedding in a store of their own."
        )
    return documents, np.concatenate(parts) if parts else np.empty((0, 1), np.float32)


def _is_pair(row: Any) -> bool:
    is_two = isinstance(row, tuple | list) and len(row) == 2  # noqa: PLR2004  # a pair
    return is_two and isinstance(row[0], Document)
