"""When the winner of a noisy vote is an answer, and when it is noise.

Everything here reads a histogram that a Gaussian mechanism has released already, or
public numbers: it is post-processing, and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from langchain_dpicl.common.outcome import CALLS_FAILED, NO_LEAD, UNREADABLE
from langchain_dpicl.mechanisms.voting import lead_over_a_tie, least_votes

NONE = "more groups chose none of these than any one option"
"""The reason when the groups themselves say that nothing should be released."""


@dataclass(frozen=True)
class Verdict:
    """What a noisy vote says.

    Attributes:
        winner: The place of the label that is released; None if none is.
        confidence: By how many deviations of the noise the first bin leads the second
            one. Labels are bins, and so are "none of these", unreadable replies and
            failed calls.
        reason: Why nothing is released, if nothing is.
    """

    winner: int | None
    confidence: float
    reason: str = ""


def verdict(
    noisy: Sequence[int],
    others: Sequence[int],
    *,
    sigma: float,
    min_lead: float,
    none: str = NONE,
) -> Verdict:
    """Return the label that a noisy vote releases, if it releases one.

    A label comes out if noise alone does not reach its votes, if it leads every other
    label by `min_lead`, and if it leads the three other bins by `min_lead` and by what
    a label reaches out of a tie with one of them in 5 % of questions. One of the three
    is the reason why no label comes out if it is clear in the same way.

    Args:
        noisy: Noisy votes of the labels.
        others: Noisy numbers of the groups that chose none of them, of those whose
            reply could not be read, and of those whose call failed.
        sigma: Standard deviation of the noise of one count.
        min_lead: Least noisy lead over every other label.
        none: The reason where most chose none of them.

    Example:
        >>> verdict([40, 3], [9, 0, 2], sigma=4.0, min_lead=11).winner
        0
        >>> verdict([4, 3], [49, 0, 2], sigma=4.0, min_lead=11).reason
        'more groups chose none of these than any one option'
    """
    best = max(range(len(noisy)), key=noisy.__getitem__)
    rivals = [*noisy[:best], *noisy[best + 1 :]]
    lead = noisy[best] - max(rivals, default=-math.inf)
    other, second, _ = sorted(range(len(others)), key=others.__getitem__)[::-1]
    ahead = noisy[best] - others[other]
    behind = others[other] - max(others[second], *noisy)
    first = min(lead, ahead) if ahead >= 0 else max(behind, 0.0)
    least = least_votes(sigma, len(noisy))
    tie = lead_over_a_tie(sigma, labels=1)
    winner, reason = None, NO_LEAD
    if noisy[best] >= least and lead >= min_lead and ahead >= max(min_lead, tie):
        winner, reason = best, ""
    elif others[other] >= least and behind >= tie:
        reason = (none, UNREADABLE, CALLS_FAILED)[other]
    confidence = round(first / (sigma * math.sqrt(2)), 2)
    return Verdict(winner, confidence, reason)


def noisy_others(others: Sequence[int]) -> dict[str, int]:
    """Return the noisy counts of the bins that are no labels, for a record."""
    names = ("noisy_none", "noisy_unreadable", "noisy_failed")
    return dict(zip(names, others, strict=True))
