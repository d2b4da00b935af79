"""Answers a second of a chain that asks one OpenAI-compatible URL, against the ideal.

    python benchmarks/bench_group_calls.py [--quick] [--latency S] [--limit N]

A server over real HTTP on loopback, in a process of its own, takes the same time for
every answer, however many are asked at once: a vLLM, Ray Serve or a gateway that has
room. 1 to 256 questions are asked at a time, of 20 groups each, by one chain whose
`max_concurrency` is the limit. The ideal is what the limit and the latency leave:
limit / latency / groups answers a second; with few questions the calls that there are,
not the limit. Beside it stand the same calls without the chain: as many at once, by the
same client's `ainvoke` or `invoke`. Both take turns. What a call takes of the processor
is of this process alone; one process can't make more calls a second than that allows.

Then how much of a group's prompt a server's prefix cache can share: the characters that
all group prompts of one question begin with.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any
from uuid import uuid4

import httpx
import openai
from langchain_core.prompts import ChatPromptTemplate
from langchain_openai import ChatOpenAI
from rich.console import Console
from rich.table import Table

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.common.prompts import DOCUMENT_SEPARATOR, GROUP_PROMPT
from langchain_dpicl.demo import clinic, questions
from langchain_dpicl.offline import HashingEmbeddings

GROUPS = 20
QUESTION = "Which side effect do patients on lisinopril report most?"
LABELS = ["cough", "headache", "nausea", "rash"]
RECORDS_FIRST = ChatPromptTemplate.from_template(
    "Answer the question from the records below. {format_instructions}\n\n"
    "Records:\n{context}\n\nQuestion: {question}\nAnswer:"
)
"""The default prompt as it was."""

_REPLY = json.dumps(
    {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "tiny",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": "cough"},
            }
        ],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
).encode()
_ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
    % (len(_REPLY), _REPLY)
)


class _Answering(asyncio.Protocol):
    """Answers each request after the latency; it must cost less than the client."""

    latency = 0.0

    def __init__(self) -> None:
        self._read = b""
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._read += data
        head, found, body = self._read.partition(b"\r\n\r\n")
        if not found:
            return
        length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
        if len(body) >= int(length):
            self._read = b""
            loop = asyncio.get_running_loop()
            loop.call_later(self.latency, self._transport.write, _ANSWER)


async def _listen(told: Connection, latency: float) -> None:
    _Answering.latency = latency
    loop = asyncio.get_running_loop()
    listening = await loop.create_server(_Answering, "127.0.0.1", 0, backlog=2048)
    told.send(listening.sockets[0].getsockname()[1])
    await asyncio.to_thread(told.recv)
    listening.close()


def _serve(told: Connection, latency: float) -> None:
    asyncio.run(_listen(told, latency))


@contextmanager
def server(latency: float) -> Iterator[str]:
    """A server in a process of its own; gives its address."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_serve, args=(theirs, latency), daemon=True
    )
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}/v1"
    finally:
        ours.send(None)
        process.join()


def model_of(url: str, limit: int, client: str = "aiohttp") -> ChatOpenAI:
    """Return a client with room for all calls: on aiohttp, on httpx, or as it comes."""
    given: dict[str, Any] = {"max_retries": 0}
    if client != "default":
        limits = httpx.Limits(
            max_connections=limit,
            max_keepalive_connections=limit,
            keepalive_expiry=60,
        )
        asynchronous = (
            openai.DefaultAioHttpClient
            if client == "aiohttp"
            else openai.DefaultAsyncHttpxClient
        )
        given["timeout"] = httpx.Timeout(600, connect=60)
        options: dict[str, Any] = {"limits": limits, "trust_env": False}
        given["http_client"] = openai.DefaultHttpxClient(**options)
        given["http_async_client"] = asynchronous(**options)
    return ChatOpenAI(
        model="tiny", base_url=url, api_key="key", use_responses_api=False, **given
    )


def chain_of(groups: RetrievedGroups, model: ChatOpenAI, limit: int) -> DPChain:
    return DPChain(
        groups=groups,
        model=model,
        parser=VoteOutputParser(labels=LABELS, noise_multiplier=3.0),
        max_concurrency=limit,
        budget=PrivacyBudgetHandler(
            epsilon=1e5,
            delta=1e-6,
            accounting="zcdp",
            ledger=":memory:",
            account=uuid4().hex,
        ),
    )


async def ask(chain: DPChain, at_once: int, rounds: int) -> float:
    """Return seconds an answer, so many questions at once."""

    async def one() -> None:
        for _ in range(rounds):
            await chain.ainvoke(QUESTION)

    start = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(at_once)))
    return (time.perf_counter() - start) / (at_once * rounds)


def ask_sync(chain: DPChain, at_once: int, rounds: int) -> float:
    """Return seconds an answer, so many threads at once."""
    with ThreadPoolExecutor(at_once) as pool:
        start = time.perf_counter()
        for job in [pool.submit(chain.invoke, QUESTION) for _ in range(at_once)]:
            job.result()
        for _ in range(rounds - 1):
            list(pool.map(chain.invoke, [QUESTION] * at_once))
        return (time.perf_counter() - start) / (at_once * rounds)


async def bare(model: ChatOpenAI, prompts: list[Any], answers: int, most: int) -> float:
    """Return seconds for the calls of one answer, without the chain."""
    places = asyncio.Semaphore(most)

    async def call(prompt: Any) -> None:
        async with places:
            await model.ainvoke(prompt)

    start = time.perf_counter()
    await asyncio.gather(*(call(prompt) for prompt in prompts * answers))
    return (time.perf_counter() - start) / answers


def bare_sync(model: ChatOpenAI, prompts: list[Any], answers: int, most: int) -> float:
    """Return seconds for the calls of one answer, on as many threads as may be."""
    with ThreadPoolExecutor(most) as pool:
        start = time.perf_counter()
        list(pool.map(model.invoke, prompts * answers))
        return (time.perf_counter() - start) / answers


def most_threads(run: Callable[[], float]) -> tuple[float, int]:
    """Return what a call returns, and how many threads there were at most."""
    seen, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(0.01):
            seen.append(threading.active_count())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        return run(), max(seen) - 1
    finally:
        ended.set()
        looking.join()


def prompts_of(
    groups: RetrievedGroups, question: str, template: ChatPromptTemplate, manner: str
) -> list[Any]:
    return [
        template.format_prompt(
            context=DOCUMENT_SEPARATOR.join(d.page_content for d in slot),
            question=question,
            format_instructions=manner,
        )
        for slot in groups.draw(question)
    ]


def rates(
    url: str, groups: RetrievedGroups, given: argparse.Namespace, *, is_sync: bool
) -> Table:
    """Compare answers a second for 1 to 256 questions at a time."""
    latency, limit = given.latency, given.limit
    how = "invoke" if is_sync else "ainvoke"
    client = "httpx" if is_sync and given.client == "aiohttp" else given.client
    title = f"{how}, {1e3 * latency:.0f} ms, {limit} calls at once, {client}"
    table = Table(title=title)
    for name in ("questions at a time", "answers/s", "ideal", "share of it"):
        table.add_column(name, justify="right")
    for name in ("the calls alone", "ours / theirs", "processor a call", "threads"):
        table.add_column(name, justify="right")
    manner = VoteOutputParser(labels=LABELS).get_format_instructions()
    prompts = prompts_of(groups, QUESTION, GROUP_PROMPT, manner)
    model = model_of(url, limit, client)
    theirs_model = model_of(url, limit, client)
    chain = chain_of(groups, model, limit)
    loop = asyncio.new_event_loop()
    for at_once in given.questions:
        rounds = max(1, round(given.calls / (at_once * GROUPS)))
        most = min(limit, at_once * GROUPS)
        ours, theirs, threads, busy = [], [], 0, [0.0, 0.0]

        def run(at_once: int = at_once, rounds: int = rounds) -> float:
            if is_sync:
                return ask_sync(chain, at_once, rounds)
            return loop.run_until_complete(ask(chain, at_once, rounds))

        # The first run of all fills pools and caches.
        is_first = at_once == given.questions[0]
        for turn in range(given.repeats + is_first):
            before = time.process_time()
            found, seen = most_threads(run)
            middle = time.process_time()
            answers = at_once * rounds
            if is_sync:
                other = bare_sync(theirs_model, prompts, answers, most)
            else:
                task = bare(theirs_model, prompts, answers, most)
                other = loop.run_until_complete(task)
            threads = max(threads, seen)
            if turn or not is_first:
                calls = answers * GROUPS * given.repeats
                busy[0] += 1e3 * (middle - before) / calls
                busy[1] += 1e3 * (time.process_time() - middle) / calls
                ours.append(1 / found)
                theirs.append(1 / other)
        mine, other = statistics.median(ours), statistics.median(theirs)
        ideal = most / latency / GROUPS
        table.add_row(
            str(at_once),
            f"{mine:.1f}",
            f"{ideal:.1f}",
            f"{mine / ideal:.0%}",
            f"{other:.1f}",
            f"{mine / other:.2f}",
            f"{busy[0]:.1f}, {busy[1]:.1f} ms",
            str(threads),
        )
    return table


def shared(groups: RetrievedGroups) -> Table:
    """Show what all group prompts of a question begin with, now and as it was."""
    table = Table("default prompt", "parser", "characters shared", "share of a prompt")
    parser = VoteOutputParser(labels=LABELS)
    for name, template in (("now", GROUP_PROMPT), ("records first", RECORDS_FIRST)):
        lengths, shares = [], []
        for question in questions():
            manner = parser.get_format_instructions()
            prompts = prompts_of(groups, question.text, template, manner)
            texts = [prompt.to_string() for prompt in prompts]
            lengths.append(len(os.path.commonprefix(texts)))  # noqa: RUF071 - characters
            shares.append(lengths[-1] * len(texts) / sum(map(len, texts)))
        row = f"{statistics.mean(lengths):.0f}", f"{statistics.mean(shares):.1%}"
        table.add_row(name, type(parser).__name__, *row)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller runs")
    parser.add_argument("--latency", type=float, default=1.0)
    parser.add_argument("--limit", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=0)
    parser.add_argument(
        "--client", choices=("aiohttp", "httpx", "default"), default="aiohttp"
    )
    parser.add_argument("--part", choices=("async", "sync", "prefix"))
    parser.add_argument("--questions", type=int, nargs="*")
    given = parser.parse_args()
    given.repeats = given.repeats or (1 if given.quick else 3)
    given.questions = given.questions or (
        (1, 16, 256) if given.quick else (1, 4, 16, 64, 256)
    )
    given.calls = 2 * given.limit
    groups = RetrievedGroups.from_documents(
        clinic(),
        HashingEmbeddings(),
        unit_key="patient_id",
        n_groups=GROUPS,
    )
    console = Console(width=140)
    with server(given.latency) as url:
        for part in ("async", "sync"):
            if given.part in (None, part):
                is_sync = part == "sync"
                console.print(rates(url, groups, given, is_sync=is_sync))
    if given.part in (None, "prefix"):
        console.print(shared(groups))


if __name__ == "__main__":
    main()
