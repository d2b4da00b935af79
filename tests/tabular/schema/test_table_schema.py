"""The schema of a table: what it refuses, and rows as text."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import types
from typing import Any

import pytest

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.schema import (
    CategoricalColumn,
    NumericColumn,
    TableSchema,
)

AGE = NumericColumn(
    name="age", kind="integer", lower=17, upper=90, bins=[30, 40], unit="years"
)
JOB = CategoricalColumn(name="job_title", values=["clerk", "nurse", "?"])
INCOME = CategoricalColumn(
    name="income", values=[0, 1], texts={0: "at most $50,000", 1: "more"}
)


def schema(*columns: Any, label: Any = "income", **fields: Any) -> TableSchema:
    return TableSchema(label=label, columns=columns or (AGE, JOB, INCOME), **fields)


def test_what_a_schema_says() -> None:
    made = schema()
    assert made.names == ("age", "job_title", "income")
    assert made.features == (AGE, JOB)
    assert made.column("age") is AGE
    assert made.label_column is INCOME
    assert made.labels == ("at most $50,000", "more")
    assert made.label_text(1) == made.label_text("1") == "more"


def test_rows_as_text() -> None:
    made = schema()
    row = {"age": 37, "job_title": "nurse"}
    text = "The age is 37 years. The job title is nurse."
    assert made.text(row) == text
    assert made.text({"income": "?", **row}) == text  # The label is not looked at.
    assert made.text(types.MappingProxyType(row)) == text
    binned = "The age is 30 to 40 years. The job title is nurse."
    assert made.text(row, binned=True) == binned
    assert made.text({**row, "age": "30 to 40 years"}, binned=True) == binned


def test_what_releases_give_is_taken_back() -> None:
    made = schema()
    row = {column.name: column.code_value(1) for column in made.columns}
    assert made.text(row, binned=True) == (
        "The age is 30 to 40 years. The job title is nurse."
    )
    assert made.text({"age": AGE.from_grid(0.4), "job_title": "?"}) == (
        "The age is 54 years. The job title is ?."
    )


def test_rows_with_something_missing() -> None:
    with pytest.raises(
        InvalidParameterError, match=r"'age' is missing from .*missing="
    ):
        schema().text({"job_title": "nurse"})
    with pytest.raises(InvalidParameterError, match=r"'age': a cell is missing"):
        schema().text({"age": None, "job_title": "nurse"})
    lenient = schema(
        AGE.model_copy(update={"missing": 50}),
        JOB.model_copy(update={"missing": "?"}),
        INCOME,
    )
    text = "The age is 50 years. The job title is ?."
    assert lenient.text({}) == lenient.text({"age": None, "job_title": ""}) == text


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"age": 37, "job_title": "nurse", "name": "X4711"}, "Column 'name' is not in"),
        ({"age": 37, "job_title": "nurse", 7: "X4711"}, "Column 7 is not in"),
        ({"age": 37, "job_title": "X4711"}, "'job_title': a cell is none of the decl"),
        ({"age": "X4711", "job_title": "nurse"}, "'age': a cell is not a number"),
        ({"age": 47.11, "job_title": "nurse"}, "'age': a cell is no integer"),
        ([("age", 37)], "A row is a mapping .* not list"),
        ("X4711", "A row is a mapping .* not str"),
    ],
)
def test_rows_that_are_refused(row: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message) as caught:
        schema().text(row)
    assert "4711" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"label": "wage"}, "columns: .*'wage' is none of the columns"),
        ({"label": "age"}, "columns: .*'age' is a column of numbers.*categorical"),
        ({"label": None}, "label: "),
        ({"columns": [INCOME]}, "no column besides the label 'income'"),
        ({"columns": []}, "columns: "),
        ({"columns": [AGE, AGE, INCOME]}, "'age' is there twice"),
        ({"columns": [AGE, INCOME, "job"]}, "columns: each is a .* not str"),
        ({"columns": "age"}, "columns: "),
        (
            {"columns": [{"name": "a", "kind": "text"}, INCOME]},
            "'a' .*kind: it must be",
        ),
        ({"columns": [{"name": "a", "kind": [1]}, INCOME]}, "'a' .*kind: it must be"),
        (
            {"columns": [{"name": "a", "kind": "integer", "lower": 1}, INCOME]},
            "Column 'a' can't be made. upper",
        ),
        (
            {"columns": [{"name": "a", "kind": "number", 1: 2}, INCOME]},
            "no field",
        ),
        ({"extra": 1}, "extra: It has no field"),
        ({"template": "{{ income }}"}, "template: .*uses 'income'"),
        ({"template": "{{ sentences"}, "template: .*no Jinja2"),
        ({"template": 7}, "template: "),
    ],
)
def test_schemas_that_are_refused(fields: dict[str, Any], reason: str) -> None:
    given = {"label": "income", "columns": [AGE, JOB, INCOME], **fields}
    with pytest.raises(InvalidParameterError, match=reason) as caught:
        TableSchema(**given)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_columns_and_values_that_do_not_exist() -> None:
    with pytest.raises(InvalidParameterError, match=r"'wage' is not in .* 'age', 'job"):
        schema().column("wage")
    with pytest.raises(InvalidParameterError, match="'wage' is not in"):
        schema().prompt("wage")
    with pytest.raises(InvalidParameterError, match="'income': a cell is none of the"):
        schema().label_text("x")


def test_fingerprints_tell_schemas_apart() -> None:
    made = schema()
    again = TableSchema(**made.describe())
    assert again == made
    assert len(made.fingerprint()) == 64
    others = [
        schema(JOB, AGE, INCOME),
        schema(AGE, INCOME),
        schema(AGE.model_copy(update={"upper": 91}), JOB, INCOME),
        schema(AGE.model_copy(update={"bins": (30, 41)}), JOB, INCOME),
        schema(template="{{ sentences | join(' and ') }}"),
    ]
    prints = {each.fingerprint() for each in (made, again, *others)}
    assert len(prints) == 1 + len(others)


def test_copies() -> None:
    made = schema()
    for again in (
        copy.deepcopy(made),
        pickle.loads(pickle.dumps(made)),
        TableSchema.model_validate_json(made.model_dump_json()),
        TableSchema(**made.model_dump()),
    ):
        assert again == made
        assert again.text({"age": 1, "job_title": "?"}).startswith("The age is 17 y")
    narrow = made.model_copy(update={"columns": (AGE, INCOME)})
    assert narrow.names == ("age", "income")
    with pytest.raises(InvalidParameterError, match="'wage'"):
        made.model_copy(update={"label": "wage"})
    with pytest.raises(ValueError, match="frozen"):
        made.label = "age"


def test_the_module_loads_neither_frames_nor_prompts() -> None:
    code = (
        "import sys, langchain_dpicl.tabular.schema\n"
        "late = {'pandas', 'polars', 'sqlalchemy', 'scipy', 'langchain_core.prompts'}\n"
        "sys.exit(', '.join(late & sys.modules.keys()) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
