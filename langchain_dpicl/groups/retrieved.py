"""Groups by retrieval: each shard is searched alone for its own best records."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore
from typing_extensions import Self

from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import hiding_in
from langchain_dpicl.common.units import Collect, canonical_unit_id
from langchain_dpicl.embedding_calls import embed_question
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups import readers, saved
from langchain_dpicl.groups.base import TermedSource
from langchain_dpicl.groups.filtering import RecordFilter
from langchain_dpicl.groups.index import PreparedQuestion, ShardIndex
from langchain_dpicl.groups.ingest import (
    ColumnNames,
    Rows,
    check_embedding,
    check_question,
    embed_documents,
    read_columns,
    take_documents,
    unit_question,
)
from langchain_dpicl.groups.readers import VectorReader
from langchain_dpicl.groups.records import Records, rows_of
from langchain_dpicl.groups.sampling import poisson_sample
from langchain_dpicl.groups.terms import RetrievalTerms, check_enough_units
from langchain_dpicl.groups.units import check_salt, new_salt
from langchain_dpicl.mechanisms.random import SecureRandom, checked_source


def draw_slots(
    index: ShardIndex,
    question: PreparedQuestion,
    *,
    collect: Collect | None,
    random: SecureRandom,
) -> list[list[Document]]:
    """Return the slots of a draw.

    Privacy:
        Relation: see `Terms.relation`, for the corpus of the units that paid. With a
        `collect`, eligibility to pay is a function of the unit's own records, the
        question, its filter and the threshold. All eligible units are asked, in one
        call and in the order of their ids, before anything is ranked or sampled. The
        slots are then made of the payers' records alone. A unit that can't pay
        therefore changes nothing, and one that can has paid for the one slot that it
        changes. The sample is drawn for this draw alone, among those who paid, and the
        search sees nobody else; see `groups.sampling`.
    """
    rate = question.terms.sampling_rate
    if collect is None and rate == 1:
        return index.search(question)
    if collect is None:
        units = index.unit_ids()
    else:
        eligible = sorted(index.units(question))
        paid = collect(eligible)
        units = [unit for unit in eligible if unit in paid]
    if rate < 1:
        sample = poisson_sample(random, len(units), rate)
        units = [units[place] for place in sample.tolist()]
    return index.search(question, units)


@hiding_in("documents", "embeddings", "vectorstore", "delete_unit", "refresh", "load")
class RetrievedGroups(TermedSource):
    """Slots retrieved for a question; one unit changes one slot at most.

    Units are hashed to `n_groups` shards by a keyed hash of their id, and each shard is
    searched alone for its own best `docs_per_group` documents. There are always
    `n_groups` slots, some of which may be empty.

    Scores are cosines, on their public scale from -1 to 1. With a `score_threshold` the
    groups can charge each eligible unit alone (`charging_units`), as per-unit accounts
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
        `Terms.relation`. Nothing is released here; the slots are private.
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
        only: RecordFilter | None = None,
    ) -> None:
        self._terms: RetrievalTerms = terms
        self._records = records
        self._random = checked_source(random)
        self._only = only

    @classmethod
    def from_documents(  # noqa: PLR0913  # the contract's own signature
        cls,
        documents: Iterable[Document],
        embedding: Embeddings,
        *,
        unit_key: str,
        n_groups: int,
        docs_per_group: int = 8,
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
            unit_key=unit_key,
            n_groups=n_groups,
            docs_per_group=docs_per_group,
            score_threshold=score_threshold,
            sampling_rate=sampling_rate,
        )
        check_embedding(embedding)
        taken, unit_ids = take_documents(documents, unit_key)
        check_enough_units(len(set(unit_ids)), n_groups)
        size = embedding_batch_size
        vectors = embed_documents(embedding, taken, unit_ids, size, progress=progress)
        rows = vectors, taken, unit_ids
        index = _index(terms, rows, salt=None, batch_size=size)
        return cls(terms, Records(terms, embedding, index), random)

    @classmethod
    def from_embeddings(  # noqa: PLR0913  # as `from_documents`
        cls,
        columns: Mapping[str, Any],
        embedding: Embeddings,
        *,
        unit_key: str,
        n_groups: int,
        docs_per_group: int = 8,
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
            one call apart. A row is read by itself; see `groups.ingest`.
        """
        terms = RetrievalTerms(
            unit_key=unit_key,
            n_groups=n_groups,
            docs_per_group=docs_per_group,
            score_threshold=score_threshold,
            sampling_rate=sampling_rate,
        )
        check_embedding(embedding)
        names = ColumnNames(
            unit_key, text_column, vector_column, id_column, metadata_columns
        )
        rows = read_columns(columns, names, progress=progress)
        index = _index(terms, rows, salt=salt)
        return cls(terms, Records(terms, embedding, index), random)

    @classmethod
    def from_vectorstore(  # noqa: PLR0913  # the contract's own signature
        cls,
        store: VectorStore | VectorReader,
        *,
        unit_key: str,
        n_groups: int,
        docs_per_group: int = 8,
        score_threshold: float | None = None,
        sampling_rate: float = 1.0,
        embedding: Embeddings | None = None,
        salt: bytes | None = None,
        random: SecureRandom | None = None,
    ) -> Self:
        """Read the records of a LangChain vector store out, and search them here.

        What others write to the store later, deletions too, shows after
        `refresh(store)`. `save` the groups, and let workers `load` and follow them.

        Args:
            store: LangChain's in-memory store, `Chroma`, `PGVectorStore` or Qdrant; or
                an object with the method of `groups.readers.VectorReader`.
            unit_key: The metadata key that holds the unit id; see `from_documents`.
            n_groups: See `from_documents`, as the parameters that follow.
            docs_per_group: Most documents in one slot.
            score_threshold: Least cosine of a document that counts.
            sampling_rate: Probability with which a unit is searched at all.
            embedding: The embedding of the stored vectors; None: the store's own.
            salt: 32 secret bytes; see `from_embeddings`.
            random: For tests; see `from_documents`.

        Returns:
            The group source. What is changed in it is not changed in the store.

        Raises:
            UnsoundStoreError: If what the store returns depends on others or on chance.
            UnitError: If a record has no usable unit id, or there are fewer units than
                groups.
            InvalidParameterError: If another argument cannot be used, there is no
                reader for the store, or it holds vectors that cannot be compared.

        Privacy:
            See `groups.readers`. Only the operator knows how the store's vectors were
            made: each must be a function of its own unit's texts.
        """
        terms = RetrievalTerms(
            unit_key=unit_key,
            n_groups=n_groups,
            docs_per_group=docs_per_group,
            score_threshold=score_threshold,
            sampling_rate=sampling_rate,
        )
        embedding = check_embedding(
            readers.embedding_of(store) if embedding is None else embedding
        )
        documents, vectors = readers.read_out(store)
        index = _index(terms, rows_of(vectors, documents, unit_key), salt=salt)
        return cls(terms, Records(terms, embedding, index), random)

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
        people = parameters.positive("people_per_question", people_per_question)
        groups = parameters.count(n_groups, "n_groups")
        size = parameters.positive("people_per_group", people_per_group)
        return min(1.0, groups * size / people)

    def where(
        self,
        filter: Mapping[str, Any] | RecordFilter | None = None,  # noqa: A002  # what LangChain's stores call it
        **values: Any,
    ) -> Self:
        """Return these groups for only the records that match; see `GroupSource.where`.

        Both share the records: what is added, deleted or saved through one of them is
        so for both, whether it matches or not.

        Raises:
            InvalidParameterError: If the filter can't be used.
        """
        only = self._narrowed(filter, **values)
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
            release sees one revision; see `groups.records.Records`.
        """
        check_embedding(embedding)
        terms, index, base = saved.load(path, memory_map=memory_map)
        records = Records(terms, embedding, index, base=base, follows=follow)
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
                groups were loaded from it, or a document's metadata cannot be written
                as JSON.
        """
        self._records.save(path)

    def add_documents(
        self,
        documents: Iterable[Document],
        *,
        embedding_batch_size: int | None = None,
        progress: bool = False,
    ) -> int:
        """Embed and add documents, of new units or of known ones; return how many.

        A known unit's documents join its shard; nobody else moves.

        Args:
            documents: The records.
            embedding_batch_size: See `from_documents`. The largest that was ever used
                stands in the public description from then on.
            progress: Whether to draw a progress bar on standard error.

        Returns:
            How many documents were added: all, or none if an error is raised.

        Raises:
            UnitError: If a document has no usable unit id.
            InvalidParameterError: If a document's id is taken, the embedding returns
                no vectors of the right dimension, or these groups follow a saved index.
        """
        size = embedding_batch_size
        return self._records.add(documents, size, progress=progress)

    def delete_unit(self, unit_id: str | int) -> int:
        """Delete a unit's documents; return how many, at least 1.

        Added again, the unit returns to the same shard.

        Raises:
            UnitError: If no document has that id, so that an erasure with a mistyped id
                does not look successful. The id is not in the message.
            InvalidParameterError: If these groups follow a saved index.
        """
        return self._records.delete_unit(canonical_unit_id(unit_id))

    def refresh(self, store: VectorStore | VectorReader | None = None) -> None:
        """Read a store out again, or look again at a followed directory.

        All records are replaced by what the store holds now. The salt stays, so that no
        unit moves to another shard. To erase a person, delete their records in the
        store first, and then here (`delete_unit`) or by reading the store again. Groups
        that follow a directory take the change over after `save`.

        Args:
            store: The store, as in `from_vectorstore`; None for groups that follow a
                saved index, which also look at it before each question.

        Raises:
            UnitError: If a record has no usable unit id. The groups stay as they were.
            UnsoundStoreError: If what the store returns depends on others or on chance.
            InvalidParameterError: If the store can't be read, or nothing can be read
                again.
        """
        self._records.refresh(store)

    def prepare(self, question: str) -> PreparedQuestion:
        """Embed the question; the public half of a draw.

        Raises:
            InvalidParameterError: If the question is not a text, or its vector is zero,
                not finite, or of another dimension than the index.
        """
        vector = embed_question(self._embedding, check_question(question))
        scaled = unit_question(vector, self._index.dimension)
        # Last, so that little time is left until the draw.
        self._records.follow()
        return PreparedQuestion(scaled, self._terms, self._only)

    def draw_prepared(
        self, prepared: Any, *, collect: Collect | None = None
    ) -> list[list[Document]]:
        """Search; the private half of a draw.

        `collect` is called once, with the ids of all eligible units in their own
        order, also when there are none.

        Returns:
            `n_groups` slots, shard by shard, empty where nothing passes. The documents
            are copies.

        Raises:
            InvalidParameterError: If `prepared` comes from elsewhere, or groups without
                a threshold get a `collect`.
        """
        self._check_charging(collect)
        # Read once: the whole draw sees one state, also while others write.
        index = self._index
        if (
            not isinstance(prepared, PreparedQuestion)
            or prepared.vector.shape != (1, index.dimension)
            or prepared.terms != self._terms
        ):
            raise InvalidParameterError(
                "Pass draw_prepared() the result of prepare(question) of these groups."
            )
        # A filter is that of these groups, for whichever the question was prepared.
        question = replace(prepared, only=self._only)
        return draw_slots(index, question, collect=collect, random=self._source)

    @property
    def n_units(self) -> int:
        """Number of units, private: for the operator alone."""
        return self._index.n_units

    @property
    def metadata_keys(self) -> frozenset[str]:
        """Every key that any record's metadata has: for the operator."""
        return self._index.metadata_keys()

    @property
    def description(self) -> dict[str, Any]:
        """The public parameters, ready for JSON; nothing in it depends on records."""
        size = self._index.batch_size
        shared = {} if size is None else {"embedding_batch_size": size}
        return {**super().description, **shared}

    @property
    def _embedding(self) -> Embeddings:
        return self._records.embedding

    @property
    def _index(self) -> ShardIndex:
        return self._records.index


def _index(
    terms: RetrievalTerms,
    rows: Rows,
    *,
    salt: bytes | None,
    batch_size: int | None = None,
) -> ShardIndex:
    """Return the first index of some groups, of enough units."""
    salt = new_salt() if salt is None else check_salt(salt)
    check_enough_units(len(set(rows[2])), terms.n_groups)
    return ShardIndex.of(
        *rows, n_shards=terms.n_groups, salt=salt, batch_size=batch_size
    )
