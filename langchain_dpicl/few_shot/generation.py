"""A generation under way: its steps, its progress, its examples with their record."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from langchain_dpicl.common.hidden import without_frames
from langchain_dpicl.common.outcome import Status
from langchain_dpicl.common.progress import Advance, is_watched, progress_bar
from langchain_dpicl.errors import DPError
from langchain_dpicl.few_shot.drafts import Drafts
from langchain_dpicl.few_shot.models.contract import Tokens
from langchain_dpicl.few_shot.public_calls import PublicCalls, vocabularies
from langchain_dpicl.few_shot.spec import GenerationSpec, PaidTokens
from langchain_dpicl.few_shot.step import Step, answered
from langchain_dpicl.groups import SampledGroups
from langchain_dpicl.release.flow import Flow, in_thread
from langchain_dpicl.release.record import NEIGHBORS, paid_part, release_record
from langchain_dpicl.release.store import Entry, damaged
from langchain_dpicl.released import ReleasedExamples
from langchain_dpicl.sealed import sealed


@dataclass(repr=False)
class Generation:
    """One charged generation, from where it stands.

    Its tokens are stored in `entry`. `sources`, which are private, draw each label's
    groups; `taken` counts the steps of all drafts together.
    """

    asking: PublicCalls
    terms: GenerationSpec
    drafts: Drafts
    entry: Entry
    paid: PaidTokens
    sources: Mapping[str, SampledGroups] = field(default_factory=dict)
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

        `top` is the public vocabulary, where it was asked for already.
        """
        if top is None:
            top = yield from self.asking.top(self.drafts)
        # Tokens are stored before they leave the region, so before anything is made of
        # them: those that could not be stored are nowhere, and the step is taken again.
        stored = yield sealed(partial(self._released, self._step(top)))
        # It may wait for a server that spells tokens.
        taken: int = yield in_thread(partial(self._take, stored))
        return taken

    def _released(self, step: Step) -> Flow[list[int]]:
        model = self.asking.model
        asked = yield in_thread(step.draw)
        answers = yield from answered(model, asked)

        def release() -> list[int]:
            # One call, as a thread costs as much as half of it does.
            drawn = step.release(asked, answers)
            return self.entry.release(self.taken, drawn)

        # What is stored is public; a caller that is canceled leaves nothing half done.
        keep = partial(without_frames, release)
        tokens: list[int] = yield in_thread(keep, shielded=True)
        return tokens

    def _step(self, top: list[Tokens] | None) -> Step:
        drafts = self.drafts.active()
        return Step(
            terms=self.terms,
            prompting=self.asking.prompting,
            drafts=drafts,
            vocabularies=vocabularies(self.asking.model, drafts, top),
            sources=self.sources,
            paid=self.paid.tokens,
            random=self.asking.random,
        )

    def _take(self, tokens: list[int]) -> int:
        if len(tokens) != len(self.drafts.active()):
            raise damaged()
        self.drafts.take(tokens)
        self.taken += 1
        return len(tokens)


@contextmanager
def generation_progress(
    generation: Generation, *, progress: bool | None
) -> Iterator[Advance]:
    """Show a bar while the block runs; where it stops, say how to go on.

    Privacy:
        Tokens, and how many there are, are released: unlike that of a chain's group
        calls, this bar tells nothing that was not paid for.
    """
    drafts = generation.drafts
    stopped: DPError | None = None
    with progress_bar(
        "Writing examples",
        drafts.most_steps,
        shown=is_watched() if progress is None else progress,
        done=drafts.steps,
        speed="tokens/s",
    ) as advance:
        try:
            yield advance
        except DPError as error:
            stopped = error
        except KeyboardInterrupt:
            # A screen that is gone is no reason to hide the interrupt.
            with suppress(OSError, ValueError):
                sys.stderr.write(
                    f"Stopped at {drafts.steps} tokens, which are stored: go on with "
                    "generate(..., resume=True), at no charge.\n"
                )
            raise
    if stopped is not None:
        raise type(stopped)(
            f"{stopped} The generation is charged and stands at {drafts.steps} "
            "tokens, which are stored: go on with generate(..., resume=True), at "
            "no charge."
        )


def released_examples(generation: Generation, per_label: int) -> ReleasedExamples:
    """Return a generation's complete examples and their public record.

    `per_label` examples of each label were asked for.
    """
    fields = generation.terms.fields
    examples = [
        {fields.text: text, fields.label: label}
        for label, text in generation.drafts.examples()
    ]
    return ReleasedExamples.of(examples, record_of(generation, per_label))


def record_of(generation: Generation, per_label: int) -> dict[str, Any]:
    """Return the public record of a generation, as far as it has come."""
    asking, header = generation.asking, generation.entry.header
    terms, paid = generation.terms, generation.paid
    is_gaussian = terms.mechanism == "gaussian"
    return release_record(
        kind="examples",
        status=Status.RELEASED.value,
        mechanism=terms.release,
        parameters={
            **terms.described(),
            "per_label": per_label,
            "sampling_rates": paid.rates,
            "label_sizes": header["sizes"],
            "noise_multipliers" if is_gaussian else "epsilons": paid.noise,
            "tokens_charged": terms.steps_of(per_label),
            "tokens_released": generation.drafts.steps,
            "complete": generation.ended,
        },
        unit=terms.fields.described,
        unit_key=terms.fields.unit,
        relation="replace",
        neighbors=NEIGHBORS,
        model=asking.model.name,
        random=asking.random,
        **paid_part(header),
    )
