"""What is checked before an account is charged, and what a charge then allows."""

from __future__ import annotations

from dataclasses import dataclass, field

from langchain_dpicl.accounting import Charge, Cost, Event
from langchain_dpicl.common.units import ChargeUnits
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.ledger import AccountTerms
from langchain_dpicl.ledger.base import NOTHING


@dataclass(frozen=True)
class PaidCharge:
    """One charge, and the events that its release must use, and no others.

    Attributes:
        events: What was charged, in the order of the charge's parts: what the
            release's mechanism takes.
        account: The account that paid.
        sequence: The charge's number on that account.
        spent: What the account's charges cost together, this one included.
        charge_units: In a per-unit account, what charges the units that take part: the
            group source calls it in the sealed region. None where everybody paid.
    """

    events: tuple[Event, ...]
    account: str
    sequence: int
    spent: Cost = NOTHING
    charge_units: ChargeUnits | None = field(default=None, compare=False, repr=False)


def require_charge(charge: object) -> None:
    """Refuse what can't be paid for.

    Raises:
        InvalidParameterError: If it is no charge.
    """
    if not isinstance(charge, Charge):
        raise InvalidParameterError(
            "An account pays for an accounting.Charge (parser.charge() is one), not "
            f"for a value of type {type(charge).__name__}."
        )


def require_possible(
    terms: AccountTerms,
    charge: Charge,
    unit_key: str | None,
    *,
    charges_units: bool,
) -> None:
    """Refuse what an account can't promise anything for, before it is charged.

    Raises:
        InvalidParameterError: If it is no charge, or the account charges units and the
            caller can't name them.
    """
    require_charge(charge)
    if unit_key is not None and not isinstance(unit_key, str):
        raise InvalidParameterError("unit_key must be a metadata key's name, or None.")
    if terms.scope == "corpus":
        return
    if not charges_units:
        raise InvalidParameterError(
            f"Account {terms.name!r} charges units one by one, and this source of "
            "groups can't name the units that take part: use retrieval by a public "
            "score threshold (RetrievedGroups with score_threshold=), or an "
            "account with scope='corpus'. Best-of-the-corpus retrieval can't be "
            "charged by unit: who is in it depends on the others."
        )
    if any(event.kind == "parallel" for event in charge.parts):
        raise InvalidParameterError(
            f"Account {terms.name!r} charges units one by one, and {charge.name} "
            "releases something of each of several classes: use an account with "
            "scope='corpus'."
        )
