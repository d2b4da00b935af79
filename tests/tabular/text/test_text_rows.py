"""`TextRows`: one row a unit, whatever the model does; read once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from langchain_core.prompts import ChatPromptTemplate
from support.table_parts import account
from support.text_parts import (
    AsyncReader,
    Reader,
    complaints,
    complaints_schema,
    row,
    text_rows,
)

from langchain_dpicl.errors import (
    InvalidParameterError,
)
from langchain_dpicl.tabular import (
    GDPTable,
)

NOTHING = {"topic": "unknown", "mood": "unknown"}


@pytest.mark.parametrize("kind", [Reader, AsyncReader])
async def test_aread_reads_the_same(kind: type[Reader]) -> None:
    model = kind()
    rows = text_rows(complaints(7), model)
    both = await asyncio.gather(rows.aread(), rows.aread())
    assert both[0] is rows
    assert list(rows) == [row(number) for number in range(7)]
    assert len(model.asked) == 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": {"label": "topic"}}, "schema must be a TableSchema"),
        ({"prompt": "Read {records}."}, "{columns} and {records}"),
        ({"prompt": "{columns} {records"}, "{columns} and {records}"),
        ({"prompt": 3}, "{columns} and {records}"),
        ({"max_characters": 10}, "max_characters must be at least 100"),
        ({"max_concurrency": 0}, "max_concurrency must be at least 1"),
        ({"file": "readings.jsonl"}, "'private-readings.jsonl'"),
        ({"file": 7}, "file must be a path"),
    ],
)
def test_wrong_arguments_are_refused_before_any_call(
    change: dict[str, Any], message: str
) -> None:
    model = Reader()
    with pytest.raises(InvalidParameterError) as caught:
        text_rows(complaints(2), model, **change)
    assert message in str(caught.value)
    assert "Traveler" not in str(caught.value)


def test_a_prompt_that_fails_on_a_text_fails_its_unit_alone() -> None:
    text = (
        "{{ columns }} Records: {{ records }}"
        "{% if 'Traveler 1 ' in records %}{{ 1 / 0 }}{% endif %}"
    )
    prompt = ChatPromptTemplate.from_template(text, template_format="jinja2")
    rows = text_rows(complaints(3), prompt=prompt)
    assert list(rows) == [row(0), NOTHING, row(2)]


def test_bound_arguments_go_along() -> None:
    seen: list[dict[str, Any]] = []

    class Bound(Reader):
        def _generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(kwargs)
            return super()._generate(messages)

    model = Bound()
    rows = text_rows(complaints(1))
    form = {"type": "json_schema", "json_schema": {"schema": rows.json_schema}}
    bound = text_rows(complaints(2), model.bind(response_format=form))
    assert list(bound) == [row(0), row(1)]
    assert [each["response_format"] for each in seen] == [form] * 3
    assert rows.json_schema["properties"]["mood"]["enum"] == [
        "angry",
        "calm",
        "unknown",
    ]


def test_a_forecast_follows_from_public_numbers_alone() -> None:
    model = Reader()
    few, many = (text_rows(complaints(count), model) for count in (1, 9))
    terms = {"tokens_per_record": 60, "price_in": 0.15, "price_out": 0.6}
    assert few.forecast(240, **terms) == many.forecast(240, **terms)  # type: ignore[arg-type]
    found = few.forecast(240, **terms)  # type: ignore[arg-type]
    assert found.calls == 241
    assert 240 * 60 < found.input_tokens < 240 * 260
    assert found.price == pytest.approx(
        (found.input_tokens * 0.15 + found.output_tokens * 0.6) / 1e6
    )
    assert "241 calls" in str(found)
    assert few.forecast(2, tokens_per_record=9000, records_per_unit=2).calls == 7
    assert model._asked == []
    for wrong in ({"n_units": 0}, {"tokens_per_record": 0}, {"price_in": -1.0}):
        with pytest.raises(InvalidParameterError):
            few.forecast(**{"n_units": 1, "tokens_per_record": 1, **wrong})  # type: ignore[arg-type]


def test_a_schema_without_unknown_refuses_the_rows_before_the_charge() -> None:
    budget = account(1)
    rows = text_rows(complaints(3), Reader(reply=lambda _: ""))
    with pytest.raises(InvalidParameterError, match=r"pass rows\.schema"):
        GDPTable(rows, complaints_schema(), budget=budget).release()
    assert budget.spent().queries == 0
