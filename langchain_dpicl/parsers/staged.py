"""Parsers whose release is a noisy sum over the slots, and a public reading of it.

Such a release can be made block by block: each block's sum has its own noise, and the
sums so far decide whether another block is asked. If all slots are asked at once, they
are one block.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from langchain_dpicl.accounting.template import NoiseT
from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.common.outcome import Outcome
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.mechanisms.stages import Asked
from langchain_dpicl.parsers.base import DPOutputParser
from langchain_dpicl.release.flow import Flow, result


@dataclass(frozen=True)
class Said:
    """What noisy sums say. Public.

    Attributes:
        outcome: What is released if no further block is asked.
        lead: By how many deviations the first bin, or candidate, leads the others; see
            `mechanisms.stages`.
        is_answer: Whether the outcome says something that a clear lead settles: an
            answer that meets all of its rules, or that the records do not tell.
    """

    outcome: Outcome
    lead: float = 0.0
    is_answer: bool = False


class StagedOutputParser(DPOutputParser[NoiseT]):
    """Base of the parsers that may be asked in stages.

    Privacy:
        `noisy` makes the release: of one block of slots, or of all, with the charged
        noise in full. `said` is post-processing of what it made. That several blocks
        cost what one release costs is proven in `mechanisms.stages`.
    """

    @property
    def has_stages(self) -> bool:
        """Whether what is released is a noisy sum."""
        return True

    @property
    def lets_ties_out(self) -> bool:
        """Whether one of two answers with the same votes always comes out."""
        return True

    @abstractmethod
    def noisy(
        self,
        slots: Sequence[Slot],
        *,
        paid: PaidCharge[NoiseT],
        relation: Relation,
        slot_count: int,
        prepared: Any,
    ) -> Flow[NDArray[np.float64]]:
        """Release the noisy sum of some slots. Private in, private by noise out.

        Args:
            slots: One per group, in any order.
            paid: The charge, with the mechanism's noise.
            relation: How neighboring slots differ.
            slot_count: The public number of groups that were asked, to which further
                calls are padded.
            prepared: What `prepare` returned.
        """

    @abstractmethod
    def said(
        self,
        noisy: NDArray[np.float64],
        *,
        asked: Asked,
        paid: PaidCharge[NoiseT],
        relation: Relation,
        prepared: Any,
    ) -> Said:
        """Return what a noisy sum says. Public.

        Args:
            noisy: The sum of what `noisy` released for the blocks asked so far.
            asked: Which part of the slots that is.
            paid: The charge, with the noise of one block.
            relation: How neighboring slots differ.
            prepared: What `prepare` returned.
        """

    @override
    def release(
        self,
        slots: Sequence[Slot],
        *,
        paid: PaidCharge[NoiseT],
        relation: Relation,
        slot_count: int,
        prepared: Any,
    ) -> Outcome:
        """Release what all slots say together."""
        terms: dict[str, Any] = {
            "paid": paid,
            "relation": relation,
            "prepared": prepared,
        }
        noisy = result(self.noisy(slots, slot_count=slot_count, **terms))
        return self.said(noisy, asked=Asked.whole(slot_count), **terms).outcome
