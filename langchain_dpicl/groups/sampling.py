"""A secret sample of units, drawn afresh for each draw, before anything is searched.

Private-kNN (Zhu, Yu, Chandraker, Wang 2020) samples before the neighbors are searched,
for labels of images. The order matters: in a search over everybody, sampled afterwards,
a unit that is not in the sample could change who else is found.

Privacy:
    *Unit and relation.* What one value of `unit_key` names; the slots of the sampled
    units differ as `RetrievalTerms.relation` says. *Event.* The mechanism's own, on a
    sample of units at the rate q.

    Each unit tosses a coin of its own. Fix everybody else's coins, and let
    A be what is released of the slots of the sampled others, B the same with the unit
    among them: its slot holds other documents (or is one more), no other slot changes.
    Without the unit the release is A; with it, (1 - q) A + q B. That is the
    Poisson-subsampled mechanism, whatever the search does with the sampled units, and
    averaging over the others' coins can only lower a divergence (joint convexity).

    In a per-unit account every eligible unit pays, sampled or not: nobody knows who was
    in a sample, and the account does not either. A sample serves one charged release:
    two mechanisms on one sample are not two sampled mechanisms.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from langchain_dpicl.common import parameters
from langchain_dpicl.groups.selection import poisson_sample

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from langchain_dpicl.mechanisms.random import SecureRandom

_WORD_BITS = 64


@dataclass(frozen=True, repr=False, eq=False)
class UnitSample:
    """The sample of one draw: each unit is in with probability `rate`, by itself.

    An index in this process tosses them (`places`). A store that searches by itself
    takes the units that the sample `holds`: those of which SHA-256 of the nonce and the
    *canonical* id begins with eight bytes below `bound`. The nonce is for all calls of
    one draw.

    Privacy:
        The sample and the nonce are secret, and are forgotten with the draw: this
        library puts them into no record, log, key or error. A hash behind a secret
        nonce of 128 bits is taken for independent coins (a pseudorandom function). No
        rate is exceeded: `bound` is rounded down.
    """

    rate: float
    random: SecureRandom

    def places(self, n: int) -> NDArray[np.int64]:
        """Return which of n units are in a sample, ascending; call it once a draw."""
        return poisson_sample(self.random, n, self.rate)

    @cached_property
    def nonce(self) -> bytes:
        """128 secret bits, the same for all calls of one draw."""
        return self.random.words(2).tobytes()

    def holds(self, unit_id: str) -> bool:
        """Return whether a unit is in a sample by nonce, by its canonical id."""
        named = self.nonce + unit_id.encode("utf-8", "surrogatepass")
        return hashlib.sha256(named).digest()[: _WORD_BITS // 8] < self.bound

    @property
    def bound(self) -> bytes:
        """The least eight bytes, big-endian, that are not in the sample."""
        return int(self.rate * 2.0**_WORD_BITS).to_bytes(_WORD_BITS // 8, "big")


def rate_for(
    people_per_question: float, n_groups: int, people_per_group: float = 2
) -> float:
    """Return the rate at which groups hold as many people as wanted; see the method."""
    people = parameters.positive("people_per_question", people_per_question)
    groups = parameters.count(n_groups, "n_groups")
    size = parameters.positive("people_per_group", people_per_group)
    return min(1.0, groups * size / people)
