"""What the chain refuses, and that a refusal costs nothing."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import PromptTemplate
from support.chain_parts import EMBEDDING, PARSERS, QUESTION, reply, rich
from support.fakes import ScriptedModel, notes

from langchain_dpicl import (
    BudgetExhaustedError,
    DPChain,
    InvalidParameterError,
    KSAPTROutputParser,
    LedgerError,
    PrivacyBudgetHandler,
    RetrievedGroups,
    SampledGroups,
    UnsealableModelError,
    VoteOutputParser,
)

LONG = "What did lisinopril give? " * 4_000
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)


def made(groups: Any, name: str = "vote", **parts: Any) -> DPChain:
    given = {"model": ScriptedModel(reply=reply), "parser": PARSERS[name]()}
    return DPChain(groups=groups, **{**given, "budget": rich(), **parts})


async def refused(
    chain: DPChain, asked: Any, error: type[Exception], match: str = ".+"
) -> None:
    """Ask by each way; all are refused, and charged nothing."""
    with pytest.raises(error, match=match):
        chain.invoke(asked)
    with pytest.raises(error, match=match):
        await chain.ainvoke(asked)
    with pytest.raises(error, match=match):
        list(chain.stream(asked))
    with pytest.raises(error, match=match):
        _ = [piece async for piece in chain.astream(asked)]
    with pytest.raises(error, match=match):
        chain.batch([asked])
    if chain.budget is not None:
        assert chain.budget.spent().queries == 0


@pytest.mark.parametrize(
    ("name", "accounting"), [("vote", None), ("esa", "renyi"), ("ptr", None)]
)
async def test_a_spent_budget_asks_the_model_nothing(
    groups: RetrievedGroups, name: str, accounting: Any
) -> None:
    terms: dict[str, Any] = {"epsilon": 30, "delta": 1e-6, "queries": 1}
    budget = PrivacyBudgetHandler(**terms, accounting=accounting, ledger=":memory:")
    chain = made(groups, name, budget=budget)
    chain.invoke("What?")
    chain.model.asked.clear()
    with pytest.raises(BudgetExhaustedError):
        chain.invoke(QUESTION)
    with pytest.raises(BudgetExhaustedError):
        await chain.ainvoke(QUESTION)
    budget.ledger.close_account("default")
    with pytest.raises(LedgerError, match="closed"):
        chain.invoke(QUESTION)
    assert chain.model.asked == []


@pytest.mark.parametrize(
    ("question", "match"),
    [
        ({"question": QUESTION, "context": "mine"}, "context"),
        ({"question": QUESTION, "keywords": "mine"}, "keywords"),
        (LONG, "may have 20000 characters and has more"),
        ({"question": QUESTION, "n": 10**5000}, "20000"),
        ({"question": QUESTION, "n": ENDLESS}, "20000"),
        ({"question": QUESTION, "filter": {"patient": LONG}}, "20000"),
        ({"question": QUESTION, "history": [HumanMessage(LONG)]}, "20000"),
        ({"question": LONG[:15_000], "language": LONG[:15_000]}, "20000"),
        ({"question": QUESTION, "filter": {"patient": "1"}}, "filter_keys"),
    ],
)
async def test_what_is_no_question_is_refused(
    groups: RetrievedGroups, question: Any, match: str
) -> None:
    chain = made(groups)
    await refused(chain, question, InvalidParameterError, match)
    assert chain.model.asked == []


async def test_a_rewriting_prompt_that_cannot_be_filled_is_found_before_the_charge(
    groups: RetrievedGroups,
) -> None:
    prompt = PromptTemplate.from_template("{tone} {keywords} {question}")
    chain = made(groups, parser=KSAPTROutputParser(k=1, prompt=prompt))
    await refused(chain, QUESTION, InvalidParameterError, "tone")


@pytest.mark.parametrize("vector", [[float("nan")] * 384, [0.0] * 384, [1.0] * 3, None])
async def test_a_bad_question_embedding_is_refused(vector: Any) -> None:
    class Bad(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return EMBEDDING.embed_documents(texts)

        def embed_query(self, text: str) -> list[float]:
            if vector is None:
                raise ConnectionError("refused")
            return list(vector)

    groups = RetrievedGroups.from_documents(
        notes(80), Bad(), unit_key="patient", n_groups=60
    )
    error = ConnectionError if vector is None else InvalidParameterError
    await refused(made(groups), QUESTION, error)


class Awaited(BaseChatModel):
    """A model with an asynchronous call alone."""

    @property
    def _llm_type(self) -> str:
        return "awaited"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, *args: Any, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage("cough"))])


@pytest.mark.parametrize("name", ["vote", "draft"])
async def test_a_model_without_a_blocking_call_is_refused(
    groups: RetrievedGroups, name: str
) -> None:
    parser = VoteOutputParser(labels="draft") if name == "draft" else PARSERS[name]()
    chain = made(groups, model=Awaited(), parser=parser)
    await refused(chain, QUESTION, UnsealableModelError, "blocking call")


@pytest.mark.parametrize(
    "changes",
    [
        {"groups": ["record canary-7f3a"]},
        {"fallback": "canary-7f3a"},
        {"pad_calls": False},
        {"prompt": PromptTemplate.from_template("{question}")},
        {"document_prompt": PromptTemplate.from_template("{vist}")},
    ],
)
def test_parts_that_do_not_fit_are_refused(
    groups: RetrievedGroups, changes: dict[str, Any]
) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        made(**{"groups": groups, **changes})
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_range_of_k_is_refused_with_sampled_groups() -> None:
    groups = SampledGroups.from_documents(
        notes(100), unit_key="patient", n_groups=10, sampling_rate=0.1
    )
    with pytest.raises(InvalidParameterError, match="single k"):
        made(groups, parser=KSAPTROutputParser(k=(1, 3)))


def test_drafted_options_need_a_place_in_your_own_prompt(
    groups: RetrievedGroups,
) -> None:
    own, drafted = "{context} {question}", VoteOutputParser(labels="draft")
    with pytest.raises(InvalidParameterError, match="no variable format_instructions"):
        made(groups, parser=drafted, prompt=PromptTemplate.from_template(own))
    placed = PromptTemplate.from_template(own + " {format_instructions}")
    made(groups, parser=drafted, prompt=placed)
