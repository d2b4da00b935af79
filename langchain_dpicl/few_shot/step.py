"""One token step: fresh groups, the model's distributions, one noisy token a draft.

Privacy:
    Unit: what the records' unit key names. Relation: `REPLACE` given the groups: every
    draft draws a fresh Poisson sample of its label's units and deals it to M groups by
    fresh randomness (`SampledGroups`), so that one unit is in one group of a draft, and
    that group's distribution changes from any to any. Sensitivity, noise and event:
    `mechanisms/next_token.py`; for each draft a Poisson-subsampled Gaussian (z, q), or
    a pure epsilon amplified by q. Drafts of one label take samples of their own and
    compose.

    A row depends on its own slot alone. Whatever fails for one slot (a template, the
    model's answer, an impossible probability) leaves that slot out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from langchain_dpicl.accounting import Pure
from langchain_dpicl.common.relation import Relation
from langchain_dpicl.few_shot.calibration import TokenEvent, amount
from langchain_dpicl.few_shot.decoding import noise_of_mean
from langchain_dpicl.few_shot.drafts import Draft
from langchain_dpicl.few_shot.models.contract import (
    LogProbabilities,
    NextTokenModel,
    TokenPrompt,
    Tokens,
)
from langchain_dpicl.few_shot.prompting import FewShotPrompting
from langchain_dpicl.few_shot.public_calls import (
    Vocabulary,
    public_distributions,
    public_prompts,
)
from langchain_dpicl.few_shot.spec import GenerationSpec
from langchain_dpicl.groups import SampledGroups
from langchain_dpicl.mechanisms.next_token import (
    noisy_max_next_token,
    noisy_next_token,
    token_distributions,
)
from langchain_dpicl.mechanisms.random import SecureRandom, use
from langchain_dpicl.release.fan_out import fan_out
from langchain_dpicl.release.flow import Do, Flow
from langchain_dpicl.sealed import attempt, attempted

_SLOT_FACTOR, _SLOT_EXTRA = 4, 8

Answers = Sequence[LogProbabilities | None]
_AT_ONCE = 32


@dataclass(frozen=True, repr=False)
class Step:
    """What all drafts do together, once.

    Attributes:
        terms: The public terms.
        prompting: The prompts.
        drafts: The active drafts, and in `vocabularies` their public tokens.
        sources: For each class of records, what draws its groups.
        paid: For each class, what its tokens were charged.
        random: Where noise comes from; None: the context says.
    """

    terms: GenerationSpec
    prompting: FewShotPrompting
    drafts: Sequence[Draft]
    vocabularies: Sequence[Vocabulary]
    sources: Mapping[str, SampledGroups]
    paid: Mapping[str, TokenEvent]
    random: SecureRandom | None

    def draw(self) -> StepPrompts:
        """Sample every draft's groups afresh and write their prompts. Private."""
        prompts: list[TokenPrompt] = []
        wanted: list[Tokens | None] = []
        slots: list[list[int | None]] = []
        longest = self._longest_slot
        for draft, vocabulary in zip(self.drafts, self.vocabularies, strict=True):
            source = self.sources[draft.label]
            public = self.prompting.public(draft.label)
            places: list[int | None] = []
            for slot in source.draw_shared():
                # What is cut off depends on this slot alone.
                shown = slot[:longest]
                text = attempt(partial(self.prompting.group, draft.label, shown))
                places.append(None if text is None else len(prompts))
                # One that can't be written moves no other: it asks without records.
                prompts.append(draft.prompt(public if text is None else text))
            wanted += [vocabulary.asked] * len(places)
            slots.append(places)
        # Last, the prompts without records: whether the model answers these is public,
        # and says whether it is there at all.
        prompts += public_prompts(self.prompting, self.drafts)
        wanted += [vocabulary.asked for vocabulary in self.vocabularies]
        return StepPrompts(prompts, wanted, slots)

    def release(
        self, asked: StepPrompts, answers: Sequence[LogProbabilities | None]
    ) -> list[int]:
        """Return one token a draft, differentially private.

        Raises:
            PublicCallError: If the model does not answer the prompts without records:
                then nothing is drawn, and the step can be taken again.
        """
        # All of them, or none: the last ones are public.
        whole = len(answers) == len(asked.prompts)
        public_distributions(
            answers[asked.private :] if whole else (), self.vocabularies
        )
        drafts = zip(self.drafts, self.vocabularies, asked.slots, strict=True)
        with use(self.random):
            return [
                self._token(draft, public, _distributions(places, answers, public))
                for draft, public, places in drafts
            ]

    @property
    def _longest_slot(self) -> int:
        size = self.terms.records_per_group * self.terms.records_per_unit
        return int(_SLOT_FACTOR * size) + _SLOT_EXTRA

    def _token(
        self, draft: Draft, vocabulary: Vocabulary, rows: list[NDArray[np.float64]]
    ) -> int:
        paid = self.paid[draft.label]
        stacked = np.stack(rows) if rows else np.zeros((0, len(vocabulary.tokens)))
        if isinstance(paid, Pure):
            place = noisy_max_next_token(stacked, paid, Relation.REPLACE)
        else:
            noisy = noisy_next_token(stacked, paid, Relation.REPLACE)
            place = self._decoded(noisy / self.terms.n_groups, amount(paid))
        return int(vocabulary.tokens[place])

    def _decoded(self, noisy: NDArray[np.float64], noise: float) -> int:
        """Return the decoder's place; that of the largest entry where it fails.

        Once there is noise, the step must end in a token: a decoder that fails for
        some noisy vectors would have them drawn again until one suits it.
        """
        size = len(noisy)

        def decode() -> int:
            deviation = noise_of_mean(noise, self.terms.n_groups)
            place = self.terms.decoder.choose(noisy.copy(), deviation)
            return range(size).index(int(place))

        place = attempt(decode)
        return int(np.argmax(noisy)) if place is None else place


@dataclass(frozen=True, repr=False)
class StepPrompts:
    """The prompts of a step: the groups', draft after draft, then the public ones.

    `wanted` are the tokens that each is asked for; `slots` holds, for each draft, each
    slot's place among the prompts, None where its own could not be written.
    """

    prompts: list[TokenPrompt]
    wanted: list[Tokens | None]
    slots: list[list[int | None]]

    @property
    def private(self) -> int:
        """How many of the prompts, the first ones, hold records."""
        return len(self.prompts) - len(self.slots)

    def __reduce__(self) -> NoReturn:
        raise TypeError("Private prompts are not pickled.")


def _distributions(
    places: Sequence[int | None],
    answers: Sequence[LogProbabilities | None],
    vocabulary: Vocabulary,
) -> list[NDArray[np.float64]]:
    """Return the distributions of one draft's slots that say one.

    Every slot keeps its place until it is computed, whether others failed or not.
    """
    # An answer of a model of somebody else's may be anything.
    said = [
        None if place is None else attempt(partial(np.asarray, answers[place]))
        for place in places
    ]
    found = token_distributions(said, vocabulary.size, vocabulary.places)
    return [row for row in found if row is not None]


def answered(model: NextTokenModel, asked: StepPrompts) -> Flow[Answers]:
    """Return what a model says of each prompt; an empty list if it is not there.

    It is taken for being there where it answers the prompts without records.

    By its contract an adapter answers None where a prompt fails, and never raises. One
    that does raise, for whatever one record says, would fail the step for all groups,
    and do so whenever that record is in the sample: the model would be asked again
    until it is not. So the prompts are then asked one by one. Whatever an adapter
    raises stays here, errors of ours among it: the adapter has seen private prompts.
    """

    def ask(prompts: list[TokenPrompt], wanted: list[Tokens | None]) -> Do:
        return attempted(
            Do(
                partial(model.log_probabilities, prompts, wanted),
                partial(model.alog_probabilities, prompts, wanted),
            )
        )

    found = yield ask(asked.prompts, asked.wanted)
    if isinstance(found, Sequence) and len(found) == len(asked.prompts):
        return list(found)
    pairs = zip(asked.prompts, asked.wanted, strict=True)
    alone = [ask([prompt], [wanted]) for prompt, wanted in pairs]
    public = []
    for one in alone[asked.private :]:
        public.append(_only((yield one)))
        if public[-1] is None:
            return []
    # Blocking calls come one after the other: a model may not allow several threads.
    one_by_one = fan_out(alone[: asked.private], 1, name="dpicl-step")
    together = fan_out(alone[: asked.private], _AT_ONCE, name="dpicl-step")
    private = yield Do(one_by_one.blocking, together.awaiting)
    return [*map(_only, private), *public]


def _only(found: Any) -> LogProbabilities | None:
    if isinstance(found, Sequence) and len(found) == 1:
        answer: LogProbabilities | None = found[0]
        return answer
    return None
