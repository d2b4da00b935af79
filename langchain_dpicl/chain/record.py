"""The public record that every answer carries in `response_metadata["privacy"]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_dpicl.accounting.events import HOLES
from langchain_dpicl.budget import PaidCharge, PrivacyBudgetHandler
from langchain_dpicl.common.outcome import Outcome, Status
from langchain_dpicl.groups import GroupSource
from langchain_dpicl.parsers import DPOutputParser
from langchain_dpicl.release.record import NEIGHBORS, release_record


def privacy_record(
    *,
    status: Status,
    parser: DPOutputParser,
    groups: GroupSource,
    budget: PrivacyBudgetHandler,
    outcome: Outcome,
    charges: Sequence[PaidCharge] = (),
    details: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what may be known about an answer, as JSON-able values.

    Args:
        status: How the answer came about.
        parser: The mechanism.
        groups: The group source.
        budget: The account's handler.
        outcome: The mechanism's output.
        charges: What was charged, in order; the last one is the mechanism's.
        details: What was released besides, before the mechanism's output.

    Returns:
        `status`, `mechanism`, `parameters`, `keywords`, `ranking` and `details` of the
        release, `unit_key`, `relation`, `groups`, the `events` of this query, and the
        `account` with its epsilon at delta after it. Everything is public or
        differentially private output.
    """
    parameters = parser.public_parameters()
    last = charges[-1] if charges else None
    for event in last.events if last else ():
        parameters.update(event.model_dump(include=set(HOLES.values())))
    return release_record(
        kind="answer",
        status=status.value,
        mechanism=parser.charge(groups.sampling_rate).name,
        parameters=parameters,
        unit=f"all records with the same {groups.unit_key!r}",
        unit_key=groups.unit_key,
        relation=groups.relation.value,
        neighbors=NEIGHBORS,
        events=[event for paid in charges for event in paid.events],
        charge=last.sequence if last else None,
        account=budget.public_state(last),
        random=parser.random,
        keywords=list(outcome.keywords),
        ranking=list(outcome.ranking),
        details={**(details or {}), **outcome.details},
        groups=groups.description,
    )
