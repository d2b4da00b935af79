"""One token step: groups or people, the model's distributions, one token a draft.

Privacy:
    *With groups.* Unit: what the records' unit key names. Relation: `REPLACE` given the
    groups: every draft draws a fresh Poisson sample of its label's units and deals it
    to M groups by fresh randomness (`SampledGroups`), so that one unit is in one group
    of a draft, and that group's distribution changes from any to any. Sensitivity,
    noise and event: `mechanisms/next_token.py`; for each draft a Poisson-subsampled
    Gaussian (z, q), or a pure epsilon amplified by q. Drafts of one label take samples
    of their own and compose.

    *With people*, of the clipped decoder: `few_shot/clipped.py`.

    A row depends on its own slot alone, and on public figures that were asked for in a
    call without private prompts. Whatever fails for one slot (its prompt, the model's
    answer, an impossible probability) leaves that slot out, or to the instruction.

    Which examples have ended, and what their tokens spell, follows from released tokens
    and public terms: a generation is followed again from its stored tokens alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from langchain_core.documents import Document

from langchain_dpicl.accounting import Exponential, Pure
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import LedgerError
from langchain_dpicl.few_shot.clipped import calls_of
from langchain_dpicl.few_shot.decoding import Clipped, noise_of_mean
from langchain_dpicl.few_shot.model import (
    Floats,
    LogProbabilities,
    NextTokenModel,
    TokenPrompt,
    Tokens,
    Vocabulary,
    ask_public,
    public_call,
    public_distributions,
    vocabularies,
)
from langchain_dpicl.few_shot.records import FewShotPrompts
from langchain_dpicl.few_shot.terms import GenerationTerms, TokenEvent, amount
from langchain_dpicl.mechanisms.clipped_token import clipped_token
from langchain_dpicl.mechanisms.next_token import (
    contrasted,
    noisy_max_next_token,
    noisy_next_token,
    token_distributions,
)
from langchain_dpicl.sealed import attempt

_SLOT_FACTOR, _SLOT_EXTRA = 4, 8

Answers = Sequence[LogProbabilities | None]


@dataclass
class Draft:
    """One example in the making, the `number`-th of its label.

    `people` is how many its text expects, by public figures. An end token is not among
    its `tokens`; its `text` goes up to a stop text.
    """

    label: str
    number: int
    people: int
    tokens: tuple[int, ...] = ()
    text: str = ""
    steps: int = 0
    ended: bool = False


class Drafts:
    """All examples of a generation, by label, taking one step together."""

    def __init__(
        self, model: NextTokenModel, terms: GenerationTerms, per_label: int
    ) -> None:
        self._model, self._terms = model, terms
        people = terms.people(per_label)
        self._drafts = [
            Draft(label, number, people[label])
            for label in terms.labels
            for number in range(per_label)
        ]
        self.most_steps = len(self._drafts) * terms.max_tokens

    def active(self) -> list[Draft]:
        """Return the examples that take the next step, in their order."""
        return [draft for draft in self._drafts if not draft.ended]

    def take(self, tokens: Sequence[int]) -> int:
        """Add one token to each active example, in their order; return how many."""
        active = self.active()
        if len(tokens) != len(active):
            raise LedgerError("A stored step makes no sense: it has other examples.")
        for draft, token in zip(active, tokens, strict=True):
            self._add(draft, token)
        return len(tokens)

    @property
    def steps(self) -> int:
        """How many steps all examples have taken together."""
        return sum(draft.steps for draft in self._drafts)

    def examples(self) -> list[dict[str, str]]:
        """Return each complete example, blank ones not."""
        return [
            {"text": draft.text.strip(), "label": draft.label}
            for draft in self._drafts
            if draft.ended and draft.text.strip()
        ]

    def _add(self, draft: Draft, token: int) -> None:
        draft.steps += 1
        if token in self._model.end_tokens:
            draft.ended = True
            return
        draft.tokens += (token,)
        with public_call("spell its own tokens"):
            text = str(self._model.decode(draft.tokens))
        # A stop text before any other does not end it.
        start = len(text) - len(text.lstrip())
        ends = [text.find(stop, start) for stop in self._terms.decoder.stop]
        end = min((place for place in ends if place >= 0), default=None)
        draft.text = text[:end]
        draft.ended = end is not None or draft.steps >= self._terms.max_tokens


@dataclass(frozen=True, repr=False)
class PublicStep:
    """What is public of a step, asked for before anything private.

    `drafts` are the active ones, `prompts` theirs without records, `chosen` their
    vocabularies; `rows` are the distributions to hold slots' against, None where the
    decoder has no use for them.
    """

    model: NextTokenModel
    terms: GenerationTerms
    drafts: Sequence[Draft]
    prompts: list[TokenPrompt]
    chosen: list[Vocabulary]
    rows: list[Floats] | None

    @classmethod
    def ask(
        cls,
        model: NextTokenModel,
        terms: GenerationTerms,
        prompts: FewShotPrompts,
        drafts: Sequence[Draft],
        *,
        probe: bool = False,
    ) -> PublicStep:
        """Ask the public questions of a step.

        `probe` asks also for what other questions get along without, before a charge.

        Raises:
            PublicCallError: If the model fails, or tells what no probabilities are.
        """
        public = [TokenPrompt(prompts.public(d.label), d.tokens) for d in drafts]
        chosen = vocabularies(model, public, terms.top_k_public)
        wants = terms.needs_public
        rows = ask_public(model, public, chosen) if wants or probe else None
        return cls(model, terms, drafts, public, chosen, rows if wants else None)

    def require_room(self, tokens: int) -> None:
        """Refuse texts of so many tokens that the model can't go on with.

        Raises:
            DPError: If it can't, before anything is charged.
        """
        # Of equal prompts one is looked at; which tokens stand behind does not matter.
        firsts = {
            prompt.text: each
            for prompt, each in zip(self.prompts, self.chosen, strict=True)
        }
        longest = [
            TokenPrompt(text, (int(each.tokens[0]),) * (tokens - 1))
            for text, each in firsts.items()
        ]
        with public_call("answer a prompt without records"):
            self.model.require_room(longest)

    def without_records(self) -> list[int]:
        """Return the tokens that the model would choose from the instruction alone."""
        rows = ask_public(self.model, self.prompts, self.chosen)
        decode = self.terms.decoder.choose
        return [
            int(vocabulary.tokens[decode(row, 0.0)])
            for row, vocabulary in zip(rows, self.chosen, strict=True)
        ]

    def ask_groups(
        self, write: FewShotPrompts, slots: Callable[[Draft], list[list[Document]]]
    ) -> list[Answers]:
        """Ask the model of each slot of each draft. Private.

        Last are the prompts without records: whether the model answers these is public,
        and says whether it is there at all.

        By its contract a model answers None where a prompt fails, and never raises. One
        that does raise, for whatever one record says, would fail the step for all
        groups, and do so whenever that record is in the sample: the model would be
        asked again until it is not. So the prompts are then asked one by one, one after
        the other: a model may not allow several threads. Whatever it raises stays here,
        errors of ours among it: it has seen private prompts.

        Returns:
            For each draft what the model says of its slots, and last what it says of
            the public prompts; an empty list if it does not answer these.
        """
        longest = int(_SLOT_FACTOR * self.terms.records_per_group) + _SLOT_EXTRA
        prompts: list[TokenPrompt] = []
        wanted: list[Tokens | None] = []
        ends = [0]
        for public, draft, vocabulary in zip(
            self.prompts, self.drafts, self.chosen, strict=True
        ):
            for slot in slots(draft):
                # What is cut off, or can't be written, depends on this slot alone.
                text = attempt(partial(write.group, draft.label, slot[:longest]))
                prompts.append(TokenPrompt(text or public.text, draft.tokens))
                wanted.append(vocabulary.asked)
            ends.append(len(prompts))
        more = self._padding(len(prompts))
        prompts += [self.prompts[0]] * more + self.prompts
        wanted += [self.chosen[0].asked] * more + [v.asked for v in self.chosen]

        def some(start: int, end: int) -> Answers | None:
            # What somebody else's model returns may be anything.
            answers: Any = attempt(
                lambda: self.model.log_probabilities(
                    prompts[start:end], wanted[start:end]
                )
            )
            is_whole = isinstance(answers, Sequence) and len(answers) == end - start
            return list(answers) if is_whole else None

        def alone(place: int) -> LogProbabilities | None:
            return (some(place, place + 1) or [None])[0]

        private = len(prompts) - len(self.prompts)
        answers = some(0, len(prompts))
        if answers is None:
            public_answers = []
            for place in range(private, len(prompts)):
                public_answers.append(alone(place))
                if public_answers[-1] is None:
                    return []
            answers = [*map(alone, range(private)), *public_answers]
        return [answers[a:b] for a, b in pairwise(ends)] + [answers[private:]]

    def _padding(self, slots: int) -> int:
        """Return how many prompts without records are asked beside the slots'."""
        if not self.terms.is_clipped:
            return 0
        return calls_of(slots, [draft.people for draft in self.drafts]) - slots

    def release(
        self, answers: list[Answers], paid: Mapping[str, TokenEvent]
    ) -> list[int]:
        """Return one token a draft, differentially private.

        Raises:
            PublicCallError: If the model does not answer the prompts without records:
                then nothing is drawn, and the step can be taken again.
        """
        public_distributions(answers[-1] if answers else [], self.chosen)
        return [
            self._token(place, answers[place], paid)
            for place in range(len(self.drafts))
        ]

    def _token(
        self, place: int, answers: Answers, paid: Mapping[str, TokenEvent]
    ) -> int:
        vocabulary, event = self.chosen[place], paid[self.drafts[place].label]
        rows = self._rows(place, answers)
        stacked = np.stack(rows) if rows else np.zeros((0, len(vocabulary.tokens)))
        if isinstance(event, Exponential):
            assert self.rows is not None  # noqa: S101 - asked for by `needs_public`
            winner = clipped_token(
                stacked,
                self.rows[place],
                event,
                Relation.ADD_REMOVE,
                slots=self.drafts[place].people,
                temperature=self.terms.temperature,
            )
        elif isinstance(event, Pure):
            winner = noisy_max_next_token(stacked, event, Relation.REPLACE)
        else:
            noisy = noisy_next_token(stacked, event, Relation.REPLACE)
            groups = self.terms.groups
            noise = noise_of_mean(amount(event), groups)
            winner = self.terms.decoder.choose(noisy / groups, noise)
        return int(vocabulary.tokens[winner])

    def _rows(self, place: int, answers: Answers) -> list[Floats]:
        """Return the distributions of one draft's slots that say one.

        Every slot keeps its place until it is computed, whether others failed or not.
        """
        vocabulary, decoder = self.chosen[place], self.terms.decoder
        # An answer of a model of somebody else's may be anything.
        arrays = [
            None if answer is None else attempt(partial(np.asarray, answer))
            for answer in answers
        ]
        rows = [
            row
            for row in token_distributions(arrays, vocabulary.size, vocabulary.places)
            if row is not None
        ]
        if self.rows is None or isinstance(decoder, Clipped):
            return rows
        public, power = self.rows[place], decoder.contrast
        return [contrasted(row, public, power) for row in rows]
