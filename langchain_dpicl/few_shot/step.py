"""One token step: fresh groups, the model's distributions, one noisy token a draft.

Privacy:
    Unit: what the records' unit key names. Relation: `REPLACE` given the groups: every
    draft draws a fresh Poisson sample of its label's units and deals it to M groups by
    fresh randomness (`SampledGroups`), so that one unit is in one group of a draft, and
    that group's distribution changes from any to any. Sensitivity, noise and event:
    `mechanisms/next_token.py`; for each draft a Poisson-subsampled Gaussian (z, q), or
    a pure epsilon amplified by q. Drafts of one label take samples of their own and
    compose.

    A row depends on its own slot alone, and on public figures that were asked for in a
    call without private prompts. Whatever fails for one slot (a template, the model's
    answer, an impossible probability) leaves that slot out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np

from langchain_dpicl.accounting import Pure
from langchain_dpicl.common.units import Relation
from langchain_dpicl.few_shot.decoding import noise_of_mean
from langchain_dpicl.few_shot.drafts import Draft
from langchain_dpicl.few_shot.models.contract import (
    LogProbabilities,
    NextTokenModel,
    TokenPrompt,
    Tokens,
)
from langchain_dpicl.few_shot.prompts import FewShotPrompts
from langchain_dpicl.few_shot.public_calls import (
    Floats,
    Vocabulary,
    ask_public,
    public_distributions,
    vocabularies,
)
from langchain_dpicl.few_shot.terms import GenerationTerms, TokenEvent, amount
from langchain_dpicl.groups import SampledGroups
from langchain_dpicl.mechanisms.next_token import (
    contrasted,
    noisy_max_next_token,
    noisy_next_token,
    token_distributions,
)
from langchain_dpicl.sealed import attempt

_SLOT_FACTOR, _SLOT_EXTRA = 4, 8

Answers = Sequence[LogProbabilities | None]


@dataclass(frozen=True, repr=False)
class PublicStep:
    """What is public of a step, asked for before anything private.

    `drafts` are the active ones, `prompts` theirs without records, `chosen` their
    vocabularies; `contrast` are the distributions to hold groups' against, None without
    a contrast.
    """

    model: NextTokenModel
    terms: GenerationTerms
    drafts: Sequence[Draft]
    prompts: list[TokenPrompt]
    chosen: list[Vocabulary]
    contrast: list[Floats] | None

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
        public = [_prompt(draft, prompts.public(draft.label)) for draft in drafts]
        chosen = vocabularies(model, public, terms.top_k_public)
        wants = terms.mechanism.contrast > 0
        rows = ask_public(model, public, chosen) if wants or probe else None
        return cls(model, terms, drafts, public, chosen, rows if wants else None)

    def without_records(self) -> list[int]:
        """Return the tokens that the model would choose from the instruction alone."""
        rows = ask_public(self.model, self.prompts, self.chosen)
        decode = self.terms.mechanism.choose
        return [
            int(vocabulary.tokens[decode(row, 0.0)])
            for row, vocabulary in zip(rows, self.chosen, strict=True)
        ]


class PrivateStep:
    """The private half of a step, which runs sealed.

    Args:
        public: The public half.
        prompts: Writes the groups' prompts.
        sources: For each label, what draws its groups.
        paid: For each label, what its tokens were charged.
    """

    def __init__(
        self,
        public: PublicStep,
        prompts: FewShotPrompts,
        sources: Mapping[str, SampledGroups],
        paid: Mapping[str, TokenEvent],
    ) -> None:
        self._public, self._terms = public, public.terms
        self._write, self._sources, self._paid = prompts, sources, paid
        self._prompts: list[TokenPrompt] = []
        self._wanted: list[Tokens | None] = []
        self._slots: list[list[int | None]] = []
        self._answers: Answers = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError("Private prompts are not pickled.")

    def ask(self) -> None:
        """Sample every draft's groups afresh, and ask the model of each."""
        public = self._public
        for place, draft in enumerate(public.drafts):
            self._deal(place, draft)
        self._private = len(self._prompts)
        # Last, the prompts without records: whether the model answers these is public,
        # and says whether it is there at all.
        self._prompts += public.prompts
        self._wanted += [vocabulary.asked for vocabulary in public.chosen]
        self._answers = self._answered()

    def _deal(self, place: int, draft: Draft) -> None:
        size = self._terms.records_per_group
        longest = int(_SLOT_FACTOR * size) + _SLOT_EXTRA
        places: list[int | None] = []
        for slot in self._sources[draft.label].draw_shared():
            # What is cut off depends on this slot alone.
            text = attempt(partial(self._write.group, draft.label, slot[:longest]))
            places.append(None if text is None else len(self._prompts))
            # One that can't be written moves no other: it asks without records.
            prompt = self._public.prompts[place]
            self._prompts.append(prompt if text is None else _prompt(draft, text))
        self._wanted += [self._public.chosen[place].asked] * len(places)
        self._slots.append(places)

    def _answered(self) -> Answers:
        """Return what the model says of each prompt; an empty list if it is not there.

        It is taken for being there where it answers the prompts without records.

        By its contract a model answers None where a prompt fails, and never raises. One
        that does raise, for whatever one record says, would fail the step for all
        groups, and do so whenever that record is in the sample: the model would be
        asked again until it is not. So the prompts are then asked one by one. Whatever
        it raises stays here, errors of ours among it: it has seen private prompts.
        """
        together = self._some(0, len(self._prompts))
        if together is not None:
            return together

        # One after the other: a model may not allow several threads.
        def alone(place: int) -> LogProbabilities | None:
            answer = self._some(place, place + 1)
            return answer[0] if answer else None

        public = []
        for place in range(self._private, len(self._prompts)):
            public.append(alone(place))
            if public[-1] is None:
                return []
        return [*map(alone, range(self._private)), *public]

    def _some(self, start: int, end: int) -> Answers | None:
        prompts, wanted = self._prompts[start:end], self._wanted[start:end]
        # What somebody else's model returns may be anything.
        answers: Any = attempt(
            lambda: self._public.model.log_probabilities(prompts, wanted)
        )
        is_whole = isinstance(answers, Sequence) and len(answers) == len(prompts)
        return list(answers) if is_whole else None

    def release(self) -> list[int]:
        """Return one token a draft, differentially private.

        Raises:
            PublicCallError: If the model does not answer the prompts without records:
                then nothing is drawn, and the step can be taken again.
        """
        # All of them, or none: the last ones are public.
        is_whole = len(self._answers) == len(self._prompts)
        public_distributions(
            self._answers[self._private :] if is_whole else (), self._public.chosen
        )
        return [self._token(place) for place in range(len(self._public.drafts))]

    def _token(self, place: int) -> int:
        draft, vocabulary = self._public.drafts[place], self._public.chosen[place]
        rows, paid = self._rows(place), self._paid[draft.label]
        stacked = np.stack(rows) if rows else np.zeros((0, len(vocabulary.tokens)))
        if isinstance(paid, Pure):
            winner = noisy_max_next_token(stacked, paid, Relation.REPLACE)
        else:
            noisy = noisy_next_token(stacked, paid, Relation.REPLACE)
            groups = self._terms.n_groups
            noise = noise_of_mean(amount(paid), groups)
            winner = self._terms.mechanism.choose(noisy / groups, noise)
        return int(vocabulary.tokens[winner])

    def _rows(self, place: int) -> list[Floats]:
        """Return the distributions of one draft's slots that say one.

        Every slot keeps its place until it is computed, whether others failed or not.
        """
        vocabulary, power = self._public.chosen[place], self._terms.mechanism.contrast
        # An answer of a model of somebody else's may be anything.
        answers = [
            None if slot is None else attempt(partial(np.asarray, self._answers[slot]))
            for slot in self._slots[place]
        ]
        rows = [
            row
            for row in token_distributions(answers, vocabulary.size, vocabulary.places)
            if row is not None
        ]
        if self._public.contrast is None:
            return rows
        return [contrasted(row, self._public.contrast[place], power) for row in rows]


def _prompt(draft: Draft, text: str) -> TokenPrompt:
    return TokenPrompt(text, draft.tokens)
