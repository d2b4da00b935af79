"""What the chain refuses, and that a refusal costs nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.embeddings import Embeddings
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, PromptTemplate
from support.chain_parts import EMBEDDING, PARSERS, QUESTION, reply, rich
from support.fakes import ScriptedModel, notes

from langchain_dpicl import (
    BudgetExhaustedError,
    DPChain,
    InvalidParameterError,
    KSAPTROutputParser,
    LedgerError,
    NoBudgetError,
    PrivacyBudgetHandler,
    RetrievedGroups,
    SampledGroups,
    UnsealableModelError,
    VoteOutputParser,
)
from langchain_dpicl.chain import UnseenLabelsWarning


@pytest.mark.parametrize(
    "ask",
    [
        lambda chain: chain.invoke(QUESTION),
        lambda chain: asyncio.run(chain.ainvoke(QUESTION)),
        lambda chain: list(chain.stream(QUESTION)),
        lambda chain: chain.batch([QUESTION]),
    ],
)
def test_without_a_budget_nobody_is_asked(
    groups: RetrievedGroups, ask: Callable[[DPChain], object]
) -> None:
    model = ScriptedModel(reply=reply)
    chain = DPChain(groups=groups, model=model, parser=PARSERS["ptr"]())
    with pytest.raises(NoBudgetError, match="callbacks"):
        ask(chain)
    assert model.asked == []


@pytest.mark.parametrize("accounting", [None, "renyi"])
@pytest.mark.parametrize("name", sorted(PARSERS))
async def test_a_spent_budget_asks_the_model_nothing(
    groups: RetrievedGroups, name: str, accounting: Any
) -> None:
    budget = PrivacyBudgetHandler(
        epsilon=30, delta=1e-6, queries=1, accounting=accounting, ledger=":memory:"
    )
    model = ScriptedModel(reply=reply)
    chain = DPChain(groups=groups, model=model, parser=PARSERS[name](), budget=budget)
    chain.invoke(QUESTION)
    model.asked.clear()
    with pytest.raises(BudgetExhaustedError):
        chain.invoke(QUESTION)
    with pytest.raises(BudgetExhaustedError):
        await chain.ainvoke(QUESTION)
    budget.ledger.close_account("default")
    with pytest.raises(LedgerError, match="closed"):
        chain.invoke(QUESTION)
    assert model.asked == []


@pytest.mark.parametrize(
    "question", ["", "  ", None, 3, {}, {"question": ""}, {"q": "x"}, ["x"]]
)
def test_a_missing_question_is_refused_uncharged(
    groups: RetrievedGroups, question: Any
) -> None:
    budget = rich()
    chain = DPChain(
        groups=groups, model=ScriptedModel(), parser=PARSERS["vote"](), budget=budget
    )
    with pytest.raises(InvalidParameterError, match="question"):
        chain.invoke(question)
    assert budget.spent().queries == 0


@pytest.mark.parametrize("name", ["context", "keywords"])
def test_the_chains_own_variables_cannot_be_smuggled_in(
    groups: RetrievedGroups, name: str
) -> None:
    chain = DPChain(
        groups=groups, model=ScriptedModel(), parser=PARSERS["vote"](), budget=rich()
    )
    with pytest.raises(InvalidParameterError, match=name):
        chain.invoke({"question": QUESTION, name: "mine"})


def test_a_rewriting_prompt_that_cannot_be_filled_is_found_before_the_charge(
    groups: RetrievedGroups,
) -> None:
    budget = rich()
    prompt = PromptTemplate.from_template("{tone} {keywords} {question}")
    chain = DPChain(
        groups=groups,
        model=ScriptedModel(reply=reply),
        parser=KSAPTROutputParser(k=1, prompt=prompt),
        budget=budget,
    )
    with pytest.raises(InvalidParameterError, match="tone"):
        chain.invoke(QUESTION)
    assert budget.spent().queries == 0


@pytest.mark.parametrize("vector", [[float("nan")] * 384, [0.0] * 384, [1.0] * 3])
def test_a_bad_question_embedding_is_refused_uncharged(vector: list[float]) -> None:
    class Bad(Embeddings):
        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return EMBEDDING.embed_documents(texts)

        def embed_query(self, text: str) -> list[float]:
            return vector

    budget = rich()
    groups = RetrievedGroups.from_documents(
        notes(80), Bad(), unit_key="patient", n_groups=60
    )
    chain = DPChain(
        groups=groups, model=ScriptedModel(), parser=PARSERS["vote"](), budget=budget
    )
    with pytest.raises(InvalidParameterError):
        chain.invoke(QUESTION)
    assert budget.spent().queries == 0


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"model": "openai:gpt"}, UnsealableModelError),
        ({"groups": ["record canary-7f3a"]}, InvalidParameterError),
        ({"parser": StrOutputParser()}, InvalidParameterError),
        ({"fallback": "canary-7f3a"}, InvalidParameterError),
        ({"max_concurrency": 0}, InvalidParameterError),
        ({"epsilon": 3}, InvalidParameterError),
        (
            {"prompt": PromptTemplate.from_template("{question}")},
            InvalidParameterError,
        ),
        (
            {"document_prompt": PromptTemplate.from_template("{vist}")},
            InvalidParameterError,
        ),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    groups: RetrievedGroups, changes: dict[str, Any], error: type[Exception]
) -> None:
    parts: dict[str, Any] = {
        "groups": groups,
        "model": ScriptedModel(),
        "parser": PARSERS["vote"](),
    }
    with pytest.raises(error) as caught:
        DPChain(**{**parts, **changes})
    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_range_of_k_is_refused_with_sampled_groups() -> None:
    groups = SampledGroups.from_documents(
        notes(100), unit_key="patient", n_groups=10, sampling_rate=0.1
    )
    with pytest.raises(InvalidParameterError, match="single k"):
        DPChain(
            groups=groups, model=ScriptedModel(), parser=KSAPTROutputParser(k=(1, 3))
        )


def test_an_embedding_server_that_is_down_costs_nothing() -> None:
    class Down(Embeddings):
        up = True

        def embed_documents(self, texts: list[str]) -> list[list[float]]:
            return EMBEDDING.embed_documents(texts)

        def embed_query(self, text: str) -> list[float]:
            raise ConnectionError("refused")

    budget = rich()
    groups = RetrievedGroups.from_documents(
        notes(80), Down(), unit_key="patient", n_groups=60
    )
    chain = DPChain(
        groups=groups, model=ScriptedModel(), parser=PARSERS["vote"](), budget=budget
    )
    with pytest.raises(ConnectionError):
        chain.invoke(QUESTION)
    assert budget.spent().queries == 0


def test_drafted_options_need_a_place_in_your_own_prompt(
    groups: RetrievedGroups,
) -> None:
    own = "{context} {question}"
    parts: dict[str, Any] = {"groups": groups, "model": ScriptedModel(reply=reply)}
    drafted = VoteOutputParser(labels="draft")
    with pytest.raises(InvalidParameterError, match="no variable format_instructions"):
        DPChain(**parts, parser=drafted, prompt=PromptTemplate.from_template(own))
    placed = PromptTemplate.from_template(own + " {format_instructions}")
    DPChain(**parts, parser=drafted, prompt=placed)


@pytest.mark.parametrize(
    ("prompt", "terms"),
    [
        ("{context} {question} {format_instructions}", {}),
        ("Is it **a cough** or a Rash? {context} {question}", {}),
        ("{labels}: {context} {question}", {}),
        ("{context} {question}", {"document_prompt": "{page_content}: {patient}"}),
    ],
)
def test_groups_that_may_know_the_labels_are_left_alone(
    groups: RetrievedGroups, prompt: str, terms: dict[str, str]
) -> None:
    DPChain(
        groups=groups,
        model=ScriptedModel(),
        parser=VoteOutputParser(labels=["cough", "rash"]),
        prompt=ChatPromptTemplate.from_template(prompt),
        **{key: PromptTemplate.from_template(text) for key, text in terms.items()},
    )


def test_a_prompt_that_names_no_labels_is_warned_of(groups: RetrievedGroups) -> None:
    """Any reply is read, but no group knows what there is to choose from."""
    own = PromptTemplate.from_template("Is it a rash? {context} {question}")
    parts: dict[str, Any] = {"groups": groups, "model": ScriptedModel(), "prompt": own}
    with pytest.warns(UnseenLabelsWarning, match="'cough'.*{format_instructions}"):
        DPChain(**parts, parser=VoteOutputParser(labels=["rash", "cough"]))
    DPChain(**parts, parser=KSAPTROutputParser(k=1))


def test_the_public_answer_is_not_asked_to_choose(groups: RetrievedGroups) -> None:
    """It has no records: of options it could only say that none is supported."""

    def disagreeing(text: str) -> str:
        return "none of these" if "Options:" in text else "A cough, I think."

    model = ScriptedModel(reply=disagreeing)
    chain = DPChain(
        groups=groups,
        model=model,
        parser=VoteOutputParser(labels=["cough", "rash"]),
        prompt=PromptTemplate.from_template(
            "{context} {question} {format_instructions}"
        ),
        budget=rich(),
        fallback="model",
    )
    for _ in range(2):
        assert str(chain.invoke(QUESTION).content).endswith(": A cough, I think.")
