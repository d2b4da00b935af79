"""From what was asked for to a charged generation, or back to one that was interrupted.

Everything that can be refused is refused in `Order.read` and by the public questions
to the model that come after it; `Order.begin` charges, and from there on nothing but a
failure of model or ledger stops the generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from langchain_dpicl import accounting, parameters
from langchain_dpicl._version import __version__
from langchain_dpicl.accounting import PureEvent, event_to_dict
from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.exceptions import (
    BudgetExhaustedError,
    LedgerError,
    PlanMismatchError,
)
from langchain_dpicl.few_shot.asking import Asking
from langchain_dpicl.few_shot.forecast import forecast, require_hope
from langchain_dpicl.few_shot.generation import Generation
from langchain_dpicl.few_shot.lanes import Lanes
from langchain_dpicl.few_shot.payment import Payment, paid_for
from langchain_dpicl.few_shot.records import PrivateRecords
from langchain_dpicl.few_shot.result import record_of
from langchain_dpicl.few_shot.terms import ALL, Terms
from langchain_dpicl.groups import SampledGroups
from langchain_dpicl.released.checking import checked_record
from langchain_dpicl.released.journal import Entry, Journal
from langchain_dpicl.sealed.hidden import Hidden, without_frames
from langchain_dpicl.validation import checked


@dataclass(frozen=True, repr=False)
class Order:
    """A generation that was asked for and not begun.

    Attributes:
        asking: Model and prompts.
        terms: The public terms.
        budget: The account.
        records: The private records.
        per_label: Examples of each label.
        rates: Each class's sampling rate.
        sources: For each class, what draws its groups.
        stored: The stored generation to go on with; None to begin one.
        paid: What that one was charged.
    """

    asking: Asking
    terms: Terms
    budget: PrivacyBudgetHandler
    records: PrivateRecords
    per_label: int
    rates: Mapping[str, float]
    sources: Mapping[str, SampledGroups]
    stored: Entry | None
    paid: Payment | None

    @classmethod
    def read(
        cls,
        records: Hidden[Iterable[Any]],
        *,
        asking: Asking,
        terms: Terms,
        budget: PrivacyBudgetHandler,
        per_label: int,
        resume: bool,
    ) -> Order:
        """Check everything that needs neither the model nor a charge."""
        examples = checked(parameters.count, per_label, "per_label")
        # What is refused in there has no frame that holds a record.
        held = without_frames(lambda: _read_records(records.value, terms))
        held.require_enough(terms.n_groups, terms.label_sizes)
        journal = journal_of(asking, terms, budget, examples)
        stored = _last(journal, asking, terms, examples) if resume else None
        paid = None
        if stored is not None:
            paid = paid_for(stored, terms, examples)
        rates = terms.rates(held.sizes) if paid is None else paid.rates
        sources = without_frames(
            lambda: {
                name: held.source(
                    name,
                    n_groups=terms.n_groups,
                    sampling_rate=rates[name],
                    records_per_unit=terms.records_per_unit,
                    declared=(terms.label_sizes or {}).get(name),
                    random=asking.random,
                )
                for name in terms.classes
            }
        )
        order = cls(asking, terms, budget, held, examples, rates, sources, stored, paid)
        if stored is None:
            order._require_payable(journal)
        return order

    def lanes(self) -> Lanes:
        """Return the examples that are to be made, before their first step."""
        return lanes_of(self.asking, self.terms, self.per_label)

    def begin(self) -> Generation:
        """Charge the generation, or find the stored one, and return it.

        Raises:
            BudgetExhaustedError: If the account can't pay.
            PlanMismatchError: If its plan is for another release, or none can be made.
            LedgerError: If the ledger can't be used.
        """
        entry, paid = self.stored, self.paid
        if entry is None or paid is None:
            entry, paid = self._charged()
        return Generation(
            asking=self.asking,
            terms=self.terms,
            lanes=self.lanes(),
            entry=entry,
            sources=self.sources,
            noise=paid.noise,
        ).followed()

    def _require_payable(self, journal: Journal) -> None:
        """Refuse what can't be paid for, or not be recorded afterwards.

        An account that can't pay is asked first: then no model is.
        """
        terms, budget = self.terms, self.budget
        _require_lasting_labels(terms, budget)
        message = ""
        try:
            budget.require_payable(terms.demand(self.rates, self.per_label))
        except BudgetExhaustedError as error:
            message = f"{error}{_way_out(journal)}"
        if message:
            raise BudgetExhaustedError(message)
        try:
            found = forecast(
                terms,
                budget,
                self.rates,
                per_label=self.per_label,
                choices=self.asking.choices,
            )
        except PlanMismatchError as error:
            message = str(error)
        if message:
            raise PlanMismatchError(f"{message}{_sizes_matter(terms)}")
        require_hope(found, terms)
        event = PureEvent(1.0)
        trial = Payment(self.rates, dict(self.rates), (event,), 1)
        header = {**_header(self, trial), "charge": None, "account": None}
        entry = Entry(journal, 0, {**header, "epsilon": event.epsilon})
        checked_record(
            record_of(
                Generation(self.asking, terms, self.lanes(), entry, {}, {}),
                self.per_label,
            )
        )

    def _charged(self) -> tuple[Entry, Payment]:
        terms = self.terms
        grant = self.budget.admit(
            terms.demand(self.rates, self.per_label),
            unit_key=terms.fields.unit,
            n_units=terms.n_units(self.records.n_units),
        )
        paid = Payment.of(terms, self.rates, grant.parts, grant.events, grant.sequence)
        header = {
            **_header(self, paid),
            "epsilon": accounting.compose(grant.events, self.budget.delta),
            "account": self.budget.public_state(grant),
        }
        journal = journal_of(self.asking, terms, self.budget, self.per_label)
        message = ""
        try:
            return journal.start(header), paid
        except LedgerError as error:
            message = str(error)
        raise LedgerError(
            f"{message} The generation was charged (charge {paid.charge}), and its "
            "beginning could not be stored, so it can't be gone on with."
        )


def journal_of(
    asking: Asking, terms: Terms, budget: PrivacyBudgetHandler, per_label: int
) -> Journal:
    """Return where generations of these terms are stored."""
    kind = terms.fingerprint(
        asking.prompting,
        asking.model.name,
        per_label,
        is_secure=asking.random.secure,
    )
    return Journal(budget, kind, "few-shot")


def lanes_of(asking: Asking, terms: Terms, per_label: int) -> Lanes:
    """Return the examples of a generation, before their first step."""
    return Lanes(
        asking.model,
        terms.labels,
        per_label,
        terms.max_tokens,
        terms.stop,
        spend_rest=terms.spend_rest,
    )


def _read_records(records: Iterable[Any], terms: Terms) -> PrivateRecords:
    if terms.open_labels:
        return PrivateRecords.read_open(records, terms.fields, ALL)
    return PrivateRecords.read(
        records, terms.labels, terms.fields, choose_label=terms.is_parallel
    )


def _last(
    journal: Journal, asking: Asking, terms: Terms, per_label: int
) -> Entry | None:
    """Return the oldest generation that is not complete; else the newest one."""
    entries = journal.entries()
    for entry in entries:
        lanes = lanes_of(asking, terms, per_label)
        if not Generation(asking, terms, lanes, entry, {}, {}).followed().ended:
            return entry
    return entries[-1] if entries else None


def _way_out(journal: Journal) -> str:
    """Return what else there is to do where an account can't pay."""
    if not journal.entries():
        return ""
    return (
        " A generation of these very terms is stored in this account: "
        "generate(..., resume=True) goes on with it, or returns it, and released() "
        "reads it, at no charge."
    )


def _sizes_matter(terms: Terms) -> str:
    """Return why a plan may not fit that fitted before."""
    if terms.label_sizes is not None:
        return ""
    return (
        " The rates follow the labels' numbers of people: if these have changed since "
        "the account's first generation, give label_sizes= of then."
    )


def _require_lasting_labels(terms: Terms, budget: PrivacyBudgetHandler) -> None:
    """Refuse several generations under a plan where a unit could change its label.

    Privacy:
        A plan is calibrated for a unit that stands under one label in all of them.
        Records may change from one to the next, and a unit that pays one label's price
        and then another's can pay more than either twice. A filter adds up the
        dearest label each time. Records without a unit key are the units themselves:
        one with another label is another unit.

    Raises:
        PlanMismatchError: If the plan has more than one query.
    """
    if (
        budget.accounting == "plan"
        and (budget.queries or 1) > 1
        and terms.fields.unit is not None
        and terms.is_parallel
        and len(terms.classes) > 1
    ):
        raise PlanMismatchError(
            f"Account {budget.account!r} has a plan of {budget.queries} generations. "
            "Between them the records of a unit may come under another label, which a "
            "plan does not cover. Open an account with accounting='renyi' besides "
            "queries=, which adds up what was charged; or one with queries=1."
        )


def _header(order: Order, paid: Payment) -> dict[str, Any]:
    return {
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "library": __version__,
        "rates": dict(paid.rates),
        "noise": dict(paid.noise),
        "sizes": "counted" if order.terms.label_sizes is None else "declared",
        "events": [event_to_dict(event) for event in paid.events],
        "delta": order.budget.delta,
        "charge": paid.charge,
    }
