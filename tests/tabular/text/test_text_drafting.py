"""`draft_schema`: public values from names and questions, whatever the model writes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.documents import Document
from support.text_parts import Reader

from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.tabular import (
    TableSchema,
    draft_schema,
)

ABOUT = "Complaints of travelers to a railway."
COLUMNS = ["topic", "compensation"]
TOPICS = ["late train", "ticket price", "rude staff"]
PLAIN = {"topic": TOPICS, "compensation": ["refund", "voucher", "apology", "none"]}


def draft(reply: str, **terms: Any) -> TableSchema:
    terms = {"about": ABOUT, "columns": COLUMNS, **terms}
    return draft_schema(Reader(reply=lambda _: reply), **terms)


@pytest.mark.parametrize(
    "reply",
    [
        json.dumps(
            {"columns": {"Topic": TOPICS}, "Compensations": PLAIN["compensation"]}
        ),
        json.dumps({**PLAIN, "topic": [*TOPICS, "Late trains", "other", "unknown"]}),
    ],
)
def test_values_are_read_however_they_are_listed(reply: str) -> None:
    schema = draft(reply)
    assert schema.categories["topic"] == (*TOPICS, "unknown")
    found = schema.categories["compensation"]
    assert found[:3] == ("refund", "voucher", "apology")
    assert found[-1] == "unknown"
    assert schema.label == "topic"
    assert found[3] == "none"


def test_the_model_is_told_what_its_user_wrote_and_nothing_else() -> None:
    model = Reader(reply=lambda _: json.dumps(PLAIN))
    meant = {"topic": "what it is about", "compensation": "what was offered"}
    draft_schema(model, about=ABOUT, columns=meant, max_values=7)
    (prompt,) = model._asked
    for text in (ABOUT, *meant, *meant.values(), "at most 7 values"):
        assert text in prompt


RECORD = Document("A late train, says Zaphod.", metadata={"who": 1})


@pytest.mark.parametrize(
    "terms",
    [
        {"columns": [RECORD]},
        {"columns": RECORD},
        {"about": [RECORD]},
        {"columns": []},
        {"columns": "topic"},
        {"columns": ["topic", " "]},
        {"columns": {"topic": 3}},
        {"about": ""},
        {"max_values": 1},
        {"label": "mood"},
    ],
)
def test_records_and_other_wrong_arguments_are_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        draft(json.dumps(PLAIN), **terms)
    assert "Zaphod" not in str(caught.value)


def test_a_model_without_values_or_an_answer_is_an_error_without_its_words() -> None:
    def fail(_prompt: str) -> str:
        raise ConnectionError("key sk-123")

    with pytest.raises(PublicCallError, match="ConnectionError") as caught:
        draft_schema(Reader(reply=fail), about=ABOUT, columns=COLUMNS)
    assert "sk-123" not in str(caught.value)
    for reply in ("", '{"topic": ["late train"]}', '{"mood": ["a", "b"]}'):
        with pytest.raises(PublicCallError, match="'topic'"):
            draft(reply)
