"""A ledger in this process: for tests, notebooks and benchmarks."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone

from langchain_dpicl.accounting import Cost, Event
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.ledger import clock
from langchain_dpicl.ledger.balances import (
    UnitBalances,
    UnitRows,
    has_repeats,
    new_key,
    unit_tag,
)
from langchain_dpicl.ledger.base import (
    AccountState,
    AccountTerms,
    Charge,
    ChargeRecord,
    Ledger,
    Plan,
    UnitBalance,
)
from langchain_dpicl.ledger.charging import (
    charged,
    repeated_unit,
    require_name,
    require_per_unit,
    require_salt,
    require_unit_account,
    require_unit_id,
    require_unit_known,
    require_unused,
    unknown_account,
)
from langchain_dpicl.ledger.corpus import (
    CorpusState,
    CorpusTerms,
    require_corpus_terms,
    unknown_corpus,
)
from langchain_dpicl.ledger.release_store import (
    Starts,
    StoredRelease,
    is_next,
    not_charged,
    not_started,
    started_before,
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
        self._corpora: dict[str, tuple[CorpusTerms, datetime]] = {}
        self._journal: dict[str, list[ChargeRecord]] = {}
        self._releases: dict[str, dict[int, StoredRelease]] = {}
        self._rows = UnitRows()
        self._balances: dict[str, UnitBalances] = {}
        self._key = new_key()
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
        require_corpus_terms(terms)
        with self._lock:
            self._require_same_process()
            state = self._accounts.get(terms.name)
            if state is None:
                if terms.corpus is not None:
                    self._note_time(self._corpus(terms.corpus)).require_opening(terms)
                state = AccountState(terms, None, 0, closed=False)
                self._accounts[terms.name] = state
                self._journal[terms.name] = []
                self._releases[terms.name] = {}
                if terms.scope == "unit":
                    self._balances[terms.name] = UnitBalances(terms.limit)
        terms.require_same(state.terms)
        return state

    def create_corpus(self, terms: CorpusTerms) -> CorpusState:
        """Create a corpus with its cap, or find it with the same terms."""
        with self._lock:
            self._require_same_process()
            self._corpora.setdefault(terms.name, (terms, clock.database_time()))
            found = self._corpus(terms.name)
        terms.require_same(found.terms)
        return found

    def corpora(self) -> list[str]:
        """Return the names of all corpora, sorted."""
        with self._lock:
            self._require_same_process()
            return sorted(self._corpora)

    def corpus(self, name: str) -> CorpusState:
        """Return a corpus, with its accounts and the ledger's time."""
        with self._lock:
            self._require_same_process()
            return self._corpus(name)

    def bind_salt(self, name: str, fingerprint: str) -> None:
        """Bind a per-unit account to the salt with a fingerprint, once."""
        with self._lock:
            state = self._account(name)
            require_salt(state, fingerprint)
            self._accounts[name] = replace(state, salt=fingerprint)

    def fix_plan(self, name: str, plan: Plan) -> Plan:
        """Store the plan unless one is stored; return the one that holds."""
        with self._lock:
            state = self._account(name)
            if state.plan is None:
                require_unused(state)
                if state.terms.corpus is not None:
                    self._corpus(state.terms.corpus).terms.require_unit(name, plan)
                state = replace(state, plan=plan)
                self._accounts[name] = state
        return state.plan or plan

    def charge(
        self,
        name: str,
        events: Sequence[Event] | None = None,
        *,
        starts: Starts | None = None,
    ) -> Charge:
        """Charge one release, or raise."""
        with self._lock:
            held = self._account(name)
            require_unit_known(held)
            if held.terms.corpus is not None and not held.used:
                self._corpus(held.terms.corpus).require_room_for_first(held)
            state, charge = charged(held, events)
            if starts is not None:
                found = StoredRelease(charge.sequence, starts[0], starts[1](charge))
                self._releases[name][charge.sequence] = found
            self._accounts[name] = state
            journal = self._journal[name]
            now = self._noted(state) or datetime.now(timezone.utc)
            at = max(now, journal[-1].at) if journal else now
            journal.append(ChargeRecord(charge, at))
        return charge

    def charge_units(self, charge: Charge, unit_ids: Sequence[str]) -> list[bool]:
        """Charge every unit that can pay; say which ones did."""
        with self._lock:
            require_unit_account(self._account(charge.account))
            self._require_written(charge)
            rows = self._rows.of(unit_ids)
            if has_repeats(rows):
                raise repeated_unit()
            paid = self._balances[charge.account].charge(rows, charge.cost)
        found: list[bool] = paid.tolist()
        return found

    def state(self, name: str) -> AccountState:
        """Return an account's state."""
        with self._lock:
            return self._account(name)

    def close_account(self, name: str) -> None:
        """Close an account for good."""
        with self._lock:
            state = self._account(name)
            if not state.closed:
                closed_at = self._noted(state)
                self._accounts[name] = replace(state, closed=True, closed_at=closed_at)

    def verify(self, name: str) -> AccountState:
        """Check that the charges add up to what was spent."""
        with self._lock:
            state = self._account(name)
            costs = [record.charge.cost for record in self._journal[name]]
            total = Cost(sum(c.loss for c in costs), sum(c.failure for c in costs))
        if total != state.spent or len(costs) != state.used:
            raise LedgerError(f"Account {name!r} is damaged: its charges don't add up.")
        return state

    def start_release(self, name: str, charge: int, kind: str, header: str) -> None:
        """Store the header of the release that a charge pays for, once."""
        with self._lock:
            if not 0 < charge <= self._account(name).used:
                raise not_charged(name, charge)
            if charge in self._releases[name]:
                raise started_before(name, charge)
            self._releases[name][charge] = StoredRelease(charge, kind, header)

    def store_step(self, name: str, charge: int, number: int, drawn: str) -> str:
        """Store what a step drew; return the first draw that was stored."""
        with self._lock:
            self._account(name)
            found = self._releases[name].get(charge)
            if found is None:
                raise not_started(name, charge)
            if is_next(name, charge, number, len(found.steps)):
                found = replace(found, steps=(*found.steps, drawn))
                self._releases[name][charge] = found
            return found.steps[number]

    def releases(self, name: str, kind: str | None = None) -> list[StoredRelease]:
        """Return an account's releases of one kind, by the order of their charges."""
        with self._lock:
            self._account(name)
            held = sorted(self._releases[name].items())
        return [release for _, release in held if kind in (None, release.kind)]

    def accounts(self) -> list[str]:
        """Return the names of all accounts, sorted."""
        with self._lock:
            self._require_same_process()
            return sorted(self._accounts)

    def charges(self, name: str) -> list[ChargeRecord]:
        """Return an account's charges, oldest first."""
        with self._lock:
            self._account(name)
            return list(self._journal[name])

    def unit_balances(self, name: str) -> Iterator[UnitBalance]:
        """Yield what each unit has spent, by tag: private, for an operator's export."""
        with self._lock:
            self._account(name)
            balances = self._balances.get(name)
            found = [
                UnitBalance(unit_tag(self._key, unit_id).hex(), spent)
                for row, unit_id in enumerate(self._rows.ids())
                if balances is not None and (spent := balances.spent(row)) != Cost(0, 0)
            ]
        yield from sorted(found, key=lambda balance: balance.tag)

    def unit_tag(self, name: str, unit_id: str | int) -> str:
        """Return the tag under which a per-unit account keeps a unit: private."""
        with self._lock:
            require_per_unit(self._account(name))
        return unit_tag(self._key, require_unit_id(unit_id)).hex()

    def _require_written(self, charge: Charge) -> None:
        journal = self._journal[charge.account]
        place = charge.sequence - 1
        if not 0 <= place < len(journal) or journal[place].charge != charge:
            raise LedgerError(
                f"Account {charge.account!r} has no charge {charge.sequence} at this "
                "price: no unit was charged."
            )

    def _account(self, name: str) -> AccountState:
        self._require_same_process()
        try:
            state = self._accounts[name]
        except KeyError:
            raise unknown_account(name) from None
        corpus = state.terms.corpus
        return state if corpus is None else replace(state, at=self._corpus(corpus).at)

    def _corpus(self, name: str) -> CorpusState:
        if name not in self._corpora:
            raise unknown_corpus(name)
        terms, last = self._corpora[name]
        held = (one for one in self._accounts.values() if one.terms.corpus == name)
        return CorpusState(terms, max(last, clock.database_time()), tuple(held))

    def _note_time(self, corpus: CorpusState) -> CorpusState:
        """Keep the time of an event: no later one is earlier."""
        self._corpora[corpus.terms.name] = (corpus.terms, corpus.at)
        return corpus

    def _noted(self, state: AccountState) -> datetime | None:
        """Keep and return the time at which an account of a corpus was read."""
        corpus = state.terms.corpus
        if corpus is not None and state.at is not None:
            self._corpora[corpus] = (self._corpora[corpus][0], state.at)
        return state.at

    def _require_same_process(self) -> None:
        if os.getpid() != self._pid:
            raise LedgerError(
                "An in-memory ledger does not survive a fork: parent and child would "
                "spend the same budget twice. Use a SQLite or PostgreSQL ledger."
            )
