"""A chain over groups that are searched inside PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.documents import Document
from support.chain_parts import PARSERS, record, rich
from support.fakes import ScriptedModel
from support.pgvector_parts import VectorServer

from langchain_dpicl import DPChain, GroupCallError, PrivacyBudgetHandler
from langchain_dpicl.budget import charges

ASKED = "Lisinopril: a cough."
NOTES = [
    Document(ASKED if unit < 80 else "Note.", metadata={"unit": unit})
    for unit in range(120)
]


@pytest.mark.parametrize(("scope", "sampling_rate"), [("corpus", 1.0), ("unit", 0.5)])
def test_a_chain_is_charged_as_over_memory(
    server: VectorServer, scope: Any, sampling_rate: float
) -> None:
    groups = server.drawn(
        NOTES,
        n_groups=20,
        score_threshold=0.99,  # A text reaches it with itself alone.
        sampling_rate=sampling_rate,
    )
    budget = PrivacyBudgetHandler(
        epsilon=60, delta=1e-6, queries=4, scope=scope, ledger=":memory:"
    )
    model = ScriptedModel(reply=lambda _: "cough")
    chain = DPChain(groups=groups, model=model, parser=PARSERS["vote"](), budget=budget)
    said = chain.invoke(ASKED)
    found = record(said)
    assert found["status"] == "released"
    (event,) = found["events"]
    assert event["sampling_rate"] == sampling_rate
    assert len(charges(budget.ledger, "default")) == 1
    if scope == "unit":
        # Sampled or not, each eligible unit pays one price, and nobody else.
        tag = budget.ledger.unit_tag
        spent = {b.tag: b.spent.loss for b in budget.ledger.unit_balances("default")}
        assert set(spent) == {tag("default", str(unit)) for unit in range(80)}
        assert len(set(spent.values())) == 1


def test_a_database_that_fails_under_a_chain(server: VectorServer) -> None:
    name, budget = server.table(NOTES), rich()
    model = ScriptedModel(reply=lambda _: "cough")
    groups = server.groups(name, n_groups=20)
    chain = DPChain(groups=groups, model=model, parser=PARSERS["vote"](), budget=budget)
    server.run("ALTER TABLE {} DROP langchain_metadata", name)
    with pytest.raises(GroupCallError) as caught:
        chain.invoke(ASKED)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert len(charges(budget.ledger, "default")) == 1
