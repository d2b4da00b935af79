"""From what was asked for to a charged generation, or back to one that was interrupted.

`GenerationRequest.read` and the public questions to the model after it refuse all that
can be refused. `GenerationRequest.begin` charges. From there on only a failure of the
model or the ledger stops the generation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from langchain_dpicl.budget import PrivacyBudgetHandler, Purchase, Stored, last
from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import Hidden, without_frames
from langchain_dpicl.errors import PlanMismatchError
from langchain_dpicl.few_shot.drafts import Drafts
from langchain_dpicl.few_shot.forecast import forecast, require_signal
from langchain_dpicl.few_shot.generation import (
    Generation,
    charged_record,
    record_terms,
)
from langchain_dpicl.few_shot.public_calls import PublicCalls
from langchain_dpicl.few_shot.records import PrivateRecords
from langchain_dpicl.few_shot.spec import GenerationSpec, PaidTokens
from langchain_dpicl.groups import SampledGroups
from langchain_dpicl.mechanisms.random import current
from langchain_dpicl.release.buying import bought, taken_or_payable
from langchain_dpicl.release.flow import Flow, in_thread
from langchain_dpicl.released.checking import checked_record

T = TypeVar("T")
_WAY_OUT = "generate(..., resume=True) continues or returns it, and released() reads it"


@dataclass(frozen=True, repr=False)
class GenerationRequest:
    """A generation that was asked for and not begun.

    `purchase` says how it is paid for, and `stored` is the stored generation to go on
    with (None to begin one).
    """

    asking: PublicCalls
    terms: GenerationSpec
    records: PrivateRecords
    per_label: int
    purchase: Purchase
    stored: Stored | None

    @classmethod
    def read(
        cls,
        records: Hidden[Iterable[Any]],
        *,
        asking: PublicCalls,
        terms: GenerationSpec,
        budget: PrivacyBudgetHandler,
        per_label: int,
        resume: bool,
    ) -> GenerationRequest:
        """Check everything that needs neither the model nor a charge."""
        examples = parameters.count(per_label, "per_label")
        # What is refused in there has no frame that holds a record.
        held = without_frames(lambda: _read_records(records.value, terms))
        held.require_enough(terms.n_groups, terms.label_sizes)
        key = key_of(asking, terms, examples)
        stored = last(budget.ledger, budget.account, key) if resume else None
        if stored is None:
            _require_lasting_labels(terms, budget)
            charge = terms.charge(terms.rates(held.sizes), examples)
        else:
            charge = stored.asked
        purchase = Purchase(
            budget,
            charge,
            key,
            # Each step is one token of each example that is not complete.
            steps=terms.max_tokens,
            unit_key=terms.fields.unit,
            header={"record": record_terms(asking, terms, examples)},
            resumable=True,
            anew=not resume,
        )
        if stored is None:
            stored = _advised(
                terms, lambda: taken_or_payable(purchase, "generation", _WAY_OUT)
            )
        order = cls(asking, terms, held, examples, purchase, stored)
        if stored is None:
            order._require_possible()
        return order

    def drafts(self) -> Drafts:
        """Return the examples that are to be made, before their first step."""
        return drafts_of(self.asking, self.terms, self.per_label)

    def begin(self) -> Flow[Generation]:
        """Hand on the charge of a generation, or a wait for the stored one; return it.

        It is complete, or the caller draws what is left.
        """
        paid = yield from bought(self.purchase)
        generation = Generation(
            asking=self.asking,
            terms=self.terms,
            drafts=self.drafts(),
            budget=self.purchase.budget,
            stored=paid.stored,
            owner=paid,
            # Another process may have begun it, with the people whom it has counted.
            sources=self._sources(_rates(paid.stored, self.terms)),
        )
        followed: Generation = yield in_thread(generation.followed)
        return followed

    def _sources(self, rates: Mapping[str, float]) -> dict[str, SampledGroups]:
        terms = self.terms
        return without_frames(
            lambda: {
                name: self.records.source(
                    name,
                    n_groups=terms.n_groups,
                    sampling_rate=rates[name],
                    records_per_unit=terms.records_per_unit,
                    declared=(terms.label_sizes or {}).get(name),
                    random=self.asking.random,
                )
                for name in terms.labels
            }
        )

    def _require_possible(self) -> None:
        """Refuse what the noise would hide, or what could not be recorded."""
        terms = self.terms
        budget, charge = self.purchase.budget, self.purchase.charge
        # Any noise will do: what is looked at is whether the rest can be recorded.
        trial = charge.at(1.0)
        found = _advised(
            terms,
            lambda: forecast(
                terms,
                budget,
                PaidTokens.of(terms.labels, trial).rates,
                per_label=self.per_label,
                choices=self.asking.choices,
            ),
        )
        require_signal(found, terms)
        record = record_terms(self.asking, terms, self.per_label)
        checked_record(charged_record(record, trial, budget.delta))


def key_of(asking: PublicCalls, terms: GenerationSpec, per_label: int) -> str:
    """Return the key under which generations of these terms are stored."""
    kind = terms.fingerprint(
        asking.prompting,
        asking.model.name,
        per_label,
        is_seeded=(asking.random or current()).is_seeded,
    )
    return f"few-shot {kind}"


def drafts_of(asking: PublicCalls, terms: GenerationSpec, per_label: int) -> Drafts:
    """Return the examples of a generation, before their first step."""
    return Drafts(asking.model, terms.labels, per_label, terms.max_tokens, terms.stop)


def _rates(stored: Stored, terms: GenerationSpec) -> dict[str, float]:
    """Return the sampling rates that a stored generation was charged for."""
    return PaidTokens.of(terms.labels, stored.events).rates


def _read_records(records: Iterable[Any], terms: GenerationSpec) -> PrivateRecords:
    return PrivateRecords.read(records, terms.labels, terms.fields)


def _advised(terms: GenerationSpec, step: Callable[[], T]) -> T:
    """Return what a step returns, or say why a plan may not fit that fitted before."""
    try:
        return step()
    except PlanMismatchError as error:
        message = str(error)
    if terms.label_sizes is None:
        message += (
            " The rates follow the labels' numbers of people: if these have changed "
            "since the account's first generation, give label_sizes= of then."
        )
    raise PlanMismatchError(message)


def _require_lasting_labels(
    terms: GenerationSpec, budget: PrivacyBudgetHandler
) -> None:
    """Refuse several generations under a plan where a unit could change its label.

    Privacy:
        A plan is calibrated for a unit that stands under one label in all of them.
        Records may change from one to the next, and a unit that pays one label's price
        and then another's can pay more than either twice. A filter adds up the largest
        cost of any label each time. Records without a unit key are the units
        themselves: one with another label is another unit.
    """
    if budget.fixes_classes and terms.fields.unit is not None and len(terms.labels) > 1:
        raise PlanMismatchError(
            f"Account {budget.account!r} has a plan of {budget.queries} generations. "
            "Between them the records of a unit may come under another label, which a "
            "plan does not cover. Open an account with accounting='renyi' besides "
            "queries=, which adds up what was charged; or one with queries=1."
        )
