"""A retriever of differentially private documents, and LangChain's standard suite."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_core.tools import create_retriever_tool
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
    notes(180), EMBEDDING, unit_key="patient", n_groups=60
)


def esa(**arguments: Any) -> ESAOutputParser:
    return ESAOutputParser(embedding=EMBEDDING, candidates=CANDIDATES, **arguments)


def made(parser: Any, k: Any = 1, **terms: Any) -> DPRetriever:
    given: dict[str, Any] = {"groups": GROUPS, "model": ScriptedModel(reply=reply)}
    return DPRetriever(chain=DPChain(**{**given, "parser": parser, **terms}), k=k)


def spent(budget: PrivacyBudgetHandler) -> int:
    return budget.spent().queries


async def test_the_k_best_candidates_come_for_one_charge() -> None:
    """By their noisy votes, which the record tells."""
    budget, asked = rich(), itertools.count()
    model = ScriptedModel(
        reply=lambda _text: "A dry cough." if next(asked) % 3 else "Nausea."
    )
    retriever = made(esa(), budget=budget, model=model, k=3)
    found = retriever.invoke(QUESTION)
    texts = [document.page_content for document in found]
    assert texts[:2] == ["A dry cough.", "Nausea."]
    assert [document.metadata["rank"] for document in found] == [1, 2, 3]
    record = found[0].metadata["privacy"]
    assert record["status"] == "released"
    assert record["ranking"][:3] == texts
    votes = record["details"]["noisy_votes"]
    assert sorted(texts, key=votes.__getitem__, reverse=True) == texts
    assert len(await retriever.ainvoke(QUESTION, k=1)) == 1
    # A paid answer is found again, at no charge.
    assert spent(budget) == 1


@pytest.mark.parametrize(
    ("parser", "k", "texts", "mechanism"),
    [
        (esa(), 1, ["A dry cough."], "esa/vote"),
        (KSAPTROutputParser(k=1), 2, ["They coughed: cough", "cough"], "ksa/ptr"),
        (VoteOutputParser(labels=["cough", "rash"]), 1, ["cough"], "vote/gaussian"),
    ],
)
def test_a_document_says_what_it_is(
    parser: Any, k: int, texts: list[str], mechanism: str
) -> None:
    found = made(parser, budget=rich(), k=k).invoke(QUESTION)
    assert [document.page_content for document in found] == texts
    assert found[0].metadata["source"] == "released answer"
    assert found[-1].metadata["privacy"]["mechanism"] == mechanism


@pytest.mark.parametrize("fallback", ["model", "refuse"])
def test_where_the_groups_do_not_agree_nothing_is_found(fallback: str) -> None:
    model = ScriptedModel(reply=lambda text: f"word{hash(text)}")
    parser = KSAPTROutputParser(k=1)
    retriever = made(parser, model=model, budget=rich(), fallback=fallback)
    assert retriever.invoke(QUESTION) == []


def test_esa_finds_nothing_where_the_groups_know_nothing() -> None:
    """Groups that know nothing: the nearest candidate is no finding."""
    silent = ScriptedModel(reply=lambda _text: "I don't know.")
    budget = rich()
    assert made(esa(), budget=budget, model=silent, k=2).invoke(QUESTION) == []
    assert spent(budget) == 1


async def test_langchains_own_retriever_tool_takes_it() -> None:
    budget = rich(queries=2)
    tool = create_retriever_tool(
        made(esa(), budget=budget, k=1), "ask_notes", "Asks the notes."
    )
    assert tool.invoke({"query": QUESTION}) == "A dry cough."
    assert await tool.ainvoke({"query": f"{QUESTION}?"}) == "A dry cough."
    assert spent(budget) == 2
    with pytest.raises(BudgetExhaustedError):
        tool.invoke({"query": "What else?"})


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
    assert spent(budget) == 1
    # What callbacks see is what everybody may see.
    assert {document.page_content for document in watching.documents} == {
        "A dry cough."
    }


async def test_refusals_reach_the_caller() -> None:
    with pytest.raises(NoBudgetError):
        made(esa()).invoke(QUESTION)
    budget = rich(queries=1)
    retriever = made(esa(), model=AsyncScriptedModel(reply=reply))
    await retriever.ainvoke(QUESTION, {"callbacks": [budget]})
    with pytest.raises(BudgetExhaustedError):
        await retriever.ainvoke("What else?", {"callbacks": [budget]})
    with pytest.raises(BudgetExhaustedError):
        retriever.invoke("What else?", {"callbacks": [budget]})


@pytest.mark.parametrize("k", [0, -1, 1.5, "two", True])
def test_a_number_of_documents_that_is_none_is_refused(k: Any) -> None:
    with pytest.raises(InvalidParameterError, match="k"):
        made(esa(), k=k)
    with pytest.raises(InvalidParameterError, match="k"):
        made(esa(), budget=rich()).invoke(QUESTION, k=k)


def test_it_takes_a_chain_and_no_parts() -> None:
    chain: Any = DPChain(groups=GROUPS, model=ScriptedModel(), parser=esa())
    with pytest.raises(InvalidParameterError, match="must be a DPChain"):
        DPRetriever(chain="chain")  # type: ignore[arg-type]
    for wrong, match in (
        ({"parser": esa(), "chain": chain}, "parser"),
        ({"groups": GROUPS, "parser": esa()}, "chain: Field required"),
        ({"chain": chain, "k_documents": 3}, "k_documents"),
    ):
        with pytest.raises(InvalidParameterError, match=match):
            DPRetriever(**wrong)


def test_its_repr_shows_no_record() -> None:
    retriever = made(esa(), budget=rich())
    assert "Lisinopril" not in repr(retriever)
    assert "unit-" not in repr(retriever)
