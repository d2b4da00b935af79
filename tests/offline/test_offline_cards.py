"""The stand-in fills in cards: values of a list, and numbers, that records state."""

from __future__ import annotations

import json

import pytest
from langchain_core.documents import Document

from langchain_dpicl.offline import OfflineChatModel
from langchain_dpicl.offline.cards import filled_in
from langchain_dpicl.tabular import (
    CategoricalColumn,
    NumericColumn,
    TableSchema,
    TextRows,
)

SCHEMA = TableSchema(
    label="drug",
    columns=[
        NumericColumn(name="age", kind="integer", lower=0, upper=120, missing=0),
        CategoricalColumn(name="drug", values=["iron", "zinc", "iron oxide"]),
        CategoricalColumn(name="side_effect", values=["dry cough", "rash", "none"]),
    ],
)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (
            "The age is 41. The drug is zinc. The side effect is rash.",
            (41, "zinc", "rash"),
        ),
        ("The drug is iron oxide. Dry coughs since.", (0, "iron oxide", "dry cough")),
        ("Age: 30. Side effect: none. Rash in childhood. Iron.", (30, "iron", "none")),
        ("Slept well.", (0, "unknown", "unknown")),
    ],
)
def test_rows_are_what_records_state(text: str, row: tuple[object, ...]) -> None:
    documents = [Document(text, metadata={"id": "a"})]
    rows = TextRows(documents, SCHEMA, OfflineChatModel(), unit_key="id")
    assert [tuple(one.values()) for one in rows] == [row]


def test_what_asks_for_no_card_is_answered_as_ever() -> None:
    assert filled_in("Records:\nIron gave a rash.\n\nQuestion: What?\nAnswer:") is None


def test_a_quote_in_a_name_is_read() -> None:
    fields = 'Fields:\n- "a \\"b\\"": "x", or "unknown"'
    prompt = f'{fields}\n\nRecords:\nThe a "b" is x.\n\nJSON:'
    assert json.loads(filled_in(prompt) or "") == {'a "b"': "x"}
