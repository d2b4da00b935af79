"""Schemas in files."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.schema import TableSchema

LABEL = {"name": "y", "kind": "categorical", "values": ["no", "yes"]}
AGE = {"name": "age", "kind": "integer", "lower": 0, "upper": 99, "bins": 3}


def made(**fields: Any) -> TableSchema:
    return TableSchema(**{"label": "y", "columns": [AGE, LABEL], **fields})


def written(schema: TableSchema) -> str:
    with TemporaryDirectory() as folder:
        schema.save(Path(folder) / "schema.json")
        return (Path(folder) / "schema.json").read_text("utf-8")


def loaded(text: str) -> TableSchema:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "schema.json"
        path.write_text(text, "utf-8")
        return TableSchema.load(path)


def stored(**fields: Any) -> str:
    return json.dumps({**json.loads(written(made())), **fields})


def test_json_that_people_read() -> None:
    assert json.loads(written(made())) == {
        "format": "langchain-dpicl",
        "version": 1,
        "kind": "schema",
        "label": "y",
        "columns": [
            {
                "name": "age",
                "kind": "integer",
                "lower": 0,
                "upper": 99,
                "bins": [34, 67],
                "outside": "clip",
            },
            LABEL,
        ],
        "template": "{{ sentences | join(' ') }}",
    }


TEXT = st.text(min_size=1, max_size=8).filter(lambda text: bool(text.strip()))
TEXT = TEXT.filter(lambda text: text.isprintable())
FINITE = st.floats(-1e9, 1e9)


@st.composite
def columns(draw: st.DrawFn) -> dict[str, Any]:
    name = draw(TEXT.filter(lambda text: text != "y"))
    if draw(st.booleans()):
        values = draw(
            st.lists(TEXT.map(str.strip), min_size=2, max_size=5, unique=True)
        )
        other = draw(st.none() | st.sampled_from(values))
        return {"name": name, "kind": "categorical", "values": values, "other": other}
    lower = draw(FINITE)
    upper = lower + draw(st.floats(0.001, 1e9))
    bins = draw(st.just([]) | st.integers(2, 9))
    return {
        "name": name,
        "kind": "number",
        "lower": lower,
        "upper": upper,
        "bins": bins,
        "unit": draw(st.none() | TEXT),
        "missing": draw(st.none() | st.just(lower)),
    }


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(st.lists(columns(), min_size=1, max_size=4, unique_by=lambda c: c["name"]))
def test_round_trip(given_columns: list[dict[str, Any]]) -> None:
    schema = TableSchema(label="y", columns=[*given_columns, LABEL])
    again = loaded(written(schema))
    assert again == schema
    assert again.fingerprint() == schema.fingerprint()
    assert written(again) == written(schema)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON .* at line 1"),
        ("[]", 'it has no "format"'),
        ("{}", 'it has no "format"'),
        (stored(format="other"), 'it has no "format"'),
        (stored(kind="examples"), "ReleasedExamples.load reads it"),
        (stored(rows=1), "the field 'rows' is unknown"),
        (stored(label=None), "label: "),
        (stored(columns={}), "columns: "),
        (stored(columns=[AGE]), "columns: .*'y' is none of"),
        (stored(columns=[{**AGE, "lower": None}, LABEL]), "'age' .*lower: "),
        (stored(columns=[{**AGE, "lower": 100}, LABEL]), "'age' .*upper: "),
        (stored(columns=[AGE, {**LABEL, "values": None}]), "'y' .*values: "),
        (stored().replace("99", "NaN"), "not JSON"),
        (stored().replace("99", "1e999"), "a number out of range"),
        (stored().replace("99", "9" * 100), "not JSON"),
        (stored().replace('"upper"', '"lower"'), "names a field twice"),
    ],
)
def test_json_that_is_refused(text: Any, reason: str) -> None:
    with pytest.raises(InvalidParameterError, match=reason):
        loaded(text)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "below" / "schema.json"
    made(template="ü {{ age }}").save(path)
    assert TableSchema.load(str(path)) == made(template="ü {{ age }}")
    made().save(str(path))
    assert TableSchema.load(path) == made()
    assert list(path.parent.iterdir()) == [path]
    # As some editors write it.
    path.write_text(written(made()), encoding="utf-8-sig")
    assert TableSchema.load(path) == made()


def test_files_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    with pytest.raises(InvalidParameterError, match=r"schema.json.*no such file"):
        TableSchema.load(path)
    with pytest.raises(InvalidParameterError, match="no such file"):
        TableSchema.load(tmp_path)
    path.write_text("{}")
    with pytest.raises(InvalidParameterError, match="can't be written"):
        made().save(path / "below")
    with pytest.raises(InvalidParameterError, match="can't be written"):
        made().save(tmp_path)
    # Nothing is left beside the target of a failed write.
    assert list(tmp_path.iterdir()) == [path]
