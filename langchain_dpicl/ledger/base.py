"""What a ledger promises, and the values that go in and out of it.

A ledger holds *accounts*. An account is opened once with its terms: the total
(epsilon, delta) and how it is accounted for. Under a *plan* the first query fixes the
exact events that each query releases, and a charge is one use of it. Under a *filter*
each charge names its own events, and their costs add up to a limit. The account of a
whole corpus charges everybody at once; a *per-unit* account keeps a balance for every
unit and charges those that take part.

Every ledger keeps these promises:

* **Durable before noise.** A charge returns only when it would survive the death of
  this process.
* **Never overspent.** What was charged never passes the account's limit (in a per-unit
  account: any unit's limit), whatever the number of threads and processes.
* **Fixed before the first use.** Terms and plan are written once and never change.
* **Fail closed.** Whatever goes wrong raises; no path returns a charge that was not
  written.
* **No refunds, no private text.** A charge is never taken back. Accounts and journal
  hold public parameters only. Balances of units are private; they are kept under keyed
  hashes of the unit ids, and nobody but an operator's export reads them.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from langchain_dpicl.accounting import UNITS, Cost, Event, read_events
from langchain_dpicl.accounting import Filter as EventFilter
from langchain_dpicl.errors import InvalidParameterError, LedgerError, PlanMismatchError
from langchain_dpicl.ledger.periods import Period, parse_period
from langchain_dpicl.ledger.release_store import ReleaseStore, Starts

if TYPE_CHECKING:
    from langchain_dpicl.ledger.corpus import CorpusState, CorpusTerms

NAME_LIMIT = 200

NOTHING = Cost(0, 0)
PLAN_USE = Cost(1, 0)  # One use of a plan, whose limit counts uses.
Filter = Literal["renyi"]
Accounting = Literal["plan", "renyi"]
Scope = Literal["corpus", "unit"]


def differences(given: Any, stored: Any) -> str:
    """Return in words which fields of two dataclasses differ; empty if none does."""
    pairs = [
        (term.name, getattr(stored, term.name), getattr(given, term.name))
        for term in fields(given)
    ]
    return "; ".join(f"{name} is {a}, not {b}" for name, a, b in pairs if a != b)


@dataclass(frozen=True)
class AccountTerms:
    """What an account promises in all.

    Attributes:
        name: The account's name, unique in its ledger.
        epsilon: Total privacy loss bound.
        delta: Total failure probability.
        queries: Under a plan, how many releases the account pays for; else None.
        accounting: `plan`, or the filter that adds up what was charged.
        scope: Whether a charge is everybody's or that of the units that take part.
        order: The order of a Renyi filter; else None.
        delta0_share: The part of delta that a filter sets aside for failure
            probabilities; None under a plan.
        corpus: The corpus whose people the account protects, and whose cap it counts
            for; None where nobody promised a cap.
        period: When the account pays, as `periods.parse_period` reads it; None is
            without an end. Only an account of a corpus has one.
        purpose: What the answers are for, in the operator's words.
    """

    name: str
    epsilon: float
    delta: float
    queries: int | None = None
    accounting: Accounting = "plan"
    scope: Scope = "corpus"
    order: float | None = None
    delta0_share: float | None = None
    corpus: str | None = None
    period: str | None = None
    purpose: str | None = None

    def require_same(self, stored: AccountTerms) -> None:
        """Refuse to use an account under other terms than it was opened with."""
        if differing := differences(self, stored):
            raise PlanMismatchError(
                f"Account {self.name!r} is already open with other terms: "
                f"{differing}. A guarantee can't be changed after the "
                "fact: use the stored terms, or open an account with another name."
            )

    @property
    def span(self) -> Period | None:
        """From when to when the account pays; None is without an end."""
        return None if self.period is None else parse_period(self.period)

    @property
    def filter(self) -> EventFilter | None:
        """The filter that adds up what was charged; None under a plan."""
        return None if self.accounting == "plan" else _filter_of(self)

    @property
    def limit(self) -> Cost:
        """What may be charged in all: to the account, or to each unit."""
        if self.filter is None:
            return Cost(self.queries or 0, 0)
        return Cost(UNITS, UNITS)

    def cost(self, events: tuple[Event, ...], plan: Plan | None) -> Cost:
        """Return what a release costs: a use of the plan, or what the filter says.

        `plan` is what the account's first query has fixed.

        Raises:
            PlanMismatchError: If the events are not the plan's.
            LedgerError: If there is no plan, or the filter can't add up the events.
        """
        if (found := self.filter) is not None:
            if not events:
                raise LedgerError(
                    f"Account {self.name!r} has no plan: a charge must name its events."
                )
            try:
                return found.cost(events)
            except InvalidParameterError as error:
                raise LedgerError(
                    f"Account {self.name!r} can't add up these events ({error})."
                ) from None
        if plan is None:
            raise LedgerError(
                f"Account {self.name!r} has no plan yet: fix one before the first "
                "charge."
            )
        if not plan.events:
            raise LedgerError("The account's plan can't be read: it is damaged.")
        if events != plan.events:
            raise PlanMismatchError(
                f"Account {self.name!r} is planned for other events than these."
            )
        return PLAN_USE


@functools.lru_cache(maxsize=256)
def _filter_of(terms: AccountTerms) -> EventFilter:
    order, share = terms.order, terms.delta0_share
    if terms.accounting == "plan" or order is None or share is None:
        raise LedgerError(f"Account {terms.name!r} has terms that make no filter.")
    try:
        return EventFilter(
            epsilon=terms.epsilon,
            delta=terms.delta,
            order=order,
            failure_share=share,
        )
    except InvalidParameterError as error:
        raise LedgerError(
            f"Account {terms.name!r} has terms that make no filter ({error})."
        ) from None


@dataclass(frozen=True)
class Plan:
    """What the queries of an account have in common, fixed at the first query.

    Attributes:
        template: What the releasing parser asks for: the fields of its
            `accounting.Charge` but the name. Another parser may use the plan exactly
            when it asks for the same. Under a filter only the unit's key.
        events: The calibrated events of one query; none under a filter.
    """

    template: dict[str, Any]
    events: tuple[Event, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON-able values, floats exact."""
        return {
            "template": self.template,
            "events": [event.model_dump(mode="json") for event in self.events],
        }

    @classmethod
    def from_dict(cls, value: Any) -> Plan:
        """Read a stored plan; refuse one that this version does not know."""
        try:
            events = read_events(value["events"])
            template = value["template"]
        except (InvalidParameterError, KeyError, TypeError) as error:
            raise LedgerError(
                "The account's plan can't be read: it was written by another version "
                f"or damaged ({error}). Nothing is released on a plan that can't be "
                "understood."
            ) from None
        if not isinstance(template, dict):
            raise LedgerError("The account's plan can't be read: it is damaged.")
        return cls(template=template, events=events)


@dataclass(frozen=True)
class AccountState:
    """An account as the ledger holds it.

    Attributes:
        terms: What the account promises.
        plan: What its queries have in common; None before the first query.
        used: How many charges there are.
        closed: Whether an operator has closed the account.
        spent: The charges' costs together. In a per-unit account no unit has spent
            more, and most have spent less.
        closed_at: When an account of a corpus was closed, by the ledger's time.
        salt: The fingerprint of the salt that a per-unit account of a corpus is bound
            to; see `Ledger.bind_salt`.
        at: The ledger's time when an account of a corpus was read; else None.
    """

    terms: AccountTerms
    plan: Plan | None
    used: int
    closed: bool
    spent: Cost = NOTHING
    closed_at: datetime | None = None
    salt: str | None = None
    at: datetime | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Charge:
    """A release that was charged, written.

    Attributes:
        account: The account that paid.
        sequence: 1 for the account's first charge, and so on without gaps.
        events: What this release may spend.
        cost: The same, in steps of the account's limit.
        spent: The costs of all charges up to this one; None where nobody asked.
    """

    account: str
    sequence: int
    events: tuple[Event, ...]
    cost: Cost = PLAN_USE
    spent: Cost | None = field(default=None, compare=False)


@dataclass(frozen=True)
class ChargeRecord:
    """A charge as read back from the ledger.

    Attributes:
        charge: The charge.
        at: When it was written, in UTC; it never goes backwards, and decides nothing.
        digest: The hash chain up to this charge; empty where there is none.
    """

    charge: Charge
    at: datetime
    digest: str = ""


@dataclass(frozen=True, repr=False)
class UnitBalance:
    """What one unit has spent: private, for an operator's export, and not in the repr.

    Attributes:
        tag: Keyed hash of the unit's id; `Ledger.unit_tag` computes it.
        spent: Steps of the account's limit.
    """

    tag: str
    spent: Cost


class Ledger(ReleaseStore):
    """Accounts, charges and releases; see the module docstring for the promises."""

    @abstractmethod
    def open(self, terms: AccountTerms) -> AccountState:
        """Open an account, or find it open under the same terms.

        Raises:
            PlanMismatchError: If it is open under other terms.
            BudgetExhaustedError: If the cap of its corpus has no room for it.
            LedgerError: If the ledger can't be used, has no such corpus, or the
                account's journal is damaged.
        """

    @abstractmethod
    def create_corpus(self, terms: CorpusTerms) -> CorpusState:
        """Create a corpus with its cap, or find it with the same terms.

        Raises:
            PlanMismatchError: If it is there with other terms.
            LedgerError: If the ledger can't be used.
        """

    @abstractmethod
    def corpora(self) -> list[str]:
        """Return the names of all corpora, sorted."""

    @abstractmethod
    def corpus(self, name: str) -> CorpusState:
        """Return a corpus, with its accounts and the ledger's time.

        Raises:
            LedgerError: If the ledger can't be used or has no such corpus.
        """

    @abstractmethod
    def bind_salt(self, name: str, fingerprint: str) -> None:
        """Bind a per-unit account to the salt with a fingerprint, once.

        The fingerprint is kept in the account's row, and its head covers it.

        Raises:
            PlanMismatchError: If the account is bound to another salt.
            LedgerError: If the ledger can't be used, or the account is closed or keeps
                no balances.
        """

    @abstractmethod
    def fix_plan(self, name: str, plan: Plan) -> Plan:
        """Store the plan unless one is stored; return the one that holds.

        Raises:
            PlanMismatchError: If its unit is not that of the account's corpus.
            LedgerError: If the ledger can't be used or has no such account.
        """

    @abstractmethod
    def charge(
        self,
        name: str,
        events: Sequence[Event] | None = None,
        *,
        starts: Starts | None = None,
    ) -> Charge:
        """Charge one release, durably, or raise.

        In a per-unit account this writes the release's price into the journal, and
        `charge_units` then collects it.

        Args:
            name: The account.
            events: What the release may spend. None is one use of the plan.
            starts: The release that the charge starts: its kind, and its header given
                the charge. Both are written together or not at all; see
                `start_release`.

        Raises:
            BudgetExhaustedError: If the account can't pay, its period is over or has
                not begun, or it is the first charge and the cap of the account's corpus
                has no room left.
            PlanMismatchError: If the events are not the plan's.
            LedgerError: If the ledger can't be used, the account is unknown, closed, or
                has no plan yet.
        """

    @abstractmethod
    def charge_units(self, charge: Charge, unit_ids: Sequence[str]) -> list[bool]:
        """Charge every unit that can pay, durably; say for each whether it has paid.

        Private in, private out: for the sealed region. A unit that the ledger has never
        seen has spent nothing. Deleting a unit's records leaves its balance. Who has
        not paid must take no part.

        Args:
            charge: The charge whose price is collected.
            unit_ids: All units that would take part, each once, as `canonical_unit_id`
                spells them.

        Raises:
            LedgerError: If the ledger can't be used, the account is closed, is not a
                per-unit account, or a unit is named twice.
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
    def verify(self, name: str) -> AccountState:
        """Check an account from its terms to its last charge; return its state.

        Raises:
            LedgerError: If a row was edited, deleted or added, or can't be read.
        """

    @abstractmethod
    def accounts(self) -> list[str]:
        """Return the names of all accounts, sorted."""

    @abstractmethod
    def charges(self, name: str) -> list[ChargeRecord]:
        """Return an account's charges, oldest first."""

    @abstractmethod
    def unit_balances(self, name: str) -> Iterator[UnitBalance]:
        """Yield what each unit has spent, by tag: private, for an operator's export."""

    @abstractmethod
    def unit_tag(self, name: str, unit_id: str | int) -> str:
        """Return the tag under which a per-unit account keeps a unit: private."""
