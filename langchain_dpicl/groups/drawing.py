"""A draw by retrieval, from a prepared question to slots: who is eligible, who paid.

Written against `search.ShardSearch` alone, so that it is the same for every index.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups.base import TermedSource
from langchain_dpicl.groups.ingest import check_question, shallow_copy, unit_question
from langchain_dpicl.groups.sampling import UnitSample
from langchain_dpicl.groups.selection import payers
from langchain_dpicl.release.flow import Do, aresult, result
from langchain_dpicl.sealed.embedding_calls import aembed

if TYPE_CHECKING:
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings

    from langchain_dpicl.common.units import Collect
    from langchain_dpicl.groups.ingest import Vectors
    from langchain_dpicl.groups.search import ShardSearch
    from langchain_dpicl.groups.terms import RetrievalTerms
    from langchain_dpicl.mechanisms.random import SecureRandom
    from langchain_dpicl.release.flow import Flow


@dataclass(frozen=True, eq=False)
class PreparedQuestion:
    """What `RetrievedGroups.prepare` makes of a question. Public throughout."""

    vector: Vectors  # The question's vector, scaled to norm 1, shape (1, dimension).
    threshold: float | None  # None: no threshold.


def check_prepared(
    prepared: Any, terms: RetrievalTerms, index: ShardSearch
) -> PreparedQuestion:
    """Return a prepared question; refuse anything that these groups did not make."""
    if (
        not isinstance(prepared, PreparedQuestion)
        or not isinstance(prepared.vector, np.ndarray)
        or prepared.vector.shape != (1, index.dimension)
        or prepared.threshold != terms.score_threshold
    ):
        raise InvalidParameterError(
            "Pass draw_prepared() the result of prepare(question) of these groups."
        )
    return prepared


def draw_slots(
    index: ShardSearch,
    asked: PreparedQuestion,
    terms: RetrievalTerms,
    *,
    collect: Collect | None,
    random: SecureRandom,
) -> list[list[Document]]:
    """Return the slots of a draw, of the index's own documents.

    Privacy:
        Relation: see `RetrievalTerms.relation`, for the corpus of the units that paid.
        With a `collect`, eligibility to pay is a function of the unit's own
        documents, the question and the threshold. All eligible units are asked, before
        anything is ranked or sampled; the slots are then made of the payers'
        documents alone. A unit that can't pay therefore changes nothing, and one that
        can has paid for the one slot that it changes. The sample is drawn for this draw
        alone, among those who paid; see `groups.sampling`.
    """
    threshold, sample = asked.threshold, _sample(terms, random)
    if threshold is None or (collect is None and (sample is None or index.can_sample)):
        # Every unit takes part: a shard's best can be found without all that pass.
        return index.top(asked.vector, terms.docs_per_group, threshold, sample)
    found = index.eligible(asked.vector, threshold)
    paid = payers(found, np.arange(found.count), collect)
    if sample is not None:
        paid = paid[sample.places(len(paid))]
    return found.by_shard(paid, terms.docs_per_group)


def _sample(terms: RetrievalTerms, random: SecureRandom) -> UnitSample | None:
    """Return a fresh sample for one release, where units are sampled."""
    return UnitSample(terms.sampling_rate, random) if terms.is_sampled else None


class RetrievingSource(TermedSource):
    """Embeds a question and draws from an index, a `search.ShardSearch`.

    A subclass sets `_terms` and `_random` when it is made, and says where documents
    come from. `_index` may be replaced at any time, so a draw reads it once.

    Privacy:
        See `RetrievalTerms.relation` for what one unit changes, and `draw_slots` for
        who pays.
    """

    _terms: RetrievalTerms

    @property
    @abstractmethod
    def _embedding(self) -> Embeddings:
        """The embedding of questions."""

    @property
    @abstractmethod
    def _index(self) -> ShardSearch:
        """What is searched."""

    @property
    def n_units(self) -> int:
        """Number of units, private: for the operator alone."""
        return self._index.n_units

    @property
    def sampling_rate(self) -> float:
        """The rate at which each unit is sampled; 1.0 where nothing is sampled."""
        return self._terms.sampling_rate

    @property
    def charges_units(self) -> bool:
        """Whether a draw can charge each eligible unit: with a threshold, it can.

        Privacy:
            The promise of `GroupSource.charges_units` is kept by `draw_slots`.
        """
        return self._terms.score_threshold is not None

    def prepare(self, question: str) -> PreparedQuestion:
        """Embed the question; the public half of a draw.

        Raises:
            InvalidParameterError: If the question is not a text, or its vector is zero,
                not finite, or of another dimension than the index.
        """
        return result(self._preparing(question))

    async def aprepare(self, question: str) -> PreparedQuestion:
        """Embed the question; the async twin of `prepare`."""
        return await aresult(self._preparing(question))

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
        # Read once: the whole draw sees one snapshot, also while others write.
        index = self._index
        asked = check_prepared(prepared, self._terms, index)
        slots = draw_slots(
            index, asked, self._terms, collect=collect, random=self._source
        )
        return [[shallow_copy(document) for document in slot] for slot in slots]

    def _preparing(self, question: str) -> Flow[PreparedQuestion]:
        check_question(question)
        embedding = self._embedding
        vector = yield Do(
            partial(embedding.embed_query, question),
            partial(aembed, embedding, "aembed_query", question),
        )
        scaled = unit_question(vector, self._index.dimension)
        return PreparedQuestion(scaled, self._terms.score_threshold)
