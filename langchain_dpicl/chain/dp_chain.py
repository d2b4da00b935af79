"""`DPChain`: a runnable that answers questions over private records.

What it does, step by step, stands in `query.py`; this file is its face to LangChain.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.messages import AIMessage
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import RunnableConfig, RunnableSerializable
from pydantic import ConfigDict, Field, PrivateAttr, SkipValidation
from typing_extensions import override

from langchain_dpicl.budget import PrivacyBudgetHandler, check_budget
from langchain_dpicl.chain.prompting import Prompting
from langchain_dpicl.chain.public_model import PublicModel
from langchain_dpicl.chain.query import QueryRunner, check_filter_keys
from langchain_dpicl.chain.sealed_query import SealedQuery
from langchain_dpicl.chain.trying import TriedOut
from langchain_dpicl.common.frozen import FrozenModel
from langchain_dpicl.common.progress import GroupProgress
from langchain_dpicl.common.prompts import (
    DOCUMENT_PROMPT,
    DOCUMENT_SEPARATOR,
)
from langchain_dpicl.common.validation import construct
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.groups import GroupSource
from langchain_dpicl.parsers import DPOutputParser, VoteOutputParser
from langchain_dpicl.sealed import SealedModel

_INSTEAD = {
    "groups": "Make one with RetrievedGroups.from_vectorstore(store, unit_key=..., "
    "n_groups=...), RetrievedGroups.from_documents(...) or SampledGroups.",
    "parser": "Pass a VoteOutputParser, a KSAPTROutputParser or another private one; a "
    "text parser goes behind the chain: DPChain(...) | StrOutputParser().",
}


class DPChain(
    TriedOut, FrozenModel, RunnableSerializable[str | dict[str, Any], AIMessage]
):
    """Answer questions over private records with a proof of (epsilon, delta).

    It takes a question (a string, or a mapping with `question`, or `input` instead of
    it, what else the prompt needs, and perhaps a `filter`) and returns an `AIMessage`,
    so that it stands in a chain wherever a chat model stands. The answer's
    `response_metadata["privacy"]` is its public record, and its `usage_metadata` the
    tokens of the public calls. A chain can't be changed; `model_copy(update={...})`
    makes another one.

    Args:
        groups: Where the groups of records come from.
        model: A chat or completion model; it sees the private prompts of the groups.
        parser: The mechanism that merges the groups' answers.
        prompt: The group prompt, with `context` or `MessagesPlaceholder("records")`,
            and `question`.
        budget: Who pays, unless the run's config names a handler.
        fallback: What is given where nothing is released: a refusal that says why,
            or the model's own answer, labeled so.
        max_concurrency: Most group calls in flight at once, over all questions at
            a time; None: 32, or one where the model seems to compute in this process.
        cache: Whether a question that was paid for is answered again at no charge.
        filter_keys: What a question's `filter` may say about who takes part.

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

    prompt: SkipValidation[BasePromptTemplate[Any] | None] = Field(
        default=None, exclude=True, repr=False
    )
    """The group prompt, with `context` and `question`; None is the library's. Where
    `document_prompt` writes messages, `MessagesPlaceholder("records")` takes them in
    place of `context`."""

    public_prompt: SkipValidation[BasePromptTemplate[Any] | None] = Field(
        default=None, exclude=True, repr=False
    )
    """The zero-shot prompt; None is the library's, or the group prompt with an empty
    context where that is your own."""

    document_prompt: SkipValidation[BasePromptTemplate[Any]] = Field(
        default=DOCUMENT_PROMPT, exclude=True, repr=False
    )
    """How one record is written into the prompt, from its text and metadata: as a text,
    or by a `ChatPromptTemplate` as messages, such as a human and an AI turn."""

    document_separator: str = Field(default=DOCUMENT_SEPARATOR, repr=False)
    """What stands between two records."""

    budget: SkipValidation[PrivacyBudgetHandler | None] = Field(
        default=None, exclude=True, repr=False
    )
    """Who pays, unless the run's config names a handler."""

    fallback: Literal["refuse", "model"] = "refuse"
    """Where nothing is released: a refusal, or ("fallback") the model's own answer. The
    text of such an answer begins with "From general knowledge, not from the
    records:"."""

    max_concurrency: int | None = None
    """Most group calls in flight at once, over all questions at a time. None means 32,
    or one where a completion model seems to compute in this process (it takes lists and
    has no asynchronous call)."""

    abstain_text: str | None = None
    """The refusal; None: one sentence that says why, as `details["reason"]` of the
    record does."""

    pad_calls: bool = True
    """Whether empty groups make a call too (its answer is dropped), so that neither
    the time nor the bill shows how many groups had records."""

    cache: bool | None = None
    """Whether a question that the account has paid for is answered again from the
    ledger, at no charge (status `cached`). The stored answer does not know of records
    that came or went since, and the account must be for this corpus only."""

    progress: bool = False
    """Whether to draw a progress bar of the group calls on standard error: for your own
    terminal, not for a service."""

    max_question_chars: int | None = Field(default=20_000, ge=1)
    """Most characters of an input that is charged for: of the question, its filter and
    the prompt's other variables together; None: any number. What is too long for the
    model would fail in every group, and be paid for."""

    filter_keys: tuple[str, ...] = ()
    """Metadata keys that a question may filter people by: `chain.invoke({"question":
    ..., "filter": {"ward": "3"}})` asks only about those all of whose records are of
    ward 3. See `GroupSource.where` for a filter that holds for every question. What a
    caller may see is not decided here: it is access control, and yours."""

    _query: QueryRunner = PrivateAttr()

    if not TYPE_CHECKING:  # A type checker makes a constructor of the fields above.

        def __init__(self, **kwargs: Any) -> None:
            construct(type(self).__name__, partial(super().__init__, **kwargs))
            self._prepare()

    def _prepare(self) -> None:
        """Refuse parts that do not fit together, and put the others together."""
        for name, kind in (("groups", GroupSource), ("parser", DPOutputParser)):
            if not isinstance(getattr(self, name), kind):
                raise InvalidParameterError(
                    f"{name} must be a {kind.__name__}, not "
                    f"{type(getattr(self, name)).__name__}. {_INSTEAD[name]}"
                )
        check_budget(self.budget)
        # Refuses a parser that can't be used with this source's sampling.
        self.parser.charge(self.groups.sampling_rate)
        prompting = Prompting(
            self.prompt,
            self.public_prompt,
            self.document_prompt,
            self.document_separator,
        )
        drafts = self.parser.draft_prompt is not None
        labels: tuple[str, ...] = ()
        if isinstance(self.parser, VoteOutputParser) and not drafts:
            labels = tuple(self.parser.labels)
        keys = self.groups.metadata_keys
        prompting.check(keys, drafts=drafts, labels=labels)
        check_filter_keys(self.filter_keys, self.groups, keys)
        private = SealedQuery(
            groups=self.groups,
            parser=self.parser,
            prompting=prompting,
            sealed=SealedModel(self.model, self.max_concurrency),
            pad_calls=self.pad_calls,
            progress=GroupProgress(shown=self.progress),
        )
        self._query = QueryRunner(
            private=private,
            public=PublicModel(self.model),
            budget=self.budget,
            fallback=self.fallback,
            abstain_text=self.abstain_text,
            cache=bool(self.cache),
            longest=self.max_question_chars,
            filter_keys=self.filter_keys,
        )

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
        _take_none(kwargs)
        return self._call_with_config(
            self._query.answer, input, config, run_type="chain"
        )

    @override
    async def ainvoke(
        self,
        input: str | dict[str, Any],
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """Answer one question; see the class."""
        _take_none(kwargs)
        return await self._acall_with_config(
            self._query.aanswer, input, config, run_type="chain"
        )

    @override
    def stream(
        self,
        input: str | dict[str, Any],
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[AIMessage]:
        """Answer one question; the last, public call is streamed.

        Before its tokens come empty chunks, each with one step of the query in
        `response_metadata["privacy_steps"]`: `public`, `drafts`, `charged`, `groups`,
        `threshold`, `then`, `merged`. The last chunk carries the
        record.
        Custom events named `dpicl_step` tell callbacks the same steps, also for the
        other ways to ask.
        """
        yield from self.transform(iter([input]), config, **kwargs)

    @override
    async def astream(
        self,
        input: str | dict[str, Any],
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[AIMessage, None]:
        """Answer one question; the last, public call is streamed; see `stream`."""

        async def one() -> AsyncIterator[str | dict[str, Any]]:
            yield input

        # The answer of a caller who stops listening is stored before `aclose` ends.
        async with aclosing(self.atransform(one(), config, **kwargs)) as chunks:
            async for chunk in chunks:
                yield chunk

    @override
    def transform(
        self,
        input: Iterator[str | dict[str, Any]],
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> Iterator[AIMessage]:
        """Stream in a chain: the question is collected, then the answer streams."""
        _take_none(kwargs)
        yield from self._transform_stream_with_config(
            input, self._query.stream, config, run_type="chain"
        )

    @override
    async def atransform(
        self,
        input: AsyncIterator[str | dict[str, Any]],
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AsyncGenerator[AIMessage, None]:
        """Stream in a chain: the question is collected, then the answer streams."""
        _take_none(kwargs)
        streaming: Any = self._atransform_stream_with_config(
            input, self._query.astream, config, run_type="chain"
        )
        async with aclosing(streaming) as chunks:
            async for chunk in chunks:
                yield chunk


def _take_none(arguments: dict[str, Any]) -> None:
    """Refuse arguments beside the input: a filter that is ignored is no filter."""
    for name, value in arguments.items():
        if value is not None:
            raise InvalidParameterError(
                f"A question takes no argument {name!r}. A filter and the prompt's "
                "variables stand in the input: chain.invoke({'question': ..., "
                "'filter': ...}). model_copy(update={...}) changes the chain's parts."
            )
