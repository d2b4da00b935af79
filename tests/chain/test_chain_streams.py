"""What a stream shows, what an answer's message says of its cost, and cut questions."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.graph import END, START, StateGraph
from suite import pairs
from support.chain_parts import (
    EMBEDDING,
    PARSERS,
    QUESTION,
    every_way,
    record,
    reply,
    rich,
)
from support.fakes import ScriptedModel, notes
from typing_extensions import TypedDict

from langchain_dpicl import DPChain, RetrievedGroups, VoteOutputParser
from langchain_dpicl.budget import charges

GROUPS = RetrievedGroups.from_documents(
    notes(900), EMBEDDING, unit_key="patient", n_groups=60
)
STEPS = ["read", "public", "release", "word"]
PRIVATE = 10**6
PUBLIC = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}


class TokenModel(ScriptedModel):
    """Streams word by word. A call took 5 tokens in public, a million with records."""

    breaks_off: bool = False

    def _message(self, messages: list[BaseMessage]) -> AIMessage:
        said = str(super()._generate(messages).generations[0].message.content)
        more = PRIVATE if "Lisinopril" in str(messages[-1].content) else 0
        usage: Any = {name: count + more for name, count in PUBLIC.items()}
        return AIMessage(said, usage_metadata=usage)

    def _generate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        message = self._message(messages)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _stream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        message = self._message(messages)
        for word in str(message.content).split(" "):
            yield ChatGenerationChunk(message=AIMessageChunk(content=word + " "))
            if self.breaks_off:
                raise RuntimeError("connection lost")
        # As providers do: the usage comes last.
        last = AIMessageChunk(content="", usage_metadata=message.usage_metadata)
        yield ChatGenerationChunk(message=last)


def made(name: str = "ptr", **parts: Any) -> tuple[DPChain, Any]:
    model = TokenModel(reply=parts.pop("reply", reply), **parts.pop("fields", {}))
    given: dict[str, Any] = {"parser": PARSERS[name](), "budget": rich()}
    return DPChain(groups=GROUPS, model=model, **{**given, **parts}), model


async def pieces(chain: Any, *, is_async: bool) -> list[Any]:
    if is_async:
        return [chunk async for chunk in chain.astream(QUESTION)]
    return list(chain.stream(QUESTION))


BOTH = pytest.mark.parametrize("is_async", [False, True])


@BOTH
async def test_the_wording_comes_token_by_token_and_the_record_last(
    is_async: bool,
) -> None:
    chain, _ = made()
    *words, last = await pieces(chain, is_async=is_async)
    assert [piece.content for piece in words] == ["They ", "coughed: ", "cough "]
    assert [piece.usage_metadata for piece in words] == [None] * 3
    assert last.content == ""
    assert (record(last)["status"], record(last)["calls"]) == ("released", 62)
    assert last.usage_metadata == PUBLIC
    (again,) = await pieces(chain, is_async=is_async)
    assert again.content == "They coughed: cough "
    assert record(again)["status"] == "cached"


@BOTH
@pytest.mark.parametrize("name", sorted({*PARSERS} - {"ptr", "joint"}))
async def test_what_needs_no_wording_is_one_piece(name: str, is_async: bool) -> None:
    chain, _ = made(name)
    (only,) = await pieces(chain, is_async=is_async)
    assert "cough" in only.content
    assert record(only)["status"] == "released"


@BOTH
@pytest.mark.parametrize(
    ("wording", "fields", "shown"),
    [
        ("They report a", {"breaks_off": True}, "They \ncough"),
        ("I can't help with that.", {}, "I can't help with that. \ncough"),
        ("It was not cough.", {}, "It was not cough. \ncough"),
    ],
)
async def test_words_after_a_lost_wording_stand_on_a_line_of_their_own(
    wording: str, fields: Any, shown: str, is_async: bool
) -> None:
    """What was streamed can't be taken back; and it is not kept for the next one."""

    def losing(text: str) -> str:
        return wording if "word suggestions" in text else reply(text)

    chain, _ = made(reply=losing, fields=fields)
    said = "".join(
        str(piece.content) for piece in await pieces(chain, is_async=is_async)
    )
    assert said == shown
    if not fields:
        answer = chain.invoke(QUESTION)
        assert (answer.content, record(answer)["status"]) == ("cough", "cached")


async def test_events_name_the_steps_and_show_no_tokens_of_a_draft() -> None:
    for name in ("ptr", "esa"):
        chain, _ = made(name)
        events = [one async for one in chain.astream_events(QUESTION, version="v2")]
        begun = [one["name"] for one in events if one["event"] == "on_chain_start"]
        assert begun == ["DPChain", *STEPS]
        models = [one for one in events if one["event"] == "on_chat_model_start"]
        assert all("dpicl:public" in one["tags"] for one in models)
        said = "".join(
            one["data"]["chunk"].text
            for one in events
            if one["event"] == "on_chat_model_stream"
        )
        assert said.count("They coughed") == (name == "ptr")
    drafting, _ = made(
        parser=VoteOutputParser(labels="draft"),
        reply=lambda text: "cough\nrash" if "Possible" in text else reply(text),
    )
    async for one in drafting.astream_events(QUESTION, version="v2"):
        assert one["event"] != "on_chat_model_stream"


class State(TypedDict, total=False):
    question: str
    messages: list[BaseMessage]


@BOTH
async def test_a_graph_streams_one_message(is_async: bool) -> None:
    chain, _ = made()

    def node(state: State, config: RunnableConfig) -> State:
        return {"messages": [chain.invoke(state["question"], config)]}

    async def anode(state: State, config: RunnableConfig) -> State:
        return {"messages": [await chain.ainvoke(state["question"], config)]}

    graph: Any = StateGraph(State)
    graph.add_node("clinic", RunnableLambda(node, afunc=anode))
    graph.add_edge(START, "clinic")
    graph.add_edge("clinic", END)
    asked, given = graph.compile(), {"question": QUESTION}
    if is_async:
        found = [m async for m, _ in asked.astream(given, stream_mode="messages")]
    else:
        found = [m for m, _ in asked.stream(given, stream_mode="messages")]
    (message,) = found
    assert message.text.strip() == "They coughed: cough"


# ---- what it took --------------------------------------------------------------------


def used(message: Any) -> int:
    """Return how many public calls a message's usage is the sum of."""
    usage = message.usage_metadata
    calls = 0 if usage is None else usage["total_tokens"] // 5
    expected = {name: count * calls for name, count in PUBLIC.items()}
    assert usage == (expected if calls else None)
    return calls


async def test_an_answer_tells_the_usage_of_its_public_calls_by_every_way() -> None:
    chain, model = made(budget=None)
    answers = await every_way(chain, rich(queries=10))
    # One wording each; the first one of all was asked alone besides, like a group.
    assert [used(answer) for answer in answers] == [1] * 6
    calls = [record(answer)["calls"] for answer in answers]
    assert sorted(calls) == [61] * 5 + [62]
    assert sum(calls) == len(model.asked)


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_calls_are_those_that_were_made(name: str) -> None:
    chain, model = made(name)
    for question, is_first in (("What?", True), ("Which?", False)):
        before = len(model.asked)
        answer = chain.invoke(question)
        assert record(answer)["calls"] == len(model.asked) - before
        assert used(answer) == record(answer)["calls"] - 60 - is_first
    assert record(chain.invoke("Which?"))["calls"] == 0
    assert chain.check("Which?").group_calls == 60


def test_drafts_and_fallbacks_are_counted() -> None:
    def silent(text: str) -> str:
        return "cough\nrash" if "Possible answers" in text else "I don't know."

    parser = VoteOutputParser(labels="draft")
    chain, model = made(reply=silent, parser=parser, fallback="model")
    answer = chain.invoke(QUESTION)
    assert record(answer)["status"] == "fallback"
    assert used(answer) == 2
    assert record(answer)["calls"] == 62 == len(model.asked)


# ---- cut off -------------------------------------------------------------------------


class Stopped(BaseException):
    """An interrupt: no `except Exception` may hold it."""


class Cutter(BaseCallbackHandler):
    """Raises where a step begins or ends."""

    raise_error = True

    def __init__(self, place: tuple[str, str]) -> None:
        self.place, self.names, self.done = place, dict[Any, str](), False

    def _at(self, event: str, run_id: Any) -> None:
        if (event, self.names[run_id]) == self.place:
            self.done = True
            raise Stopped

    def on_chain_start(self, *_: Any, run_id: Any, **more: Any) -> None:
        self.names[run_id] = more.get("name") or ""
        self._at("start", run_id)

    def on_chain_end(self, *_: Any, run_id: Any, **__: Any) -> None:
        self._at("end", run_id)


CUTS = {
    ("start", "public"): 0,
    ("end", "public"): 0,
    ("start", "release"): 0,
    ("end", "release"): 1,
    ("start", "word"): 1,
    ("end", "word"): 1,
}
"""Where a question is cut, and how often it has been paid."""


@pytest.mark.parametrize(
    ("place", "way"), pairs(CUTS, ["invoke", "ainvoke", "stream", "astream"])
)
async def test_a_cut_question_is_paid_at_most_once(
    place: tuple[str, str], way: str
) -> None:
    """Whatever is cut after the charge, the next one is given for nothing."""
    budget, cutter = rich(), Cutter(place)
    chain, _ = made(budget=budget)
    config: Any = {"callbacks": [cutter]}
    with pytest.raises(Stopped):
        if way == "stream":
            list(chain.stream(QUESTION, config))
        elif way == "astream":
            _ = [piece async for piece in chain.astream(QUESTION, config)]
        elif way == "ainvoke":
            await chain.ainvoke(QUESTION, config)
        else:
            chain.invoke(QUESTION, config)
    assert cutter.done
    assert len(charges(budget.ledger, "default")) == CUTS[place]
    assert "cough" in str(chain.invoke(QUESTION).content)
    assert budget.spent().queries == 1


@BOTH
async def test_a_closed_stream_is_paid_at_most_once(is_async: bool) -> None:
    budget = rich()
    chain, _ = made(budget=budget)
    stream: Any = chain.astream(QUESTION) if is_async else chain.stream(QUESTION)
    await stream.__anext__() if is_async else next(stream)
    await stream.aclose() if is_async else stream.close()
    assert record(chain.invoke(QUESTION))["status"] == "cached"
    assert budget.spent().queries == 1


@pytest.mark.parametrize(
    ("name", "way"),
    [
        *((name, "ainvoke") for name in sorted(PARSERS)),
        *(("ptr", way) for way in ("astream", "abatch")),
    ],
)
async def test_a_canceled_question_goes_on_and_stores_its_answer(
    name: str, way: str
) -> None:
    begun, gate = threading.Event(), threading.Event()

    def waiting(text: str) -> str:
        if "Lisinopril" in text:
            begun.set()
            gate.wait(30)
        return reply(text)

    budget = rich()
    chain, model = made(name, reply=waiting, budget=budget)

    async def ask() -> None:
        if way == "astream":
            await pieces(chain, is_async=True)
        elif way == "abatch":
            await chain.abatch([QUESTION])
        else:
            await chain.ainvoke(QUESTION)

    question = asyncio.ensure_future(ask())
    await asyncio.to_thread(begun.wait, 30)
    question.cancel()
    with pytest.raises(asyncio.CancelledError):
        await question
    assert len(charges(budget.ledger, "default")) == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}
    again = asyncio.ensure_future(chain.ainvoke(QUESTION))
    await asyncio.sleep(0.05)
    gate.set()
    assert record(await again)["status"] == "cached"
    assert budget.spent().queries == 1
    assert sum("Lisinopril" in text for text in model.asked) <= 60


def test_ctrl_c_ends_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reaches the questions that run; the draws that were lost are given up."""

    def interrupted(text: str) -> str:
        if "Lisinopril" in text:
            raise KeyboardInterrupt
        return reply(text)

    budget = rich()
    chain, model = made("vote", reply=interrupted, budget=budget)
    with pytest.raises(KeyboardInterrupt):
        chain.batch([QUESTION, f"{QUESTION} 2"], {"max_concurrency": 2})
    monkeypatch.setattr(model, "reply", reply)
    # Nobody waits for a draw that does not come.
    answer = chain.invoke(QUESTION)
    assert record(answer)["status"] == "released"
    assert budget.spent().queries in (2, 3)
