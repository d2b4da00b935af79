"""What was released under a charge, kept in the ledger beside that charge.

A generator is charged once and may release in several steps. What each step released is
stored, durably, before anything is made of it; a release that was interrupted, by
whatever, is followed again from what is stored and goes on with what is left. Nothing
is paid for twice.

Privacy:
    What is stored is released output and public terms. There is one draw for each step
    that was charged, never two: the ledger notes each stored step in the account's
    chain, and a step that was stored and is gone, or not as it was, is an error and no
    reason to draw again. One owner draws (`owner.py`). A step whose draw was never
    stored may be drawn by the next owner: nobody has seen the lost one, and nothing
    between the noise and the store may fail by what was drawn.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_dpicl.accounting import Event
from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.release.owner import Owner, claimed, is_gone, is_here

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
        stored: What was stored of it when it was read, as text: draws and claims.
    """

    store: ReleaseStore
    charge: int
    header: dict[str, Any]
    stored: tuple[str, ...] = ()

    @property
    def steps(self) -> tuple[str, ...]:
        """What was drawn, as text."""
        return tuple(text for text in self.stored if claimed(text) is None)

    @property
    def owner(self) -> Any:
        """Who draws: the last that claimed it, else the one who charged it."""
        claims = [owner for owner in map(claimed, self.stored) if owner is not None]
        return claims[-1] if claims else self.header.get("owner")

    @property
    def is_drawn_here(self) -> bool:
        """Whether its owner is at work in this process."""
        return is_here(self.owner)

    @property
    def is_abandoned(self) -> bool:
        """Whether its owner is surely gone."""
        return is_gone(self.owner)

    def belongs_to(self, owner: Owner) -> bool:
        """Return whether an owner draws for it."""
        own = self.owner
        return isinstance(own, dict) and own.get("name") == owner.name

    def claim(self, owner: Owner) -> Entry | None:
        """Make somebody its owner; None if something else was stored meanwhile.

        Raises:
            LedgerError: If the ledger can't be used.
        """
        number, text = len(self.stored), owner.claim
        if self._store(number, text) != text:
            return None
        return replace(self, stored=(*self.stored, text))

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
        steps = self.steps
        return steps[number] if number < len(steps) else None

    def keep(self, number: int, drawn: str) -> str:
        """Store what a step drew, as text; see `release`.

        Raises:
            LedgerError: If it can't be stored, or another owner has claimed the rest.
        """
        claims = len(self.stored) - len(self.steps)
        stored = self._store(number + claims, drawn)
        if claimed(stored) is not None:
            raise LedgerError(
                "Another process goes on with this release: what this one drew last "
                "was dropped. resume=True waits for it."
            )
        return stored

    def _store(self, number: int, text: str) -> str:
        budget = self.store.budget
        stored = budget.ledger.store_step(budget.account, self.charge, number, text)
        if not isinstance(stored, str):
            # A ledger of somebody else's that does not say what it keeps.
            raise LedgerError(
                "The ledger did not keep what was released; nothing more was."
            )
        return stored

    def drawn(self, stored: str) -> Entry:
        """Return the entry with one more step, which `keep` has stored."""
        return replace(self, stored=(*self.stored, stored))

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
                events = [event.model_dump(mode="json") for event in charge.events]
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
