"""The private part of a query: charge, draw, ask, merge, and nothing else comes out.

The charge is durable before the groups are drawn and asked for it, and what is merged
is stored before it leaves the sealed region.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from langchain_core.documents import Document

from langchain_dpicl.accounting import Charge
from langchain_dpicl.budget import Paid, Purchase
from langchain_dpicl.chain.answers import is_given
from langchain_dpicl.chain.prompting import Prompting
from langchain_dpicl.chain.record import privacy_record, record_terms
from langchain_dpicl.chain.steps import GroupPrompts, PreparedQuery, Released, Step
from langchain_dpicl.common.outcome import Outcome, Status
from langchain_dpicl.common.progress import GroupProgress
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.common.slots import Slot
from langchain_dpicl.groups import GroupSource
from langchain_dpicl.parsers import DPOutputParser
from langchain_dpicl.release.buying import bought, look
from langchain_dpicl.release.flow import Do, Flow, in_thread
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
        """What the parser's release costs."""
        return self.parser.charge(self.groups.sampling_rate)

    @property
    def call_count_is_public(self) -> bool:
        """Whether the number of group calls is the public number of groups.

        Units that have a slot each may be more than that.
        """
        return self.pad_calls and self.groups.relation is Relation.REPLACE

    def stored(self, asked: PreparedQuery) -> Flow[Released | None]:
        """Hand on a look for a stored release of a question.

        While another asking draws it, this one waits.
        """
        paid = yield from look(self._purchase(asked))
        return None if paid is None else _again(asked, paid)

    def release(self, asked: PreparedQuery) -> Flow[Released]:
        """Hand on the private steps of a prepared question; return the release."""
        public_outcome = self.parser.public_outcome(asked.prepared)
        if public_outcome is not None:
            return Released(asked, public_outcome)
        paid = yield from bought(self._purchase(asked))
        if paid.is_again:
            return _again(asked, paid)
        try:
            details = {"mechanism": self.charge.name, "charge": paid.charge}
            yield Step("charged", details)
            asked.use.calls += self.groups.n_groups
            yield Step("groups", {"groups": self.groups.n_groups})
            outcome = yield self._merge(asked, paid)
        except BaseException:
            # Nobody waits for a draw that does not come.
            yield in_thread(paid.leave, shielded=True)
            raise
        return Released(asked, outcome, paid)

    def record(self, released: Released, status: Status) -> dict[str, Any]:
        """Return the public record of a release."""
        paid, asked = released.paid, released.asked
        terms = paid.header.get("record") if paid is not None else None
        return privacy_record(
            status=status,
            terms=terms or record_terms(self.parser, self.groups),
            budget=asked.budget,
            outcome=released.outcome,
            paid=paid,
        )

    def _purchase(self, asked: PreparedQuery) -> Purchase:
        terms = record_terms(self.parser, self.groups)
        return Purchase(
            asked.budget,
            self.charge,
            asked.key,
            unit_key=self.groups.unit_key,
            charges_units=self.groups.charges_units,
            header={"record": terms},
            again=is_given,
        )

    def _merge(self, asked: PreparedQuery, paid: Paid) -> Do:
        def merge() -> Flow[Outcome]:
            drawn = yield from self.draw_groups(asked, paid)
            slots = yield from self.ask_groups(asked, drawn)
            terms = self._terms(asked, paid)
            outcome: Outcome = yield Do(
                partial(self.parser.release, slots, **terms),
                partial(self.parser.arelease, slots, **terms),
            )
            # In here: no traceback shows a draw that could not be stored.
            once = partial(paid.once, outcome.to_dict)
            return Outcome.from_dict((yield in_thread(once, shielded=True)))

        return sealed(merge)

    def draw_groups(
        self, asked: PreparedQuery, paid: Paid
    ) -> Flow[list[list[Document]]]:
        """Let the units pay, and draw the groups. For the sealed region alone."""
        # A source that charges no units may not know the argument.
        given = {} if paid.collect is None else {"collect": paid.collect}
        drawn: list[list[Document]] = yield Do(
            partial(self.groups.draw_prepared, asked.embedded, **given),
            partial(self.groups.adraw_prepared, asked.embedded, **given),
        )
        # Before the model is asked anything.
        paid.require_collected()
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

    def _terms(self, asked: PreparedQuery, paid: Paid) -> dict[str, Any]:
        return {
            "paid": paid,
            "relation": self.groups.relation,
            "slot_count": self.groups.n_groups,
            "prepared": asked.prepared,
        }


def _again(asked: PreparedQuery, paid: Paid) -> Released:
    """Return a release that another asking has paid for."""
    return Released(asked, Outcome.from_dict(paid.steps[0]), paid)
