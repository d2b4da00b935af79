"""One question to private records: pay, draw, ask, merge, and nothing else comes out.

1. *Public.* `prepare` embeds the question and makes of the model's public replies what
   the mechanism needs.
2. *Charge.* `Purchase.bought` charges the account, durably, or refuses.
3. *Sealed.* `release` lets the units pay that a per-unit account charges, draws the
   groups, asks the model once for each, and merges the answers by the mechanism. What
   is merged is stored before it leaves the wall.

Whatever fails in 1 or 2 costs nothing and releases nothing. Whatever fails in 3 costs
the charge and releases nothing.

Privacy:
    Unit, relation, sensitivity, noise and event: the mechanism's, whose one draw for
    one charge is stored (`budget.buying`). Storing, finding and wording a draw is
    post-processing: no unit, no noise, no event.

    A stored answer is found under a key of public values: the input, the prompts, the
    model's name, the parameters of the parser and of the group source, a question's
    filter among them, and whether noise is seeded. It does not know the records, so an
    answer may be older than the corpus. A model is its class and name: bound arguments,
    temperature and address are left out, so that an answer may have been made with
    others.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from langchain_core.documents import Document
from langchain_core.prompt_values import PromptValue

from langchain_dpicl.accounting import Charge
from langchain_dpicl.budget import Paid, PrivacyBudgetHandler, Purchase
from langchain_dpicl.common.progress import Advance, no_progress
from langchain_dpicl.common.replies import ABSTAIN, BLANK, FAILED, Slot
from langchain_dpicl.groups import GroupSource, charging_units
from langchain_dpicl.mechanisms.random import current
from langchain_dpicl.parsers import DPOutputParser, PublicInput
from langchain_dpicl.parsers.base import named
from langchain_dpicl.prompting import Prompting, Question, rewritten
from langchain_dpicl.release.record import (
    CALLS_FAILED,
    NEIGHBORS,
    Outcome,
    Status,
    noise_of,
    paid_part,
    release_record,
)
from langchain_dpicl.sealed import SealedModel, attempt, sealed

Prompts = tuple[PromptValue, ...]
"""What one group is asked: the question, and each calibration text in its place."""


@dataclass(frozen=True)
class Release:
    """What came of a question. All of it is public.

    Attributes:
        outcome: What was released.
        terms: Its record, as far as it was known before the charge.
        paid: The charge; None where public input decided.
    """

    outcome: Outcome
    terms: dict[str, Any] = field(repr=False)
    paid: Paid | None = field(default=None, repr=False)

    def record(self, status: Status, budget: PrivacyBudgetHandler) -> dict[str, Any]:
        """Return what may be known about an answer, as JSON-able values.

        An answer that is given again has no events: its `details.first` names the
        charge that paid for it.
        """
        outcome, paid = self.outcome, self.paid
        record = {
            **self.terms,
            "status": status.value,
            "keywords": list(outcome.keywords),
            "ranking": list(outcome.ranking),
            "details": {**self.terms["details"], **outcome.details},
        }
        if paid is not None:
            record["parameters"] = {**record["parameters"], **noise_of(paid.events)}
        if paid is not None and not paid.is_again:
            return {**record, **paid_part(budget, paid.stored)}
        record["account"] = budget.public_state()
        if paid is not None:
            first = {"status": status.value, "charge": paid.charge}
            record["details"]["first"] = first
            if status is Status.RELEASED:
                record["status"] = Status.CACHED.value
        return record


@dataclass(frozen=True, repr=False)
class PrivateQuestion:
    """A question, and the private parts of a chain that it is put to.

    Attributes:
        question: The question.
        groups: The groups of those who take part.
        parser: The mechanism.
        prompting: The templates.
        model: The model, for the groups.
        embedded: What the group source made of the question; see `prepare`.
        prepared: What the parser made of the public replies; see `prepare`.
    """

    question: Question
    groups: GroupSource
    parser: DPOutputParser
    prompting: Prompting
    model: SealedModel
    embedded: Any = None
    prepared: Any = None

    @property
    def charge(self) -> Charge:
        """What the parser's release costs."""
        return self.parser.charge(self.groups.sampling_rate)

    @property
    def group_calls(self) -> int:
        """How many group calls a question makes, at most: a public number."""
        return self.groups.n_groups * self.parser.calls_per_group

    def purchase(self, budget: PrivacyBudgetHandler, key: str | None) -> Purchase:
        """Return what is to be bought: under a key the answer that is stored there."""
        return Purchase(
            budget,
            self.charge,
            key,
            unit_key=self.groups.unit_key,
            charges_units=charging_units(self.groups),
            header={"record": self._terms()},
            again=_is_given,
        )

    def key(self) -> str | None:
        """Return the key under which the answer is stored.

        Questions that differ in white space or Unicode composition alone are the same.
        None: the input or the parser holds something that can't be told from others,
        such as a function. Then each asking is charged.
        """
        text = unicodedata.normalize("NFC", self.question.text)
        same = replace(self.question, text=" ".join(text.split()))
        parser = self.parser
        rewrite = rewritten(parser.rewrite_prompt, same, "")
        try:
            public = {
                "question": same.text,
                "variables": same.variables,
                "prompts": self.prompting.texts(same),
                "rewrite": "" if rewrite is None else rewrite.to_string(),
                "parser": parser.cache_parameters(same.text),
                "groups": self.groups.description,
                "model": named(self.model.model),
                "is_seeded": current().is_seeded,
            }
            data = json.dumps(public, sort_keys=True).encode(errors="surrogatepass")
        except (TypeError, ValueError):  # An `InvalidParameterError` among them.
            return None
        return hashlib.blake2b(data, digest_size=32).hexdigest()

    def again(self, paid: Paid) -> Release:
        """Return what another asking has paid for."""
        return self._released(Outcome.from_dict(paid.steps[0]), paid)

    def prepare(
        self, zero_shot: tuple[str, ...] = (), draft: str = ""
    ) -> PrivateQuestion:
        """Do what is public before the charge; return the prepared question.

        It takes the model's answers to the question alone, and the possible answers, as
        the model listed them.
        """
        parser, question = self.parser, self.question
        # A wording that can't be asked for must not fail after the charge.
        rewritten(parser.rewrite_prompt, question, "")
        fixed = self.prompting.group(question, ()).to_string()
        public = PublicInput(question.text, fixed, zero_shot, draft)
        prepared = parser.prepare(public)
        return replace(
            self,
            question=replace(question, instructions=parser.instructions(prepared)),
            embedded=self.groups.prepare(question.text),
            prepared=prepared,
        )

    def asked_alone(self) -> PrivateQuestion:
        """Return the prepared question with the model's figures without records.

        It is the same question where the parser reads none.
        """
        if not self.parser.reads_figures or self.decided() is not None:
            return self
        prompt = self.prompting.group(self.question, ())
        prepared = self.parser.ask_alone(self.model, prompt, self.prepared)
        return replace(self, prepared=prepared)

    def decided(self) -> Release | None:
        """Return what public input alone decides, so that nobody pays."""
        outcome = self.parser.public_outcome(self.prepared)
        return None if outcome is None else Release(outcome, self._terms())

    def release(self, paid: Paid) -> Release:
        """Draw the release of a prepared question, which is paid; store it."""
        with paid:  # An owner that fails gives up its draw: nobody waits for it.
            outcome = sealed(partial(self._drawn, paid))
        if outcome.details.get("reason") == CALLS_FAILED:
            self.model.doubt()
        return self._released(outcome, paid)

    def prompts(self, drawn: Sequence[Sequence[Document]]) -> list[Prompts | None]:
        """Return the prompts of each group. For the sealed region alone.

        A group whose records can't be written into the prompt has none: it must not
        stop the others.
        """
        return [attempt(partial(self.written, documents)) for documents in drawn]

    def written(self, documents: Sequence[Document]) -> Prompts:
        """Return a group's prompts: the question's, and one of each public text."""
        texts = (self.question.text, *self.parser.calibration_texts)
        asked = (replace(self.question, text=text) for text in texts)
        return tuple(self.prompting.group(each, documents) for each in asked)

    def answers(
        self, prompts: Sequence[Prompts], done: Advance = no_progress
    ) -> list[Slot]:
        """Ask groups that have records. For the sealed region alone."""
        told = self.parser.ask(self.model, prompts, self.prepared, done)
        return [BLANK if answer == ABSTAIN else answer for answer in told]

    def _drawn(self, paid: Paid) -> Outcome:
        # A source that charges no units may not know the argument.
        given = {} if paid.collect is None else {"collect": paid.collect}
        drawn = self.groups.draw_prepared(self.embedded, **given)
        # Before the model is asked anything.
        paid.require_collected()
        outcome = self.parser.release(
            self._asked(drawn),
            paid=paid,
            relation=self.groups.relation,
            slot_count=self.groups.n_groups,
            prepared=self.prepared,
        )
        # In here: no traceback shows a draw that could not be stored.
        return Outcome.from_dict(paid.once(outcome.to_dict))

    def _asked(self, drawn: Sequence[Sequence[Document]]) -> list[Slot]:
        """Ask the groups; return the slots of those that had records.

        An empty group is asked too, so that the number of calls is the public number of
        groups; its answer is dropped.
        """
        written = self.prompts(drawn)
        padding = self.written(())
        asked = [padding if prompts is None else prompts for prompts in written]
        asked += [padding] * (self.groups.n_groups - len(asked))
        answers = self.answers(asked)
        return [
            FAILED if prompts is None else answer
            for documents, prompts, answer in zip(drawn, written, answers, strict=False)
            if documents
        ]

    def _released(self, outcome: Outcome, paid: Paid) -> Release:
        return Release(outcome, paid.header.get("record") or self._terms(), paid)

    def _terms(self) -> dict[str, Any]:
        """Return the answer's record as far as it is known before the charge."""
        return release_record(
            kind="answer",
            status=Status.RELEASED.value,
            mechanism=self.charge.name,
            parameters=self.parser.public_parameters(),
            unit=f"all records with the same {self.groups.unit_key!r}",
            unit_key=self.groups.unit_key,
            relation=self.groups.relation.value,
            neighbors=NEIGHBORS,
            keywords=[],
            ranking=[],
            details={},
            groups=self.groups.description,
        )


def _is_given(values: Sequence[Any]) -> bool:
    """Return whether a stored draw is given again.

    Where too many group calls failed, asking again is worth its price.
    """
    return Outcome.from_dict(values[0]).details.get("reason") != CALLS_FAILED
