"""A retriever of differentially private documents, and LangChain's standard suite."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnablePassthrough
from langchain_core.tools import create_retriever_tool
from langchain_tests.integration_tests import RetrieversIntegrationTests
from support.chain_parts import EMBEDDING, QUESTION, reply, rich
from support.fakes import AsyncScriptedModel, ScriptedModel, notes

from langchain_dpicl import (
    BudgetExhaustedError,
    DPChain,
    DPRetriever,
    ESAOutputParser,
    InvalidParameterError,
    KSAPTROutputParser,
    NoBudgetError,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)

CANDIDATES = ["A dry cough.", "A skin rash.", "Nausea.", "Headache."]
GROUPS = RetrievedGroups.from_documents(
    notes(900), EMBEDDING, unit_key="patient", n_groups=60
)


def esa(**arguments: Any) -> ESAOutputParser:
    return ESAOutputParser(embedding=EMBEDDING, candidates=CANDIDATES, **arguments)


def made(parser: Any, **arguments: Any) -> DPRetriever:
    return DPRetriever(
        groups=GROUPS, model=ScriptedModel(reply=reply), parser=parser, **arguments
    )


def spent(budget: PrivacyBudgetHandler) -> int:
    return budget.spent().queries


class TestStandardRetriever(RetrieversIntegrationTests):
    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return DPRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {
            "groups": GROUPS,
            "model": ScriptedModel(reply=reply),
            "parser": esa(),
            "budget": rich(queries=20),
        }

    @property
    def retriever_query_example(self) -> str:
        return QUESTION


async def test_the_k_best_candidates_come_for_one_charge() -> None:
    budget = rich()
    retriever = made(esa(), budget=budget, k=3)
    found = retriever.invoke(QUESTION)
    assert len(found) == 3
    assert found[0].page_content == "A dry cough."
    assert {document.page_content for document in found} < set(CANDIDATES)
    assert [document.metadata["rank"] for document in found] == [1, 2, 3]
    assert found[0].metadata["privacy"]["status"] == "released"
    assert found[0].metadata["privacy"]["ranking"][:3] == [
        document.page_content for document in found
    ]
    assert spent(budget) == 1
    assert len(await retriever.ainvoke(QUESTION, k=1)) == 1
    assert spent(budget) == 2
    assert len(await retriever.ainvoke(QUESTION, k=99)) == len(CANDIDATES)


@pytest.mark.parametrize("select", ["cosine", "vote"])
def test_one_document_comes_by_default_and_says_what_it_is(select: Any) -> None:
    (found,) = made(esa(select=select), budget=rich()).invoke(QUESTION)
    assert found.page_content == "A dry cough."
    assert found.metadata["source"] == "released answer"
    assert found.metadata["privacy"]["mechanism"] == f"esa/{select}"


def test_keyword_parsers_give_the_answer_and_the_words() -> None:
    found = made(KSAPTROutputParser(k=1), budget=rich(), k=2).invoke(QUESTION)
    assert [document.page_content for document in found] == [
        "They coughed: cough",
        "cough",
    ]
    assert found[1].metadata["privacy"]["keywords"] == ["cough"]


def test_a_vote_gives_its_label() -> None:
    parser = VoteOutputParser(labels=["cough", "rash"])
    found = made(parser, budget=rich()).invoke(QUESTION)
    assert [document.page_content for document in found] == ["cough"]


@pytest.mark.parametrize("fallback", ["model", "refuse"])
def test_where_the_groups_do_not_agree_nothing_is_found(fallback: str) -> None:
    retriever = DPRetriever(
        groups=GROUPS,
        model=ScriptedModel(reply=lambda text: f"word{hash(text)}"),
        parser=KSAPTROutputParser(k=1),
        budget=rich(),
        fallback=fallback,
    )
    assert retriever.invoke(QUESTION) == []


def test_esa_finds_nothing_where_the_groups_know_nothing() -> None:
    """Groups that know nothing: the nearest candidate is no finding."""
    silent = ScriptedModel(reply=lambda _text: "I don't know.")
    for least, expected in ((None, 0), (0.5, 0)):
        budget = rich()
        retriever = DPRetriever(
            groups=GROUPS, model=silent, parser=esa(min_score=least), budget=budget, k=2
        )
        assert len(retriever.invoke(QUESTION)) == expected
        assert spent(budget) == 1
    # And groups that agree: what they say is near, the rest is not.
    found = made(esa(min_score=0.5), budget=rich(), k=4).invoke(QUESTION)
    assert [document.page_content for document in found] == ["A dry cough."]


def test_esa_by_vote_gives_the_winner_alone() -> None:
    found = made(esa(select="vote"), budget=rich(), k=4).invoke(QUESTION)
    assert [document.page_content for document in found] == ["A dry cough."]


async def test_langchains_own_retriever_tool_takes_it() -> None:
    budget = rich(queries=2)
    tool = create_retriever_tool(
        made(esa(), budget=budget, k=1), "ask_notes", "Asks the notes."
    )
    assert tool.invoke({"query": QUESTION}) == "A dry cough."
    assert await tool.ainvoke({"query": QUESTION}) == "A dry cough."
    assert spent(budget) == 2
    with pytest.raises(BudgetExhaustedError):
        tool.invoke({"query": QUESTION})


def test_a_paid_answer_is_found_again() -> None:
    budget = rich()
    retriever = made(esa(), budget=budget, cache=True)
    first = retriever.invoke(QUESTION)
    again = retriever.invoke(QUESTION)
    assert spent(budget) == 1
    assert [d.page_content for d in again] == [d.page_content for d in first]
    assert again[0].metadata["privacy"]["status"] == "cached"


class Watching(BaseCallbackHandler):
    def __init__(self) -> None:
        self.documents: list[Document] = []

    def on_retriever_end(self, documents: Any, **kwargs: Any) -> None:
        self.documents.extend(documents)


async def test_an_existing_chain_changes_its_retriever_and_nothing_else() -> None:
    budget, watching = rich(), Watching()
    prompt = ChatPromptTemplate.from_template("{context}\n\n{question}")

    def joined(documents: list[Document]) -> str:
        return "\n".join(document.page_content for document in documents)

    chain = (
        {"context": made(esa(), k=1) | joined, "question": RunnablePassthrough()}
        | prompt
        | FakeListChatModel(responses=["They cough."])
        | StrOutputParser()
    )
    config: Any = {"callbacks": [budget, watching]}
    assert chain.invoke(QUESTION, config) == "They cough."
    assert await chain.ainvoke(QUESTION, config) == "They cough."
    assert "".join(chain.stream(QUESTION, config)) == "They cough."
    assert spent(budget) == 3
    # What callbacks see is what everybody may see.
    assert {document.page_content for document in watching.documents} == {
        "A dry cough."
    }


async def test_refusals_reach_the_caller() -> None:
    with pytest.raises(NoBudgetError):
        made(esa()).invoke(QUESTION)
    budget = rich(queries=1)
    retriever = DPRetriever(
        chain=DPChain(
            groups=GROUPS, model=AsyncScriptedModel(reply=reply), parser=esa()
        )
    )
    await retriever.ainvoke(QUESTION, {"callbacks": [budget]})
    with pytest.raises(BudgetExhaustedError):
        await retriever.ainvoke(QUESTION, {"callbacks": [budget]})
    with pytest.raises(BudgetExhaustedError):
        retriever.invoke(QUESTION, {"callbacks": [budget]})


@pytest.mark.parametrize("k", [0, -1, 1.5, "two", True])
def test_a_number_of_documents_that_is_none_is_refused(k: Any) -> None:
    with pytest.raises(InvalidParameterError, match="k"):
        made(esa(), k=k)
    with pytest.raises(InvalidParameterError, match="k"):
        made(esa(), budget=rich()).invoke(QUESTION, k=k)


def test_parts_and_chain_are_not_mixed() -> None:
    chain = DPChain(groups=GROUPS, model=ScriptedModel(reply=reply), parser=esa())
    with pytest.raises(InvalidParameterError, match="beside chain"):
        DPRetriever(chain=chain, parser=esa())
    with pytest.raises(InvalidParameterError, match="must be a DPChain"):
        DPRetriever(chain="chain")
    with pytest.raises(InvalidParameterError, match="groups"):
        DPRetriever(model=ScriptedModel(reply=reply), parser=esa())
    with pytest.raises(InvalidParameterError, match="k_documents"):
        DPRetriever(
            groups=GROUPS,
            model=ScriptedModel(reply=reply),
            parser=esa(),
            k_documents=3,
        )


def test_its_repr_shows_no_record() -> None:
    retriever = made(esa(), budget=rich())
    assert "Lisinopril" not in repr(retriever)
    assert "unit-" not in repr(retriever)
