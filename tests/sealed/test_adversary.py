"""Attacks on the sealed region from inside a group call, as a client makes them.

Each of these once got through. They run on every way of asking: on worker threads, in
tasks, and in threads that tasks wait for.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from langsmith.run_helpers import get_tracing_context
from support.fakes import AsyncScriptedModel, ScriptedModel, notes

from langchain_dpicl import DPChain, PrivacyBudgetHandler, RetrievedGroups
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.parsers import KSAPTROutputParser, VoteOutputParser

CANARY = "canary-7f3a"
QUESTION = "What did lisinopril give?"
EMBEDDING = HashingEmbeddings()

MODELS = [ScriptedModel, AsyncScriptedModel]


class Panic(BaseException):
    """What a panic of a compiled extension is: not an `Exception`."""


@pytest.fixture(scope="module")
def groups() -> RetrievedGroups:
    return RetrievedGroups.from_documents(
        notes(300), EMBEDDING, unit_key="patient", n_groups=60
    )


async def ask_both(
    groups: RetrievedGroups, reply: Callable[[str], str], model_class: Any, **more: Any
) -> list[str]:
    chain = DPChain(
        groups=groups,
        model=model_class(reply=reply),
        parser=VoteOutputParser(labels=["cough", "rash"]),
        budget=PrivacyBudgetHandler(
            epsilon=30, delta=1e-6, queries=4, ledger=":memory:"
        ),
        **more,
    )
    asked = [chain.invoke(QUESTION), await chain.ainvoke(QUESTION)]
    return [str(answer.content) for answer in asked]


@pytest.mark.parametrize("model_class", MODELS)
async def test_a_call_can_neither_log_nor_trace_nor_warn(
    groups: RetrievedGroups,
    model_class: Any,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    tracing: list[object] = []

    def talkative(text: str) -> str:
        if "Records:" not in text:
            return "cough"
        tracing.append(get_tracing_context()["enabled"])
        log = logging.getLogger("some.sdk")
        log.debug("body %s", CANARY)
        log.error("failed", extra={"body": CANARY}, stack_info=True)
        log.handle(logging.makeLogRecord({"msg": CANARY, "levelno": logging.ERROR}))
        warnings.warn(CANARY, stacklevel=1)
        return "cough"

    filtered: list[logging.LogRecord] = []

    def watch(record: logging.LogRecord) -> bool:
        filtered.append(record)
        return True

    factory = logging.getLogRecordFactory()
    made: list[object] = []

    def spy(*args: Any, **kwargs: Any) -> logging.LogRecord:
        made.append(args)
        return factory(*args, **kwargs)

    caplog.set_level(0)
    logging.getLogger("some.sdk").addFilter(watch)
    logging.setLogRecordFactory(spy)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert await ask_both(groups, talkative, model_class) == ["cough", "cough"]
    logging.setLogRecordFactory(factory)
    logging.getLogger("some.sdk").removeFilter(watch)
    assert filtered == []
    assert CANARY not in repr(made)
    assert len(tracing) == 120
    assert set(tracing) == {False}
    assert [r for r in caplog.records if r.name == "some.sdk"] == []
    assert CANARY not in repr([w.message for w in warned])
    assert CANARY not in "".join(capfd.readouterr())


@pytest.mark.parametrize("model_class", MODELS)
@pytest.mark.parametrize(
    "error",
    [
        Panic(CANARY),
        SystemExit(CANARY),
        asyncio.CancelledError(CANARY),
        GeneratorExit(CANARY),
        StopIteration(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_nothing_that_one_group_raises_ends_the_query(
    groups: RetrievedGroups, model_class: Any, error: BaseException
) -> None:
    def raising(text: str) -> str:
        if "Note 7." in text:
            raise error
        return "cough"

    assert await ask_both(groups, raising, model_class) == ["cough", "cough"]


@pytest.mark.parametrize("model_class", MODELS)
async def test_an_interrupt_ends_it_and_carries_nothing(
    groups: RetrievedGroups, model_class: Any
) -> None:
    def stopped(text: str) -> str:
        if "Records:" not in text:
            return "cough"
        raise KeyboardInterrupt(CANARY)

    chain = DPChain(
        groups=groups,
        model=model_class(reply=stopped),
        parser=VoteOutputParser(labels=["cough", "rash"]),
        budget=PrivacyBudgetHandler(
            epsilon=30, delta=1e-6, queries=4, ledger=":memory:"
        ),
    )
    with pytest.raises(KeyboardInterrupt) as caught:
        chain.invoke(QUESTION)
    assert CANARY not in repr(caught.value)


def test_a_deeply_nested_record_stops_no_query() -> None:
    documents = notes(300)
    nested: Any = "x"
    for _ in range(400):
        nested = [nested]
    documents[7].metadata["nested"] = nested
    groups = RetrievedGroups.from_documents(
        documents, EMBEDDING, unit_key="patient", n_groups=60
    )
    chain = DPChain(
        groups=groups,
        model=ScriptedModel(reply=lambda _text: "cough"),
        parser=VoteOutputParser(labels=["cough", "rash"]),
        budget=PrivacyBudgetHandler(
            epsilon=30, delta=1e-6, queries=40, ledger=":memory:"
        ),
    )

    def deeper(depth: int) -> str:
        if depth:
            return deeper(depth - 1)
        return str(chain.invoke(QUESTION).content)

    assert {deeper(depth) for depth in (0, 60, 120, 300)} == {"cough"}


async def test_a_tokenizer_that_fails_on_one_answer_stops_no_release(
    groups: RetrievedGroups,
) -> None:
    def picky(text: str) -> list[str]:
        if "special" in text:
            raise Panic(CANARY)
        return text.split()

    def reply(text: str) -> str:
        return "special" if "Note 7." in text else "cough"

    chain = DPChain(
        groups=groups,
        model=ScriptedModel(reply=reply),
        parser=KSAPTROutputParser(k=1, tokenizer=picky, drop_public_words=False),
        budget=PrivacyBudgetHandler(
            epsilon=30, delta=1e-6, queries=4, ledger=":memory:"
        ),
    )
    for answer in (chain.invoke(QUESTION), await chain.ainvoke(QUESTION)):
        assert answer.response_metadata["privacy"]["keywords"] == ["cough"]
