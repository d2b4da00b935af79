"""`DPChain`: a runnable that answers questions over private records.

A chain is a sequence of four steps, each of which `astream_events` names:

* `read`: the question; who pays; whether its answer is stored already;
* `public`: what the parser wants to know of the question alone;
* `release`: charge, draw the groups, ask them, merge (`question.py`);
* `word`: the release in words, with its record. This step streams.

All that passes from step to step is public. A step is one blocking function; LangChain
awaits it on a thread for questions, where a canceled one goes on to its end.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from weakref import WeakValueDictionary

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import UsageMetadata, add_usage
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import (
    Runnable,
    RunnableConfig,
    RunnableGenerator,
    RunnableLambda,
    RunnableSequence,
    RunnableSerializable,
)
from langchain_core.tools import BaseTool
from pydantic import ConfigDict, Field, PrivateAttr, SkipValidation
from typing_extensions import override

from langchain_dpicl.budget import PrivacyBudgetHandler, check_budget, find_budget
from langchain_dpicl.check import CheckReport, checked
from langchain_dpicl.common.prompts import DOCUMENT_PROMPT, FALLBACK_NOTE
from langchain_dpicl.common.replies import answer_of, usage_of
from langchain_dpicl.errors import (
    BudgetExhaustedError,
    InvalidParameterError,
    LedgerError,
    PublicCallError,
    UnsealableModelError,
)
from langchain_dpicl.groups import GroupSource
from langchain_dpicl.parsers import DPOutputParser
from langchain_dpicl.prompting import (
    Prompting,
    Question,
    filled,
    read_question,
    rewritten,
)
from langchain_dpicl.public import FrozenModel
from langchain_dpicl.question import PrivateQuestion, Release
from langchain_dpicl.release.record import Status
from langchain_dpicl.sealed import SealedModel
from langchain_dpicl.threads import on_question_thread, pieces_of
from langchain_dpicl.wording import Wording, answers, changed, streamed

if TYPE_CHECKING:
    from langchain_core.documents import Document

    from langchain_dpicl.retriever import DPRetriever

T = TypeVar("T")

_INSTEAD = {
    "groups": "Make one with RetrievedGroups.from_vectorstore(store, unit_key=..., "
    "n_groups=...), RetrievedGroups.from_documents(...) or SampledGroups.",
    "parser": "Pass a VoteOutputParser, a KSAPTROutputParser or another private one; a "
    "text parser goes behind the chain: DPChain(...) | StrOutputParser().",
}


class DPChain(FrozenModel, RunnableSerializable[str | dict[str, Any], AIMessage]):
    """Answer questions over private records with a proof of (epsilon, delta).

    It takes a question (a string, or a mapping with `question`, or `input` instead of
    it, what else the prompt needs, and perhaps a `filter`) and returns an `AIMessage`,
    so that it stands in a chain wherever a chat model stands. The answer's
    `response_metadata["privacy"]` is its public record, and its `usage_metadata` the
    tokens of the public calls. A chain can't be changed; `model_copy(update={...})`
    makes another one.

    Raises:
        InvalidParameterError: If the parts do not fit together.
        UnsealableModelError: If the model can't be called without leaking.
        NoBudgetError: When asked without a budget.
        BudgetExhaustedError: When the account can't pay.
        LedgerError: When the ledger can't be used.
        PublicCallError: When the model fails on the question alone (nothing charged).
        GroupCallError: When the sealed region fails as a whole (charged).

    Privacy:
        The guarantee is the account's (epsilon, delta) for the group source's unit and
        neighboring relation, over all answers of the account, whatever is asked. One
        unit reaches one slot; a slot holds one answer or abstains; the parser's
        mechanism bounds what one slot can do. The number of group calls is padded to
        the public number of groups. The model's provider sees the records: use one that
        you trust with them.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_dpicl import PrivacyBudgetHandler, RetrievedGroups
        >>> from langchain_dpicl import VoteOutputParser
        >>> from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel
        >>> notes = [
        ...     Document("Lisinopril gave a dry cough.", metadata={"patient": str(i)})
        ...     for i in range(400)
        ... ]
        >>> chain = DPChain(
        ...     groups=RetrievedGroups.from_documents(
        ...         notes, HashingEmbeddings(), unit_key="patient", n_groups=60
        ...     ),
        ...     model=OfflineChatModel(),
        ...     parser=VoteOutputParser(labels=["cough", "rash"]),
        ... )
        >>> budget = PrivacyBudgetHandler(
        ...     epsilon=8, delta=1e-6, queries=5, ledger=":memory:"
        ... )
        >>> answer = chain.invoke(
        ...     "What does lisinopril give?", config={"callbacks": [budget]}
        ... )
        >>> answer.content
        'cough'
        >>> answer.response_metadata["privacy"]["status"]
        'released'
    """

    model_config = ConfigDict(
        arbitrary_types_allowed=True, extra="forbid", hide_input_in_errors=True
    )

    groups: SkipValidation[GroupSource] = Field(exclude=True)
    """Where the groups of records come from."""

    model: SkipValidation[Any] = Field(exclude=True)
    """A chat or completion model, with bound arguments if you like."""

    parser: SkipValidation[DPOutputParser] = Field(exclude=True)
    """The mechanism that merges the groups' answers."""

    budget: SkipValidation[PrivacyBudgetHandler | None] = Field(
        default=None, exclude=True, repr=False
    )
    """The account that pays, unless the run's config names a handler."""

    prompt: SkipValidation[BasePromptTemplate[Any] | None] = Field(
        default=None, exclude=True, repr=False
    )
    """The group prompt, with `context` and `question`; None is the library's. The
    question alone is asked with an empty context."""

    document_prompt: SkipValidation[BasePromptTemplate[Any]] = Field(
        default=DOCUMENT_PROMPT, exclude=True, repr=False
    )
    """How one record is written into the prompt, from its text and metadata."""

    fallback: Literal["refuse", "model"] = "refuse"
    """Where nothing is released: a refusal that says why, or ("fallback") the model's
    own answer. The text of such an answer begins with "From general knowledge, not from
    the records:"."""

    cache: bool = True
    """Whether a question that the account has paid for is answered again from the
    ledger, at no charge (status `cached`). The stored answer does not know of records
    that came or went since, and the account must be for this corpus only. A question
    with a variable that can't be told from others, such as a function, is charged each
    time."""

    max_concurrency: int | None = None
    """Most group calls in flight at once, over all questions at a time. None means 32,
    or one where a completion model seems to compute in this process."""

    filter_keys: tuple[str, ...] = ()
    """Metadata keys that a question may filter by: `chain.invoke({"question": ...,
    "filter": {"ward": "3"}})` asks only the records of ward 3. See `GroupSource.where`
    for a filter that holds for every question. What a caller may see is not decided
    here: it is access control, and yours."""

    _prompting: Prompting = PrivateAttr()
    _sealed: SealedModel = PrivateAttr()

    @override
    def _derive(self) -> None:
        """Refuse parts that do not fit together; make what follows from them."""
        for name, kind in (("groups", GroupSource), ("parser", DPOutputParser)):
            if not isinstance(getattr(self, name), kind):
                raise InvalidParameterError(
                    f"{name} must be a {kind.__name__}, not "
                    f"{type(getattr(self, name)).__name__}. {_INSTEAD[name]}"
                )
        check_budget(self.budget)
        # Refuses a parser that can't be used with this source's sampling.
        self.parser.charge(self.groups.sampling_rate)
        self._prompting = Prompting(self.prompt, self.document_prompt)
        known = self.groups.metadata_keys
        self._prompting.check(known, drafts=self.parser.draft_prompt is not None)
        unknown = sorted(set(self.filter_keys) - known) if known is not None else []
        if unknown:
            raise InvalidParameterError(
                "filter_keys names metadata that no record has: "
                f"{', '.join(unknown)}. Nobody would ever match."
            )
        own = self.groups.description.get("filter", {})
        if others := [key for key in self.filter_keys if key not in own]:
            self.groups.where(dict.fromkeys(others, "any"))
        self._sealed = _sealed_model(self.model, self.max_concurrency)
        self.parser.check_model(self._sealed)

    @override
    def invoke(
        self,
        input: str | dict[str, Any],
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """Answer one question; see the class."""
        return self._steps(kwargs).invoke(input, config)

    @override
    async def ainvoke(
        self,
        input: str | dict[str, Any],
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """Answer one question; see the class."""
        return await self._steps(kwargs).ainvoke(input, config)

    @override
    def stream(
        self,
        input: str | dict[str, Any],
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[AIMessage]:
        """Answer one question; the last, public call is streamed.

        The last chunk carries the record. Only `KSA` parsers and a fallback to the
        model have such a call; other answers are one chunk.
        """
        yield from self._steps(kwargs, streams=True).stream(input, config)

    @override
    async def astream(
        self,
        input: str | dict[str, Any],
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[AIMessage]:
        """Answer one question; the last, public call is streamed; see `stream`."""
        async for chunk in self._steps(kwargs, streams=True).astream(input, config):
            yield chunk

    @override
    def as_tool(
        self,
        args_schema: Any = None,
        *,
        name: str | None = None,
        description: str | None = None,
        arg_types: Any = None,
    ) -> BaseTool:
        """Return the chain as a tool; see `create_dp_tool`.

        Args:
            args_schema: Must be left out: the arguments follow from the prompts.
            name: The tool's name, for the model.
            description: What the records are about, and when to ask.
            arg_types: Must be left out, as `args_schema`.
        """
        from langchain_dpicl.tools import create_dp_tool

        if args_schema is not None or arg_types is not None:
            raise InvalidParameterError(
                "A chain's arguments as a tool follow from its prompts: leave "
                "args_schema and arg_types out."
            )
        return create_dp_tool(self, name=name or "", description=description or "")

    def as_retriever(self, *, k: int = 1) -> DPRetriever:
        """Return the chain as a retriever of what it releases; see `DPRetriever`."""
        from langchain_dpicl.retriever import DPRetriever

        return DPRetriever(chain=self, k=k)

    def check(
        self, question: str | dict[str, Any], record: str | Document | None = None
    ) -> CheckReport:
        """Try the chain out on one public record, free of charge.

        It makes the public calls of a question, and one as a group is asked.

        Args:
            question: The question, as `invoke` takes it.
            record: A public record; None: one that the library makes up. Never a
                private one: what the model says of it, and its errors, are shown.

        Privacy:
            Nothing private takes part: nothing is drawn of the group source, and only
            its public parameters are read. Nothing is charged or written.
        """
        asked = self._private(read_question(question))
        return checked(asked, self.model, self._alone, self.budget, record)

    # -- the four steps ----------------------------------------------------------------

    def _steps(
        self, extra: dict[str, Any], *, streams: bool = False
    ) -> Runnable[Any, AIMessage]:
        """Return the chain's steps; refuse arguments beside the input.

        They are made when they are used: a copy of the chain has its own.
        """
        for name, value in extra.items():
            if value is not None:  # A filter that is ignored is no filter.
                raise InvalidParameterError(
                    f"A question takes no argument {name!r}. A filter and the prompt's "
                    "variables stand in the input: chain.invoke({'question': ..., "
                    "'filter': ...}). model_copy(update={...}) changes the chain's "
                    "parts."
                )
        word: Runnable[Any, Any] = _step("word", self._word)
        if streams:
            spoken: Any = self._spoken
            word = RunnableGenerator(spoken, self._aspoken, name="word")  # type: ignore[arg-type]  # it may take a config
        return RunnableSequence(
            _step("read", self._read),
            _step("public", self._ask_alone),
            _step("release", self._release),
            word,
            name=self.get_name(),
        )

    def _read(self, value: Any, config: RunnableConfig) -> Asked:
        """Read the question; look for its answer, and wait where it is being drawn."""
        question = read_question(value)
        budget = find_budget(self.budget, config.get("callbacks"))
        private = self._private(question)
        key = private.key() if self.cache else None
        purchase = private.purchase(budget, key)
        paid = purchase.found()
        parser = self.parser
        asks = parser.draft_prompt is not None or parser.reads_figures
        asks = asks or parser.zero_shot_answers > 0 or not self._sealed.is_probed
        if paid is None and asks:
            try:
                budget.require_payable(private.charge)
            except BudgetExhaustedError:
                # Another asking of the same may have spent the account.
                paid = purchase.found()
                if paid is None:
                    raise
        release = None if paid is None else private.again(paid)
        return Asked(question, budget, key, release=release)

    def _ask_alone(self, asked: Asked, config: RunnableConfig) -> Asked:
        """Ask the model what the parser wants to know of the question alone."""
        if asked.release is not None:
            return asked
        zero_shot, draft = self._alone(asked.question, config)
        for reply in (*zero_shot, *draft):
            asked = asked.read(reply)
        return replace(
            asked,
            zero_shot=tuple(map(answer_of, zero_shot)),
            draft="".join(map(answer_of, draft)),
            calls=len(zero_shot) + len(draft),
        )

    def _release(self, asked: Asked, config: RunnableConfig) -> Asked:  # noqa: ARG002 - a step's
        """Charge, draw, ask, merge; see `question.py`."""
        if asked.release is not None:
            return asked
        private = self._private(asked.question)
        private = private.prepare(asked.zero_shot, asked.draft)
        release, calls = private.decided(), asked.calls
        if release is None:
            # A wrong key or URL must cost nothing.
            if self.parser.reads_figures:
                private = private.asked_alone()
                calls += 1
            elif not calls and not self._sealed.is_probed:
                self._sealed.probe(self._prompting.public(asked.question))
                calls += 1
            paid = private.purchase(asked.budget, asked.key).bought()
            if paid.is_again:
                release = private.again(paid)
            else:
                release = private.release(paid)
                # What is released of a text says how many calls it took.
                made = release.outcome.details.get("calls", private.group_calls)
                calls += made
        return replace(asked, release=release, calls=calls)

    def _word(self, asked: Asked, config: RunnableConfig) -> AIMessage:
        """Put the release into words."""
        wording, said = self._wording(asked), ""
        if wording.prompt is not None:
            asked = replace(asked, calls=asked.calls + 1)
            # What was paid for is answered, whatever the model does now.
            with suppress(PublicCallError, UnsealableModelError):
                (reply,) = answers(self.model, wording.prompt, config, self._sealed)
                asked, said = asked.read(reply), wording.led(answer_of(reply))
        text, status = wording.settled(said)
        self._keep(asked, wording, said)
        return AIMessage(
            content=text,
            response_metadata={"privacy": asked.record(status)},
            usage_metadata=asked.usage,
        )

    def _spoken(
        self, steps: Iterator[Asked], config: RunnableConfig
    ) -> Iterator[AIMessage]:
        for asked in steps:
            yield from self._pieces(asked, config)

    async def _aspoken(
        self, steps: AsyncIterator[Asked], config: RunnableConfig
    ) -> AsyncIterator[AIMessage]:
        async for asked in steps:
            async for piece in pieces_of(partial(self._pieces, asked, config)):
                yield piece

    def _pieces(self, asked: Asked, config: RunnableConfig) -> Iterator[AIMessage]:
        """Put the release into words, piece by piece; the last one has the record."""
        wording, said, has_failed = self._wording(asked), "", False
        if wording.prompt is not None:
            asked = replace(asked, calls=asked.calls + 1)
            try:
                stream = streamed(self.model, wording.prompt, config, self._sealed)
                for text, piece in stream:
                    asked = asked.read(piece)
                    if text:
                        led = text if said.strip() else wording.led(text)
                        said += led
                        yield AIMessageChunk(content=led)
            except (PublicCallError, UnsealableModelError):
                has_failed = True
        text, status = wording.settled("" if has_failed else said)
        rest = text if not said.strip() else "" if text == said else f"\n{text}"
        self._keep(asked, wording, "" if has_failed else said)
        yield AIMessageChunk(
            content=rest,
            response_metadata={"privacy": asked.record(status)},
            usage_metadata=asked.usage,
            chunk_position="last",
        )

    # -- their parts -------------------------------------------------------------------

    def _private(self, question: Question) -> PrivateQuestion:
        """Return the question with the private parts that it is put to.

        Privacy:
            The filter is public, as the question is; see `groups.filtering`.
        """
        groups = self.groups
        if question.only is not None:
            for key in question.only.description():
                if key not in self.filter_keys:
                    raise InvalidParameterError(
                        f"This chain lets no question filter by {key!r}: its "
                        f"filter_keys= are {list(self.filter_keys)}. Make the chain "
                        f"with filter_keys=[{key!r}]."
                    )
            groups = groups.where(question.only)
        return PrivateQuestion(
            question, groups, self.parser, self._prompting, self._sealed
        )

    def _alone(
        self, question: Question, config: RunnableConfig | None = None
    ) -> tuple[list[Any], list[Any]]:
        """Return the model's answers to the question alone, and its draft.

        What it says here is not yet the chain's answer: no token is streamed.
        """
        parser, model = self.parser, changed(self.model, disable_streaming=True)
        zero_shot, draft = list[Any](), list[Any]()
        if count := parser.zero_shot_answers:
            if count > 1:  # They must differ from each other.
                model = changed(model, cache=False, temperature=1.0)
            prompt = self._prompting.public(question)
            zero_shot = answers(model, prompt, config, self._sealed, count)
        if parser.draft_prompt is not None:
            prompt = filled(parser.draft_prompt, question)
            draft = answers(model, prompt, config, self._sealed)
        return zero_shot, draft

    def _wording(self, asked: Asked) -> Wording:
        """Decide how a release is put into words."""
        release = asked.released
        outcome, paid = release.outcome, release.paid
        if paid is not None and paid.note is not None:
            return Wording(paid.note, outcome.status)
        if outcome.status is not Status.FALLBACK and outcome.text is not None:
            return Wording(outcome.text, outcome.status)
        if outcome.status is not Status.FALLBACK and outcome.keywords:
            words, status = ", ".join(outcome.keywords), outcome.status
            prompt = rewritten(self.parser.rewrite_prompt, asked.question, words)
            # The words are paid for: they must not be lost with the wording.
            kept = (asked.question.text, outcome.keywords)
            return Wording(words, status, prompt, status, kept=kept)
        refusal = Wording(outcome.refusal(), Status.ABSTAINED)
        if self.fallback == "refuse":
            return refusal
        if known := ([outcome.text] if outcome.text is not None else asked.zero_shot):
            return Wording(f"{FALLBACK_NOTE} {known[0]}", Status.FALLBACK)
        public = self._prompting.public(asked.question)
        return replace(
            refusal, prompt=public, taken=Status.FALLBACK, note=FALLBACK_NOTE
        )

    def _keep(self, asked: Asked, wording: Wording, said: str) -> None:
        """Store how a release was worded, if it can be."""
        paid = asked.released.paid
        is_worded = wording.takes(said) and wording.taken is Status.RELEASED
        if paid is not None and asked.key is not None and is_worded:
            with suppress(LedgerError):
                paid.keep_note(said)


@dataclass(frozen=True)
class Asked:
    """What passes from step to step of a chain. All of it is public.

    Attributes:
        question: The question.
        budget: The account that pays.
        key: What its answer is stored under; None: it is not stored.
        zero_shot: The model's answers to the question alone.
        draft: The possible answers, as the model listed them.
        calls: Calls so far: public ones, and one for each group.
        usage: Tokens of the public calls, as far as the model tells them. Those of
            group calls are private, and never in here.
        release: What came of it.
    """

    question: Question
    budget: PrivacyBudgetHandler
    key: str | None = field(default=None, repr=False)
    zero_shot: tuple[str, ...] = ()
    draft: str = ""
    calls: int = 0
    usage: UsageMetadata | None = None
    release: Release | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> Asked:
        return self  # Tracers copy what passes; accounts exist once.

    def read(self, piece: Any) -> Asked:
        """Return the same with the tokens of a reply, or of a piece of one."""
        usage = usage_of(piece)
        if usage is None:
            return self
        return replace(self, usage=add_usage(self.usage, usage))

    @property
    def released(self) -> Release:
        """What came of it."""
        if self.release is None:
            raise TypeError("The question has no release yet.")
        return self.release

    def record(self, status: Status) -> dict[str, Any]:
        """Return the answer's public record."""
        return {**self.released.record(status, self.budget), "calls": self.calls}


_sealed_models: WeakValueDictionary[tuple[int, int | None], SealedModel] = (
    WeakValueDictionary()
)


def _sealed_model(model: Any, most: int | None) -> SealedModel:
    """Return a model for the groups: copies of a chain share its limit of calls."""
    found = _sealed_models.get((id(model), most))
    if found is None:
        found = SealedModel(model, most)  # It keeps the model: no other has its id.
        _sealed_models[id(model), most] = found
    return found


def _step(name: str, function: Callable[..., T]) -> RunnableLambda[Any, T]:
    """Return a step of a blocking function, which is awaited on a thread of its own."""

    async def afunction(value: Any, config: RunnableConfig) -> T:
        return await on_question_thread(partial(function, value, config))

    return RunnableLambda(function, afunction, name=name)


def prepared_question(chain: DPChain, value: Any) -> PrivateQuestion:
    """Return a question after the public steps, out of callbacks' sight: for audits."""
    asked = chain._private(read_question(value))  # noqa: SLF001 - a part of the chain
    zero_shot, draft = chain._alone(asked.question)  # noqa: SLF001 - a part of the chain
    told = tuple(map(answer_of, zero_shot))
    return asked.prepare(told, "".join(map(answer_of, draft))).asked_alone()
