"""Chains over real clients and a real HTTP server: every way, every parser."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest
from langchain_core.rate_limiters import InMemoryRateLimiter
from langchain_openai import ChatOpenAI, OpenAI
from support.chain_parts import EMBEDDING, QUESTION, every_way, record, rich
from support.servers.recording_proxy import Answer, Exchange, RecordingProxy
from support.servers.scripted_provider import completion

from langchain_dpicl import (
    DPChain,
    ESAOutputParser,
    KSAJointOutputParser,
    KSAPTROutputParser,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.parsers import DPOutputParser

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

GROUPS = 30
LABELS = ["cough", "rash"]
SENTENCE = "They had a dry cough."


def saying(*choices: str) -> dict[str, Any]:
    """Make a model answer with one of these."""
    return {"extra_body": {"structured_outputs": {"choice": list(choices)}}}


def is_private(text: str) -> bool:
    return "Lisinopril gave" in text


def knowing(*texts: str) -> Callable[[Exchange], Answer | None]:
    """Answer the question alone with these texts in turn; all else is as usual."""
    left = cycle(texts)

    def rule(exchange: Exchange) -> Answer | None:
        prompts = exchange.prompts
        if any(is_private(text) or "suggestions" in text for text in prompts):
            return None
        is_chat = "messages" in exchange.body
        return Answer.of(completion([next(left) for _ in prompts], is_chat=is_chat))

    return rule


def votes(message: Any) -> float:
    return float(sum(record(message)["details"]["noisy_votes"].values()))


@pytest.mark.parametrize("kind", [ChatOpenAI, OpenAI], ids=["chat", "completions"])
async def test_every_way_of_asking(
    proxy: RecordingProxy,
    make_model: Callable[..., Any],
    few_groups: RetrievedGroups,
    kind: Any,
) -> None:
    chain = DPChain(
        groups=few_groups,
        model=make_model(kind, **saying("cough")),
        parser=VoteOutputParser(labels=LABELS),
    )
    answers = await every_way(chain, rich(queries=6))
    assert {answer.content for answer in answers} == {"cough"}
    assert {record(answer)["status"] for answer in answers} == {"released"}
    assert len(proxy.exchanges) == 6 * GROUPS
    asked = [prompt for exchange in proxy.exchanges for prompt in exchange.prompts]
    assert len(asked) == 6 * GROUPS
    assert all(is_private(prompt) for prompt in asked)


@pytest.mark.parametrize("kind", [ChatOpenAI, OpenAI], ids=["chat", "completions"])
@pytest.mark.parametrize(
    "parser",
    [
        KSAPTROutputParser(k=2),
        KSAJointOutputParser(k=2, domain=["cough", "dry", "rash", "nausea"]),
        ESAOutputParser(embedding=EMBEDDING, candidates=[SENTENCE, "A skin rash."]),
        ESAOutputParser(embedding=EMBEDDING),
    ],
    ids=["ptr", "joint", "esa", "esa-zero-shot"],
)
async def test_sentences_in_and_a_sentence_out(
    proxy: RecordingProxy,
    make_model: Callable[..., Any],
    few_groups: RetrievedGroups,
    kind: Any,
    parser: DPOutputParser,
) -> None:
    proxy.rule = knowing("I don't know.", SENTENCE, "A skin rash.")
    model = make_model(kind, **saying(SENTENCE))
    chain = DPChain(
        groups=few_groups, model=model, parser=parser, budget=rich(2), cache=False
    )
    answers = [chain.invoke(QUESTION)]
    proxy.rule = knowing("I don't know.", SENTENCE, "A skin rash.")
    answers.append(await chain.ainvoke(QUESTION))
    for answer in answers:
        assert answer.content == SENTENCE
        assert record(answer)["status"] == "released"
        if "KSA" in type(parser).__name__:
            assert set(record(answer)["keywords"]) == {"cough", "dry"}
    per_query = [e for e in proxy.exchanges if any(map(is_private, e.prompts))]
    assert len(per_query) == 2 * GROUPS


@pytest.mark.parametrize("kind", [ChatOpenAI, OpenAI], ids=["chat", "completions"])
async def test_no_record_is_in_anything_but_a_group_prompt(
    proxy: RecordingProxy,
    make_model: Callable[..., Any],
    few_groups: RetrievedGroups,
    kind: Any,
) -> None:
    proxy.rule = knowing("I don't know.")
    model = make_model(kind, **saying(SENTENCE))
    chain = DPChain(
        groups=few_groups,
        model=model,
        parser=KSAPTROutputParser(k=2),
        budget=rich(2),
        cache=False,
    )
    chain.invoke(QUESTION)
    await chain.ainvoke(QUESTION)
    public = []
    for exchange in proxy.exchanges:
        assert not any(map(is_private, exchange.headers.values()))
        assert not is_private(exchange.path)
        if not is_private(exchange.text):
            public.append(exchange)
            continue
        # The record is in the prompts, and nowhere else of the body.
        hidden = {**exchange.body, "prompt": None, "messages": None}
        assert not is_private(str(hidden))
        assert all(map(is_private, exchange.prompts))
    wordings = [e for e in public if "cough, dry" in e.text]
    # Of each query: the wording of what was released.
    assert len(wordings) == 2
    assert len(public) == 2


@pytest.mark.parametrize("kind", [ChatOpenAI, OpenAI], ids=["chat", "completions"])
async def test_the_wording_arrives_in_pieces(
    proxy: RecordingProxy,
    make_model: Callable[..., Any],
    few_groups: RetrievedGroups,
    kind: Any,
) -> None:
    proxy.rule = knowing("I don't know.")
    model = make_model(kind, **saying(SENTENCE))
    chain = DPChain(
        groups=few_groups,
        model=model,
        parser=KSAPTROutputParser(k=2),
        budget=rich(2),
        cache=False,
    )
    for pieces in (
        [str(chunk.content) for chunk in chain.stream(QUESTION)],
        [str(chunk.content) async for chunk in chain.astream(QUESTION)],
    ):
        assert "".join(pieces) == SENTENCE
        assert len([piece for piece in pieces if piece]) > 2
    streamed = [e for e in proxy.exchanges if e.body.get("stream")]
    assert len(streamed) == 2
    assert not any(is_private(exchange.text) for exchange in streamed)


@pytest.mark.parametrize("kind", [ChatOpenAI, OpenAI], ids=["chat", "completions"])
async def test_bound_arguments_reach_every_group_call(
    proxy: RecordingProxy,
    make_model: Callable[..., Any],
    few_groups: RetrievedGroups,
    kind: Any,
) -> None:
    model = make_model(kind).bind(
        stop=["a dry"], temperature=0.25, logit_bias={"5": 1}, max_tokens=5, n=2
    )
    chain = DPChain(
        groups=few_groups,
        model=model.bind(**saying("cough")),
        parser=VoteOutputParser(labels=LABELS),
        budget=rich(2),
        cache=False,
    )
    # Of two candidates one votes: `n` must not give a group two votes.
    for answer in (chain.invoke(QUESTION), await chain.ainvoke(QUESTION)):
        assert answer.content == "cough"
        assert votes(answer) == pytest.approx(GROUPS, abs=15)
    for exchange in proxy.exchanges:
        body = exchange.body
        assert body["stop"] == ["a dry"]
        assert body["temperature"] == 0.25
        assert body["logit_bias"] == {"5": 1}
        assert body["n"] == 2
        assert body["structured_outputs"] == {"choice": ["cough"]}
        assert body.get("max_completion_tokens", body.get("max_tokens")) == 5


async def test_the_rate_limiter_is_asked_for_every_group_call(
    make_model: Callable[..., Any], few_groups: RetrievedGroups
) -> None:
    taken = []

    class Counting(InMemoryRateLimiter):
        def acquire(self, *, blocking: bool = True) -> bool:
            taken.append(blocking)
            return super().acquire(blocking=blocking)

        async def aacquire(self, *, blocking: bool = True) -> bool:
            taken.append(blocking)
            return await super().aacquire(blocking=blocking)

    limiter = Counting(
        requests_per_second=1000, check_every_n_seconds=0.001, max_bucket_size=5
    )
    model = make_model(rate_limiter=limiter, **saying("cough"))
    chain = DPChain(
        groups=few_groups,
        model=model,
        parser=VoteOutputParser(labels=LABELS),
        budget=rich(2),
        cache=False,
    )
    chain.invoke(QUESTION)
    await chain.ainvoke(QUESTION)
    assert taken == [True] * (2 * GROUPS)


@pytest.mark.parametrize("limit", [1, 4])
async def test_no_more_requests_are_in_flight_than_allowed(
    proxy: RecordingProxy,
    make_model: Callable[..., Any],
    few_groups: RetrievedGroups,
    limit: int,
) -> None:
    chain = DPChain(
        groups=few_groups,
        model=make_model(**saying("cough")),
        parser=VoteOutputParser(labels=LABELS),
        budget=rich(2),
        cache=False,
        max_concurrency=limit,
    )
    chain.invoke(QUESTION)
    await chain.ainvoke(QUESTION)
    assert len(proxy.exchanges) == 2 * GROUPS
    assert proxy.most_in_flight <= limit
