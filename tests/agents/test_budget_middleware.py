"""An agent is told, or ends, when its privacy budget is spent."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import SystemMessage
from langchain_core.tools import tool as plain_tool
from support.agent_parts import (
    ENDED,
    QUESTION,
    SPENT,
    WAYS,
    AgentModel,
    account,
    asking,
    calling,
    journal,
    middleware,
    private_chain,
    run,
    texts,
    tool_messages,
)
from support.fakes import ScriptedModel

from langchain_dpicl import (
    InvalidParameterError,
    LedgerError,
    NoBudgetError,
    PrivacyBudgetHandler,
    RetrievedGroups,
)
from langchain_dpicl.agents import PrivacyBudgetMiddleware
from langchain_dpicl.tools import create_dp_tool


@plain_tool
def today() -> str:
    """Say what day it is."""
    return "Friday"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", ["chain", "middleware", "config"])
async def test_the_agent_gets_the_tool_the_answer_and_the_record(
    place: str, way: str, groups: RetrievedGroups
) -> None:
    budget = account()
    model = AgentModel(turns=[calling(QUESTION), "They cough."])
    chain = private_chain(groups, budget=budget if place == "chain" else None)
    bringing = PrivacyBudgetMiddleware(
        chain,
        budget=budget if place == "middleware" else None,
        name="ask",
        description="The clinic's notes.",
    )
    agent = create_agent(model, middleware=[bringing])
    used = [budget] if place == "config" else []
    state = await run(way, agent, asking(), *used)
    (message,) = tool_messages(state)
    assert (message.content, message.status) == ("cough", "success")
    assert message.artifact["account"]["queries_spent"] == 1
    assert texts(state)[-1] == "They cough."
    assert model.offered == [["ask"], ["ask"]]
    assert [model.system_of(turn) for turn in (0, 1)] == ["", ""]
    assert len(journal(budget)) == 1
    assert set(state) == {"messages"}


@pytest.mark.parametrize("way", WAYS)
async def test_an_informed_model_is_told_and_goes_on(
    way: str, groups: RetrievedGroups
) -> None:
    budget = account(queries=1)
    model = AgentModel(
        turns=[calling(QUESTION), calling(QUESTION), calling_today(), "Friday, cough."]
    )
    agent = create_agent(model, tools=[today], middleware=[middleware(groups)])
    state = await run(way, agent, asking(), budget)
    answer, refused, day = tool_messages(state)
    assert (answer.content, answer.status) == ("cough", "success")
    assert refused.status == "error"
    assert "Don't call 'ask' again" in str(refused.content)
    assert day.content == "Friday"
    assert texts(state)[-1] == "Friday, cough."
    told = [SPENT in model.system_of(turn) for turn in range(4)]
    assert told == [False, True, True, True]
    # The tool stays: providers refuse a history with calls of an unknown tool.
    assert all("ask" in offered for offered in model.offered)
    assert len(journal(budget)) == 1


def calling_today() -> Any:
    message = calling("", tool="today")
    message.tool_calls[0]["args"] = {}
    return message


@pytest.mark.parametrize("way", WAYS)
async def test_a_model_that_does_not_listen_is_stopped(
    way: str, groups: RetrievedGroups
) -> None:
    budget = account(queries=1)
    stubborn = [calling(f"{QUESTION} {turn}") for turn in range(20)]
    model = AgentModel(turns=stubborn)
    agent = create_agent(model, middleware=[middleware(groups)])
    state = await run(way, agent, asking(), budget)
    assert ENDED in texts(state)[-1]
    assert [m.status for m in tool_messages(state)] == ["success", *["error"] * 3]
    assert len(model.asked) == 4
    assert len(journal(budget)) == 1
    # Refusals that are not on end are no stubbornness, nor are those of another run.
    turns = [calling(QUESTION), calling_today()] * 4
    model = AgentModel(turns=[*turns, *stubborn[:2], "Friday."])
    agent = create_agent(model, tools=[today], middleware=[middleware(groups)])
    assert texts(await run(way, agent, asking(), budget))[-1] == "Friday."
    model = AgentModel(turns=[calling(QUESTION), "No."])
    agent = create_agent(model, middleware=[middleware(groups)])
    earlier = {"messages": [*state["messages"][:-1], *asking()["messages"]]}
    assert texts(await run(way, agent, earlier, budget))[-1] == "No."


@pytest.mark.parametrize("way", WAYS)
async def test_a_run_without_budget_ends_before_the_model_is_asked(
    way: str, groups: RetrievedGroups
) -> None:
    budget = account(queries=1)
    private_chain(groups, budget=budget).invoke(QUESTION)
    model = AgentModel(turns=[])
    agent = create_agent(model, middleware=[middleware(groups, "end")])
    state = await run(way, agent, asking(), budget)
    assert texts(state)[-1].startswith(f"{ENDED}: epsilon ")
    assert "of 30 is spent, at delta 1e-06" in texts(state)[-1]
    assert state["messages"][-1].type == "ai"
    assert not model.asked
    assert len(journal(budget)) == 1


@pytest.mark.parametrize("way", WAYS)
async def test_the_last_paid_answer_is_put_into_words_before_the_end(
    way: str, groups: RetrievedGroups
) -> None:
    budget = account(queries=1)
    model = AgentModel(turns=[calling(QUESTION), "They cough."])
    agent = create_agent(model, middleware=[middleware(groups, "end")])
    state = await run(way, agent, asking(), budget)
    assert texts(state)[-1] == "They cough."
    assert SPENT in model.system_of(1)
    # One that goes on asking ends there.
    budget = account(queries=1)
    model = AgentModel(turns=[calling(QUESTION), calling(QUESTION)])
    agent = create_agent(model, middleware=[middleware(groups, "end")])
    state = await run(way, agent, asking(), budget)
    assert ENDED in texts(state)[-1]
    assert [m.status for m in tool_messages(state)] == ["success", "error"]
    assert len(journal(budget)) == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mode", ["inform", "end"])
async def test_without_an_account_no_model_is_asked(
    mode: str, way: str, groups: RetrievedGroups
) -> None:
    model = AgentModel(turns=[calling(QUESTION), "."])
    agent = create_agent(model, middleware=[middleware(groups, mode)])
    with pytest.raises(NoBudgetError):
        await run(way, agent, asking())
    assert not model.asked


@pytest.mark.parametrize("way", WAYS)
async def test_a_ledger_that_cannot_be_read_aborts(
    way: str, groups: RetrievedGroups, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = account()

    def lost(_name: str) -> Any:
        raise LedgerError("The ledger is away.")

    monkeypatch.setattr(budget.ledger, "state", lost)
    model = AgentModel(turns=[])
    agent = create_agent(model, middleware=[middleware(groups)])
    with pytest.raises(LedgerError, match="away"):
        await run(way, agent, asking(), budget)


@pytest.mark.parametrize("way", WAYS)
async def test_with_a_cache_what_was_paid_for_can_be_repeated(
    way: str, groups: RetrievedGroups
) -> None:
    budget = account(queries=1)
    model = AgentModel(turns=[calling(QUESTION), calling(QUESTION), "Cough."])
    agent = create_agent(model, middleware=[middleware(groups, cache=True)])
    state = await run(way, agent, asking(), budget)
    statuses = [m.artifact["status"] for m in tool_messages(state)]
    assert statuses == ["released", "cached"]
    assert "Only a question that was answered before" in model.system_of(1)
    assert len(journal(budget)) == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("blocks", [False, True])
async def test_the_system_prompt_is_kept(
    blocks: bool, way: str, groups: RetrievedGroups
) -> None:
    budget = account(queries=1)
    private_chain(groups, budget=budget).invoke(QUESTION)
    content: Any = [{"type": "text", "text": "Be kind."}] if blocks else "Be kind."
    model = AgentModel(turns=["Fine."])
    agent = create_agent(
        model,
        system_prompt=SystemMessage(content=content),
        middleware=[middleware(groups)],
    )
    await run(way, agent, asking(), budget)
    assert model.system_of(0).startswith("Be kind.")
    assert SPENT in model.system_of(0)


@pytest.mark.parametrize("way", WAYS)
async def test_two_chains_with_accounts_of_their_own(
    way: str, groups: RetrievedGroups
) -> None:
    one, other = account(queries=1), account(queries=5, account="other")
    both = [
        PrivacyBudgetMiddleware(
            private_chain(groups), budget=budget, on_exhausted="end", name=name
        )
        for name, budget in (("ask_one", one), ("ask_other", other))
    ]
    model = AgentModel(
        turns=[
            calling(QUESTION, tool="ask_one"),
            calling(QUESTION, tool="ask_other"),
            "Cough.",
        ]
    )
    # As tools of one middleware the run goes on while one of them can be paid.
    tools = [tool for found in both for tool in found.tools]
    together = PrivacyBudgetMiddleware(tools, on_exhausted="end")
    agent = create_agent(model, middleware=[together])
    state = await run(way, agent, asking())
    assert texts(state)[-1] == "Cough."
    assert SPENT not in model.system_of(0)
    assert "'ask_one'" in model.system_of(1)
    assert "'ask_other'" not in model.system_of(1)
    assert [len(journal(budget)) for budget in (one, other)] == [1, 1]
    # As two of them, each ends the run for its own.
    agent = create_agent(AgentModel(turns=[]), middleware=both)
    assert ENDED in texts(await run(way, agent, asking()))[-1]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("order", [1, -1])
async def test_each_of_two_tells_of_its_own_tool(
    order: int, way: str, groups: RetrievedGroups
) -> None:
    spent, rich = account(queries=1), account(account="rich")
    private_chain(groups, budget=spent).invoke(QUESTION)
    both = [
        PrivacyBudgetMiddleware(private_chain(groups, budget=budget), name=name)
        for name, budget in (("ask_one", spent), ("ask_other", rich))
    ]
    model = AgentModel(turns=["Fine."])
    agent = create_agent(model, middleware=both[::order])
    await run(way, agent, asking())
    assert model.system_of(0).count(SPENT) == 1
    assert "'ask_one'" in model.system_of(0)
    assert "'ask_other'" not in model.system_of(0)


async def test_a_tool_is_taken_as_it_is(groups: RetrievedGroups) -> None:
    budget = account()
    tool = create_dp_tool(
        private_chain(groups), name="ask", description="Notes.", return_direct=True
    )
    bringing = PrivacyBudgetMiddleware(tool, budget=budget)
    agent = create_agent(AgentModel(turns=[calling(QUESTION)]), middleware=[bringing])
    state = agent.invoke(asking())
    assert texts(state)[-1] == "cough"
    assert len(journal(budget)) == 1
    # The tool itself still has no account.
    with pytest.raises(NoBudgetError):
        tool.invoke({"question": QUESTION})


def test_wrong_arguments_are_refused(groups: RetrievedGroups) -> None:
    chain = private_chain(groups)
    tool = create_dp_tool(chain, name="ask", description="Notes.")
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (chain, {"on_exhausted": "stop"}, "'inform' or 'end'"),
        (today, {}, "'today' is not a tool of create_dp_tool"),
        ([tool, today], {}, "'today' is not a tool of create_dp_tool"),
        ([], {}, "needs a tool"),
        ([tool, tool], {}, "no two of one name"),
        (None, {}, "not NoneType"),
        ("ask", {}, "not str"),
        (tool, {"name": "other"}, "a tool has its own"),
        (ScriptedModel(), {}, "takes a DPChain"),
        (chain, {"name": ""}, "name"),
        (chain, {"description": " "}, "description is empty"),
    ]
    for given, changes, said in wrong:
        with pytest.raises(InvalidParameterError, match=said):
            PrivacyBudgetMiddleware(given, **changes)
    other: PrivacyBudgetHandler = account(account="other")
    with pytest.raises(NoBudgetError, match="'notes', 'other'"):
        PrivacyBudgetMiddleware(private_chain(groups, budget=account()), budget=other)


def test_without_langchain_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import langchain_dpicl.agents as found

    monkeypatch.delitem(sys.modules, "langchain_dpicl.agents.middleware")
    monkeypatch.setitem(sys.modules, "langchain.agents.middleware", None)
    with pytest.raises(ImportError, match=r"pip install langchain"):
        _ = found.PrivacyBudgetMiddleware
    with pytest.raises(AttributeError, match="nothing"):
        _ = found.nothing
    assert dir(found) == ["PrivacyBudgetMiddleware"]
