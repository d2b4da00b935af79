"""What a chain reports by OpenTelemetry, and the mark that it puts into traces."""

from __future__ import annotations

import builtins
import json
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from support.chain_parts import EMBEDDING, PARSERS, QUESTION, record, reply, rich
from support.fakes import ScriptedModel, notes

from langchain_dpicl import BudgetExhaustedError, DPChain, RetrievedGroups
from langchain_dpicl.chain import telemetry

GROUPS = RetrievedGroups.from_documents(
    notes(900), EMBEDDING, unit_key="patient", n_groups=60
)


def make_chain(**parts: Any) -> DPChain:
    model = ScriptedModel(reply=reply)
    return DPChain(groups=GROUPS, model=model, parser=PARSERS["vote"](), **parts)


class Metrics:
    """A meter provider of a test's own, and what was reported to it."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader])

    def points(self) -> dict[str, list[tuple[dict[str, Any], float]]]:
        data = self.reader.get_metrics_data()
        found: dict[str, list[tuple[dict[str, Any], float]]] = {}
        for resource in json.loads(data.to_json())["resource_metrics"] if data else ():
            for scope in resource["scope_metrics"]:
                assert scope["scope"]["name"] == "langchain_dpicl"
                for metric in scope["metrics"]:
                    found[metric["name"]] = [
                        (point["attributes"], point["value"])
                        for point in metric["data"]["data_points"]
                    ]
        return found


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> Iterator[Metrics]:
    found = Metrics()
    monkeypatch.setattr(metrics, "get_meter", found.provider.get_meter)
    telemetry._instruments.cache_clear()
    yield found
    telemetry._instruments.cache_clear()
    found.provider.shutdown()


class Runs(BaseCallbackHandler):
    """Notes which runs begin and end, in order, and what they show."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []
        self._names: dict[Any, str] = {}

    def on_chain_start(self, serialized: Any, inputs: Any, **kwargs: Any) -> None:
        self._names[kwargs["run_id"]] = kwargs["name"]
        self.seen.append((f"begin {kwargs['name']}", inputs))

    def on_chain_end(self, outputs: Any, **kwargs: Any) -> None:
        self.seen.append((f"end {self._names[kwargs['run_id']]}", outputs))


async def test_questions_and_what_is_left_are_reported(reported: Metrics) -> None:
    chain = make_chain(budget=rich(3))
    answers = [chain.invoke(QUESTION), await chain.ainvoke(QUESTION)]
    answers.append(list(chain.stream(QUESTION))[-1])
    answer = answers[0]
    with pytest.raises(BudgetExhaustedError):
        chain.invoke(QUESTION)
    found = reported.points()
    account = {"dpicl.account": record(answer)["account"]["name"]}
    kinds = {
        "dpicl.status": record(answer)["status"],
        "dpicl.mechanism": record(answer)["mechanism"],
    }
    assert found["dpicl.questions"] == [
        ({**kinds, **account}, 3),
        ({"error.type": "BudgetExhaustedError"}, 1),
    ]
    assert found["dpicl.model_calls"] == [
        (account, sum(record(each)["calls"] for each in answers))
    ]
    assert found["dpicl.budget.queries_left"] == [(account, 0)]
    ((_, epsilon),) = found["dpicl.budget.epsilon_left"]
    assert epsilon == pytest.approx(0, abs=0.1)


async def test_the_trace_has_a_mark_without_content_or_duration() -> None:
    chain, runs = make_chain(budget=rich(3)), Runs()
    config: Any = {"callbacks": [runs]}
    chain.invoke(QUESTION, config)
    invoked, runs.seen = runs.seen, []
    await chain.ainvoke(QUESTION, config)
    name = f"{chain.groups.n_groups} group calls"
    for seen in (invoked, runs.seen):
        (begin,) = (n for n, (what, _) in enumerate(seen) if what == f"begin {name}")
        assert seen[begin : begin + 2] == [(f"begin {name}", {}), (f"end {name}", {})]
        assert isinstance(seen[-1][1], AIMessage)


def test_without_opentelemetry_questions_are_answered_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    telemetry._instruments.cache_clear()
    try:
        assert make_chain(budget=rich(1)).invoke(QUESTION).content
        assert telemetry._instruments() == {}
    finally:
        telemetry._instruments.cache_clear()
