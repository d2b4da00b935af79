"""`draft_schema`: public values from names and questions, whatever the model writes."""

from __future__ import annotations

import inspect
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from support.text_parts import AsyncReader, Reader

from langchain_dpicl.errors import InvalidParameterError, PublicCallError
from langchain_dpicl.tabular import (
    CategoricalColumn,
    NumericColumn,
    SchemaDraftWarning,
    TableSchema,
    TextRows,
    adraft_schema,
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
        json.dumps(PLAIN),
        f"Here you go!\n```json\n{json.dumps(PLAIN, indent=1)}\n```\nEdit as you like.",
        json.dumps(
            {"columns": {"Topic": TOPICS}, "Compensations": PLAIN["compensation"]}
        ),
        json.dumps({**PLAIN, "topic": [*TOPICS, "Late trains", "other", "unknown"]}),
        json.dumps({**PLAIN, "topic": ", ".join(TOPICS)}),
        json.dumps(
            {**PLAIN, "topic": [{"value": one, "note": "common"} for one in TOPICS]}
        ),
        (
            "## Topic\n1. late train\n2. ticket price - often\n3. rude staff\n\n"
            "## Compensation\n- refund\n- voucher\n- apology\n- none"
        ),
        (
            "Topic: late train, ticket price, rude staff\n"
            "Compensation: refund, voucher, apology, none"
        ),
    ],
)
def test_values_are_read_however_they_are_listed(reply: str) -> None:
    schema = draft(reply)
    assert schema.categories["topic"] == (*TOPICS, "unknown")
    found = schema.categories["compensation"]
    assert found[:3] == ("refund", "voucher", "apology")
    assert found[-1] == "unknown"
    assert schema.label == "topic"
    if "{" in reply:
        assert found[3] == "none"


def test_the_model_is_told_what_its_user_wrote_and_nothing_else() -> None:
    model = Reader(reply=lambda _: json.dumps(PLAIN))
    meant = {"topic": "what it is about", "compensation": "what was offered"}
    questions = ["Which topic is compensated most?"]
    draft_schema(model, about=ABOUT, columns=meant, questions=questions, max_values=7)
    (prompt,) = model._asked
    for text in (ABOUT, *meant, *meant.values(), *questions, "at most 7 values"):
        assert text in prompt


async def test_an_asynchronous_draft_is_the_same() -> None:
    model = AsyncReader(reply=lambda _: json.dumps(PLAIN))
    drafted = await adraft_schema(model, about=ABOUT, columns=COLUMNS)
    assert drafted == draft(json.dumps(PLAIN))


def test_the_model_may_choose_the_columns_by_the_questions() -> None:
    schema = draft(
        json.dumps(PLAIN),
        columns=None,
        questions=["Which topic?"],
        label="compensation",
    )
    assert schema.names == ("topic", "compensation")
    assert schema.label == "compensation"


def test_columns_of_ones_own_stay_as_they_are() -> None:
    age = NumericColumn(name="age", kind="integer", lower=0, upper=99, missing=50)
    schema = draft(json.dumps({"topic": TOPICS}), columns=["topic", age])
    assert schema.column("age") == age
    sex = CategoricalColumn(name="sex", values=["f", "m"])
    model = Reader()
    drafted = draft_schema(model, about=ABOUT, columns=[age, sex])
    assert drafted.label == "sex"
    assert model._asked == []


def test_the_draft_is_for_review_and_for_text_rows(tmp_path: Path) -> None:
    schema = draft(json.dumps(PLAIN))
    assert all(value in repr(schema) for value in TOPICS)
    schema.save(tmp_path / "schema.json")
    loaded = TableSchema.load(tmp_path / "schema.json")
    documents = [Document("A late train.", metadata={"who": 1})]
    rows = TextRows(documents, loaded, Reader(), unit_key="who")
    assert rows.schema == schema


RECORD = Document("A late train, says Zaphod.", metadata={"who": 1})


@pytest.mark.parametrize(
    "terms",
    [
        {"columns": [RECORD]},
        {"columns": RECORD},
        {"questions": [RECORD]},
        {"about": RECORD},
        {"about": [RECORD]},
        {"columns": None},
        {"columns": "topic"},
        {"columns": ["topic", " "]},
        {"columns": {"topic": 3}},
        {"questions": "Which topic?"},
        {"about": ""},
        {"max_values": 1},
        {"n_people": 0},
        {"label": "mood"},
    ],
)
def test_records_and_other_wrong_arguments_are_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        draft(json.dumps(PLAIN), **terms)
    assert "Zaphod" not in str(caught.value)


def test_no_argument_takes_records() -> None:
    for function in (draft_schema, adraft_schema):
        names = set(inspect.signature(function).parameters)
        assert not names & {"documents", "records", "rows", "data", "examples"}


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I can't help with that.",
        '{"topic": ["late train"]}',
        '{"mood": ["a", "b"]}',
    ],
)
def test_a_draft_without_values_is_an_error_that_names_the_column(reply: str) -> None:
    with pytest.raises(PublicCallError, match="'topic'"):
        draft(reply)


def test_a_model_that_fails_is_an_error_without_its_message() -> None:
    def fail(_prompt: str) -> str:
        raise ConnectionError("key sk-123")

    with pytest.raises(PublicCallError, match="ConnectionError") as caught:
        draft_schema(Reader(reply=fail), about=ABOUT, columns=COLUMNS)
    assert "sk-123" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "terms", "message"),
    [
        (TOPICS, {"n_people": 50}, "17 people a value"),
        (["late train", "ticket price"], {}, "look for what is missing"),
        ([f"topic {n}" for n in range(9)], {"max_values": 5}, "may be cut off"),
    ],
)
def test_a_list_that_looks_wrong_is_warned_of(
    values: list[str], terms: dict[str, Any], message: str
) -> None:
    with pytest.warns(SchemaDraftWarning, match=message) as caught:
        draft(json.dumps({**PLAIN, "topic": values}), **terms)
    assert caught[0].filename == __file__


def test_a_list_that_looks_right_is_not_warned_of() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        draft(json.dumps(PLAIN), n_people=240)
