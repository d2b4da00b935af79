"""One record for answers, examples and tables, and its JSON Schema."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest
from pydantic import ValidationError
from support.fakes import ScriptedModel, notes
from support.few_shot_fakes import generator_of, records_of
from support.released_parts import public_record, record

from langchain_dpicl import (
    DPChain,
    PrivacyBudgetHandler,
    RetrievedGroups,
    VoteOutputParser,
)
from langchain_dpicl.offline import HashingEmbeddings
from langchain_dpicl.release.record import ReleaseRecord, json_schema
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    LDPClient,
    LDPTable,
    TableSchema,
)

SCHEMA = TableSchema(
    label="pet",
    columns=[
        CategoricalColumn(name="job", values=["clerk", "nurse"]),
        CategoricalColumn(name="pet", values=["cat", "dog"]),
    ],
)
ROWS = [{"job": "clerk" if n % 3 else "nurse", "pet": "cat"} for n in range(300)]


def budget() -> PrivacyBudgetHandler:
    return PrivacyBudgetHandler(epsilon=8, delta=1e-6, queries=1, ledger=":memory:")


def answer() -> Any:
    groups = RetrievedGroups.from_documents(
        notes(300), HashingEmbeddings(), unit_key="patient", n_groups=20
    )
    chain = DPChain(
        groups=groups,
        model=ScriptedModel(reply=lambda _: "yes"),
        parser=VoteOutputParser(labels=["yes", "no"]),
        budget=budget(),
    )
    return chain.invoke("Does it help?").response_metadata["privacy"]


def examples() -> Any:
    return generator_of().generate(records_of(), progress=False).record


def collected() -> Any:
    return LDPTable(ROWS, SCHEMA, budget=budget(), invited=900).release().record()


def reported() -> Any:
    client = LDPClient(SCHEMA, epsilon=3)
    reports = [client.report(row) for row in ROWS]
    return LDPTable.from_reports(reports, SCHEMA, epsilon=3).record()


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        ("answer", answer),
        ("examples", examples),
        ("table", lambda: GDPTable(ROWS, SCHEMA, budget=budget()).release().record()),
        ("table", collected),
        ("table", reported),
    ],
    ids=["answer", "few-shot", "GDPTable", "LDPTable", "clients"],
)
def test_every_release_has_one_form_of_record(kind: str, made: Any) -> None:
    found = made()
    checked = ReleaseRecord.model_validate(json.loads(json.dumps(found)))
    assert checked.version == 1
    assert checked.kind == kind
    # Only an answer has `calls`.
    assert set(ReleaseRecord.model_fields) - {"calls"} <= set(found)
    assert ("calls" in found) == (kind == "answer")


def test_the_published_schema_is_that_of_the_code() -> None:
    file = resources.files("langchain_dpicl.release") / "record.schema.json"
    assert json.loads(file.read_text()) == json_schema()


def test_records_of_another_version_or_kind_are_refused() -> None:
    for odd in ({"version": 2}, {"version": "1"}, {"kind": "poem"}):
        with pytest.raises(ValidationError):
            ReleaseRecord.model_validate(record(**odd))
    assert ReleaseRecord.model_validate(record()).status == "released"
    assert ReleaseRecord.model_validate(public_record()).events == []
