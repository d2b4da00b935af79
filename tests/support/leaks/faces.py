"""A chain's other faces: a tool, an agent with it, a retriever."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from langchain_dpicl import DPRetriever
from langchain_dpicl.agents import PrivacyBudgetMiddleware
from langchain_dpicl.tools import create_dp_tool
from support.leaks.observer import Stage
from support.leaks.ways import MODES, Way, on_a_loop

DESCRIPTION = "Answers questions about a clinic's notes."


class AgentModel(BaseChatModel):
    """Asks the tool what it was asked, and then says what the tool said."""

    @property
    def _llm_type(self) -> str:
        return "agent"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        last = messages[-1]
        said = AIMessage(f"They say: {last.content}")
        if not isinstance(last, ToolMessage):
            said = AIMessage("", tool_calls=[_call(str(last.content))])
        return ChatResult(generations=[ChatGeneration(message=said)])


def _call(question: str) -> Any:
    return {
        "type": "tool_call",
        "id": "call-1",
        "name": "ask",
        "args": {"question": question},
    }


def _tool(stage: Stage) -> Any:
    tool = create_dp_tool(stage.parts["chain"], name="ask", description=DESCRIPTION)
    stage.parts["tool"] = tool
    return stage.wrapped(tool)


def _retriever(stage: Stage) -> Any:
    stage.parts["retriever"] = DPRetriever(chain=stage.parts["chain"])
    return stage.wrapped(stage.parts["retriever"])


def _agent(stage: Stage, saver: InMemorySaver) -> Any:
    middleware = PrivacyBudgetMiddleware(
        stage.parts["chain"],
        budget=stage.parts["budget"],
        name="ask",
        description=DESCRIPTION,
    )
    return stage.wrapped(
        create_agent(AgentModel(), middleware=[middleware], checkpointer=saver)
    )


def _asked(stage: Stage, question: str) -> tuple[Any, Any]:
    config = {**stage.config, "configurable": {"thread_id": "1"}}
    return {"messages": [("user", question)]}, config


def tool(stage: Stage, chain: Any, question: str) -> None:
    stage.outputs.append(_tool(stage).invoke(_call(question), stage.config))


def retriever(stage: Stage, chain: Any, question: str) -> None:
    found = _retriever(stage).invoke(question, stage.config)
    stage.outputs.append({"documents": found})


def agent(stage: Stage, chain: Any, question: str) -> None:
    saver = InMemorySaver()
    given, config = _asked(stage, question)
    for part in _agent(stage, saver).stream(
        given, config, stream_mode=MODES, subgraphs=True
    ):
        stage.outputs.append(part)
    stage.outputs.append([saver.storage, saver.blobs, saver.writes])


async def atool(stage: Stage, chain: Any, question: str) -> None:
    stage.outputs.append(await _tool(stage).ainvoke(_call(question), stage.config))


async def aretriever(stage: Stage, chain: Any, question: str) -> None:
    found = await _retriever(stage).ainvoke(question, stage.config)
    stage.outputs.append({"documents": found})


async def agent_events(stage: Stage, chain: Any, question: str) -> None:
    saver = InMemorySaver()
    given, config = _asked(stage, question)
    async for event in _agent(stage, saver).astream_events(given, config, version="v2"):
        stage.outputs.append(event)
    stage.outputs.append([saver.storage, saver.blobs, saver.writes])


SYNC_FACES: dict[str, Way] = {"tool": tool, "retriever": retriever, "agent": agent}
ASYNC_FACES: dict[str, Way] = {
    "atool": on_a_loop(atool),
    "aretriever": on_a_loop(aretriever),
    "agent_events": on_a_loop(agent_events),
}
