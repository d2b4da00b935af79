"""What one reply fills in: forms that models use, and nothing that is not said."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular import CategoricalColumn, NumericColumn, TableSchema
from langchain_dpicl.tabular.text.card import Card
from langchain_dpicl.tabular.text.reply import read_reply

SCHEMA = TableSchema(
    label="topic",
    columns=[
        CategoricalColumn(
            name="topic",
            values=["late train", "ticket price", "lost luggage", "rude staff"],
        ),
        CategoricalColumn(
            name="travel class", values=["first", "second"], texts={"first": "1st"}
        ),
        CategoricalColumn(
            name="compensation", values=["voucher", "refund or voucher", "none"]
        ),
        CategoricalColumn(name="country", values=["Greece", "Spain", "?"], other="?"),
        NumericColumn(
            kind="integer",
            name="delay",
            lower=0,
            upper=300,
            missing=0,
            unit="minutes",
        ),
    ],
)
CARD = Card.of(SCHEMA)
NAMES = list(SCHEMA.names)
FULL = ("late train", "second", "none", "Spain", 45)
NOTHING = ("unknown", "unknown", "unknown", "?", 0)


def read(reply: str) -> tuple[Any, ...]:
    return tuple(read_reply(reply, CARD).values())


PLAIN = {
    "topic": "late train",
    "travel class": "second",
    "compensation": "none",
    "country": "Spain",
    "delay": 45,
}


@pytest.mark.parametrize(
    "reply",
    [
        json.dumps(PLAIN),
        f"Sure! Here is the card:\n\n```json\n{json.dumps(PLAIN, indent=2)}\n```\nBye.",
        str(PLAIN),
        (
            '{"Topic": ["late train", "rude staff"], "travelClass": "second class", '
            '"Compensation(s)": "No compensation", "country of travel": "Spain", '
            '"delay_minutes": "about 45"}'
        ),
        (
            '{"card": {"topic": {"value": "late train", "evidence": "{came at 6}"}, '
            '"travel class": {"choice": "second"}}, "more": {"compensation": ["none"], '
            '"country": "Spain", "delay": "45"}}'
        ),
        (
            '{"topic": "train, late", "class": "second", '
            '"compensation": "nothing", "country": "Spain", "delay": 45.0}'
        ),
        (
            "**Topic**: late train\n**Travel class:** Second\n- Compensation = none\n"
            "Country: Spain\nDelay: 45 minutes"
        ),
        (
            "| topic | late train |\n| travel class | second |\n"
            "| compensation | none |\n| country | Spain |\n| delay | 45 |"
        ),
        'Thinking: {"topic": "rude staff"} perhaps. Final: ' + json.dumps(PLAIN),
        '<think>{"topic": "lost luggage", "delay": 3}</think>' + json.dumps(PLAIN),
    ],
)
def test_a_card_is_read_in_the_forms_that_models_write(reply: str) -> None:
    assert read(reply) == FULL


@pytest.mark.parametrize(
    ("column", "said", "found"),
    [
        ("topic", "TICKET PRICES", "ticket price"),
        ("topic", "ticket-price", "ticket price"),
        ("topic", "not the ticket price but rude staff", "unknown"),
        ("topic", "luggage, lost", "lost luggage"),
        ("topic", "rude staff, late train", "rude staff"),
        ("topic", "other: dirty toilets", "unknown"),
        ("topic", "other: late train driver", "unknown"),
        ("topic", "rude staff, late train" + " and so on" * 9, "unknown"),
        ("topic", "I cannot help with complaints about rude staff.", "unknown"),
        ("topic", None, "unknown"),
        ("topic", "Not mentioned", "unknown"),
        ("topic", "n/a", "unknown"),
        ("topic", ["unknown", "late train"], "late train"),
        ("topic", [], "unknown"),
        ("travel class", "1st", "first"),
        ("travel class", 1, "unknown"),
        ("compensation", "None.", "none"),
        ("compensation", "no compensation", "none"),
        ("compensation", "no refund", "unknown"),
        ("compensation", "no compensation mentioned", "unknown"),
        ("compensation", "a voucher", "voucher"),
        ("compensation", "refund or voucher", "refund or voucher"),
        ("country", "Greek islands, Greece", "Greece"),
        ("country", "Portugal", "?"),
        ("country", "other: Portugal", "?"),
        ("delay", 45, 45),
        ("delay", "45-minute wait", 45),
        ("delay", "1,045", 300),
        ("delay", "45 (train 1702)", 45),
        ("delay", "30-45", 0),
        ("delay", 44.6, 45),
        ("delay", True, 0),
        ("delay", "a while", 0),
        ("delay", -3, 0),
    ],
)
def test_a_value_is_read_by_public_rules(column: str, said: Any, found: Any) -> None:
    assert read_reply(json.dumps({column: said}), CARD)[column] == found


@pytest.mark.parametrize(
    ("column", "said", "found"),
    [
        ("fault", "no sound", "no sound"),
        ("fault", "No fault.", "none"),
        ("fault", "no picture", "unknown"),
        ("fault", "no fault mentioned", "unknown"),
        ("resolved", True, "yes"),
        ("resolved", False, "no"),
        ("resolved", "No, still open", "no"),
        ("resolved", "It has not been resolved yet.", "unknown"),
        ("resolved", "N/A (not stated)", "unknown"),
    ],
)
def test_denials_are_told_apart(column: str, said: Any, found: str) -> None:
    columns = [
        CategoricalColumn(name="fault", values=["no sound", "broken", "none"]),
        CategoricalColumn(name="resolved", values=["yes", "no"]),
    ]
    card = Card.of(TableSchema(label="fault", columns=columns))
    assert read_reply(json.dumps({column: said}), card)[column] == found
    # "Yes" and "no" begin many a sentence about something else.
    assert read_reply("Yes.", card)["resolved"] == "unknown"


@pytest.mark.parametrize(
    "reply",
    [
        '{"note": "Complaints desk for lost luggage"}',
        '```json\n{"note": "A first class journey.", "place": {"name": "Greece"}}\n```',
        'Here it is: {"note": "topic: lost luggage"}',
        '{"note": "Complaints desk for lost luggage, and mo',
    ],
)
def test_an_object_of_other_names_tells_nothing(reply: str) -> None:
    assert read(reply) == NOTHING


@given(st.text(max_size=300))
def test_no_text_raises_or_gives_a_value_that_is_not_public(text: str) -> None:
    for reply in (text, json.dumps(dict.fromkeys(NAMES, text)), '{"topic": "' + text):
        row = read_reply(reply, CARD)
        for column in CARD.schema.columns:
            assert (
                len(column.grid([row[column.name]]))
                if isinstance(column, NumericColumn)
                else row[column.name] in column.values
            )


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (["tremor", "Tremors"], "'tremor' and 'Tremors'"),
        (
            ["weight loss", "loss of weight", "weight-loss"],
            "'weight loss' and 'weight-",
        ),
        (["unknown", "not mentioned"], "both say"),
    ],
)
def test_values_that_no_reply_can_tell_apart_are_refused(
    values: list[str], named: str
) -> None:
    columns = [
        CategoricalColumn(name="effect", values=values),
        CategoricalColumn(name="ill", values=["no", "yes"]),
    ]
    with pytest.raises(InvalidParameterError, match=named):
        Card.of(TableSchema(label="ill", columns=columns))


def test_signs_tell_values_apart() -> None:
    columns = [
        CategoricalColumn(name="dose", values=["<5", ">5", "5"]),
        CategoricalColumn(name="ill", values=["no", "yes"]),
    ]
    card = Card.of(TableSchema(label="ill", columns=columns))
    for value in ("<5", ">5", "5"):
        assert read_reply(json.dumps({"dose": value}), card)["dose"] == value


def test_unknown_is_the_missing_value_or_one_that_says_so_or_is_added() -> None:
    columns = [
        CategoricalColumn(name="a", values=["x", "?"], missing="?"),
        CategoricalColumn(name="b", values=["x", "not stated"]),
        CategoricalColumn(name="c", values=["x", "y"]),
    ]
    card = Card.of(TableSchema(label="a", columns=columns))
    assert card.unknowns == {"a": "?", "b": "not stated", "c": "unknown"}
    again = Card.of(card.schema)
    assert (again.schema, again.unknowns) == (card.schema, card.unknowns)
    assert {c.missing for c in card.schema.columns} == {"?", "not stated", "unknown"}
