"""The schema of a table: what it refuses, rows as text, and its file."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular import CategoricalColumn, NumericColumn, TableSchema

AGE = NumericColumn(
    name="age", kind="integer", lower=17, upper=90, bins=[30, 40], unit="years"
)
JOB = CategoricalColumn(name="job_title", values=["clerk", "nurse", "?"])
INCOME = CategoricalColumn(
    name="income", values=[0, 1], texts={0: "at most $50,000", 1: "more"}
)
ROW = {"age": 37, "job_title": "nurse"}


def schema(*columns: Any, label: Any = "income", **fields: Any) -> TableSchema:
    return TableSchema(label=label, columns=columns or (AGE, JOB, INCOME), **fields)


def test_rows_are_written_as_text() -> None:
    made = schema()
    text = "The age is 37 years. The job title is nurse."
    assert made.text(ROW) == text
    assert made.text({"income": "?", **ROW}) == text  # The label is not looked at.
    assert made.text(types.MappingProxyType(ROW)) == text
    binned = "The age is 30 to 40 years. The job title is nurse."
    assert made.text(ROW, binned=True) == binned
    # What releases give is taken back.
    assert made.text({**ROW, "age": AGE.options[1]}, binned=True) == binned
    assert made.label_text(1) == made.label_text("1") == made.labels[1] == "more"
    lenient = schema(
        AGE.model_copy(update={"missing": 50}),
        JOB.model_copy(update={"missing": "?"}),
        INCOME,
    )
    text = "The age is 50 years. The job title is ?."
    assert lenient.text({}) == lenient.text({"age": None, "job_title": ""}) == text
    own = schema(template="{sentences} ({age}, {job_title}; {{so}})")
    assert own.text(ROW) == f"{made.text(ROW)} (37 years, nurse; {{so}})"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**ROW, 7: "X4711"}, "Column 7 is not in"),
        ({"job_title": "nurse"}, r"'age' is missing from .*missing"),
        ({**ROW, "age": None}, r"'age': a cell is missing"),
        ({**ROW, "job_title": "X4711"}, "'job_title': a cell is none of the decl"),
        ({**ROW, "age": "X4711"}, "'age': a cell is not a number"),
        ([("age", 37)], "A row is a mapping .* not list"),
    ],
)
def test_rows_that_are_refused(row: Any, message: str) -> None:
    with pytest.raises(InvalidParameterError, match=message) as caught:
        schema().text(row)
    assert "4711" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


SET = JOB.model_copy(update={"name": "set", "max_items": 2})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"label": "wage"}, "'wage' must be one of the columns"),
        ({"label": "age"}, "'age' must be one .*a categorical one"),
        ({"label": "set", "columns": [SET, INCOME]}, "without max_items="),
        ({"columns": [INCOME]}, "none besides the label 'income'"),
        ({"columns": [AGE, AGE, INCOME]}, "'age' is there twice"),
        ({"columns": [AGE, INCOME, "job"]}, "columns: "),
        ({"columns": [{"name": "a", "kind": "text"}, INCOME]}, "kind is not known"),
        (
            {"columns": [{"name": "a", "kind": "integer", "lower": 1}, INCOME]},
            "Column 'a' can't be made. upper",
        ),
        ({"extra": 1}, "no field of such a name"),
        ({"template": "{income}"}, "uses names in braces, and only {sentences}, {age}"),
        ({"template": "{sentences"}, "expected '}'"),
    ],
)
def test_schemas_that_are_refused(fields: dict[str, Any], reason: str) -> None:
    given = {"label": "income", "columns": [AGE, JOB, INCOME], **fields}
    with pytest.raises(InvalidParameterError, match=reason) as caught:
        TableSchema(**given)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_fingerprints_tell_schemas_apart() -> None:
    made = schema()
    assert TableSchema(**made.describe()) == made
    others = [
        schema(JOB, AGE, INCOME),
        schema(AGE, INCOME),
        schema(AGE.model_copy(update={"bins": (30, 41)}), JOB, INCOME),
        schema(template="{sentences} "),
    ]
    prints = {each.fingerprint() for each in (made, TableSchema(**dict(made)), *others)}
    assert len(prints) == 1 + len(others)


# --- files ----------------------------------------------------------------------------


def test_schemas_are_kept_in_files_that_people_read(tmp_path: Path) -> None:
    path = tmp_path / "below" / "schema.json"
    made = schema()
    made.save(path)
    assert TableSchema.load(str(path)) == made
    assert TableSchema.load(path).fingerprint() == made.fingerprint()
    content = json.loads(path.read_text())
    assert content["columns"][1] == {
        "name": "job_title",
        "wording": "The {column} is {value}.",
        "kind": "categorical",
        "values": ["clerk", "nurse", "?"],
        "texts": {},
    }
    path.write_text(json.dumps(content), encoding="utf-8-sig")
    assert TableSchema.load(path) == made
    for change, reason in [
        ({"kind": "examples"}, "ReleasedExamples.load reads it"),
        ({"rows": 1}, "'rows' is unknown"),
        ({"columns": {}}, "columns: "),
        ({"columns": [{**content["columns"][0], "upper": 3}]}, "'age' .*upper: "),
    ]:
        path.write_text(json.dumps({**content, **change}))
        with pytest.raises(InvalidParameterError, match=reason):
            TableSchema.load(path)
    with pytest.raises(InvalidParameterError, match="no such file"):
        TableSchema.load(tmp_path / "none.json")
    with pytest.raises(InvalidParameterError, match="can't be written"):
        made.save(tmp_path)


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
