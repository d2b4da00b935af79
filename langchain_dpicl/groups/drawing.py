"""A draw by retrieval, from a prepared question to slots: who is eligible, who paid.

Written against `search.ShardSearch` alone, so that it is the same for every index.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from langchain_dpicl.exceptions import InvalidParameterError
from langchain_dpicl.groups.base import ThresholdRelease
from langchain_dpicl.groups.paying import payers
from langchain_dpicl.groups.selection import lowest
from langchain_dpicl.groups.threshold import NoisyThreshold, choose_threshold

if TYPE_CHECKING:
    from langchain_core.documents import Document

    from langchain_dpicl.budget import PaidCharge
    from langchain_dpicl.common.units import ChargeUnits
    from langchain_dpicl.groups.ingest import Vectors
    from langchain_dpicl.groups.search import ShardSearch
    from langchain_dpicl.groups.terms import RetrievalTerms
    from langchain_dpicl.mechanisms.noise import GaussianNoise
    from langchain_dpicl.mechanisms.source import SecureRandom


@dataclass(frozen=True, eq=False)
class PreparedQuestion:
    """What `RetrievedGroups.prepare` makes of a question. Public throughout."""

    vector: Vectors
    """The question's vector, scaled to norm 1, shape (1, dimension)."""

    threshold: float | NoisyThreshold | None
    """The threshold, or how it is going to be chosen; None: none."""


def check_prepared(
    prepared: Any, terms: RetrievalTerms, index: ShardSearch
) -> PreparedQuestion:
    """Return a prepared question, refusing what these groups have not prepared.

    Raises:
        InvalidParameterError: If so.
    """
    if (
        not isinstance(prepared, PreparedQuestion)
        or not isinstance(prepared.vector, np.ndarray)
        or prepared.vector.shape != (1, index.dimension)
        or not _fits(prepared.threshold, terms.score_threshold)
    ):
        raise InvalidParameterError(
            "draw_prepared() and release_threshold() take what prepare(question) of "
            "these groups returned, or what release_threshold() made of it."
        )
    return prepared


def refine_question(
    index: ShardSearch,
    asked: PreparedQuestion,
    *,
    paid: PaidCharge[GaussianNoise],
    charge_units: ChargeUnits | None,
    random: SecureRandom,
) -> ThresholdRelease:
    """Choose the threshold for a question; see `RetrievedGroups.release_threshold`."""
    terms = asked.threshold
    if not isinstance(terms, NoisyThreshold):
        raise InvalidParameterError(
            "This question has its threshold already; release_threshold() takes what "
            "prepare(question) returned."
        )
    chosen = choose_threshold(
        index.eligible(asked.vector, terms.bins[-1]),
        terms,
        noise_multiplier=paid.noise.noise_multiplier,
        charge_units=charge_units,
        random=random,
    )
    return ThresholdRelease(replace(asked, threshold=chosen.edge), chosen.details())


def draw_slots(
    index: ShardSearch,
    asked: PreparedQuestion,
    terms: RetrievalTerms,
    *,
    charge_units: ChargeUnits | None,
    random: SecureRandom,
) -> list[list[Document]]:
    """Return the slots of a draw, of the index's own documents.

    Args:
        index: One snapshot for the whole draw.
        asked: The question, with its threshold.
        terms: The public parameters.
        charge_units: Charges the eligible units; see `RetrievedGroups.draw_prepared`.
        random: Source of the random subset under `max_groups`.

    Raises:
        InvalidParameterError: If the threshold is still to be chosen.
        LedgerError: If `charge_units` does not answer for each unit.

    Privacy:
        Relation: see `RetrievalTerms.relation`, for the corpus of the units that paid.
        With a `charge_units`, eligibility to pay is a function of the unit's own
        documents, the question and the threshold. All eligible units are asked, before
        anything is ranked, sampled or capped; the slots are then made of the payers'
        documents alone. A unit that can't pay therefore changes nothing, and one that
        can has paid for the one slot that it changes.
    """
    threshold = asked.threshold
    if isinstance(threshold, NoisyThreshold):
        raise InvalidParameterError(
            "The threshold for this question is still to be chosen: draw from "
            "release_threshold(prepared, paid=...).prepared, once `threshold_template` "
            "is charged."
        )
    by_shard = terms.grouping == "shard"
    if threshold is None or (by_shard and charge_units is None):
        # Everybody counts: a shard's best can be found without finding all that pass.
        return index.top(asked.vector, terms.docs_per_group, threshold)
    found = index.eligible(asked.vector, threshold)
    paid = payers(found, np.arange(len(found.scores)), charge_units)
    if by_shard:
        return found.by_shard(paid, terms.docs_per_group)
    priorities = random.words(len(paid)).tolist()
    chosen = lowest(priorities, found.unit_ids(paid), terms.max_groups)
    return found.by_unit(paid[chosen], terms.docs_per_group)


def _fits(threshold: Any, own: float | NoisyThreshold | None) -> bool:
    if isinstance(own, NoisyThreshold) and isinstance(threshold, float):
        return threshold in own.bins
    return bool(threshold == own)
