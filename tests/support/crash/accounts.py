"""The accounts that crash tests charge, round after round.

All workers charge one account until it is exhausted, and then the next: the end of a
budget, where two could spend the same last part, comes many times.
"""

from __future__ import annotations

import random
from typing import Any

from langchain_dpicl.accounting import (
    Event,
    Exponential,
    Failure,
    Gaussian,
    Pure,
    event_to_dict,
)
from langchain_dpicl.ledger import AccountTerms, Allowance, CorpusTerms, Ledger, Plan
from langchain_dpicl.ledger.allowance import CallerLimit
from langchain_dpicl.ledger.base import NO_LIMIT

KINDS = ("plan", "zcdp", "unit")
USES = 60
"""Queries of a plan's account, and releases at the price list of a per-unit one."""

PLAN = Plan({"parts": []}, (Gaussian(0.1 + 0.2), Failure(1e-9)))
RELEASES = "steps"
"""The kind of what some charges release in steps."""

UNITS = (*(f"unit-{i}" for i in range(36)), "Ünit", "📎", "\ud800", "\u202e")

# The last one is the cheapest: while it fits, the account is not exhausted.
_FEW: tuple[tuple[Event, ...], ...] = (
    (Gaussian(5.0),),
    (Gaussian(9.0, count=2), Exponential(0.1)),
    (Pure(0.2), Failure(1e-9)),
    (Exponential(0.4), Failure(1e-9, count=2)),
    (Gaussian(12.0),),
)
MIXES = {
    "plan": (PLAN.events,),
    "zcdp": _FEW,
    "unit": _FEW,
    "capped": (PLAN.events,),
}
CORPUS = CorpusTerms("crash", None, 1000.0, 1e-3, window_days=30)
"""The corpus of accounts of the kind `capped`, which are in no round."""


ALLOWED = 9
"""Uses of a plan that each caller may spend; the account has many more."""
CALLERS = [
    CallerLimit(Allowance(caller, 1.0), ALLOWED) for caller in ("alice", "bób", "📎")
]

FREE = CallerLimit(Allowance("dan", 1.0), NO_LIMIT)
"""A caller that is never refused."""


def account_of(turn: int) -> str:
    """Return the name of a round's account."""
    return f"{KINDS[turn % len(KINDS)]}-{turn}"


def kind_of(name: str) -> str:
    """Return which kind of account a name belongs to."""
    return name.partition("-")[0]


def last_turn(ledger: Ledger) -> int:
    """Return the latest round that anybody has begun; 0 if none has."""
    return max((int(name.partition("-")[2]) for name in ledger.accounts()), default=0)


def terms_of(name: str) -> AccountTerms:
    """Return the terms of an account."""
    kind = kind_of(name)
    if kind == "plan":
        return AccountTerms(name, 8.0, 1e-6, USES)
    if kind == "capped":
        return AccountTerms(name, 8.0, 1e-6, USES, corpus=CORPUS.name)
    scope: Any = "corpus" if kind == "zcdp" else "unit"
    return AccountTerms(
        name,
        epsilon=8.0 if kind == "zcdp" else 2.0,
        delta=1e-6,
        accounting="zcdp",
        scope=scope,
        delta0_share=0.5,
    )


def open_account(ledger: Ledger, name: str) -> None:
    """Open an account, unless another worker was faster."""
    if kind_of(name) == "capped":
        ledger.create_corpus(CORPUS)
    ledger.open(terms_of(name))
    if kind_of(name) in ("plan", "capped"):
        ledger.fix_plan(name, PLAN)


def some_units(draws: random.Random) -> list[str]:
    """Return the units that take part in a release."""
    return draws.sample(UNITS, draws.randint(0, len(UNITS)))


def as_announced(events: tuple[Event, ...]) -> list[dict[str, Any]]:
    """Return events as a worker announces them."""
    return [event_to_dict(event) for event in events]
