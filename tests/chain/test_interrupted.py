"""Queries that are broken off: canceled, or on an account that is closed meanwhile."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from typing import Any

import pytest
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult
from support.chain_parts import EMBEDDING, PARSERS, QUESTION, record, reply, rich
from support.fakes import AsyncScriptedModel, ScriptedModel, notes

from langchain_dpicl import DPChain, LedgerError, PrivacyBudgetHandler, RetrievedGroups
from langchain_dpicl.budget import charges

GROUPS = RetrievedGroups.from_documents(
    notes(300), EMBEDDING, unit_key="patient", n_groups=20
)


class SlowModel(AsyncScriptedModel):
    """Never ends a group's call by itself; says when one has begun."""

    async def _agenerate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        if "Lisinopril" in str(messages[-1].content):
            self._asked.append("group")
            await asyncio.sleep(3600)
        return self._generate(messages)


class SlowThreadModel(ScriptedModel):
    """The same without an asynchronous call: it holds its thread for a moment."""

    def _generate(
        self, messages: list[BaseMessage], *args: Any, **kwargs: Any
    ) -> ChatResult:
        found = super()._generate(messages)
        if "Lisinopril" in str(messages[-1].content):
            time.sleep(0.2)
        return found


async def until(condition: Any) -> None:
    for _ in range(1_000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came")


async def consume(chain: DPChain) -> None:
    async for _ in chain.astream(QUESTION):
        pass


async def ask_as_batch(chain: DPChain) -> None:
    await chain.abatch([QUESTION])


async def ask(chain: DPChain) -> None:
    await chain.ainvoke(QUESTION)


@pytest.mark.parametrize("way", [ask, ask_as_batch, consume])
@pytest.mark.parametrize("name", sorted(PARSERS))
async def test_a_cancelled_query_is_charged_and_leaves_no_task(
    name: str, way: Any
) -> None:
    budget, model = rich(), SlowModel(reply=reply)
    chain = DPChain(groups=GROUPS, model=model, parser=PARSERS[name](), budget=budget)
    query = asyncio.ensure_future(way(chain))
    await until(lambda: model.asked.count("group") > 5)
    query.cancel()
    with pytest.raises(asyncio.CancelledError):
        await query
    assert len(charges(budget.ledger, "default")) == 1
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    # Coroutines that were never awaited, results that nobody fetched: they are told
    # of when they are collected, and warnings are errors here.
    del query
    gc.collect()


async def test_a_cancelled_query_on_threads_makes_no_further_call() -> None:
    budget, model = rich(), SlowThreadModel(reply=reply)
    chain = DPChain(
        groups=GROUPS,
        model=model,
        parser=PARSERS["vote"](),
        budget=budget,
        max_concurrency=2,
    )
    query = asyncio.ensure_future(chain.ainvoke(QUESTION))
    await until(lambda: len(model.asked) >= 2)
    query.cancel()
    with pytest.raises(asyncio.CancelledError):
        await query
    asked = len(model.asked)
    await until(
        lambda: (
            not any(t.name.startswith("dpicl-sealed") for t in threading.enumerate())
        )
    )
    assert len(model.asked) <= asked + 2 < 20
    assert len(charges(budget.ledger, "default")) == 1


async def test_the_timeout_of_the_caller_ends_the_query() -> None:
    budget = rich()
    chain = DPChain(
        groups=GROUPS,
        model=SlowModel(reply=reply),
        parser=PARSERS["vote"](),
        budget=budget,
    )
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(chain.ainvoke(QUESTION), 0.2)
    assert len(charges(budget.ledger, "default")) == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_stream_that_is_left_open_is_closed_with_its_steps() -> None:
    budget = rich()
    chain = DPChain(
        groups=GROUPS,
        model=AsyncScriptedModel(reply=reply),
        parser=PARSERS["ptr"](),
        budget=budget,
    )
    stream: Any = chain.astream(QUESTION)
    await stream.__anext__()
    await stream.aclose()
    assert not charges(budget.ledger, "default")
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_account_closed_during_a_query_answers_that_one_and_no_other(
    is_async: bool,
) -> None:
    budget = rich()

    def close(text: str) -> str:
        if "Lisinopril" in text:
            budget.ledger.close_account("default")
        return reply(text)

    chain = DPChain(
        groups=GROUPS,
        model=AsyncScriptedModel(reply=close),
        parser=PARSERS["vote"](),
        budget=budget,
    )
    answer = await chain.ainvoke(QUESTION) if is_async else chain.invoke(QUESTION)
    # What was charged before the account closed is released: it is paid for.
    assert record(answer)["status"] == "released"
    with pytest.raises(LedgerError, match="closed"):
        chain.invoke(QUESTION)
    with pytest.raises(LedgerError, match="closed"):
        await chain.ainvoke(QUESTION)
    assert len(charges(budget.ledger, "default")) == 1


def test_an_account_closed_amid_a_batch_releases_what_was_charged(
    tmp_path: Any,
) -> None:
    budget = PrivacyBudgetHandler(
        epsilon=30,
        delta=1e-6,
        queries=12,
        ledger=f"sqlite:///{tmp_path / 'ledger.db'}",
    )
    calls: list[str] = []
    counting = threading.Lock()

    def close(text: str) -> str:
        if "Lisinopril" in text:
            # The other questions wait: SQLite's lock is not fair, and they could charge
            # all that is left before the account is closed.
            with counting:
                calls.append(text)
                if len(calls) == 50:
                    budget.ledger.close_account("default")
        return reply(text)

    chain = DPChain(
        groups=GROUPS,
        model=ScriptedModel(reply=close),
        parser=PARSERS["vote"](),
        budget=budget,
    )
    found = chain.batch([QUESTION] * 12, {"max_concurrency": 3}, return_exceptions=True)
    released = [answer for answer in found if not isinstance(answer, Exception)]
    refused = [answer for answer in found if isinstance(answer, Exception)]
    assert all(isinstance(error, LedgerError) for error in refused)
    assert released
    assert refused
    numbers = {record(answer)["charge"] for answer in released}
    assert len(numbers) == len(released) == len(charges(budget.ledger, "default"))
