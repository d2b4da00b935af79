"""A noisy vote over public labels: the noise, and when its winner is an answer.

The noise is `mechanisms.voting`. Everything else here reads the histogram that it has
released, or public numbers: it is post-processing, and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

from langchain_dpicl.accounting import Gaussian
from langchain_dpicl.budget import Paid
from langchain_dpicl.common.units import Relation
from langchain_dpicl.mechanisms import voting
from langchain_dpicl.mechanisms.voting import OTHER_BINS, lead_over_a_tie, least_votes
from langchain_dpicl.release.record import (
    CALLS_FAILED,
    NO_LEAD,
    UNREADABLE,
    Outcome,
    Status,
)

NONE = "more groups chose none of these than any one option"
"""The reason when the groups themselves say that nothing should be released."""

BINS = ("noisy_none", "noisy_unreadable", "noisy_failed")
"""The bins that are no labels, as a record names them."""


def voted(
    counts: Sequence[int],
    labels: Sequence[str],
    *,
    paid: Paid,
    relation: Relation,
    min_lead: Callable[[float], float] | None = None,
    none: str = NONE,
) -> Outcome:
    """Draw the noise of a vote and return the label that it releases, if it does.

    Args:
        counts: Votes of the labels, then of the bins that are none. Private.
        labels: The public labels.
        paid: The charge.
        relation: How neighboring slots differ.
        min_lead: From the noise's deviation to the least lead over every other label;
            None: 0.
        none: The reason where most chose none of them.
    """
    event = cast("Gaussian", paid.events[0])
    noisy = voting.noisy_counts(counts, event, relation).tolist()
    votes, others = noisy[:-OTHER_BINS], noisy[-OTHER_BINS:]
    sigma = voting.sigma(event, relation)
    lead = 0.0 if min_lead is None else min_lead(sigma)
    winner, confidence, reason = verdict(
        votes, others, sigma=sigma, min_lead=lead, none=none
    )
    details = {
        "noisy_votes": dict(zip(labels, votes, strict=True)),
        **dict(zip(BINS, others, strict=True)),
        "confidence": confidence,
    }
    if winner is None:
        return Outcome(Status.FALLBACK, details={**details, "reason": reason})
    return Outcome(Status.RELEASED, labels[winner], details=details)


def verdict(
    noisy: Sequence[int],
    others: Sequence[int],
    *,
    sigma: float,
    min_lead: float,
    none: str = NONE,
) -> tuple[int | None, float, str]:
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

    Returns:
        The place of the label that is released, or None; by how many deviations of the
        noise the first bin leads the second one (labels are bins, and so are the three
        others); and why nothing is released, if nothing is.

    Example:
        >>> verdict([40, 3], [9, 0, 2], sigma=4.0, min_lead=11)
        (0, 5.48, '')
        >>> verdict([4, 3], [49, 0, 2], sigma=4.0, min_lead=11)[2]
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
    return winner, confidence, reason
