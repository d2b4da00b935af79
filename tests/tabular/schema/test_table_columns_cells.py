"""Categorical cells: what sources deliver, read as one value each."""

from __future__ import annotations

import traceback
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.schema import CategoricalColumn

PRIVATE = "Zebediah-1847"


def column(*values: Any, **fields: Any) -> CategoricalColumn:
    return CategoricalColumn(name="job", values=values, **fields)


@pytest.mark.parametrize(
    "make",
    [
        list,
        tuple,
        np.array,
        lambda cells: np.array(cells, dtype=object),
        pd.Series,
        lambda cells: pd.Series(cells, dtype=object),
        lambda cells: pd.Series(cells, dtype="string"),
        lambda cells: pd.Series(cells).astype("category"),
        pd.Categorical,
        pd.Index,
        pl.Series,
        lambda cells: pl.Series(cells, dtype=pl.Categorical),
    ],
)
def test_text_from_every_source(make: Any) -> None:
    codes = column("nurse", "clerk").codes(make(["clerk", "nurse", "clerk"]))
    assert codes.dtype == np.int64
    assert codes.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    "cells",
    [
        [1, 0],
        ["1", " 0\t"],
        [np.int8(1), np.uint64(0)],
        np.array([1, 0], dtype=np.uint64),
        np.array(["1", "0"]),
        pd.Series([1, 0], dtype="Int64"),
        pd.Series([1, 0]).astype("category"),
        pl.Series([1, 0]),
    ],
)
def test_whole_numbers_have_one_spelling(cells: Any) -> None:
    assert column(0, 1).codes(cells).tolist() == [1, 0]
    assert column("0", 1).code_value(1) == "1"


@pytest.mark.parametrize("cell", [1.0, Decimal(1), np.float32(1), Fraction(1)])
def test_a_number_that_is_not_whole_by_its_type_is_no_category(cell: Any) -> None:
    for cells in ([cell], np.array([cell])):
        with pytest.raises(InvalidParameterError, match=r"'job': .*dtype=str"):
            column("1", "x", other="x").codes(cells)
    with pytest.raises(InvalidParameterError, match="whole number"):
        column("x", cell)


@pytest.mark.parametrize(
    "cells",
    [
        [True, False],
        [np.True_, np.False_],
        np.array([True, False]),
        ["True", "False"],
        pd.Series([True, False]),
        pd.Series([True, False], dtype="boolean"),
        pl.Series([True, False]),
    ],
)
def test_truth_values_are_their_names(cells: Any) -> None:
    assert column(False, True).codes(cells).tolist() == [1, 0]


def test_text_is_compared_as_it_is_written() -> None:
    codes = ["01234", "1234", "1e3", "+7", "7", "1.10", "1.1", "7" * 60]
    declared = column(*codes)
    assert declared.codes(codes).tolist() == list(range(len(codes)))
    assert declared.codes([1234, 7, int("7" * 60)]).tolist() == [1, 4, 7]
    for cell in (1000, "8" * 100_000, 10**5000):
        with pytest.raises(InvalidParameterError, match="none of the declared"):
            declared.codes([cell])


def test_truth_values_and_numbers_stay_apart_in_one_column() -> None:
    mixed = column(1, True, 0)
    assert mixed.codes([True, 1, "1", 0, True]).tolist() == [1, 0, 0, 2, 1]


@pytest.mark.parametrize(
    "cells",
    [
        ["a", None],
        ["a", float("nan")],
        ["a", ""],
        ["a", " \n"],
        ["a", pd.NA],
        ["a", pd.NaT],
        ["a", Decimal("NaN")],
        ["a", Decimal("sNaN")],
        np.array(["a", None], dtype=object),
        pd.Series(["a", None]),
        pd.Series(["a", None], dtype="string"),
        pd.Series(["a", None]).astype("category"),
        pl.Series(["a", None]),
    ],
)
def test_missing_cells(cells: Any) -> None:
    assert column("a", "b", missing="b").codes(cells).tolist() == [0, 1]
    # A category for other values is none for missing ones.
    with pytest.raises(
        InvalidParameterError, match=r"'job': a cell is missing.*missing="
    ):
        column("a", "b", other="b").codes(cells)


def test_values_outside_the_domain() -> None:
    cells = ["a", PRIVATE, 7, None]
    declared = column("a", "b", "c", other="b", missing="c")
    assert declared.codes(cells).tolist() == [0, 1, 1, 2]
    with pytest.raises(InvalidParameterError, match=r"'job': .*none of the declared"):
        column("a", "b", missing="b").codes(cells)


def test_a_category_that_no_row_has_changes_nothing() -> None:
    cells = pd.Series(pd.Categorical(["a", "a"], categories=["a", PRIVATE]))
    assert column("a", "b").codes(cells).tolist() == [0, 0]


def test_case_counts() -> None:
    assert column("No", "no").codes(["no", "No"]).tolist() == [1, 0]


@pytest.mark.parametrize(
    "cell", [b"a", ("a",), ["a"], {"a": 1}, object(), np.datetime64("2020-01-01"), 1j]
)
def test_cells_that_are_no_value(cell: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"'job': a cell is neither text"):
        column("a", "b", missing="a", other="b").codes(["a", cell])
    with pytest.raises(InvalidParameterError, match=r"'job': a cell is neither text"):
        column("a", "b", missing="a", other="b").value_text(cell)


@pytest.mark.parametrize(
    "cells", ["ab", b"ab", {"a": 1}, {"a"}, 7, None, np.array([["a"]]), np.array("a")]
)
def test_no_sequence_of_cells(cells: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"'job': its cells must be a list"):
        column("a", "b").codes(cells)


def test_no_cells() -> None:
    assert column("a", "b").codes([]).tolist() == []


@pytest.mark.parametrize("cells", [[PRIVATE], [PRIVATE, "a"], ["a"] * 50 + [PRIVATE]])
def test_errors_hold_no_cell_no_place_and_no_number(cells: list[str]) -> None:
    with pytest.raises(InvalidParameterError) as caught:
        column("a", "b").codes(cells)
    # The same words wherever the cell is, and however many there are.
    with pytest.raises(InvalidParameterError) as other:
        column("a", "b").codes(["x", "y"])
    assert str(caught.value) == str(other.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert PRIVATE not in "".join(traceback.format_exception(caught.value))


@given(
    st.lists(
        st.one_of(
            st.text(max_size=3),
            st.integers(),
            st.floats(),
            st.booleans(),
            st.none(),
            st.decimals(),
            st.fractions() | st.dates() | st.binary(max_size=2),
        )
    )
)
def test_any_cells_give_codes_in_range_or_the_typed_error(cells: list[Any]) -> None:
    declared = column("a", 1, True, missing="a", other="True")
    try:
        codes = declared.codes(cells)
    except InvalidParameterError:
        return
    assert codes.shape == (len(cells),)
    assert all(0 <= code < declared.domain_size for code in codes)
    # Each code is that of its cell alone.
    assert [int(declared.codes([cell])[0]) for cell in cells] == codes.tolist()


@given(st.lists(st.text().map(str.strip).filter(bool), min_size=2, unique=True))
def test_every_value_has_its_place(values: list[str]) -> None:
    declared = column(*values)
    codes = declared.codes(values)
    assert codes.tolist() == list(range(declared.domain_size))
    assert [declared.code_value(code) for code in codes] == values


def test_texts() -> None:
    declared = column(0, 1, texts={1: "yes"})
    assert [declared.code_text(code) for code in (0, 1)] == ["0", "yes"]
    assert declared.code_value(1) == "1"
    assert declared.value_text(1) == "yes"
    for code in (-1, 2):
        with pytest.raises(InvalidParameterError, match="codes are 0 to 1"):
            declared.code_text(code)
        with pytest.raises(InvalidParameterError, match="codes are 0 to 1"):
            declared.code_value(code)


@pytest.mark.parametrize("values", [[False, True], [0, 1], ["True", "False"]])
def test_truth_values_as_any_database_gives_them(values: list[Any]) -> None:
    column = CategoricalColumn(name="back", values=values)
    yes = column.codes([True, 1, "1", "True", np.int64(1)])
    no = column.codes([False, 0, "0", "False", np.bool_(0)])
    is_true = [value in (True, "True") for value in values].index(True)
    assert set(yes.tolist()) == {is_true}
    assert set(no.tolist()) == {1 - is_true}
    with pytest.raises(InvalidParameterError):
        column.codes([2])
    # Other domains are not touched.
    three = CategoricalColumn(name="back", values=["0", "1", "2"])
    with pytest.raises(InvalidParameterError):
        three.codes([True])
