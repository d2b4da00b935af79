"""An account as the handler sees it: one interface, which a plan and a filter fill in.

`terms.account_of` chooses between the two, once; nothing above asks which it is.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from langchain_dpicl import accounting
from langchain_dpicl.accounting import Cost, Event
from langchain_dpicl.accounting.events import EVENT_TYPES
from langchain_dpicl.budget.charge import PaidCharge, require_charge
from langchain_dpicl.budget.state import BudgetState
from langchain_dpicl.common.units import ChargeUnits
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    PlanMismatchError,
)
from langchain_dpicl.ledger import (
    AccountState,
    AccountTerms,
    Charge,
    Ledger,
    Plan,
)
from langchain_dpicl.ledger.charging import is_payable


class Account(ABC):
    """An account of a ledger: how its releases are priced and added up.

    Args:
        terms: The account.
        queries: How many queries its budget is shared into; None: it is not shared.
        ledger: Where the account is kept.
    """

    fixes_classes: bool
    """Whether units must stay in one class of a `Parallel` in all of its charges."""

    def __init__(
        self, terms: AccountTerms, queries: int | None, ledger: Ledger
    ) -> None:
        self.terms = terms
        self.queries = queries
        self.ledger = ledger
        self._stored: Plan | None = None
        self._lock = threading.Lock()

    # -- what a plan and a filter do differently ---------------------------------------

    @abstractmethod
    def price(self, charge: accounting.Charge) -> tuple[Event, ...]:
        """Return what a release would be charged; charge nothing.

        Raises:
            PlanMismatchError: If the account can't pay for such a release.
            InvalidParameterError: If noise is left open that nothing determines.
            LedgerError: If the ledger can't be read.
        """

    @abstractmethod
    def require_filter(self, what: str) -> None:
        """Refuse what charges releases of more than one kind, where one is planned.

        Raises:
            InvalidParameterError: If the account has a plan.
        """

    @abstractmethod
    def _first(self, charge: accounting.Charge, unit_key: str | None) -> Plan:
        """Return what the first release fixes for all later ones."""

    @abstractmethod
    def _events(self, charge: accounting.Charge, stored: Plan) -> tuple[Event, ...]:
        """Return what a release is charged, or refuse one that does not fit."""

    @abstractmethod
    def _require_payment(self, state: AccountState, charge: accounting.Charge) -> None:
        """Refuse a release that can't be paid for now."""

    @abstractmethod
    def _pays(
        self, state: AccountState, asked: accounting.Charge | tuple[Event, ...] | None
    ) -> bool:
        """Return whether an open account would pay for one more release."""

    @abstractmethod
    def _epsilon(self, events: tuple[Event, ...], used: int, total: Cost) -> float:
        """Return the epsilon of `used` charges that cost `total`, at the full delta."""

    @abstractmethod
    def _queries_left(self, state: AccountState, queries: int) -> int:
        """Return how many queries are left, where they have an end."""

    # -- what they do alike ------------------------------------------------------------

    def charge(
        self,
        charge: accounting.Charge,
        unit_key: str | None,
        starts: tuple[str, Callable[[PaidCharge], str]] | None,
        salt: str | None,
    ) -> PaidCharge:
        """Charge one release, durably; see `PrivacyBudgetHandler.charge`."""
        name, stored = self.terms.name, self._bound(charge, unit_key)
        expected = self._events(charge, stored)
        self._require_unit(stored, unit_key)
        # Before the charge: what does not fit is refused at no cost.
        if not charge.fits(expected):
            raise InvalidParameterError("The stored events do not fit the release.")
        self._bind_salt(salt)

        def paid(entry: Charge) -> PaidCharge:
            spent = entry.spent or entry.cost
            collect = self._collector(entry)
            return PaidCharge(entry.events, name, entry.sequence, spent, collect)

        # A ledger of somebody else's need not know of releases.
        more: dict[str, Any] = {}
        if starts is not None:
            kind, header = starts
            more["starts"] = (kind, lambda entry: header(paid(entry)))
        entry = self.ledger.charge(name, expected, **more)
        if entry.events != expected:
            raise PlanMismatchError(
                f"Account {name!r} was charged for another release than the one "
                "planned; nothing was released."
            )
        return paid(entry)

    def quote(self, charge: accounting.Charge) -> tuple[Event, ...]:
        """Return the events that a charge would pay for; charge nothing."""
        require_charge(charge)
        return self.price(charge)

    def require_payable(self, charge: accounting.Charge) -> None:
        """Refuse what a charge would refuse now; charge nothing."""
        require_charge(charge)
        state = self._state()
        self._require_room(state)
        self._require_payment(state, charge)

    def can_afford(
        self, asked: accounting.Charge | Event | Sequence[Event] | None
    ) -> bool:
        """Return whether the account would pay for one more release.

        Raises:
            InvalidParameterError: If what is asked about is no release.
        """
        state = self._state()
        wanted: Any = asked
        if asked is not None and not isinstance(asked, accounting.Charge):
            wanted = tuple(asked) if isinstance(asked, (list, tuple)) else (asked,)
            if not all(isinstance(event, EVENT_TYPES) for event in wanted):
                require_charge(asked)
        if not (is_payable(state) and self._pays(state, wanted)):
            return False
        try:
            self._require_room(state)
        except BudgetExhaustedError:
            return False
        return True

    def spent(self, paid: PaidCharge | None = None) -> BudgetState:
        """Return the epsilon of all charges, or of those up to a certain one.

        In a per-unit account it is the epsilon of a unit that took part every time, as
        far as its balance went.
        """
        if paid is None:
            return self.spent_in(self._state())
        epsilon = self._epsilon(paid.events, paid.sequence, paid.spent)
        return BudgetState(epsilon, delta=self.terms.delta, queries=paid.sequence)

    def remaining(self) -> BudgetState:
        """Return the epsilon and the queries that are left."""
        state, terms, queries = self._state(), self.terms, None
        if terms.scope == "corpus" and self.queries is not None:
            queries = self._queries_left(state, self.queries)
        left = max(terms.epsilon - self.spent_in(state), 0.0)
        return BudgetState(left, delta=terms.delta, queries=queries)

    def spent_in(self, state: AccountState) -> BudgetState:
        """Return the epsilon of all charges of a state of this account."""
        events = state.plan.events if state.plan else ()
        epsilon = self._epsilon(events, state.used, state.spent)
        return BudgetState(epsilon, delta=self.terms.delta, queries=state.used)

    def _require_room(self, state: AccountState) -> None:
        """Refuse a first release that the corpus's cap has no room for."""
        if self.terms.corpus is not None and not state.used:
            self.ledger.corpus(self.terms.corpus).require_room(self.terms)

    def _bind_salt(self, fingerprint: str | None) -> None:
        """Hold a per-unit account of a corpus to one salt; see `Ledger.bind_salt`."""
        if self.terms.scope == "corpus" or self.terms.corpus is None:
            return
        if fingerprint is None:
            raise InvalidParameterError(
                f"Account {self.terms.name!r} charges units one by one in corpus "
                f"{self.terms.corpus!r}, and this source of groups has no salt that "
                "it can be bound to: use RetrievedGroups, or scope='corpus'."
            )
        self.ledger.bind_salt(self.terms.name, fingerprint)

    def _state(self) -> AccountState:
        return self.ledger.state(self.terms.name)

    def _bound(self, charge: accounting.Charge, unit_key: str | None) -> Plan:
        """Return what the first release has fixed, and fix it if this is the first.

        Raises:
            PlanMismatchError: If nothing can be fixed for it.
            InvalidParameterError: If noise is left open that nothing determines.
            LedgerError: If the ledger can't be used.
        """
        with self._lock:
            if self._stored is None:
                self._stored = self._state().plan
            if self._stored is None:
                first = self._first(charge, unit_key)
                self._stored = self.ledger.fix_plan(self.terms.name, first)
            return self._stored

    def _require_unit(self, stored: Plan, unit_key: str | None) -> None:
        if unit_key != (known := stored.template.get("unit_key")):
            raise PlanMismatchError(
                f"Account {self.terms.name!r} protects {_units(known)}, and this "
                f"release {_units(unit_key)}. Open an account of its own for the other "
                "kind of unit."
            )

    def _collector(self, charge: Charge) -> ChargeUnits | None:
        if self.terms.scope == "corpus":
            return None
        return partial(self.ledger.charge_units, charge)


def _units(unit_key: object) -> str:
    if unit_key is None:
        return "each record by itself"
    return f"units named by {unit_key!r}"
