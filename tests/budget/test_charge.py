"""What is checked before an account is charged."""

from __future__ import annotations

from typing import Any

import pytest

from langchain_dpicl.accounting import Charge, Parallel
from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.budget.charge import require_possible
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.ledger import AccountTerms
from langchain_dpicl.mechanisms import voting

VOTE = voting.charge(name="vote")
BOTH = Charge(name="both", parts=(Parallel(branches=(VOTE.parts, VOTE.parts)),))
CORPUS = AccountTerms("all", 8.0, 1e-3, 4)
UNIT = AccountTerms("each", 8.0, 1e-3, 4, scope="unit")


@pytest.mark.parametrize("terms", [CORPUS, UNIT])
@pytest.mark.parametrize(
    ("charge", "unit_key", "message"),
    [
        ("vote", None, "not for a value of type str"),
        (VOTE, 3, "unit_key must be"),
        (VOTE, b"patient", "unit_key must be"),
    ],
)
def test_what_means_nothing_is_refused_in_every_account(
    terms: AccountTerms, charge: Any, unit_key: Any, message: str
) -> None:
    with pytest.raises(InvalidParameterError, match=message):
        require_possible(terms, charge, unit_key, charges_units=True)


@pytest.mark.parametrize("unit_key", [None, "patient"])
def test_what_can_be_promised_passes(unit_key: Any) -> None:
    for shape in (VOTE, BOTH):
        for charges_units in (False, True):
            require_possible(CORPUS, shape, unit_key, charges_units=charges_units)
    require_possible(UNIT, VOTE, unit_key, charges_units=True)


def test_units_that_pay_must_be_named_one_release_at_a_time() -> None:
    with pytest.raises(InvalidParameterError, match="'each' charges units one by one"):
        require_possible(UNIT, VOTE, None, charges_units=False)
    with pytest.raises(InvalidParameterError, match="both releases something of each"):
        require_possible(UNIT, BOTH, None, charges_units=True)


def test_who_collects_is_neither_compared_nor_shown() -> None:
    """It holds the ledger, and a charge is public."""
    alone = PaidCharge((), "all", 1)
    collecting = PaidCharge((), "all", 1, charge_units=lambda _: [])
    assert alone == collecting
    assert "charge_units" not in repr(collecting)
    assert alone.spent == (0, 0)
    with pytest.raises(AttributeError):
        alone.events = ()  # type: ignore[misc]
