"""What a vector store must offer so that groups can be retrieved from it.

There are two ways, and a store needs one of them:

* `ShardStore`: the store itself searches, shard by shard and exactly. For stores that
  hold more than fits into memory, or that other processes write to.
* `VectorReader`: the store hands out its documents and vectors once, and the embedded
  exact index searches. For stores in memory, and for those whose own search is
  approximate and can't be made exact.

An adapter of your own is a subclass of one of the two. Offer two more things, as
LangChain's stores do, where they make sense: `embeddings`, the LangChain `Embeddings`
of the stored vectors, and `add_documents` (with `aadd_documents`), for
`groups.add_documents`.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from langchain_dpicl.common.slots import hidden_repr
from langchain_dpicl.errors import (
    DPError,
    GroupCallError,
    InvalidParameterError,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from langchain_core.documents import Document

    from langchain_dpicl.groups.filtering import UnitFilter
    from langchain_dpicl.groups.ingest import Vectors
    from langchain_dpicl.groups.sampling import UnitSample

from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


class StoredHit(NamedTuple):
    """A document that a store found. Private; the repr shows nothing of it."""

    document: Document
    """The document as the user put it in: its text, metadata and id, nothing added.

    It always has an id, which shows a document that comes twice: the user's id, or else
    the store's."""

    score: float
    """Cosine of its vector and the question's, from -1 to 1."""

    shard: int
    """The shard under which the store found it, for the check of what came back."""

    def __repr__(self) -> str:
        return hidden_repr(self)


class VectorReader(ABC):
    """A store that can be read out, vectors included."""

    @abstractmethod
    def read(self) -> Iterable[tuple[Document, Sequence[float]]]:
        """Yield every document with its vector, in any order, each once.

        A document comes with its text, its metadata and its id (where the user gave
        none, the store's own), and nothing added. The vectors need not be of norm 1.
        """

    def everything(self) -> Iterable[Document]:
        """Yield every record, to find those of a unit that is to be erased.

        Override it where `read` leaves records out, such as those without a text.
        """
        return (document for document, _ in self.read())

    @abstractmethod
    def delete(self, document_ids: Sequence[str]) -> None:
        """Delete documents from the store, by `Document.id`."""


class ShardStore(ABC):
    """A store that searches every shard by itself, exactly.

    A shard is a set of units. `assign` tells the store which unit is in which shard;
    the store keeps this where all processes see it. A record whose unit was never
    assigned is not in the corpus: no method but `unit_values` and `delete` may see it.
    A store may keep the assignment by record; then a record that was written after the
    last `assign` is not in the corpus either.

    One adapter object is for one group source: make another one for another number of
    shards.

    What the methods return is checked by the caller before it is used: see `checking`.
    They are called from any thread, also from several at once.

    Privacy:
        `best` and `above` must compare the question with every record that
        counts, or with an index that was built from one shard alone. One approximate
        index of all records (an HNSW graph, IVF lists, product quantization trained on
        the corpus) ties units together: one person more or less can change what is
        found of others. A record's score must depend on its own vector and the
        question's, on nothing else.
    """

    @property
    def identity(self) -> str:
        """What tells these records from others, the same in every process.

        The key that sends units to shards is derived from it where the user gives no
        `salt`. It need not be secret, nor unique.
        """
        return type(self).__qualname__

    @property
    def can_sample(self) -> bool:
        """Whether `sampled` can be called."""
        return False

    def sampled(self, sample: UnitSample) -> ShardStore:  # noqa: ARG002  # for stores that can
        """Return a view of the store that has only the sampled units.

        The view is used for `best`, `best_and_sizes`, `sizes` and `of_shard`, for one
        draw. Without this method, groups that sample need a threshold.

        Privacy:
            Exactly the units that `UnitSample.holds`, by their canonical ids: all
            spellings of a person are one (`canonical_unit_id`). Neither the nonce nor
            who is in may be kept.
        """
        raise InvalidParameterError(
            f"{type(self).__name__} can't sample units: give a score_threshold=."
        )

    def where(self, only: UnitFilter) -> ShardStore:  # noqa: ARG002  # for stores that can
        """Return a view of the store that has only the units that match a filter.

        The view is searched like the store, for one draw; `sampled` of it samples among
        those who match. Override it where the store can tell.

        Raises:
            InvalidParameterError: If the store can't leave units out.

        Privacy:
            A unit matches by its own records alone: all of them have to agree, under
            all spellings of its id. See `groups.filtering`.
        """
        raise InvalidParameterError(
            f"{type(self).__name__} can't leave units out of its search. Copy the "
            "records with RetrievedGroups.from_documents(), or ask without a filter."
        )

    @abstractmethod
    def refuse_unsound(self, *, exact: bool) -> None:
        """Raise `UnsoundStoreError` if a shared approximate index could be searched.

        Called when the store is opened and before every search, as an index may be
        made at any time: a quick look at the catalog, not at the records.

        Args:
            exact: The user wants an exact search although the store has such an index.
                Then `best` and `above` must not use the index; if that is
                impossible, this must raise too.
        """

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Length of a vector."""

    @abstractmethod
    def unit_values(self) -> Iterable[Hashable]:
        """Yield the values of the unit key, each once; None if a record has none."""

    @abstractmethod
    def assign(self, shard_of: Mapping[Any, int], n_shards: int) -> None:
        """Keep each unit's shard, durably; values as `unit_values` gave them.

        A value that is assigned already may come again, with the same shard. What was
        assigned for another number of shards, or under another salt, is replaced.
        """

    @abstractmethod
    def sizes(self, n_shards: int) -> list[int]:
        """Return the number of records of each shard, private."""

    @abstractmethod
    def best(self, vector: Vectors, n: int, n_shards: int) -> list[StoredHit]:
        """Return the n best records of each shard, in any order.

        Args:
            vector: The question's, norm 1, shape (1, dimension).
            n: Most records of one shard. Fewer only where the shard has fewer.
            n_shards: Number of shards, numbered from 0.
        """

    def best_and_sizes(
        self, vector: Vectors, n: int, n_shards: int
    ) -> tuple[list[StoredHit], list[int]]:
        """Return `best` and `sizes`, of one moment where the store can do that.

        Called when a shard came back with fewer than n records. A store without
        snapshots counts before and after and takes the smaller number, so that a
        concurrent writer does not look like a fault.
        """
        before = self.sizes(n_shards)
        found = self.best(vector, n, n_shards)
        after = self.sizes(n_shards)
        return found, [min(pair) for pair in zip(before, after, strict=True)]

    @abstractmethod
    def of_shard(self, vector: Vectors, shard: int, score: float) -> list[StoredHit]:
        """Return all records of one shard with at least a score, in any order."""

    @abstractmethod
    def above(self, vector: Vectors, threshold: float) -> list[StoredHit]:
        """Return every record, of any shard, whose score reaches the threshold.

        A threshold below -1 asks for all records.
        """

    @abstractmethod
    def delete(self, value: Any) -> int:
        """Delete a unit's records by a value of the unit key; return how many.

        Those of this one value, as `unit_values` gave it, assigned or not; and its
        assignment, which names the unit.
        """


def hiding_errors(
    describe: Callable[[Exception], str],
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that turns what a client raises into a `GroupCallError`.

    An error of a store's client can hold text of a record, so it is not passed on.
    `describe` says what failed, in public words. Errors of this library pass.
    """

    def decorate(method: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(method)
        def ask(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return method(*args, **kwargs)
            except DPError:
                raise
            except Exception as error:  # noqa: BLE001  # the client's or its driver's
                failed = GroupCallError(describe(error))
            # Raised here, where no handler is active: the client's error is no context
            # of ours.
            raise failed

        return ask

    return decorate
