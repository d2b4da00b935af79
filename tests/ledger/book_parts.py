"""An account's charges, draws and look-ups, as the budget writes them."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta, timezone
from typing import Any

import sqlalchemy as sa

from langchain_dpicl.accounting import Charge, Gaussian
from langchain_dpicl.ledger import AccountTerms, Book, Ledger, Plan
from langchain_dpicl.ledger.book import CHARGED, Transaction
from langchain_dpicl.ledger.rules import require_payable
from langchain_dpicl.ledger.schema import entry_table
from langchain_dpicl.ledger.terms import microseconds
from langchain_dpicl.ledger.units import collect

VOTE = Charge(name="vote", parts=(Gaussian(noise_multiplier=None),))
EVENTS = (Gaussian(noise_multiplier=8.0),)


class Clock:
    """What every database says the time is."""

    def __init__(self, now: str) -> None:
        self.set(now)

    def set(self, now: str) -> None:
        self.now = datetime.fromisoformat(now).replace(tzinfo=timezone.utc)

    def wait(self, **length: float) -> None:
        self.now += timedelta(**length)

    def __call__(self, _connection: object) -> int:
        return microseconds(self.now)


def terms_of(name: str, queries: int | None = 5, **terms: Any) -> AccountTerms:
    """Return the terms of a plan, or those of a filter if `queries` is None."""
    if queries is None:
        terms = {"order": 8.0, "delta0_share": 0.25, **terms}
    terms = {"epsilon": 8.0, "delta": 1e-6, "queries": queries, **terms}
    return AccountTerms(name=name, **terms)


def opened(
    ledger: Ledger, name: str = "notes", corpus: Any = None, **terms: Any
) -> Book:
    """Open an account and fix its plan, once."""
    if corpus is not None:
        terms["corpus"] = corpus.name
    book = ledger.open(terms_of(name, **terms), corpus)

    def fix(transaction: Transaction) -> Book:
        held = transaction.load("account", name, "alone")
        if held.entries > 1:
            return held
        plan = Plan(unit_key="patient")
        if held.account.queries is not None:
            plan = Plan(charge=VOTE, events=EVENTS, unit_key="patient")
        body = plan.model_dump(mode="json")
        return transaction.append(held, "plan", body, charge=0, step=CHARGED)

    return ledger.run(fix) if book.entries == 1 else book


def place_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def write_charge(transaction: Transaction, name: str, key: str | None = None) -> Book:
    held = transaction.load("account", name, "alone")
    cost = held.account.cost(EVENTS, Plan(charge=VOTE, events=EVENTS))
    at = require_payable(transaction, held, cost)
    body = {
        "events": [event.model_dump(mode="json") for event in EVENTS],
        "cost": cost,
        "steps": 1,
    }
    return transaction.append(
        held,
        "charge",
        body,
        cost=cost,
        at=at,
        charge=held.used + 1,
        step=CHARGED,
        key=None if key is None else place_of(key),
    )


def charge(ledger: Ledger, name: str = "notes", key: str | None = None) -> int:
    """Charge a release; return its number."""
    return ledger.run(lambda transaction: write_charge(transaction, name, key)).used


def draw(ledger: Ledger, number: int, value: Any, name: str = "notes") -> None:
    """Store the draw of a charge."""

    def write(transaction: Transaction) -> None:
        held = transaction.load("account", name, "alone")
        body = {"value": value}
        transaction.append(held, "draw", body, charge=number, step=0)

    ledger.run(write)


def look_up(ledger: Ledger, key: str, name: str = "notes") -> list[dict[str, Any]]:
    """Return the entries of the last charge under a key."""
    columns = entry_table.c

    def read(transaction: Transaction) -> list[dict[str, Any]]:
        held = transaction.load("account", name)
        number = transaction.execute(
            sa.select(columns.charge)
            .where(columns.book == held.id, columns.key == place_of(key))
            .order_by(columns.number.desc())
            .limit(1)
        ).scalar()
        return transaction.read(held, columns.charge == number)

    return ledger.run(read, writes=False)


def pay(ledger: Ledger, unit_ids: Any, name: str) -> set[Any]:
    """Charge an account and collect the price from units; return who has paid."""
    number = charge(ledger, name)

    def write(transaction: Transaction) -> set[Any]:
        held = transaction.load("account", name, "alone")
        cost = held.account.cost(EVENTS, Plan(charge=VOTE, events=EVENTS))
        return collect(transaction, held, number, cost, unit_ids)

    return ledger.run(write)


def forget(ledger: Ledger, name: str = "notes") -> None:
    """Give no stored answer again."""

    def write(transaction: Transaction) -> None:
        held = transaction.load("account", name, "alone")
        transaction.append(held, "forgot", {}, since=held.entries + 1)

    ledger.run(write)
