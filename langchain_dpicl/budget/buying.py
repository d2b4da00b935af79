"""Paying for a release once, or finding the one that was paid for; and drawing it once.

* *One key, one charge.* Looking and charging are one transaction, so callers of one
  process and of several pay once for a key.
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
    Unit, relation, noise and events are the mechanism's. A purchase reads public terms
    and what was released. A key is made of public values, so what it finds is
    post-processing of what was paid for. A draw that was lost and is charged anew is an
    outcome of its own, paid for by its charge. What a resumable release draws again was
    seen by nobody, and what lost it did not look at it: between noise and store nothing
    may fail by what was drawn.
"""

from __future__ import annotations

import json
import os
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from typing_extensions import Self

from langchain_dpicl.accounting import Charge, Event
from langchain_dpicl.budget.pricing import (
    require_charge,
    require_payable,
    require_planned,
)
from langchain_dpicl.budget.stored import (
    SILENCE,
    Stored,
    end_owner,
    find_charge,
    is_at_work,
    last,
    new_owner,
    owner_name,
    place_of,
    read_charge,
    read_plan,
)
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    LedgerError,
    UnsoundStoreError,
)
from langchain_dpicl.ledger import Ledger, Plan
from langchain_dpicl.ledger.book import (
    CHARGED,
    NOTED,
    Book,
    Transaction,
    reads,
    writes,
)
from langchain_dpicl.ledger.units import collect

if TYPE_CHECKING:
    from langchain_dpicl.budget.handler import PrivacyBudgetHandler

_T = TypeVar("_T")
Again: TypeAlias = Callable[[Sequence[Any]], bool]
"""Says of the draws that are stored under a key whether they are given again."""


@dataclass(frozen=True, repr=False)
class Purchase:
    """What is to be bought of an account; see `PrivacyBudgetHandler.buy`.

    While another asking draws what is stored under the key, `found` and `bought` wait.

    Attributes:
        budget: The account.
        charge: What the release costs, with holes that the account fills.
        key: Text made of all public values that the release depends on, and of nothing
            else; None is a release of its own.
        steps: How many draws the charge pays for.
        unit_key: The metadata key that names the protected unit; an account protects
            one kind of unit.
        charges_units: Whether the caller will name every unit that takes part to
            `Paid.collect`.
        header: Public terms of the release, ready for JSON, stored beside it.
        again: Whether a draw that is stored under the key is given again; if not, it is
            charged anew. By default it is.
        resumable: Whether what was not stored is drawn under the charge that was made
            for it. That is sound where nothing that loses a draw looks at it.
        anew: Whether to pay for another release whatever is stored under the key.
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
        return None if self.key is None else _awaited(self.look)

    def bought(self) -> Paid:
        """Pay, once nobody else draws for the key."""
        return _awaited(self.attempt)

    @reads
    def look(self, transaction: Transaction) -> Paid | Stored | None:
        """Return what needs no charge: what is drawn, or what somebody draws now."""
        book = transaction.load("account", self.budget.account)
        return self._known(self._last(transaction, book), transaction.now(book))

    def attempt(self) -> Paid | Stored:
        """Pay, or return what needs no charge."""
        self._require_possible()
        known = self.look() if self.key is not None else None
        if known is not None:
            return known
        events, token = self.budget.quote(self.charge), new_owner()
        paid: Paid | Stored | None = None
        try:
            paid = self._pay(events, token)
            if isinstance(paid, Paid) and not paid.is_again:
                self.budget.keep_plan(self._plan(paid.events))
        finally:
            # Also where an interrupt comes between the charge and its return.
            if not isinstance(paid, Paid) or paid.is_again:
                end_owner(token)
        return paid

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
        book = transaction.load("account", self.budget.account, "alone")
        lost = self._last(transaction, book)
        known = self._known(lost, transaction.now(book))
        if known is not None:
            return known
        by_unit, owner = self.budget.scope == "unit", owner_name(token)
        if lost is not None and not lost.is_complete:
            # After this entry the former owner stores nothing, if it still runs.
            body = {"owner": owner if self.resumable else None}
            book = transaction.append(book, "owner", body, charge=lost.charge)
            if self.resumable:
                return Paid(self.ledger, lost, token, by_unit=by_unit)
        terms, plan = self.budget.terms, read_plan(transaction, book)
        if plan is None:
            if terms.corpus is not None:
                corpus = transaction.load("corpus", terms.corpus).corpus
                corpus.require_unit_key(book.name, self.unit_key)
            plan = self._plan(events)
            fixed = plan.model_dump(mode="json")
            book = transaction.append(book, "plan", fixed, charge=0, step=CHARGED)
        require_planned(terms, plan, self.charge, self.unit_key)
        events = plan.events or events
        cost = terms.cost(events)
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

    def _plan(self, events: tuple[Event, ...]) -> Plan:
        """Return what the account's first charge fixes."""
        if self.budget.terms.filter is not None:
            return Plan(unit_key=self.unit_key)
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
        charging = f"Account {self.budget.account!r} charges units one by one, and"
        if not self.charges_units:
            raise InvalidParameterError(
                f"{charging} this source of groups can't name the units that take "
                "part: use retrieval by a public score threshold (RetrievedGroups with "
                "score_threshold=), or an account with scope='corpus'. Who is in the "
                "best of a corpus depends on the others, so nobody can pay for it "
                "alone."
            )
        if self.steps > 1 or self.resumable:
            # The units that paid may not be those that can pay now.
            raise InvalidParameterError(
                f"{charging} {self.charge.name} draws several times, or goes on, under "
                "one charge: use an account with scope='corpus'."
            )


def taken_or_payable(purchase: Purchase, noun: str, way_out: str) -> Stored | None:
    """Return the stored release that is taken; None if another one can be paid for."""
    budget, key = purchase.budget, purchase.key or ""
    known = None if purchase.anew else last(budget.ledger, budget.account, key)
    if known is not None:
        return known
    try:
        budget.require_payable(purchase.charge)
    except BudgetExhaustedError as error:
        message = str(error)
    else:
        return None
    # Another asking of the same may have spent the account meanwhile.
    known = last(budget.ledger, budget.account, key)
    if not purchase.anew:
        if known is not None:
            return known
        message += f" There is no {noun} of these terms in it to take."
    elif known is not None:
        message += f" A {noun} of the same terms is stored in it: {way_out}, for free."
    raise BudgetExhaustedError(message)


def _awaited(attempt: Callable[[], _T | Stored]) -> _T:
    """Return what `attempt` does, as soon as nobody else draws the same."""
    steps, since, pause = -1, 0.0, 0.002
    while isinstance(result := attempt(), Stored):
        now = time.monotonic()
        if len(result.values) != steps:
            steps, since = len(result.values), now
        elif now - since > SILENCE:
            raise LedgerError(
                f"Another asking draws charge {result.charge} of account "
                f"{result.account!r} and has stored nothing for {SILENCE:g} "
                "seconds: nothing was charged. Ask again, or end that process."
            )
        pause = min(1.5 * pause, 0.2)
        time.sleep(pause)
    return result


class Paid:
    """A charge, the events that were paid, and the right to draw for them once.

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
        self._renewed = time.monotonic()
        self._place, self._has_asked, self._has_collected = 0, False, False
        # The last resort, within this process: a ledger can't be written to from here.
        weakref.finalize(self, end_owner, token)

    def __repr__(self) -> str:
        return f"Paid(account={self.stored.account!r}, charge={self.charge})"

    def __enter__(self) -> Self:
        """Begin to draw."""
        return self

    def __exit__(self, *_: object) -> None:
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
            end_owner(self._token)
        return json.loads(body)["value"]

    def resume(self) -> tuple[Any, ...]:
        """Return the steps that are stored already; `once` goes on after them."""
        self._place = len(self.steps)
        return self.steps

    def finish(self) -> None:
        """Note that nothing is left to draw, though not every step was drawn."""
        if self.is_again or self._place == self.stored.steps:
            return
        self._require_right()
        self._set_owner({"owner": None, "ended": True})
        end_owner(self._token)

    def keep_note(self, value: Any) -> Any:
        """Store a public wording of what was drawn; return the first one stored."""
        if self.note is None:
            self.note = self._keep_note(json.loads(json.dumps(value)))
        return self.note

    def renew(self) -> None:
        """Renew the owner's entry now and then, so that a long draw counts as alive."""
        now = time.monotonic()
        if self._has_right and now - self._renewed > SILENCE / 4:
            self._renewed = now
            with suppress(LedgerError):  # The draw is stored, or refused, in the end.
                self._set_owner({"owner": owner_name(self._token)})

    def leave(self) -> None:
        """Give up what is not drawn yet."""
        if self._has_right:
            with suppress(LedgerError):  # Then silence ends it.
                self._set_owner({"owner": None})
            end_owner(self._token)

    def require_collected(self) -> None:
        """Refuse a draw for which no unit was asked to pay, where units pay."""
        if self.collect is not None and not self._has_collected:
            raise self._unsound()

    @property
    def _has_right(self) -> bool:
        return os.getpid() == self._process and is_at_work(self._token)

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
        if not stored.is_owned(self._token):
            raise LedgerError(
                f"Another owner draws for charge {self.charge} of account "
                f"{self.stored.account!r}: what was drawn here is dropped. Ask again "
                "to get the stored one."
            )
        return book, stored

    @writes
    def _set_owner(self, transaction: Transaction, body: dict[str, Any]) -> None:
        """Say who draws what is not drawn: this owner still, or nobody."""
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
