"""`FactsChain`: answers from released facts; the paid question where they don't tell.

Facts were paid for once. A chain over them is an ordinary RAG chain: no group calls, no
charge. `facts | chain` asks them first, and a `DPChain` only where they say nothing.
"""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import Any

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage
from langchain_core.prompt_values import PromptValue
from langchain_core.prompts import BasePromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import (
    Runnable,
    RunnableConfig,
    RunnableLambda,
    RunnableParallel,
    RunnablePassthrough,
    RunnableSerializable,
    patch_config,
)
from langchain_core.runnables.base import RunnableBindingBase
from pydantic import ConfigDict, Field, PrivateAttr, SkipValidation
from typing_extensions import override

from langchain_dpicl.chain import DPChain
from langchain_dpicl.chain.prompting import Question, filter_of, read_question
from langchain_dpicl.common.frozen import FrozenModel
from langchain_dpicl.common.prompts import DOCUMENT_SEPARATOR, FACTS_PROMPT
from langchain_dpicl.common.replies import answer_of, usage_of
from langchain_dpicl.common.validation import construct
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.parsers.reading.refusal import says_nothing
from langchain_dpicl.released import ReleasedCorpus

_FILLED = {"context", "question"}


class FactsChain(FrozenModel, RunnableSerializable[str | dict[str, Any], AIMessage]):
    """Answer questions from released facts, at no charge.

    It takes what a `DPChain` takes, a question or a mapping with one, and returns an
    `AIMessage` whose `response_metadata["privacy"]` is the record of the release, with
    the facts that the model was shown in `details["facts"]`.

    `facts | chain`, with a `DPChain`, is a chain that asks the facts first. Where the
    model says, in whatever words, that they don't tell
    (`langchain_dpicl.parsers.reading.refusal`), the question goes to the `DPChain`,
    which is charged for it.

    Args:
        corpus: The released facts.
        model: Any chat or completion model: it sees the question and released facts.
        embedding: What finds the facts; see `ReleasedCorpus.as_vectorstore`.
        k: How many facts a question gets.
        prompt: With `context` and `question`.

    Raises:
        InvalidParameterError: If `corpus`, `model` or `prompt` is none, or the input
            holds no question.

    Privacy:
        Post-processing of the release: no unit, no noise, no event of its own. Whether
        the paid chain is asked follows from the question and the model's reply to
        released facts, and from no record.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_dpicl.offline import OfflineChatModel
        >>> record = {
        ...     "status": "public", "mechanism": "none", "parameters": {},
        ...     "unit": None, "unit_key": None, "relation": None, "neighbors": None,
        ...     "events": [], "epsilon": 0.0, "delta": 0.0, "charge": None,
        ...     "account": None, "model": None,
        ...     "created": "2026-11-20T19:30:00+00:00", "library": "0.1.0",
        ... }
        >>> corpus = ReleasedCorpus(
        ...     [Document("Most frequent effect of iron: nausea (about 29).")], record
        ... )
        >>> facts = FactsChain(corpus=corpus, model=OfflineChatModel())
        >>> facts.invoke("Which effect of iron is most frequent?").content
        'Most frequent effect of iron: nausea (about 29).'
    """  # fmt: skip

    model_config = ConfigDict(
        arbitrary_types_allowed=True, extra="forbid", hide_input_in_errors=True
    )

    corpus: SkipValidation[ReleasedCorpus] = Field(exclude=True)
    """The released facts."""

    model: SkipValidation[Runnable[Any, Any]] = Field(exclude=True)
    """The model."""

    embedding: SkipValidation[Embeddings | None] = Field(default=None, exclude=True)
    """What finds the facts; None compares words."""

    k: int = Field(default=4, ge=1)
    """How many facts a question gets."""

    prompt: SkipValidation[BasePromptTemplate[Any]] = Field(
        default=FACTS_PROMPT, exclude=True, repr=False
    )
    """The prompt, with `context` and `question`."""

    _retriever: BaseRetriever = PrivateAttr()

    def __init__(self, **kwargs: Any) -> None:
        construct(type(self).__name__, partial(super().__init__, **kwargs))
        if not isinstance(self.corpus, ReleasedCorpus):
            raise InvalidParameterError(
                f"corpus must be a ReleasedCorpus, not {type(self.corpus).__name__}: "
                "GDPTable(..., measure=[...]).documents() gives one."
            )
        if not isinstance(self.model, Runnable):
            raise InvalidParameterError(
                "model must be a chat model or a completion model of LangChain, not "
                f"{type(self.model).__name__}."
            )
        names = getattr(self.prompt, "input_variables", ())
        if not isinstance(self.prompt, BasePromptTemplate) or _FILLED - {*names}:
            raise InvalidParameterError(
                "prompt must be a prompt template with the variables {context} (the "
                "facts) and {question}: ChatPromptTemplate.from_template(...) makes "
                "one of a text."
            )
        self._retriever = self.corpus.as_retriever(self.embedding, k=self.k)

    @override
    def invoke(
        self,
        input: str | dict[str, Any],
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """Answer one question; see the class."""

        def answer(value: Any, run_manager: Any, config: RunnableConfig) -> AIMessage:
            child = patch_config(config, callbacks=run_manager.get_child())
            found = self._retriever.invoke(_question(value).text, child)
            return self._said(
                self.model.invoke(self._asked(value, found), child), found
            )

        return self._call_with_config(answer, input, config, run_type="chain")

    @override
    async def ainvoke(
        self,
        input: str | dict[str, Any],
        config: RunnableConfig | None = None,
        **kwargs: Any,
    ) -> AIMessage:
        """Answer one question; see the class."""

        async def answer(
            value: Any, run_manager: Any, config: RunnableConfig
        ) -> AIMessage:
            child = patch_config(config, callbacks=run_manager.get_child())
            found = await self._retriever.ainvoke(_question(value).text, child)
            asked = self._asked(value, found)
            return self._said(await self.model.ainvoke(asked, child), found)

        return await self._acall_with_config(answer, input, config, run_type="chain")

    @override
    def __or__(self, other: Any, *others: Any) -> Any:
        """Ask a `DPChain` where the facts don't tell; pipe into anything else."""
        bound = other
        while isinstance(bound, RunnableBindingBase):  # chain.with_config(...)
            bound = bound.bound
        if not isinstance(bound, DPChain):
            return super().__or__(other)
        paid = itemgetter("input") | other

        def decide(found: dict[str, Any]) -> Any:
            # A Runnable that is returned is asked in this one's place.
            return paid if says_nothing(found["answer"].text) else found["answer"]

        asked = RunnableParallel(input=RunnablePassthrough(), answer=self)
        return asked | RunnableLambda(decide, name="facts_first")

    def _asked(self, value: Any, found: list[Document]) -> PromptValue:
        question = _question(value)
        context = DOCUMENT_SEPARATOR.join(one.page_content for one in found)
        return self.prompt.invoke(
            {**question.variables, "question": question.text, "context": context}
        )

    def _said(self, reply: Any, found: list[Document]) -> AIMessage:
        record = self.corpus.record
        facts = [one.page_content for one in found]
        details = {**record.get("details", {}), "facts": facts}
        return AIMessage(
            content=answer_of(reply).strip(),
            response_metadata={"privacy": {**record, "details": details}},
            usage_metadata=usage_of(reply),
        )


def _question(value: Any) -> Question:
    if filter_of(value) is not None:
        raise InvalidParameterError(
            "Released facts are about everybody, and can't be filtered: ask the "
            "DPChain itself."
        )
    return read_question(value)
