"""asyncio's debug mode logs tasks with their results: none of them may be private."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from support.fakes import AsyncScriptedModel, notes

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.sealed import region
from langchain_dpicl.sealed.model_loop import model_loop, on_model_loop

QUESTION = "What did lisinopril give?"


def reply(text: str) -> str:
    if "Note 7." in text:
        raise RuntimeError(text)
    return "cough" if "Lisinopril" in text else "rash"


async def logged_results(
    caplog: pytest.LogCaptureFixture, ask: Callable[[], Any]
) -> set[str]:
    loop = asyncio.get_running_loop()
    before = loop.slow_callback_duration
    loop.set_debug(True)
    loop.slow_callback_duration = 0
    try:
        with caplog.at_level(logging.DEBUG):
            await ask()
    finally:
        loop.set_debug(False)
        loop.slow_callback_duration = before
    sealed = [
        record.getMessage()
        for record in caplog.records
        if "sealed/region.py" in record.getMessage()
    ]
    assert sealed, "the debug mode has logged nothing of the sealed tasks"
    found = " ".join(sealed)
    return set(re.findall(r"result=(\S+)", found)) - {"None", "None>"}


def chain() -> DPChain:
    groups = RetrievedGroups.from_documents(
        notes(12),
        HashingEmbeddings(),
        unit_key="patient",
        n_groups=6,
        score_threshold=0.0,
    )
    return DPChain(
        groups=groups,
        model=AsyncScriptedModel(reply=reply),
        parser=VoteOutputParser(labels=["cough", "rash"]),
        budget=PrivacyBudgetHandler(
            epsilon=8,
            delta=1e-6,
            queries=9,
            accounting="renyi",
            scope="unit",
            ledger=":memory:",
        ),
    )


async def test_tasks_of_the_sealed_region_have_no_result_to_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    private = chain()
    results = await logged_results(caplog, lambda: private.ainvoke(QUESTION))
    assert results <= {"<hidden>", "<hidden>>"}


async def test_the_twin_whose_tasks_return_what_they_found_is_seen(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region.Hidden, "__repr__", lambda self: repr(self.value))
    private = chain()
    results = await logged_results(caplog, lambda: private.ainvoke(QUESTION))
    assert not results <= {"<hidden>", "<hidden>>"}


async def careless() -> None:
    """Leave a task with a private result, and one with an error that nobody fetches."""

    async def answer() -> str:
        return "private result"

    async def fail() -> None:
        raise RuntimeError("private error")

    tasks: list[Any] = [asyncio.ensure_future(each()) for each in (answer, fail)]
    await asyncio.wait(tasks)
    tasks.clear()
    gc.collect()


@pytest.mark.parametrize("on_own_loop", [True, False], ids=["own loop", "twin"])
async def test_the_models_loop_says_nothing_by_itself(
    caplog: pytest.LogCaptureFixture, on_own_loop: bool
) -> None:
    loop = model_loop().loop if on_own_loop else asyncio.get_running_loop()
    before = loop.slow_callback_duration
    loop.set_debug(True)
    loop.slow_callback_duration = 0
    try:
        with caplog.at_level(logging.DEBUG):
            await (on_model_loop(careless) if on_own_loop else careless())
    finally:
        loop.set_debug(False)
        loop.slow_callback_duration = before
    said = [text for text in ("result", "error") if f"private {text}" in caplog.text]
    assert said == ([] if on_own_loop else ["result", "error"])
