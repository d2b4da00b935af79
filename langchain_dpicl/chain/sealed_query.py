"""The private part of a query: charge, draw, ask, merge, and nothing else comes out.

A query is charged once for each thing that it releases:

1. what the group source releases before it draws (`threshold_template`), if anything;
2. the parser's release;
3. that of the parser's `second`, where the first tells nothing (under a plan together
   with the first: a plan holds the same for every question).

Each charge is durable before the groups are drawn and asked for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

from langchain_core.documents import Document

from langchain_dpicl.accounting.template import Template
from langchain_dpicl.budget import Bundle, PaidCharge, PrivacyBudgetHandler
from langchain_dpicl.chain.answers import (
    Bought,
    is_complete,
    record_again,
    released_before,
    shared,
)
from langchain_dpicl.chain.prompting import Prompting
from langchain_dpicl.chain.record import privacy_record
from langchain_dpicl.chain.steps import GroupPrompts, PreparedQuery, Released, Step
from langchain_dpicl.chain.unit_charging import UnitCharging
from langchain_dpicl.common.outcome import Outcome, Status
from langchain_dpicl.common.progress import GroupProgress
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.groups import GroupSource, ThresholdRelease
from langchain_dpicl.parsers import DPOutputParser
from langchain_dpicl.release.flow import Do, Flow, in_thread
from langchain_dpicl.release.store import Entry
from langchain_dpicl.sealed import SealedModel, attempt, sealed

T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class SealedQuery:
    """A chain's private parts, and the order in which they are charged and run.

    Attributes:
        groups: The group source.
        parser: The mechanism.
        prompting: The templates.
        sealed: The model, for the groups.
        pad_calls: Whether empty groups make a call too.
        progress: Shows how far the group calls are.
    """

    groups: GroupSource
    parser: DPOutputParser
    prompting: Prompting
    sealed: SealedModel
    pad_calls: bool
    progress: GroupProgress = field(default_factory=GroupProgress)

    @cached_property
    def second(self) -> SealedQuery | None:
        """The same with the parser's `second`, if it has one."""
        then = self.parser.second
        if then is None:
            return None
        return replace(self, parser=then)

    def templates(self, budget: PrivacyBudgetHandler | None) -> list[Template[Any]]:
        """Return what a query is charged, in order, as far as public parameters say.

        It is charged less where the first release tells something.
        """
        then = []
        if self.second is not None and budget and not budget.charges_together:
            then = self.second.templates(budget)
        own = self.template(budget)
        return [t for t in (self.groups.threshold_template, own, *then) if t]

    def template(self, budget: PrivacyBudgetHandler | None) -> Template[Any]:
        """Return what the release is charged, with the second one's under a plan."""
        own = self.groups.charged(self.parser.event_template)
        if self.second is None or budget is None or not budget.charges_together:
            return own
        then = self.groups.charged(self.second.parser.event_template)
        name = f"{own.mechanism}, then {then.mechanism}"
        return Bundle(name, (own, then), disjoint=False)

    @property
    def mechanism(self) -> str:
        """The public name of the parser's release."""
        return self.groups.charged(self.parser.event_template).mechanism

    @property
    def call_count_is_public(self) -> bool:
        """Whether the number of group calls is the public number of groups.

        Units that have a slot each may be more than that.
        """
        return self.pad_calls and self.groups.relation is Relation.REPLACE

    def release(
        self,
        asked: PreparedQuery,
        charges: tuple[PaidCharge[Any], ...] = (),
        *,
        is_begun: bool = False,
    ) -> Flow[Released]:
        """Hand on the private steps of a prepared question; return the release.

        Args:
            asked: The question.
            charges: What it was charged before.
            is_begun: Whether its threshold is released, where there is one.
        """
        public_outcome = self.parser.public_outcome(asked.prepared)
        if public_outcome is not None:
            return Released(asked, public_outcome)
        first = self.groups.threshold_template
        if first is not None and not is_begun:
            charges = (*charges, (yield self._charge(asked, first)))
            yield _charged(first, charges[-1])
            asked, chosen = _with_threshold(
                asked, (yield self._release_threshold(asked, charges[-1]))
            )
            yield chosen
        own = self.template(asked.budget)
        bought = yield from self.buy(asked, own, charges)
        if isinstance(bought, Released):
            return bought
        charges = (*charges, bought.paid)
        drawing = self.draw(asked, bought, charges)
        return (yield from _owned(bought, drawing, own))

    def release_second(self, asked: PreparedQuery, first: Released) -> Flow[Released]:
        """Hand on the private steps of the second release; return it.

        Args:
            asked: The question, prepared for the second parser.
            first: What the first parser has said.
        """
        if (second := self.second) is None:
            return first
        public_outcome = second.parser.public_outcome(asked.prepared)
        if public_outcome is not None:
            why = {"then": public_outcome.details.get("reason", "public input decides")}
            if first.bought is not None:
                yield in_thread(partial(first.bought.close, 1), shielded=True)
            return replace(first, asked=first.asked.knowing(why))
        asked = self._after(asked, first.outcome)
        if asked.budget.charges_together:
            return (yield from self._second_of_plan(second, asked, first))
        if asked.answers is not None:
            asked = replace(asked, answers=asked.answers.then)
        # A threshold that the first release has not come to is released now.
        is_begun = first.bought is not None
        released = yield from second.release(asked, first.charges, is_begun=is_begun)
        return replace(released, is_second=True)

    def _second_of_plan(
        self, second: SealedQuery, asked: PreparedQuery, first: Released
    ) -> Flow[Released]:
        bought, charges = first.bought, first.charges
        if bought is None:
            template = self.template(asked.budget)
            found = yield from self.buy(asked, template, charges)
            if isinstance(found, Released):
                return found
            bought, charges = found, (*charges, found.paid)
            yield _charged(template, found.paid)
            # Decided by public input alone.
            kept = partial(bought.kept, first.outcome)
            yield in_thread(kept, shielded=True)
        paid = bought.then or bought.paid
        charges = (*charges, paid)
        bought = replace(bought, paid=paid)
        drawing = second.draw(asked, bought, charges, place=1)
        released = yield from _owned(bought, drawing, place=1)
        return replace(released, is_second=True)

    def draw(
        self,
        asked: PreparedQuery,
        bought: Bought,
        charges: tuple[PaidCharge[Any], ...],
        place: int = 0,
    ) -> Flow[Released]:
        """Draw what was bought."""
        yield self._asking(asked)
        outcome = yield self._merge(asked, bought, place)
        return Released(
            asked, outcome, charges, entry=bought.entry, place=place, bought=bought
        )

    def _after(self, asked: PreparedQuery, outcome: Outcome) -> PreparedQuery:
        """Return a question whose first release is known."""
        before = {"mechanism": self.mechanism, **outcome.details}
        return asked.knowing({"before": before})

    def buy(
        self,
        asked: PreparedQuery,
        template: Template[Any],
        charges: tuple[PaidCharge[Any], ...],
    ) -> Flow[Bought | Released]:
        """Charge what gives the answer, or find what was released meanwhile."""
        if asked.answers is None:
            return Bought.of((yield self._charge(asked, template)))

        def record(part: SealedQuery, paid: PaidCharge[Any]) -> dict[str, Any]:
            blank, paying = Outcome(Status.RELEASED), (*charges, paid)
            released = Released(asked, blank, paying)
            return part.record(released, Status.RELEASED)

        def records(paid: PaidCharge[Any]) -> dict[str, Any]:
            own, *then = shared(paid)
            found = {"record": record(self, own)}
            if then and self.second is not None:
                found["then"] = record(self.second, then[0])
            return found

        begun = partial(asked.answers.begun, template, records, **self._payers())
        while True:
            bought: Bought | Entry = yield in_thread(begun)
            if isinstance(bought, Bought):
                return bought
            if is_complete(bought):
                return released_before(asked, bought, charges)
            yield from asked.answers.awaited()

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
        )

    def _charge(self, asked: PreparedQuery, template: Template[Any]) -> Do:
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

    def _merge(self, asked: PreparedQuery, bought: Bought, place: int) -> Do:
        paid = bought.paid

        def merge() -> Flow[Outcome]:
            drawn = yield from self.draw_groups(asked, paid)
            slots = yield from self.ask_groups(asked, drawn)
            terms = self._terms(asked, paid)
            outcome: Outcome = yield Do(
                partial(self.parser.release, slots, **terms),
                partial(self.parser.arelease, slots, **terms),
            )
            if bought.entry is not None:
                # In here: no traceback shows a draw that could not be stored.
                kept = partial(bought.kept, outcome, place)
                outcome = yield in_thread(kept, shielded=True)
            return outcome

        return sealed(merge)

    def draw_groups(
        self, asked: PreparedQuery, paid: PaidCharge[Any]
    ) -> Flow[list[list[Document]]]:
        """Let the units pay, and draw the groups. For the sealed region alone."""
        payment = UnitCharging.of(paid)
        arguments = payment.arguments
        drawn: list[list[Document]] = yield Do(
            partial(self.groups.draw_prepared, asked.embedded, **arguments),
            partial(self.groups.adraw_prepared, asked.embedded, **arguments),
        )
        payment.require_made(self.groups, most=1)
        return drawn

    def written(self, drawn: Sequence[Sequence[Document]]) -> list[list[str] | None]:
        """Return groups' records as their prompts have them. For the sealed region."""
        return [attempt(partial(self.prompting.texts, docs)) for docs in drawn]

    def ask_groups(
        self, asked: PreparedQuery, drawn: Sequence[Sequence[Document]]
    ) -> Flow[list[Slot]]:
        """Ask the groups; return their slots. For the sealed region alone."""
        slots = self.groups.n_groups
        pad_to = slots if self.pad_calls else 0
        written = self.written(drawn)
        prompts = GroupPrompts(written, self.prompting, asked.question, pad_to=pad_to)
        with self.progress.asking(prompts.calls, slots) as done:
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
            "charges_units": self.groups.charges_units,
            "salt": self.groups.salt_fingerprint,
        }

    def _terms(self, asked: PreparedQuery, paid: PaidCharge[Any]) -> dict[str, Any]:
        return {
            "paid": paid,
            "relation": self.groups.relation,
            "slot_count": self.groups.n_groups,
            "prepared": asked.prepared,
        }


def _owned(
    bought: Bought,
    steps: Flow[T],
    template: Template[Any] | None = None,
    *,
    place: int = 0,
) -> Flow[T]:
    """Hand on a charge and the steps that draw for it; where they stop, give it up.

    They may stop by the records or by what was drawn: there is no second draw.
    """
    try:
        if template is not None:
            yield _charged(template, bought.paid)
        return (yield from steps)
    except BaseException:
        yield in_thread(partial(bought.close, place), shielded=True)
        raise


def _charged(template: Template[Any], paid: PaidCharge[Any]) -> Step:
    details = {"mechanism": template.mechanism, "charge": paid.sequence}
    return Step("charged", details)


def _with_threshold(
    asked: PreparedQuery, refined: ThresholdRelease
) -> tuple[PreparedQuery, Step]:
    known = replace(asked, embedded=refined.prepared).knowing(refined.details)
    return known, Step("threshold", refined.details)
