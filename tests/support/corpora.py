"""A corpus, accounts of it, and a database's clock that tests set."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from langchain_dpicl.ledger import AccountTerms, CorpusTerms, Ledger
from langchain_dpicl.ledger import clock as ledger_clock
from support.ledgers import NOISY, PLAN, UNIT_KEY

CLINIC = CorpusTerms("clinic", "patient", epsilon=24, delta=3e-6, window_days=365)
FOR_EVER = replace(CLINIC, name="archive", window_days=None)
DECEMBER = AccountTerms(
    "clinic/2026-12", 8.0, 1e-6, 20, corpus="clinic", period="2026-12"
)
PER_UNIT = AccountTerms("each", 8.0, 1e-6, 20, scope="unit", corpus="clinic")
PATIENTS = replace(PLAN, template={"unit_key": "patient"})


class Clock:
    """What every database says the time is."""

    def __init__(self, now: str) -> None:
        self.set(now)

    def set(self, now: str) -> None:
        self.now = datetime.fromisoformat(now).replace(tzinfo=timezone.utc)

    def wait(self, **length: float) -> None:
        self.now += timedelta(**length)

    def __call__(self, _connection: Any = None) -> datetime:
        return self.now


def clock_for(monkeypatch: pytest.MonkeyPatch, now: str) -> Clock:
    """Set the time of all databases."""
    clock = Clock(now)
    for name in ("database_time", "server_time"):
        monkeypatch.setattr(ledger_clock, name, clock)
    return clock


def of_month(month: str, **terms: Any) -> AccountTerms:
    """Return the terms of a month's account."""
    return replace(DECEMBER, name=f"clinic/{month}", period=month, **terms)


def opened_in(ledger: Ledger, terms: AccountTerms = DECEMBER) -> AccountTerms:
    """Open an account of a corpus and fix its plan."""
    ledger.open(terms)
    planned = terms.accounting == "plan"
    ledger.fix_plan(terms.name, PATIENTS if planned else UNIT_KEY)
    return terms


def pay(ledger: Ledger, terms: AccountTerms = DECEMBER) -> Any:
    """Charge one release."""
    return ledger.charge(terms.name, None if terms.accounting == "plan" else NOISY)
