"""What was released under a charge, kept in the ledger beside that charge.

A generator is charged once and may release in several steps. What each step released is
stored, durably, before anything is made of it; a release that was interrupted, by
whatever, is followed again from what is stored and goes on with what is left. Nothing
is paid for twice.

Privacy:
    What is stored is released output and public terms. There is one *released* draw for
    each step that was charged, never two. A step may be drawn again where its first
    draw was never stored: two processes that go on with one release at once (the
    first to store has released it, the other one reads that one back), a crash, a
    ledger that can't be written. Such a draw is seen by nobody, and it is dropped for
    reasons that do not look at it: nothing between the noise and the store may fail by
    what was drawn.
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
class Journal:
    """The stored releases of one kind in one account.

    Args:
        budget: The account.
        fingerprint: What tells kinds of releases apart: their public terms.
        maker: What made them: "few-shot", for instance.
    """

    budget: PrivacyBudgetHandler
    fingerprint: str
    maker: str

    def start(self, header: dict[str, Any]) -> Entry:
        """Store the beginning of a release that was charged just now.

        Raises:
            LedgerError: If the ledger can't be used.
        """
        number = 0
        text = json.dumps({"format": _FORMAT, **header}, sort_keys=True)
        while True:
            entry = Entry(self, number, header)
            # Another process may have taken the number; a header names its charge.
            if entry.keep("start", text) == text:
                return entry
            number += 1

    def entries(self) -> list[Entry]:
        """Return all stored releases, oldest first.

        Raises:
            LedgerError: If the ledger can't be read, or a stored one makes no sense.
        """
        found: list[Entry] = []
        while True:
            entry = Entry(self, len(found), {})
            stored = entry.kept("start")
            if stored is None:
                return found
            header = _read(stored)
            if not isinstance(header, dict) or header.pop("format", None) != _FORMAT:
                raise damaged()
            found.append(Entry(self, len(found), header))

    def key(self, number: int, what: str) -> str:
        """Return the key of one stored thing, of 64 characters."""
        data = json.dumps([self.maker, self.fingerprint, number, what]).encode()
        return hashlib.blake2b(data, digest_size=32).hexdigest()


@dataclass(frozen=True)
class Entry:
    """One stored release.

    Attributes:
        journal: Where it is stored.
        number: Its number among those of its kind.
        header: What it was started with: public.
    """

    journal: Journal
    number: int
    header: dict[str, Any]

    def step(self, number: int) -> list[int] | None:
        """Return what one step released, or None if it is not stored.

        Args:
            number: Which step, from 0.

        Returns:
            Its integers: tokens, or noisy counts.

        Raises:
            LedgerError: If the ledger can't be read, or what is stored makes no sense.
        """
        stored = self.kept(f"step {number}")
        return None if stored is None else _integers(stored)

    def release(self, number: int, drawn: Sequence[int]) -> list[int]:
        """Store what a step drew; return what is released: the first that was stored.

        Raises:
            LedgerError: If it can't be stored: then it is not released.
        """
        return _integers(self.keep(f"step {number}", json.dumps(list(drawn))))

    def charged(self) -> tuple[int, tuple[Event, ...]]:
        """Return the number and the events of the charge that this release had.

        The release's own rows lie beside the ledger's journal, not in it. What its
        noise must be is therefore computed from the charge, which the journal vouches
        for.

        Raises:
            LedgerError: If the ledger has no such charge, or it was for something else.
        """
        number, events = self.header.get("charge"), self.header.get("events")
        budget = self.journal.budget
        for record in budget.ledger.charges(budget.account):
            charge = record.charge
            if type(number) is int and charge.sequence == number:
                if [event_to_dict(event) for event in charge.events] != events:
                    break
                return number, charge.events
        raise damaged()

    def keep(self, what: str, text: str) -> str:
        """Store a text unless there is one; return the one that holds."""
        budget, key = self.journal.budget, self.journal.key(self.number, what)
        stored = budget.ledger.store_answer(budget.account, key, text)
        if not isinstance(stored, str):
            # A ledger of somebody else's that does not say what it keeps.
            raise LedgerError(
                "The ledger did not keep what was released; nothing more was."
            )
        return stored

    def kept(self, what: str) -> str | None:
        """Return what is stored under a name, or None."""
        budget, key = self.journal.budget, self.journal.key(self.number, what)
        return budget.ledger.stored_answer(budget.account, key)


def _integers(stored: str) -> list[int]:
    found = _read(stored)
    if not isinstance(found, list) or any(type(item) is not int for item in found):
        raise damaged()
    return found


def _read(stored: str) -> Any:
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
