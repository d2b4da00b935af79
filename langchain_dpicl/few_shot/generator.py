"""`DPFewShotGenerator`: private records in, synthetic examples out, paid for once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from langchain_dpicl.budget import PrivacyBudgetHandler, charges, place_of
from langchain_dpicl.common import parameters
from langchain_dpicl.common.frozen import Frozen
from langchain_dpicl.errors import InvalidParameterError, NoBudgetError
from langchain_dpicl.few_shot.calibration import Mechanism
from langchain_dpicl.few_shot.decoding import Decoder, Greedy
from langchain_dpicl.few_shot.forecast import GenerationForecast, forecast
from langchain_dpicl.few_shot.generation import (
    Generation,
    generation_progress,
    released_examples,
)
from langchain_dpicl.few_shot.models.contract import NextTokenModel
from langchain_dpicl.few_shot.prompting import FewShotPrompting
from langchain_dpicl.few_shot.public_calls import PublicCalls
from langchain_dpicl.few_shot.records import RecordFields
from langchain_dpicl.few_shot.request import GenerationRequest, drafts_of, key_of
from langchain_dpicl.few_shot.spec import (
    GenerationSpec,
    read_labels,
    read_stop,
)
from langchain_dpicl.mechanisms.random import SecureRandom, checked_source
from langchain_dpicl.release.flow import Flow, aresult, in_thread, result
from langchain_dpicl.released import ReleasedExamples
from langchain_dpicl.sealed import Hidden

LONGEST_TEXT = 2000


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
            `{label}` and `{examples}`, where a group's examples are put.
        labels: The labels to write examples of: public, not taken from the records. A
            unit stands under the one that most of its records have; its other records
            are left out.
        n_groups: Groups M of one token step: model calls for each token.
        records_per_group: Units N in a group, on average.
        max_tokens: Most tokens T of an example. All are paid for.
        top_k_public: The model's K likeliest tokens after the instruction alone are
            what a step chooses among; None: all tokens, of a model in this process.
        mechanism: `gaussian`, or `noisy_max` (report-noisy-max, pure epsilon a token).
        budget: The account that pays: one charge a generation.
        unit_key: The field that says whose a record is. None: every record is a person
            of its own; then records must have no other fields than text and label.
        text_key: The field of the text (of a `Document`, its content).
        label_key: The field, or metadata key, of the label.
        example_prompt: How a record is shown: a template with `{text}` and `{label}`.
        decoder: How a token is taken of the noisy probabilities (`gaussian` only):
            `Greedy()`, or `Sampling(...)`.
        stop: Texts that end an example.
        label_sizes: The labels' numbers of units, public: the sampling rate is M N /
            size, and delta must be below 1 / (their sum). None takes the records' own
            count as public; the record says so.
        records_per_unit: Most records of a unit in one step, a fresh random subset.
        max_record_chars: Longer texts are cut.
        noise_multiplier: Of a Gaussian step; None leaves it to the budget.
        epsilon: Of a noisy-max step, before sampling; None leaves it to the budget.
        random: For tests: where samples and noise come from.

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
            OpenAICompatibleNextToken(OpenAI(model="my-model", base_url=url)),
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
        labels: Sequence[str],
        *,
        n_groups: int,
        records_per_group: float,
        max_tokens: int,
        top_k_public: int | None = 100,
        mechanism: Mechanism = "gaussian",
        budget: PrivacyBudgetHandler | None = None,
        unit_key: str | None = None,
        text_key: str = "text",
        label_key: str = "label",
        example_prompt: Any = None,
        decoder: Decoder | None = None,
        stop: Sequence[str] = ("\n",),
        label_sizes: Mapping[str, int] | None = None,
        records_per_unit: int = 1,
        max_record_chars: int = LONGEST_TEXT,
        noise_multiplier: float | None = None,
        epsilon: float | None = None,
        random: SecureRandom | None = None,
    ) -> None:
        self._terms = GenerationSpec(
            labels=read_labels(labels),
            fields=RecordFields(text_key, label_key, unit_key),
            n_groups=n_groups,
            records_per_group=records_per_group,
            records_per_unit=records_per_unit,
            max_tokens=max_tokens,
            top_k_public=top_k_public,
            mechanism=mechanism,
            decoder=Greedy() if decoder is None else decoder,
            stop=read_stop(stop),
            noise_multiplier=noise_multiplier,
            epsilon=epsilon,
            label_sizes=label_sizes,
        )
        self._terms.check()
        prompting = FewShotPrompting.read(
            prompt,
            example_prompt,
            longest=parameters.count(max_record_chars, "max_record_chars"),
            one_line=any("\n" in text for text in self._terms.stop),
        )
        source = checked_source(random)
        self._asking = PublicCalls(model, self._terms, prompting, source)
        self._asking.check()
        if budget is not None and not isinstance(budget, PrivacyBudgetHandler):
            raise InvalidParameterError(
                f"budget must be a PrivacyBudgetHandler, not {type(budget).__name__}."
            )
        self._budget = budget

    def __repr__(self) -> str:
        terms, random = self._terms, self._asking.random
        return (
            f"{type(self).__name__}(model={self._asking.model.name!r}, "
            f"labels={len(terms.labels)}, n_groups={terms.n_groups}, "
            f"records_per_group={terms.records_per_group:g}, "
            f"max_tokens={terms.max_tokens}, mechanism={terms.mechanism!r}"
            f"{'' if random is None else f', random={random!r}'})"
        )

    def generate(
        self,
        records: Iterable[Any],
        per_label: int = 1,
        *,
        resume: bool = False,
        progress: bool | None = None,
    ) -> ReleasedExamples:
        """Write examples: one charge, then token after token.

        Args:
            records: The private records: mappings, as `tabular.CSVRows` and `JSONRows`
                give them, or LangChain `Document`s.
            per_label: Examples of each label; their tokens add up in the charge.
            resume: If this account has a generation of the same terms, go on with it
                at no charge, or return it where it is complete. Give it the records of
                the first time: the sample of each token is of those given now.
            progress: Whether to show a bar on standard error, with tokens a second and
                the time left; None: at a terminal.

        Returns:
            The examples, a list of dictionaries by label, with the public `record`.

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
        hidden = Hidden(records)
        # Whatever fails from here on, tracebacks show this frame and no record.
        del records
        return result(self._steps(hidden, per_label, resume=resume, progress=progress))

    async def agenerate(
        self,
        records: Iterable[Any],
        per_label: int = 1,
        *,
        resume: bool = False,
        progress: bool | None = None,
    ) -> ReleasedExamples:
        """Write examples without blocking the event loop; see `generate`.

        Canceled, it makes no further call; what is charged stays charged, what is
        released stays stored, and `resume=True` goes on with it.
        """
        hidden = Hidden(records)
        del records  # As in `generate`.
        return await aresult(
            self._steps(hidden, per_label, resume=resume, progress=progress)
        )

    def _steps(
        self,
        records: Hidden[Iterable[Any]],
        per_label: int,
        *,
        resume: bool,
        progress: bool | None,
    ) -> Flow[ReleasedExamples]:
        read = partial(self._order, records, per_label, resume=resume)
        order = yield in_thread(read)
        top = None
        if order.stored is None:
            # The first public questions come before the charge: a model that can't do
            # what is needed costs nothing.
            top = yield from self._asking.probe(order.drafts())
        generation = yield from order.begin()
        try:
            with generation_progress(generation, progress=progress) as advance:
                while not generation.ended:
                    advance((yield from generation.advance(top)))
                    top = None
            yield in_thread(generation.finish, shielded=True)
        except BaseException:
            yield in_thread(generation.leave, shielded=True)
            raise
        return released_examples(generation)

    def forecast(
        self, label_sizes: Mapping[str, int] | None = None, per_label: int = 1
    ) -> GenerationForecast:
        """Return what a generation would cost and could write; nothing is charged.

        It has noise, the lead that a token needs, and model calls; `advice()` says it
        in words.

        Args:
            label_sizes: Each label's number of units; None: those that the generator
                was made with.
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
            terms = replace(terms, label_sizes=label_sizes)
            terms.check()
        if terms.label_sizes is None:
            raise InvalidParameterError(
                "A forecast needs label_sizes: each label's number of units."
            )
        return forecast(
            terms,
            self._account(),
            terms.rates({}),
            per_label=parameters.count(per_label, "per_label"),
            choices=self._asking.choices,
        )

    def released(self, per_label: int = 1) -> list[ReleasedExamples]:
        """Return what generations of these terms have released here, oldest first.

        Free: it is read from the ledger, where every token was stored before it was
        used. An interrupted generation gives the examples that are complete.
        `per_label` is as it was asked for.

        Raises:
            NoBudgetError: If there is no budget.
            LedgerError: If the ledger can't be read.
        """
        budget = self._account()
        examples = parameters.count(per_label, "per_label")
        place = place_of(key_of(self._asking, self._terms, examples))
        return [
            released_examples(
                Generation(
                    self._asking,
                    self._terms,
                    drafts_of(self._asking, self._terms, examples),
                    budget,
                    stored,
                ).followed()
            )
            for stored in charges(budget.ledger, budget.account)
            if stored.key == place
        ]

    def _account(self) -> PrivacyBudgetHandler:
        budget = self._budget
        if budget is None:
            raise NoBudgetError(
                "No privacy budget: nothing was asked of the model and nothing was "
                "released. Give the generator budget=PrivacyBudgetHandler(...)."
            )
        if budget.scope == "unit":
            raise InvalidParameterError(
                f"Account {budget.account!r} charges units one by one, and a "
                "generation is charged to all of them: its samples are secret. Use an "
                "account with scope='corpus'."
            )
        return budget

    def _order(
        self, records: Hidden[Iterable[Any]], per_label: int, *, resume: bool
    ) -> GenerationRequest:
        return GenerationRequest.read(
            records,
            asking=self._asking,
            terms=self._terms,
            budget=self._account(),
            per_label=per_label,
            resume=resume,
        )
