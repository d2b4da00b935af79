"""The leak matrix of text rows: nobody sees records, ids or what a model read.

Every record, unit id, metadata value, reply and usage is marked; the model does with a
private prompt whatever a client library might. The twin breaks the seal, and then each
observer must find a mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.leaks.breaks import unsealed
from support.leaks.collector import Collector
from support.leaks.text_rows import (
    COMPANIES,
    RAISED,
    WAYS,
    kinds_of,
    loud,
    shown_rows,
    watch,
)

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])


@pytest.mark.parametrize("failure", RAISED)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("company", COMPANIES)
def test_nobody_sees_anything_private(
    collector: Collector, company: str, way: str, failure: str
) -> None:
    found = watch(company, way, collector=collector, failure=failure)
    assert {name: f.sight.private for name, f in found.items() if f.sight.private} == {}
    if failure == "none":
        assert [name for name, f in found.items() if not f.works] == []
    assert {f.raised for f in found.values()} == {RAISED[failure]}


OUTCOMES = {"output", "pickle"}
FAILURES = {"exception"}
NOT_OF_A_READING = {
    # Nothing of a reading is in the ledger, in a task's result, or left to a thread.
    *("ledger_files", "answer_cache", "asyncio_debug", "exception_hooks"),
}


def twins() -> Iterator[Any]:
    for company in COMPANIES:
        names = {kind.name for kind in kinds_of(company)} - NOT_OF_A_READING
        for way in WAYS:
            for breaking, failure, who in (
                (unsealed, "none", names - OUTCOMES - FAILURES),
                (shown_rows, "none", OUTCOMES),
                (loud, "model", FAILURES),
            ):
                label = f"{company}-{way}-{breaking.__name__}"
                yield pytest.param(company, way, failure, breaking, who, id=label)


@pytest.mark.parametrize(
    ("company", "way", "failure", "breaking", "names"), list(twins())
)
def test_every_observer_sees_when_the_seal_is_broken(
    collector: Collector,
    company: str,
    way: str,
    failure: str,
    breaking: Callable[[], Any],
    names: set[str],
) -> None:
    found = watch(company, way, collector=collector, failure=failure, breaking=breaking)
    assert [name for name in names if not found[name].sight.private] == []
