"""Databases, accounts and events that the ledger's tests share."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_dpicl.accounting import Failure, Gaussian
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import AccountTerms, Ledger, Plan, SQLLedger
from support.postgres import PostgresServer

PLAN = Plan({"parts": []}, (Gaussian(noise_multiplier=1 / 3), Failure(delta0=1e-9)))
UNIT_KEY = Plan({"unit_key": "patient"}, ())

PLANNED = AccountTerms("notes", 8.0, 1e-6, 5)
FILTER: Any = {"accounting": "renyi", "order": 5.5, "delta0_share": 0.25}
FILTERED = AccountTerms("notes", 8.0, 1e-6, **FILTER)
UNIT_PLANNED = AccountTerms("notes", 8.0, 1e-6, 2, scope="unit")
UNIT_FILTERED = AccountTerms("notes", 8.0, 1e-6, scope="unit", **FILTER)
RENYI = AccountTerms("notes", 8.0, 1e-6, **{**FILTER, "delta0_share": 0.0})
MANY = AccountTerms("notes", 8.0, 1e-6, 1_000_000)
ALL_TERMS = [PLANNED, FILTERED, UNIT_PLANNED, UNIT_FILTERED, RENYI]

NOISY = (Gaussian(noise_multiplier=4.0), Failure(delta0=1e-9))
"""A release that a filter account pays for some twenty times."""


@dataclass(frozen=True)
class Database:
    """A database, and ways around the ledger."""

    kind: str
    url: str
    execute: Callable[[str], list[Any]]
    """Run one statement and commit."""
    dump: Callable[[], bytes]
    """Everything that is in it."""


def sqlite_database(path: Path) -> Database:
    def execute(statement: str) -> list[Any]:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            return connection.execute(statement).fetchall()

    def dump() -> bytes:
        with closing(sqlite3.connect(path)) as connection:
            text = "\n".join(connection.iterdump()).encode()
        journal = Path(f"{path}-journal")
        kept = journal.read_bytes() if journal.exists() else b""
        return text + path.read_bytes() + kept

    return Database("sqlite", f"sqlite:///{path}", execute, dump)


def postgres_database(server: PostgresServer) -> Database:
    url = server.new_database()

    def execute(statement: str) -> list[Any]:
        with server.connect(url) as connection:
            found = connection.execute(statement)  # type: ignore[arg-type] # not a literal
            return found.fetchall() if found.description else []

    return Database("postgres", url, execute, lambda: server.dump(url).encode())


def opened(ledger: Ledger, terms: AccountTerms = PLANNED) -> Ledger:
    """Open an account and fix its plan."""
    ledger.open(terms)
    ledger.fix_plan(terms.name, PLAN if terms.accounting == "plan" else UNIT_KEY)
    return ledger


def spend(ledger: Ledger, terms: AccountTerms = PLANNED) -> Any:
    """Charge one release as the account's kind wants it."""
    events = (
        None if terms.accounting == "plan" else NOISY[: 2 if terms.delta0_share else 1]
    )
    return ledger.charge(terms.name, events)


def made(path: Path, terms: AccountTerms = MANY) -> SQLLedger:
    """Open a SQLite ledger with an account that pays for as much as it takes."""
    ledger = SQLLedger(f"sqlite:///{path}")
    opened(ledger, terms)
    return ledger


def used_in(path: Path) -> int | None:
    """Return the charges that a verified ledger holds; None if it is refused."""
    ledger = None
    try:
        ledger = SQLLedger(f"sqlite:///{path}")
        return ledger.verify("notes").used
    except LedgerError:
        return None
    finally:
        if ledger is not None:
            ledger.dispose()
