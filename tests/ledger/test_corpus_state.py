"""What counts for a corpus's cap, until when, and what is said of the room."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from support.corpora import CLINIC

from langchain_dpicl.errors import (
    BudgetExhaustedError,
)
from langchain_dpicl.ledger import AccountTerms, CorpusState
from langchain_dpicl.ledger.base import AccountState

DAY, MOMENT = timedelta(days=1), timedelta(microseconds=1)
NOW = datetime(2026, 12, 10, tzinfo=timezone.utc)


def account(
    name: str = "a",
    epsilon: float = 8.0,
    delta: float = 1e-6,
    *,
    period: str | None = None,
    used: int = 1,
    closed_at: datetime | None = None,
) -> AccountState:
    terms = AccountTerms(name, epsilon, delta, 20, corpus="clinic", period=period)
    closed = closed_at is not None
    return AccountState(terms, None, used, closed=closed, closed_at=closed_at)


def corpus(
    *accounts: AccountState, at: datetime = NOW, window: int | None = 10
) -> CorpusState:
    return CorpusState(replace(CLINIC, window_days=window), at, accounts)


# -- which accounts count --------------------------------------------------------------


@pytest.mark.parametrize("ended", [{}, {"period": "2026-12"}, {"closed_at": NOW + DAY}])
@pytest.mark.parametrize("window", [10, None])
def test_an_account_without_a_charge_counts_for_nothing(
    ended: dict[str, Any], window: int | None
) -> None:
    unused, used = account(used=0, **ended), account(**ended)
    assert corpus(unused, used, at=NOW, window=window).counted == (used,)


# -- room ------------------------------------------------------------------------------


def new(epsilon: float = 8.0, delta: float = 1e-6, **terms: Any) -> AccountTerms:
    return AccountTerms("new", epsilon, delta, 20, corpus="clinic", **terms)


def refusal(state: CorpusState, terms: AccountTerms) -> str:
    with pytest.raises(BudgetExhaustedError) as caught:
        state.require_opening(terms)
    return str(caught.value)


def test_the_cap_is_reached_and_not_passed_in_either_part() -> None:
    held = corpus(account("a", 16.0, 1e-6), account("b", 4.0, 1e-6))
    held.require_room(new(4.0, 1e-6))
    assert "has no room: " in refusal(held, new(4.0000001, 1e-6))
    assert "has no room: " in refusal(held, new(4.0, 1.0000001e-6))
    assert "has no room: " in refusal(held, new(4.1, 1.1e-6))


# -- terms -----------------------------------------------------------------------------


HALF, NEXT_HALF = "2026-12-01/2026-12-15", "2026-12-31/2027-01-14"
