"""Asking in stages: a noisy sum that is released block by block, until it is clear.

The m slots of a question stand at m public places, and one unit reaches the slot of one
place. The places are cut into B blocks (`blocks`). Each block has a vector of its own:
the histogram of its slots' votes (`voting.py`), or the sum of its slots' rows
(`embedding.py`). Call them v_1, ..., v_B. Block j is released as Y_j = v_j + N(0, (z
Delta)^2 I), with the whole noise of a release of everything. After each block a public
rule reads Y_1, ..., Y_j, and stops or has block j + 1 asked. What comes out is made of
the Y that were released, above all of their sum.

1. *Sensitivity.* Side by side the blocks are one vector v = (v_1, ..., v_B). One unit
   changes one slot, which stands in one block: one v_j moves by Delta at most, in L2,
   and no other moves. So v moves by Delta: 1 or sqrt(2) for votes, R or 2 R for rows.
2. *Noise.* That of a block has the scale z Delta in each entry, and blocks have
   independent noise. So Y = (Y_1, ..., Y_B) is v + N(0, (z Delta)^2 I). Noise of
   z Delta / sqrt(B) a block, so that the sum has z Delta, would be for a unit that is
   spread over all blocks; one that stands in one of them would pay Gaussian(z /
   sqrt(B)).
3. *Event.* Y is a Gaussian mechanism of noise multiplier z, whatever B is. The release
   is Y_1, ..., Y_T. The number T follows from the blocks released before, so all of it
   is a function of Y: post-processing. The templates of `voting.py` and `embedding.py`
   price it unchanged.
   This needs that a block is asked in the same way, if it is asked, whatever came
   before. It is parallel composition [McSherry 2009] in which each block may be chosen
   by the releases of those before it.

   *Sampling.* One sample of the units serves all blocks, of Poisson or of fixed size.
   Given the sample, and the place that each of its units has by its own id or its own
   randomness, the above holds: Y takes the place of the release in the argument for the
   sample, and the event is the sampled Gaussian (z, q). With a sample for each block a
   unit could stand in two, and would have a coin for each.

   *Places.* A unit more must move no other slot to another place: across the border of
   two blocks it would change both. See `GroupSource.keeps_places`.

   *One draw.* A block that is drawn again under the same charge, after its lead could
   be seen, is a second release. So no question is drawn for again.

What follows is public arithmetic on what was released. The sum over j blocks has noise
of sqrt(j) deviations. A rule that is applied at each of B looks holds for all of them
together with a share of 1 - (1 - a)^(1/B) at each in place of a, whatever the looks
have in common [Sidak 1967, for the two-sided rule; Slepian 1962, for the one-sided one,
since sums of more and more blocks are positively correlated].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from langchain_dpicl.mechanisms.voting import lead_over_a_tie


@dataclass(frozen=True)
class Asked:
    """How much of the groups a sum is made of. Public.

    Attributes:
        slots: How many places have been asked.
        of_slots: How many places there are.
        stages: In how many blocks, each with noise of its own.
        of_stages: How many blocks there are: so often may a rule be applied.
    """

    slots: int
    of_slots: int
    stages: int = 1
    of_stages: int = 1

    @classmethod
    def whole(cls, slots: int) -> Asked:
        """Return that all have been asked at once."""
        return cls(slots, slots)

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left to be asked."""
        return self.slots >= self.of_slots

    def noise(self, sigma: float) -> float:
        """Return the deviation of the summed noise, where that of one block is sigma.

        Example:
            >>> Asked(50, 100, stages=2, of_stages=4).noise(3.0) == 3.0 * 2**0.5
            True
        """
        return sigma * math.sqrt(self.stages)

    def deviation(self, sigma: float, most: float = 1.0) -> float:
        """Return the deviation of a lead, out of a tie among all slots.

        It is that of the summed noise and of the slots that happened to be asked first.
        With a total of zero over N slots, of which each has d_i, |d_i| <= most, a sum
        over n of them, drawn at random, has the variance n (N - n) / (N - 1) times the
        mean of d_i^2: n (N - n) / (N - 1) * most^2 at most. Places are as good as drawn
        at random: a unit's place follows from a keyed hash, or from a fresh draw.

        Args:
            sigma: Deviation of one block's noise in the lead.
            most: How much one slot adds to the lead, or takes from it, at most.

        Example:
            >>> round(Asked(25, 100, stages=1, of_stages=4).deviation(4.0), 2)
            5.91
        """
        left = self.of_slots - self.slots
        # Of one slot there is no part.
        part = most**2 * self.slots * left / max(self.of_slots - 1, 1)
        return math.hypot(self.noise(sigma), math.sqrt(part))


def blocks(slots: int, stages: int) -> tuple[range, ...]:
    """Return the places of each block: public, nearly equal, each place in one of them.

    Example:
        >>> [len(block) for block in blocks(10, 4)]
        [2, 3, 2, 3]
    """
    edges = [slots * stage // stages for stage in range(stages + 1)]
    return tuple(range(*pair) for pair in pairwise(edges))


def usual_stop(stages: int, *, lets_ties_out: bool = False) -> float:
    """Return the deviations by which a lead is clear.

    Of two answers with the same votes among all slots one comes out in about 5 % of
    questions at most, over all looks together. Where one comes out anyhow, at the last
    look, it is enough that at each look an answer comes out that has fewer votes in all
    than another one in about 5 % of questions at most.

    Example:
        >>> [round(usual_stop(stages), 2) for stages in (1, 2, 4, 10)]
        [1.96, 2.24, 2.49, 2.8]
        >>> round(usual_stop(4, lets_ties_out=True), 2)
        1.65
    """
    if lets_ties_out:
        return lead_over_a_tie(1.0, labels=1) / math.sqrt(2)
    return lead_over_a_tie(1.0, looks=stages) / math.sqrt(2)
