"""What a ledger promises, and the values that go in and out of it.

A ledger holds *accounts*. An account is opened once with its terms: the total
(epsilon, delta) and the number of queries. The first query fixes the *plan*: the exact
events that each query releases. From then on a charge is one use of the plan.

Every ledger keeps these promises:

* **Durable before noise.** `charge` returns only when the charge would survive the
  death of this process.
* **Never overspent.** The number of charges never passes the account's `queries`,
  whatever the number of threads and processes.
* **Fixed before the first use.** Terms and plan are written once and never change.
* **Fail closed.** Whatever goes wrong raises; no path returns a charge that was not
  written.
* **No refunds, no private text.** A charge is never taken back, and a ledger holds
  public parameters only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from langchain_dpicl.accounting import Event, event_from_dict, event_to_dict
from langchain_dpicl.exceptions import LedgerError, PlanMismatchError
from langchain_dpicl.parameters import ParameterError

NAME_LIMIT = 200


@dataclass(frozen=True)
class AccountTerms:
    """What an account promises in all.

    Attributes:
        name: The account's name, unique in its ledger.
        epsilon: Total privacy loss bound.
        delta: Total failure probability.
        queries: How many releases the account pays for.
    """

    name: str
    epsilon: float
    delta: float
    queries: int

    def require_same(self, stored: AccountTerms) -> None:
        """Refuse to use an account under other terms than it was opened with.

        Args:
            stored: The terms the ledger holds.

        Raises:
            PlanMismatchError: If any of the terms differ.
        """
        differing = [
            f"{field.name} is {getattr(stored, field.name)}, "
            f"not {getattr(self, field.name)}"
            for field in fields(self)
            if getattr(self, field.name) != getattr(stored, field.name)
        ]
        if differing:
            raise PlanMismatchError(
                f"Account {self.name!r} is already open with other terms: "
                f"{'; '.join(differing)}. A guarantee can't be changed after the "
                "fact: use the stored terms, or open an account with another name."
            )


@dataclass(frozen=True)
class Plan:
    """What each query of an account releases, fixed at the first query.

    Attributes:
        demand: What the releasing parser asked for, in words of `Demand.to_dict`;
            another parser may use the plan exactly when it asks for the same.
        events: The calibrated events of one query.
    """

    demand: dict[str, Any]
    events: tuple[Event, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-able values, floats exact."""
        return {
            "demand": self.demand,
            "events": [event_to_dict(event) for event in self.events],
        }

    @classmethod
    def from_dict(cls, value: Any) -> Plan:
        """Read a stored plan.

        Raises:
            LedgerError: If it holds anything this version does not know.
        """
        try:
            events = tuple(event_from_dict(event) for event in value["events"])
            demand = value["demand"]
        except (ParameterError, KeyError, TypeError) as error:
            raise LedgerError(
                "The account's plan can't be read: it was written by another version "
                f"or damaged ({error}). Nothing is released on a plan that can't be "
                "understood."
            ) from None
        if not events or not isinstance(demand, dict):
            raise LedgerError("The account's plan can't be read: it is damaged.")
        return cls(demand=demand, events=events)


@dataclass(frozen=True)
class AccountState:
    """An account as the ledger holds it.

    Attributes:
        terms: What the account promises.
        plan: What each query releases; None before the first query.
        used: How many queries have been charged.
        closed: Whether an operator has closed the account.
    """

    terms: AccountTerms
    plan: Plan | None
    used: int
    closed: bool


@dataclass(frozen=True)
class Charge:
    """One use of the plan, written.

    Attributes:
        account: The account that paid.
        sequence: 1 for the account's first query, and so on without gaps.
        events: What this release may spend.
    """

    account: str
    sequence: int
    events: tuple[Event, ...]


@dataclass(frozen=True)
class ChargeRecord:
    """A charge as read back from the ledger.

    Attributes:
        charge: The charge.
        at: When it was written, in UTC.
    """

    charge: Charge
    at: datetime


class Ledger(ABC):
    """Accounts and their charges; see the module docstring for the promises."""

    @abstractmethod
    def open(self, terms: AccountTerms) -> AccountState:
        """Open an account, or find it open under the same terms.

        Raises:
            PlanMismatchError: If it is open under other terms.
            LedgerError: If the ledger can't be used.
        """

    @abstractmethod
    def fix_plan(self, name: str, plan: Plan) -> Plan:
        """Store the plan unless one is stored; return the one that holds.

        Raises:
            LedgerError: If the ledger can't be used or has no such account.
        """

    @abstractmethod
    def charge(self, name: str) -> Charge:
        """Charge one query, durably, or raise.

        Raises:
            BudgetExhaustedError: If all queries are spent.
            LedgerError: If the ledger can't be used, the account is unknown, closed,
                or has no plan yet.
        """

    @abstractmethod
    def state(self, name: str) -> AccountState:
        """Return an account's state.

        Raises:
            LedgerError: If the ledger can't be used or has no such account.
        """

    @abstractmethod
    def close_account(self, name: str) -> None:
        """Close an account for good: it pays for nothing any more."""

    @abstractmethod
    def store_answer(self, name: str, key: str, answer: str) -> None:
        """Keep a released answer of an account; the first one under a key stays.

        Args:
            name: The account that paid for it.
            key: What it answers, made of public things only.
            answer: The answer and its record, as text.
        """

    @abstractmethod
    def stored_answer(self, name: str, key: str) -> str | None:
        """Return the answer kept under a key, or None."""

    @abstractmethod
    def accounts(self) -> list[str]:
        """Return the names of all accounts, sorted."""

    @abstractmethod
    def charges(self, name: str) -> list[ChargeRecord]:
        """Return an account's charges, oldest first."""
