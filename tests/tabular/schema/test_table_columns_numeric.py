"""Numeric cells: clipping, bins, and the grid that sums are taken on."""

from __future__ import annotations

import math
import traceback
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.schema import NumericColumn
from langchain_dpicl.tabular.schema.numeric import GRID_STEPS

SECRET = 184759.25
HUGE = 10**400


def integer(lower: int = 17, upper: int = 90, **fields: Any) -> NumericColumn:
    return NumericColumn(name="age", kind="integer", lower=lower, upper=upper, **fields)


def number(lower: float = 0, upper: float = 1, **fields: Any) -> NumericColumn:
    return NumericColumn(name="height", lower=lower, upper=upper, **fields)


@pytest.mark.parametrize(
    "cells",
    [
        [30, 18],
        (30.0, 18.0),
        [Decimal("30.00"), Fraction(18)],
        [np.int8(30), np.float32(18)],
        np.array([30, 18], dtype=np.uint8),
        np.array([30, 18], dtype=np.float16),
        np.array([30, 18], dtype=object),
        np.ma.MaskedArray([30, 18]),
        pd.Series([30, 18]),
        pd.Series([30, 18], dtype="Int64"),
        pd.Series([30, 18], dtype="Float32"),
        pd.Series([30, 18], dtype=object),
        pd.Series([30, 18]).astype("category"),
        pd.Index([30, 18]),
        pl.Series([30, 18]),
        pl.Series([30.0, 18.0]),
    ],
)
def test_numbers_from_every_source(cells: Any) -> None:
    column = integer(bins=[30])
    assert column.grid(cells).tolist() == [60 - 107, 36 - 107]
    assert column.grid(cells).dtype == column.codes(cells).dtype == np.int64
    assert column.codes(cells).tolist() == [1, 0]
    assert number(0, 100).grid(cells).tolist() == [-419430, -671089]


@pytest.mark.parametrize(
    "cells",
    [
        [None, 20],
        [float("nan"), 20],
        ["", 20],
        [pd.NA, 20],
        [pd.NaT, 20.0],
        [Decimal("sNaN"), 20],
        np.array([np.nan, 20]),
        pd.Series([None, 20]),
        pd.Series([None, 20], dtype="Int64"),
        pd.Series([None, 20]).astype("category"),
        pl.Series([None, 20]),
    ],
)
def test_missing_cells(cells: Any) -> None:
    assert integer(missing=40).grid(cells).tolist() == integer().grid([40, 20]).tolist()
    with pytest.raises(InvalidParameterError, match=r"'age': a cell is missing"):
        integer().grid(cells)


@pytest.mark.parametrize("cell", [91, 1e300, math.inf, HUGE, Decimal("1e999"), 2**63])
def test_out_of_bounds(cell: Any) -> None:
    for column in (integer(bins=2), number(17, 90, bins=2)):
        # Beside another cell, so that every way through `numbers` is taken.
        for beside in (20, 20.0, None, Decimal(20)):
            cells = [cell, -cell, 20 if beside is None else beside]
            ends = [column.bound, -column.bound]
            assert column.grid(cells)[:2].tolist() == ends
            assert column.codes(cells)[:2].tolist() == [1, 0]
    refusing = integer(outside="refuse")
    with pytest.raises(InvalidParameterError, match=r"'age': a cell is out of the bou"):
        refusing.grid([20, cell])
    assert refusing.grid([17, 90]).tolist() == [-73, 73]


def test_unsigned_numbers_do_not_wrap() -> None:
    cells = np.array([2**64 - 1, 17], dtype=np.uint64)
    assert integer().grid(cells).tolist() == [73, -73]


@pytest.mark.parametrize("make", [list, np.array, pd.Series, pl.Series])
def test_text_that_writes_a_number_is_one(make: Any) -> None:
    texts = ["30", " +30.0 ", "3e1", "30."]
    assert set(number(0, 90).grid(make(texts)).tolist()) == {
        int(number(0, 90).grid([30])[0])
    }


def test_truth_values_are_zero_and_one() -> None:
    assert integer(0, 1).grid([True, False]).tolist() == [1, -1]
    assert integer(0, 1).grid(np.array([True, False])).tolist() == [1, -1]


@pytest.mark.parametrize("cell", [30.5, Decimal("30.5"), Fraction(61, 2)])
def test_an_integer_column_does_not_round(cell: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"'age': a cell is no integer"):
        integer().grid([30, cell])


@pytest.mark.parametrize(
    "cells",
    [
        ["30 years"],
        ["1,5"],
        ["0x10"],
        ["1_0"],
        ["٣"],
        [30, "thirty"],
        [b"30"],
        [1j],
        [[30]],
        np.array([1j]),
        np.array([[30]]),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        "30",
        30,
        None,
        {30},
    ],
)
def test_what_is_no_number(cells: Any) -> None:
    with pytest.raises(InvalidParameterError, match=r"'age': a cell is not a number"):
        integer(missing=20).grid(cells)


@pytest.mark.parametrize("kind", ["refuse", "missing", "fraction", "text"])
def test_errors_hold_no_cell(kind: str) -> None:
    bad: Any = {"refuse": SECRET, "fraction": SECRET, "missing": None, "text": "x"}[
        kind
    ]
    column = (
        integer(outside="refuse")
        if kind == "fraction"
        else number(0, 10, outside="refuse")
    )
    words = set()
    for cells in ([bad, 1], [1, SECRET, bad] if kind == "missing" else [1, bad, bad]):
        with pytest.raises(InvalidParameterError) as caught:
            column.grid(cells)
        words.add(str(caught.value))
        assert caught.value.__cause__ is caught.value.__context__ is None
        assert str(SECRET) not in "".join(traceback.format_exception(caught.value))
    assert len(words) == 1


def test_the_callers_array_is_left_alone() -> None:
    cells = np.array([-5.0, np.nan, 500.0])
    kept = cells.copy()
    number(0, 1, missing=0.5).grid(cells)
    np.testing.assert_array_equal(cells, kept)


@given(
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.integers(1, 2**30),
    st.integers() | st.floats(),
)
def test_integer_grid_is_exact(lower: int, span: int, cell: float) -> None:
    upper = lower + span
    assume(upper < 2**53)
    column = integer(lower, upper, missing=lower, outside="clip")
    if isinstance(cell, float) and not (cell.is_integer() or not math.isfinite(cell)):
        return
    (q,) = column.grid([cell]).tolist()
    absent = isinstance(cell, float) and math.isnan(cell)
    expected = lower if absent else int(min(max(cell, lower), upper))
    assert q == 2 * expected - lower - upper
    assert abs(q) <= column.bound == span
    back = column.from_grid(q)
    assert type(back) is int
    assert back == expected


BOUNDS = st.floats(-1e300, 1e300) | st.floats(-1e3, 1e3)


@given(BOUNDS, BOUNDS, st.lists(st.floats(allow_nan=False), min_size=1))
def test_float_grid(lower: float, upper: float, cells: list[float]) -> None:
    assume(lower < lower / 2 + upper / 2 < upper)
    column = number(lower, upper)
    steps = column.grid(sorted(cells))
    assert np.abs(steps).max() <= column.bound == GRID_STEPS
    assert (np.diff(steps) >= 0).all()
    half = upper / 2 - lower / 2
    for cell, q in zip(sorted(cells), steps.tolist(), strict=True):
        back = column.from_grid(q)
        assert lower <= back <= upper
        clipped = min(max(cell, lower), upper)
        # Half a step, and what floats of this size can tell.
        fuzz = 8 * math.ulp(max(abs(lower), abs(upper)))
        assert abs(back - clipped) <= half / GRID_STEPS / 2 + fuzz


def test_twin_without_clipping_breaks_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What the property above would see if cells were not clipped.
    def unclipped(self: NumericColumn, values: Any) -> Any:
        return np.array(values, dtype=np.float64)

    column = number(0, 1)
    whole = integer(0, 10)
    monkeypatch.setattr(NumericColumn, "_clipped", unclipped)
    # The clip after rounding still holds the bound ...
    assert column.grid([7.0]).tolist() == [column.bound]
    monkeypatch.setattr(np, "clip", lambda values, *_: values)
    # ... and without it there is none.
    assert abs(column.grid([7.0])[0]) > column.bound
    assert abs(whole.grid([70.0])[0]) > whole.bound


def test_from_grid() -> None:
    column = integer(0, 100)
    assert column.from_grid(0.4) == 50
    assert column.from_grid(math.inf) == 100
    assert column.from_grid(-1e300) == 0
    assert number(-1, 1).from_grid(GRID_STEPS / 2) == 0.5
    assert number(-1, 1).from_grid(-math.inf) == -1
    assert type(number(-1, 1).from_grid(np.float64(3))) is float
    assert type(column.from_grid(np.float64(3.5))) is int
    assert type(column.from_grid(np.int64(3))) is int
    with pytest.raises(InvalidParameterError, match="'age': a place on its grid"):
        column.from_grid(math.nan)


@given(st.lists(st.floats(), min_size=1), st.integers(2, 12))
def test_bins(cells: list[float], bins: int) -> None:
    column = number(-2, 3, bins=bins, missing=0)
    codes = column.codes(cells)
    assert ((codes >= 0) & (codes < column.domain_size)).all()
    assert column.domain_size == bins
    for cell, code in zip(cells, codes.tolist(), strict=True):
        value = 0.0 if math.isnan(cell) else min(max(cell, -2), 3)
        assert code == sum(value >= edge for edge in column.bins)


@given(st.integers(-50, 50), st.integers(1, 60), st.data())
def test_equal_bins_of_integers_hold_equally_many(
    lower: int, span: int, data: st.DataObject
) -> None:
    bins = data.draw(st.integers(2, span + 1))
    column = integer(lower, lower + span, bins=bins)
    sizes = np.bincount(column.codes(range(lower, lower + span + 1)), minlength=bins)
    assert sizes.max() - sizes.min() <= 1
    assert len(sizes) == column.domain_size == bins


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (integer(bins=[30, 40]), ["below 30", "30 to 40", "40 or more"]),
        (
            integer(bins=[30, 40], unit="years"),
            ["below 30 years", "30 to 40 years", "40 or more years"],
        ),
        (integer(bins=[30], bin_texts=["young", "old"], unit="y"), ["young", "old"]),
        (integer(0, 1, bins=2), ["below 1", "1 or more"]),
        (number(-1, 1, bins=[-0.5, 0]), ["below -0.5", "-0.5 to 0", "0 or more"]),
        (number(bins=3), ["below 0.33333", "0.33333 to 0.66667", "0.66667 or more"]),
        (
            number(0, 1, bins=[0.3, 0.3000001], decimals=0),
            ["below 0.3", "0.3 to 0.3000001", "0.3000001 or more"],
        ),
        (number(0, 1e6, bins=[37.5]), ["below 37.5", "37.5 or more"]),
    ],
)
def test_bin_texts(column: NumericColumn, texts: list[str]) -> None:
    codes = range(column.domain_size)
    assert [column.code_text(code) for code in codes] == texts
    assert [column.code_value(code) for code in codes] == texts
    assert [column.value_text(text, binned=True) for text in texts] == texts
    for code in (-1, len(texts)):
        with pytest.raises(InvalidParameterError, match="its codes are"):
            column.code_text(code)


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        (integer(unit="years"), 37, "37 years"),
        (integer(), 37.0, "37"),
        (integer(), 300, "90"),
        (number(0, 15), 8.3252, "8.33"),
        (number(0, 15), 8, "8"),
        (number(0, 15, decimals=1), 8, "8.0"),
        (number(-5, 5), -0.0001, "0"),
        (number(0, 1e9), 1e8, "100000000"),
        (number(0, 1e-9), 1.25e-10, "0.000000000125"),
        (number(0, 2, missing=1), None, "1"),
    ],
)
def test_value_text(column: NumericColumn, value: Any, text: str) -> None:
    assert column.value_text(value) == text


def test_value_text_of_a_bin() -> None:
    column = integer(bins=[30, 40], unit="years")
    assert column.value_text(37, binned=True) == "30 to 40 years"
    assert column.value_text("30 to 40", binned=True) == "30 to 40 years"
    with pytest.raises(
        InvalidParameterError, match=r"'age': this text is none of its b"
    ):
        column.value_text("31 to 40", binned=True)
    # A release that is grouped by the column knows its bins alone.
    assert column.value_text("30 to 40 years") == "30 to 40 years"
    with pytest.raises(InvalidParameterError, match=r"'age': a cell is not a number"):
        column.value_text("31 to 40")


def test_without_bins_there_are_no_codes() -> None:
    column = integer()
    assert not column.has_codes
    assert integer(bins=2).has_codes
    for use in (
        lambda: column.domain_size,
        lambda: column.codes([20]),
        lambda: column.code_text(0),
        lambda: column.value_text(20, binned=True),
    ):
        with pytest.raises(
            InvalidParameterError, match=r"'age': it has no bins. Give bi"
        ):
            use()
