"""Each release of a chain over sampled groups: charged as its sample, drawn anew."""

from __future__ import annotations

from typing import Any

import pytest
from support.chain_parts import QUESTION, record, reply
from support.fakes import AsyncScriptedModel
from support.store_parts import in_memory, opened, patients, records

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    VoteOutputParser,
)
from langchain_dpicl.groups import retrieved


def sampled() -> Any:
    return opened(
        in_memory(records(400)),
        sampling_rate=0.5,
        score_threshold=0.3,
        docs_per_group=99,
    )


@pytest.mark.parametrize(
    ("scope", "accounting"),
    [("corpus", None), ("corpus", "renyi"), ("unit", "renyi")],
)
def test_each_question_is_charged_as_its_sample_and_drawn_anew(
    scope: Any,
    accounting: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[frozenset[str]] = []
    real = retrieved.draw_slots

    def spy(*given: Any, **terms: Any) -> Any:
        slots = real(*given, **terms)
        drawn.append(frozenset().union(*patients(slots)))
        return slots

    monkeypatch.setattr(retrieved, "draw_slots", spy)
    chain = DPChain(
        groups=sampled(),
        model=AsyncScriptedModel(reply=reply),
        parser=VoteOutputParser(labels=["fever", "rash"]),
        cache=False,
    )
    budget = PrivacyBudgetHandler(
        epsilon=60,
        delta=1e-6,
        queries=6,
        scope=scope,
        accounting=accounting,
        ledger=":memory:",
    )
    for _ in range(2):
        (event,) = record(chain.invoke(QUESTION, {"callbacks": [budget]}))["events"]
        assert (event["kind"], event["sampling_rate"]) == ("gaussian", 0.5)
    assert len(drawn) == len(set(drawn)) == 2
