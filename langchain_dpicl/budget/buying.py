"""Paying for a release once, or finding the one that was paid for.

With a key the answer that is stored under it is given again. Looking and charging are
one transaction, so callers of one process and of several pay once for a key, and the
owner of the charge is stored with it.

Privacy:
    A purchase reads public terms and what was released. It draws nothing. A key is made
    of public values, so what it finds is post-processing of what was paid for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_dpicl.accounting import Charge, Event
from langchain_dpicl.budget import owners
from langchain_dpicl.budget.paid import Paid
from langchain_dpicl.budget.pricing import require_charge, require_planned
from langchain_dpicl.budget.stored import (
    Stored,
    find_charge,
    last,
    place_of,
    read_charge,
    read_plan,
)
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    LedgerError,
    PlanMismatchError,
)
from langchain_dpicl.ledger import Ledger, Plan
from langchain_dpicl.ledger.book import CHARGED, Book, Transaction, reads, writes
from langchain_dpicl.ledger.rules import require_payable, require_unit_key

if TYPE_CHECKING:
    from langchain_dpicl.budget.handler import PrivacyBudgetHandler

Again: TypeAlias = Callable[[Sequence[Any]], bool]
"""Says of the draws that are stored under a key whether they are given again."""


@dataclass(frozen=True, repr=False)
class Purchase:
    """What is to be bought of one account; see `PrivacyBudgetHandler.buy`.

    While another asking draws what is stored under the key, `found` and `bought` wait.
    """

    budget: PrivacyBudgetHandler
    charge: Charge
    key: str | None = None
    steps: int = 1
    unit_key: str | None = None
    charges_units: bool = False
    header: Mapping[str, Any] | None = None
    again: Again | None = None
    resumable: bool = False
    anew: bool = False

    def __post_init__(self) -> None:
        require_charge(self.charge)

    @property
    def ledger(self) -> Ledger:
        """The account's ledger."""
        return self.budget.ledger

    def found(self) -> Paid | None:
        """Return what is stored under the key, at no charge; None if nothing is."""
        waiting = Waiting()
        while isinstance(paid := self.look() if self.key else None, Stored):
            time.sleep(waiting.pause(paid))
        return paid

    def bought(self) -> Paid:
        """Pay, once nobody else draws for the key."""
        waiting = Waiting()
        while isinstance(paid := self.attempt(), Stored):
            time.sleep(waiting.pause(paid))
        return paid

    @reads
    def look(self, transaction: Transaction) -> Paid | Stored | None:
        """Return what needs no charge: what is drawn, or what somebody draws now."""
        book = self._book(transaction)
        return self._known(self._last(transaction, book), transaction.now(book))

    def attempt(self) -> Paid | Stored:
        """Pay, or return what needs no charge."""
        self._require_possible()
        known = self.look() if self.key is not None else None
        if known is not None:
            return known
        events, token = self.budget.quote(self.charge), owners.begin()
        paid: Paid | Stored | None = None
        try:
            paid = self._pay(events, token)
        finally:
            # Also where an interrupt comes between the charge and its return.
            if not isinstance(paid, Paid) or paid.is_again:
                owners.end(token)
        return paid

    def _book(self, transaction: Transaction, lock: str = "") -> Book:
        return transaction.load("account", self.budget.account, lock)

    def _last(self, transaction: Transaction, book: Book) -> Stored | None:
        """Return the last charge under the key, if it can be taken."""
        if self.key is None or self.anew:
            return None
        return find_charge(transaction, book, place_of(self.key))

    def _known(self, stored: Stored | None, now: int) -> Paid | Stored | None:
        if stored is None:
            return None
        if not stored.is_complete:
            return stored if stored.is_drawn(now) else None
        if self.again is not None and not self.again(stored.values):
            return None
        return Paid(self.ledger, stored, "", by_unit=False)

    @writes
    def _pay(
        self, transaction: Transaction, events: tuple[Event, ...], token: str
    ) -> Paid | Stored:
        """Charge, or take over, or return what another asking has begun meanwhile.

        Nobody else can add an entry while the account is locked, and so nobody else
        charges for the key.
        """
        book = self._book(transaction, "alone")
        lost = self._last(transaction, book)
        known = self._known(lost, transaction.now(book))
        if known is not None:
            return known
        by_unit, owner = self.budget.scope == "unit", owners.public_name(token)
        if lost is not None and not lost.is_complete:
            # After this entry the former owner stores nothing, if it still runs.
            body = {"owner": owner if self.resumable else None}
            book = transaction.append(book, "owner", body, charge=lost.charge)
            if self.resumable:
                return Paid(self.ledger, lost, token, by_unit=by_unit)
        plan = read_plan(transaction, book)
        if plan is None:
            require_unit_key(transaction, book, self.unit_key)
            plan = self._first_plan(events)
            fixed = plan.model_dump(mode="json")
            book = transaction.append(book, "plan", fixed, charge=0, step=CHARGED)
        require_planned(self.budget.terms, plan, self.charge)
        if plan.unit_key != self.unit_key:
            raise PlanMismatchError(
                f"Account {book.name!r} protects {_units(plan.unit_key)}, and this "
                f"release {_units(self.unit_key)}. Open an account of its own for the "
                "other kind of unit."
            )
        events = plan.events or events
        cost = self.budget.terms.cost(events, plan)
        at = require_payable(transaction, book, cost)
        charged = {
            "charge": self.charge.model_dump(mode="json"),
            "events": [event.model_dump(mode="json") for event in events],
            "cost": cost,
            "steps": self.steps,
            "header": dict(self.header or {}),
            "owner": owner,
        }
        number = book.used + 1
        place = None if self.key is None else place_of(self.key)
        values = {"at": at, "charge": number, "step": CHARGED, "key": place}
        book = transaction.append(book, "charge", charged, cost=cost, **values)
        stored = read_charge(transaction, book, number)
        return Paid(self.ledger, stored, token, by_unit=by_unit)

    def _first_plan(self, events: tuple[Event, ...]) -> Plan:
        """Return what the first charge fixes for all later ones."""
        if self.budget.terms.filter is not None:
            return Plan(charge=None, events=(), unit_key=self.unit_key)
        return Plan(charge=self.charge, events=events, unit_key=self.unit_key)

    def _require_possible(self) -> None:
        """Refuse what the account can't promise anything for."""
        if self.unit_key is not None and not isinstance(self.unit_key, str):
            raise InvalidParameterError(
                "unit_key must be a metadata key's name, or None."
            )
        parameters.count(self.steps, "steps")
        if self.budget.scope == "corpus":
            return
        if not self.charges_units:
            raise InvalidParameterError(
                f"Account {self.budget.account!r} charges units one by one, and this "
                "source of groups can't name the units that take part: use retrieval "
                "by a public score threshold (RetrievedGroups with score_threshold=), "
                "or an account with scope='corpus'. Best-of-the-corpus retrieval can't "
                "be charged by unit: who is in it depends on the others."
            )
        if self.steps > 1 or self.resumable:
            # The units that paid may not be those that can pay now.
            raise InvalidParameterError(
                f"Account {self.budget.account!r} charges units one by one, and "
                f"{self.charge.name} draws several times, or goes on, under one "
                "charge: use an account with scope='corpus'."
            )


def taken_or_payable(purchase: Purchase, noun: str, way_out: str) -> Stored | None:
    """Return the stored release that is taken; None if another one can be paid for.

    Args:
        purchase: What is to be bought; with `anew` nothing stored is taken.
        noun: What a release is called, in messages.
        way_out: What takes a stored one, in messages.

    Raises:
        BudgetExhaustedError: If the account can't pay.
    """
    budget, key = purchase.budget, purchase.key or ""

    def stored() -> Stored | None:
        return last(budget.ledger, budget.account, key)

    known = None if purchase.anew else stored()
    if known is not None:
        return known
    try:
        budget.require_payable(purchase.charge)
    except BudgetExhaustedError as error:
        message = str(error)
    else:
        return None
    # Another asking of the same may have spent the account meanwhile.
    known = stored()
    if known is not None and not purchase.anew:
        return known
    if known is not None:
        message += (
            f" A {noun} of the same terms is stored in this account: {way_out}, at no "
            "charge."
        )
    elif not purchase.anew:
        message += f" There is no {noun} of these terms in it to take."
    raise BudgetExhaustedError(message)


@dataclass
class Waiting:
    """A wait for what another asking draws, which ends after a public time."""

    _steps: int = -1
    _since: float = 0.0
    _pause: float = 0.002

    def pause(self, stored: Stored) -> float:
        """Return how many seconds to wait before the next look.

        Raises:
            LedgerError: If nothing was stored for too long.
        """
        now = time.monotonic()
        if len(stored.values) != self._steps:
            self._steps, self._since = len(stored.values), now
        elif now - self._since > owners.SILENCE:
            raise LedgerError(
                f"Another asking draws charge {stored.charge} of account "
                f"{stored.account!r} and has stored nothing for {owners.SILENCE:g} "
                "seconds: nothing was charged. Ask again, or end that process."
            )
        self._pause = min(1.5 * self._pause, 0.2)
        return self._pause


def _units(unit_key: str | None) -> str:
    if unit_key is None:
        return "each record by itself"
    return f"units named by {unit_key!r}"
