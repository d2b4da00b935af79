"""A generation under way: its steps, its progress, its examples with their record."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from langchain_dpicl.accounting import Event, compose
from langchain_dpicl.budget import Paid, PrivacyBudgetHandler, Stored
from langchain_dpicl.common.hidden import without_frames
from langchain_dpicl.common.outcome import Status
from langchain_dpicl.common.progress import Advance, is_watched, progress_bar
from langchain_dpicl.errors import DPError, LedgerError
from langchain_dpicl.few_shot.calibration import release_name
from langchain_dpicl.few_shot.drafts import Drafts
from langchain_dpicl.few_shot.models.contract import Tokens
from langchain_dpicl.few_shot.public_calls import PublicCalls, vocabularies
from langchain_dpicl.few_shot.spec import GenerationSpec, PaidTokens
from langchain_dpicl.few_shot.step import Step, answered
from langchain_dpicl.groups import SampledGroups
from langchain_dpicl.release.flow import Flow, in_thread
from langchain_dpicl.release.record import NEIGHBORS, paid_part, release_record
from langchain_dpicl.released import ReleasedExamples
from langchain_dpicl.sealed import sealed


@dataclass(repr=False)
class Generation:
    """One charged generation, from where it stands.

    Its tokens are stored under its charge. `sources`, which are private, draw each
    label's groups; `taken` counts the steps of all drafts together. `owner` draws; None
    where the stored tokens are read alone.
    """

    asking: PublicCalls
    terms: GenerationSpec
    drafts: Drafts
    budget: PrivacyBudgetHandler
    stored: Stored
    owner: Paid | None = None
    sources: Mapping[str, SampledGroups] = field(default_factory=dict)
    taken: int = 0

    @property
    def paid(self) -> PaidTokens:
        """What each label's tokens were charged."""
        return PaidTokens.of(self.terms.labels, self.stored.events)

    def followed(self) -> Generation:
        """Follow the stored steps, as far as there are any; return this generation."""
        if self.owner is not None:
            self.owner.resume()
        for tokens in self.stored.values:
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
            drawn: list[int] = self._owner.once(
                lambda: list(step.release(asked, answers))
            )
            return drawn

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

    def finish(self) -> None:
        """Note that all examples are complete, so that nobody goes on with them."""
        self._owner.finish()

    def leave(self) -> None:
        """Give up what is not drawn yet, so that nobody waits for it."""
        self._owner.leave()

    @property
    def _owner(self) -> Paid:
        if self.owner is None:
            raise LedgerError("This generation was read, and not bought.")
        return self.owner

    def _take(self, tokens: list[int]) -> int:
        if len(tokens) != len(self.drafts.active()):
            raise LedgerError("A stored step makes no sense: it has other examples.")
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


def released_examples(generation: Generation) -> ReleasedExamples:
    """Return a generation's complete examples and their public record."""
    fields = generation.terms.fields
    examples = [
        {fields.text: text, fields.label: label}
        for label, text in generation.drafts.examples()
    ]
    return ReleasedExamples.of(examples, record_of(generation))


def record_of(generation: Generation) -> dict[str, Any]:
    """Return the public record of a generation, as far as it has come."""
    budget, stored = generation.budget, generation.stored
    record = charged_record(stored.header["record"], stored.events, budget.delta)
    parameters = {
        **record["parameters"],
        "tokens_released": generation.drafts.steps,
        "complete": generation.ended,
    }
    return {**record, **paid_part(budget, stored), "parameters": parameters}


def charged_record(
    record: Mapping[str, Any], events: tuple[Event, ...], delta: float
) -> dict[str, Any]:
    """Return a generation's record with what is charged for it."""
    known = record["parameters"]
    paid = PaidTokens.of(known["labels"], events)
    is_gaussian = record["mechanism"] == release_name("gaussian")
    tokens = known["max_tokens"] * known["per_label"]
    parameters = {
        **known,
        "sampling_rates": paid.rates,
        "noise_multipliers" if is_gaussian else "epsilons": paid.noise,
        "tokens_charged": dict.fromkeys(known["labels"], tokens),
    }
    return {
        **record,
        "epsilon": compose(events, delta),
        "delta": delta,
        "events": [event.model_dump(mode="json") for event in events],
        "parameters": parameters,
    }


def record_terms(
    asking: PublicCalls, terms: GenerationSpec, per_label: int
) -> dict[str, Any]:
    """Return a generation's record as far as it is known before the charge."""
    return release_record(
        kind="examples",
        status=Status.RELEASED.value,
        mechanism=terms.release,
        parameters={
            **terms.described(),
            "per_label": per_label,
            "label_sizes": "counted" if terms.label_sizes is None else "declared",
        },
        unit=terms.fields.described,
        unit_key=terms.fields.unit,
        relation="replace",
        neighbors=NEIGHBORS,
        model=asking.model.name,
        random=asking.random,
    )
