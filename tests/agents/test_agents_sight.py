"""What an agent stores, streams and says holds nothing private.

Each observer also watches a twin: an agent whose tool hands out the records, as
retrieval tools do. There it must find the canary.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.tools import StructuredTool
from langgraph.checkpoint.memory import InMemorySaver
from support.agent_parts import (
    CANARY,
    QUESTION,
    AgentModel,
    account,
    asking,
    calling,
    canaried_chain,
    run,
)
from support.fakes import notes

from langchain_dpicl import PrivacyBudgetHandler
from langchain_dpicl.tools import create_dp_tool

MODES = ["values", "updates", "messages", "custom", "checkpoints", "tasks", "debug"]


def leaky() -> StructuredTool:
    """The twin's tool: it hands out a record."""

    def ask(question: str) -> str:
        return notes(1, CANARY)[0].page_content

    return StructuredTool.from_function(ask, name="ask", description="Notes.")


def agent(checkpointer: InMemorySaver, *, private: bool, **chain: Any) -> Any:
    model = AgentModel(turns=[calling(QUESTION, "Which?"), calling("How?"), "Cough."])
    tool = leaky()
    if private:
        chained = canaried_chain(**chain)
        tool = create_dp_tool(chained, name="ask", description="Notes.")
    return create_agent(model, tools=[tool], checkpointer=checkpointer)


def stored(checkpointer: InMemorySaver) -> bytes:
    """All that a checkpointer holds: states, blobs and pending writes."""
    found = repr((checkpointer.storage, checkpointer.writes, checkpointer.blobs))
    return found.encode()


@pytest.fixture
def budget() -> PrivacyBudgetHandler:
    # Two of three calls can be paid: refusals are seen too.
    return account(queries=2)


THREAD = {"configurable": {"thread_id": "1"}}


@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
@pytest.mark.parametrize("private", [True, False])
async def test_checkpoints_and_states(
    private: bool, way: str, budget: PrivacyBudgetHandler
) -> None:
    saver = InMemorySaver()
    watched = agent(saver, private=private)
    state = await run(way, watched, asking(), budget, **THREAD)
    history = list(watched.get_state_history(THREAD))
    assert len(history) > 4
    assert b"cough" in stored(saver).lower() or not private
    for seen in (stored(saver), repr(history).encode(), repr(state).encode()):
        assert (CANARY.encode() not in seen) == private


@pytest.mark.parametrize("private", [True, False])
async def test_streams(private: bool, budget: PrivacyBudgetHandler) -> None:
    given: Any = {"stream_mode": MODES, "subgraphs": True}
    config: Any = {"callbacks": [budget], **THREAD}
    watched = agent(InMemorySaver(), private=private)
    pieces = list(watched.stream(asking(), config, **given))
    watched = agent(InMemorySaver(), private=private)
    config = {"callbacks": [account(queries=2)], **THREAD}
    pieces += [piece async for piece in watched.astream(asking(), config, **given)]
    seen = {mode: repr([p for _, m, p in pieces if m == mode]) for mode in MODES}
    # Nothing of ours is written to the custom stream, and nothing of the twin's.
    assert seen.pop("custom") == "[]"
    assert all("ough" in each for each in seen.values())
    for each in seen.values():
        assert (CANARY not in each) == private


@pytest.mark.parametrize("private", [True, False])
async def test_events(private: bool, budget: PrivacyBudgetHandler) -> None:
    config: Any = {"callbacks": [budget], **THREAD}
    watched = agent(InMemorySaver(), private=private)
    seen = [
        event async for event in watched.astream_events(asking(), config, version="v2")
    ]
    expected = {"on_tool_end"}
    if sys.version_info >= (3, 11):
        # Before, LangChain's own agent does not hand its config on to the model.
        expected.add("on_chat_model_end")
    assert expected <= {event["event"] for event in seen}
    assert (CANARY not in repr(seen)) == private
