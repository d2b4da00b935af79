"""Accounts that several tests of operators' commands share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.accounting import Charge, Gaussian
from langchain_dpicl.ledger import AccountTerms, Ledger

_EIGHT: dict[str, Any] = {"name": "notes", "epsilon": 8.0, "delta": 1e-6}
_FILTER: dict[str, Any] = {"order": 8.0, "delta0_share": 0.25}
PLANNED = AccountTerms(**_EIGHT, queries=5)
FILTERED = AccountTerms(**_EIGHT, **_FILTER)
UNIT_PLANNED = AccountTerms(**_EIGHT, queries=2, scope="unit")
UNIT_FILTERED = AccountTerms(**_EIGHT, **_FILTER, scope="unit")

VOTE = Charge(name="vote/gaussian", parts=(Gaussian(noise_multiplier=None),))
NOISY = Charge(name="vote/gaussian", parts=(Gaussian(noise_multiplier=8.0),))
"""A release that a filter account pays for some ninety times."""


def account_of(ledger: Ledger, terms: AccountTerms) -> PrivacyBudgetHandler:
    """Open an account by its terms."""
    given = terms.model_dump()
    if terms.queries is None:
        given["accounting"] = "renyi"
    return PrivacyBudgetHandler(ledger=ledger, account=given.pop("name"), **given)


def bought(budget: PrivacyBudgetHandler, charge: Charge, **terms: Any) -> int:
    """Buy a release that everybody pays for, and draw; return its number."""
    with budget.buy(charge, **terms) as paid:
        paid.once(lambda: "yes")
    return paid.charge


def opened(ledger: Ledger, terms: AccountTerms = PLANNED) -> Ledger:
    """Open an account; return its ledger."""
    account_of(ledger, terms)
    return ledger


def spend(
    ledger: Ledger,
    terms: AccountTerms = PLANNED,
    units: Iterable[str] = (),
    **bought: Any,
) -> int:
    """Buy a release as the account's kind wants it, and draw; return its number."""
    budget = account_of(ledger, terms)
    bought = {"unit_key": "patient", "charges_units": terms.scope == "unit", **bought}
    asked = VOTE if terms.queries is not None else NOISY
    with budget.buy(asked, **bought) as paid:
        if paid.collect is not None:
            paid.collect(units)
        paid.once(lambda: "yes")
    return paid.charge
