"""`Paid`: a charge that is durable, and the right to draw for it once.

* *One charge, one draw.* The owner of a charge draws; others wait for what is stored.
  Of two draws the quicker never wins.
* *Stored before it is shown.* `once` returns what can be read back from the ledger.
* *An owner draws for its own charge alone.* Ownership is an entry of the account's
  book, and is checked in the transaction that stores a draw. An owner that was replaced
  stores nothing, and shows nothing.
* *An owner that fails gives up at once.* It says so in the book, so nobody waits for
  it. A draw that was lost is charged anew; or, where the release is resumable, the next
  owner goes on under the same charge with the steps that are not stored.

Privacy:
    Unit, relation, noise and events are the mechanism's. A draw that was lost and is
    charged anew is an outcome of its own, paid for by its charge. What a resumable
    release draws again was seen by nobody, and what lost it did not look at it: between
    noise and store nothing may fail by what was drawn.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any

from typing_extensions import Self

from langchain_dpicl.accounting import Event
from langchain_dpicl.budget import owners
from langchain_dpicl.budget.stored import Stored, read_charge
from langchain_dpicl.errors import LedgerError, UnsoundStoreError
from langchain_dpicl.ledger import Ledger
from langchain_dpicl.ledger.book import NOTED, Book, Transaction, writes
from langchain_dpicl.ledger.units import collect


class Paid:
    """One charge, the events that were paid, and the right to draw for them.

    Use it in a `with` block: an owner that leaves without its draw then says so.

    Args:
        ledger: The ledger of the account.
        stored: The charge.
        token: The owner's token; empty if everything is drawn already.
        by_unit: Whether the account charges units.

    Attributes:
        stored: The charge as it was when this caller got it.
        events: What was paid, without holes, in the order of the charge's parts. A
            mechanism takes these.
        charge: The charge's number in the account.
        header: Public terms of the release, as they were stored with the charge.
        steps: What is stored already: all of it, or what a former owner has left.
        note: The stored wording of what was drawn; None if there is none.
        is_again: Whether all is drawn already, and nothing was charged now.
        collect: In a per-unit account, for its owner: `collect(unit_ids)` charges every
            unit that can pay, durably, and returns those that did. It is called exactly
            once, inside the wall and before the search, and `once` refuses without it.
            None where everybody pays.
    """

    def __init__(
        self, ledger: Ledger, stored: Stored, token: str, *, by_unit: bool
    ) -> None:
        self.ledger, self.stored = ledger, stored
        self.events: tuple[Event, ...] = stored.events
        self.charge = stored.charge
        self.header: dict[str, Any] = stored.header
        self.steps: tuple[Any, ...] = stored.values
        self.note: Any = stored.note
        self.is_again = not token
        self.collect = self._collect if by_unit and token else None
        self._token, self._process = token, os.getpid()
        self._place, self._has_asked, self._has_collected = 0, False, False
        # The last resort, within this process: a ledger can't be written to from here.
        weakref.finalize(self, owners.end, token)

    def __repr__(self) -> str:
        return f"Paid(account={self.stored.account!r}, charge={self.charge})"

    def __enter__(self) -> Self:
        """Begin to draw."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> None:
        """Give up what is not drawn."""
        self.leave()

    def once(self, draw: Callable[[], Any]) -> Any:
        """Return the next step: the one that is stored, or one that is stored now.

        Args:
            draw: Draws the step, outside any transaction. What it returns is stored
                whatever it is: whole numbers and text, of a length that the charge
                bounds, in lists and mappings.

        Returns:
            The step, as it is read back from JSON.

        Raises:
            LedgerError: If the step can't be stored, or is not this owner's to draw.
                Then nothing is shown of it.
            UnsoundStoreError: If units had to pay and none was asked to.
        """
        place = self._place
        if place < len(self.steps):
            self._place += 1
            return self.steps[place]
        self._require_right()
        try:
            body = json.dumps({"value": draw()})
            self.require_collected()
            self._store(place, json.loads(body))
        except BaseException:
            self.leave()
            raise
        self._place += 1
        if self._place == self.stored.steps:
            owners.end(self._token)
        return json.loads(body)["value"]

    def resume(self) -> tuple[Any, ...]:
        """Return the steps that are stored already; `once` goes on after them."""
        self._place = len(self.steps)
        return self.steps

    def finish(self) -> None:
        """Note that nothing is left to draw, though not every step was drawn.

        Raises:
            LedgerError: If it can't be stored, or is not this owner's to say.
        """
        if self.is_again or self._place == self.stored.steps:
            return
        self._require_right()
        self._give_up({"owner": None, "ended": True})
        owners.end(self._token)

    def keep_note(self, value: Any) -> Any:
        """Store a public wording of what was drawn; return the first that was stored.

        Raises:
            LedgerError: If it can't be stored, or not everything is drawn yet.
        """
        if self.note is None:
            self.note = self._keep_note(json.loads(json.dumps(value)))
        return self.note

    def leave(self) -> None:
        """Give up what is not drawn yet."""
        if self._has_right:
            with suppress(LedgerError):  # Then silence ends it.
                self._give_up({"owner": None})
            owners.end(self._token)

    def require_collected(self) -> None:
        """Refuse a draw for which no unit was asked to pay, where units pay.

        Raises:
            UnsoundStoreError: If `collect` was not called.
        """
        if self.collect is not None and not self._has_collected:
            raise self._unsound()

    @property
    def _has_right(self) -> bool:
        return os.getpid() == self._process and owners.is_at_work(self._token)

    def _require_right(self) -> None:
        if not self._has_right:
            raise LedgerError(
                f"Nothing is left to draw here for charge {self.charge} of account "
                f"{self.stored.account!r}: every step is drawn, or it was given up. "
                "Buy it again under its key."
            )

    def _held(self, transaction: Transaction) -> tuple[Book, Stored]:
        """Lock the account; refuse an owner that was replaced."""
        book = transaction.load("account", self.stored.account, "alone")
        stored = read_charge(transaction, book, self.charge)
        if not owners.owns(stored.owner, self._token):
            raise LedgerError(
                f"Another owner draws for charge {self.charge} of account "
                f"{self.stored.account!r}: what was drawn here is dropped. Ask again "
                "to get the stored one."
            )
        return book, stored

    @writes
    def _give_up(self, transaction: Transaction, body: dict[str, Any]) -> None:
        book, stored = self._held(transaction)
        if not stored.is_complete:
            transaction.append(book, "owner", body, charge=self.charge)

    @writes
    def _store(self, transaction: Transaction, step: int, body: dict[str, Any]) -> None:
        book, stored = self._held(transaction)
        if len(stored.values) != step:
            raise book.damaged(f"step {step} of charge {self.charge} is not the next")
        transaction.append(book, "draw", body, charge=self.charge, step=step)

    @writes
    def _keep_note(self, transaction: Transaction, value: Any) -> Any:
        book = transaction.load("account", self.stored.account, "alone")
        stored = read_charge(transaction, book, self.charge)
        if not stored.is_complete:
            raise LedgerError("What is not drawn can't be worded.")
        if stored.note is not None:
            return stored.note
        body = {"value": value}
        transaction.append(book, "note", body, charge=self.charge, step=NOTED)
        return value

    def _collect(self, unit_ids: Iterable[str]) -> set[str]:
        self._require_right()
        if self._has_asked:
            raise self._unsound()
        self._has_asked = True
        paid = self._charge_units(list(unit_ids))
        # Not before: a source that swallows a failure has nobody who paid.
        self._has_collected = True
        return paid

    def _unsound(self) -> UnsoundStoreError:
        return UnsoundStoreError(
            f"Account {self.stored.account!r} charges units, and the group source did "
            "not call `collect` exactly once in its draw: nothing was released. A "
            "source that wraps another one has to pass `collect` on."
        )

    @writes
    def _charge_units(self, transaction: Transaction, unit_ids: list[str]) -> set[str]:
        book, _ = self._held(transaction)
        return collect(transaction, book, self.charge, self.stored.cost, unit_ids)
