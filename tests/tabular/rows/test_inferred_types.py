"""Types of frames that only inference gives are warned of, and others are not."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from support.table_parts import account

from langchain_dpicl.errors import UnitError
from langchain_dpicl.few_shot.records import PrivateRecords, RecordFields
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    InferredTypeWarning,
    LDPClient,
    LDPTable,
    NumericColumn,
    TableSchema,
)
from langchain_dpicl.tabular.rows import read_chunks

CANARY = "Wilhelmina"


def schema(*values: Any) -> TableSchema:
    return TableSchema(
        label="ill",
        columns=[
            CategoricalColumn(
                name="ward", values=[*(values or (7, 8)), "x"], other="x"
            ),
            NumericColumn(name="age", lower=0, upper=100, bins=2),
            CategoricalColumn(name="ill", values=["no", "yes"]),
        ],
    )


def frame(kind: Any = pd.DataFrame, **columns: Any) -> Any:
    given = {"ward": ["7", "8"] * 30, "age": [1.0] * 60, "ill": ["no", "yes"] * 30}
    return kind(given | columns)


def warned(data: Any, terms: TableSchema, unit_key: str | None = None) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in read_chunks(
            data,
            terms.names,
            unit_key=unit_key,
            chunk_size=7,
            categories=terms.categories,
        ):
            pass
    assert all(issubclass(one.category, InferredTypeWarning) for one in caught)
    return [str(one.message) for one in caught]


GUESSED: dict[str, Callable[[], Any]] = {
    "text beside numbers": lambda: frame(ward=pd.Series([7, "8"] * 30, dtype=object)),
    "text beside floats": lambda: frame(
        ward=pd.Series([7.5, CANARY] * 30, dtype=object)
    ),
    "text beside truth values": lambda: frame(
        ward=pd.Series([True, CANARY] * 30, dtype=object)
    ),
    "a category of both": lambda: frame(
        ward=pd.Series([7, "8"] * 30, dtype=object).astype("category")
    ),
    "whole numbers as floats": lambda: frame(ward=[7.0, None] * 30),
    "the same, nullable": lambda: frame(
        ward=pd.Series([7.0, None] * 30, dtype="Float64")
    ),
    "the same, a category": lambda: frame(ward=[7.0, 8.0] * 30),
    "the same in polars": lambda: frame(pl.DataFrame, ward=[7.0, None] * 30),
    "one frame of several": lambda: [frame(), frame(ward=[7.0, None] * 30)],
    "as it is read": lambda: pd.read_csv(
        io.StringIO("ward,age,ill\n" + "7,1,no\n,1,yes\n" * 30)
    ),
}


@pytest.mark.parametrize("name", GUESSED)
def test_what_only_inference_gives(name: str) -> None:
    [text] = warned(GUESSED[name](), schema())
    assert "Column 'ward' of the p" in text
    assert "tabular.CSVRows" in text
    assert CANARY not in text


SOUND: dict[str, Callable[[], Any]] = {
    "text": frame,
    "text with gaps": lambda: frame(ward=pd.Series(["7", None] * 30, dtype=object)),
    "text of pandas": lambda: frame(ward=pd.Series(["7", None] * 30, dtype="string")),
    "integers": lambda: frame(ward=[7, 8] * 30),
    "nullable integers": lambda: frame(ward=pd.Series([7, None] * 30, dtype="Int64")),
    "a category of text": lambda: frame(
        ward=pd.Series(["7", "8"] * 30, dtype=object).astype("category")
    ),
    "nothing": lambda: frame(ward=[np.nan] * 60),
    "fractions": lambda: frame(ward=[7.0, 8.5] * 30),
    "text of polars": lambda: frame(pl.DataFrame),
    "integers of polars": lambda: frame(pl.DataFrame, ward=[7, None] * 30),
    "no frame": lambda: [{"ward": ward, "age": 1, "ill": "no"} for ward in (7.0, "8")],
}


@pytest.mark.parametrize("name", SOUND)
def test_what_a_reader_of_text_gives(name: str) -> None:
    assert warned(SOUND[name](), schema()) == []


def test_values_tell_which_types_are_sound() -> None:
    floats = frame(ward=[7.0, 8.0] * 30)
    assert warned(floats, schema(7, 8.5, 8)) == []
    # Zeros in front are lost in any number.
    integers = frame(ward=[7, 8] * 30)
    [text] = warned(integers, schema("07", "7", "8"))
    assert "zeros in front" in text
    assert warned(integers, schema("0", "7", "8")) == []
    [text] = warned(frame(pl.DataFrame, ward=[7, 8] * 30), schema("07", "7", "8"))
    assert "'ward' of the polars frame" in text


def test_ids() -> None:
    ids = pd.Series([1000, "01000"] * 30, dtype=object)
    [text] = warned(frame(who=ids), schema(), "who")
    assert "Column 'who'" in text
    assert "01000" not in text
    assert warned(frame(who=[1000, 1001] * 30), schema(), "who") == []
    assert warned(frame(who=["1000", "01000"] * 30), schema(), "who") == []


@pytest.mark.parametrize("kind", [GDPTable, LDPTable])
def test_tables_warn_before_they_charge(kind: Any) -> None:
    data = frame(ward=pd.Series([7, "8"] * 30, dtype=object))
    budget = account()
    with warnings.catch_warnings():
        warnings.simplefilter("error", InferredTypeWarning)
        with pytest.raises(InferredTypeWarning, match="'ward'") as caught:
            kind(data, schema(), budget=budget).release()
    assert budget.spent().queries == 0
    frames = list(_locals(caught.value))
    assert not any("01000" in shown or " 7 " in shown for shown in frames)
    # Warned once a pass, and released all the same: who brings the rows decides.
    with pytest.warns(InferredTypeWarning, match="'ward'"):
        kind(data, schema(), budget=budget).release()
    assert budget.spent().queries == 1


def _locals(error: BaseException) -> Any:
    step = error.__traceback__
    while step is not None:
        if "langchain_dpicl" in step.tb_frame.f_code.co_filename:
            yield repr(step.tb_frame.f_locals)
        step = step.tb_next


def test_clients_and_ids_as_floats() -> None:
    data = frame(ward=[7.0, 8.0] * 30)
    with pytest.warns(InferredTypeWarning, match="whole numbers as floats"):
        list(LDPClient(schema(), epsilon=3).reports(data))
    with (
        pytest.warns(InferredTypeWarning, match="'who'"),
        pytest.raises(UnitError, match="no unit id"),
    ):
        GDPTable(
            frame(who=[1.0, 2.0] * 30), schema(), unit_key="who", budget=account()
        ).release()


def test_records_of_a_generation() -> None:
    fields = RecordFields("text", "label", "who")

    def read(ids: Any) -> dict[str, int]:
        records = pd.DataFrame({"text": ["a", "b"], "label": ["x", "x"], "who": ids})
        return PrivateRecords.read(records, ["x"], fields).sizes

    assert read(["01000", "1000"]) == {"x": 2}
    with pytest.warns(InferredTypeWarning, match="'who' of the pandas frame"):
        read(pd.Series([1000, "01000"], dtype=object))
    unnamed = pd.DataFrame({"text": ["a"], "label": ["x"]})
    nobodys = RecordFields("text", "label", None)
    assert PrivateRecords.read(unnamed, ["x"], nobodys).sizes == {"x": 1}
