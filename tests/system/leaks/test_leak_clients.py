"""The leak matrix with a real client: OpenAI's, over HTTP, wrapped and talkative."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pytest
from langchain_openai import ChatOpenAI
from support.leaks.breaks import unsealed
from support.leaks.callbacks import EnvironmentTracer, UsageInContext
from support.leaks.canaries import look
from support.leaks.collector import Collector
from support.leaks.langsmith import LangSmithByEnvironment
from support.leaks.output import AsyncioDebug, DebugLogs, DebugOutput, Warned
from support.leaks.runs import ALONE, ASYNC, watch
from support.leaks.state import Answers, Errors, LedgerFiles

from langchain_dpicl.chain.public_model import PublicModel

pytestmark = [
    pytest.mark.allow_hosts(["127.0.0.1"]),
    pytest.mark.parametrize("way", ["invoke", "ainvoke"]),
]

ONE_BY_ONE = httpx.Limits(max_keepalive_connections=0)
WATCHED: list[type[Any]] = [
    LangSmithByEnvironment,
    EnvironmentTracer,
    UsageInContext,
    DebugOutput,
    DebugLogs,
    AsyncioDebug,
    Warned,
    Answers,
    Errors,
    LedgerFiles,
]


@pytest.fixture
def model(collector: Collector) -> Iterator[Callable[..., Any]]:
    with httpx.Client(limits=ONE_BY_ONE) as client:
        yield partial(_model, collector, client)


def _model(
    collector: Collector, client: httpx.Client, *, failing: str, **fields: Any
) -> ChatOpenAI:
    model = ChatOpenAI(
        model="a-model",
        api_key="none",  # type: ignore[arg-type]  # made a secret by pydantic
        base_url=f"{collector.url}/openai/v1",
        http_client=client,
        http_async_client=httpx.AsyncClient(limits=ONE_BY_ONE),
        use_responses_api=False,
        max_retries=0,
        **fields,
    )
    with warnings.catch_warnings():
        # LangSmith's own, on import.
        warnings.simplefilter("ignore", DeprecationWarning)
        from langsmith.wrappers import wrap_openai
    # Every call of the client is a run of LangSmith's own.
    model.client = wrap_openai(model.root_client).chat.completions
    model.async_client = wrap_openai(model.root_async_client).chat.completions
    return model


def _watched(way: str) -> list[type[Any]]:
    return [kind for kind in WATCHED if way in ASYNC or not kind.only_async]


def test_a_real_client_shows_nothing(
    collector: Collector,
    model: Callable[..., Any],
    way: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The server's answers are marked, to the question alone as well.
    monkeypatch.setattr(PublicModel, "has_answered", True)
    before = len(collector.bodies("/openai/"))
    found = watch(
        ALONE, way, "vote", collector=collector, only=_watched(way), model=model
    )
    asked = look(collector.bodies("/openai/")[before:]).private
    assert asked == ["document"]
    assert {name: f.sight.private for name, f in found.items() if f.sight.private} == {}
    assert {f.raised for f in found.values()} == {""}


def test_the_twin_whose_calls_are_ordinary_ones_is_seen(
    collector: Collector, model: Callable[..., Any], way: str
) -> None:
    found = watch(
        ALONE,
        way,
        "vote",
        collector=collector,
        only=_watched(way),
        model=model,
        breaking=unsealed,
    )
    sees = {name for name, f in found.items() if "document" in f.sight.private}
    assert sees >= {"langsmith_environment", "environment_tracer", "set_debug"}
    assert "logging" in sees
