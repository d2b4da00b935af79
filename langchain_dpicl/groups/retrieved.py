"""Groups by retrieval: each shard is searched alone for its own best records."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore
from typing_extensions import Self, Unpack

from langchain_dpicl.common.hidden import hiding_in
from langchain_dpicl.common.units import Collect, canonical_unit_id
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups import readers, saved
from langchain_dpicl.groups.base import (
    HoldsRecords,
    RetrievalOptions,
    RetrievalTerms,
    TermedSource,
    check_enough_units,
)
from langchain_dpicl.groups.index import PreparedQuestion, ShardIndex
from langchain_dpicl.groups.readers import VectorReader
from langchain_dpicl.groups.records import (
    Rows,
    check_document_ids,
    check_embedding,
    embed_documents,
    no_rows,
    question_vector,
    read_columns,
    read_documents,
)
from langchain_dpicl.groups.sampling import poisson_sample
from langchain_dpicl.groups.units import SALT_BYTES, check_salt, refuse_unknown_unit
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


@dataclass(repr=False, eq=False)
class _Held(HoldsRecords):
    """The records that groups and their filtered views share.

    Writers take turns (`writing`). `index` may be read at any time: it is immutable,
    and put in place by one assignment, so a draw that has read it sees one state.
    `base` is the revision of a saved folder that it comes from, if it does; `follows`
    says whether each question looks first if the folder was saved anew.
    """

    index: ShardIndex
    base: saved.Revision | None = None
    follows: bool = False
    writing: threading.Lock = field(default_factory=threading.Lock)


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

    Build it with `from_documents`, `from_embeddings`, `from_vectorstore` or `load`; the
    first three take `RetrievalOptions` by name. Adding, deleting and drawing may run in
    different threads: a draw sees the records before or after a change.

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

    _terms: RetrievalTerms

    def __init__(
        self,
        terms: RetrievalTerms,
        embedding: Embeddings,
        index: ShardIndex,
        *,
        random: SecureRandom | None = None,
    ) -> None:
        self._terms = terms
        self._embedding = embedding
        self._held = _Held(index)
        self._random = checked_source(random)

    @classmethod
    def from_documents(
        cls,
        documents: Iterable[Document],
        embedding: Embeddings,
        *,
        embedding_batch_size: int | None = None,
        progress: bool = False,
        random: SecureRandom | None = None,
        **options: Unpack[RetrievalOptions],
    ) -> Self:
        """Embed the documents and build the index.

        Args:
            documents: The records; each must carry its unit's id in its metadata.
            embedding: Any LangChain `Embeddings`.
            embedding_batch_size: How many documents share a call of the embedding,
                whatever their units; None: those of one unit. A number is sound only
                where the other texts of a call change no bit of a text's vector; see
                `docs/guides/models.md`.
            progress: Whether to draw a progress bar on standard error.
            random: For tests: a random source instead of the operating system's.
                An insecure one is named so in the repr and the description.
            **options: `unit_key` and `n_groups`; `docs_per_group`, `score_threshold`
                and `sampling_rate` if wanted: see `RetrievalOptions`.

        Raises:
            UnitError: If a document has no usable unit id, or there are no
                documents, or fewer units than groups.
            InvalidParameterError: If another argument, or a vector, cannot be used.
        """
        terms = RetrievalTerms.of(options)
        check_embedding(embedding)
        lines, unit_ids = read_documents(documents, terms.unit_key)
        check_enough_units(len(set(unit_ids)), terms.n_groups)
        size = embedding_batch_size
        rows = embed_documents(embedding, lines, unit_ids, size, progress=progress)
        index = _index(terms, rows, batch_size=size)
        return cls(terms, embedding, index, random=random)

    @classmethod
    def from_embeddings(  # noqa: PLR0913  # as `from_documents`, and columns
        cls,
        columns: Mapping[str, Any],
        embedding: Embeddings,
        *,
        text_column: str = "text",
        vector_column: str = "embedding",
        id_column: str | None = None,
        metadata_columns: Sequence[str] | None = None,
        salt: bytes | None = None,
        progress: bool = False,
        random: SecureRandom | None = None,
        **options: Unpack[RetrievalOptions],
    ) -> Self:
        """Build the index from vectors that exist already, for millions of records.

        The bytes of a unit that is deleted later stay where the vectors are until the
        groups are saved and loaded again.

        Args:
            columns: A mapping of column names to arrays (a `np.memmap`, too) or lists
                of one length.
            embedding: What the vectors were made with; here only for the questions.
            text_column: The column of texts.
            vector_column: The column of vectors, shape (rows, dimension), any numbers.
            id_column: The column of document ids, if there is one.
            metadata_columns: Further columns for the documents' metadata; None: all.
            salt: 32 secret bytes, the key that sends units to shards (`shard_of`);
                None: new random ones.
            progress: Whether to draw a progress bar on standard error.
            random: For tests; see `from_documents`.
            **options: See `from_documents`; `unit_key` names a column.

        Raises:
            UnitError: If a row has no usable unit id, or there are fewer units than
                groups.
            InvalidParameterError: If a vector is zero, not finite or of another
                dimension, a column is missing, or another argument cannot be used.

        Privacy:
            A vector must be a function of its own unit's texts: embed each text, or
            each unit's, in a call of its own, or with a model that computes texts of
            one call apart. A row is read by itself; see `groups.records`.
        """
        terms = RetrievalTerms.of(options)
        check_embedding(embedding)
        rows = read_columns(
            columns,
            terms.unit_key,
            text=text_column,
            vector=vector_column,
            id_column=id_column,
            metadata=metadata_columns,
            progress=progress,
        )
        return cls(terms, embedding, _index(terms, rows, salt), random=random)

    @classmethod
    def from_vectorstore(
        cls,
        store: VectorStore | VectorReader,
        *,
        embedding: Embeddings | None = None,
        salt: bytes | None = None,
        random: SecureRandom | None = None,
        **options: Unpack[RetrievalOptions],
    ) -> Self:
        """Read the records of a LangChain vector store out, and search them here.

        What others write to the store later, deletions too, shows after
        `refresh(store)`. `save` the groups, and let workers `load` and follow them.
        What is changed in the groups is not changed in the store.

        Args:
            store: LangChain's in-memory store, `Chroma`, `PGVectorStore` or Qdrant; or
                an object with the method of `groups.readers.VectorReader`.
            embedding: The embedding of the stored vectors; None: the store's own.
            salt: 32 secret bytes; see `from_embeddings`.
            random: For tests; see `from_documents`.
            **options: See `from_documents`.

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
        terms = RetrievalTerms.of(options)
        embedding = check_embedding(
            readers.embedding_of(store) if embedding is None else embedding
        )
        rows = readers.read_out(store, terms.unit_key)
        return cls(terms, embedding, _index(terms, rows, salt), random=random)

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
                a search needs them; processes then share them. A later save deletes the
                files, so let processes that map them `follow`.
            random: For tests; see `from_documents`.

        Raises:
            InvalidParameterError: If the directory is missing, foreign, damaged,
                or does not fit together; the message names the file.
            UnitError: If a stored document has no usable unit id.

        Privacy:
            With `follow` a question reads the directory before it is charged, so that a
            failure costs nothing. A whole revision takes the place of a whole revision.
            Revisions are of one corpus that changes over time, and the account's
            guarantee holds for all records that a unit has in any of them: a release
            sees one revision, in which the unit has one slot. That a revision came, and
            when, shows in how long a question takes. It is public: it says that the
            operator saved something, not whose records changed.
        """
        check_embedding(embedding)
        terms, index, base = saved.load(path, memory_map=memory_map)
        groups = cls(terms, embedding, index, random=random)
        groups._held.base, groups._held.follows = base, follow
        return groups

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the documents, vectors, parameters and salt to a directory.

        JSON, JSON Lines and a NumPy array, nothing that runs code when read. The
        directory is private records and the secret salt, in the clear, for the owner
        alone (mode 0700, files 0600): keep it on an encrypted disk. An earlier save is
        replaced at once and as a whole; groups that follow it take the new one over.

        Raises:
            InvalidParameterError: If the place is taken, it was saved anew since these
                groups were loaded from it.
        """
        held = self._held
        with held.writing:
            revision = saved.save(path, self._terms, held.index, held.base)
            if not held.follows:
                held.base = replace(revision, memory_map=False)

    def add_documents(
        self,
        documents: Iterable[Document],
        *,
        embedding_batch_size: int | None = None,
        progress: bool = False,
    ) -> int:
        """Embed and add documents, of new units or of known ones; return how many.

        All are added or, if an error is raised, none. A known unit's documents join its
        shard; nobody else moves.

        Of `embedding_batch_size` (see `from_documents`) the largest that was ever used
        stands in the public description from then on.

        Raises:
            UnitError: If a document has no usable unit id.
            InvalidParameterError: If a document's id is taken, the embedding returns
                no vectors of the right dimension, or these groups follow a saved index.
        """
        self._require_writable()
        lines, unit_ids = read_documents(documents, self.unit_key)
        # Once before the embedding is paid for, once after.
        ids = [document.id for document in lines.documents()]
        check_document_ids(ids, self._index.document_ids())
        if not ids:
            return 0
        size = embedding_batch_size
        rows = embed_documents(
            self._embedding, lines, unit_ids, size, progress=progress
        )

        def more(index: ShardIndex) -> ShardIndex:
            check_document_ids(ids, index.document_ids())
            return index.with_rows(_fitting(rows, index), size)

        self._change(more)
        return len(ids)

    def delete_unit(self, unit_id: str | int) -> int:
        """Delete a unit's documents; return how many, at least 1.

        Added again, the unit returns to the same shard.

        Raises:
            UnitError: If no document has that id. The id is not in the message.
            InvalidParameterError: If these groups follow a saved index.
        """
        unit = canonical_unit_id(unit_id)

        def less(index: ShardIndex) -> ShardIndex:
            found = index if unit is None else index.without(unit)
            if found is index:
                refuse_unknown_unit(self.unit_key)
            return found

        before, after = self._change(less)
        return before.n_documents - after.n_documents

    def refresh(self, store: VectorStore | VectorReader | None = None) -> None:
        """Read a store out again, or look again at a followed directory.

        All records are replaced by what the store holds now. The salt stays, so that no
        unit moves to another shard. Without a store, for groups that follow a saved
        index, it looks at the index, as each question does.

        Raises:
            UnitError: If a record has no usable unit id. The groups stay as they were.
            UnsoundStoreError: If what the store returns depends on others or on chance.
            InvalidParameterError: If the store can't be read, or nothing can be read
                again.
        """
        if store is None and not self._held.follows:
            raise InvalidParameterError(
                "refresh() without a store is for groups that follow a saved index "
                "(load(..., follow=True)). Pass the store to read it out again."
            )
        if store is None:
            self._follow()
            return
        self._require_writable()
        rows = readers.read_out(store, self.unit_key)
        self._change(
            lambda index: ShardIndex.of(
                _fitting(rows, index), n_shards=self.n_groups, salt=index.salt
            )
        )

    def prepare(self, question: str) -> PreparedQuestion:
        """Embed the question; the public half of a draw.

        Raises:
            InvalidParameterError: If the question is not a text, or its vector is zero,
                not finite, or of another dimension than the index.
        """
        vector = question_vector(self._embedding, question, self._index.dimension)
        # Last, so that little time is left until the draw.
        self._follow()
        return PreparedQuestion(vector, self._terms, self._only)

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
        if not isinstance(prepared, PreparedQuestion) or prepared.vector.shape != (
            1,
            index.dimension,
        ):
            raise InvalidParameterError(
                "Pass draw_prepared() the result of prepare(question) of these groups."
            )
        # Terms and filter are those of these groups, also for a question of others.
        question = replace(prepared, terms=self._terms, only=self._only)
        return draw_slots(index, question, collect=collect, random=self._source)

    def over(self, index: ShardIndex) -> Self:
        """Return groups without a sample over other records, for an audit."""
        terms = self._terms.model_copy(update={"sampling_rate": 1.0})
        return self._changed(_terms=terms, _held=_Held(index))

    @property
    def n_units(self) -> int:
        """Number of units, private: for the operator alone."""
        return len(self._index.unit_ids())

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
    def _index(self) -> ShardIndex:
        return self._held.index

    def _require_writable(self) -> None:
        """Refuse a change that would not last."""
        if self._held.follows:
            raise InvalidParameterError(
                "These groups follow a saved index (follow=True) and are not changed "
                "themselves. Load it without follow, change that, and save it: all "
                "that follow take it over. langchain_dpicl.operate.erase does so "
                "for one person."
            )

    def _change(
        self, change: Callable[[ShardIndex], ShardIndex]
    ) -> tuple[ShardIndex, ShardIndex]:
        """Put another index in place; return the one before, and it."""
        self._require_writable()
        with self._held.writing:
            before = self._index
            self._held.index = change(before)
            return before, self._index

    def _follow(self) -> None:
        """Take over what others have saved, where these groups follow a folder."""
        held = self._held
        base = held.base
        if not held.follows or base is None:
            return
        if saved.read_stamp(base.path) == base.stamp:
            return
        with held.writing:
            base = held.base or base
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
            if terms != self._terms or index.dimension != held.index.dimension:
                raise InvalidParameterError(
                    f"The groups in {base.path} were saved with other parameters or "
                    "another embedding than those that this process has loaded: no "
                    "question is asked. Start it anew."
                )
            held.index, held.base = index, revision


def _index(
    terms: RetrievalTerms,
    rows: Rows,
    salt: bytes | None = None,
    batch_size: int | None = None,
) -> ShardIndex:
    """Return the first index of some groups, of enough units."""
    salt = os.urandom(SALT_BYTES) if salt is None else check_salt(salt)
    check_enough_units(len(set(rows.unit_ids)), terms.n_groups)
    return ShardIndex.of(
        rows, n_shards=terms.n_groups, salt=salt, batch_size=batch_size
    )


def _fitting(rows: Rows, index: ShardIndex) -> Rows:
    """Return rows whose vectors can stand in an index, or refuse them."""
    if not rows.unit_ids:
        return no_rows(index.dimension)
    if rows.vectors.shape[1] != index.dimension:
        raise InvalidParameterError(
            f"There are vectors of {rows.vectors.shape[1]} numbers, and the index "
            f"holds vectors of {index.dimension}. Use the embedding that it was built "
            "with, or build the groups anew."
        )
    return rows
