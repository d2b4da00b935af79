"""What every private output parser shares: pay, merge in the sealed region, release.

A parser is used in two ways. Inside a `DPChain` the chain charges the account and calls
`release`. Alone, as a LangChain output parser, it charges the account itself: then the
caller vouches that no person's records reached more than one of the candidates.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from langchain_core.messages import BaseMessage
from langchain_core.output_parsers import BaseGenerationOutputParser
from langchain_core.outputs import ChatGeneration, Generation
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import RunnableConfig
from pydantic import ConfigDict, Field, SkipValidation, model_validator
from typing_extensions import Self, override

from langchain_dpicl.accounting import Charge
from langchain_dpicl.budget import (
    Paid,
    PrivacyBudgetHandler,
    check_budget,
    find_budget,
)
from langchain_dpicl.common.hidden import Hidden, hiding
from langchain_dpicl.common.parameters import MAX_INTEGER
from langchain_dpicl.common.progress import Advance, no_progress
from langchain_dpicl.common.prompts import SENTENCE_INSTRUCTIONS
from langchain_dpicl.common.replies import Slot, answered
from langchain_dpicl.common.units import Relation
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.parsers.reading import declines
from langchain_dpicl.public import FrozenModel
from langchain_dpicl.release.record import Outcome
from langchain_dpicl.sealed import SealedModel, sealed
from langchain_dpicl.threads import on_question_thread

Count = Annotated[int, Field(strict=True, ge=1, le=MAX_INTEGER)]
"""A public number of things, one at least."""

Reading = Literal["answer", "loose", "nothing", "unreadable"]
"""How a parser reads a reply: an answer in the requested form, another answer that
counts, "I don't know", or something else."""


@dataclass(frozen=True)
class PublicInput:
    """What is public about a query before any record is read.

    Attributes:
        question: The question.
        prompt_text: The fixed words of the prompts, with the question filled in.
        zero_shot: The model's answers to the question alone.
        draft: Its reply to `draft_prompt`: the possible answers.
    """

    question: str = ""
    prompt_text: str = ""
    zero_shot: tuple[str, ...] = field(default=())
    draft: str = ""


class DPOutputParser(FrozenModel, BaseGenerationOutputParser[str]):
    """Base of the private output parsers: many candidates in, one answer out.

    Privacy:
        `release` is the only place where a slot's text is read. It runs in the sealed
        region, draws the noise that a `Paid` states, which exists only after the
        charge is durable, and returns an `Outcome`, all of which may be shown.
    """

    model_config = ConfigDict(
        arbitrary_types_allowed=True, extra="forbid", hide_input_in_errors=True
    )

    relation: Relation = Relation.REPLACE
    """Stand-alone use: how neighboring inputs differ. A chain asks its groups."""

    slot_count: Count | None = None
    """Stand-alone use: the public number of groups. Under `REPLACE` it is by default
    the number of candidates, which is public there; under `ADD_REMOVE` that number is
    private."""

    budget: SkipValidation[PrivacyBudgetHandler | None] = Field(
        default=None, exclude=True, repr=False
    )
    """Stand-alone use: the account, unless the run's config names a handler."""

    abstain_text: str | None = None
    """Stand-alone use: the output when the mechanism releases nothing; None: one
    sentence that says why."""

    @model_validator(mode="after")
    def _can_pay(self) -> Self:
        """Refuse what no account can pay, before anything is asked."""
        check_budget(self.budget)
        self.charge()
        return self

    @abstractmethod
    def charge(self, sampling_rate: float = 1.0) -> Charge:
        """Return what one release costs; the account sets what is left open.

        Args:
            sampling_rate: Poisson sampling rate of units; 1 without sampling.

        Raises:
            InvalidParameterError: If the parser can't be used with sampling.
        """

    @property
    def zero_shot_answers(self) -> int:
        """How many public answers to the question alone the parser wants."""
        return 0

    @property
    def draft_prompt(self) -> BasePromptTemplate[Any] | None:
        """The prompt that asks for the possible answers, with `question`, if any."""
        return None

    def get_format_instructions(self) -> str:
        """Return how a group should answer.

        The default group prompt contains it. Your own does if it has
        `{format_instructions}`. It is public, and the same for every group.
        """
        return SENTENCE_INSTRUCTIONS

    def instructions(self, prepared: Any) -> str:  # noqa: ARG002 - overridden
        """Return how a group should answer one question; see `prepare`."""
        return self.get_format_instructions()

    @property
    def reads_figures(self) -> bool:
        """Whether the model is asked for figures, and not for a text."""
        return False

    def check_model(self, model: SealedModel) -> None:
        """Refuse a model that can't be asked as `ask` does; a chain does it when made.

        Raises:
            InvalidParameterError: If it lacks what is asked of it.
        """

    @property
    def calibration_texts(self) -> tuple[str, ...]:
        """Public texts that each group is asked about besides, one more call each."""
        return ()

    @property
    def calls_per_group(self) -> int:
        """How many calls one group takes, at most."""
        return 1 + len(self.calibration_texts)

    def ask_alone(
        self,
        model: SealedModel,  # noqa: ARG002 - overridden
        prompt: PromptValue,  # noqa: ARG002 - overridden
        prepared: Any,
    ) -> Any:
        """Ask once without records, where figures are read; runs before the charge.

        Args:
            model: The model; this call is public.
            prompt: What a group without records is asked.
            prepared: What `prepare` returned.

        Returns:
            What `ask` and `release` need, in place of `prepared`.
        """
        return prepared

    def ask(
        self,
        model: SealedModel,
        prompts: Sequence[Sequence[PromptValue]],
        prepared: Any,  # noqa: ARG002 - overridden
        done: Advance = no_progress,
    ) -> list[Slot]:
        """Have the groups answer, in the sealed region: by default one text each.

        Args:
            model: The model, behind the wall.
            prompts: For each group, empty ones among them, the prompt of the question
                and one of each calibration text.
            prepared: What `prepare`, and then `ask_alone`, returned.
            done: Is told how many more groups have been asked.

        Returns:
            One slot for each group, in their order; each by its own prompts alone.
        """
        return model.ask([prompt for prompt, *_ in prompts], done)

    def reads(self, reply: str, prepared: Any) -> Reading:  # noqa: ARG002 - overridden
        """Return how one reply is read: for `DPChain.check`, on made-up records.

        Args:
            reply: The reply.
            prepared: What `prepare` returned.
        """
        return "nothing" if declines(reply) else "answer"

    @property
    def rewrite_prompt(self) -> BasePromptTemplate[Any] | None:
        """The prompt that puts released keywords into a sentence, if any."""
        return None

    def prepare(self, public: PublicInput) -> Any:
        """Do the public part of the work; runs before the charge.

        Args:
            public: What is public about the query.

        Returns:
            Whatever `release` needs of it.

        Raises:
            InvalidParameterError: If the public input can't be used.
        """
        return public

    def public_outcome(self, prepared: Any) -> Outcome | None:  # noqa: ARG002 - overridden
        """Return the outcome if public input alone decides it, so nobody pays."""
        return None

    @abstractmethod
    def release(
        self,
        slots: Sequence[Slot],
        *,
        paid: Paid,
        relation: Relation,
        slot_count: int,
        prepared: Any,
    ) -> Outcome:
        """Merge the slots by the mechanism. Private in, differentially private out.

        Args:
            slots: One per group, in any order.
            paid: The charge, with the events that the mechanism takes.
            relation: How neighboring slots differ.
            slot_count: The public number of groups.
            prepared: What `prepare` returned.
        """

    @abstractmethod
    def public_parameters(self) -> dict[str, Any]:
        """Return the parameters for an answer's public record."""

    def cache_parameters(self, question: str) -> dict[str, Any]:  # noqa: ARG002 - overridden
        """Return every public parameter that an answer depends on, JSON-able.

        Raises:
            InvalidParameterError: If one cannot be compared, such as a function.
        """
        kind = f"{type(self).__module__}.{type(self).__qualname__}"
        return {
            "parser": kind,
            "instructions": self.get_format_instructions(),
            **self.public_parameters(),
            "charge": self.charge().model_dump(mode="json"),
        }

    @property
    @override
    def InputType(self) -> Any:
        """Many candidate answers."""
        return list[str] | list[BaseMessage]

    @property
    @override
    def OutputType(self) -> type[str]:
        """One answer."""
        return str

    @override
    @hiding
    def parse_result(self, result: list[Generation], *, partial: bool = False) -> str:
        """Charge one release and merge many candidates into one answer.

        Args:
            result: The candidates. No unit may have reached more than one of them.
            partial: Unused: a release has no partial results.

        Returns:
            The answer; for keyword parsers the words, separated by commas; if the
            mechanism releases nothing, a refusal, see `abstain_text`.

        Raises:
            NoBudgetError: If the parser has no `budget=`.
            BudgetExhaustedError: If the account can't pay.
        """
        return self._parse(Hidden(result))

    @override
    @hiding
    async def aparse_result(
        self, result: list[Generation], *, partial: bool = False
    ) -> str:
        """Charge one release and merge many candidates; see `parse_result`."""
        hidden = Hidden(result)
        del result
        return await on_question_thread(lambda: self._parse(hidden))

    @override
    @hiding
    def invoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> str:
        """Merge a list of candidates; only their number is traced.

        Args:
            input: Strings, messages or generations; a single one is a list of one.
            config: May carry the budget handler in its callbacks.
            **kwargs: Unused.
        """
        generations = Hidden(self._read(input))
        del input  # Callbacks receive an error while this frame stands.

        def parse(_count: object, run_manager: Any) -> str:
            return self._parse(generations, run_manager)

        count = self._public_count(generations)
        traced = "candidates" if count is None else f"{count} candidates"
        return self._call_with_config(parse, traced, config, run_type="parser")

    @override
    @hiding
    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **kwargs: Any
    ) -> str:
        """Merge a list of candidates; see `invoke`."""
        hidden = Hidden(input)
        del input
        return await on_question_thread(lambda: self.invoke(hidden.value, config))

    def _read(self, value: Any) -> list[Generation]:
        candidates = value if isinstance(value, list | tuple) else [value]
        if not candidates and self.relation is Relation.REPLACE:
            raise InvalidParameterError(
                "There is no candidate to merge. Pass a list with one answer per group."
            )
        return [_generation(candidate) for candidate in candidates]

    def _public_count(self, result: Hidden[list[Generation]]) -> int | None:
        if self.relation is Relation.REPLACE:
            return len(result.value)
        return self.slot_count

    def _parse(self, result: Hidden[list[Generation]], callbacks: Any = None) -> str:
        budget = find_budget(self.budget, callbacks)
        prepared = self.prepare(PublicInput())
        with budget.buy(self.charge()) as paid:

            def merge() -> Outcome:
                outcome = self.release(
                    [answered(candidate.text) for candidate in result.value],
                    paid=paid,
                    relation=self.relation,
                    slot_count=self._public_count(result) or 1,
                    prepared=prepared,
                )
                return Outcome.from_dict(paid.once(outcome.to_dict))

            outcome = sealed(merge)
        said = outcome.text or ", ".join(outcome.keywords)
        return said or outcome.refusal(self.abstain_text)


def _generation(candidate: Any) -> Generation:
    if isinstance(candidate, Generation):
        return candidate
    if isinstance(candidate, BaseMessage):
        return ChatGeneration(message=candidate)
    if isinstance(candidate, str):
        return Generation(text=candidate)
    raise InvalidParameterError(
        "A candidate must be a string, a message or a generation, not "
        f"{type(candidate).__name__}."
    )


def named(thing: object) -> list[str]:
    """Return a model's class and name, to tell it from others in a cache key."""
    name = getattr(thing, "model_name", None) or getattr(thing, "model", None)
    kind = type(thing)
    return [
        f"{kind.__module__}.{kind.__qualname__}",
        name if isinstance(name, str) else "",
    ]
