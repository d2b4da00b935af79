"""The tool gives the chain's answer and its public record, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.prompts import (
    ChatPromptTemplate,
    MessagesPlaceholder,
    PromptTemplate,
)
from pydantic import ValidationError
from suite import pairs
from support.agent_parts import (
    CANARY,
    QUESTION,
    WAYS,
    account,
    calling,
    journal,
    private_chain,
    run,
)
from support.fakes import ScriptedModel

from langchain_dpicl import (
    DPChain,
    ESAOutputParser,
    InvalidParameterError,
    LedgerError,
    NoBudgetError,
    PublicCallError,
    RetrievedGroups,
)
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.tools import GUIDANCE, create_dp_tool

ABOUT: dict[str, str] = {"name": "ask", "description": "Answers about the notes."}
LANGUAGE = PromptTemplate.from_template(
    "Cough or rash? {context}\n{question} In {language}."
)


def call(question: str = QUESTION, **arguments: Any) -> Any:
    return calling(question, **arguments).tool_calls[0]


@pytest.mark.parametrize("way", WAYS)
async def test_the_content_is_the_answer_and_the_artifact_the_record(
    way: str, groups: RetrievedGroups
) -> None:
    budget = account()
    tool = create_dp_tool(private_chain(groups, budget=budget), **ABOUT)
    message = await run(way, tool, call())
    assert (message.content, message.status, message.name) == (
        "cough",
        "success",
        "ask",
    )
    record = message.artifact
    assert record["status"] == "released"
    assert record["mechanism"] == "vote/gaussian"
    assert (record["charge"], record["account"]["queries_spent"]) == (1, 1)
    assert json.loads(json.dumps(record)) == record
    assert await run(way, tool, {"question": QUESTION}) == "cough"
    assert await run(way, tool, QUESTION) == "cough"
    # The same question is paid for once.
    assert len(journal(budget)) == 1


@pytest.mark.parametrize(("place", "way"), pairs(["chain", "bound", "config"], WAYS))
async def test_the_budget_is_found_wherever_it_is(
    place: str, way: str, groups: RetrievedGroups
) -> None:
    budget = account()
    chain: Any = private_chain(groups, budget=budget if place == "chain" else None)
    if place == "bound":
        chain = chain.with_config(tags=["x"]).with_config(callbacks=[budget])
    tool = create_dp_tool(chain, **ABOUT)
    await run(way, tool, call(), *([budget] if place == "config" else []))
    assert len(journal(budget)) == 1
    # The same account named twice is one account.
    await run(way, tool, call("What else?"), budget)
    assert len(journal(budget)) == 2


@pytest.mark.parametrize("way", WAYS)
async def test_a_spent_budget_is_an_error_message_that_says_what_to_do(
    way: str, groups: RetrievedGroups
) -> None:
    budget = account(queries=1)
    tool = create_dp_tool(private_chain(groups, budget=budget), **ABOUT)
    await run(way, tool, call())
    message = await run(way, tool, call("What else?"))
    assert message.status == "error"
    assert message.artifact is None
    assert "the privacy budget can't pay for it" in message.content
    assert "Account 'notes'" in message.content
    assert "Don't call 'ask' with a new question again" in message.content
    assert len(journal(budget)) == 1
    again = await run(way, tool, call())
    assert (again.content, again.artifact["status"]) == ("cough", "cached")


@pytest.mark.parametrize(("handled", "way"), pairs([True, False, "Over."], WAYS))
async def test_no_other_error_becomes_an_answer(
    handled: Any, way: str, groups: RetrievedGroups
) -> None:
    def fail(_text: str) -> str:
        raise RuntimeError(CANARY)

    budget, closed = account(), account(account="closed")
    closed.ledger.close_account("closed")
    failing = private_chain(
        groups,
        model=ScriptedModel(reply=fail),
        # It asks the model for candidates before anything is charged.
        parser=ESAOutputParser(embedding=HashingEmbeddings(), n_candidates=2),
        budget=budget,
    )
    chains: dict[type[Exception], DPChain] = {
        NoBudgetError: private_chain(groups),
        LedgerError: private_chain(groups, budget=closed),
        PublicCallError: failing,
    }
    for error, chain in chains.items():
        made = create_dp_tool(chain, **ABOUT)
        tool = made.model_copy(update={"handle_tool_error": handled})
        with pytest.raises(error) as caught:
            await run(way, tool, call())
        assert CANARY not in str(caught.value)
    assert not journal(budget)


@pytest.mark.parametrize("way", WAYS)
async def test_further_variables_of_the_prompts_are_arguments(
    way: str, groups: RetrievedGroups
) -> None:
    chain = private_chain(groups, prompt=LANGUAGE, budget=account())
    model = chain.model
    tool = create_dp_tool(chain, **ABOUT)
    schema: Any = tool.tool_call_schema
    properties = schema.model_json_schema()["properties"]
    assert list(properties) == ["question", "language"]
    assert properties["language"]["description"] == "The language"
    assert "not about one person" in properties["question"]["description"]
    await run(way, tool, call(language="Welsh"))
    assert all("In Welsh." in text for text in model.asked)
    for missing in ({}, {"language": " "}, {"language": "Welsh", "k": 1}):
        with pytest.raises(ValidationError):
            await run(way, tool, call(**missing))
    fixed = private_chain(groups, prompt=LANGUAGE.partial(language="Welsh"))
    schema = create_dp_tool(fixed, **ABOUT).tool_call_schema
    assert list(schema.model_json_schema()["properties"]) == ["question"]


def test_variables_that_a_model_cannot_give_are_refused(
    groups: RetrievedGroups,
) -> None:
    history = ChatPromptTemplate.from_messages(
        [MessagesPlaceholder("history"), ("human", "{context} {question}")]
    )
    with pytest.raises(InvalidParameterError, match=r"history .* takes messages"):
        create_dp_tool(private_chain(groups, prompt=history), **ABOUT)
    optional = ChatPromptTemplate.from_messages(
        [
            MessagesPlaceholder("history", optional=True),
            ("human", "{context} {question}"),
        ]
    )
    create_dp_tool(private_chain(groups, prompt=optional), **ABOUT)
    for taken in ("config", "callbacks", "self", "json", "class", "_x", "run_manager"):
        prompt = PromptTemplate.from_template(f"{{context}} {{question}} {{{taken}}}")
        with pytest.raises(InvalidParameterError, match=f"variable '{taken}'"):
            create_dp_tool(private_chain(groups, prompt=prompt), **ABOUT)


@pytest.mark.parametrize("name", ["", "ask notes", "ask.notes", "a" * 65, None, 3])
def test_a_name_that_providers_refuse_is_refused(
    name: Any, groups: RetrievedGroups
) -> None:
    with pytest.raises(InvalidParameterError, match="name"):
        create_dp_tool(private_chain(groups), name=name, description="About.")


def test_the_model_is_told_what_the_tool_cannot(groups: RetrievedGroups) -> None:
    chain = private_chain(groups)
    tool = create_dp_tool(chain, **ABOUT)
    assert tool.description.startswith("Answers about the notes.")
    assert tool.description.endswith(GUIDANCE)
    direct = tool.model_copy(update={"return_direct": True})
    assert direct.return_direct
    assert direct.invoke(call(), {"callbacks": [account()]}).content == "cough"
    with pytest.raises(InvalidParameterError, match="description is empty"):
        create_dp_tool(chain, name="ask", description=" ")
