"""Every way of asking a chain, and the places in an application where one stands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypedDict

from langchain_core.output_parsers import StrOutputParser
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from support.leaks.observer import Stage
from support.leaks.output import note_loop_errors

Way = Callable[[Stage, Any, str], None]
AsyncWay = Callable[[Stage, Any, str], Awaitable[None]]
MODES = ["values", "updates", "messages", "custom", "debug", "tasks", "checkpoints"]


class State(TypedDict, total=False):
    question: str
    answer: Any


def invoke(stage: Stage, chain: Any, question: str) -> None:
    stage.outputs.append(chain.invoke(question, stage.config))


def batch(stage: Stage, chain: Any, question: str) -> None:
    stage.outputs.extend(chain.batch([question], stage.config))


def stream(stage: Stage, chain: Any, question: str) -> None:
    stage.outputs.extend(chain.stream(question, stage.config))


def lcel(stage: Stage, chain: Any, question: str) -> None:
    invoke(stage, _pipe(chain), question)


def graph_stream(stage: Stage, chain: Any, question: str) -> None:
    saver = InMemorySaver()
    for part in _graph(chain, saver).stream(
        {"question": question}, _in_thread(stage), stream_mode=MODES, subgraphs=True
    ):
        stage.outputs.append(part)
    stage.outputs.append([saver.storage, saver.blobs, saver.writes])


async def ainvoke(stage: Stage, chain: Any, question: str) -> None:
    stage.outputs.append(await chain.ainvoke(question, stage.config))


async def abatch(stage: Stage, chain: Any, question: str) -> None:
    stage.outputs.extend(await chain.abatch([question], stage.config))


async def astream(stage: Stage, chain: Any, question: str) -> None:
    async for chunk in chain.astream(question, stage.config):
        stage.outputs.append(chunk)


async def events_v1(stage: Stage, chain: Any, question: str) -> None:
    async for event in chain.astream_events(question, stage.config, version="v1"):
        stage.outputs.append(event)


async def events_v2(stage: Stage, chain: Any, question: str) -> None:
    async for event in chain.astream_events(question, stage.config, version="v2"):
        stage.outputs.append(event)


async def log(stage: Stage, chain: Any, question: str) -> None:
    async for patch in chain.astream_log(question, stage.config):
        stage.outputs.append(patch)


async def lcel_events(stage: Stage, chain: Any, question: str) -> None:
    await events_v2(stage, _pipe(chain), question)


async def graph_astream(stage: Stage, chain: Any, question: str) -> None:
    saver = InMemorySaver()
    async for part in _graph(chain, saver).astream(
        {"question": question}, _in_thread(stage), stream_mode=MODES, subgraphs=True
    ):
        stage.outputs.append(part)
    stage.outputs.append([saver.storage, saver.blobs, saver.writes])


def _pipe(chain: Any) -> Any:
    return RunnableLambda(lambda text: {"question": text}) | chain | StrOutputParser()


def _graph(chain: Any, saver: InMemorySaver) -> Any:
    def node(state: State, config: RunnableConfig) -> State:
        return {"answer": chain.invoke(state["question"], config)}

    async def anode(state: State, config: RunnableConfig) -> State:
        return {"answer": await chain.ainvoke(state["question"], config)}

    graph = StateGraph(State)
    graph.add_node("clinic", RunnableLambda(node, afunc=anode))
    graph.add_edge(START, "clinic")
    graph.add_edge("clinic", END)
    return graph.compile(checkpointer=saver)


def _in_thread(stage: Stage) -> dict[str, Any]:
    return {**stage.config, "configurable": {"thread_id": "1"}}


def on_a_loop(way: AsyncWay) -> Way:
    async def run(stage: Stage, chain: Any, question: str) -> None:
        note_loop_errors(stage)
        await way(stage, chain, question)

    return lambda stage, chain, question: asyncio.run(run(stage, chain, question))


SYNC: dict[str, Way] = {
    "invoke": invoke,
    "batch": batch,
    "stream": stream,
    "lcel": lcel,
    "graph_stream": graph_stream,
}
ASYNC: dict[str, Way] = {
    "ainvoke": on_a_loop(ainvoke),
    "abatch": on_a_loop(abatch),
    "astream": on_a_loop(astream),
    "astream_events_v1": on_a_loop(events_v1),
    "astream_events_v2": on_a_loop(events_v2),
    "astream_log": on_a_loop(log),
    "lcel_events": on_a_loop(lcel_events),
    "graph_astream": on_a_loop(graph_astream),
}
