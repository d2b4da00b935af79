"""The leak matrix's twin: with the seal broken, every observer finds something.

Most of them see when group calls are ordinary calls. What those do not show (a repr, a
ledger's files, the text of an answer) has a break of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.leaks.breaks import BREAKS, SEALED_CALLS, Break, unsealed
from support.leaks.collector import Collector
from support.leaks.output import Warned
from support.leaks.runs import ALONE, ALWAYS, ASYNC, BASIC, COMPANIES, OBSERVERS, watch
from support.leaks.state import Answers

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])

STREAMS = [
    "astream_events_v1",
    "astream_events_v2",
    "astream_log",
    "lcel_events",
    "graph_stream",
    "graph_astream",
    "agent",
    "agent_events",
]


def broken_runs(way: str) -> dict[tuple[Break, str], list[str]]:
    """Return the runs that show every observer what it is there to see."""
    runs: dict[tuple[Break, str], list[str]] = {}
    for kind in OBSERVERS:
        if kind.only_async and way not in ASYNC:
            continue
        broken = BREAKS.get(kind.name, SEALED_CALLS)
        homes = [name for name, (_, own) in COMPANIES.items() if kind in own]
        # Who is everywhere looks at a run that is made anyway.
        home = homes[0] if homes else "environment" if broken is SEALED_CALLS else ALONE
        runs.setdefault((broken, home), []).append(kind.name)
    return runs


def cases() -> Iterator[Any]:
    for way in BASIC:
        for (broken, company), names in broken_runs(way).items():
            label = f"{way}-{broken.how.__name__}-{broken.failure}-{company}"
            yield pytest.param(way, broken, company, names, id=label)


@pytest.mark.parametrize(("way", "broken", "company", "names"), list(cases()))
def test_every_observer_sees_when_the_seal_is_broken(
    collector: Collector, way: str, broken: Break, company: str, names: list[str]
) -> None:
    found = watch(
        company,
        way,
        "vote",
        collector=collector,
        failure=broken.failure,
        breaking=broken.how,
    )
    assert [name for name in names if not found[name].sight.private] == []


def test_no_observer_is_left_out() -> None:
    names = [name for names in broken_runs("ainvoke").values() for name in names]
    assert sorted(names) == sorted(kind.name for kind in OBSERVERS)
    assert {kind for _, own in COMPANIES.values() for kind in own} | set(ALWAYS) == set(
        OBSERVERS
    )


@pytest.mark.parametrize("way", STREAMS)
def test_a_stream_of_events_shows_ordinary_calls_itself(
    collector: Collector, way: str
) -> None:
    watched = [Answers, Warned]
    found = watch(
        ALONE, way, "vote", collector=collector, breaking=unsealed, only=watched
    )
    assert {"answer", "document"} <= set(found["output"].sight.private)
