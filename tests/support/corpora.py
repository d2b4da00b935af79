"""A corpus, accounts of it, and a database's clock that tests set."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from langchain_dpicl.ledger import AccountTerms, CorpusTerms, Ledger, book
from support.ledgers import opened, spend

CLINIC = CorpusTerms("clinic", "patient", epsilon=24, delta=3e-6, window_days=365)
FOR_EVER = CLINIC.model_copy(update={"name": "archive", "window_days": None})
DECEMBER = AccountTerms(
    name="clinic/2026-12",
    epsilon=8.0,
    delta=1e-6,
    queries=20,
    corpus="clinic",
    period="2026-12",
)


class Clock:
    """What every database says the time is."""

    def __init__(self, now: str) -> None:
        self.set(now)

    def set(self, now: str) -> None:
        """Set the time."""
        self.now = datetime.fromisoformat(now).replace(tzinfo=timezone.utc)

    def wait(self, **length: float) -> None:
        """Let a time pass."""
        self.now += timedelta(**length)

    def __call__(self, _connection: object) -> int:
        start = datetime(1970, 1, 1, tzinfo=timezone.utc)
        return (self.now - start) // timedelta(microseconds=1)


def clock_for(monkeypatch: pytest.MonkeyPatch, now: str) -> Clock:
    """Set the time of all databases."""
    clock = Clock(now)
    monkeypatch.setattr(book, "database_time", clock)
    return clock


def of_month(month: str, **terms: Any) -> AccountTerms:
    """Return the terms of a month's account."""
    named = {"name": f"clinic/{month}", "period": month}
    return DECEMBER.model_copy(update={**named, **terms})


def opened_in(
    ledger: Ledger, terms: AccountTerms = DECEMBER, corpus: CorpusTerms = CLINIC
) -> AccountTerms:
    """Open an account of a corpus, which is made if it is not there."""
    ledger.open(terms, corpus)
    opened(ledger, terms)
    return terms


def pay(ledger: Ledger, terms: AccountTerms = DECEMBER) -> int:
    """Buy a release."""
    return spend(ledger, terms)
