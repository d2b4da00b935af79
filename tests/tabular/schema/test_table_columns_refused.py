"""Columns that can't be made: typed errors that name the column and the way out."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import numpy as np
import pytest

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.schema import CategoricalColumn, NumericColumn

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, "values: Field required"),
        ({"values": []}, "values: .*at least two values"),
        ({"values": ["a"]}, "values: .*at least two values; leave"),
        ({"values": ["a", "a"]}, "values: .*'a' is there twice"),
        ({"values": [1, "1"]}, "values: .*'1' is there twice"),
        ({"values": ["a", " a "]}, "values: .*'a' is there twice"),
        ({"values": "ab"}, "values: .*as a list, from public knowledge"),
        ({"values": {"a", "b"}}, "values: .*as a list"),
        ({"values": None}, "values: .*as a list"),
        ({"values": np.array(["a", "b"])}, "values: .*as a list"),
        ({"values": ["a", None]}, "values: .*not NoneType"),
        ({"values": ["a", " "]}, "values: .*text that is not blank"),
        ({"values": ["a", NAN]}, "values: .*not float"),
        ({"values": ["a", b"b"]}, "values: .*not bytes"),
        ({"values": "x", "texts": {"a": "A"}}, "values: "),
        ({"values": ["a", "b"], "texts": ["A"]}, "texts: .*dictionary"),
        ({"values": ["a", "b"], "texts": {"c": "C"}}, "texts: .*'c' is none of the"),
        ({"values": ["a", "b"], "texts": {"a": 1}}, "texts: .*'a' must be text"),
        ({"values": ["a", "b"], "texts": {"a": " "}}, "texts: .*not blank"),
        (
            {"values": ["a", "b"], "texts": {"a": "b"}},
            "texts: two values have the same",
        ),
        ({"values": ["a", "b"], "missing": "c"}, "missing: .*'c' is none of the .*add"),
        ({"values": ["a", "b"], "other": "c"}, "other: .*'c' is none of the .*add"),
        ({"values": ["a", "b"], "other": ["a"]}, "other: .*not list"),
        ({"values": ["a", "b"], "unit": "kg"}, "unit: It has no field"),
        ({"values": ["a", "b"], "kind": "number"}, "kind: "),
        ({"values": ["a", "b"], "shown": " "}, "shown: .*not blank"),
        ({"values": ["a", "b"], "wording": " "}, "wording: .*not blank"),
        ({"values": ["a", "b"], "wording": "{{ value"}, "wording: .*no Jinja2"),
        ({"values": ["a", "b"], "wording": "{{ age }}"}, "wording: .*uses 'age'"),
    ],
)
def test_categorical(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(
        InvalidParameterError, match=f"Column 'job'.*{reason}"
    ) as caught:
        CategoricalColumn(name="job", **fields)
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"lower": 2, "upper": 1},
            r"upper: .*above the lower one \(lower=2.0, upper=1.0\)",
        ),
        ({"lower": 1, "upper": 1}, "upper: .*above the lower one"),
        ({"lower": 1}, "upper: Field required"),
        ({"lower": NAN, "upper": 1}, "lower: .*must be finite"),
        ({"lower": 0, "upper": INF}, "upper: .*must be finite"),
        ({"lower": 0, "upper": 10**400}, "upper: .*must be finite"),
        ({"lower": "0", "upper": 1}, "lower: .*a number, not str"),
        ({"lower": None, "upper": 1}, "lower: .*a number, not NoneType"),
        ({"lower": False, "upper": 1}, "lower: .*a number, not bool"),
        ({"lower": 0, "upper": 5e-324}, "upper: .*no number lies between"),
        ({"lower": 1.0, "upper": 1.0 + 2**-52}, "upper: .*no number lies between"),
        ({"kind": "integer", "lower": 0.5, "upper": 2}, 'lower .*kind="number"'),
        ({"kind": "integer", "lower": 0, "upper": 2**53}, 'upper .*kind="number"'),
        ({"kind": "integer", "lower": 0, "upper": 2**30 + 1}, 'upper: .*kind="number"'),
        ({"kind": "float", "lower": 0, "upper": 1}, "kind: "),
        ({"bins": [0]}, "bins: .*edge 0.0 is not inside"),
        ({"bins": [10]}, "bins: .*edge 10.0 is not inside"),
        ({"bins": [-1]}, "bins: .*not inside the bounds; give inner"),
        ({"bins": [3, 2]}, "bins: .*must increase"),
        ({"bins": [3, 3]}, "bins: .*must increase"),
        ({"bins": [3, NAN]}, "bins: .*must be finite"),
        ({"bins": [3, 10**400]}, "bins: .*must be finite"),
        ({"bins": [3, "4"]}, "bins: .*a number, not str"),
        ({"bins": 1}, "bins: .*at least 2"),
        ({"bins": True}, "bins: .*integer, not bool"),
        ({"bins": 2.0}, "bins: .*a list of edges, or a number of bins"),
        ({"bins": "5"}, "bins: .*a list of edges, or a number of bins"),
        ({"bins": 10**9}, "bins: .*at most"),
        ({"kind": "integer", "bins": 12}, "bins: .*there are 11 integers only"),
        ({"bin_texts": ["a", "b"]}, "bin_texts: .*one text per bin"),
        ({"bins": [3], "bin_texts": ["a"]}, "bin_texts: .*one text per bin"),
        ({"bins": [3], "bin_texts": ["a", "a"]}, "bin_texts: .*the same text"),
        ({"bins": [3], "bin_texts": ["a", " "]}, "bin_texts: .*not blank"),
        ({"bins": [3], "bin_texts": "ab"}, "bin_texts: .*a list of texts"),
        ({"missing": 11}, "missing: .*within the bounds"),
        ({"missing": NAN}, "missing: .*must be finite"),
        ({"missing": "5"}, "missing: .*a number, not str"),
        ({"kind": "integer", "missing": 0.5}, "missing: .*integer"),
        ({"outside": "drop"}, "outside: "),
        ({"decimals": -1}, "decimals: .*at least 0"),
        ({"decimals": 16}, "decimals: .*at most 15"),
        ({"decimals": 1.0}, "decimals: .*integer, not float"),
        ({"kind": "integer", "decimals": 1}, 'decimals: .*kind="number"'),
        ({"unit": " "}, "unit: .*not blank"),
        ({"values": ["a", "b"]}, "values: It has no field"),
        ({"wording": "{% if value %}"}, "wording: .*no Jinja2"),
    ],
)
def test_numeric(fields: dict[str, Any], reason: str) -> None:
    given = fields if "lower" in fields else {"lower": 0, "upper": 10, **fields}
    with pytest.raises(
        InvalidParameterError, match=f"Column 'age'.*{reason}"
    ) as caught:
        NumericColumn(name="age", **given)
    assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize("name", ["", " ", None, 1])
def test_names(name: Any) -> None:
    with pytest.raises(InvalidParameterError, match="name: "):
        NumericColumn(name=name, lower=0, upper=1)
    with pytest.raises(InvalidParameterError, match="name: Field required"):
        CategoricalColumn(values=["a", "b"])


def test_wide_bounds_do_not_overflow() -> None:
    widest = NumericColumn(name="x", lower=-1.7e308, upper=1.7e308, bins=4)
    assert widest.grid([-INF, 0, INF]).tolist() == [-(2**20), 0, 2**20]
    assert widest.domain_size == 4
    spread = NumericColumn(name="x", kind="integer", lower=-(2**29), upper=2**29)
    assert spread.grid([-(2**40), 2**40]).tolist() == [-(2**30), 2**30]


COLUMNS = [
    CategoricalColumn(
        name="job",
        values=["a", 1, True],
        texts={"a": "A"},
        missing="a",
        other=1,
        shown="the job",
        wording="{{ value }}",
    ),
    NumericColumn(name="x", lower=-0.5, upper=3, bins=3, decimals=2, missing=0),
    NumericColumn(
        name="age",
        kind="integer",
        lower=0,
        upper=9,
        bins=[3, 5],
        bin_texts=["a", "b", "c"],
        unit="years",
        outside="refuse",
    ),
]


@pytest.mark.parametrize("column", COLUMNS)
def test_columns_come_back_from_json_pickles_and_copies(column: Any) -> None:
    described = json.loads(json.dumps(column.describe()))
    for again in (
        type(column)(**described),
        type(column)(**column.model_dump()),
        type(column).model_validate_json(column.model_dump_json()),
        pickle.loads(pickle.dumps(column)),
        copy.deepcopy(column),
        column.model_copy(),
    ):
        assert again == column
        assert again.domain_size == 3
        assert again.describe() == described
        assert [again.code_text(code) for code in range(3)] == [
            column.code_text(code) for code in range(3)
        ]
    assert None not in described.values()


def test_copies_are_checked() -> None:
    column = COLUMNS[2]
    assert column.model_copy(update={"upper": 8}).grid([9 - 1]).tolist() == [8]
    with pytest.raises(InvalidParameterError, match=r"'age'.*upper"):
        column.model_copy(update={"upper": -1})


@pytest.mark.parametrize("column", COLUMNS)
def test_columns_can_not_be_changed(column: Any) -> None:
    with pytest.raises(ValueError, match="frozen"):
        column.name = "other"


def test_integers_stay_integers() -> None:
    described = COLUMNS[2].describe()
    assert described["lower"] == 0
    assert type(described["lower"]) is type(described["upper"]) is int
    assert described["bins"] == [3, 5]
    whole = NumericColumn(name="n", kind="integer", lower=0.0, upper=np.int64(4))
    assert type(whole.lower) is type(whole.upper) is int
