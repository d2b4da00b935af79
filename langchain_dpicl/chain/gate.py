"""The public-first gate: where the groups agree with the model, the model's word goes.

Many questions need no record: the model answers them alone, and the groups would say
the same. Then it is enough to learn *that* they agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from langchain_dpicl import mechanisms
from langchain_dpicl.accounting import EventTemplate
from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.common import parameters
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.mechanisms import GaussianNoise, SecureRandom
from langchain_dpicl.parsers.base import PublicAnswer
from langchain_dpicl.sealed import attempt

MECHANISM = "gate/threshold"


@dataclass(frozen=True)
class PublicFirstGate:
    """Release the public answer where enough groups agree with it.

    The test is much cheaper than a release, because its noise may be large: it only has
    to tell a clear agreement from none. Where it fails, the query goes on to the
    parser's own release, which is charged in full.

    Args:
        agreement: The share of the groups that must agree, after noise. Half of them
            or more makes a vote's majority certain, up to the noise.
        noise_multiplier: z of the test, in groups; None leaves it to the budget.
        share: With noise left to the budget, the price of the test in queries.

    Raises:
        InvalidParameterError: If an argument is out of its range.

    Privacy:
        Unit and relation: the group source's. Sensitivity, noise and event:
        `mechanisms.agreement`, Gaussian(z, q), charged before the groups are asked.
        The public answer is fixed before any record is read; a slot agrees with it by
        a public rule about its own answer alone. Agreement releases the public answer,
        which is post-processing of the test's one bit; disagreement releases that bit,
        and what follows is charged by
        itself, which a filter allows and a plan of equal releases does not. In a
        per-unit account the groups are drawn and asked again for the second charge,
        among those units that pay it; with sampled groups on a fresh sample.

    Example:
        >>> PublicFirstGate(agreement=0.6).event_template(1.0).mechanism
        'gate/threshold'
    """

    agreement: float = 0.5
    noise_multiplier: float | None = None
    share: float = 0.1

    def __post_init__(self) -> None:
        parameters.positive("agreement", self.agreement)
        parameters.positive("share", self.share)
        if self.noise_multiplier is not None:
            parameters.noise_multiplier(self.noise_multiplier)
        if self.agreement > 1 or self.share > 1:
            raise InvalidParameterError("agreement and share must be at most 1.")

    def event_template(self, sampling_rate: float) -> EventTemplate[GaussianNoise]:
        """Return what one test is charged."""
        return mechanisms.agreement_template(
            MECHANISM,
            self.noise_multiplier,
            sampling_rate=sampling_rate,
            share=self.share,
        )

    def passes(
        self,
        slots: Sequence[Slot],
        answer: PublicAnswer,
        *,
        paid: PaidCharge[GaussianNoise],
        relation: Relation,
        slot_count: int,
        random: SecureRandom | None = None,
    ) -> bool:
        """Release whether enough slots agree. Private in, one charged bit out."""
        count = sum(
            1
            for slot in slots
            if slot.text is not None and attempt(partial(answer.agrees, slot.text))
        )
        return mechanisms.exceeds(
            count,
            math.ceil(self.agreement * slot_count),
            noise_multiplier=paid.noise.noise_multiplier,
            relation=relation,
            random=random,
        )

    def public_parameters(self) -> dict[str, Any]:
        """Return the parameters for an answer's record and for its cache key."""
        return {
            "agreement": self.agreement,
            "noise_multiplier": self.noise_multiplier,
            "share": self.share,
        }
