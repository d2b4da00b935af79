"""When the winner of a noisy vote is an answer, and when it is noise.

Everything here reads a histogram that a Gaussian mechanism has released already, or
public numbers: it is post-processing, and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from langchain_dpicl.mechanisms import least_votes
from langchain_dpicl.mechanisms.voting import NOBODY

NONE = "most groups chose none of the labels"
"""The reason when the groups themselves say that nothing should be released."""


@dataclass(frozen=True)
class Verdict:
    """What a noisy vote says.

    Attributes:
        winner: The place of the label that is released; None if none is.
        confidence: By how many deviations of the noise the first bin leads the second
            one, the bin of "none of these" among them.
        lead: By how many votes the first bin leads the second one.
        reason: Why nothing is released, if nothing is.
    """

    winner: int | None
    confidence: float
    lead: float
    reason: str = ""


def verdict(
    noisy: Sequence[float],
    none: float,
    *,
    sigma: float,
    min_lead: float,
    over_none: float,
    looks: int = 1,
    prior: Sequence[float] = (),
) -> Verdict:
    """Return the label that a noisy vote releases, if it releases one.

    Args:
        noisy: Noisy votes of the labels.
        none: Noisy number of the groups that chose none of them.
        sigma: Standard deviation of the noise of one count, of all blocks together.
        min_lead: Least noisy lead over every other label.
        over_none: Least noisy lead over "none of them".
        looks: How often noisy votes may be read before one is released.
        prior: Public votes for the labels. They decide which label leads the others,
            and by how much. Whether groups chose a label, and not none, is decided
            without them.

    Example:
        >>> verdict([40.2, 3.1], 9.0, sigma=4.0, min_lead=11.0, over_none=9.0).winner
        0
        >>> verdict([4.2, 3.1], 49.0, sigma=4.0, min_lead=11.0, over_none=9.0).reason
        'most groups chose none of the labels'
    """
    all_votes = [a + b for a, b in zip(noisy, prior or [0] * len(noisy), strict=True)]
    best = max(range(len(noisy)), key=all_votes.__getitem__)
    others = [*all_votes[:best], *all_votes[best + 1 :]]
    lead = all_votes[best] - max(others, default=-math.inf)
    ahead = noisy[best] - none
    first = abs(min(lead, ahead))
    least = least_votes(sigma, len(noisy), looks)
    said = Verdict(None, round(first / (sigma * math.sqrt(2)), 2), lead=first)
    if none >= max(noisy[best], least):
        return replace(said, reason=NONE)
    if noisy[best] < least:
        return replace(said, reason="too few groups chose a label")
    if lead < min_lead or ahead < over_none:
        return replace(said, reason="no label leads the others by enough")
    return replace(said, winner=best)


def nobody_score(epsilon: float, labels: int) -> float:
    """Return the public score that "nobody" has in permute-and-flip.

    Permute-and-flip is the argmax of the scores plus exponential noise of scale 2 /
    epsilon. With no vote at all, one given label beats this score with probability
    exp(-epsilon score / 2) / 2, and any of them in `NOBODY` of cases at most.

    Args:
        epsilon: Of the release.
        labels: How many labels there are.
    """
    return 2 / epsilon * math.log(labels / (2 * NOBODY))
