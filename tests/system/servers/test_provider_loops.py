"""A client's connections belong to an event loop; a chain's answers don't depend on it.

The model has the client that langchain-openai makes by itself: one for all models of
the process.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import openai
import pytest
from langchain_core.messages import AIMessage
from langchain_core.prompt_values import StringPromptValue
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from support.chain_parts import QUESTION, record, rich
from support.servers.recording_proxy import Answer, Exchange, RecordingProxy
from support.servers.scripted_provider import KEY, MODEL
from test_provider_answers import GROUPS, LABELS, saying, votes

from langchain_dpicl import (
    DPChain,
    KSAPTROutputParser,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.parsers import DPOutputParser
from langchain_dpicl.sealed import SealedModel
from langchain_dpicl.sealed.embedding_calls import embed_call, embed_calls
from langchain_dpicl.sealed.model_loop import model_loop

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

PARSERS: dict[str, Callable[[], DPOutputParser]] = {
    "vote": lambda: VoteOutputParser(labels=LABELS),
    # Its candidates are several public calls, its wording another one.
    "ksa": lambda: KSAPTROutputParser(k=1, drop_public_words=False),
}


def model_of(proxy: RecordingProxy, kind: Any = ChatOpenAI, **changes: Any) -> Any:
    arguments = {
        "model": MODEL,
        "api_key": KEY,
        "base_url": f"{proxy.url}/v1",
        "max_retries": 0,
        "max_tokens": 32,
        **changes,
    }
    if kind is ChatOpenAI:
        arguments["use_responses_api"] = False
    return kind(**arguments)


def chain_of(groups: RetrievedGroups, model: Any, name: str = "vote") -> DPChain:
    return DPChain(groups=groups, model=model, parser=PARSERS[name](), budget=rich(9))


async def streamed(chain: DPChain) -> Any:
    total: Any = None
    async for chunk in chain.astream(QUESTION):
        total = chunk if total is None else total + chunk
    return total


@pytest.mark.parametrize("kind", [ChatOpenAI, OpenAI], ids=["chat", "completions"])
@pytest.mark.parametrize("name", list(PARSERS))
@pytest.mark.parametrize("stream", [False, True], ids=["ainvoke", "astream"])
def test_every_loop_gets_an_answer(
    proxy: RecordingProxy,
    few_groups: RetrievedGroups,
    kind: Any,
    name: str,
    stream: bool,
) -> None:
    chain = chain_of(few_groups, model_of(proxy, kind, **saying("cough")), name)
    ask = streamed if stream else lambda chain: chain.ainvoke(QUESTION)
    chain.invoke(QUESTION)
    for _ in range(3):
        proxy.forget()
        answer = asyncio.run(ask(chain))
        assert record(answer)["status"] == "released"
        assert answer.content == "cough"
        if name == "vote":
            assert votes(answer) == pytest.approx(GROUPS, abs=5)


def test_loops_at_once_share_no_connection(
    proxy: RecordingProxy, few_groups: RetrievedGroups
) -> None:
    """Two loops ask the chain, and each also asks the chain's own model by itself."""
    model = model_of(proxy, timeout=20, **saying("cough"))
    chain = chain_of(few_groups, model)
    answers: list[AIMessage] = []

    async def ask(alone: bool) -> None:
        if alone:
            for _ in range(5):
                await asyncio.gather(*(model.ainvoke("Hello") for _ in range(5)))
        answers.extend(await asyncio.gather(*[chain.ainvoke(QUESTION)] * 2))

    threads = [
        threading.Thread(target=lambda alone=alone: asyncio.run(ask(alone)))
        for alone in (True, False)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [votes(a) for a in answers] == pytest.approx([GROUPS] * 4, abs=5)


def test_clients_on_aiohttp_get_a_session_of_the_models_loop(
    proxy: RecordingProxy, few_groups: RetrievedGroups
) -> None:
    client = openai.DefaultAioHttpClient(trust_env=False)
    model = model_of(proxy, http_async_client=client, **saying("cough"))

    async def ask() -> AIMessage:
        await model.ainvoke("Hello")
        # With the session of another loop, calls would wait for ever.
        own = model_loop().connected(model).root_async_client._client._transport
        assert own.client is None
        assert client._transport.client is not None
        answer = await chain_of(few_groups, model).ainvoke(QUESTION)
        assert own.client is not client._transport.client
        assert (await model.ainvoke("Hello")).content == "cough"
        await client.aclose()
        return answer

    assert votes(asyncio.run(ask())) == pytest.approx(GROUPS, abs=5)


def answers_of(model: SealedModel) -> int:
    prompts = [StringPromptValue(text=str(number)) for number in range(9)]
    slots = asyncio.run(model.aanswer(prompts))
    return sum(slot.text is not None for slot in slots)


def test_connections_of_a_closed_client_are_closed_too(proxy: RecordingProxy) -> None:
    clients = [openai.DefaultAsyncHttpxClient(trust_env=False) for _ in range(3)]
    for client in clients:
        model = SealedModel(model_of(proxy, http_async_client=client))
        assert answers_of(model) == 9
        asyncio.run(client.aclose())
    # Those of the last client are left, until a new one comes.
    deadline = time.monotonic() + 60
    while proxy.connections > 9:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert proxy.connections > 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_process_has_a_loop_of_its_own(proxy: RecordingProxy) -> None:
    model = SealedModel(model_of(proxy))
    assert answers_of(model) == 9
    child = os.fork()
    if not child:
        code = 1
        try:
            code = 0 if answers_of(model) == 9 else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert answers_of(model) == 9


SCRIPT = """
import asyncio, sys
from langchain_openai import ChatOpenAI
from langchain_core.prompt_values import StringPromptValue
from langchain_dpicl.sealed import SealedModel
from langchain_dpicl.sealed.embedding_calls import embed_call, embed_calls
model = ChatOpenAI(
    model="tiny", api_key="test-key", base_url=sys.argv[1], use_responses_api=False
)
asked = SealedModel(model).aanswer([StringPromptValue(text=str(i)) for i in range(9)])
print(sum(slot.text is not None for slot in asyncio.run(asked)))
"""


def test_the_end_of_the_process_says_nothing(proxy: RecordingProxy) -> None:
    ran = subprocess.run(
        [sys.executable, "-X", "dev", "-c", SCRIPT, f"{proxy.url}/v1"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONWARNINGS": "default::ResourceWarning"},
    )
    assert (ran.returncode, ran.stdout.strip(), ran.stderr) == (0, "9", "")


def test_every_loop_gets_an_embedding() -> None:
    def embed(exchange: Exchange) -> Answer:
        texts = exchange.body["input"]
        found = [
            {"index": i, "object": "embedding", "embedding": [1.0, float(i)]}
            for i in range(len(texts))
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return Answer.of({"object": "list", "data": found, "usage": usage})

    with RecordingProxy(embed) as proxy:
        embedding = OpenAIEmbeddings(
            model=MODEL,
            api_key=KEY,
            base_url=f"{proxy.url}/v1",
            max_retries=0,
            check_embedding_ctx_length=False,
        )
        calls = [embed_call(embedding, [str(i)], len) for i in range(20)]
        for _ in range(3):
            many = embed_calls(calls, embedding)
            assert asyncio.run(many.awaiting()) == [1] * 20
