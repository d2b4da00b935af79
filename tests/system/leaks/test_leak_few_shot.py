"""The leak matrix of few-shot generation: nobody sees records, ids or probabilities.

Every record, unit id, further field and private probability is marked; the model does
with a private prompt whatever a client library might. The twin breaks the seal, and
then each observer must find a mark.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.leaks.collector import Collector
from support.leaks.few_shot import (
    ALWAYS,
    COMPANIES,
    RAISED,
    WAYS,
    plain_answers,
    quoted_sizes,
    unsealed,
    watch,
)

pytestmark = pytest.mark.allow_hosts(["127.0.0.1"])


def runs() -> Iterator[Any]:
    pairs = [(company, way) for company in COMPANIES for way in WAYS]
    turns = itertools.cycle([[pairs[0], pairs[3]], [pairs[1], pairs[2]]])
    for failure in RAISED:
        # Every company and every way, if not always together.
        for company, way in pairs if failure in ("none", "call") else next(turns):
            yield pytest.param(company, way, failure)


@pytest.mark.parametrize(("company", "way", "failure"), list(runs()))
def test_nobody_sees_anything_private(
    collector: Collector, company: str, way: str, failure: str
) -> None:
    found = watch(company, way, collector=collector, failure=failure)
    assert {name: f.sight.private for name, f in found.items() if f.sight.private} == {}
    assert [name for name, f in found.items() if not f.works] == []
    assert {f.raised for f in found.values()} == {RAISED[failure]}


Breaking = Callable[[], Any]
QUOTED = {"output", "pickle", "ledger_files", "answer_cache"}
"""Who sees what is released and stored, and nothing of a step."""

NOT_OF_A_STEP = {"exception_hooks"}
"""A generation starts no thread of its own: its hooks are `test_leak_twin.py`'s."""


def twins() -> Iterator[Any]:
    for company, (_, special) in COMPANIES.items():
        names = {kind.name for kind in [*ALWAYS, *special]} - NOT_OF_A_STEP
        for way in WAYS:
            yield pytest.param(
                company,
                way,
                "none",
                unsealed,
                names - QUOTED - {"exception", "asyncio_debug"},
                id=f"{company}-{way}-calls",
            )
            yield pytest.param(
                company,
                way,
                "call",
                unsealed,
                {"exception"},
                id=f"{company}-{way}-error",
            )
            yield pytest.param(
                company, way, "none", quoted_sizes, QUOTED, id=f"{company}-{way}-header"
            )
    yield pytest.param(
        "environment", "agenerate", "none", plain_answers, {"asyncio_debug"}, id="debug"
    )


@pytest.mark.parametrize(
    ("company", "way", "failure", "breaking", "names"), list(twins())
)
def test_every_observer_sees_when_the_seal_is_broken(
    collector: Collector,
    company: str,
    way: str,
    failure: str,
    breaking: Breaking,
    names: set[str],
) -> None:
    found = watch(company, way, collector=collector, failure=failure, breaking=breaking)
    assert [name for name in names if not found[name].sight.private] == []
