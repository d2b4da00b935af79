"""Examples without any record: the control that costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from langchain_dpicl.common import parameters
from langchain_dpicl.common.frozen import Frozen
from langchain_dpicl.common.progress import is_watched, progress_bar
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.few_shot.decoding import Decoder, Sampling
from langchain_dpicl.few_shot.drafts import Drafts
from langchain_dpicl.few_shot.models.contract import LogProbabilities, NextTokenModel
from langchain_dpicl.few_shot.prompting import FewShotPrompting
from langchain_dpicl.few_shot.public_calls import (
    PublicCalls,
    Vocabulary,
    public_distributions,
    public_prompts,
    vocabularies,
)
from langchain_dpicl.few_shot.records import RecordFields
from langchain_dpicl.few_shot.spec import OutputSpec, read_labels, read_stop
from langchain_dpicl.mechanisms import SecureRandom
from langchain_dpicl.mechanisms.source import checked_source
from langchain_dpicl.release.flow import result
from langchain_dpicl.release.record import release_record
from langchain_dpicl.released import ReleasedExamples


class ZeroShotGenerator(Frozen):
    """Writes examples from the instruction alone: epsilon is 0, and so is the price.

    A language model often knows enough about a task to write examples of it without
    having seen one. Where these do as well as those of `DPFewShotGenerator`, private
    records need not be touched at all: try this one first.

    Args:
        model: Tells the next token's probabilities.
        prompt: The instruction or template, as for `DPFewShotGenerator`.
        labels: The labels to write examples of.
        max_tokens: Most tokens of an example.
        top_k_public: The likeliest K tokens are what a step chooses among; None: all.
        text_key: The field of the text.
        label_key: The field of the label.
        example_prompt: As for `DPFewShotGenerator`; no example is shown.
        decoder: How a token is taken; None draws with temperature 0.7 from the
            likeliest nine tenths, so that several examples of a label differ.
        stop: Texts that end an example.
        random: For tests: where draws come from.

    Raises:
        InvalidParameterError: If an argument is out of its range; it is named.

    Privacy:
        No record is read: no unit, no event, epsilon 0.

    Example:
        >>> from langchain_dpicl.offline import OfflineNextTokenModel
        >>> control = ZeroShotGenerator(
        ...     OfflineNextTokenModel(),
        ...     "Given a topic, write a news item.",
        ...     ["sports", "business"],
        ...     max_tokens=8,
        ... )
        >>> examples = control.generate()
        >>> [example["label"] for example in examples], examples.record["epsilon"]
        (['sports', 'business'], 0.0)
    """

    def __init__(  # noqa: PLR0913 - as DPFewShotGenerator, as far as it goes
        self,
        model: NextTokenModel,
        prompt: Any,
        labels: Sequence[str],
        *,
        max_tokens: int,
        top_k_public: int | None = 100,
        text_key: str = "text",
        label_key: str = "label",
        example_prompt: Any = None,
        decoder: Decoder | None = None,
        stop: Sequence[str] = ("\n",),
        random: SecureRandom | None = None,
    ) -> None:
        default = Sampling(temperature=0.7, top_p=0.9, floor=0.0)
        self._writing = OutputSpec(
            labels=read_labels(labels),
            fields=RecordFields(text_key, label_key, None),
            max_tokens=max_tokens,
            top_k_public=top_k_public,
            decoder=default if decoder is None else decoder,
            stop=read_stop(stop),
        )
        self._writing.check()
        prompting = FewShotPrompting.read(
            prompt, example_prompt, longest=1, one_line=False
        )
        source = checked_source(random)
        self._asking = PublicCalls(model, self._writing, prompting, source)
        self._asking.check()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(model={self._asking.model.name!r}, "
            f"labels={len(self._writing.labels)}, "
            f"max_tokens={self._writing.max_tokens})"
        )

    def generate(
        self,
        records: Iterable[Any] | None = None,
        per_label: int = 1,
        *,
        resume: bool = False,
        progress: bool | None = None,
    ) -> ReleasedExamples:
        """Write examples, with a record of epsilon 0.

        One generator stands in for the other: records are not looked at, and `resume`
        makes no difference, as nothing was paid and nothing is stored.

        Raises:
            InvalidParameterError: If an argument is out of its range.
            PublicCallError: If the model fails.
        """
        if records is not None and not isinstance(records, Iterable):
            raise InvalidParameterError(
                f"records are a list, not {type(records).__name__}; for the number of "
                "examples say per_label=."
            )
        del records, resume
        drafts = self._drafts(per_label)
        shown = is_watched() if progress is None else progress
        with progress_bar(
            "Writing examples", drafts.most_steps, shown=shown, speed="tokens/s"
        ) as advance:
            while active := drafts.active():
                top = result(self._asking.top(drafts))
                chosen = vocabularies(self._asking.model, active, top)
                prompts = public_prompts(self._asking.prompting, active)
                answers = self._asking.model.log_probabilities(
                    prompts, [vocabulary.asked for vocabulary in chosen]
                )
                drafts.take(self._tokens(chosen, answers))
                advance(len(active))
        return self._released(drafts, per_label)

    async def agenerate(
        self,
        records: Iterable[Any] | None = None,
        per_label: int = 1,
        *,
        resume: bool = False,
        progress: bool | None = None,
    ) -> ReleasedExamples:
        """Write examples without blocking the event loop; see `generate`."""
        return await asyncio.to_thread(
            self.generate, records, per_label, resume=resume, progress=progress
        )

    def _drafts(self, per_label: int) -> Drafts:
        writing = self._writing
        return Drafts(
            self._asking.model,
            writing.labels,
            parameters.count(per_label, "per_label"),
            writing.max_tokens,
            writing.stop,
        )

    def _tokens(
        self,
        chosen: Sequence[Vocabulary],
        answers: Sequence[LogProbabilities | None],
    ) -> list[int]:
        choose = self._writing.decoder.choose
        places = [
            choose(row, 0.0, self._asking.random)
            for row in public_distributions(answers, chosen)
        ]
        return [
            int(vocabulary.tokens[place])
            for vocabulary, place in zip(chosen, places, strict=True)
        ]

    def _released(self, drafts: Drafts, per_label: int) -> ReleasedExamples:
        fields = self._writing.fields
        return ReleasedExamples.of(
            [
                {fields.text: text, fields.label: label}
                for label, text in drafts.examples()
            ],
            release_record(
                kind="examples",
                status="public",
                mechanism="few-shot/zero-shot",
                parameters={**self._writing.described(), "per_label": per_label},
                unit="none: no record was read",
                unit_key=None,
                relation=None,
                neighbors=None,
                epsilon=0.0,
                delta=0.0,
                model=self._asking.model.name,
                random=None,
            ),
        )
