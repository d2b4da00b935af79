"""The private part of a query: charge, draw, ask, merge, and nothing else comes out.

The charge is durable before the groups are drawn and asked for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from langchain_core.documents import Document

from langchain_dpicl.accounting import Charge
from langchain_dpicl.budget import PaidCharge
from langchain_dpicl.chain.answers import (
    Bought,
    is_drawn,
    record_again,
    released_before,
)
from langchain_dpicl.chain.prompting import Prompting
from langchain_dpicl.chain.record import privacy_record
from langchain_dpicl.chain.steps import GroupPrompts, PreparedQuery, Released, Step
from langchain_dpicl.chain.unit_charging import UnitCharging
from langchain_dpicl.common.outcome import Outcome, Status
from langchain_dpicl.common.progress import GroupProgress
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.groups import GroupSource
from langchain_dpicl.parsers import DPOutputParser
from langchain_dpicl.release.flow import Do, Flow, in_thread
from langchain_dpicl.release.store import Entry
from langchain_dpicl.sealed import SealedModel, attempt, sealed


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

    @property
    def charge(self) -> Charge:
        """What the parser's release is charged."""
        return self.parser.charge(self.groups.sampling_rate)

    @property
    def call_count_is_public(self) -> bool:
        """Whether the number of group calls is the public number of groups.

        Units that have a slot each may be more than that.
        """
        return self.pad_calls and self.groups.relation is Relation.REPLACE

    def release(self, asked: PreparedQuery) -> Flow[Released]:
        """Hand on the private steps of a prepared question; return the release."""
        public_outcome = self.parser.public_outcome(asked.prepared)
        if public_outcome is not None:
            return Released(asked, public_outcome)
        charge = self.charge
        bought = yield from self.buy(asked, charge)
        if isinstance(bought, Released):
            return bought
        try:
            yield _charged(charge, bought.paid)
            asked.use.calls += self.groups.n_groups
            yield Step("groups", {"groups": self.groups.n_groups})
            outcome = yield self._merge(asked, bought)
        except BaseException:
            # It may have stopped by the records or by what was drawn: there is no
            # second draw.
            yield in_thread(bought.close, shielded=True)
            raise
        return Released(asked, outcome, (bought.paid,), entry=bought.entry)

    def buy(self, asked: PreparedQuery, charge: Charge) -> Flow[Bought | Released]:
        """Charge what gives the answer, or find what was released meanwhile."""
        if asked.answers is None:
            return Bought((yield self._charge(asked, charge)))

        def records(paid: PaidCharge) -> dict[str, Any]:
            blank = Released(asked, Outcome(Status.RELEASED), (paid,))
            return {"record": self.record(blank, Status.RELEASED)}

        begun = partial(asked.answers.begun, charge, records, **self._payers())
        while True:
            bought: Bought | Entry = yield in_thread(begun)
            if isinstance(bought, Bought):
                return bought
            if is_drawn(bought):
                return released_before(asked, bought)
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

    def _charge(self, asked: PreparedQuery, charge: Charge) -> Do:
        budget, payers = asked.budget, self._payers()
        return Do(
            partial(budget.charge, charge, **payers),
            partial(budget.acharge, charge, **payers),
        )

    def _merge(self, asked: PreparedQuery, bought: Bought) -> Do:
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
                kept = partial(bought.kept, outcome)
                outcome = yield in_thread(kept, shielded=True)
            return outcome

        return sealed(merge)

    def draw_groups(
        self, asked: PreparedQuery, paid: PaidCharge
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

    def _payers(self) -> dict[str, Any]:
        return {
            "unit_key": self.groups.unit_key,
            "charges_units": self.groups.charges_units,
            "salt": self.groups.salt_fingerprint,
        }

    def _terms(self, asked: PreparedQuery, paid: PaidCharge) -> dict[str, Any]:
        return {
            "paid": paid,
            "relation": self.groups.relation,
            "slot_count": self.groups.n_groups,
            "prepared": asked.prepared,
        }


def _charged(charge: Charge, paid: PaidCharge) -> Step:
    details = {"mechanism": charge.name, "charge": paid.sequence}
    return Step("charged", details)
