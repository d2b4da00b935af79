"""`DPFewShotGenerator`: private records in, synthetic examples out, paid for once."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from langchain_dpicl.budget import (
    Paid,
    PrivacyBudgetHandler,
    Purchase,
    Stored,
    charges,
    check_budget,
    last,
    place_of,
    require_account,
)
from langchain_dpicl.budget.buying import taken_or_payable
from langchain_dpicl.common import parameters
from langchain_dpicl.common.hidden import hiding
from langchain_dpicl.common.progress import Advance, is_watched, progress_bar
from langchain_dpicl.errors import (
    DPError,
    InvalidParameterError,
    PlanMismatchError,
)
from langchain_dpicl.few_shot.decoding import Decoding, MechanismName, decoding_of
from langchain_dpicl.few_shot.drafts import Drafts
from langchain_dpicl.few_shot.forecast import GenerationForecast, forecast_of
from langchain_dpicl.few_shot.models.contract import NextTokenModel
from langchain_dpicl.few_shot.prompts import FewShotPrompts, template_of
from langchain_dpicl.few_shot.public_calls import check_model, choices
from langchain_dpicl.few_shot.records import (
    counted,
    read_records,
    require_enough,
    sources,
)
from langchain_dpicl.few_shot.step import PrivateStep, PublicStep
from langchain_dpicl.few_shot.terms import GenerationTerms, Sizes, charged_record
from langchain_dpicl.mechanisms.random import current
from langchain_dpicl.public import Frozen
from langchain_dpicl.release.record import paid_part
from langchain_dpicl.released import ReleasedExamples
from langchain_dpicl.sealed import sealed
from langchain_dpicl.threads import on_question_thread

_WAY_OUT = "generate(..., resume=True) continues or returns it, and released() reads it"


class DPFewShotGenerator(Frozen):
    """Writes examples like private ones, with differential privacy, once for all.

    For each label, the model writes an example token by token. At every token a fresh
    random sample of the label's records is dealt to groups; the model says for each
    group which token should come next; their distributions are added up with noise,
    and one token comes out. The examples may then be used without limit: in few-shot
    prompts, with any model, for any number of questions, at no further cost.

    Args:
        model: Tells the next token's probabilities; see `NextTokenModel`.
        prompt: An instruction ("Given a topic, write a news item."); or a template with
            `{label}` and `{examples}`, where a group's records are put.
        labels: The labels to write examples of: public, not taken from the records. A
            mapping gives each label's public number of units: the sampling rate is M N
            / size. A list takes the records' own count as public. A unit stands under
            the label that most of its records have; its other records are left out.
        n_groups: Groups M of one token step: model calls for each token.
        records_per_group: Units N in a group, on average.
        max_tokens: Most tokens T of an example. All are paid for.
        top_k_public: The model's K likeliest tokens after the instruction alone are
            what a step chooses among; None: all tokens, of a model in this process.
        mechanism: `gaussian`, or `noisy_max` (report-noisy-max, pure epsilon a token).
            `Greedy(...)`, `Sampling(...)` and `NoisyMax(...)` take options: the texts
            that end an example, a temperature, a contrast.
        unit_key: The field that says whose a record is. None: every record is a person
            of its own; then records must have no other fields than text and label.
        budget: The account that pays: one charge a generation.

    Raises:
        InvalidParameterError: If an argument is out of its range; it is named.

    Privacy:
        Unit: what `unit_key` names, or one record. Neighbors: all records of one unit
        more or less. Sensitivity, noise and event: `mechanisms.next_token`, of the
        groups' distributions, of which one unit changes one; for each label T tokens
        times the number of examples, each a Poisson-subsampled Gaussian (z, q = M N /
        size), or a pure epsilon that sampling amplifies; labels in parallel, as no unit
        is under two. Public: the labels and their sizes, the prompts, all parameters,
        the length of each example, and that there was a generation. The model's
        provider sees the records' texts and is trusted with them.

    Example:
        ```python
        generator = DPFewShotGenerator(
            OpenAICompatibleNextToken(OpenAI(model=name, base_url=url), tokenizer),
            "Given an answer type, write a question.",
            ["place", "person"],
            n_groups=30,
            records_per_group=2,
            max_tokens=20,
            budget=PrivacyBudgetHandler(epsilon=8, delta=1e-4, queries=1),
        )
        examples = generator.generate(records)
        ```
    """

    def __init__(  # noqa: PLR0913 - a generation's public terms, one by one
        self,
        model: NextTokenModel,
        prompt: Any,
        labels: Sequence[str] | Sizes,
        *,
        n_groups: int,
        records_per_group: float,
        max_tokens: int,
        top_k_public: int | None = 100,
        mechanism: MechanismName | Decoding = "gaussian",
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
        self._terms = GenerationTerms(
            model=model.name,
            prompt=template_of(prompt),
            labels=tuple(labels),
            sizes=sizes,
            n_groups=n_groups,
            records_per_group=records_per_group,
            max_tokens=max_tokens,
            top_k_public=top_k_public,
            mechanism=decoding_of(mechanism),
            unit_key=unit_key,
        )
        self._model, self._budget = model, budget
        one_line = any("\n" in text for text in self._terms.mechanism.stop)
        self._prompts = FewShotPrompts(self._terms.prompt, one_line=one_line)

    def __repr__(self) -> str:
        terms = self._terms
        return (
            f"{type(self).__name__}(model={terms.model!r}, labels={len(terms.labels)}, "
            f"n_groups={terms.n_groups}, records_per_group="
            f"{terms.records_per_group:g}, max_tokens={terms.max_tokens}, "
            f"mechanism={terms.mechanism.kind!r})"
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
            per_label: Examples of each label; their tokens add up in the charge.
            resume: If this account has a generation of the same terms, go on with it
                at no charge, or return it where it is complete. Give it the records of
                the first time: the sample of each token is of those given now.
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
        return self._generation(per_label, progress).write(records, resume=resume)

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
        generation = self._generation(per_label, progress)
        write = partial(generation.write, records, resume=resume)
        try:
            return await on_question_thread(write)
        finally:
            generation.canceled.set()

    def forecast(
        self, label_sizes: Sizes | None = None, per_label: int = 1
    ) -> GenerationForecast:
        """Return what a generation would cost and could write; nothing is charged.

        It has noise, the lead that a token needs, and model calls; `advice()` says it
        in words.

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
                    f"label_sizes must give a number of units for each of "
                    f"{list(terms.labels)}, and for nothing else."
                )
            sizes = tuple(label_sizes[label] for label in terms.labels)
            terms = terms.model_copy(update={"sizes": sizes})
        generation = self._generation(per_label, progress=False)
        return generation.forecast(terms.rates())

    def released(self, per_label: int = 1) -> list[ReleasedExamples]:
        """Return what generations of these terms have released here, oldest first.

        Free: it is read from the ledger, where every token was stored before it was
        used. An interrupted generation gives the examples that are complete.
        `per_label` is as it was asked for.

        Raises:
            NoBudgetError: If there is no budget.
            LedgerError: If the ledger can't be read.
        """
        return self._generation(per_label, progress=False).released()

    def _generation(self, per_label: int, progress: bool | None) -> _Generation:  # noqa: FBT001
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

    def write(self, records: Iterable[Any] | None, *, resume: bool) -> ReleasedExamples:
        """Write the examples; of none, those of the instruction alone."""
        if records is None:
            return self._without_records()
        terms = self.terms
        require_account(self.account, "generator")
        own = read_records(records, terms)
        require_enough(own, terms)
        purchase, stored = self._purchase(counted(own), resume=resume)
        drafts, first = Drafts(self.model, terms, self.per_label), None
        if stored is None:
            # The first public questions come before the charge: a model that can't do
            # what is needed costs nothing.
            first = self._ask_public(drafts, probe=True)
        self._require_wanted()
        with purchase.bought() as paid:
            for tokens in paid.resume():
                drafts.take(tokens)
                first = None
            # Another process may have begun it, with the people whom it has counted.
            events = terms.paid(paid.events)
            rates = {label: event.sampling_rate for label, event in events.items()}
            groups = sources(own, terms, rates)
            with self._progress(drafts) as advance:
                while drafts.active():
                    self._require_wanted()
                    public, first = first or self._ask_public(drafts), None
                    step = PrivateStep(public, self.prompts, groups, events)
                    advance(drafts.take(_released(step, paid)))
            paid.finish()
        return self._examples(drafts, paid.stored)

    def _ask_public(self, drafts: Drafts, *, probe: bool = False) -> PublicStep:
        return PublicStep.ask(
            self.model, self.terms, self.prompts, drafts.active(), probe=probe
        )

    def _require_wanted(self) -> None:
        if self.canceled.is_set():
            raise asyncio.CancelledError

    def _purchase(
        self, sizes: Sizes, *, resume: bool
    ) -> tuple[Purchase, Stored | None]:
        """Return how to pay, and the stored generation to go on with, if any."""
        terms, budget = self.terms, require_account(self.account, "generator")
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
            with self._advice():
                stored = taken_or_payable(purchase, "generation", _WAY_OUT)
                if stored is None:
                    self.forecast(rates).require_signal()
        return purchase, stored

    @contextmanager
    def _advice(self) -> Iterator[None]:
        """Say why a plan may not fit that has fitted before."""
        message = ""
        try:
            yield
        except PlanMismatchError as error:
            message = str(error)
        if message and self.terms.sizes is None:
            message += (
                " The rates follow the labels' numbers of people: if these have "
                "changed since the account's first generation, give labels= as a "
                "mapping to the numbers of then."
            )
        if message:
            raise PlanMismatchError(message)

    def forecast(self, rates: Mapping[str, float]) -> GenerationForecast:
        """Return what a generation costs and can do at these rates."""
        budget = require_account(self.account, "generator")
        events = budget.quote(self.terms.charge(rates, self.per_label))
        return forecast_of(
            self.terms,
            self.terms.paid(events),
            self.per_label,
            choices(self.model, self.terms.top_k_public),
        )

    def released(self) -> list[ReleasedExamples]:
        """Return what the account has released of these terms."""
        budget, result = require_account(self.account, "generator"), []
        place = place_of(self.terms.key(self.per_label))
        for stored in charges(budget.ledger, budget.account):
            if stored.key == place:
                drafts = Drafts(self.model, self.terms, self.per_label)
                for tokens in stored.values:
                    drafts.take(tokens)
                result.append(self._examples(drafts, stored))
        return result

    def _without_records(self) -> ReleasedExamples:
        drafts = Drafts(self.model, self.terms, self.per_label)
        with self._bar(drafts) as advance:
            while drafts.active():
                self._require_wanted()
                advance(drafts.take(self._ask_public(drafts).without_records()))
        record = self.terms.free_record(self.per_label)
        return ReleasedExamples.of(drafts.examples(), record)

    def _examples(self, drafts: Drafts, stored: Stored) -> ReleasedExamples:
        """Return the complete examples, and the record as far as it has come."""
        budget = require_account(self.account, "generator")
        record = charged_record(stored.header["record"], stored.events, budget.delta)
        record["parameters"] |= {
            "tokens_released": drafts.steps,
            "complete": not drafts.active(),
        }
        record |= paid_part(budget, stored)
        return ReleasedExamples.of(drafts.examples(), record)

    @contextmanager
    def _progress(self, drafts: Drafts) -> Iterator[Advance]:
        """Show a bar while the block runs; where it stops, say how to go on."""
        stopped: DPError | None = None
        with self._bar(drafts) as advance:
            try:
                yield advance
            except DPError as error:
                stopped = error
            except KeyboardInterrupt:
                # A screen that is gone is no reason to hide the interrupt.
                with suppress(OSError, ValueError):
                    sys.stderr.write(
                        f"Stopped at {drafts.steps} tokens, which are stored: go on "
                        "with generate(..., resume=True), at no charge.\n"
                    )
                raise
        if stopped is not None:
            raise type(stopped)(
                f"{stopped} The generation is charged and stands at {drafts.steps} "
                "tokens, which are stored: go on with generate(..., resume=True), at "
                "no charge."
            )

    @contextmanager
    def _bar(self, drafts: Drafts) -> Iterator[Advance]:
        """Show how many tokens there are, which is public."""
        with progress_bar(
            "Writing examples",
            drafts.most_steps,
            shown=self.shows,
            done=drafts.steps,
            speed="tokens/s",
        ) as advance:
            yield advance


def _released(step: PrivateStep, paid: Paid) -> list[int]:
    """Take a step inside the wall; return its tokens.

    They are stored before they leave it, so before anything is made of them: those that
    could not be stored are nowhere, and the step is taken again.
    """

    def release() -> list[int]:
        step.ask()
        tokens: list[int] = paid.once(step.release)
        return tokens

    return sealed(release)


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
            f"Account {budget.account!r} has a plan of {budget.queries} generations. "
            "Between them the records of a unit may come under another label, which a "
            "plan does not cover. Open an account with accounting='renyi' besides "
            "queries=, which adds up what was charged; or one with queries=1."
        )
