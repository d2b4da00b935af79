"""A ledger in this process: for tests, notebooks and benchmarks."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from datetime import datetime, timezone

from langchain_dpicl.exceptions import LedgerError
from langchain_dpicl.ledger.base import (
    AccountState,
    AccountTerms,
    Charge,
    ChargeRecord,
    Ledger,
    Plan,
)
from langchain_dpicl.ledger.refusals import (
    require_chargeable,
    require_name,
    unknown_account,
)


class MemoryLedger(Ledger):
    """Accounts that live and die with this process.

    It keeps every promise of `Ledger` but durability: when the process ends, so does
    the memory of what was spent. Use it where the corpus ends with the process too.
    A copy in a forked child would let both spend the same budget, so a child is
    refused.

    Example:
        >>> ledger = MemoryLedger()
        >>> state = ledger.open(AccountTerms("trial", 1.0, 1e-6, 10))
        >>> state.used
        0
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._accounts: dict[str, AccountState] = {}
        self._times: dict[str, list[datetime]] = {}
        self._answers: dict[tuple[str, str], str] = {}
        self._pid = os.getpid()

    def __repr__(self) -> str:
        return "MemoryLedger()"

    def __reduce__(self) -> str:
        raise LedgerError(
            "A MemoryLedger can't be copied or sent to another process: both copies "
            "would spend the same budget. Use a SQLite or PostgreSQL ledger."
        )

    def open(self, terms: AccountTerms) -> AccountState:
        """Open an account, or find it open under the same terms."""
        require_name(terms.name)
        with self._lock:
            self._require_same_process()
            state = self._accounts.get(terms.name)
            if state is None:
                state = AccountState(terms, None, 0, closed=False)
                self._accounts[terms.name] = state
                self._times[terms.name] = []
        terms.require_same(state.terms)
        return state

    def fix_plan(self, name: str, plan: Plan) -> Plan:
        """Store the plan unless one is stored; return the one that holds."""
        with self._lock:
            state = self._account(name)
            if state.plan is None:
                state = replace(state, plan=plan)
                self._accounts[name] = state
        return state.plan or plan

    def charge(self, name: str) -> Charge:
        """Charge one query, or raise."""
        with self._lock:
            state = self._account(name)
            plan = require_chargeable(state)
            used = state.used + 1
            self._accounts[name] = replace(state, used=used)
            self._times[name].append(datetime.now(timezone.utc))
        return Charge(account=name, sequence=used, events=plan.events)

    def state(self, name: str) -> AccountState:
        """Return an account's state."""
        with self._lock:
            return self._account(name)

    def close_account(self, name: str) -> None:
        """Close an account for good."""
        with self._lock:
            self._accounts[name] = replace(self._account(name), closed=True)

    def store_answer(self, name: str, key: str, answer: str) -> None:
        """Keep a released answer of an account."""
        with self._lock:
            self._account(name)
            self._answers.setdefault((name, key), answer)

    def stored_answer(self, name: str, key: str) -> str | None:
        """Return the answer kept under a key, or None."""
        with self._lock:
            self._account(name)
            return self._answers.get((name, key))

    def accounts(self) -> list[str]:
        """Return the names of all accounts, sorted."""
        with self._lock:
            return sorted(self._accounts)

    def charges(self, name: str) -> list[ChargeRecord]:
        """Return an account's charges, oldest first."""
        with self._lock:
            state = self._account(name)
            events = state.plan.events if state.plan else ()
            return [
                ChargeRecord(Charge(name, number, events), at)
                for number, at in enumerate(self._times[name], start=1)
            ]

    def _account(self, name: str) -> AccountState:
        self._require_same_process()
        try:
            return self._accounts[name]
        except KeyError:
            raise unknown_account(name) from None

    def _require_same_process(self) -> None:
        if os.getpid() != self._pid:
            raise LedgerError(
                "An in-memory ledger does not survive a fork: parent and child would "
                "spend the same budget twice. Use a SQLite or PostgreSQL ledger."
            )
