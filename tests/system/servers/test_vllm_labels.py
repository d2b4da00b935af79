"""What a real server does with the arguments that the docs tell users to bind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_openai import ChatOpenAI, OpenAI
from support.chain_parts import QUESTION, record, rich
from support.fakes import notes
from support.servers.recording_proxy import RecordingProxy
from support.servers.vllm_server import VLLMServer
from test_provider_faults import (
    GROUPS,
    LABELS,
    nobody_is_left,
    saying,
    until,
    votes,
)

from langchain_dpicl import DPChain, RetrievedGroups, VoteOutputParser
from langchain_dpicl.offline import HashingEmbeddings

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

Make = Callable[..., Any]
BOTH = pytest.mark.parametrize("kind", [ChatOpenAI, OpenAI], ids=["chat", "texts"])


def token(make_model: Make, word: str) -> int:
    """Return the one token that a word is."""
    found = make_model().root_client.post(
        "/../tokenize", cast_to=object, body={"model": "tiny", "prompt": word}
    )
    (only,) = found["tokens"]
    return int(only)


async def ask_both(
    groups: RetrievedGroups, model: Any, labels: list[str] = LABELS
) -> list[Any]:
    chain = DPChain(
        groups=groups,
        model=model,
        parser=VoteOutputParser(labels=labels),
        budget=rich(2),
    )
    return [chain.invoke(QUESTION), await chain.ainvoke(QUESTION)]


@BOTH
@pytest.mark.parametrize("word", LABELS)
async def test_allowed_tokens_force_a_label(
    make_model: Make, few_groups: RetrievedGroups, kind: Any, word: str
) -> None:
    body = {"allowed_token_ids": [token(make_model, word)]}
    model = make_model(kind, max_tokens=1).bind(extra_body=body)
    for answer in await ask_both(few_groups, model):
        assert answer.content == word
        assert votes(answer) == pytest.approx(GROUPS, abs=5)


@BOTH
async def test_bound_stop_words_and_lengths_cut_the_answers(
    make_model: Make, few_groups: RetrievedGroups, kind: Any
) -> None:
    said = saying("They had cough and rash.")
    stopped = make_model(kind, max_tokens=64, **said).bind(stop=[" and"])
    for answer in await ask_both(few_groups, stopped):
        # Whole, it would hold both labels and so vote for none.
        assert answer.content == "cough"
        assert votes(answer) == pytest.approx(GROUPS, abs=5)
    for answer in await ask_both(few_groups, make_model(kind, max_tokens=64, **said)):
        assert votes(answer) == pytest.approx(0, abs=5)
    short = make_model(kind, max_tokens=64, **said).bind(max_tokens=1)
    for answer in await ask_both(few_groups, short):
        assert votes(answer) == pytest.approx(0, abs=5)


@BOTH
async def test_a_group_that_is_too_long_abstains_and_no_other(
    make_model: Make, kind: Any
) -> None:
    long = Document("Lisinopril " * 10_000, metadata={"patient": "unit-long"})
    groups = RetrievedGroups.from_documents(
        [*notes(600), long], HashingEmbeddings(), unit_key="patient", n_groups=GROUPS
    )
    chain = DPChain(
        groups=groups,
        model=make_model(kind, **saying("cough")),
        parser=VoteOutputParser(labels=LABELS),
        budget=rich(2),
    )
    question = "lisinopril lisinopril"
    for answer in (chain.invoke(question), await chain.ainvoke(question)):
        assert answer.content == "cough"
        assert votes(answer) == pytest.approx(GROUPS - 1, abs=5)


async def test_a_cancelled_query_is_answered_all_the_same(
    proxy: RecordingProxy, make_model: Make, few_groups: RetrievedGroups
) -> None:
    chain = DPChain(
        groups=few_groups,
        model=make_model(max_tokens=400, extra_body={"ignore_eos": True}),
        parser=VoteOutputParser(labels=LABELS),
        budget=(budget := rich(2)),
    )
    query = asyncio.ensure_future(chain.ainvoke(QUESTION))
    # Not asked of the server: its metrics would hold up the query that they watch.
    await until(lambda: proxy.in_flight > 3, query)
    query.cancel()
    with pytest.raises(asyncio.CancelledError):
        await query
    assert budget.spent().queries == 1
    await until(nobody_is_left)
    assert len(proxy.exchanges) == GROUPS
    assert {exchange.status for exchange in proxy.exchanges} == {200}
    again = await chain.ainvoke(QUESTION)
    assert record(again)["details"]["first"]["charge"] == 1
    assert (len(proxy.exchanges), budget.spent().queries) == (GROUPS, 1)


async def test_a_killed_server_is_paid_for_and_gives_nothing_away(
    proxy: RecordingProxy,
    make_model: Make,
    few_groups: RetrievedGroups,
    vllm: VLLMServer,
) -> None:
    model = make_model(max_tokens=1500, extra_body={"ignore_eos": True})
    chain = DPChain(
        groups=few_groups,
        model=model,
        parser=VoteOutputParser(labels=LABELS),
        budget=(budget := rich(2)),
    )
    query = asyncio.ensure_future(chain.ainvoke(QUESTION))
    await until(lambda: proxy.in_flight > 3, query)
    vllm.kill()
    answer = await query
    assert record(answer)["status"] == "abstained"
    assert record(answer)["details"]["reason"] == "too many calls to the model failed"
    assert budget.spent().queries == 1
    await until(nobody_is_left)
