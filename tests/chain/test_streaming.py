"""What a stream tells while a query runs: public steps, tokens, the record."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGenerationChunk
from support.chain_parts import EMBEDDING, PARSERS, QUESTION, record, reply, rich
from support.fakes import AsyncScriptedModel, ScriptedModel, notes

from langchain_dpicl import (
    DPChain,
    KSAPTROutputParser,
    RetrievedGroups,
)
from langchain_dpicl.budget import charges

GROUPS = RetrievedGroups.from_documents(
    notes(900), EMBEDDING, unit_key="patient", n_groups=60
)


class TokenModel(ScriptedModel):
    """Streams its answer word by word."""

    def _stream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        text = str(self._generate(messages).generations[0].message.content)
        for word in text.split(" "):
            yield ChatGenerationChunk(message=AIMessageChunk(content=word + " "))


def steps(message: Any) -> list[dict[str, Any]]:
    found = message.response_metadata.get("privacy_steps", [])
    assert isinstance(found, list)
    return found


def names(chunks: list[Any]) -> list[str]:
    return [step["step"] for chunk in chunks for step in steps(chunk)]


async def streamed(chain: Any, config: Any, *, is_async: bool) -> list[Any]:
    if is_async:
        return [chunk async for chunk in chain.astream(QUESTION, config)]
    return list(chain.stream(QUESTION, config))


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("name", sorted(PARSERS))
async def test_steps_come_first_then_the_answer_then_the_record(
    name: str, is_async: bool
) -> None:
    chain = DPChain(
        groups=GROUPS, model=TokenModel(reply=reply), parser=PARSERS[name]()
    )
    config = {"callbacks": [rich()]}
    chunks = await streamed(chain, config, is_async=is_async)
    assert names(chunks) == ["public", "charged", "groups", "merged"]
    told = [place for place, chunk in enumerate(chunks) if steps(chunk)]
    said = [place for place, chunk in enumerate(chunks) if chunk.content]
    assert max(told) < min(said)
    assert "privacy" in chunks[-1].response_metadata
    total = chunks[0]
    for chunk in chunks[1:]:
        total += chunk
    assert names([total]) == names(chunks)
    assert record(total)["status"] == "released"
    assert "cough" in total.content
    charged = next(s for s in steps(total) if s["step"] == "charged")
    assert charged == {
        "step": "charged",
        "mechanism": record(total)["mechanism"],
        "charge": 1,
    }
    assert {"step": "groups", "groups": 60} in steps(total)


def test_the_wording_comes_token_by_token() -> None:
    chain = DPChain(
        groups=GROUPS, model=TokenModel(reply=reply), parser=KSAPTROutputParser(k=1)
    )
    chunks = list(chain.stream(QUESTION, {"callbacks": [rich()]}))
    words = [chunk.content for chunk in chunks if chunk.content]
    assert words == ["They ", "coughed: ", "cough "]


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_charge_is_told_before_any_group_is_asked(is_async: bool) -> None:
    model = AsyncScriptedModel(reply=reply)
    chain = DPChain(groups=GROUPS, model=model, parser=PARSERS["vote"]())
    budget = rich()
    seen: list[tuple[str, int, int]] = []

    def look(chunk: Any) -> None:
        if steps(chunk):
            count = len(charges(budget.ledger, "default"))
            seen.append((steps(chunk)[0]["step"], count, len(model.asked)))

    config: Any = {"callbacks": [budget]}
    if is_async:
        async for chunk in chain.astream(QUESTION, config):
            look(chunk)
    else:
        for chunk in chain.stream(QUESTION, config):
            look(chunk)
    assert seen == [
        ("public", 0, 0),
        ("charged", 1, 1),
        ("groups", 1, 1),
        ("merged", 1, 61),
    ]


class Events(BaseCallbackHandler):
    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_custom_event(self, name: str, data: Any, **kwargs: Any) -> None:
        self.seen.append((name, data["step"]))


async def test_callbacks_are_told_by_whichever_way_is_asked() -> None:
    chain = DPChain(
        groups=GROUPS, model=ScriptedModel(reply=reply), parser=PARSERS["ptr"]()
    )
    budget, expected = rich(queries=10), ["public", "charged", "groups", "merged"]
    for ask in (chain.invoke, chain.ainvoke, chain.stream, chain.astream):
        events = Events()
        found: Any = ask(QUESTION, {"callbacks": [budget, events]})
        if hasattr(found, "__await__"):
            await found
        elif hasattr(found, "__aiter__"):
            _ = [chunk async for chunk in found]
        elif not isinstance(found, AIMessage):
            list(found)
        assert events.seen == [("dpicl_step", step) for step in expected]
        # The question alone comes first until the model has answered once.
        expected = ["charged", "groups", "merged"]
    seen = [
        event["data"]["step"]
        async for event in (chain | StrOutputParser()).astream_events(
            QUESTION, {"callbacks": [budget]}, version="v2"
        )
        if event["event"] == "on_custom_event"
    ]
    assert seen == expected


def test_steps_are_silent_behind_a_parser() -> None:
    chain = DPChain(
        groups=GROUPS, model=TokenModel(reply=reply), parser=KSAPTROutputParser(k=1)
    )
    pieces = list((chain | StrOutputParser()).stream(QUESTION, {"callbacks": [rich()]}))
    assert "".join(pieces) == "They coughed: cough "


def test_a_cached_answer_streams_without_steps() -> None:
    chain = DPChain(
        groups=GROUPS,
        model=TokenModel(reply=reply),
        parser=KSAPTROutputParser(k=1),
        cache=True,
        budget=rich(),
    )
    list(chain.stream(QUESTION))
    (again,) = chain.stream(QUESTION)
    assert names([again]) == []
    assert record(again)["status"] == "cached"
