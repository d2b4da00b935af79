"""Groups by retrieval, on an embedded exact index or a vector store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore
from typing_extensions import Self

from langchain_dpicl.common.hidden import hiding_in
from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.groups import storage
from langchain_dpicl.groups.columns import ColumnNames
from langchain_dpicl.groups.drawing import PreparedQuestion, RetrievingSource
from langchain_dpicl.groups.filtering import UnitFilter
from langchain_dpicl.groups.ingest import check_embedding
from langchain_dpicl.groups.records import (
    EmbeddedRecords,
    FollowedRecords,
    Records,
)
from langchain_dpicl.groups.sampling import rate_for
from langchain_dpicl.groups.search import ShardSearch
from langchain_dpicl.groups.stores.contract import ShardStore, VectorReader
from langchain_dpicl.groups.stores.opening import open_records
from langchain_dpicl.groups.terms import RetrievalTerms
from langchain_dpicl.mechanisms.random import SecureRandom, checked_source
from langchain_dpicl.release.flow import Do, Flow, aresult, result


@hiding_in("documents", "embeddings", "vectorstore", "delete_unit", "refresh", "load")
class RetrievedGroups(RetrievingSource):
    """Slots retrieved for a question; one unit changes one slot at most.

    Units are hashed to `n_groups` shards by a keyed hash of their id, and each shard is
    searched alone for its own best `docs_per_group` documents. There are always
    `n_groups` slots, some of which may be empty.

    Scores are cosines, on their public scale from -1 to 1. With a `score_threshold` the
    groups can charge each eligible unit alone (`charges_units`), as per-unit accounts
    need.

    With a `sampling_rate` below 1, a fresh secret sample of the units is drawn for each
    question, and the search sees only that sample. An answer then costs less of the
    budget. For topics of many people this is worth more than the records left out.
    `rate_for` computes a rate.

    Build it with `from_documents`, `from_embeddings`, `from_vectorstore` or `load`.
    Adding, deleting and drawing may run in different threads: a draw sees the records
    before or after a change.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_core.embeddings import DeterministicFakeEmbedding
        >>> notes = [Document(f"note {i}", metadata={"id": i % 10}) for i in range(20)]
        >>> groups = RetrievedGroups.from_documents(
        ...     notes, DeterministicFakeEmbedding(size=16), unit_key="id", n_groups=4
        ... )
        >>> groups.relation, len(groups.draw("Which side effect is most common?"))
        (<Relation.REPLACE: 'replace'>, 4)

    Privacy:
        Unit: what one value of `unit_key` names. Relation: derived, see
        `RetrievalTerms.relation`. Nothing is released here; the slots are private.
        A vector must be a function of its own unit's texts, so a call of the embedding
        holds texts of one unit (`embedding_batch_size`); what a server does with its
        requests stays an assumption. With a `sampling_rate` the event is the
        mechanism's own on a sample; see `groups.sampling`.
    """

    def __init__(
        self,
        terms: RetrievalTerms,
        records: Records,
        random: SecureRandom | None = None,
        only: UnitFilter | None = None,
    ) -> None:
        self._terms = terms
        self._records = records
        self._random = checked_source(random)
        self._only = only

    @property
    def _embedding(self) -> Embeddings:
        return self._records.embedding

    @property
    def _index(self) -> ShardSearch:
        index = self._records.index
        return index if self._only is None else index.where(self._only)

    @classmethod
    def from_documents(  # noqa: PLR0913  # the contract's own signature
        cls,
        documents: Iterable[Document],
        embedding: Embeddings,
        *,
        unit_key: str,
        n_groups: int,
        docs_per_group: int = 4,
        score_threshold: float | None = None,
        sampling_rate: float = 1.0,
        embedding_batch_size: int | None = None,
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
            score_threshold: Least cosine of a document that counts, public.
            sampling_rate: Probability with which a unit is searched at all. It is
                public; who is in the sample is secret, and drawn afresh for each
                question. Below 1 an answer costs less; `rate_for` computes a rate.
            embedding_batch_size: How many documents share a call of the embedding,
                whatever their units; None: those of one unit. A number is sound only
                where the other texts of a call change no bit of a text's vector; see
                `docs/guides/models.md`.
            progress: Whether to draw a progress bar on standard error.
            random: For tests: a random source instead of the operating system's.
                An insecure one is named so in the repr and the description.

        Returns:
            The group source.

        Raises:
            UnitError: If a document has no usable unit id, or there are no
                documents, or fewer units than groups.
            InvalidParameterError: If another argument, or a vector, cannot be used.
        """
        terms = RetrievalTerms(
            unit_key,
            n_groups,
            docs_per_group,
            score_threshold,
            sampling_rate,
        ).check()
        steps = EmbeddedRecords.of(
            documents, embedding, terms, embedding_batch_size, progress=progress
        )
        return cls(terms, result(steps), random)

    @classmethod
    def from_embeddings(  # noqa: PLR0913  # as `from_documents`
        cls,
        columns: Mapping[str, Any],
        embedding: Embeddings,
        *,
        unit_key: str,
        n_groups: int,
        docs_per_group: int = 4,
        score_threshold: float | None = None,
        sampling_rate: float = 1.0,
        text_column: str = "text",
        vector_column: str = "embedding",
        id_column: str | None = None,
        metadata_columns: Sequence[str] | None = None,
        salt: bytes | None = None,
        progress: bool = False,
        random: SecureRandom | None = None,
    ) -> Self:
        """Build the index from vectors that exist already, for millions of records.

        Args:
            columns: A mapping of column names to arrays (a `np.memmap`, too) or lists
                of one length.
            embedding: What the vectors were made with; here only for the questions.
            unit_key: The column that holds the unit id; see `from_documents`.
            n_groups: See `from_documents`, as the parameters that follow.
            docs_per_group: Most documents in one slot.
            score_threshold: Least cosine of a document that counts.
            sampling_rate: Probability with which a unit is searched at all.
            text_column: The column of texts.
            vector_column: The column of vectors, shape (rows, dimension), any numbers.
            id_column: The column of document ids, if there is one.
            metadata_columns: Further columns for the documents' metadata; None: all.
            salt: 32 secret bytes, the key that sends units to shards (`shard_of`);
                None: new random ones.
            progress: Whether to draw a progress bar on standard error.
            random: For tests; see `from_documents`.

        Returns:
            The group source. A deleted unit is found no more, but its bytes stay where
            the vectors are until the groups are saved and loaded again.

        Raises:
            UnitError: If a row has no usable unit id, or there are fewer units than
                groups.
            InvalidParameterError: If a vector is zero, not finite or of another
                dimension, a column is missing, or another argument cannot be used.

        Example:
            >>> import numpy as np
            >>> from langchain_core.embeddings import DeterministicFakeEmbedding
            >>> columns = {
            ...     "text": [f"note {i}" for i in range(20)],
            ...     "embedding": np.random.default_rng(0).normal(size=(20, 16)),
            ...     "patient": [i % 10 for i in range(20)],
            ... }
            >>> groups = RetrievedGroups.from_embeddings(
            ...     columns,
            ...     DeterministicFakeEmbedding(size=16),
            ...     unit_key="patient",
            ...     n_groups=4,
            ... )
            >>> len(groups.draw("Which side effect is most common?"))
            4

        Privacy:
            A vector must be a function of its own unit's texts: embed each text, or
            each unit's, in a call of its own, or with a model that computes texts of
            one call apart. A row is read by itself; see `groups.columns`.
        """
        terms = RetrievalTerms(
            unit_key,
            n_groups,
            docs_per_group,
            score_threshold,
            sampling_rate,
        ).check()
        metadata = None if metadata_columns is None else tuple(metadata_columns)
        records = EmbeddedRecords.of_columns(
            columns,
            embedding,
            terms,
            ColumnNames(unit_key, text_column, vector_column, id_column, metadata),
            salt=salt,
            progress=progress,
        )
        return cls(terms, records, random)

    @classmethod
    def from_vectorstore(  # noqa: PLR0913  # the contract's own signature
        cls,
        store: VectorStore | ShardStore | VectorReader,
        *,
        unit_key: str,
        n_groups: int,
        docs_per_group: int = 4,
        score_threshold: float | None = None,
        sampling_rate: float = 1.0,
        embedding: Embeddings | None = None,
        salt: bytes | None = None,
        exact: bool = False,
        random: SecureRandom | None = None,
    ) -> Self:
        """Draw from the records of an existing LangChain vector store.

        `PGVectorStore` (with the unit id in a column of its own) searches by itself,
        every shard exactly. LangChain's in-memory store, `Chroma` and Qdrant are read
        out here, and the embedded exact index searches: what others write to them
        later, deletions too, shows after `refresh`. For any other store, write a
        `ShardStore` or a `VectorReader` (`langchain_dpicl.groups.stores`).

        Args:
            store: The store, or an adapter of your own.
            unit_key: The metadata key that holds the unit id.
            n_groups: Public slot count: number of shards, and of model calls.
            docs_per_group: Most documents in one slot.
            score_threshold: See `from_documents`.
            sampling_rate: See `from_documents`. An adapter that searches by itself and
                has no `sampled` needs a `score_threshold`, too.
            embedding: The embedding of the stored vectors; None: the store's own.
            salt: 32 secret bytes, the key that sends units to shards. None: new random
                ones for a store that is read out; bytes derived from the store's name
                for one that searches by itself, so that all processes agree. Give your
                own where outsiders can choose unit ids, and must not choose who shares
                a shard; see `stores.live`.
            exact: Search exactly, past an approximate index of all records, if the
                store can; without `exact` a store with such an index is refused.
            random: For tests; see `from_documents`.

        Returns:
            The group source.

        Raises:
            UnsoundStoreError: If the store's index ties units together.
            UnitError: If a record has no usable unit id, or there are fewer units
                than groups.
            InvalidParameterError: If another argument cannot be used, there is no
                adapter for the store, or it holds vectors that cannot be compared.

        Example:
            >>> from langchain_core.embeddings import DeterministicFakeEmbedding
            >>> from langchain_core.vectorstores import InMemoryVectorStore
            >>> store = InMemoryVectorStore(DeterministicFakeEmbedding(size=16))
            >>> _ = store.add_texts(["a note"] * 9, [{"patient": i} for i in range(9)])
            >>> groups = RetrievedGroups.from_vectorstore(
            ...     store, unit_key="patient", n_groups=3
            ... )
            >>> groups.description["searched_by"], len(groups.draw("Any news?"))
            ('embedded index', 3)

        Privacy:
            What a store returns is checked before it is used: see `stores.checking`.
        """
        terms = RetrievalTerms(
            unit_key,
            n_groups,
            docs_per_group,
            score_threshold,
            sampling_rate,
        ).check()
        records = open_records(
            store, terms, embedding=embedding, salt=salt, exact=exact
        )
        return cls(terms, records, random)

    @staticmethod
    def rate_for(
        people_per_question: float, n_groups: int, people_per_group: float = 2
    ) -> float:
        """Return the sampling rate at which groups hold a few people each, on average.

        It is n_groups * people_per_group / people_per_question, and 1 at most. It is
        published: `people_per_question` must be a *public* guess of how many people
        have something to say on a question, not a count. Aim at two people a group or
        more: with one, every third group is empty by chance.

        Raises:
            InvalidParameterError: If an argument is out of range.

        Example:
            >>> RetrievedGroups.rate_for(1600, n_groups=100)
            0.125
        """
        return rate_for(people_per_question, n_groups, people_per_group)

    def where(self, filter: Mapping[str, Any] | UnitFilter) -> Self:  # noqa: A002  # what LangChain's stores call it
        """Return these groups for only the units that match; see `GroupSource.where`.

        Both share the records: what is added, deleted or saved through one of them is
        so for both, whether it matches or not.

        Raises:
            InvalidParameterError: If the filter can't be used, or the records are in a
                store that searches by itself and can't leave units out.

        Example:
            >>> from langchain_core.documents import Document
            >>> from langchain_core.embeddings import DeterministicFakeEmbedding
            >>> notes = [
            ...     Document("a note", metadata={"id": i, "ward": i % 2})
            ...     for i in range(20)
            ... ]
            >>> groups = RetrievedGroups.from_documents(
            ...     notes,
            ...     DeterministicFakeEmbedding(size=16),
            ...     unit_key="id",
            ...     n_groups=2,
            ... )
            >>> drawn = groups.where({"ward": 1}).draw("Any news?")
            >>> {note.metadata["ward"] for slot in drawn for note in slot}
            {1}
        """
        only = self._narrowed(filter)
        self._records.index.where(only)
        return type(self)(self._terms, self._records, self._random, only)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        embedding: Embeddings,
        *,
        follow: bool = False,
        memory_map: bool = False,
        random: SecureRandom | None = None,
    ) -> Self:
        """Read the directory that `save` wrote.

        Args:
            path: The directory.
            embedding: What the index was built with. It is not called here; a vector
                of another dimension is refused at the first question, before any
                charge.
            follow: Whether each question looks first if the directory was saved anew
                (an erasure, a fresh salt, more records), and reads it again if so.
                Groups that follow are not changed or saved in place themselves.
            memory_map: Whether vectors and texts stay on the disk, and are read where
                a search needs them; processes then share them. A
                later save deletes the files; the system frees their place when nobody
                has them mapped, so let processes that map them `follow`.
            random: For tests; see `from_documents`.

        Returns:
            The group source.

        Raises:
            InvalidParameterError: If the directory is missing, foreign, damaged,
                or does not fit together; the message names the file.
            UnitError: If a stored document has no usable unit id.

        Privacy:
            With `follow` a question reads the directory before it is charged, and a
            release sees one revision; see `groups.records.FollowedRecords`.
        """
        check_embedding(embedding)
        terms, index, base = storage.load(path, memory_map=memory_map)
        records = (
            FollowedRecords(terms, embedding, index, base)
            if follow
            else EmbeddedRecords(terms.unit_key, embedding, index, base)
        )
        return cls(terms, records, random)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the documents, vectors, parameters and salt to a directory.

        JSON, JSON Lines and a NumPy array, nothing that runs code when read. The
        directory is private records and the secret salt, in the clear: keep it on an
        encrypted disk. It is written for the owner alone (mode 0700, files 0600). An
        earlier save is replaced at once and as a whole, and its files are deleted;
        groups that follow it (`load(..., follow=True)`) take the new one over. Groups
        over a store that was read out save what they have read.

        Raises:
            InvalidParameterError: If the place is taken, it was saved anew since these
                groups were loaded from it, a document's metadata cannot be written as
                JSON, or the records' store searches by itself.
        """
        self._records.save(path, self._terms)

    def add_documents(
        self,
        documents: Iterable[Document],
        *,
        embedding_batch_size: int | None = None,
        progress: bool = False,
    ) -> int:
        """Embed and add documents, of new units or of known ones.

        A known unit's documents join its shard; nobody else moves. Groups over a
        vector store write to the store, which embeds, and then `refresh`: add many
        documents at once.

        Args:
            documents: The records.
            embedding_batch_size: See `from_documents`; also how many documents share
                a call of the store.
            progress: Whether to draw a progress bar on standard error.

        Returns:
            How many documents were added: all, or none if an error is raised. A store
            may have taken a part.

        Raises:
            UnitError: If a document has no usable unit id.
            InvalidParameterError: If a document's id is taken, the embedding returns
                no vectors of the right dimension, or the store can't be written to.
        """
        return result(
            self._records.add(documents, embedding_batch_size, progress=progress)
        )

    async def aadd_documents(
        self,
        documents: Iterable[Document],
        *,
        embedding_batch_size: int | None = None,
        progress: bool = False,
    ) -> int:
        """Embed and add documents; the async twin of `add_documents`."""
        return await aresult(
            self._records.add(documents, embedding_batch_size, progress=progress)
        )

    def delete_unit(self, unit_id: str | int) -> int:
        """Delete a unit's documents, in the store too; return how many, at least 1.

        Added again, the unit returns to the same shard.

        Raises:
            UnitError: If no document has that id, so that an erasure with a mistyped id
                does not look successful. The id is not in the message.
        """
        return self._records.delete_unit(canonical_unit_id(unit_id))

    def refresh(self) -> None:
        """Look again at what the vector store, or a followed directory, holds.

        A store that was read out is read again, and so is a saved index that these
        groups follow, if it is another one now. In a store that searches by itself,
        what others have added joins the corpus. No unit moves to another shard.

        Raises:
            UnitError: If a record has no usable unit id. The groups stay as they were.
            UnsoundStoreError: If the store has an index now that ties units together.
        """
        self._records.refresh()

    async def arefresh(self) -> None:
        """Read the vector store's contents again; the async twin of `refresh`."""
        await asyncio.to_thread(self._records.refresh)

    def _preparing(self, question: str) -> Flow[PreparedQuestion]:
        prepared = yield from super()._preparing(question)
        # Last, so that little time is left until the draw.
        if self._records.follows:
            yield Do(self.refresh, self.arefresh)
        return prepared

    @property
    def metadata_keys(self) -> frozenset[str] | None:
        """Every key that any record's metadata has: for the operator.

        None for a store that searches by itself.
        """
        return self._records.metadata_keys

    @property
    def description(self) -> dict[str, Any]:
        """The public parameters, ready for JSON; nothing in it depends on records."""
        return {**super().description, **self._records.description}
