"""`DPChain`: retrieve into groups, ask each group sealed, release one private answer.

The order of the steps is the guarantee:

1. find the budget, or refuse;
2. the *public* part: embed the question, ask the model the question alone;
3. **charge** the account, durably, or refuse;
4. the *private* part, sealed: draw the groups, ask the model once per group, merge the
   answers by the mechanism;
5. put the release into words: one public call that sees the question and the release.

Whatever fails in 1 to 3 costs nothing and releases nothing. Whatever fails in 4 costs
the charge and releases nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import RunnableConfig, RunnableSerializable, patch_config
from pydantic import ConfigDict, Field, PrivateAttr, SkipValidation
from typing_extensions import override

from langchain_dpicl.budget import PrivacyBudgetHandler, find_budget
from langchain_dpicl.budget.demand import Grant
from langchain_dpicl.chain.prompting import Prompting, Question, read_question
from langchain_dpicl.chain.public_model import PublicModel
from langchain_dpicl.chain.steps import Asked, GroupPrompts, Released, Wording
from langchain_dpicl.exceptions import InvalidParameterError, PublicCallError
from langchain_dpicl.groups import GroupSource
from langchain_dpicl.outcome import Outcome, Status
from langchain_dpicl.parsers import DPOutputParser, PublicInput
from langchain_dpicl.prompts import (
    ABSTAIN_TEXT,
    DOCUMENT_PROMPT,
    DOCUMENT_SEPARATOR,
)
from langchain_dpicl.record import privacy_record
from langchain_dpicl.sealed import SealedModel, arun_sealed, run_sealed
from langchain_dpicl.validation import refusing


class DPChain(RunnableSerializable[str | dict[str, Any], AIMessage]):
    """Answer questions over private records with a proof of (epsilon, delta).

    It takes a question (a string, or a mapping with `question` and what else the prompt
    needs) and returns an `AIMessage`, so that it stands in a chain wherever a chat
    model stands. The answer's `response_metadata["privacy"]` is its public record.

    Args:
        groups: Where the groups of records come from.
        model: A chat or completion model; it sees the private prompts of the groups.
        parser: The mechanism that merges the groups' answers.
        prompt: The group prompt, with `context` and `question`.
        budget: Who pays, unless the run's config names a handler.
        on_failure: What is given where the groups do not agree: the public zero-shot
            answer, labeled so, or a refusal.
        max_group_concurrency: Most group calls of one query in flight at once.
        group_timeout: Seconds after which a group call is given up.

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
        the public number of groups. The model's provider sees the records: use one
        that you trust with them.

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

    groups: SkipValidation[GroupSource] = Field(exclude=True, repr=False)
    """Where the groups of records come from."""

    model: SkipValidation[Any] = Field(exclude=True, repr=False)
    """A chat or completion model, with bound arguments if you like."""

    parser: SkipValidation[DPOutputParser] = Field(exclude=True, repr=False)
    """The mechanism that merges the groups' answers."""

    prompt: SkipValidation[BasePromptTemplate[Any] | None] = Field(
        default=None, exclude=True, repr=False
    )
    """The group prompt, with `context` and `question`; None is the library's."""

    public_prompt: SkipValidation[BasePromptTemplate[Any] | None] = Field(
        default=None, exclude=True, repr=False
    )
    """The zero-shot prompt; None is the library's, or the group prompt with an empty
    context where that is your own."""

    document_prompt: SkipValidation[BasePromptTemplate[str]] = Field(
        default=DOCUMENT_PROMPT, exclude=True, repr=False
    )
    """How one record is written into the context, from its text and metadata."""

    document_separator: str = Field(default=DOCUMENT_SEPARATOR, repr=False)
    """What stands between two records."""

    budget: SkipValidation[PrivacyBudgetHandler | None] = Field(
        default=None, exclude=True, repr=False
    )
    """Who pays, unless the run's config names a handler."""

    on_failure: Literal["fallback", "abstain"] = "fallback"
    """Where the groups do not agree: the public zero-shot answer, or a refusal."""

    max_group_concurrency: int | None = None
    """Most group calls of one query in flight at once; None means all of them."""

    group_timeout: float | None = None
    """Seconds after which a group call is given up and the group abstains; None leaves
    that to the model. Without any, one group's hanging call delays the answer."""

    abstain_text: str = ABSTAIN_TEXT
    """The refusal."""

    pad_calls: bool = True
    """Whether empty groups make a call too (its answer is dropped), so that neither
    the time nor the bill shows how many groups had records."""

    _prompting: Prompting = PrivateAttr()
    _sealed: SealedModel = PrivateAttr()
    _public: PublicModel = PrivateAttr()

    def __init__(self, **kwargs: Any) -> None:
        with refusing(type(self).__name__):
            super().__init__(**kwargs)
        for name, kind in (("groups", GroupSource), ("parser", DPOutputParser)):
            if not isinstance(getattr(self, name), kind):
                raise InvalidParameterError(
                    f"{name} must be a {kind.__name__}, not "
                    f"{type(getattr(self, name)).__name__}."
                )
        # Refuses a parser that can't be used with this source's sampling.
        self.parser.demand(self.groups.sampling_rate)
        self._prompting = Prompting(
            self.prompt,
            self.public_prompt,
            self.document_prompt,
            self.document_separator,
        )
        self._prompting.check(self.groups.metadata_keys)
        self._sealed = SealedModel(
            self.model, self.max_group_concurrency, self.group_timeout
        )
        self._public = PublicModel(self.model)

    @property
    @override
    def InputType(self) -> Any:
        """A question, or a mapping with one."""
        return str | dict[str, Any]

    @property
    @override
    def OutputType(self) -> type[AIMessage]:
        """A message."""
        return AIMessage

    @override
    def invoke(
        self,
        input: str | dict[str, Any],
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """Answer one question; see the class."""
        return self._call_with_config(self._answer, input, config, run_type="chain")

    @override
    async def ainvoke(
        self,
        input: str | dict[str, Any],
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """Answer one question; see the class."""
        return await self._acall_with_config(
            self._aanswer, input, config, run_type="chain"
        )

    @override
    def stream(
        self,
        input: str | dict[str, Any],
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[AIMessage]:
        """Answer one question; the last, public call is streamed."""
        yield from self.transform(iter([input]), config, **kwargs)

    @override
    async def astream(
        self,
        input: str | dict[str, Any],
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[AIMessage]:
        """Answer one question; the last, public call is streamed."""

        async def one() -> AsyncIterator[str | dict[str, Any]]:
            yield input

        async for chunk in self.atransform(one(), config, **kwargs):
            yield chunk

    @override
    def transform(
        self,
        input: Iterator[str | dict[str, Any]],
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[AIMessage]:
        """Stream in a chain: the question is collected, then the answer streams."""
        yield from self._transform_stream_with_config(
            input, self._stream_answer, config, run_type="chain"
        )

    @override
    async def atransform(
        self,
        input: AsyncIterator[str | dict[str, Any]],
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[AIMessage]:
        """Stream in a chain: the question is collected, then the answer streams."""
        async for chunk in self._atransform_stream_with_config(
            input, self._astream_answer, config, run_type="chain"
        ):
            yield chunk

    # -- the steps, sync ---------------------------------------------------------

    def _answer(
        self, value: Any, run_manager: Any, config: RunnableConfig
    ) -> AIMessage:
        child = patch_config(config, callbacks=run_manager.get_child())
        released = self._release(self._ask(value, run_manager, child))
        wording = self._word(released)
        said = (wording.text, wording.status)
        if wording.prompt is not None:
            try:
                said = (
                    self._public.answers(wording.prompt, 1, child)[0],
                    wording.status,
                )
            except PublicCallError:
                said = wording.otherwise
        return self._message(said, released)

    def _stream_answer(
        self, chunks: Iterator[Any], run_manager: Any, config: RunnableConfig
    ) -> Iterator[AIMessage]:
        child = patch_config(config, callbacks=run_manager.get_child())
        released = self._release(self._ask(_collect(chunks), run_manager, child))
        wording = self._word(released)
        last = (wording.text, wording.status)
        if wording.prompt is not None:
            try:
                for piece in self._public.stream(wording.prompt, child):
                    yield AIMessageChunk(content=piece)
            except PublicCallError:
                last = wording.otherwise
        yield self._chunk(last, released)

    def _ask(self, value: Any, run_manager: Any, child: RunnableConfig) -> Asked:
        budget = find_budget(self.budget, run_manager)
        question = read_question(value)
        prompt = self._prompting.public(question)
        embedded = self.groups.prepare(question.text)
        zero_shot = self._public.answers(prompt, self.parser.zero_shot_answers, child)
        prepared = self.parser.prepare(self._public_input(question, zero_shot))
        self._prompting.rewrite(self.parser.rewrite_prompt, question, "")
        return Asked(question, budget, embedded, zero_shot, prepared)

    def _release(self, asked: Asked) -> Released:
        settled = self.parser.settled(asked.prepared)
        if settled is not None:
            return Released(asked, settled, None)
        grant = asked.budget.admit(
            self.parser.demand(self.groups.sampling_rate),
            unit_key=self.groups.unit_key,
            n_units=self.groups.n_units,
        )

        def merge() -> Outcome:
            drawn = self.groups.draw_prepared(asked.embedded)
            asking = self._group_prompts(drawn, asked.question)
            slots = asking.slots(self._sealed.answer(asking.prompts))
            return self.parser.release(slots, **self._terms(asked, grant))

        return Released(asked, run_sealed(merge), grant)

    # -- the same steps, async ---------------------------------------------------

    async def _aanswer(
        self, value: Any, run_manager: Any, config: RunnableConfig
    ) -> AIMessage:
        child = patch_config(config, callbacks=run_manager.get_child())
        released = await self._arelease(await self._aask(value, run_manager, child))
        wording = self._word(released)
        said = (wording.text, wording.status)
        if wording.prompt is not None:
            try:
                answers = await self._public.aanswers(wording.prompt, 1, child)
                said = (answers[0], wording.status)
            except PublicCallError:
                said = wording.otherwise
        return self._message(said, released)

    async def _astream_answer(
        self, chunks: AsyncIterator[Any], run_manager: Any, config: RunnableConfig
    ) -> AsyncIterator[AIMessage]:
        child = patch_config(config, callbacks=run_manager.get_child())
        value = _collect([chunk async for chunk in chunks])
        released = await self._arelease(await self._aask(value, run_manager, child))
        wording = self._word(released)
        last = (wording.text, wording.status)
        if wording.prompt is not None:
            try:
                async for piece in self._public.astream(wording.prompt, child):
                    yield AIMessageChunk(content=piece)
            except PublicCallError:
                last = wording.otherwise
        yield self._chunk(last, released)

    async def _aask(self, value: Any, run_manager: Any, child: RunnableConfig) -> Asked:
        budget = find_budget(self.budget, run_manager)
        question = read_question(value)
        prompt = self._prompting.public(question)
        embedded = await self.groups.aprepare(question.text)
        zero_shot = await self._public.aanswers(
            prompt, self.parser.zero_shot_answers, child
        )
        prepared = await self.parser.aprepare(self._public_input(question, zero_shot))
        self._prompting.rewrite(self.parser.rewrite_prompt, question, "")
        return Asked(question, budget, embedded, zero_shot, prepared)

    async def _arelease(self, asked: Asked) -> Released:
        settled = self.parser.settled(asked.prepared)
        if settled is not None:
            return Released(asked, settled, None)
        grant = await asked.budget.aadmit(
            self.parser.demand(self.groups.sampling_rate),
            unit_key=self.groups.unit_key,
            n_units=self.groups.n_units,
        )

        async def merge() -> Outcome:
            drawn = await self.groups.adraw_prepared(asked.embedded)
            asking = self._group_prompts(drawn, asked.question)
            slots = asking.slots(await self._sealed.aanswer(asking.prompts))
            return await self.parser.arelease(slots, **self._terms(asked, grant))

        return Released(asked, await arun_sealed(merge), grant)

    # -- what both share ---------------------------------------------------------

    def _public_input(
        self, question: Question, zero_shot: tuple[str, ...]
    ) -> PublicInput:
        return PublicInput(
            question=question.text,
            prompt_text=self._prompting.fixed_text(question),
            zero_shot=zero_shot,
        )

    def _group_prompts(
        self, drawn: Sequence[Sequence[Document]], question: Question
    ) -> GroupPrompts:
        pad_to = self.groups.n_groups if self.pad_calls else 0
        return GroupPrompts(drawn, self._prompting, question, pad_to=pad_to)

    def _terms(self, asked: Asked, grant: Grant) -> dict[str, Any]:
        return {
            "grant": grant,
            "relation": self.groups.relation,
            "slot_count": self.groups.n_groups,
            "prepared": asked.prepared,
        }

    def _word(self, released: Released) -> Wording:
        """Decide how a release is put into words; see `Wording`."""
        outcome, asked = released.outcome, released.asked
        if outcome.text is not None:
            return Wording(outcome.status, outcome.text)
        if outcome.keywords:
            words = ", ".join(outcome.keywords)
            prompt = self._prompting.rewrite(
                self.parser.rewrite_prompt, asked.question, words
            )
            # The words are paid for: they must not be lost with the wording.
            return Wording(
                outcome.status,
                text=words if prompt is None else "",
                prompt=prompt,
                otherwise=(words, outcome.status),
            )
        if self.on_failure == "abstain":
            return Wording(Status.ABSTAINED, self.abstain_text)
        if asked.zero_shot:
            return Wording(Status.FALLBACK, asked.zero_shot[0])
        return Wording(
            Status.FALLBACK,
            prompt=self._prompting.public(asked.question),
            otherwise=(self.abstain_text, Status.ABSTAINED),
        )

    def _message(self, said: tuple[str, Status], released: Released) -> AIMessage:
        text, status = said
        return AIMessage(
            content=text, response_metadata=self._metadata(status, released)
        )

    def _chunk(self, said: tuple[str, Status], released: Released) -> AIMessageChunk:
        text, status = said
        return AIMessageChunk(
            content=text,
            response_metadata=self._metadata(status, released),
            chunk_position="last",
        )

    def _metadata(self, status: Status, released: Released) -> dict[str, Any]:
        record = privacy_record(
            status=status,
            parser=self.parser,
            groups=self.groups,
            budget=released.asked.budget,
            outcome=released.outcome,
            grant=released.grant,
        )
        return {"privacy": record}


def _collect(chunks: Iterable[Any]) -> Any:
    """Add up a streamed input; what can't be added replaces what came before."""
    total: Any = None
    for chunk in chunks:
        can_add = isinstance(chunk, str) and isinstance(total, str)
        can_merge = isinstance(chunk, Mapping) and isinstance(total, Mapping)
        if can_add:
            total = total + chunk
        elif can_merge:
            total = {**total, **chunk}
        else:
            total = chunk
    return total
