"""Rows of a release in a model's prose: what is kept, and what is said plainly."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.prompts import ChatPromptTemplate
from support.fakes import ScriptedModel
from support.table_parts import account

from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.mechanisms.source import SeededRandom
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    NumericColumn,
    TableSchema,
)

SCHEMA = TableSchema(
    label="drug",
    columns=[
        NumericColumn(name="age", kind="integer", lower=0, upper=100, bins=[50]),
        CategoricalColumn(name="drug", values=["aspirin", "codeine"]),
        CategoricalColumn(name="effect", values=["dry cough", "rash", "none"]),
    ],
)
ROWS = [
    {"age": 30, "drug": "aspirin", "effect": "dry cough"},
    {"age": 70, "drug": "codeine", "effect": "none"},
] * 200


def table(**terms: Any) -> GDPTable:
    given = {"measure": [("drug", "effect")], "random": SeededRandom(3), **terms}
    return GDPTable(ROWS, SCHEMA, budget=account(8), **given)


def facts_of(text: str) -> str:
    return text.split("Facts: ")[1].split("\n", maxsplit=1)[0]


def prose(text: str) -> str:
    return "Seen today. " + facts_of(text).replace("dry cough", "dry coughs")


async def test_prose_that_says_the_row_is_kept() -> None:
    released = table()
    for found in (
        released.synthetic_documents(12, ScriptedModel(reply=prose)),
        await released.asynthetic_documents(12, ScriptedModel(reply=prose)),
    ):
        assert len(found) == 12
        for one in found:
            row = json.loads(one.metadata["row"])
            assert set(row) == {"drug", "effect"}
            assert row["drug"] in one.page_content
            assert one.page_content.startswith("Seen today.")
            assert one.metadata["source"] == "synthetic"
            assert json.loads(one.metadata["privacy"]) == released.record()
    pairs = {tuple(json.loads(one.metadata["row"]).values()) for one in found}
    assert {("aspirin", "dry cough"), ("codeine", "none")} <= pairs


@pytest.mark.parametrize(
    "reply",
    [
        "A person was seen today.",
        "I can't write about people.",
        "",
        "Takes aspirin and codeine, with a dry cough and a rash.",
    ],
)
def test_what_does_not_say_the_row_is_said_plainly(reply: str) -> None:
    model = ScriptedModel(reply=lambda _: reply)
    found = table().synthetic_documents(4, model)
    assert len(model.asked) == 8  # Each is asked for once more.
    for one in found:
        row = json.loads(one.metadata["row"])
        assert not one.metadata["written_by_model"]
        assert one.page_content == (
            f"The drug is {row['drug']}. The effect is {row['effect']}."
        )


def test_a_model_that_fails_loses_no_row() -> None:
    calls: list[str] = []

    def fails(text: str) -> str:
        calls.append(text)
        if len(calls) % 3 == 0:
            raise ValueError
        return prose(text)

    found = table().synthetic_documents(9, ScriptedModel(reply=fails))
    assert len(found) == 9
    assert sum(one.metadata["written_by_model"] for one in found) >= 6


def test_a_model_that_always_fails_is_an_error() -> None:
    def fails(text: str) -> str:
        raise ValueError(text)

    released = table()
    with pytest.raises(PublicCallError, match=r"\(ValueError\)"):
        released.synthetic_documents(3, ScriptedModel(reply=fails))
    assert len(released.synthetic_documents(3, ScriptedModel(reply=prose))) == 3


def test_numbers_are_checked_too() -> None:
    released = table(measure=None, group_by="drug")
    told = released.synthetic_documents(3, ScriptedModel(reply=prose))
    assert all(one.metadata["written_by_model"] for one in told)
    vague = ScriptedModel(reply=lambda text: facts_of(text).split(".", 1)[1])
    assert not any(
        one.metadata["written_by_model"]
        for one in released.synthetic_documents(3, vague)
    )


def test_the_model_sees_drawn_rows_and_no_record() -> None:
    model = ScriptedModel(reply=prose)
    table().synthetic_documents(3, model)
    assert not any("70" in facts_of(text) for text in model.asked)


def test_bad_arguments_cost_nothing() -> None:
    released = table()
    with pytest.raises(InvalidParameterError, match="n"):
        released.synthetic_documents(0, ScriptedModel())
    with pytest.raises(InvalidParameterError, match="model must be"):
        released.synthetic_documents(3, "gpt")  # type: ignore[arg-type]
    for prompt in ("{facts}", ChatPromptTemplate.from_template("{rows}")):
        with pytest.raises(InvalidParameterError, match="prompt must be"):
            released.synthetic_documents(3, ScriptedModel(), prompt=prompt)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameterError, match="Nothing was released"):
        released.record()
