"""A generation that is under way: charged, and taking one step after the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from langchain_dpicl.common.hidden import without_frames
from langchain_dpicl.few_shot.drafts import Drafts
from langchain_dpicl.few_shot.models.contract import Tokens
from langchain_dpicl.few_shot.public_calls import PublicCalls
from langchain_dpicl.few_shot.questions import aanswered, answered
from langchain_dpicl.few_shot.spec import GenerationSpec
from langchain_dpicl.few_shot.step import Step
from langchain_dpicl.few_shot.vocabulary import vocabularies
from langchain_dpicl.groups import SampledGroups
from langchain_dpicl.release.flow import Do, Flow, in_thread
from langchain_dpicl.release.store import Entry, damaged
from langchain_dpicl.sealed import Hidden, sealed


@dataclass(repr=False)
class Generation:
    """One charged generation, from where it stands.

    Attributes:
        asking: Model and prompts.
        terms: The public terms.
        drafts: The examples in the making.
        entry: Where its tokens are stored.
        sources: For each class, what draws its groups. Private.
        noise: For each class, the step's noise multiplier or epsilon, as charged.
        taken: Steps of all drafts together that were taken so far.
    """

    asking: PublicCalls
    terms: GenerationSpec
    drafts: Drafts
    entry: Entry
    sources: Mapping[str, SampledGroups]
    noise: Mapping[str, float]
    taken: int = 0

    def followed(self) -> Generation:
        """Follow the stored steps, as far as there are any; return this generation."""
        while not self.ended:
            tokens = self.entry.step(self.taken)
            if tokens is None:
                break
            self._take(tokens)
        return self

    @property
    def ended(self) -> bool:
        """Whether all examples are complete."""
        return not self.drafts.active()

    def advance(self, top: list[Tokens] | None = None) -> Flow[int]:
        """Take a step: sample, ask, release, store. Return how many tokens came.

        Args:
            top: The public vocabulary, where it was asked for already.
        """
        if top is None:
            top = yield from self.asking.top(self.drafts)
        tokens = Hidden((yield sealed(partial(self._released, self._step(top)))))
        # Tokens that could not be stored are in no traceback: there will be others for
        # the same charge.
        keep = partial(
            without_frames, lambda: self.entry.release(self.taken, tokens.value)
        )
        # Both may wait: for a disk, and for a server that spells tokens.
        stored = yield in_thread(keep, shielded=True)
        taken: int = yield in_thread(partial(self._take, stored))
        return taken

    def _released(self, step: Step) -> Flow[list[int]]:
        model = self.asking.model
        asked = yield in_thread(step.draw)
        answers = yield Do(
            partial(answered, model, asked), partial(aanswered, model, asked)
        )
        tokens: list[int] = yield in_thread(partial(step.release, asked, answers))
        return tokens

    def _step(self, top: list[Tokens] | None) -> Step:
        drafts = self.drafts.active()
        return Step(
            terms=self.terms,
            prompting=self.asking.prompting,
            drafts=drafts,
            vocabularies=vocabularies(self.asking.model, drafts, top),
            sources=self.sources,
            noise=self.noise,
            random=self.asking.random,
        )

    def _take(self, tokens: list[int]) -> int:
        if len(tokens) != len(self.drafts.active()):
            raise damaged()
        self.drafts.take(tokens)
        self.taken += 1
        return len(tokens)
