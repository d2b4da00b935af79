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
from langchain_dpicl.accounting import event_to_dict
from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.budget.demand import Grant
from langchain_dpicl.few_shot.asking import Asking
from langchain_dpicl.few_shot.forecast import forecast, require_hope
from langchain_dpicl.few_shot.generation import Generation
from langchain_dpicl.few_shot.journal import Entry, Journal, damaged
from langchain_dpicl.few_shot.lanes import Lanes
from langchain_dpicl.few_shot.records import PrivateRecords
from langchain_dpicl.few_shot.terms import ALL, Terms
from langchain_dpicl.groups import SampledGroups
from langchain_dpicl.groups.terms import checked
from langchain_dpicl.sealed import Hidden


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
        stored: The interrupted generation to go on with; None to begin one.
    """

    asking: Asking
    terms: Terms
    budget: PrivacyBudgetHandler
    records: PrivateRecords
    per_label: int
    rates: Mapping[str, float]
    sources: Mapping[str, SampledGroups]
    stored: Entry | None

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
        held = _read_records(records.value, terms)
        held.require_enough(terms.n_groups)
        journal = journal_of(asking, terms, budget, examples)
        stored = None
        if resume:
            stored = _interrupted(journal, asking, terms, examples)
        rates = terms.rates(held.sizes) if stored is None else _rates(stored)
        sources = {
            name: held.source(
                name,
                n_groups=terms.n_groups,
                sampling_rate=rates[name],
                records_per_unit=terms.records_per_unit,
                random=asking.random,
            )
            for name in terms.classes
        }
        if stored is None:
            # An account that can't pay is asked first: then no model is.
            budget.require_payable(terms.demand(rates, examples))
            require_hope(
                forecast(
                    terms,
                    budget,
                    rates,
                    per_label=examples,
                    choices=asking.choices,
                ),
                terms,
            )
        return cls(asking, terms, budget, held, examples, rates, sources, stored)

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
        entry = self._charged() if self.stored is None else self.stored
        return Generation(
            asking=self.asking,
            terms=self.terms,
            lanes=self.lanes(),
            entry=entry,
            sources=self.sources,
            noise=_noise(entry, self.terms),
        ).followed()

    def _charged(self) -> Entry:
        terms = self.terms
        demand = terms.demand(self.rates, self.per_label)
        grant = self.budget.admit(
            demand, unit_key=terms.fields.unit, n_units=self.records.n_units
        )
        header = _header(self, grant)
        return journal_of(self.asking, terms, self.budget, self.per_label).start(header)


def journal_of(
    asking: Asking, terms: Terms, budget: PrivacyBudgetHandler, per_label: int
) -> Journal:
    """Return where generations of these terms are stored."""
    kind = terms.fingerprint(asking.prompting, asking.model.name, per_label)
    return Journal(budget, kind)


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


def _interrupted(
    journal: Journal, asking: Asking, terms: Terms, per_label: int
) -> Entry | None:
    """Return the oldest generation that is not complete."""
    for entry in journal.entries():
        lanes = lanes_of(asking, terms, per_label)
        if not Generation(asking, terms, lanes, entry, {}, {}).followed().ended:
            return entry
    return None


def _header(order: Order, grant: Grant) -> dict[str, Any]:
    terms, budget = order.terms, order.budget
    names = terms.classes
    noise = [
        part.noise_multiplier if terms.mechanism == "gaussian" else part.epsilon
        for part in grant.parts
    ]
    return {
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "library": __version__,
        "rates": dict(order.rates),
        "noise": dict(zip(names, noise, strict=True)),
        "sizes": "counted" if terms.label_sizes is None else "declared",
        "events": [event_to_dict(event) for event in grant.events],
        "epsilon": accounting.compose(grant.events, budget.delta),
        "delta": budget.delta,
        "charge": grant.sequence,
        "account": budget.public_state(grant),
    }


def _rates(entry: Entry) -> dict[str, float]:
    return _numbers(entry, "rates")


def _noise(entry: Entry, terms: Terms) -> dict[str, float]:
    noise = _numbers(entry, "noise")
    if set(noise) != set(terms.classes):
        raise damaged()
    return noise


def _numbers(entry: Entry, name: str) -> dict[str, float]:
    found = entry.header.get(name)
    if not isinstance(found, dict) or any(
        not isinstance(value, float) or not value > 0 for value in found.values()
    ):
        raise damaged()
    return found
