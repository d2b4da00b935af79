"""What a charge does to an account: one rule, and one wording, for every ledger."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from langchain_dpicl.accounting import Cost, Event
from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    LedgerError,
    PlanMismatchError,
)
from langchain_dpicl.ledger.base import NAME_LIMIT, AccountState, Charge


def charged(
    state: AccountState, events: Sequence[Event] | None
) -> tuple[AccountState, Charge]:
    """Return an account after one more release, and the charge for it.

    A pure function: whoever calls it writes both, in one transaction, or neither.
    Events of None are one use of the plan.

    Raises:
        BudgetExhaustedError: If the account can't pay.
        PlanMismatchError: If the events are not the plan's.
        LedgerError: If the account is closed, has no plan, or can't add up the events.
    """
    terms = state.terms
    require_open(state)
    require_current(state)
    planned = state.plan.events if state.plan else ()
    paid = planned if events is None else tuple(events)
    cost = terms.cost(paid, state.plan)
    if not fits(cost, terms.limit):
        raise BudgetExhaustedError(
            f"This one release would cost more than the whole of account "
            f"{terms.name!r} (epsilon {terms.epsilon:g}, delta {terms.delta:g}): "
            "nothing was asked of the model and nothing was released. Give it more "
            "noise (and a smaller delta0, if it has one)."
        )
    total = Cost(state.spent.loss + cost.loss, state.spent.failure + cost.failure)
    # A per-unit account is a price list: its limit is every unit's own.
    if terms.scope == "corpus" and not fits(total, terms.limit):
        raise _exhausted(state)
    charge = Charge(terms.name, state.used + 1, paid, cost, spent=total)
    return replace(state, used=charge.sequence, spent=total), charge


def fits(cost: Cost, limit: Cost) -> bool:
    """Return whether a cost is within a limit, in both of its parts."""
    return cost.loss <= limit.loss and cost.failure <= limit.failure


def require_open(state: AccountState) -> None:
    """Refuse an account that an operator has closed."""
    if state.closed:
        raise LedgerError(
            f"Account {state.terms.name!r} is closed: it pays for nothing any more. "
            "Open an account with another name if the people in the corpus agree to a "
            "new guarantee."
        )


def require_current(state: AccountState) -> None:
    """Refuse an account whose period has not begun or is over, by the ledger's time."""
    terms, span = state.terms, state.terms.span
    if span is None:
        return
    if state.at is None:
        raise LedgerError(f"Account {terms.name!r} was read without the ledger's time.")
    if span.start <= state.at < span.end:
        return
    said = (
        f"is over. 'dpicl ledger renew {terms.name}' opens the next one, if the cap of "
        f"corpus {terms.corpus!r} has room for it"
        if span.end <= state.at
        else "has not begun"
    )
    raise BudgetExhaustedError(
        f"Account {terms.name!r} pays for the period {terms.period} (UTC), which "
        f"{said}; nothing was asked of the model and nothing was released."
    )


def is_payable(state: AccountState) -> bool:
    """Return whether an account is open, and its period is now."""
    try:
        require_current(state)
    except BudgetExhaustedError:
        return False
    return not state.closed


def require_unit_known(state: AccountState) -> None:
    """Refuse to charge an account of a corpus before its plan says what a unit is."""
    if state.terms.corpus is not None and state.plan is None:
        raise LedgerError(
            f"Account {state.terms.name!r} belongs to a corpus: fix a plan that names "
            "its unit before the first charge."
        )


def require_salt(state: AccountState, fingerprint: str) -> None:
    """Refuse an account without balances, and one that is bound to another salt."""
    require_unit_account(state)
    if state.salt not in (None, fingerprint):
        raise PlanMismatchError(
            f"Account {state.terms.name!r} is bound to groups of another salt: its "
            "units would be dealt anew. Load the saved index (or pass its salt=) "
            "instead of making a new one."
        )


def require_unused(state: AccountState) -> None:
    """Refuse to fix a plan when releases were paid for without one."""
    require_open(state)
    if state.used:
        raise LedgerError(
            f"Account {state.terms.name!r} was charged without a plan: none can be "
            "fixed any more."
        )


def require_units(state: AccountState, unit_ids: Sequence[str]) -> None:
    """Refuse what can't be collected from units."""
    require_unit_account(state)
    if len(set(unit_ids)) != len(unit_ids):
        raise repeated_unit()


def require_unit_account(state: AccountState) -> None:
    """Refuse to collect from units for an account that has no balances."""
    require_open(state)
    require_per_unit(state)


def repeated_unit() -> LedgerError:
    """Return the error for a unit that was named twice in one draw."""
    return LedgerError(
        "A group source named a unit twice in one draw: what it returns can't be "
        "trusted, and nothing was charged."
    )


def require_per_unit(state: AccountState) -> None:
    """Refuse an account that keeps no balances of units."""
    if state.terms.scope != "unit":
        raise LedgerError(
            f"Account {state.terms.name!r} charges the whole corpus, not single units."
        )


def require_unit_id(unit_id: object) -> str:
    """Return a unit id's one spelling."""
    known_as = canonical_unit_id(unit_id)
    if known_as is None:
        raise LedgerError("A unit id is a non-empty string or an integer.")
    return known_as


def unknown_account(name: str) -> LedgerError:
    """Return the error for an account that the ledger does not hold."""
    return LedgerError(
        f"The ledger holds no account {name!r}. Is the name right ('dpicl ledger list' "
        "shows them), and is it the ledger that was charged before?"
    )


def no_standby(kind: str) -> LedgerError:
    """Return the error for a ledger of a kind that can have no standby."""
    return LedgerError(
        f"{kind} has no standby, and require_synchronous=True asks for one. Use a "
        "PostgreSQL ledger, or leave it out."
    )


def require_name(name: object) -> str:
    """Return a usable account name."""
    if (
        not isinstance(name, str)
        or not name.strip()
        or not name.isprintable()
        or len(name) > NAME_LIMIT
    ):
        raise LedgerError(
            "An account's name must be a printable string of 1 to "
            f"{NAME_LIMIT} characters."
        )
    return name


def _exhausted(state: AccountState) -> BudgetExhaustedError:
    terms = state.terms
    what = (
        f"has spent all {terms.queries} queries of its budget"
        if terms.queries is not None and terms.queries > 1
        else "has spent the only query of its budget"
        if terms.queries is not None
        else "can't pay for this release out of what is left of its budget"
    )
    return BudgetExhaustedError(
        f"Account {terms.name!r} {what} (epsilon {terms.epsilon:g}, delta "
        f"{terms.delta:g}); nothing was asked of the model and nothing was released. "
        "Answers that were released stay usable; a new account is a new promise to "
        "the same people, and the two add up."
        + f" 'dpicl ledger renew {terms.name}' opens the next one."
        * bool(terms.period)
    )


class LastCharges:
    """The number of each account's last charge, and of draws, as one process knows it.

    A ledger that forgets is seen here by the processes that go on: an older copy that
    was written over the file, or a server that lost what it had confirmed.

    Example:
        >>> last = LastCharges()
        >>> last.require_later(Charge("notes", 2, ()), last.before("notes"))
        >>> last.require_later(Charge("notes", 1, ()), last.before("notes"))
        Traceback (most recent call last):
        langchain_dpicl.errors.LedgerError: Account 'notes' has forgotten charges...
    """

    def __init__(self) -> None:
        self._numbers: dict[str, float] = {}
        self._drawn: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    def before(self, account: str) -> float:
        """Return the last number before a charge begins."""
        number = self._numbers.get(account, 0)
        if number == math.inf:
            raise _forgotten(account)
        return number

    def require_later(self, charge: Charge, before: float) -> None:
        """Refuse an account that has fewer charges than this process has made.

        `before` is what `before` returned when the charge began; others may have ended
        since.
        """
        with self._lock:
            if charge.sequence > before:
                number = self._numbers.get(charge.account, 0)
                self._numbers[charge.account] = max(number, charge.sequence)
                return
        self._forget(charge.account)

    def require_drawn(self, account: str, charge: int, steps: int) -> None:
        """Refuse an account that has fewer draws than this process has stored.

        `steps` is how many a charge has, before the next one is written.
        """
        if steps < self._drawn.get((account, charge), 0):
            self._forget(account)

    def note_drawn(self, account: str, charge: int, steps: int) -> None:
        """Remember that a charge has so many draws, once they are stored."""
        with self._lock:
            known = self._drawn.get((account, charge), 0)
            self._drawn[account, charge] = max(known, steps)

    def _forget(self, account: str) -> NoReturn:
        with self._lock:
            # For good: the account may grow beyond the old number.
            self._numbers[account] = math.inf
        raise _forgotten(account)


def _forgotten(name: str) -> LedgerError:
    return LedgerError(
        f"Account {name!r} has forgotten charges, or what was drawn for one, that this "
        "process has made: an older copy of the ledger took its place, or the server "
        "lost what it had confirmed. Nothing is released from it here. See 'Restore' "
        "in docs/operate/backup-and-restore.md, then start this process anew."
    )
