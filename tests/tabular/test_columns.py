"""Cells of columns: each is read alone, as one value or within public bounds."""

from __future__ import annotations

import copy
import json
import math
import pickle
import traceback
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular import CategoricalColumn, NumericColumn
from langchain_dpicl.tabular.columns import GRID_STEPS

PRIVATE = "Zebediah-1847"
NAN, INF, HUGE = float("nan"), float("inf"), 10**400
MISSING = [None, NAN, "", " \n", pd.NA, pd.NaT, Decimal("NaN"), Decimal("sNaN")]


def jobs(*values: Any, **fields: Any) -> CategoricalColumn:
    return CategoricalColumn(name="job", values=values, **fields)


def age(lower: int = 17, upper: int = 90, **fields: Any) -> NumericColumn:
    return NumericColumn(name="age", kind="integer", lower=lower, upper=upper, **fields)


def height(lower: float = 0, upper: float = 1, **fields: Any) -> NumericColumn:
    return NumericColumn(name="height", lower=lower, upper=upper, **fields)


# --- categories -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "cells"),
    [
        ((0, 1), [1, "1", " 1\t", np.int8(1), np.uint64(1)]),
        ((False, True), [True, np.True_, "True", 1, "1"]),
        (("a", 1, True), ["a", " a"]),
        (("No", "no"), ["no"]),
        (("01234", "1234"), ["1234", 1234]),
        (("x", "7" * 60), [int("7" * 60)]),
    ],
)
def test_a_category_has_one_spelling(values: tuple[Any, ...], cells: list[Any]) -> None:
    column = jobs(*values)
    place = column.codes(cells[:1])[0]
    assert column.codes(cells).tolist() == [place] * len(cells)
    assert column.codes(list(values)).tolist() == list(range(len(values)))
    assert all(column.code_of(cell) == place for cell in cells)


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["b", None, "a"]),
        pa.array(["b", None, "a"]).dictionary_encode(),
        pa.array(["b", None, "a"], pa.large_string()),
    ],
)
def test_arrays_of_arrow_are_read_by_their_cells(array: pa.Array) -> None:
    assert jobs("a", "b", missing="a").codes(array).tolist() == [1, 0, 0]
    numbers = pa.array([30, None, 18])
    assert age(missing=30, bins=[30]).codes(numbers).tolist() == [1, 1, 0]
    assert age(missing=30).grid(numbers.cast(pa.float64())).tolist() == [-47, -47, -71]


@pytest.mark.parametrize(
    "cell",
    [
        *(1.0, Decimal(1), np.float32(1), Fraction(1), b"a", ("a",), {"a": 1}, 1j),
        *(object(), np.datetime64("2020-01-01"), np.timedelta64(3, "s")),
    ],
)
def test_a_cell_of_another_kind_is_no_category(cell: Any) -> None:
    column = jobs("1", "x", missing="x", other="x")
    for use in (lambda: column.codes(["x", cell]), lambda: column.text(cell)):
        with pytest.raises(InvalidParameterError, match=r"'job': a cell is neither"):
            use()
    with pytest.raises(InvalidParameterError):
        column.code_of(cell)
    with pytest.raises(InvalidParameterError, match="whole number"):
        jobs("x", cell)


@pytest.mark.parametrize("cell", MISSING)
def test_missing_cells_count_as_what_is_declared_for_them(cell: Any) -> None:
    assert jobs("a", "b", missing="b").codes(["a", cell]).tolist() == [0, 1]
    assert age(missing=40).grid([cell, 20]).tolist() == age().grid([40, 20]).tolist()
    for column in (jobs("a", "b", other="b"), age(bins=2)):
        with pytest.raises(InvalidParameterError, match=r"cell is missing.*missing="):
            column.codes([cell])


def test_values_outside_the_domain_are_other_or_refused() -> None:
    column = jobs("a", "b", "c", other="b", missing="c")
    assert column.codes(["a", PRIVATE, 7, None]).tolist() == [0, 1, 1, 2]
    words = set()
    for cells in ([PRIVATE], [PRIVATE, "a"], ["a"] * 50 + [PRIVATE], [10**5000]):
        with pytest.raises(InvalidParameterError, match="none of the decl") as caught:
            jobs("a", "b", missing="b").codes(cells)
        words.add(str(caught.value))
        assert caught.value.__cause__ is caught.value.__context__ is None
        assert PRIVATE not in "".join(traceback.format_exception(caught.value))
    # Neither a cell, nor its place, nor how many there are.
    assert len(words) == 1


@given(
    st.lists(
        st.text(max_size=3)
        | st.integers()
        | st.floats()
        | st.booleans()
        | st.none()
        | st.decimals()
        | st.fractions()
        | st.dates()
    )
)
def test_any_cells_give_codes_of_each_alone_or_the_typed_error(
    cells: list[Any],
) -> None:
    column = jobs("a", 1, True, missing="a", other="True")
    try:
        codes = column.codes(cells)
    except InvalidParameterError:
        return
    assert all(0 <= code < column.domain_size for code in codes)
    assert [int(column.codes([cell])[0]) for cell in cells] == codes.tolist()


def test_texts_are_how_values_are_written() -> None:
    column = jobs(0, 1, 2, texts={1: "yes,\nindeed"}, wording="{column}: {value}!")
    assert [column.text(value) for value in (0, "1", 2)] == ["0", "yes, indeed", "2"]
    assert column.sentence(1) == "job: yes, indeed!"
    # Values are data, and no templates.
    assert jobs("{x}", "{{y}}", shown="{z}").sentence("{x}") == "The {z} is {x}."


# --- numbers --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cells",
    [
        [30, 18],
        [30.0, 18.0],
        [Decimal("30.00"), Fraction(18)],
        [np.int8(30), np.float32(18)],
        ["30", " +18.0 "],
        ["3e1", "18."],
    ],
)
def test_numbers_are_read_however_they_are_written(cells: list[Any]) -> None:
    assert age().grid(cells).tolist() == [60 - 107, 36 - 107]
    assert age(bins=[30]).codes(cells).tolist() == [1, 0]
    assert height(0, 100).grid(cells).tolist() == [-419430, -671089]
    assert age(0, 1).grid([True, np.False_]).tolist() == [1, -1]


@pytest.mark.parametrize("cell", [91, 1e300, INF, HUGE, Decimal("1e999"), 2**63])
def test_numbers_out_of_bounds_are_clipped(cell: Any) -> None:
    for column in (age(bins=2), height(17, 90, bins=2)):
        for beside in (20, 20.0, Decimal(20)):
            cells = [cell, -cell, beside]
            ends = [column.bound, -column.bound]
            assert column.grid(cells)[:2].tolist() == ends
            assert column.codes(cells)[:2].tolist() == [1, 0]


@pytest.mark.parametrize(
    "cell", ["30 years", "1,5", "0x10", "1_0", "٣", "x", b"30", 1j, [30], {30}]
)
def test_what_is_no_number_is_refused(cell: Any) -> None:
    with pytest.raises(InvalidParameterError, match="a cell is not a number") as caught:
        age(missing=20).grid([30, cell])
    assert caught.value.__cause__ is caught.value.__context__ is None
    for part in (30.5, Decimal("30.5"), Fraction(61, 2)):
        with pytest.raises(InvalidParameterError, match="a cell is no integer"):
            age().grid([30, part])


@given(
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.integers(1, 2**30),
    st.integers() | st.floats(),
)
def test_the_grid_of_integers_is_exact(lower: int, span: int, cell: float) -> None:
    upper = lower + span
    assume(upper < 2**53)
    assume(not (isinstance(cell, float) and math.isfinite(cell) and cell % 1))
    column = age(lower, upper, missing=lower)
    (q,) = column.grid([cell]).tolist()
    absent = isinstance(cell, float) and math.isnan(cell)
    expected = lower if absent else int(min(max(cell, lower), upper))
    assert q == 2 * expected - lower - upper
    assert abs(q) <= column.bound == span


BOUNDS = st.floats(-1e300, 1e300) | st.floats(-1e3, 1e3)


@given(BOUNDS, BOUNDS, st.lists(st.floats(allow_nan=False), min_size=1))
def test_the_grid_of_floats_keeps_to_its_bound(
    lower: float, upper: float, cells: list[float]
) -> None:
    assume(lower < lower / 2 + upper / 2 < upper)
    column = height(lower, upper)
    steps = column.grid(sorted(cells))
    assert np.abs(steps).max() <= column.bound == GRID_STEPS
    assert (np.diff(steps) >= 0).all()
    for cell, q in zip(sorted(cells), steps.tolist(), strict=True):
        back = column.middle + q / GRID_STEPS * column.half
        # Half a step, and what floats of this size can tell.
        fuzz = 8 * math.ulp(max(abs(lower), abs(upper)))
        near = column.half / GRID_STEPS / 2 + fuzz
        assert abs(back - min(max(cell, lower), upper)) <= near


def test_twin_without_clipping_breaks_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unclipped(self: NumericColumn, cells: Any) -> Any:
        return np.array(cells, dtype=np.float64)

    monkeypatch.setattr(NumericColumn, "_clipped", unclipped)
    # The clip after rounding still holds the bound, and without it there is none.
    assert height().grid([7.0]).tolist() == [height().bound]
    monkeypatch.setattr(np, "clip", lambda values, *_: values)
    assert abs(height().grid([7.0])[0]) > height().bound
    assert abs(age().grid([700])[0]) > age().bound


@given(st.lists(st.floats(), min_size=1), st.integers(2, 12))
def test_a_bin_holds_its_lower_edge(cells: list[float], bins: int) -> None:
    column = height(-2, 3, bins=bins, missing=0)
    codes = column.codes(cells).tolist()
    for cell, code in zip(cells, codes, strict=True):
        value = 0.0 if math.isnan(cell) else min(max(cell, -2), 3)
        assert code == sum(value >= edge for edge in column.bins)
    assert column.domain_size == bins


@given(st.integers(-50, 50), st.integers(1, 60), st.data())
def test_equal_bins_of_integers_hold_equally_many(
    lower: int, span: int, data: st.DataObject
) -> None:
    bins = data.draw(st.integers(2, span + 1))
    column = age(lower, lower + span, bins=bins)
    codes = column.codes(list(range(lower, lower + span + 1)))
    sizes = np.bincount(codes, minlength=bins)
    assert sizes.max() - sizes.min() <= 1
    assert len(sizes) == column.domain_size == bins


@pytest.mark.parametrize(
    ("column", "options"),
    [
        (age(bins=[30, 40]), ["below 30", "30 to 40", "40 or more"]),
        (age(bins=[30], unit="years"), ["below 30 years", "30 or more years"]),
        (height(-1, 1, bins=[-0.5, 0]), ["below -0.5", "-0.5 to 0", "0 or more"]),
        (height(bins=3), ["below 0.33333", "0.33333 to 0.66667", "0.66667 or more"]),
        (
            height(bins=[0.3, 0.3000001]),
            ["below 0.3", "0.3 to 0.3000001", "0.3000001 or more"],
        ),
    ],
)
def test_bins_are_told_apart_by_their_texts(
    column: NumericColumn, options: list[str]
) -> None:
    assert list(column.options) == options
    assert [column.text(text, binned=True) for text in options] == options
    assert [column.code_of(text) for text in options] == list(range(len(options)))
    for value in ("31 to 40", column.upper + 1, None, NAN, [1]):
        with pytest.raises(InvalidParameterError, match=column.name):
            column.code_of(value)


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        (age(unit="years"), 37, "37 years"),
        (age(), 300, "90"),
        (height(0, 15), 8.3252, "8.33"),
        (height(0, 15), 8, "8"),
        (height(-5, 5), -0.0001, "0"),
        (height(0, 1e9), 1e8, "100000000"),
        (height(0, 1e-9), 1.25e-10, "0.000000000125"),
        (height(0, 2, missing=1), None, "1"),
    ],
)
def test_numbers_are_written_without_exponents(
    column: NumericColumn, value: Any, text: str
) -> None:
    assert column.text(value) == text


# --- columns that can't be made -------------------------------------------------------

AB = {"values": ["a", "b"]}
TEN = {"lower": 0, "upper": 10}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "values: Field required"),
    ({"values": ["a"]}, "values: .*at least two"),
    ({"values": [1, "1"]}, "values: .*'1' is there twice"),
    ({"values": {"a", "b"}}, "values: .*as a list"),
    ({"values": ["a", None]}, "values: .*not NoneType"),
    ({**AB, "texts": {"c": "C"}}, "'c' is none of the"),
    ({**AB, "texts": {"a": " "}}, "texts: "),
    ({**AB, "texts": {"a": "b"}}, "texts: "),
    ({**AB, "missing": "c"}, "'c' is none of the"),
    ({**AB, "other": ["a"]}, "other: .*not list"),
    ({**AB, "max_items": 3}, "from 1 to 2"),
    ({**AB, "unit": "kg"}, "no field of such a name"),
    ({**AB, "shown": " "}, "shown: .*not blank"),
    ({**AB, "wording": "{value"}, "wording: "),
    ({**AB, "wording": "{age}"}, "wording: .*only {column}, {value}"),
    ({**AB, "wording": "{value.__class__}"}, "wording: "),
    ({**AB, "wording": "The {column}."}, "wording: .*{value}"),
    ({"lower": 2, "upper": 1}, "upper: .*above lower=2.0"),
    ({"lower": 0, "upper": 5e-324}, "upper: .*room between"),
    ({"lower": NAN, "upper": 1}, "lower: .*finite"),
    ({"lower": 0, "upper": HUGE}, "upper: .*finite"),
    ({"lower": "0", "upper": 1}, "lower: .*a number, not str"),
    ({"kind": "integer", "lower": 0.5, "upper": 2}, 'lower: .*kind="number"'),
    ({"kind": "integer", "lower": 0, "upper": 2**30 + 1}, 'upper: .*kind="number"'),
    ({"kind": "float", **TEN}, "kind: "),
    ({**TEN, "bins": [0]}, "bins: .*inner edges only"),
    ({**TEN, "bins": [3, 3]}, "bins: .*must increase"),
    ({**TEN, "bins": [3, NAN]}, "bins: .*finite"),
    ({**TEN, "bins": 1}, "bins: .*at least 2"),
    ({**TEN, "bins": 10**9}, "bins: .*at most"),
    ({**TEN, "kind": "integer", "bins": 12}, "bins: at most 11"),
    ({**TEN, "missing": 11}, "missing: .*within the bounds"),
    ({**TEN, "unit": " "}, "unit: .*not blank"),
]


@pytest.mark.parametrize(("fields", "reason"), WRONG)
def test_a_column_that_can_not_be_made_is_named(
    fields: dict[str, Any], reason: str
) -> None:
    kind = NumericColumn if "lower" in fields else CategoricalColumn
    with pytest.raises(
        InvalidParameterError, match=f"Column 'x' can't.*{reason}"
    ) as caught:
        kind(name="x", **fields)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_a_column_without_bins_has_no_codes_and_one_of_wide_bounds_no_overflow() -> (
    None
):
    assert age().options == ()
    for use in (lambda: age().codes([20]), lambda: age().text(20, binned=True)):
        with pytest.raises(InvalidParameterError, match=r"it has no bins. Give bi"):
            use()
    widest = height(-1.7e308, 1.7e308, bins=4)
    assert widest.grid([-INF, 0, INF]).tolist() == [-GRID_STEPS, 0, GRID_STEPS]
    assert widest.domain_size == 4
    spread = age(-(2**29), 2**29)
    assert spread.grid([-(2**40), 2**40]).tolist() == [-(2**30), 2**30]


@pytest.mark.parametrize(
    "column",
    [
        jobs("a", 1, True, texts={"a": "A"}, missing="a", other=1, max_items=2),
        height(-0.5, 3, bins=3, missing=0),
        age(0.0, np.int64(9), bins=[3, 5], unit="years"),
    ],
)
def test_columns_come_back_from_json_pickles_and_copies(column: Any) -> None:
    kind, fields = type(column), column.model_dump(mode="json")
    for again in (
        kind(**json.loads(json.dumps(fields))),
        pickle.loads(pickle.dumps(column)),
        copy.deepcopy(column),
        column.model_copy(),
    ):
        assert again == column
        assert again.options == column.options
    with pytest.raises(InvalidParameterError, match="name"):
        column.model_copy(update={"name": " "})
    with pytest.raises(InvalidParameterError, match="model_copy"):
        column.name = "other"
