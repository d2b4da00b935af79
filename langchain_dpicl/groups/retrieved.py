"""Groups by retrieval, on an embedded exact index."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from langchain_core.documents import Document

from langchain_dpicl.exceptions import InvalidParameterError, UnitError
from langchain_dpicl.groups import storage
from langchain_dpicl.groups.ingest import (
    aembed_documents,
    check_document_ids,
    check_embedding,
    embed_documents,
    take_documents,
)
from langchain_dpicl.groups.retrieving import RetrievingSource
from langchain_dpicl.groups.shards import ShardIndex
from langchain_dpicl.groups.terms import (
    RetrievalTerms,
    check_enough_units,
    checked,
)
from langchain_dpicl.groups.threshold import NoisyThreshold
from langchain_dpicl.groups.units import new_salt
from langchain_dpicl.mechanisms.source import checked_source
from langchain_dpicl.units import canonical_unit_id

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence

    from langchain_core.embeddings import Embeddings
    from typing_extensions import Self

    from langchain_dpicl.groups.ingest import Vectors
    from langchain_dpicl.groups.terms import Grouping
    from langchain_dpicl.mechanisms.source import SecureRandom


class RetrievedGroups(RetrievingSource):
    """Slots retrieved for a question; one unit touches one slot at most.

    `grouping="shard"`: units are hashed to `n_groups` shards by a keyed hash of their
    id, and each shard is searched alone for its own best `docs_per_group` documents.
    There are always `n_groups` slots, some of which may be empty.

    `grouping="unit"`: every unit whose best document reaches `score_threshold` is one
    slot, of its own best `docs_per_group` documents (also those below the threshold).
    The number of slots varies; `max_groups` keeps a uniformly random subset of the
    eligible units, fresh for each draw.

    Scores are cosines, on their public scale from -1 to 1. Who can't name one gives a
    `NoisyThreshold` as `score_threshold`: the number of units that should be eligible.
    The threshold is then chosen for each question, by a release of its own.

    With a threshold of either kind the groups can charge each eligible unit alone
    (`charges_units`), as per-unit accounts ask for.

    Build it with `from_documents` or `load`. Adding, deleting and drawing may run in
    different threads: a draw sees the records before or after a change.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> notes = [
        ...     Document(f"note {i}", metadata={"patient_id": i % 10})
        ...     for i in range(20)
        ... ]
        >>> groups = RetrievedGroups.from_documents(
        ...     notes,
        ...     DeterministicFakeEmbedding(size=16),
        ...     unit_key="patient_id",
        ...     n_groups=4,
        ...     docs_per_group=2,
        ... )
        >>> groups.relation, len(groups.draw("Which side effect is most common?"))
        (<Relation.REPLACE: 'replace'>, 4)

    Privacy:
        Unit: what one value of `unit_key` names. Relation: derived, see
        `RetrievalTerms.relation`. Nothing is released here; the slots are private.
        The argument needs an embedding that maps a text to a vector by the text
        alone. A server whose vectors depend on the batch that a text came in ties
        units together, by rounding errors.
    """

    def __init__(
        self,
        terms: RetrievalTerms,
        embedding: Embeddings,
        index: ShardIndex,
        random: SecureRandom | None = None,
    ) -> None:
        self._terms = terms
        self._embedding = embedding
        self._index: ShardIndex = index
        self._random = checked(checked_source, random)
        # Writers take turns; readers use whatever index is in place.
        self._writing = threading.Lock()
        self._document_ids = index.document_ids()

    @classmethod
    def from_documents(  # noqa: PLR0913  # the contract's own signature
        cls,
        documents: Iterable[Document],
        embedding: Embeddings,
        *,
        unit_key: str,
        n_groups: int,
        docs_per_group: int = 4,
        score_threshold: float | NoisyThreshold | None = None,
        grouping: Grouping = "shard",
        max_groups: int | None = None,
        progress: bool = False,
        random: SecureRandom | None = None,
    ) -> Self:
        """Embed the documents and build the index.

        Args:
            documents: The records; each must carry its unit's id in its metadata.
            embedding: Any LangChain `Embeddings`.
            unit_key: The metadata key that holds the unit id.
            n_groups: Public slot count: number of shards, and of model calls.
            docs_per_group: Most documents in one slot.
            score_threshold: Least cosine of a document that counts, public; or a
                `NoisyThreshold`, which chooses one for each question.
            grouping: `"shard"` or `"unit"`; see the class docstring.
            max_groups: With `grouping="unit"`, the most slots of one draw.
            progress: Whether to draw a progress bar on standard error.
            random: For tests: a random source instead of the operating system's.
                An insecure one is named so in the repr and the description.

        Returns:
            The group source.

        Raises:
            UnitError: If a document has no usable unit id, or there are no
                documents, or fewer units than groups.
            InvalidParameterError: If another argument, or what the embedding
                returns, cannot be used.
        """
        terms = RetrievalTerms(
            unit_key, n_groups, docs_per_group, score_threshold, grouping, max_groups
        ).check()
        taken, unit_ids = _checked_corpus(terms, embedding, documents)
        vectors = embed_documents(embedding, taken, progress=progress)
        index = ShardIndex.from_vectors(
            vectors, taken, unit_ids, n_shards=terms.n_groups, salt=new_salt()
        )
        return cls(terms, embedding, index, random)

    @classmethod
    async def afrom_documents(  # noqa: PLR0913  # as `from_documents`
        cls,
        documents: Iterable[Document],
        embedding: Embeddings,
        *,
        unit_key: str,
        n_groups: int,
        docs_per_group: int = 4,
        score_threshold: float | NoisyThreshold | None = None,
        grouping: Grouping = "shard",
        max_groups: int | None = None,
        progress: bool = False,
        random: SecureRandom | None = None,
    ) -> Self:
        """Embed the documents and build the index; see `from_documents`."""
        terms = RetrievalTerms(
            unit_key, n_groups, docs_per_group, score_threshold, grouping, max_groups
        ).check()
        taken, unit_ids = _checked_corpus(terms, embedding, documents)
        vectors = await aembed_documents(embedding, taken, progress=progress)
        index = ShardIndex.from_vectors(
            vectors, taken, unit_ids, n_shards=terms.n_groups, salt=new_salt()
        )
        return cls(terms, embedding, index, random)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        embedding: Embeddings,
        *,
        random: SecureRandom | None = None,
    ) -> Self:
        """Read what `save` wrote.

        Args:
            path: The directory.
            embedding: The embedding that the index was built with. It is not called
                here; a vector of another dimension is refused at the first question,
                before anything is charged.
            random: For tests; see `from_documents`.

        Raises:
            InvalidParameterError: If the directory is missing, foreign, damaged or
                does not fit together; the message names the file.
            UnitError: If a stored document has no usable unit id.
        """
        check_embedding(embedding)
        terms, index = storage.load(path)
        return cls(terms, embedding, index, random)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the documents, vectors, parameters and salt to a directory.

        JSON, JSON Lines and a NumPy array, nothing that runs code when read. The
        directory is private records and the secret salt in the clear: it is written
        for the owner alone (mode 0700), beside its place, and renamed when complete.

        Args:
            path: The directory; an earlier save there is replaced, anything else is
                refused.

        Raises:
            InvalidParameterError: If the place is taken, or a document's metadata
                cannot be written as JSON.
        """
        storage.save(path, self._terms, self._index)

    def add_documents(
        self, documents: Iterable[Document], *, progress: bool = False
    ) -> int:
        """Embed and add documents, of new units or of known ones.

        A known unit's documents join its shard; nobody else moves.

        Args:
            documents: The records.
            progress: Whether to draw a progress bar on standard error.

        Returns:
            The number of documents added: all or, if an error is raised, none.

        Raises:
            UnitError: If a document has no usable unit id.
            InvalidParameterError: If a document's id is taken, or the embedding
                returns vectors of another dimension, or none that can be used.
        """
        taken, unit_ids = self._take(documents)
        if taken:
            vectors = embed_documents(self._embedding, taken, progress=progress)
            self._add(vectors, taken, unit_ids)
        return len(taken)

    async def aadd_documents(
        self, documents: Iterable[Document], *, progress: bool = False
    ) -> int:
        """Embed and add documents; the async twin of `add_documents`."""
        taken, unit_ids = self._take(documents)
        if taken:
            vectors = await aembed_documents(self._embedding, taken, progress=progress)
            self._add(vectors, taken, unit_ids)
        return len(taken)

    def delete_unit(self, unit_id: str | int) -> int:
        """Delete all documents of a unit.

        Added again, the unit returns to the same shard.

        Args:
            unit_id: The id, as in the metadata.

        Returns:
            The number of documents deleted, at least 1.

        Raises:
            UnitError: If no document has that id, so that a request for erasure with
                a mistyped id does not pass for done. The id is not in the message.
        """
        known_as = canonical_unit_id(unit_id)
        with self._writing:
            index = self._index
            deleted = [] if known_as is None else index.documents_of(known_as)
            if known_as is None or not deleted:
                raise UnitError(
                    f"No document of this index has that unit id under "
                    f"{self.unit_key!r}; nothing was deleted."
                )
            self._index = index.without(known_as)
            self._document_ids = self._document_ids - {
                document.id for document in deleted if document.id is not None
            }
        return len(deleted)

    @property
    def metadata_keys(self) -> frozenset[str]:
        """Every key that any record's metadata has: for the operator."""
        return frozenset(
            key
            for shard in self._index.shards
            for document in shard.documents
            for key in document.metadata
        )

    def _take(self, documents: Iterable[Document]) -> tuple[list[Document], list[str]]:
        taken, unit_ids = take_documents(documents, self.unit_key)
        # Before the embedding is paid for; once more when it is done.
        check_document_ids(taken, self._document_ids)
        return taken, unit_ids

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
            check_document_ids(documents, self._document_ids)
            self._index = self._index.with_documents(vectors, documents, unit_ids)
            self._document_ids = self._document_ids.union(
                document.id for document in documents if document.id is not None
            )


def _checked_corpus(
    terms: RetrievalTerms, embedding: Embeddings, documents: Iterable[Document]
) -> tuple[list[Document], list[str]]:
    check_embedding(embedding)
    taken, unit_ids = take_documents(documents, terms.unit_key)
    check_enough_units(len(set(unit_ids)), terms.n_groups)
    return taken, unit_ids
