"""The private part of a query: charge, draw, ask, merge, and nothing else comes out.

A query is charged once for each thing that it releases:

1. what the group source releases before it draws (`threshold_template`), if anything;
2. the public-first gate's test, if the chain has one;
3. the parser's release, unless the gate has passed.

Each charge is durable before the groups are drawn and asked for it. The gate and the
release share one set of answers only where that is sound: where a charge is everybody's
and nothing is sampled. A unit that could pay for the test and not for the release must
leave no trace in the latter, and two mechanisms on one sample are not two sampled ones;
so a per-unit account and sampled groups draw and ask anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from langchain_core.documents import Document

from langchain_dpicl.accounting import EventTemplate
from langchain_dpicl.budget import PaidCharge, PrivacyBudgetHandler
from langchain_dpicl.chain.answers import Bought, record_again, released_before
from langchain_dpicl.chain.gate import MECHANISM, PublicFirstGate
from langchain_dpicl.chain.prompting import Prompting
from langchain_dpicl.chain.record import privacy_record
from langchain_dpicl.chain.steps import GroupPrompts, PreparedQuery, Released, Step
from langchain_dpicl.chain.unit_charging import UnitCharging
from langchain_dpicl.common.outcome import Outcome, Status
from langchain_dpicl.common.progress import GroupProgress
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.exceptions import DPError, LedgerError
from langchain_dpicl.groups import GroupSource, ThresholdRelease
from langchain_dpicl.parsers import DPOutputParser
from langchain_dpicl.parsers.base import PublicAnswer
from langchain_dpicl.release.flow import Do, Flow, in_thread
from langchain_dpicl.release.store import Entry
from langchain_dpicl.sealed import Hidden, SealedModel, sealed


@dataclass(frozen=True, repr=False)
class SealedQuery:
    """A chain's private parts, and the order in which they are charged and run.

    Attributes:
        groups: The group source.
        parser: The mechanism.
        prompting: The templates.
        sealed: The model, for the groups.
        gate: The public-first gate, if there is one.
        pad_calls: Whether empty groups make a call too.
        progress: Shows how far the group calls are.
    """

    groups: GroupSource
    parser: DPOutputParser
    prompting: Prompting
    sealed: SealedModel
    gate: PublicFirstGate | None
    pad_calls: bool
    progress: GroupProgress = field(default_factory=GroupProgress)

    @property
    def first_template(self) -> EventTemplate[Any]:
        """What a query's first charge is for, as far as public parameters say."""
        rate = self.groups.sampling_rate
        if (first := self.groups.threshold_template) is not None:
            return first
        return (self.gate or self.parser).event_template(rate)

    @property
    def call_count_is_public(self) -> bool:
        """Whether the number of group calls is the public number of groups.

        Units that have a slot each may be more than that.
        """
        return self.pad_calls and self.groups.relation is Relation.REPLACE

    def resumes(self, budget: PrivacyBudgetHandler) -> bool:
        """Whether a charge is everybody's and the answer's alone."""
        is_first = self.gate is None and self.groups.threshold_template is None
        return is_first and budget.scope == "corpus"

    def release(self, asked: PreparedQuery) -> Flow[Released]:
        """Hand on the private steps of a prepared question; return the release."""
        public_outcome = self.parser.public_outcome(asked.prepared)
        if public_outcome is not None:
            return Released(asked, public_outcome)
        charges: tuple[PaidCharge[Any], ...] = ()
        if (first := self.groups.threshold_template) is not None:
            charges = ((yield self._charge(asked, first)),)
            yield _charged(first, charges[-1])
            asked, chosen = _with_threshold(
                asked, (yield self._release_threshold(asked, charges[-1]))
            )
            yield chosen
        answers: Hidden[list[Slot]] | None = None
        if self.gate is not None and asked.public_answer is not None:
            template = self.gate.event_template(self.groups.sampling_rate)
            bought = yield from self._buy(asked, template, charges, MECHANISM)
            if isinstance(bought, Released):
                return bought
            paid = bought.paid
            charges = (*charges, paid)
            yield _charged(template, paid)
            yield self._asking(asked)
            tested = Hidden((yield self._test(asked, asked.public_answer, bought)))
            agreed, answers = tested.value[0], self._kept(tested, paid)
            yield Step("gate", {"agreed": agreed})
            if agreed:
                outcome = _agreed(asked.public_answer)
                return Released(asked, outcome, charges, MECHANISM, bought.entry)
            asked = asked.knowing({"gate": "disagreed"})
        template = self.parser.event_template(self.groups.sampling_rate)
        bought = yield from self._buy(asked, template, charges)
        if isinstance(bought, Released):
            return bought
        if bought.is_new:
            charges = (*charges, bought.paid)
            yield _charged(template, bought.paid)
        if answers is None:
            yield self._asking(asked)
        outcome = yield from self._merged(asked, bought, answers)
        return Released(
            asked, outcome, charges, entry=bought.entry, is_again=not bought.is_new
        )

    def _merged(
        self, asked: PreparedQuery, bought: Bought, answers: Hidden[list[Slot]] | None
    ) -> Flow[Outcome]:
        try:
            outcome: Outcome = yield self._merge(asked, bought, answers)
        except LedgerError:
            # What could not be stored was dropped whatever it is.
            raise
        except DPError:
            # The region has failed by itself, perhaps by what it drew.
            yield in_thread(bought.close, shielded=True)
            raise
        return outcome

    def _buy(
        self,
        asked: PreparedQuery,
        template: EventTemplate[Any],
        charges: tuple[PaidCharge[Any], ...],
        mechanism: str | None = None,
    ) -> Flow[Bought | Released]:
        """Charge what gives the answer, or find what was released meanwhile."""
        if asked.answers is None:
            return Bought((yield self._charge(asked, template)))

        def record(paid: PaidCharge[Any]) -> dict[str, Any]:
            return self.record(
                Released(asked, Outcome(Status.RELEASED), (*charges, paid), mechanism),
                Status.RELEASED,
            )

        begun = partial(asked.answers.begun, template, record, **self._payers())
        bought: Bought | Entry = yield in_thread(begun)
        if isinstance(bought, Entry):
            return released_before(asked, bought, charges)
        return bought

    def record(self, released: Released, status: Status) -> dict[str, Any]:
        """Return the public record of a release."""
        if released.is_again and released.entry is not None:
            return record_again(released, released.entry, status)
        return privacy_record(
            status=status,
            parser=self.parser,
            groups=self.groups,
            budget=released.asked.budget,
            outcome=released.outcome,
            charges=released.charges,
            details=released.asked.details,
            mechanism=released.mechanism,
        )

    def _charge(self, asked: PreparedQuery, template: EventTemplate[Any]) -> Do:
        budget, payers = asked.budget, self._payers()
        return Do(
            partial(budget.charge, template, **payers),
            partial(budget.acharge, template, **payers),
        )

    def _release_threshold(self, asked: PreparedQuery, paid: PaidCharge[Any]) -> Do:
        payment = UnitCharging.of(paid)
        terms = {"paid": paid, **payment.arguments}

        def release_threshold() -> Flow[ThresholdRelease]:
            found: ThresholdRelease = yield Do(
                partial(self.groups.release_threshold, asked.embedded, **terms),
                partial(self.groups.arelease_threshold, asked.embedded, **terms),
            )
            payment.require_made(self.groups)
            return found

        return sealed(release_threshold)

    def _test(self, asked: PreparedQuery, public: PublicAnswer, bought: Bought) -> Do:
        paid = bought.paid

        def test() -> Flow[tuple[bool, list[Slot]]]:
            slots = yield from self._answers(asked, paid)
            agreed = self._passes(slots, public, paid)
            if agreed and bought.entry is not None:
                yield in_thread(partial(bought.kept, _agreed(public)), shielded=True)
            return agreed, slots

        return sealed(test)

    def _merge(
        self, asked: PreparedQuery, bought: Bought, answers: Hidden[list[Slot]] | None
    ) -> Do:
        paid = bought.paid

        def merge() -> Flow[Outcome]:
            slots = (
                answers.value if answers else (yield from self._answers(asked, paid))
            )
            terms = self._terms(asked, paid)
            outcome: Outcome = yield Do(
                partial(self.parser.release, slots, **terms),
                partial(self.parser.arelease, slots, **terms),
            )
            if bought.entry is not None:
                # In here: no traceback shows a draw that could not be stored.
                kept = partial(bought.kept, outcome)
                outcome = yield in_thread(kept, shielded=True)
            return outcome

        return sealed(merge)

    def _answers(self, asked: PreparedQuery, paid: PaidCharge[Any]) -> Flow[list[Slot]]:
        payment = UnitCharging.of(paid)
        arguments = payment.arguments
        drawn = yield Do(
            partial(self.groups.draw_prepared, asked.embedded, **arguments),
            partial(self.groups.adraw_prepared, asked.embedded, **arguments),
        )
        payment.require_made(self.groups, most=1)
        prompts = self._group_prompts(drawn, asked)
        with self.progress.asking(prompts.calls, self.groups.n_groups) as done:
            answers = yield Do(
                partial(self.sealed.answer, prompts.prompts, done),
                partial(self.sealed.aanswer, prompts.prompts, done),
            )
        return prompts.slots(answers)

    def _asking(self, asked: PreparedQuery) -> Step:
        asked.use.calls += self.groups.n_groups
        return Step("groups", {"groups": self.groups.n_groups})

    def _payers(self) -> dict[str, Any]:
        return {
            "unit_key": self.groups.unit_key,
            "n_units": self.groups.n_units,
            "charges_units": self.groups.charges_units,
        }

    def _passes(
        self, slots: Sequence[Slot], public: PublicAnswer, paid: PaidCharge[Any]
    ) -> bool:
        return self.gate is not None and self.gate.passes(
            slots,
            public,
            paid=paid,
            relation=self.groups.relation,
            slot_count=self.groups.n_groups,
            random=self.parser.random,
        )

    def _kept(
        self, hidden: Hidden[tuple[bool, list[Slot]]], paid: PaidCharge
    ) -> Hidden[list[Slot]] | None:
        """Return the answers for the release, or None where it needs new ones."""
        if paid.charge_units is not None or self.groups.sampling_rate < 1:
            return None
        return Hidden(hidden.value[1])

    def _group_prompts(
        self, drawn: Sequence[Sequence[Document]], asked: PreparedQuery
    ) -> GroupPrompts:
        pad_to = self.groups.n_groups if self.pad_calls else 0
        return GroupPrompts(drawn, self.prompting, asked.question, pad_to=pad_to)

    def _terms(self, asked: PreparedQuery, paid: PaidCharge[Any]) -> dict[str, Any]:
        return {
            "paid": paid,
            "relation": self.groups.relation,
            "slot_count": self.groups.n_groups,
            "prepared": asked.prepared,
        }


def _charged(template: EventTemplate[Any], paid: PaidCharge[Any]) -> Step:
    details = {"mechanism": template.mechanism, "charge": paid.sequence}
    return Step("charged", details)


def _with_threshold(
    asked: PreparedQuery, refined: ThresholdRelease
) -> tuple[PreparedQuery, Step]:
    known = replace(asked, embedded=refined.prepared).knowing(refined.details)
    return known, Step("threshold", refined.details)


def _agreed(public: PublicAnswer) -> Outcome:
    return Outcome(Status.RELEASED, public.text, details={"gate": "agreed"})
