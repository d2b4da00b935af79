"""What is charged in parallel, interrupted, resumed, forked, retried and nested runs.

Counted in the ledger's journal, not in what the agent says.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    HumanInTheLoopMiddleware,
    ToolRetryMiddleware,
)
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from support.agent_parts import (
    QUESTION,
    WAYS,
    AgentModel,
    account,
    asking,
    calling,
    journal,
    private_chain,
    run,
    tool_messages,
)

from langchain_dpicl import RetrievedGroups
from langchain_dpicl.tools import create_dp_tool

THREAD = {"configurable": {"thread_id": "1"}}


class Crash(AgentMiddleware):  # type: ignore[misc]
    """Breaks off the first `times` tool calls, after they were answered and paid."""

    def __init__(self, times: int = 1) -> None:
        super().__init__()
        self.left = times

    def _crash(self, message: Any) -> Any:
        if self.left and message.status != "error":
            self.left -= 1
            raise RuntimeError("The power is gone.")
        return message

    def wrap_tool_call(self, request: Any, handler: Any) -> Any:
        return self._crash(handler(request))

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        return self._crash(await handler(request))


def privately(groups: RetrievedGroups, **changes: Any) -> StructuredTool:
    chain = private_chain(groups, **changes)
    return create_dp_tool(chain, name="ask", description="Notes.")


def statuses(state: Any) -> list[str]:
    return sorted(message.status for message in tool_messages(state))


@pytest.mark.parametrize("way", WAYS)
async def test_parallel_calls_are_charged_once_each_as_far_as_the_budget_goes(
    way: str, groups: RetrievedGroups
) -> None:
    budget = account(queries=2)
    model = AgentModel(turns=[calling("What?", "Which?", "How?"), "Cough."])
    agent = create_agent(model, tools=[privately(groups)])
    state = await run(way, agent, asking(), budget)
    assert statuses(state) == ["error", "success", "success"]
    answered = [m for m in tool_messages(state) if m.status == "success"]
    charges = [m.artifact["charge"] for m in answered]
    assert sorted(charges) == [entry.charge for entry in journal(budget)]
    assert sorted(charges) == [1, 2]


@pytest.mark.parametrize("way", WAYS)
async def test_an_interrupted_thread_is_charged_when_it_goes_on(
    way: str, groups: RetrievedGroups
) -> None:
    budget = account()
    model = AgentModel(turns=[calling(QUESTION), "Cough.", "As I said."])
    agent = create_agent(
        model,
        tools=[privately(groups)],
        checkpointer=InMemorySaver(),
        interrupt_before=["tools"],
    )
    await run(way, agent, asking(), budget, **THREAD)
    assert not journal(budget)
    state = await run(way, agent, None, budget, **THREAD)
    assert state["messages"][-1].text == "Cough."
    assert len(journal(budget)) == 1
    # The thread goes on: what it has answered is not asked again.
    state = await run(way, agent, asking("Say it again."), budget, **THREAD)
    assert state["messages"][-1].text == "As I said."
    assert len(journal(budget)) == 1


# LangChain's own HumanInTheLoopMiddleware is not for asynchronous use before 3.11.
INTERRUPTIBLE = WAYS if sys.version_info >= (3, 11) else ["invoke"]


@pytest.mark.parametrize("way", INTERRUPTIBLE)
@pytest.mark.parametrize("decision", ["approve", "reject", "edit"])
async def test_a_human_decides_before_the_charge(
    decision: str, way: str, groups: RetrievedGroups
) -> None:
    budget = account()
    chain = private_chain(groups)
    model = AgentModel(turns=[calling(QUESTION), "Done."])
    agent = create_agent(
        model,
        tools=[create_dp_tool(chain, name="ask", description="Notes.")],
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"ask": True})],
        checkpointer=InMemorySaver(),
    )
    state = await run(way, agent, asking(), budget, **THREAD)
    assert "__interrupt__" in state
    assert not journal(budget)
    verdict: dict[str, Any] = {"type": decision}
    if decision == "edit":
        edited = {"name": "ask", "args": {"question": "And lisinopril?"}}
        verdict["edited_action"] = edited
    command = Command(resume={"decisions": [verdict]})
    state = await run(way, agent, command, budget, **THREAD)
    assert state["messages"][-1].text == "Done."
    assert len(journal(budget)) == (0 if decision == "reject" else 1)
    asked = any("And lisinopril?" in text for text in chain.model.asked)
    assert asked == (decision == "edit")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cache", [False, True])
async def test_a_retried_call_pays_again_unless_cached(
    cache: bool, way: str, groups: RetrievedGroups
) -> None:
    budget = account()
    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    model = AgentModel(turns=[calling(QUESTION), "Cough."])
    agent = create_agent(
        model,
        tools=[privately(groups, cache=cache)],
        middleware=[retry, Crash(times=2)],
    )
    state = await run(way, agent, asking(), budget)
    assert statuses(state) == ["success"]
    assert len(journal(budget)) == (1 if cache else 3)


def nested(inner: Any, *, passes_config: bool) -> StructuredTool:
    """A tool that is an agent itself."""

    def ask(question: str, config: RunnableConfig) -> str:
        # Without a config LangChain takes the run's own out of the context.
        given = config if passes_config else None
        return str(inner.invoke(asking(question), given)["messages"][-1].text)

    async def aask(question: str, config: RunnableConfig) -> str:
        # On Python 3.10 an asynchronous context is not enough: the config is passed.
        state = await inner.ainvoke(asking(question), config)
        return str(state["messages"][-1].text)

    return StructuredTool.from_function(
        ask, aask, name="clerk", description="Looks into the notes."
    )


@pytest.mark.parametrize(
    ("way", "passes_config", "saved"),
    [("invoke", False, True), ("invoke", True, False), ("ainvoke", True, True)],
)
async def test_a_sub_agent_charges_the_account_of_the_run(
    way: str, passes_config: bool, saved: bool, groups: RetrievedGroups
) -> None:
    budget = account(queries=2)
    inner_model = AgentModel(
        turns=[
            calling(QUESTION),
            "The notes say cough.",
            calling("Which cough?"),
            "Cough again.",
            calling("Which rash?"),
            "The budget is spent.",
        ]
    )
    inner = create_agent(
        inner_model,
        tools=[privately(groups)],
    )
    outer_model = AgentModel(
        turns=[calling(f"{turn}", tool="clerk") for turn in range(3)] + ["They cough."]
    )
    outer = create_agent(
        outer_model,
        tools=[nested(inner, passes_config=passes_config)],
        checkpointer=InMemorySaver() if saved else None,
    )
    state = await run(way, outer, asking(), budget, **THREAD)
    assert state["messages"][-1].text == "They cough."
    first, second, third = (str(m.content) for m in tool_messages(state))
    assert (first, second) == ("The notes say cough.", "Cough again.")
    assert third == "The budget is spent."
    assert len(journal(budget)) == 2
