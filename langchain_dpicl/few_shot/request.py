"""From what was asked for to a charged generation, or back to one that was interrupted.

`GenerationRequest.read` and the public questions to the model after it refuse all that
can be refused. `GenerationRequest.begin` charges. From there on only a failure of the
model or the ledger stops the generation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from langchain_dpicl import accounting
from langchain_dpicl.budget import PrivacyBudgetHandler
from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import Hidden, without_frames
from langchain_dpicl.errors import PlanMismatchError
from langchain_dpicl.few_shot.drafts import Drafts
from langchain_dpicl.few_shot.forecast import forecast, require_signal
from langchain_dpicl.few_shot.generation import Generation, record_of
from langchain_dpicl.few_shot.public_calls import PublicCalls
from langchain_dpicl.few_shot.records import PrivateRecords
from langchain_dpicl.few_shot.spec import GenerationSpec, PaidTokens, paid_for
from langchain_dpicl.groups import SampledGroups
from langchain_dpicl.mechanisms.random import current
from langchain_dpicl.release.flow import Flow, in_thread
from langchain_dpicl.release.purchase import Purchase, header_of
from langchain_dpicl.release.store import Entry, ReleaseStore
from langchain_dpicl.released.checking import checked_record


@dataclass(frozen=True, repr=False)
class GenerationRequest:
    """A generation that was asked for and not begun.

    `stored` is the stored generation to go on with (None to begin one), `paid` what
    that one was charged, and `sources` draw each class's groups.
    """

    asking: PublicCalls
    terms: GenerationSpec
    records: PrivateRecords
    per_label: int
    purchase: Purchase
    stored: Entry | None
    paid: PaidTokens | None
    sources: Mapping[str, SampledGroups] = field(default_factory=dict)

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
        purchase = purchase_of(asking, terms, budget, examples, resume=resume)
        stored, paid = purchase.found(), None
        if stored is None:
            _require_lasting_labels(terms, budget)
            rates = terms.rates(held.sizes)
            stored = purchase.require_payable(terms.charge(rates, examples))
        if stored is not None:
            paid = paid_for(stored, terms, examples)
            rates = paid.rates
        order = cls(asking, terms, held, examples, purchase, stored, paid)
        if paid is None:
            order._require_possible(rates)
        return replace(order, sources=order._sources(rates))

    def drafts(self) -> Drafts:
        """Return the examples that are to be made, before their first step."""
        return drafts_of(self.asking, self.terms, self.per_label)

    def begin(self) -> Flow[Generation]:
        """Hand on the charge of a generation, or a wait for the stored one; return it.

        It is complete, or the purchase's owner draws what is left.
        """
        entry = yield from self.purchase.taken(self._begun)
        continued: Generation = yield in_thread(partial(self._continued, entry))
        return continued

    def _begun(self) -> Entry:
        terms, rates = self.terms, self.terms.rates(self.records.sizes)
        if self.paid is not None:
            rates = self.paid.rates
        return self.purchase.begun(
            terms.charge(rates, self.per_label),
            lambda paid: self._header(terms.by_label(paid.events)),
            unit_key=terms.fields.unit,
        )

    def _continued(self, entry: Entry) -> Generation:
        sources, paid = self.sources, paid_for(entry, self.terms, self.per_label)
        known = self.paid.rates if self.paid else self.terms.rates(self.records.sizes)
        if paid.rates != known:  # Another process has begun it.
            sources = self._sources(paid.rates)
        return Generation(
            asking=self.asking,
            terms=self.terms,
            drafts=self.drafts(),
            entry=entry,
            sources=sources,
            paid=paid,
        ).followed()

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

    def _require_possible(self, rates: Mapping[str, float]) -> None:
        """Refuse what the noise would hide, or what could not be recorded."""
        terms, message = self.terms, ""
        try:
            found = forecast(
                terms,
                self.purchase.budget,
                rates,
                per_label=self.per_label,
                choices=self.asking.choices,
            )
        except PlanMismatchError as error:
            message = str(error)
        if message:
            raise PlanMismatchError(f"{message}{_sizes_matter(terms)}")
        require_signal(found, terms)
        # Any noise will do: what is looked at is whether the rest can be recorded.
        trial = terms.charge(rates, self.per_label).at(1.0)
        checked_record(self._header(terms.by_label(trial))["record"])

    def _header(self, paid: PaidTokens) -> dict[str, Any]:
        delta = self.purchase.budget.delta
        header = {
            "sizes": "counted" if self.terms.label_sizes is None else "declared",
            "delta": delta,
            "epsilon": accounting.compose(paid.events, delta),
        }
        trial = {**header_of(paid.events, None), **header}
        entry = Entry(self.purchase.store, 0, trial)
        begun = Generation(self.asking, self.terms, self.drafts(), entry, paid)
        record = record_of(begun, self.per_label)
        for name in ("tokens_released", "complete"):  # These follow from the draw.
            del record["parameters"][name]
        return {**header, "record": record}


def purchase_of(
    asking: PublicCalls,
    terms: GenerationSpec,
    budget: PrivacyBudgetHandler,
    per_label: int,
    *,
    resume: bool,
) -> Purchase:
    """Return how generations of these terms are paid for."""

    def ended(entry: Entry) -> bool:
        drafts = drafts_of(asking, terms, per_label)
        return Generation(asking, terms, drafts, entry, PaidTokens()).followed().ended

    return Purchase(
        store_of(asking, terms, budget, per_label),
        ended,
        "generation",
        "generate(..., resume=True) continues or returns it, and released() reads it",
        resume,
    )


def store_of(
    asking: PublicCalls,
    terms: GenerationSpec,
    budget: PrivacyBudgetHandler,
    per_label: int,
) -> ReleaseStore:
    """Return where generations of these terms are stored."""
    kind = terms.fingerprint(
        asking.prompting,
        asking.model.name,
        per_label,
        is_seeded=(asking.random or current()).is_seeded,
    )
    return ReleaseStore(budget, kind, "few-shot")


def drafts_of(asking: PublicCalls, terms: GenerationSpec, per_label: int) -> Drafts:
    """Return the examples of a generation, before their first step."""
    return Drafts(asking.model, terms.labels, per_label, terms.max_tokens, terms.stop)


def _read_records(records: Iterable[Any], terms: GenerationSpec) -> PrivateRecords:
    return PrivateRecords.read(records, terms.labels, terms.fields)


def _sizes_matter(terms: GenerationSpec) -> str:
    """Return why a plan may not fit that fitted before."""
    if terms.label_sizes is not None:
        return ""
    return (
        " The rates follow the labels' numbers of people: if these have changed since "
        "the account's first generation, give label_sizes= of then."
    )


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
