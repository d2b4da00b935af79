"""`DPRetriever`: what a private chain releases, as the documents of a retriever.

A `BaseRetriever` publishes its documents to callbacks, tracers and the prompt that
follows. Here that is no leak: no document is a record. They are public candidates in
the order of a noisy sum, or the answer and the words of a charged mechanism.
"""

from __future__ import annotations

from langchain_core.callbacks import (
    AsyncCallbackManagerForRetrieverRun,
    CallbackManagerForRetrieverRun,
)
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableConfig
from pydantic import ConfigDict, Field, SkipValidation
from typing_extensions import override

from langchain_dpicl.chain import DPChain
from langchain_dpicl.common import parameters
from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.public import FrozenModel
from langchain_dpicl.release.record import Status

DEFAULT_K = 1
"""The answer; what comes behind it has fewer votes."""

SOURCE = "released answer"
"""What the metadata of each document says of where it comes from."""


class DPRetriever(FrozenModel, BaseRetriever):
    """A retriever whose documents are differentially private output.

    It takes the place of the retriever of an existing chain, and nothing else changes.
    Each question is one query of a `DPChain`, and costs what that one costs. What comes
    back depends on the chain's parser:

    * `ESAOutputParser`: the best of its public candidates; with `k=` the k best, in the
      order of one noisy vote. Those behind the first may have votes by noise alone: the
      record's `noisy_votes` say how many each has. One charge, whatever k is.
    * keyword parsers: the answer, and with `k=2` the released words. The chain's call
      that puts the words into a sentence is made as well.
    * `VoteOutputParser`: the winning label.

    No document is a record, and none is evidence beside another: all of one question
    are one released answer. Each says so in `metadata["source"]` and has the answer's
    record in `metadata["privacy"]`; its text is the answer alone.

    Where nothing is released there are no documents: the public answer that a `DPChain`
    falls back to is no evidence from the records, and the model that follows says so or
    answers by itself.

    Args:
        chain: The chain.
        k: Most documents for one question, one by default; also an argument of
            `invoke`.

    Raises:
        InvalidParameterError: If it is no `DPChain`, or k is not a positive number.
        NoBudgetError: And the other errors of `DPChain`, when asked.

    Privacy:
        Unit, relation, noise and event are the chain's; see `DPChain`. The order of
        ESA's candidates is that of their noisy votes, so that the k best are
        post-processing of one release. `k` is public.

    Example:
        >>> from langchain_core.documents import Document
        >>> from langchain_dpicl import ESAOutputParser, PrivacyBudgetHandler
        >>> from langchain_dpicl import DPChain, RetrievedGroups
        >>> from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel
        >>> embedding = HashingEmbeddings()
        >>> notes = [
        ...     Document("Lisinopril gave a dry cough.", metadata={"patient": str(i)})
        ...     for i in range(400)
        ... ]
        >>> chain = DPChain(
        ...     groups=RetrievedGroups.from_documents(
        ...         notes, embedding, unit_key="patient", n_groups=60
        ...     ),
        ...     model=OfflineChatModel(),
        ...     parser=ESAOutputParser(
        ...         embedding=embedding,
        ...         candidates=["A dry cough.", "A rash.", "Nothing at all."],
        ...     ),
        ...     budget=PrivacyBudgetHandler(
        ...         epsilon=20, delta=1e-6, queries=2, ledger=":memory:"
        ...     ),
        ... )
        >>> retriever = DPRetriever(chain=chain, k=2)
        >>> found = retriever.invoke("What does lisinopril give?")
        >>> len(found), found[0].page_content
        (2, 'A dry cough.')
    """

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    chain: SkipValidation[DPChain] = Field(exclude=True)
    """The chain that is asked."""

    k: SkipValidation[int] = DEFAULT_K
    """Most documents for one question."""

    @override
    def _derive(self) -> None:
        if not isinstance(self.chain, DPChain):
            raise InvalidParameterError(
                f"chain must be a DPChain, not {type(self.chain).__name__}."
            )
        parameters.count(self.k, "k")

    @override
    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,
        k: int | None = None,
    ) -> list[Document]:
        most = self.k if k is None else parameters.count(k, "k")
        config: RunnableConfig = {"callbacks": run_manager.get_child()}
        return _documents(self.chain.invoke(query, config), most)

    @override
    async def _aget_relevant_documents(
        self,
        query: str,
        *,
        run_manager: AsyncCallbackManagerForRetrieverRun,
        k: int | None = None,
    ) -> list[Document]:
        most = self.k if k is None else parameters.count(k, "k")
        config: RunnableConfig = {"callbacks": run_manager.get_child()}
        return _documents(await self.chain.ainvoke(query, config), most)


def _documents(answer: AIMessage, most: int) -> list[Document]:
    record = answer.response_metadata["privacy"]
    # Only a release is ever cached.
    if record["status"] not in {Status.RELEASED.value, Status.CACHED.value}:
        return []
    texts = list(record["ranking"]) or [str(answer.text)]
    words = ", ".join(record["keywords"])
    if words and words not in texts:
        texts.append(words)
    return [
        Document(text, metadata={"source": SOURCE, "rank": rank, "privacy": record})
        for rank, text in enumerate(texts[:most], 1)
    ]
