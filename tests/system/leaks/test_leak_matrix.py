"""The leak matrix: every observer, on every way of asking, with every parser.

Every record, unit id, metadata value, group answer and group call's usage is marked. A
run is asked in sight of a company of observers, and no mark may be found in anything
that any of them saw. `test_leak_twin.py` breaks the seal: then each of them must find
one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from support.leaks.breaks import redacting_in_sight
from support.leaks.collector import Collector
from support.leaks.faces import ASYNC_FACES, SYNC_FACES
from support.leaks.parts import (
    GATED,
    PARSERS,
    REDACTORS,
    STAGED,
    AsyncLeakyChat,
    LeakyChat,
)
from support.leaks.runs import ALONE, BASIC, COMPANIES, WAYS, watch

from langchain_dpicl.errors import UnsealableModelError
from langchain_dpicl.sealed import SealedModel

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

WATCHED = [name for name in COMPANIES if name != ALONE]
FACES = {**SYNC_FACES, **ASYNC_FACES}
RAISED = {
    "model": "",
    "embedding": "",
    "store": "GroupCallError",
    "ledger": "GroupCallError",
    "interrupt": "KeyboardInterrupt",
}


def answered() -> Iterator[Any]:
    turns = itertools.cycle(WATCHED)
    for way in WAYS:
        for parser in PARSERS:
            if way in BASIC and parser not in {GATED, STAGED}:
                for company in WATCHED:
                    yield pytest.param(way, parser, company)
            # The faces ask by `invoke` and `ainvoke`, which all parsers have had.
            elif way not in FACES or parser in {"vote", "ptr", "esa"}:
                yield pytest.param(way, parser, next(turns))
        # Not in step with the parsers.
        next(turns)


@pytest.mark.parametrize(("way", "parser", "company"), list(answered()))
def test_nobody_sees_anything_private(
    collector: Collector, way: str, parser: str, company: str
) -> None:
    found = watch(company, way, parser, collector=collector)
    assert {name: f.sight.private for name, f in found.items() if f.sight.private} == {}
    assert [name for name, f in found.items() if not f.works] == []
    assert {f.raised for f in found.values()} == {""}


@pytest.mark.parametrize("company", WATCHED)
@pytest.mark.parametrize("way", BASIC)
def test_nobody_sees_who_is_in_a_sample(
    collector: Collector, way: str, company: str
) -> None:
    """The marks of whoever is drawn, and the ids that the ledger is told of."""
    found = watch(company, way, "vote", collector=collector, sampling_rate=0.9)
    assert {name: f.sight.private for name, f in found.items() if f.sight.private} == {}
    assert [name for name, f in found.items() if not f.works] == []
    assert {f.raised for f in found.values()} == {""}


@pytest.mark.parametrize("failure", ["none", "ledger"])
@pytest.mark.parametrize("company", WATCHED)
@pytest.mark.parametrize("way", ["invoke", "astream"])
def test_nobody_sees_who_matches_a_filter(
    collector: Collector, way: str, company: str, failure: str
) -> None:
    """A filter that somebody matches, and one that nobody does, look the same."""
    raised = set()
    for floor in (1, 9):
        found = watch(
            company,
            way,
            "vote",
            collector=collector,
            failure=failure,
            where={"floor": floor},
        )
        assert {n: f.sight.private for n, f in found.items() if f.sight.private} == {}
        raised |= {f.raised for f in found.values()}
    assert raised == {RAISED.get(failure, "")}


@pytest.mark.parametrize("redactor", REDACTORS)
@pytest.mark.parametrize("company", WATCHED)
@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_nobody_sees_what_is_redacted(
    collector: Collector, way: str, company: str, redactor: str
) -> None:
    found = watch(company, way, "vote", collector=collector, redactor=redactor)
    assert {name: f.sight.private for name, f in found.items() if f.sight.private} == {}
    assert [name for name, f in found.items() if not f.works] == []
    assert {f.raised for f in found.values()} == {""}


class Quiet(LeakyChat):
    """A model that tells nothing."""

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        message = AIMessage("cough")
        return ChatResult(generations=[ChatGeneration(message=message)])


@pytest.mark.parametrize("redactor", REDACTORS)
@pytest.mark.parametrize("company", ["environment", "config"])
@pytest.mark.parametrize("way", ["invoke", "ainvoke"])
def test_twin_a_redactor_out_of_the_region_shows_it(
    collector: Collector, way: str, company: str, redactor: str
) -> None:
    told = {
        breaking: {
            name
            for name, found in watch(
                company,
                way,
                "vote",
                collector=collector,
                redactor=redactor,
                model=Quiet,
                breaking=breaking,
            ).items()
            if found.sight.private
        }
        for breaking in (None, redacting_in_sight)
    }
    assert told[None] == set()
    assert told[redacting_in_sight] >= {"logging", "warnings"}
    tracers = {"environment": "langsmith_environment", "config": "environment_tracer"}
    assert tracers[company] in told[redacting_in_sight]


def failing() -> Iterator[Any]:
    for failure in RAISED:
        for parser in ["esa", STAGED] if failure == "embedding" else PARSERS:
            for way in BASIC if parser not in {GATED, STAGED} else BASIC[:2]:
                yield pytest.param(failure, way, parser, ALONE)
        for way in ("invoke", "astream"):
            for company in WATCHED:
                yield pytest.param(failure, way, "esa", company)


@pytest.mark.parametrize(("failure", "way", "parser", "company"), list(failing()))
def test_nobody_sees_anything_private_in_a_failure(
    collector: Collector, failure: str, way: str, parser: str, company: str
) -> None:
    found = watch(company, way, parser, collector=collector, failure=failure)
    assert {name: f.sight.private for name, f in found.items() if f.sight.private} == {}
    assert {f.raised for f in found.values()} == {RAISED[failure]}


def test_the_collector_receives_traces_in_each_form(collector: Collector) -> None:
    for company in WATCHED:
        watch(company, "invoke", "ptr", collector=collector)
    assert collector.encodings("/") == {
        "multipart/form-data zstd",
        "multipart/form-data plain",
        "application/json plain",
    }


def test_listeners_on_the_model_are_refused() -> None:
    with pytest.raises(UnsealableModelError, match="listen to the chain"):
        SealedModel(AsyncLeakyChat().with_listeners(on_end=print))
