"""What is switched off in the sealed region goes on as before outside of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.caches import InMemoryCache
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import FakeListChatModel, FakeListLLM
from langchain_core.runnables import RunnableLambda
from opentelemetry import trace
from support.leaks.callbacks import AsyncRecorder, Recorder
from support.leaks.canaries import is_private
from support.leaks.observer import Stage
from support.leaks.output import rendered
from support.leaks.parts import AsyncLeakyChat, groups, telemetry, tell
from support.leaks.telemetry import ClientTelemetry

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.sealed import arun_sealed, run_sealed

QUESTION = "What did lisinopril give?"


@pytest.fixture
def cache() -> Iterator[InMemoryCache]:
    found = InMemoryCache()
    set_llm_cache(found)
    yield found
    set_llm_cache(None)


def call(text: str, config: Any) -> None:
    RunnableLambda(str.upper).invoke(text, config)
    FakeListChatModel(responses=["yes"]).invoke(text, config)
    FakeListLLM(responses=["yes"]).invoke(text, config)


async def acall(text: str, config: Any) -> None:
    await RunnableLambda(str.upper).ainvoke(text, config)
    await FakeListChatModel(responses=["yes"]).ainvoke(text, config)
    await FakeListLLM(responses=["yes"]).ainvoke(text, config)


async def test_callbacks_and_the_cache_work_outside_only(cache: InMemoryCache) -> None:
    handlers = Recorder(), AsyncRecorder()
    config = {"callbacks": list(handlers)}
    run_sealed(lambda: call("inside", config))
    await arun_sealed(lambda: acall("inside", config))
    assert [each.events for each in handlers] == [[], []]
    assert cache._cache == {}
    call("outside", config)
    await acall("afterwards", config)
    names = {name for each in handlers for name, _, _ in each.events}
    assert names >= {"on_chain_start", "on_chat_model_start", "on_llm_end"}
    assert len(cache._cache) == 4


@pytest.mark.parametrize("model_class", [FakeListChatModel, FakeListLLM])
def test_a_model_that_insists_on_a_cache_is_asked_all_the_same(
    model_class: Any, cache: InMemoryCache
) -> None:
    model = model_class(responses=["first", "second"], cache=True)
    said = [run_sealed(lambda: model.invoke("the same")) for _ in range(2)]
    assert len({getattr(each, "content", each) for each in said}) == 2
    assert cache._cache == {}


@pytest.mark.filterwarnings("ignore:deprecated argument:UserWarning")
def test_telemetry_works_outside_only(tmp_path: Any) -> None:
    stage, observer = Stage(tmp_path), ClientTelemetry()
    with observer.attach(stage):
        run_sealed(lambda: tell("inside"))
        tell("outside")
    spans, records, measured = observer.seen(stage)  # type: ignore[misc]
    for seen in (repr(spans), repr(records), measured):
        assert "outside" in seen
        assert "inside" not in seen


def test_spans_have_a_parent_that_no_usual_sampler_takes() -> None:
    parent = run_sealed(trace.get_current_span)
    assert parent.get_span_context().is_valid
    assert not parent.get_span_context().trace_flags.sampled
    assert not trace.get_current_span().get_span_context().is_valid
    assert telemetry == {}


async def test_a_cancelled_question_says_nothing_of_the_groups() -> None:
    started = threading.Event()  # Calls of models are on a loop of their own.

    class Hanging(AsyncLeakyChat):
        async def _agenerate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            if "Records:" not in str(messages):
                return await super()._agenerate(messages, *args, **kwargs)
            started.set()
            return await asyncio.sleep(3600)

    chain = DPChain(
        groups=groups(RetrievedGroups),
        model=Hanging(),
        parser=VoteOutputParser(labels=("cough", "rash")),
        budget=PrivacyBudgetHandler(
            epsilon=8, delta=1e-6, queries=2, ledger=":memory:"
        ),
    )
    asked = asyncio.ensure_future(chain.ainvoke(QUESTION))
    assert await asyncio.to_thread(started.wait, 60)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await asked
    assert not is_private(rendered(caught.value))
    assert asyncio.all_tasks() == {asyncio.current_task()}
