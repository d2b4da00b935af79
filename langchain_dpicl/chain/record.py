"""The public record that every answer carries in `response_metadata["privacy"]`."""

from __future__ import annotations

from typing import Any

from langchain_dpicl.budget import Paid, PrivacyBudgetHandler
from langchain_dpicl.common.outcome import Outcome, Status
from langchain_dpicl.groups import GroupSource
from langchain_dpicl.parsers import DPOutputParser
from langchain_dpicl.release.record import (
    NEIGHBORS,
    noise_of,
    paid_part,
    release_record,
)


def record_terms(parser: DPOutputParser, groups: GroupSource) -> dict[str, Any]:
    """Return an answer's record as far as it is known before the charge.

    Args:
        parser: The mechanism.
        groups: The group source.
    """
    return release_record(
        kind="answer",
        status=Status.RELEASED.value,
        mechanism=parser.charge(groups.sampling_rate).name,
        parameters=parser.public_parameters(),
        unit=f"all records with the same {groups.unit_key!r}",
        unit_key=groups.unit_key,
        relation=groups.relation.value,
        neighbors=NEIGHBORS,
        random=parser.random,
        keywords=[],
        ranking=[],
        details={},
        groups=groups.description,
    )


def privacy_record(
    *,
    status: Status,
    terms: dict[str, Any],
    budget: PrivacyBudgetHandler,
    outcome: Outcome,
    paid: Paid | None,
) -> dict[str, Any]:
    """Return what may be known about an answer, as JSON-able values.

    Args:
        status: How the answer came about.
        terms: What was known before the charge; see `record_terms`.
        budget: The account's handler.
        outcome: The mechanism's output.
        paid: What paid for it; None where public input decided it.

    Returns:
        `status`, `mechanism`, `parameters`, `keywords`, `ranking` and `details` of the
        release, `unit_key`, `relation`, `groups`, the `events` of this query, and the
        `account` with its epsilon at delta after it. Everything is public or
        differentially private output. An answer that is given again has no events: its
        `details.first` names the charge that paid for it.
    """
    record = {
        **terms,
        "status": status.value,
        "account": budget.public_state(),
        "keywords": list(outcome.keywords),
        "ranking": list(outcome.ranking),
        "details": {**terms["details"], **outcome.details},
    }
    if paid is None:
        return record
    record["parameters"] = {**terms["parameters"], **noise_of(paid.events)}
    if paid.is_again:
        first = {"status": status.value, "charge": paid.charge}
        record["details"]["first"] = first
        if status is Status.RELEASED:
            record["status"] = Status.CACHED.value
        return record
    return {**record, **paid_part(budget, paid.stored)}
