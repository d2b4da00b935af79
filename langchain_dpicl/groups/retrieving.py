"""A source that searches: from a question to slots, whoever keeps the vectors."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

from langchain_dpicl.groups.base import TermedSource
from langchain_dpicl.groups.drawing import (
    PreparedQuestion,
    check_prepared,
    draw_slots,
    refine_question,
)
from langchain_dpicl.groups.ingest import check_question, shallow_copy, unit_question
from langchain_dpicl.groups.threshold import NoisyThreshold
from langchain_dpicl.release.flow import Do, aresult, result
from langchain_dpicl.sealed.embedding_calls import aembed

if TYPE_CHECKING:
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings

    from langchain_dpicl.accounting import EventTemplate
    from langchain_dpicl.budget import PaidCharge
    from langchain_dpicl.common.units import ChargeUnits
    from langchain_dpicl.groups.base import ThresholdRelease
    from langchain_dpicl.groups.search import ShardSearch
    from langchain_dpicl.groups.terms import RetrievalTerms
    from langchain_dpicl.mechanisms import GaussianNoise
    from langchain_dpicl.mechanisms.source import SecureRandom
    from langchain_dpicl.release.flow import Flow


class RetrievingSource(TermedSource):
    """Embeds a question and draws from an index, a `search.ShardSearch`.

    A subclass sets `_terms` and `_random` when it is made, and says where documents
    come from. Its `_index` may be another one at any time: a draw reads it once.

    Privacy:
        See `RetrievalTerms.relation` for what one unit changes, and `drawing` for who
        pays.
    """

    _terms: RetrievalTerms
    _random: SecureRandom

    @property
    @abstractmethod
    def _embedding(self) -> Embeddings:
        """What questions are embedded with."""

    @property
    @abstractmethod
    def _index(self) -> ShardSearch:
        """What is searched."""

    @property
    def n_units(self) -> int:
        """Number of units, private: for the operator and the check of delta."""
        return self._index.n_units

    @property
    def charges_units(self) -> bool:
        """Whether a draw can charge each eligible unit: with a threshold, it can.

        Privacy:
            The promise of `GroupSource.charges_units` is kept by `drawing.draw_slots`.
        """
        return self._terms.score_threshold is not None

    @property
    def threshold_template(self) -> EventTemplate[GaussianNoise] | None:
        """The choice of a threshold, with a `NoisyThreshold`; else None."""
        terms = self._terms.score_threshold
        return terms.event_template() if isinstance(terms, NoisyThreshold) else None

    def prepare(self, question: str) -> PreparedQuestion:
        """Embed the question; the public half of a draw.

        Args:
            question: The public question.

        Returns:
            Its vector, and the threshold of the groups.

        Raises:
            InvalidParameterError: If the question is no text, or its vector is zero,
                not finite, or of another dimension than the index.
        """
        return result(self._preparing(question))

    async def aprepare(self, question: str) -> PreparedQuestion:
        """Embed the question; the async twin of `prepare`."""
        return await aresult(self._preparing(question))

    def release_threshold(
        self,
        prepared: Any,
        *,
        paid: PaidCharge[Any],
        charge_units: ChargeUnits | None = None,
    ) -> ThresholdRelease:
        """Choose the threshold for a question, with a `NoisyThreshold`.

        Args:
            prepared: What `prepare` returned.
            paid: What was charged for `threshold_template`.
            charge_units: Charges units, under a per-unit account: called once for each
                bin of scores that is counted, from the top down.

        Returns:
            The question with its threshold, and for the record `score_threshold` and
            `noisy_units`, the noisy number of units that reach it.

        Raises:
            InvalidParameterError: If the groups have a threshold already, or an
                argument cannot be used.
            LedgerError: If `charge_units` does not answer for each unit.

        Privacy:
            See `groups.threshold`; the noise is z = `paid.noise.noise_multiplier`.
        """
        if self.threshold_template is None:
            return super().release_threshold(
                prepared, paid=paid, charge_units=charge_units
            )
        index = self._index
        asked = check_prepared(prepared, self._terms, index)
        return refine_question(
            index, asked, paid=paid, charge_units=charge_units, random=self._random
        )

    def draw_prepared(
        self, prepared: Any, *, charge_units: ChargeUnits | None = None
    ) -> list[list[Document]]:
        """Search; the private half of a draw.

        Args:
            prepared: What `prepare` returned; with a `NoisyThreshold`, what
                `release_threshold` made of it.
            charge_units: Charges units, under a per-unit account; see `charges_units`.
                It is called once, with the ids of all eligible units in their own
                order, also when there are none.

        Returns:
            The slots. By shard: `n_groups` of them, shard by shard, empty where
            nothing passes. By unit: one for each eligible unit (at most
            `max_groups`), in random order. The documents are copies.

        Raises:
            InvalidParameterError: If `prepared` is something else, or a `charge_units`
                comes to groups without a threshold.
            LedgerError: If `charge_units` does not answer for each unit.
        """
        self._check_charging(charge_units)
        # Read once: the whole draw sees one snapshot, whoever writes meanwhile.
        index = self._index
        asked = check_prepared(prepared, self._terms, index)
        slots = draw_slots(
            index, asked, self._terms, charge_units=charge_units, random=self._random
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
