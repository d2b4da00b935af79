"""What may go wrong between a client and a real HTTP server, and what it costs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from langchain_openai import ChatOpenAI, OpenAI
from support.chain_parts import QUESTION, record, rich
from support.servers.recording_proxy import Answer, Drop, Exchange, Hold, RecordingProxy

from langchain_dpicl import (
    DPChain,
    KSAPTROutputParser,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
    threads,
)
from langchain_dpicl.errors import PublicCallError

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

Make = Callable[..., Any]
GROUPS = 30
LABELS = ["cough", "rash"]

# The client waits as long as the header says, or else for half a second and more.
BUSY = Answer.of({"error": {"message": "busy"}}, 429, retry_after_ms="1")
BROKEN = Answer.of({"error": {"message": "broken"}}, 500, retry_after_ms="1")


def saying(*choices: str) -> dict[str, Any]:
    """Make a model answer with one of these."""
    return {"extra_body": {"structured_outputs": {"choice": list(choices)}}}


def votes(message: Any) -> float:
    return float(sum(record(message)["details"]["noisy_votes"].values()))


def chain_of(
    groups: RetrievedGroups, model: Any, queries: int = 2, **changes: Any
) -> tuple[DPChain, PrivacyBudgetHandler]:
    budget = rich(queries)
    parts: dict[str, Any] = {"parser": VoteOutputParser(labels=LABELS), **changes}
    return DPChain(
        groups=groups, model=model, budget=budget, **{"cache": False, **parts}
    ), budget


def first_tries(count: int, fault: Any) -> Callable[[Exchange], Any]:
    """Give the fault to the first try of the first prompts, and to no second try."""
    seen: set[str] = set()
    lock = threading.Lock()

    def rule(exchange: Exchange) -> Any:
        with lock:
            if exchange.text in seen or len(seen) == count:
                return None
            seen.add(exchange.text)
        return fault

    return rule


def nobody_is_left() -> bool:
    """Whether no call of a query is left, and no task but the test's own."""
    work = sum(pool.unfinished for pool in threads._pools)
    return not work and asyncio.all_tasks() == {asyncio.current_task()}


async def until(condition: Callable[[], bool], query: Any = None) -> None:
    """Wait for something that happens in other threads, while a query goes on."""
    deadline = time.monotonic() + 120
    # In the test's own task: `nobody_is_left` counts every other one.
    while not condition():
        assert query is None or not query.done(), query
        assert time.monotonic() < deadline, condition
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("fault", [BUSY, BROKEN, Drop()], ids=["429", "500", "drop"])
async def test_the_providers_own_retries_are_kept(
    proxy: RecordingProxy, make_model: Make, few_groups: RetrievedGroups, fault: Any
) -> None:
    # A dropped connection is waited for by the clock, not by a header.
    failing = 2 if isinstance(fault, Drop) else 10
    model = make_model(max_retries=2, **saying("cough"))
    chain, _ = chain_of(few_groups, model)
    for ask in (chain.invoke, chain.ainvoke):
        proxy.forget()
        proxy.rule = first_tries(failing, fault)
        answer: Any = ask(QUESTION)
        if asyncio.iscoroutine(answer):
            answer = await answer
        assert answer.content == "cough"
        assert votes(answer) == pytest.approx(GROUPS, abs=5)
        assert len(proxy.exchanges) == GROUPS + failing


@pytest.mark.parametrize("kind", [ChatOpenAI, OpenAI], ids=["chat", "completions"])
@pytest.mark.parametrize(
    "wrong",
    [{"model": "no-such-model"}, {"api_key": "wrong"}, {"max_tokens": -5}],
    ids=["model", "key", "argument"],
)
async def test_a_provider_that_refuses_the_question_costs_nothing(
    monkeypatch: pytest.MonkeyPatch,
    proxy: RecordingProxy,
    make_model: Make,
    few_groups: RetrievedGroups,
    kind: Any,
    wrong: dict[str, Any],
) -> None:
    monkeypatch.undo()
    model = make_model(kind, **wrong)
    chain, budget = chain_of(few_groups, model, parser=KSAPTROutputParser(k=2))
    with pytest.raises(PublicCallError, match="question alone") as failed:
        chain.invoke(QUESTION)
    assert failed.value.__cause__ is failed.value.__context__ is None
    with pytest.raises(PublicCallError, match="question alone"):
        await chain.ainvoke(QUESTION)
    assert budget.spent().queries == 0
    assert not any("Lisinopril gave" in each.text for each in proxy.exchanges)


async def test_a_server_that_dies_in_the_middle_is_paid_for_and_gives_nothing_away(
    proxy: RecordingProxy, make_model: Make, few_groups: RetrievedGroups
) -> None:
    lock, deaths = threading.Lock(), iter([10])

    def rule(exchange: Exchange) -> Any:
        with lock:
            if exchange.number >= 10 and next(deaths, None):
                threading.Thread(target=proxy.close, name="death").start()
        return Drop() if exchange.number >= 10 else None

    proxy.rule = rule
    chain, budget = chain_of(few_groups, make_model(**saying("cough")))
    answer = await chain.ainvoke(QUESTION)
    # Two thirds have failed: noise must not choose the label, and no public model is
    # there to answer instead.
    assert record(answer)["status"] == "abstained"
    assert record(answer)["details"]["reason"] == "too many calls to the model failed"
    assert "cough" not in answer.content
    assert budget.spent().queries == 1
    assert record(chain.invoke(QUESTION))["status"] == "abstained"
    assert budget.spent().queries == 2
    for thread in threading.enumerate():
        if thread.name == "death":
            thread.join()
    await until(nobody_is_left)


async def test_who_stops_listening_to_the_wording_keeps_the_words(
    proxy: RecordingProxy, make_model: Make, few_groups: RetrievedGroups
) -> None:
    go_on = threading.Event()

    def rule(exchange: Exchange) -> Any:
        return Hold(go_on) if "suggestions" in exchange.text else None

    proxy.rule = rule
    parser = KSAPTROutputParser(k=2, drop_public_words=False)
    model = make_model(**saying("They had a dry cough."))
    chain, budget = chain_of(few_groups, model, parser=parser, cache=True)

    async def listen() -> None:
        async for piece in chain.astream(QUESTION):
            assert not piece.content

    listening = asyncio.ensure_future(listen())
    await until(
        lambda: any("suggestions" in e.text for e in proxy.exchanges), listening
    )
    listening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listening
    go_on.set()
    await until(nobody_is_left)
    assert record(await chain.ainvoke(QUESTION))["status"] == "cached"
    assert budget.spent().queries == 1
