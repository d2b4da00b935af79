"""What an answer's message says of its cost: public calls alone, by public numbers."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
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

from langchain_dpicl import (
    DPChain,
    KSAPTROutputParser,
    RetrievedGroups,
    VoteOutputParser,
)

GROUPS = RetrievedGroups.from_documents(
    notes(900), EMBEDDING, unit_key="patient", n_groups=60
)
FEW = RetrievedGroups.from_documents(
    notes(65), EMBEDDING, unit_key="patient", n_groups=60
)
PRIVATE = 10**6
PUBLIC = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}


class MeteredModel(ScriptedModel):
    """Says what a call took: 5 tokens in public, a million with records."""

    def _message(self, messages: list[BaseMessage]) -> AIMessage:
        text = str(messages[-1].content)
        said = str(super()._generate(messages).generations[0].message.content)
        more = PRIVATE if "Lisinopril" in text else 0
        usage = {name: count + more for name, count in PUBLIC.items()}
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
        # As providers do: the usage comes last.
        last = AIMessageChunk(content="", usage_metadata=message.usage_metadata)
        yield ChatGenerationChunk(message=last)


def made(parser: Any, groups: Any = GROUPS, **more: Any) -> tuple[DPChain, Any]:
    model = MeteredModel(reply=more.pop("reply", reply))
    return DPChain(groups=groups, model=model, parser=parser, **more), model


def used(message: Any) -> int:
    """Return how many public calls a message's usage is the sum of."""
    usage = message.usage_metadata
    calls = 0 if usage is None else usage["total_tokens"] // 5
    expected = {name: count * calls for name, count in PUBLIC.items()}
    assert usage == (expected if calls else None)
    return calls


async def test_an_answer_tells_the_usage_of_its_public_calls_by_every_way() -> None:
    chain, model = made(KSAPTROutputParser(k=1))
    budget = rich(queries=10)
    answers = await every_way(chain, budget)
    # One wording each; the first one of all was asked alone besides.
    found = sorted(used(answer) for answer in answers)
    assert found == [1, 1, 1, 1, 1, 2]
    calls = [record(answer)["calls"] for answer in answers]
    assert sorted(calls) == [61] * 5 + [62]
    assert sum(calls) == len(model.asked)


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_last_chunk_carries_it(is_async: bool) -> None:
    chain, _ = made(KSAPTROutputParser(k=1))
    config: Any = {"callbacks": [rich()]}
    chunks = (
        [chunk async for chunk in chain.astream(QUESTION, config)]
        if is_async
        else list(chain.stream(QUESTION, config))
    )
    *before, last = chunks
    assert [chunk.usage_metadata for chunk in before] == [None] * len(before)
    assert used(last) == 2
    assert record(last)["calls"] == 62


@pytest.mark.parametrize("name", sorted(PARSERS))
def test_calls_are_those_that_were_made(name: str) -> None:
    chain, model = made(PARSERS[name]())
    config: Any = {"callbacks": [rich()]}
    for _ in range(2):
        before = len(model.asked)
        answer = chain.invoke(QUESTION, config)
        assert record(answer)["calls"] == len(model.asked) - before
        assert used(answer) == record(answer)["calls"] - 60


def test_drafts_and_fallbacks_are_counted() -> None:
    def silent(text: str) -> str:
        return "cough\nrash" if "Possible answers" in text else "I don't know."

    chain, model = made(VoteOutputParser(labels="draft"), reply=silent)
    guessing = chain.model_copy(update={"fallback": "model"})
    answer = guessing.invoke(QUESTION, {"callbacks": [rich()]})
    assert record(answer)["status"] == "fallback"
    assert used(answer) == 2
    assert record(answer)["calls"] == 62 == len(model.asked)


def test_two_corpora_that_fill_other_groups_cost_the_same() -> None:
    told = []
    for groups in (GROUPS, FEW):
        chain, model = made(PARSERS["vote"](), groups)
        answer = chain.invoke(QUESTION, {"callbacks": [rich()]})
        assert len(model.asked) == 61
        told.append((answer.usage_metadata, record(answer)["calls"]))
    assert told == [(PUBLIC, 61)] * 2


def test_where_calls_are_not_padded_their_number_is_not_told() -> None:
    config: Any = {"callbacks": [rich()]}
    unpadded, _ = made(PARSERS["vote"](), FEW, pad_calls=False)
    assert "calls" not in record(unpadded.invoke(QUESTION, config))


@pytest.mark.parametrize("name", ["vote", "ptr"])
def test_a_cached_answer_costs_nothing(name: str) -> None:
    chain, model = made(PARSERS[name](), budget=rich(), cache=True)
    first, again = (chain.invoke(QUESTION) for _ in range(2))
    assert record(first)["calls"] == len(model.asked)
    assert record(again)["status"] == "cached"
    assert record(again)["calls"] == 0
    assert used(again) == 0


def test_a_model_that_tells_no_usage_leaves_none() -> None:
    chain = DPChain(
        groups=GROUPS, model=ScriptedModel(reply=reply), parser=PARSERS["ptr"]()
    )
    answer = chain.invoke(QUESTION, {"callbacks": [rich()]})
    assert answer.usage_metadata is None
    assert record(answer)["calls"] == 62
