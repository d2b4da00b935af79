"""Paying for a release once, or finding the one that was paid for.

The same for every kind of release:

* Nothing is read and no model is asked for what the account can't pay.
* A charge and the header of its release (`store.py`) are one transaction: no crash
  leaves the one without the other.
* With `resume`, a stored release of the same terms is taken instead of paying for
  another one: the oldest that is not complete, else the newest. So of several callers
  at once one pays and draws, and the others wait for what it stores (`owner.py`).
* Callers of one process look and charge one after the other. Two processes that ask for
  the same at the same moment may both pay.

Privacy:
    A purchase reads public terms and what was released. It draws nothing.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from langchain_dpicl._version import __version__
from langchain_dpicl.accounting import Charge, Event
from langchain_dpicl.budget import PaidCharge, PrivacyBudgetHandler
from langchain_dpicl.errors import BudgetExhaustedError, DPError
from langchain_dpicl.release.flow import Do, Flow, in_thread
from langchain_dpicl.release.owner import Owner
from langchain_dpicl.release.record import now
from langchain_dpicl.release.store import Entry, ReleaseStore, damaged

LEASE_S = 3600.0
"""Seconds without a new step after which another owner may claim a release."""

_LONGEST_PAUSE_S = 1.0
_LOCKS: list[threading.Lock] = []


def _renew_locks() -> None:
    _LOCKS[:] = [threading.Lock() for _ in range(64)]


_renew_locks()
# A lock that another thread holds while the process forks is never let go.
os.register_at_fork(after_in_child=_renew_locks)


@dataclass
class Waiting:
    """A wait for what somebody else draws.

    Attributes:
        longest: Seconds without a new step after which it is over.
    """

    longest: float
    _steps: int = -1
    _since: float = 0.0
    _pause: float = 0.01

    def pauses(self, entry: Entry) -> Flow[bool]:
        """Wait a little; return whether it is worth looking again."""
        if entry.is_abandoned:
            return False
        if len(entry.stored) != self._steps:
            self._steps, self._since = len(entry.stored), time.monotonic()
        elif time.monotonic() - self._since > self.longest:
            return False
        yield _pause(self._pause)
        # An owner in this process says when it has ended: that costs no look-up.
        until = time.monotonic() + _LONGEST_PAUSE_S
        while entry.is_drawn_here and time.monotonic() < until:
            yield _pause(0.01)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_S)
        return True


def _pause(seconds: float) -> Do:
    return Do(partial(time.sleep, seconds), partial(asyncio.sleep, seconds))


@dataclass(frozen=True, repr=False)
class Purchase:
    """How releases of the same terms are paid for, by one caller.

    Attributes:
        store: Where they are stored.
        is_complete: Whether a stored one has all of its steps.
        noun: What one is called, in messages.
        way_out: What takes a stored one, in messages.
        resume: Whether a stored one is taken instead of paying for another.
        owner: The caller, who owns what it charges while at work.
        given_up: Charges whose draws are not waited for any more.
    """

    store: ReleaseStore
    is_complete: Callable[[Entry], bool]
    noun: str
    way_out: str
    resume: bool
    owner: Owner = field(default_factory=Owner)
    given_up: set[int] = field(default_factory=set)

    @property
    def budget(self) -> PrivacyBudgetHandler:
        """The account that pays."""
        return self.store.budget

    def found(self) -> Entry | None:
        """Return the oldest stored release that is not complete, else the newest.

        Not what this caller has charged itself.

        Raises:
            LedgerError: If the ledger can't be read.
        """
        complete: Entry | None = None
        for entry in self.store.entries() if self.resume else ():
            if self.is_complete(entry):
                complete = entry
            elif not (entry.belongs_to(self.owner) or entry.charge in self.given_up):
                return entry
        return complete

    def require_payable(self, charge: Charge) -> Entry | None:
        """Refuse what can't be paid for.

        Returns:
            None; or the stored release of a process that spent the account meanwhile.

        Raises:
            BudgetExhaustedError: If the account can't pay.
        """
        return self._or_found(lambda: self.budget.require_payable(charge))

    def taken(self, begun: Callable[[], Entry]) -> Flow[Entry]:
        """Hand on a wait for a release that is complete, or the owner's to draw.

        Args:
            begun: Finds the release, or charges it; see `begun`.
        """
        waiting = Waiting(LEASE_S)
        while True:
            entry: Entry = yield in_thread(begun, shielded=True)
            if entry.belongs_to(self.owner) or self.is_complete(entry):
                return entry
            if not (yield from waiting.pauses(entry)):
                claim = partial(entry.claim, self.owner)
                claimed: Entry | None = yield in_thread(claim, shielded=True)
                if claimed is not None:
                    return claimed

    def begun(
        self,
        charge: Charge,
        terms: Callable[[PaidCharge], dict[str, Any]],
        *,
        unit_key: str | None,
        charges_units: bool = False,
        salt: str | None = None,
    ) -> Entry:
        """Charge a release and store its header, or find the stored one.

        Args:
            charge: What it is charged.
            terms: The header's public terms, given the charge.
            unit_key: What a unit is, for the account.
            charges_units: Whether the charge's `collect` names those that take part.
            salt: The fingerprint of the salt that deals them to groups.

        Raises:
            BudgetExhaustedError: If the account can't pay.
            LedgerError: If the ledger can't be used.
        """

        def header(paid: PaidCharge) -> dict[str, Any]:
            return {
                **header_of(paid.events, paid.sequence),
                "owner": self.owner.public if self.owner.is_at_work else None,
                "account": self.budget.public_state(paid),
                **terms(paid),
            }

        def bought() -> Entry:
            found: list[dict[str, Any]] = []

            def text(paid: PaidCharge) -> str:
                found[:] = [header(paid)]
                return self.store.header_text(found[0])

            paid = self.budget.charge(
                charge,
                unit_key=unit_key,
                charges_units=charges_units,
                salt=salt,
                starts=(self.store.kind, text),
            )
            return Entry(self.store, paid.sequence, found[0])

        with _LOCKS[int(self.store.kind, 16) % len(_LOCKS)]:
            entry = self.found() or self._or_found(bought)
        if entry is None:  # pragma: no cover  # A charge has an entry, or raises.
            raise damaged()
        return entry

    def _or_found(self, step: Callable[[], Entry | None]) -> Entry | None:
        try:
            return step()
        except BudgetExhaustedError as error:
            kind, message = type(error), str(error)
        # The charge that spent the account has its header beside it.
        if (entry := self.found()) is not None:
            return entry
        if self.store.entries():
            message += (
                f" A {self.noun} of the same terms is stored in this account: "
                f"{self.way_out}, at no charge."
            )
        elif self.resume:
            message += f" There is no {self.noun} of these terms in it to take."
        raise kind(message)


def paid_for(entry: Entry, charge: Callable[[], Charge]) -> tuple[Event, ...]:
    """Return the events that a release was charged.

    Raises:
        LedgerError: If the ledger has no such charge, or it was for something else.
    """
    _, events = entry.charged()
    try:
        if charge().fits(events):
            return events
    except (DPError, TypeError, ValueError):
        pass
    raise damaged()


def header_of(events: tuple[Event, ...], charge: int | None) -> dict[str, Any]:
    """Return what the header of every release holds."""
    return {
        "created": now(),
        "library": __version__,
        "events": [event.model_dump(mode="json") for event in events],
        "charge": charge,
        "account": None,
    }
