"""Parsers whose release is a noisy sum over the slots, and a public reading of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from langchain_dpicl.accounting.template import NoiseT
from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.common.outcome import Outcome
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.parsers.base import DPOutputParser
from langchain_dpicl.release.flow import Flow, result


class NoisySumOutputParser(DPOutputParser[NoiseT]):
    """Base of the parsers that release a noisy sum, and read it in public.

    Privacy:
        `noisy` makes the release, with the charged noise. `said` is post-processing of
        what it made.
    """

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
        """Release the noisy sum of the slots. Private in, private by noise out.

        Args:
            slots: One per group, in any order.
            paid: The charge, with the mechanism's noise.
            relation: How neighboring slots differ.
            slot_count: The public number of groups, to which further calls are padded.
            prepared: What `prepare` returned.
        """

    @abstractmethod
    def said(
        self,
        noisy: NDArray[np.float64],
        *,
        paid: PaidCharge[NoiseT],
        relation: Relation,
        slot_count: int,
        prepared: Any,
    ) -> Outcome:
        """Return what a noisy sum says. Public.

        Args:
            noisy: What `noisy` released.
            paid: The charge, with the noise.
            relation: How neighboring slots differ.
            slot_count: The public number of groups.
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
            "slot_count": slot_count,
            "prepared": prepared,
        }
        return self.said(result(self.noisy(slots, **terms)), **terms)
