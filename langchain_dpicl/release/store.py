"""What was released under a charge, kept in the ledger beside that charge.

A generator is charged once and may release in several steps. What each step released is
stored, durably, before anything is made of it; a release that was interrupted, by
whatever, is followed again from what is stored and goes on with what is left. Nothing
is paid for twice.

Privacy:
    What is stored is released output and public terms. There is one *released* draw for
    each step that was charged, never two: the ledger notes each stored step in the
    account's chain, and a step that was stored and is gone, or not as it was, is an
    error and no reason to draw again. A step may be drawn again where its first draw
    was never stored: two processes that go on with one release at once (the first to
    store has released it, the other one reads that one back), a crash, a ledger that
    can't be written. Such a draw is seen by nobody, and it is dropped for reasons that
    do not look at it: nothing between the noise and the store may fail by what was
    drawn.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_dpicl.accounting import Event, event_to_dict
from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.exceptions import LedgerError

_FORMAT = 1


@dataclass(frozen=True)
class ReleaseStore:
    """The stored releases of one kind in one account.

    Args:
        budget: The account.
        fingerprint: What tells kinds of releases apart: their public terms.
        maker: What made them: "few-shot", for instance.
    """

    budget: PrivacyBudgetHandler
    fingerprint: str
    maker: str

    @property
    def kind(self) -> str:
        """What tells these releases from others in the account, of 64 characters."""
        data = json.dumps([self.maker, self.fingerprint]).encode()
        return hashlib.blake2b(data, digest_size=32).hexdigest()

    def header_text(self, header: dict[str, Any]) -> str:
        """Return a header as it is stored."""
        return json.dumps({"format": _FORMAT, **header}, sort_keys=True)

    def entries(self) -> list[Entry]:
        """Return all stored releases, oldest first.

        Raises:
            LedgerError: If the ledger can't be read, or a stored one makes no sense.
        """
        found: list[Entry] = []
        for release in self.budget.ledger.releases(self.budget.account, self.kind):
            header = read(release.header)
            if not isinstance(header, dict) or header.pop("format", None) != _FORMAT:
                raise damaged()
            found.append(Entry(self, release.charge, header, release.steps))
        return found


@dataclass(frozen=True)
class Entry:
    """One stored release.

    Attributes:
        store: Where it is stored.
        charge: The number of the charge that paid for it.
        header: What it was started with: public.
        steps: What was stored of its steps when it was read, as text.
    """

    store: ReleaseStore
    charge: int
    header: dict[str, Any]
    steps: tuple[str, ...] = ()

    def step(self, number: int) -> list[int] | None:
        """Return what one step released, or None if it was not stored yet.

        Args:
            number: Which step, from 0.

        Returns:
            Its integers: tokens, or noisy counts.

        Raises:
            LedgerError: If what is stored makes no sense.
        """
        stored = self.text(number)
        return None if stored is None else _integers(stored)

    def release(self, number: int, drawn: Sequence[int]) -> list[int]:
        """Store what a step drew; return what is released: the first that was stored.

        Raises:
            LedgerError: If it can't be stored: then it is not released.
        """
        return _integers(self.keep(number, json.dumps(list(drawn))))

    def text(self, number: int) -> str | None:
        """Return what a step released, as text, or None if it was not stored yet."""
        return self.steps[number] if number < len(self.steps) else None

    def keep(self, number: int, drawn: str) -> str:
        """Store what a step drew, as text; see `release`."""
        budget = self.store.budget
        stored = budget.ledger.store_step(budget.account, self.charge, number, drawn)
        if not isinstance(stored, str):
            # A ledger of somebody else's that does not say what it keeps.
            raise LedgerError(
                "The ledger did not keep what was released; nothing more was."
            )
        return stored

    def charged(self) -> tuple[int, tuple[Event, ...]]:
        """Return the number and the events of the charge that this release had.

        What the noise must be is computed from the charge, and the header must name
        the same one.

        Raises:
            LedgerError: If the ledger has no such charge, or it was for something else.
        """
        budget = self.store.budget
        for record in budget.ledger.charges(budget.account):
            charge = record.charge
            if charge.sequence == self.charge:
                events = [event_to_dict(event) for event in charge.events]
                header = self.header
                if (header.get("charge"), header.get("events")) != (
                    self.charge,
                    events,
                ):
                    break
                return self.charge, charge.events
        raise damaged()


def _integers(stored: str) -> list[int]:
    found = read(stored)
    if not isinstance(found, list) or any(type(item) is not int for item in found):
        raise damaged()
    return found


def read(stored: str) -> Any:
    """Return what was stored as JSON, or raise what `damaged` returns."""
    try:
        return json.loads(stored)
    except (ValueError, RecursionError):
        pass
    raise damaged()


def damaged() -> LedgerError:
    """Return the error for a stored release that makes no sense."""
    return LedgerError(
        "A stored release can't be read: the ledger is damaged, or another version "
        "wrote it. Restore it, or make a new release."
    )
