"""A stream of events, or of LangGraph's messages, shows one answer and no draft."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.graph import END, START, StateGraph
from support.chain_parts import EMBEDDING, PARSERS, QUESTION, reply, rich
from support.fakes import ScriptedModel, notes
from typing_extensions import TypedDict

from langchain_dpicl import DPChain, RetrievedGroups
from langchain_dpicl.chain import public_model

GROUPS = RetrievedGroups.from_documents(
    notes(900), EMBEDDING, unit_key="patient", n_groups=60
)
DRAFT = "I don't know."


class TokenModel(ScriptedModel):
    """Streams its answer word by word."""

    def _stream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        text = str(self._generate(messages).generations[0].message.content)
        for piece in text.split():
            yield ChatGenerationChunk(message=AIMessageChunk(content=piece + " "))

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> Any:
        for piece in self._stream(messages):
            yield piece


class AsyncTokenModel(TokenModel):
    async def _agenerate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> Any:
        return self._generate(messages)


def chain_of(model_class: Any = TokenModel, name: str = "ptr") -> DPChain:
    model = model_class(reply=reply)
    return DPChain(groups=GROUPS, model=model, parser=PARSERS[name](), budget=rich())


async def model_events(asked: Any, given: Any) -> tuple[str, list[set[str]]]:
    """Return the tokens of the models' stream events, and the models' tags."""
    said, tags = [], []
    async for event in asked.astream_events(given, version="v2"):
        if event["event"] == "on_chat_model_stream":
            said.append(event["data"]["chunk"].text)
        if event["event"] == "on_chat_model_start":
            tags.append(set(event["tags"]))
    return "".join(said), tags


@pytest.mark.parametrize("model_class", [TokenModel, AsyncTokenModel])
@pytest.mark.parametrize("name", ["ptr", "esa"])
@pytest.mark.parametrize("nested", [False, True])
async def test_events_show_no_tokens_of_a_draft(
    model_class: Any, name: str, nested: bool
) -> None:
    chain = chain_of(model_class, name)
    asked: Any = chain

    async def ask(question: str, config: RunnableConfig) -> Any:
        return await chain.ainvoke(question, config)

    if nested:
        asked = RunnableLambda(ask)
    said, tags = await model_events(asked, QUESTION)
    assert DRAFT not in said
    assert said.count("They coughed") == (name == "ptr")
    assert all("dpicl:public" in each for each in tags)
    assert len(tags) == (2 if name == "ptr" else 1)


class State(TypedDict, total=False):
    question: str
    messages: list[BaseMessage]


def graph_of(chain: DPChain) -> Any:
    def node(state: State, config: RunnableConfig) -> State:
        return {"messages": [chain.invoke(state["question"], config)]}

    async def anode(state: State, config: RunnableConfig) -> State:
        return {"messages": [await chain.ainvoke(state["question"], config)]}

    graph = StateGraph(State)
    graph.add_node("clinic", RunnableLambda(node, afunc=anode))
    graph.add_edge(START, "clinic")
    graph.add_edge("clinic", END)
    return graph.compile()


async def messages_of(chain: DPChain, *, is_async: bool) -> list[str]:
    graph, given = graph_of(chain), {"question": QUESTION}
    if is_async:
        found = [m async for m, _ in graph.astream(given, stream_mode="messages")]
    else:
        found = [m for m, _ in graph.stream(given, stream_mode="messages")]
    return [message.text for message in found]


@pytest.mark.parametrize("model_class", [TokenModel, AsyncTokenModel])
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_graph_streams_one_message(model_class: Any, is_async: bool) -> None:
    said = await messages_of(chain_of(model_class), is_async=is_async)
    assert len(said) == 1
    assert said[0].startswith("They coughed")


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_twin_without_tags_streams_more(
    monkeypatch: pytest.MonkeyPatch, is_async: bool
) -> None:
    monkeypatch.setattr(public_model, "TAGS", [])
    monkeypatch.setattr(public_model, "_silent", lambda model: model)
    said = "".join(await messages_of(chain_of(), is_async=is_async))
    assert "know" in said
    assert said.count("They coughed") == 2
