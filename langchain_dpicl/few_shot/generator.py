"""`DPFewShotGenerator`: private records in, synthetic examples out, paid for once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from langchain_core.documents import Document

from langchain_dpicl.budget import (
    PrivacyBudgetHandler,
    Purchase,
    Stored,
    check_budget,
    last,
    require_account,
)
from langchain_dpicl.budget.buying import taken_or_payable
from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import hiding
from langchain_dpicl.common.progress import is_watched, progress_bar
from langchain_dpicl.errors import DPError, InvalidParameterError, PlanMismatchError
from langchain_dpicl.few_shot.clipped import ClippedForecast, forecast_of, texts_of
from langchain_dpicl.few_shot.decoding import DecoderName, Decoding, decoding_of
from langchain_dpicl.few_shot.model import NextTokenModel, check_model, choices
from langchain_dpicl.few_shot.records import (
    FewShotPrompts,
    Records,
    read_records,
    sizes_of,
    sources,
    template_of,
)
from langchain_dpicl.few_shot.step import Draft, Drafts, PublicStep
from langchain_dpicl.few_shot.terms import (
    GenerationForecast,
    GenerationTerms,
    Sizes,
    paid_tokens,
)
from langchain_dpicl.mechanisms.random import current
from langchain_dpicl.public import Frozen
from langchain_dpicl.release.record import charged_record
from langchain_dpicl.released import ReleasedExamples
from langchain_dpicl.sealed import sealed
from langchain_dpicl.threads import on_question_thread

Forecast: TypeAlias = GenerationForecast | ClippedForecast

_WAY_OUT = "generate(..., resume=True) continues or returns it"


class DPFewShotGenerator(Frozen):
    """Writes examples like private ones, with differential privacy, once for all.

    For each label, the model writes an example token by token. The label's people are
    dealt to its examples; at every token the model says for each person what comes
    next, and a token is drawn by what they add to the instruction alone. Or, with
    `n_groups`, a fresh random sample is dealt to groups, whose distributions are added
    up with noise. The examples may then be used without limit: in few-shot prompts,
    with any model, for any number of questions, at no further cost.

    Args:
        model: Tells the next token's probabilities; see `NextTokenModel`.
        prompt: An instruction ("Given a topic, write a news item."); or a template with
            `{label}` and `{examples}`, where a group's records are put.
        labels: The labels to write examples of: public, not taken from the records. A
            mapping gives each label's public number of units: an example expects size /
            `per_label` people, or the sampling rate of groups is M N / size. A list
            takes the records' own count as public, where there are groups. A unit
            stands under the label that most of its records have; its other records are
            left out.
        n_groups: Groups M of one token step: model calls for each token. None for the
            clipped decoder; there it is the people that an example expects, if not
            size / `per_label`.
        records_per_group: Units N in a group, on average; of the clipped decoder, the
            most records of a person that are shown.
        max_tokens: Most tokens T of an example. All are paid for.
        top_k_public: The model's K likeliest tokens after the instruction alone are
            what a step chooses among; None: all tokens, of a model in this process.
        decoder: `clipped`, `gaussian`, or `noisy_max` (report-noisy-max, pure epsilon a
            token). `Clipped(...)`, `Greedy(...)`, `Sampling(...)` and `NoisyMax(...)`
            take options: the texts that end an example, a temperature, a contrast.
            None: `gaussian` where `n_groups` is given, else `clipped`.
        mechanism: Another name of `decoder`.
        unit_key: The field that says whose a record is. None: every record is a person
            of its own; then records must have no other fields than text and label.
        budget: The account that pays: one charge a generation.

    Raises:
        InvalidParameterError: If an argument is out of its range; it is named.

    Privacy:
        Unit: what `unit_key` names, or one record. Neighbors: all records of one unit
        more or less. Sensitivity, noise and event: *clipped*,
        `mechanisms.clipped_token`, of people each in one example, T tokens for all
        examples of a label together; *with groups*, `mechanisms.next_token`, of which
        one unit changes one, T tokens times the number of examples, each a
        Poisson-subsampled Gaussian (z, q = M N / size), or a pure epsilon that sampling
        amplifies. Labels in parallel, as no unit is under two. Public: the labels and
        their sizes, the prompts, all parameters, the length of each example, and that
        there was a generation. The model's provider sees the records' texts and is
        trusted with them.

    Example:
        ```python
        generator = DPFewShotGenerator(
            OpenAICompatibleNextToken(OpenAI(model=name, base_url=url), tokenizer),
            "Given an answer type, write a question.",
            {"place": 400, "person": 400},  # public guesses of their sizes
            max_tokens=20,
            budget=PrivacyBudgetHandler(epsilon=8, delta=1e-4, queries=1),
        )
        examples = generator.generate(records, per_label=10)  # of 40 people each
        ```
    """

    def __init__(  # noqa: PLR0913 - a generation's public terms, one by one
        self,
        model: NextTokenModel,
        prompt: Any,
        labels: Sequence[str] | Sizes,
        *,
        n_groups: int | None = None,
        records_per_group: float = 1.0,
        max_tokens: int,
        top_k_public: int | None = 100,
        decoder: DecoderName | Decoding | None = None,
        mechanism: DecoderName | Decoding | None = None,
        unit_key: str | None = None,
        budget: PrivacyBudgetHandler | None = None,
    ) -> None:
        check_model(model, top_k_public)
        check_budget(budget)
        if isinstance(labels, str) or not isinstance(labels, Iterable):
            raise InvalidParameterError(
                "labels must be a list of texts, or a mapping from each label to its "
                f"number of units, not {type(labels).__name__}."
            )
        sizes = tuple(labels.values()) if isinstance(labels, Mapping) else None
        if decoder is not None and mechanism is not None:
            raise InvalidParameterError(
                "mechanism is another name of decoder: give one of them."
            )
        usual: DecoderName = "clipped" if n_groups is None else "gaussian"
        self._terms = GenerationTerms(
            model=model.name,
            prompt=template_of(prompt),
            labels=tuple(labels),
            sizes=sizes,
            n_groups=n_groups,
            records_per_group=records_per_group,
            max_tokens=max_tokens,
            top_k_public=top_k_public,
            decoder=decoding_of(decoder or mechanism or usual),
            unit_key=unit_key,
        )
        self._model, self._budget = model, budget
        one_line = any("\n" in text for text in self._terms.decoder.stop)
        self._prompts = FewShotPrompts(self._terms.prompt, one_line=one_line)

    def __repr__(self) -> str:
        terms = self._terms
        return (
            f"{type(self).__name__}(model={terms.model!r}, labels={len(terms.labels)}, "
            f"n_groups={terms.n_groups}, records_per_group="
            f"{terms.records_per_group:g}, max_tokens={terms.max_tokens}, "
            f"decoder={terms.decoder.kind!r})"
        )

    @hiding
    def generate(
        self,
        records: Iterable[Any] | None,
        per_label: int = 1,
        *,
        resume: bool = False,
        progress: bool | None = None,
    ) -> ReleasedExamples:
        """Write examples: one charge, then token after token.

        Args:
            records: The private records: mappings with `text` and `label`, as
                `tabular.csv_rows` gives them, or LangChain `Document`s with `label` in
                their metadata. None writes examples of the instruction alone, at no
                charge: what private ones have to be better than.
            per_label: Examples of each label. With groups their tokens add up in the
                charge; with the clipped decoder they share the label's people.
            resume: If this account has a generation of the same terms, go on with it
                at no charge, or return it where it is complete. Give it the records of
                the first time: each token is drawn of those given now.
            progress: Whether to show a bar on standard error, with tokens a second and
                the time left; None: at a terminal.

        Returns:
            The examples, mappings of `text` and `label`, with the public `record`.

        Raises:
            InvalidParameterError: If an argument is out of its range, or a record has a
                label that is not in the list.
            UnitError: If records have no usable unit id, or a label too few units.
            NoBudgetError: If there is no budget.
            BudgetExhaustedError: If the account can't pay: nothing was asked.
            PlanMismatchError: If the account's plan is for another release, or is too
                small for one example.
            PublicCallError: If the model fails on a prompt without records. Before the
                charge nothing is lost; after it, the tokens so far are stored: go on
                with `resume=True`.
            LedgerError: If the ledger can't be used.
        """
        generation = self._generation(per_label, progress=progress)
        return generation.write(records, resume=resume)

    @hiding
    async def agenerate(
        self,
        records: Iterable[Any] | None,
        per_label: int = 1,
        *,
        resume: bool = False,
        progress: bool | None = None,
    ) -> ReleasedExamples:
        """Write examples without blocking the event loop; see `generate`.

        Canceled, it ends the token that it is at, and begins no other; what is charged
        stays charged, what is released stays stored, and `resume=True` goes on with it.
        """
        generation = self._generation(per_label, progress=progress)
        write = partial(generation.write, records, resume=resume)
        try:
            return await on_question_thread(write)
        finally:
            generation.canceled.set()

    def forecast(
        self, label_sizes: Sizes | None = None, per_label: int = 1
    ) -> Forecast:
        """Return what a generation would cost and could write; nothing is charged.

        It has noise, the lead that a token needs, and model calls; as text, in words.

        Args:
            label_sizes: Each label's number of units; None: the declared ones.
            per_label: Examples of each label.

        Raises:
            InvalidParameterError: If no sizes are known, or an argument is out of its
                range.
            NoBudgetError: If there is no budget.
            PlanMismatchError: If the account's plan is for another release, or none can
                be made.
        """
        terms = self._terms
        if label_sizes is not None:
            if set(label_sizes) != set(terms.labels):
                raise InvalidParameterError(
                    "label_sizes must give a number of units for each label, and for "
                    "nothing else."
                )
            sizes = tuple(label_sizes[label] for label in terms.labels)
            terms = terms.model_copy(update={"sizes": sizes})
        return self._generation(per_label).forecast(terms.rates())

    def _generation(
        self, per_label: int, *, progress: bool | None = False
    ) -> _Generation:
        is_seeded = current().is_seeded
        return _Generation(
            model=self._model,
            terms=self._terms.model_copy(update={"is_seeded": is_seeded}),
            prompts=self._prompts,
            per_label=parameters.count(per_label, "per_label"),
            account=self._budget,
            shows=is_watched() if progress is None else progress,
            canceled=threading.Event(),
        )


@dataclass(frozen=True, repr=False)
class _Generation:
    """One call of a generator: check, probe, buy, steps."""

    model: NextTokenModel
    terms: GenerationTerms
    prompts: FewShotPrompts
    per_label: int
    account: PrivacyBudgetHandler | None
    shows: bool
    canceled: threading.Event

    @property
    def budget(self) -> PrivacyBudgetHandler:
        """The account; without one, an error."""
        return require_account(self.account, "generator")

    def write(self, records: Iterable[Any] | None, *, resume: bool) -> ReleasedExamples:
        """Write the examples; of none, those of the instruction alone."""
        drafts = self._drafts()
        if records is None:
            self._advance(drafts, lambda: self._ask_public(drafts).without_records())
            record = self.terms.record(self.per_label, is_free=True)
            return ReleasedExamples(drafts.examples(), record)
        self.budget  # noqa: B018 - refused before any record is read
        terms = self.terms
        own = read_records(records, terms)
        purchase, stored = self._purchase(sizes_of(own, terms), resume=resume)
        first: PublicStep | None = None
        if stored is None:
            # The first public questions come before the charge: a model that can't do
            # what is needed costs nothing.
            first = self._ask_public(drafts, probe=True)
            first.require_room(terms.max_tokens)
        self._require_wanted()
        with purchase.bought() as paid:
            for tokens in paid.resume():
                drafts.take(tokens)
                first = None
            # Another process may have begun it, with the people whom it has counted.
            events = paid_tokens(terms.labels, paid.events)
            rates = {label: event.sampling_rate for label, event in events.items()}
            slots = self._slots(own, rates)

            def step() -> list[int]:
                nonlocal first
                public, first = first or self._ask_public(drafts), None

                def release() -> list[int]:
                    answers = public.ask_groups(self.prompts, slots)
                    # Stored before they leave the wall, so before anything is made of
                    # them: tokens that could not be stored are nowhere.
                    tokens: list[int] = paid.once(
                        lambda: public.release(answers, events)
                    )
                    return tokens

                return sealed(release)

            try:
                self._advance(drafts, step)
            except DPError as error:
                raise type(error)(
                    f"{error} The generation is charged and stands at {drafts.steps} "
                    "tokens, which are stored: go on with generate(..., resume=True), "
                    "at no charge."
                ) from None
            paid.finish()
        return self._examples(drafts, paid.stored)

    def _slots(
        self, own: Records, rates: Mapping[str, float]
    ) -> Callable[[Draft], list[list[Document]]]:
        """Return what deals a draft's slots: people of its text, or fresh groups."""
        if self.terms.is_clipped:
            texts = texts_of(own, self.terms, self.per_label)
            return lambda draft: texts[draft.label][draft.number]
        groups = sources(own, self.terms, rates)
        return lambda draft: groups[draft.label].draw_shared()

    def forecast(self, rates: Mapping[str, float]) -> Forecast:
        """Return what a generation costs and can do at these rates."""
        terms = self.terms
        events = self.budget.quote(terms.charge(rates, self.per_label))
        if terms.is_clipped:
            return forecast_of(terms, events, self.per_label)
        tokens = choices(self.model, terms.top_k_public)
        return terms.forecast(events, self.per_label, tokens)

    def _drafts(self) -> Drafts:
        return Drafts(self.model, self.terms, self.per_label)

    def _ask_public(self, drafts: Drafts, *, probe: bool = False) -> PublicStep:
        return PublicStep.ask(
            self.model, self.terms, self.prompts, drafts.active(), probe=probe
        )

    def _require_wanted(self) -> None:
        if self.canceled.is_set():
            raise asyncio.CancelledError

    def _advance(self, drafts: Drafts, step: Callable[[], list[int]]) -> None:
        """Take steps until all examples are complete; a bar shows how many, public."""
        with progress_bar(
            "Writing examples",
            drafts.most_steps,
            shown=self.shows,
            done=drafts.steps,
            speed="tokens/s",
        ) as advance:
            while drafts.active():
                self._require_wanted()
                advance(drafts.take(step()))

    def _purchase(
        self, sizes: Sizes, *, resume: bool
    ) -> tuple[Purchase, Stored | None]:
        """Return how to pay, and the stored generation to go on with, if any."""
        terms, budget = self.terms, self.budget
        key = terms.key(self.per_label)
        stored = last(budget.ledger, budget.account, key) if resume else None
        if stored is None:
            _require_lasting_labels(terms, budget)
            rates = terms.rates(sizes)
            charge = terms.charge(rates, self.per_label)
        else:
            charge = stored.asked
        purchase = Purchase(
            budget,
            charge,
            key,
            # Each step is one token of each example that is not complete.
            steps=terms.max_tokens,
            unit_key=terms.unit_key,
            header={"record": terms.record(self.per_label)},
            resumable=True,
            anew=not resume,
        )
        if stored is None:
            stored = taken_or_payable(purchase, "generation", _WAY_OUT)
            if stored is None:
                self.forecast(rates).require_signal()
        return purchase, stored

    def _examples(self, drafts: Drafts, stored: Stored) -> ReleasedExamples:
        """Return the complete examples, and the record as far as it has come."""
        budget = self.budget
        record = charged_record(stored.header["record"], stored, budget.delta)
        record["parameters"] |= {
            "tokens_released": drafts.steps,
            "complete": not drafts.active(),
        }
        record["account"] = budget.public_state(stored)
        return ReleasedExamples(drafts.examples(), record)


def _require_lasting_labels(
    terms: GenerationTerms, budget: PrivacyBudgetHandler
) -> None:
    """Refuse several generations under a plan where a unit could change its label.

    Privacy:
        A plan is calibrated for a unit that stands under one label in all of them.
        Records may change from one to the next, and a unit that pays one label's price
        and then another's can pay more than either twice. A filter adds up the largest
        cost of any label each time. Records without a unit key are the units
        themselves: one with another label is another unit.
    """
    if budget.fixes_classes and terms.unit_key is not None and len(terms.labels) > 1:
        raise PlanMismatchError(
            f"Account {budget.account!r} has a plan of {budget.queries} generations, "
            "between which a unit may come under another label: open an account with "
            "accounting='renyi' besides queries=, or one with queries=1."
        )
