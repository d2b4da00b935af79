"""Odd replies of a provider: each silences its own group, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from langchain_openai import ChatOpenAI, OpenAI
from support.chain_parts import QUESTION, record, rich
from support.servers.recording_proxy import Answer, Exchange, RecordingProxy
from support.servers.scripted_provider import completion
from test_provider_answers import GROUPS, LABELS, is_private, saying, votes

from langchain_dpicl import (
    DPChain,
    KSAPTROutputParser,
    RetrievedGroups,
    VoteOutputParser,
)

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "look_up", "arguments": '{"word": "rash"}'},
}
BROKEN_CALL = {**CALL, "function": {"name": "look_up", "arguments": "{rash"}}

SILENT = {
    "refusal": completion([{"content": None, "refusal": "I won't say rash."}]),
    "tool-call": completion([{"content": None, "tool_calls": [CALL]}]),
    "broken-tool-call": completion([{"content": None, "tool_calls": [BROKEN_CALL]}]),
    "old-function-call": completion(
        [{"content": None, "function_call": CALL["function"]}]
    ),
    "empty": completion([""]),
    "blank": completion([" \n\t"]),
    "no-blocks": completion([{"content": []}]),
    "odd-blocks": completion([{"content": [{"type": "image", "data": "rash"}]}]),
    "number": completion([{"content": 7}]),
    "no-choice": completion([]),
    "no-choices": {**completion([]), "choices": None},
    "error-with-200": {"error": {"message": "rash"}},
    "list": ["rash"],
    "null": None,
}
"""Replies with status 200 in which nobody said anything."""

SPEAKING = {
    "blocks": completion([{"content": [{"type": "text", "text": "cough"}]}]),
    "with-a-tool-call": completion([{"content": "cough", "tool_calls": [CALL]}]),
    "with-reasoning": completion([{"content": "cough", "reasoning": "or rash?"}]),
    "several": completion(["cough", "rash", "rash"]),
    "long": completion(["And so on. " * 1_000 + "\ncough"]),
    "cut-off": {**completion(["cough"]), "usage": None},
}
"""Replies with status 200 that say `cough`."""


def replying(reply: Answer) -> Callable[[Exchange], Answer | None]:
    """Reply so to ten groups, and let the others answer as usual."""
    replied: set[str] = set()
    lock = threading.Lock()

    def rule(exchange: Exchange) -> Answer | None:
        if not is_private(exchange.text):
            return None
        with lock:
            if len(replied) < 10:
                replied.add(exchange.text)
            return reply if exchange.text in replied else None

    return rule


async def ask(
    make_model: Callable[..., Any], groups: RetrievedGroups, kind: Any = ChatOpenAI
) -> list[Any]:
    chain = DPChain(
        groups=groups,
        model=make_model(kind, **saying("cough")),
        parser=VoteOutputParser(labels=LABELS),
        budget=rich(2),
        cache=False,
        max_concurrency=8,
    )
    return [chain.invoke(QUESTION), await chain.ainvoke(QUESTION)]


@pytest.mark.parametrize("name", SILENT)
async def test_a_reply_that_says_nothing_abstains(
    proxy: RecordingProxy,
    make_model: Callable[..., Any],
    few_groups: RetrievedGroups,
    name: str,
) -> None:
    proxy.rule = replying(Answer.of(SILENT[name]))
    for answer in await ask(make_model, few_groups):
        assert answer.content == "cough"
        assert votes(answer) == pytest.approx(GROUPS - 10, abs=5)


@pytest.mark.parametrize("name", SPEAKING)
async def test_a_reply_that_says_something_is_read_once(
    proxy: RecordingProxy,
    make_model: Callable[..., Any],
    few_groups: RetrievedGroups,
    name: str,
) -> None:
    proxy.rule = replying(Answer.of(SPEAKING[name]))
    for answer in await ask(make_model, few_groups):
        assert answer.content == "cough"
        assert votes(answer) == pytest.approx(GROUPS, abs=5)


@pytest.mark.parametrize(
    "reply",
    [
        Answer(200, (b"<html>rash</html>",), {"content-type": "text/html"}),
        Answer(200, (b'{"choices": [{"mess',), {"content-type": "application/json"}),
        Answer(200, (), {"content-type": "application/json"}),
        Answer(302, (), {"location": "http://127.0.0.1:1/rash"}),
        Answer(503, (b"\xff\xfe",), {"content-type": "text/plain"}),
    ],
    ids=["html", "half-json", "nothing", "redirect", "no-text"],
)
@pytest.mark.parametrize("kind", [ChatOpenAI, OpenAI], ids=["chat", "completions"])
async def test_a_reply_that_is_none_abstains(
    proxy: RecordingProxy,
    make_model: Callable[..., Any],
    few_groups: RetrievedGroups,
    reply: Answer,
    kind: Any,
) -> None:
    proxy.rule = replying(reply)
    for answer in await ask(make_model, few_groups, kind):
        assert answer.content == "cough"
        assert votes(answer) == pytest.approx(GROUPS - 10, abs=5)


async def test_a_refusal_where_all_is_public_costs_no_more_than_the_release(
    proxy: RecordingProxy,
    make_model: Callable[..., Any],
    few_groups: RetrievedGroups,
) -> None:
    refusal = Answer.of(SILENT["refusal"])
    proxy.rule = lambda e: None if is_private(e.text) else refusal
    budget = rich(2)
    chain = DPChain(
        groups=few_groups,
        model=make_model(**saying("They had a dry cough.")),
        parser=KSAPTROutputParser(k=2),
        budget=budget,
        cache=False,
    )
    for answer in (chain.invoke(QUESTION), await chain.ainvoke(QUESTION)):
        # The words are paid for, so they are said where the model words nothing.
        assert answer.content == "cough, dry"
        assert record(answer)["status"] == "released"
    assert budget.spent().queries == 2
