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

from langchain_dpicl import LedgerError, RetrievedGroups
from langchain_dpicl.budget.buying import Purchase
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
async def test_a_call_that_was_answered_is_not_charged_again_when_another_failed(
    way: str, groups: RetrievedGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = account()
    bought, charged = Purchase.bought, 0

    def fails_once(self: Purchase) -> Any:
        nonlocal charged
        charged += 1
        if charged == 2:
            raise LedgerError("The ledger is away.")
        return bought(self)

    monkeypatch.setattr(Purchase, "bought", fails_once)
    model = AgentModel(turns=[calling("What?", "Which?"), "Cough."])
    # One at a time: what fails second must not stop what was answered first.
    agent = create_agent(model, tools=[privately(groups)], checkpointer=InMemorySaver())
    one_by_one = {**THREAD, "max_concurrency": 1}
    with pytest.raises(LedgerError, match="away"):
        await run(way, agent, asking(), budget, **one_by_one)
    assert len(journal(budget)) == 1
    state = await run(way, agent, None, budget, **one_by_one)
    assert statuses(state) == ["success", "success"]
    assert charged == 3
    assert len(journal(budget)) == 2


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
async def test_a_run_that_broke_off_after_the_charge_pays_again_unless_cached(
    cache: bool, way: str, groups: RetrievedGroups
) -> None:
    budget = account()
    model = AgentModel(turns=[calling(QUESTION), "Cough."])
    agent = create_agent(
        model,
        tools=[privately(groups, cache=cache)],
        middleware=[Crash()],
        checkpointer=InMemorySaver(),
    )
    with pytest.raises(RuntimeError, match="power"):
        await run(way, agent, asking(), budget, **THREAD)
    assert len(journal(budget)) == 1
    state = await run(way, agent, None, budget, **THREAD)
    (message,) = tool_messages(state)
    assert message.artifact["status"] == ("cached" if cache else "released")
    assert message.content == "cough"
    assert len(journal(budget)) == (1 if cache else 2)


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


@pytest.mark.parametrize("way", WAYS)
async def test_a_retry_does_not_try_a_spent_budget_again(
    way: str, groups: RetrievedGroups
) -> None:
    budget = account(queries=1)
    private_chain(groups, budget=budget).invoke("What else?")
    before = budget.ledger.heads()
    retry = ToolRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    model = AgentModel(turns=[calling(QUESTION), "No."])
    agent = create_agent(model, tools=[privately(groups)], middleware=[retry])
    state = await run(way, agent, asking(), budget)
    assert statuses(state) == ["error"]
    assert budget.ledger.heads() == before


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cache", [False, True])
async def test_a_fork_of_a_thread_pays_again_unless_cached(
    cache: bool, way: str, groups: RetrievedGroups
) -> None:
    budget = account()
    model = AgentModel(turns=[calling(QUESTION), "Cough.", "Cough, again."])
    agent = create_agent(
        model,
        tools=[privately(groups, cache=cache)],
        checkpointer=InMemorySaver(),
    )
    await run(way, agent, asking(), budget, **THREAD)
    before = next(
        found for found in agent.get_state_history(THREAD) if found.next == ("tools",)
    )
    await run(way, agent, None, budget, **before.config)
    assert len(journal(budget)) == (1 if cache else 2)


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
    ("way", "passes_config"), [("invoke", False), ("invoke", True), ("ainvoke", True)]
)
@pytest.mark.parametrize("saved", [False, True])
async def test_a_sub_agent_charges_the_account_of_the_run(
    saved: bool, passes_config: bool, way: str, groups: RetrievedGroups
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


@pytest.mark.parametrize("way", WAYS)
async def test_the_tool_says_what_is_wrong(way: str, groups: RetrievedGroups) -> None:
    budget = account(queries=1)
    dp_tool = create_dp_tool(private_chain(groups), name="ask", description="Notes.")
    model = AgentModel(turns=[calling(""), calling("What?"), calling("How?"), "Done."])
    agent = create_agent(model, tools=[dp_tool])
    state = await run(way, agent, asking(), budget)
    blank, answer, refused = tool_messages(state)
    assert (blank.status, answer.status, refused.status) == (
        "error",
        "success",
        "error",
    )
    assert "must not be empty" in str(blank.content)
    assert "Don't call 'ask' with a new question again" in str(refused.content)
    assert len(journal(budget)) == 1
    model = AgentModel(turns=[calling(QUESTION), "Done."])
    with pytest.raises(LedgerError):
        budget.ledger.close_account("notes")
        await run(way, create_agent(model, tools=[dp_tool]), asking(), budget)
