"""What `RetrievedGroups` asks of an index, whoever keeps the vectors.

The embedded FAISS index (`shards`) is one implementation; a vector store that searches
by itself (`stores.searching`) is another. The promises here are what the privacy
argument rests on, so they are stated where the methods are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from langchain_core.documents import Document
    from numpy.typing import NDArray

    from langchain_dpicl.groups.ingest import Vectors


class EligibleUnits(Protocol):
    """The units whose own best document reaches a threshold, found by one search.

    A *place* is a unit's number in this finding: an index into `scores`. Places carry
    no meaning and must not be published; their order may follow insertion.

    Privacy:
        Holding a `EligibleUnits` is holding one snapshot: every method answers from
        the records that the search saw, so that nobody contributes to a slot who was
        not found, and asked to pay, before. A store that cannot keep a snapshot must
        answer `by_shard` and `by_unit` from the records of the given units alone.
    """

    @property
    def scores(self) -> NDArray[np.float64]:
        """Each unit's best score, shape (units,), from -1 to 1 and >= the threshold.

        Privacy:
            A score is a function of the unit's own documents and the question.
        """

    def unit_ids(self, places: NDArray[np.int64]) -> list[str]:
        """Return the canonical ids of some units, one for each place."""

    def by_shard(self, places: NDArray[np.int64], n: int) -> list[list[Document]]:
        """Return for each shard the n best documents of some units, best first.

        All of them reach the threshold themselves.

        Privacy:
            As if the units that are not in `places` were not in the corpus: their
            documents take nobody's place and break nobody's tie.
        """

    def by_unit(self, places: NDArray[np.int64], n: int) -> list[list[Document]]:
        """Return for each of some units its own n best documents, best first.

        Those below the threshold are included; the order is that of `places`.

        Privacy:
            A unit's list is a function of its own documents and the question.
        """


class ShardSearch(Protocol):
    """An index of documents, whose units are hashed to shards.

    Privacy:
        An implementation must search each shard, or hold each unit against the
        threshold, as if nothing else were there: exactly, or by an approximate index
        that was built from that shard alone.
    """

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    @property
    def n_units(self) -> int:
        """Number of units, private."""

    def top(
        self, vector: Vectors, n: int, threshold: float | None
    ) -> list[list[Document]]:
        """Return for each shard its n best documents that pass, best first.

        Privacy:
            A shard's list is a function of that shard's documents alone, ties
            included.
        """

    def eligible(self, vector: Vectors, threshold: float) -> EligibleUnits:
        """Return every unit whose own best document reaches the threshold.

        Privacy:
            Whether a unit is among them is a function of its own documents, the
            question and the threshold, exactly: an approximate search that overlooks
            a unit because of others' vectors would let one unit decide who pays.
            All of them: a unit that a later cap leaves out has been looked at too.
        """
