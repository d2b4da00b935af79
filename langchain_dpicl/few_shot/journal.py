"""A generation's released tokens, kept in the ledger beside the charge they cost.

A generation is charged once and then releases token by token. Each step's tokens are
stored, durably, before anything is made of them; a generation that was interrupted, by
whatever, is followed again from what is stored and goes on with the steps that are
left. Nothing is paid for twice.

Privacy:
    What is stored is released output and public terms. There is one *released* draw for
    each step that was charged, never two. A step may be drawn again where its first
    draw was never stored: two processes that go on with one generation at once (the
    first to store has released it, the other one reads that one back), a crash, a
    ledger that can't be written. Such a draw is seen by nobody, and it is dropped for
    reasons that do not look at it: nothing between the noise and the store fails by
    what was drawn (`Step` takes the largest entry where a decoder fails).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.exceptions import LedgerError

_FORMAT = 1


@dataclass(frozen=True)
class Journal:
    """The stored generations of one kind in one account.

    Args:
        budget: The account.
        fingerprint: What tells kinds of generations apart: their public terms.
    """

    budget: PrivacyBudgetHandler
    fingerprint: str

    def start(self, header: dict[str, Any]) -> Entry:
        """Store a new generation, which was charged just now.

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
        """Return all stored generations, oldest first.

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
        data = json.dumps(["few-shot", self.fingerprint, number, what]).encode()
        return hashlib.blake2b(data, digest_size=32).hexdigest()


@dataclass(frozen=True)
class Entry:
    """One stored generation.

    Attributes:
        journal: Where it is stored.
        number: Its number among those of its kind.
        header: What it was started with: public.
    """

    journal: Journal
    number: int
    header: dict[str, Any]

    def steps(self, expected: int) -> list[int] | None:
        """Return the tokens of one step, or None if it is not stored.

        Args:
            expected: Which step, from 0.

        Raises:
            LedgerError: If the ledger can't be read, or what is stored makes no sense.
        """
        stored = self.kept(f"step {expected}")
        return None if stored is None else _tokens(stored)

    def release(self, step: int, tokens: Sequence[int]) -> list[int]:
        """Store a step's tokens; return those that are released, the first stored.

        Raises:
            LedgerError: If they can't be stored: then they are not released.
        """
        return _tokens(self.keep(f"step {step}", json.dumps(list(tokens))))

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


def _tokens(stored: str) -> list[int]:
    tokens = _read(stored)
    if not isinstance(tokens, list) or any(type(token) is not int for token in tokens):
        raise damaged()
    return tokens


def _read(stored: str) -> Any:
    try:
        return json.loads(stored)
    except (ValueError, RecursionError):
        pass
    raise damaged()


def damaged() -> LedgerError:
    """Return the error for a stored generation that makes no sense."""
    return LedgerError(
        "A stored generation can't be read: the ledger is damaged, or another version "
        "wrote it. Restore it, or start a new generation."
    )
