"""Drafts: names and types are read, values never."""

from __future__ import annotations

import datetime as dt
import enum
import json
from decimal import Decimal
from typing import Any, Literal, NoReturn

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.schema import CategoricalColumn, SchemaDraft, TableSchema

PRIVATE = "Zebediah-1847"


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def kinds(draft: SchemaDraft) -> dict[str, str]:
    return {column.name: column.kind for column in draft.columns}


def values(draft: SchemaDraft) -> dict[str, Any]:
    return {column.name: column.values for column in draft.columns}  # noqa: PD011


@pytest.mark.parametrize(
    ("kind", "types"),
    [
        ("integer", [int, np.int64, "int64", "Int64", "INTEGER", "bigint", "uint8"]),
        ("integer", [np.dtype("u2"), pd.Int8Dtype(), pl.Int32, pl.UInt8(), sa.Integer]),
        ("integer", [sa.BigInteger(), sa.SMALLINT(), "int64[pyarrow]", "Integer"]),
        (
            "number",
            [float, Decimal, np.float32, "float64", "Float64", "DECIMAL(10, 2)"],
        ),
        ("number", [pl.Float32, pl.Decimal(10, 2), sa.Float(), sa.Numeric(10, 2)]),
        ("number", ["double precision", "real", sa.Double, "double[pyarrow]"]),
        ("categorical", [pd.CategoricalDtype(["x"]), "category", pl.Categorical]),
        ("categorical", [pl.Enum(["x", "y"]), bool, "boolean", pl.Boolean, Color]),
        ("categorical", [sa.Boolean(), sa.Enum("a", "b"), Literal["a", "b"]]),
        ("text", [str, object, np.str_, "object", "string", "VARCHAR(20)", "str"]),
        ("text", [pl.String, pl.Utf8(), sa.String(20), sa.Text, pd.StringDtype()]),
        ("text", [np.dtype(object), np.dtype("U5"), "large_string", "nvarchar"]),
        ("unknown", [dt.date, "datetime64[ns]", np.dtype("M8[s]"), bytes]),
        ("unknown", [np.timedelta64, pl.Datetime, pl.List(pl.Int8), sa.Date(), None]),
        ("unknown", [1847, True, Decimal(1), np.int64(1847), "clerk", [int]]),
        ("unknown", [sa.LargeBinary(), sa.JSON, "interval", list, 7, sa.Interval()]),
    ],
)
def test_kinds_of_types(kind: str, types: list[Any]) -> None:
    draft = TableSchema.draft({f"c{i}": type_ for i, type_ in enumerate(types)})
    assert kinds(draft) == {f"c{i}": kind for i in range(len(types))}


def test_values_that_a_type_declares() -> None:
    draft = TableSchema.draft(
        {
            "a": bool,
            "b": Color,
            "c": Literal["x", 1],
            "d": sa.Enum("p", "q"),
            "e": sa.Enum(Color),
            "f": sa.Boolean,
            "g": "bool",
            "h": np.dtype(bool),
            "i": pl.Boolean(),
            # Made from values, or of no use.
            "j": pl.Enum([PRIVATE, "y"]),
            "k": pd.CategoricalDtype([PRIVATE, "y"]),
            "l": Literal["one"],
            "m": sa.Enum,
        }
    )
    truth = ("False", "True")
    colors = ("RED", "BLUE")
    assert values(draft) == {
        **dict.fromkeys("afghi", truth),
        **dict.fromkeys("be", colors),
        "c": ("x", "1"),
        "d": ("p", "q"),
        **dict.fromkeys("jklm"),
    }
    assert PRIVATE not in f"{draft} {draft!r} {draft.to_json()} {draft.questions()}"


class Untouchable:
    """A frame that may be asked for its types and for nothing else."""

    def __init__(self, **types: str) -> None:
        self.types = types
        self.asked: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name in {"types", "asked", "__class__", "__dict__"}:
            return object.__getattribute__(self, name)
        self.asked.append(name)
        if name == "dtypes":
            return dict(self.types)
        raise AttributeError(name)

    def _refuse(self, *_: Any) -> NoReturn:
        pytest.fail("a draft has read the data")

    __getitem__ = __iter__ = __len__ = __contains__ = __array__ = _refuse


def test_values_are_never_read() -> None:
    frame = Untouchable(age="int64", job="category")
    draft = TableSchema.draft(frame, label="job")
    assert kinds(draft) == {"age": "integer", "job": "categorical"}
    assert set(frame.asked) <= {"collect_schema", "dtypes"}


def test_frames() -> None:
    rows = {"age": [1847], "job": [PRIVATE], "ok": [True], "x": [0.5]}
    expected = {"age": "integer", "job": "text", "ok": "categorical", "x": "number"}
    frame = pd.DataFrame(rows)
    for source in (frame, pl.DataFrame(rows), pl.DataFrame(rows).lazy()):
        draft = TableSchema.draft(source)
        assert kinds(draft) == expected
        assert "1847" not in f"{draft} {draft!r} {draft.to_json()}"
    frame["job"] = frame["job"].astype("category")
    assert values(TableSchema.draft(frame))["job"] is None


def test_databases() -> None:
    table = sa.Table(
        "people",
        sa.MetaData(),
        sa.Column("id", sa.BigInteger, primary_key=True),
        sa.Column("job", sa.Enum("clerk", "nurse", name="job")),
        sa.Column("notes", sa.Text),
        sa.Column("born", sa.Date),
        sa.Column("sick", sa.Boolean),
    )

    class Base(DeclarativeBase):
        pass

    class Person(Base):
        __tablename__ = "people"
        id: Mapped[int] = mapped_column(primary_key=True)
        sick: Mapped[bool]

    draft = TableSchema.draft(table, label="sick")
    assert list(kinds(draft).values()) == [
        *("integer", "categorical", "text", "unknown", "categorical")
    ]
    assert values(draft)["job"] == ("clerk", "nurse")
    assert kinds(TableSchema.draft(Person)) == {"id": "integer", "sick": "categorical"}
    schema = draft.complete({"id": None, "notes": None, "born": None})
    assert schema.text({"job": "nurse"}) == "The job is nurse."


TYPES = {"age": int, "bmi": float, "job": "category", "notes": str, "sick": bool}


def test_questions_in_plain_words() -> None:
    draft = TableSchema.draft(TYPES)
    public = "(from public knowledge, not from the table)"
    codes = "If the numbers are codes, answer {'values': [...]}."
    assert draft.questions() == [
        f"age: lower and upper bound? {public} {codes}",
        f"bmi: lower and upper bound? {public}",
        f"job: which values can it have? {public}",
        (
            "notes: this is text. Leave it out (None), or give the values that it can "
            f"have? {public}"
        ),
        "Which column is the label, the one to predict? (label=)",
    ]
    assert str(draft).splitlines()[1:] == [f"- {line}" for line in draft.questions()]
    complete = TableSchema.draft({"a": bool, "b": bool}, label="b")
    assert str(complete) == "A schema of 2 columns, the label is 'b'. Complete."
    assert complete.complete().names == ("a", "b")


def test_answers() -> None:
    draft = TableSchema.draft({**TYPES, "born": "date", "score": int}, label="sick")
    schema = draft.complete(
        {
            "age": (0, 120),
            "bmi": {"lower": 10, "upper": 80, "bins": [25], "unit": "kg/m2"},
            "job": ["clerk", "nurse"],
            "notes": None,
            "sick": {"texts": {True: "yes", False: "no"}},
            "born": {"lower": 1900, "upper": 2030, "kind": "integer"},
            "score": {"values": [1, 2, 3], "shown": "pain score"},
        },
        template="{{ sentences | join('\n') }}",
    )
    assert schema.names == ("age", "bmi", "job", "sick", "born", "score")
    assert schema.column("age").describe()["kind"] == "integer"
    assert schema.labels == ("no", "yes")
    text = schema.text({"age": 3, "bmi": 20, "job": "clerk", "born": 1990, "score": 2})
    assert text.splitlines()[-2:] == ["The born is 1990.", "The pain score is 2."]


@pytest.mark.parametrize(
    ("answers", "label", "reason"),
    [
        ({}, "sick", r"To answer: age: lower.*bmi: .*job: .*notes: .*Leave it out"),
        ({"age": (0, 9)}, "sick", r"To answer: bmi: "),
        ({}, None, r"which column is the label \(label=\)"),
        ({"wage": 1}, "sick", "Column 'wage' is not in the table.*'age'"),
        ({"age": (0, 9, 10)}, "sick", r"'age': answer with \(lower, upper\)"),
        ({"age": "0-9"}, "sick", r"'age': answer with \(lower, upper\)"),
        ({"job": "clerk"}, "sick", "'job': answer with a list of values"),
        ({"age": (9, 0)}, "sick", "Column 'age' .*upper: "),
        ({"job": ["clerk"]}, "sick", "Column 'job' .*at least two values"),
        ({"age": {"lower": 0}}, "sick", "Column 'age' .*upper: Field required"),
        ({"age": {"size": 0}}, "sick", "Column 'age' .*size: Extra"),
        ({"age": {"kind": "integer", "lower": 0, "upper": 9}}, "age", "'age' is a col"),
        ({"sick": None}, "sick", "'sick' is none of the columns"),
    ],
)
def test_answers_that_are_refused(
    answers: dict[str, Any], label: str | None, reason: str
) -> None:
    rest: dict[str, Any] = {}
    if "To answer" not in reason:
        rest = {"age": (0, 9), "bmi": (0, 9), "job": ["a", "b"], "notes": None}
    with pytest.raises(InvalidParameterError, match=reason):
        TableSchema.draft(TYPES).complete({**rest, **answers}, label=label)


def test_numbers_as_labels_are_categories() -> None:
    types = {"age": int, "grade": int}
    early = TableSchema.draft(types, label="grade")
    assert kinds(early) == {"age": "integer", "grade": "categorical"}
    assert "grade: which values can it have?" in str(early)
    answers = {"age": (0, 9), "grade": [0, 1]}
    late = TableSchema.draft(types).complete(answers, label="grade")
    assert late.labels == ("0", "1")
    assert early.complete(answers) == late


def test_skeleton_to_fill_by_hand() -> None:
    draft = TableSchema.draft(TYPES, label="sick")
    skeleton = json.loads(draft.to_json())
    assert skeleton == {
        "format": "langchain-dpicl",
        "version": 1,
        "kind": "schema",
        "label": "sick",
        "columns": [
            {"name": "age", "kind": "integer", "lower": None, "upper": None},
            {"name": "bmi", "kind": "number", "lower": None, "upper": None},
            {"name": "job", "kind": "categorical", "values": None},
            {"name": "notes", "kind": "categorical", "values": None},
            {"name": "sick", "kind": "categorical", "values": ["False", "True"]},
        ],
    }
    with pytest.raises(InvalidParameterError, match=r"Column 'age' .*lower"):
        TableSchema.from_json(draft.to_json())
    age, bmi, job, _, sick = skeleton["columns"]
    bounds = {"lower": 1, "upper": 9}
    filled = [{**age, **bounds}, {**bmi, **bounds}, {**job, "values": ["a", "b"]}, sick]
    schema = TableSchema.from_json(json.dumps({**skeleton, "columns": filled}))
    assert schema == draft.complete(
        {"age": (1, 9), "bmi": (1, 9), "job": ["a", "b"], "notes": None}
    )


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({}, "without columns"),
        ({"": int}, "must be text that is not blank"),
        ({1: int}, "not int. Rename"),
        (7, "can't be read from this.* not int"),
        ("age", "can't be read from this"),
        ([{"age": 1847}], "can't be read from this.* not list"),
        (pd.Series([1847]), "can't be read from this.* not Series"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "'a' is there twice"),
    ],
)
def test_sources_that_are_refused(source: Any, reason: str) -> None:
    with pytest.raises(InvalidParameterError, match=reason) as caught:
        TableSchema.draft(source)
    assert "1847" not in str(caught.value)


def test_an_unknown_label() -> None:
    with pytest.raises(InvalidParameterError, match="label 'wage' is none of the col"):
        TableSchema.draft(TYPES, label="wage")


def test_codes_that_look_like_numbers() -> None:
    made = TableSchema.draft({"fasting": int, "sick": bool}, label="sick")
    for answer in (
        {"values": [0, 1]},
        CategoricalColumn(name="fasting", values=["0", "1"]),
    ):
        column = made.complete({"fasting": answer}).column("fasting")
        assert column.describe()["values"] == ["0", "1"]
    with pytest.raises(InvalidParameterError, match="numbers are codes"):
        made.complete({"fasting": ["0", "1"]})
    with pytest.raises(InvalidParameterError, match="answers is a mapping"):
        made.complete(5)  # type: ignore[arg-type]
