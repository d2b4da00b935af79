"""LangGraph: a chain as a node of a graph, and as the tool of an agent.

The agent is LangChain's own, `create_agent`. The tool's message says when the budget is
spent. The agent's model here is a scripted stand-in, so that the example runs without a
key: it asks the tool each question it is given, and points to what the tool has said.
Put any chat model that calls tools in its place.
"""

import re
from collections.abc import Sequence
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.runnables.config import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
    create_dp_tool,
)
from langchain_dpicl.demo import clinic
from langchain_dpicl.offline import HashingEmbeddings, OfflineChatModel

ASKED = [
    (
        "Which side effect do patients on lisinopril report most? "
        "What is the phone number of Theo Ivanova?"
    ),
    "Which side effect do patients on metformin report most?",
    "Which side effect do patients on sertraline report most?",
]


class ScriptedAgentModel(BaseChatModel):
    """A stand-in for a model that calls tools; it follows three rules."""

    @property
    def _llm_type(self) -> str:
        return "scripted-stand-in"

    def bind_tools(self, tools: Sequence[Any], **_: Any) -> Runnable[Any, Any]:
        """Remember which tool there is."""
        return self.bind(tool=tools[0].name)

    def _generate(
        self, messages: list[BaseMessage], *_: Any, tool: str = "", **__: Any
    ) -> ChatResult:
        said = messages[-1]
        if isinstance(said, ToolMessage) and said.status == "error":
            turn = AIMessage("I can't ask the notes any more: the budget is spent.")
        elif isinstance(said, ToolMessage):
            turn = AIMessage("I asked the notes. See above for what they have to say.")
        else:
            questions = re.findall(r"[^?]+\?", said.text)
            calls = [
                {"name": tool, "args": {"question": text.strip()}, "id": f"{number}"}
                for number, text in enumerate(questions)
            ]
            turn = AIMessage("", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=turn)])


def main() -> None:
    groups = RetrievedGroups.from_documents(
        clinic(),
        HashingEmbeddings(),
        unit_key="patient_id",
        n_groups=100,
        docs_per_group=8,
    )
    chain = DPChain(
        groups=groups, model=OfflineChatModel(), parser=VoteOutputParser(labels="draft")
    )
    budget = PrivacyBudgetHandler(
        epsilon=4, delta=1e-6, queries=3, ledger=":memory:", account="example"
    )

    # A node: the last message is the question, and the answer is the next one.
    def ask(state: MessagesState, config: RunnableConfig) -> dict[str, Any]:
        return {"messages": [chain.invoke(state["messages"][-1].text, config)]}

    graph = StateGraph(MessagesState).add_node("ask", ask).add_edge(START, "ask")
    asked = "Which drug do patients with asthma take most?"
    state = graph.compile().invoke(
        {"messages": [HumanMessage(asked)]}, {"callbacks": [budget]}
    )
    print(f"node:   {asked}\n        {state['messages'][-1].text}\n")

    # A tool.
    agent = create_agent(
        ScriptedAgentModel(),
        tools=[
            create_dp_tool(
                chain, name="ask_notes", description="Asks the clinic's notes."
            )
        ],
        checkpointer=InMemorySaver(),
    )
    config: Any = {"callbacks": [budget], "configurable": {"thread_id": "a visit"}}
    for text in ASKED:
        before = len(agent.get_state(config).values.get("messages", []))
        state = agent.invoke({"messages": [HumanMessage(text)]}, config)
        for message in state["messages"][before:]:
            show(message)
        spent = budget.spent().epsilon
        print(f"        epsilon spent: {spent:.2f} of {budget.epsilon:g}\n")


def show(message: BaseMessage) -> None:
    if isinstance(message, HumanMessage):
        print("you:   ", message.text)
    elif isinstance(message, ToolMessage):
        status = message.artifact["status"] if message.artifact else "refused"
        print(f"tool:   ({status}) {message.text}")
    elif isinstance(message, AIMessage) and message.tool_calls:
        for call in message.tool_calls:
            print(f"agent:  calls {call['name']}: {call['args']['question']}")
    else:
        print("agent: ", message.text)


if __name__ == "__main__":
    main()
