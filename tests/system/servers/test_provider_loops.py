"""A chain answers on every event loop and in every process.

The model has the client that langchain-openai makes by itself: one for all models of
the process.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.prompt_values import StringPromptValue
from langchain_openai import ChatOpenAI, OpenAI
from support.chain_parts import QUESTION, record, rich
from support.servers.recording_proxy import RecordingProxy
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
    parser, budget = PARSERS[name](), rich(9)
    return DPChain(
        groups=groups, model=model, parser=parser, budget=budget, cache=False
    )


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


def answers_of(model: SealedModel) -> int:
    prompts = [StringPromptValue(text=str(number)) for number in range(9)]
    slots = model.ask(prompts)
    return sum(slot.text is not None for slot in slots)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_process_asks_on_threads_of_its_own(proxy: RecordingProxy) -> None:
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
import sys
from langchain_openai import ChatOpenAI
from langchain_core.prompt_values import StringPromptValue
from langchain_dpicl.sealed import SealedModel
model = ChatOpenAI(
    model="tiny", api_key="test-key", base_url=sys.argv[1], use_responses_api=False
)
slots = SealedModel(model).ask([StringPromptValue(text=str(i)) for i in range(9)])
print(sum(slot.text is not None for slot in slots))
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
