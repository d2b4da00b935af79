"""One person's row in a file changes nothing that is read of anybody else's."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from langchain_dpicl.common.units import canonical_unit_id
from langchain_dpicl.tabular import (
    CategoricalColumn,
    CSVRows,
    InferredTypeWarning,
    JSONRows,
    NumericColumn,
    TableSchema,
)
from langchain_dpicl.tabular.rows import read_chunks

SCHEMA = TableSchema(
    label="ill",
    columns=[
        CategoricalColumn(
            name="ward", values=["1234", "01234", "x", "?"], other="?", missing="?"
        ),
        NumericColumn(name="pay", lower=-5, upper=5, missing=0),
        CategoricalColumn(
            name="ill", values=[False, True, "?"], other="?", missing="?"
        ),
    ],
)
Row = dict[str, str]
Encoded = tuple[str | None, int, int, int]

TEXT = st.text(max_size=6).map(lambda text: text.replace("\0", "")) | st.sampled_from(
    ['"', '""', ",", "\n", "\r\n", 'a"b', "a,b", "\n,,,\n", '"\n', "NA", "nan", "NULL"]
)
CODES = st.sampled_from(["1234", "01234", "1234.0", "x", "", "1e3", "True", "1", "0"])
IDS = st.sampled_from(["1000", "01000", "7", "p-1"])
ROW: st.SearchStrategy[Row] = st.fixed_dictionaries(
    {
        "ward": CODES | TEXT,
        "pay": st.sampled_from(["1", "-2.50", "1e2", ".5", "", " 3 ", "inf"]),
        "ill": st.sampled_from(["True", "False", "1", "0", ""]) | TEXT,
    }
)
ROWS = st.lists(st.tuples(IDS, ROW), max_size=8)


def written_csv(rows: list[tuple[str, Row]], *, stray: bool = False) -> str:
    file = io.StringIO(newline="")
    writer = csv.writer(file, quoting=csv.QUOTE_MINIMAL)
    writer.writerow(["who", *SCHEMA.names])
    for unit, row in rows:
        cells = [unit, *(row[name] for name in SCHEMA.names)]
        if stray:
            # A writer that forgets to quote, but keeps each row on its line.
            line = ",".join(" ".join(cell.splitlines()) for cell in cells)
            file.write(line.replace("\r", "") + "\n")
        else:
            writer.writerow(cells)
    return file.getvalue()


def written_json(rows: list[tuple[str, Row]]) -> str:
    def value(text: str) -> Any:
        return {"": None, "1": 1, "0": 0, "True": True, "1e2": 100.0}.get(text, text)

    return "".join(
        json.dumps(
            {
                "who": int(unit) if unit == "7" else unit,
                **{name: value(row[name]) for name in ("ward", "ill")},
                # Text is no number in a file whose values have types.
                "pay": min(float(row["pay"]), 9) if row["pay"] else None,
            },
            ensure_ascii=False,
        )
        + "\n"
        for unit, row in rows
    )


def encoded(data: Any, size: int) -> list[Encoded]:
    """Return each row's unit and codes, as a table takes them."""
    found: list[Encoded] = []
    for chunk in read_chunks(
        data,
        SCHEMA.names,
        unit_key="who",
        chunk_size=size,
        categories=SCHEMA.categories,
    ):
        ward, pay, ill = SCHEMA.columns
        assert isinstance(pay, NumericColumn)
        assert chunk.units is not None
        found += zip(
            map(canonical_unit_id, chunk.units),
            ward.codes(chunk.columns["ward"]).tolist(),
            pay.grid(chunk.columns["pay"]).tolist(),
            ill.codes(chunk.columns["ill"]).tolist(),
            strict=True,
        )
    return found


def from_csv(rows: list[tuple[str, Row]], size: int) -> list[Encoded]:
    return encoded(CSVRows(io.StringIO(written_csv(rows))), size)


def from_json(rows: list[tuple[str, Row]], size: int) -> list[Encoded]:
    return encoded(JSONRows(io.BytesIO(written_json(rows).encode())), size)


def from_stray_csv(rows: list[tuple[str, Row]], size: int) -> list[Encoded]:
    """One line a row; where a row can't be read, it and nothing else is left out."""
    text = io.StringIO(written_csv(rows, stray=True))
    return encoded(CSVRows(text, multiline=False, invalid="drop"), size)


def from_pandas(rows: list[tuple[str, Row]], size: int) -> list[Encoded]:
    return encoded(pd.read_csv(io.StringIO(written_csv(rows))), size)


def from_pandas_chunks(rows: list[tuple[str, Row]], size: int) -> list[Encoded]:
    text = io.StringIO(written_csv(rows))
    return encoded(pd.read_csv(text, chunksize=size), size)


def others_stay(
    read: Callable[[list[tuple[str, Row]], int], list[Encoded]],
    rows: list[tuple[str, Row]],
    place: int,
    instead: tuple[str, Row],
    sizes: tuple[int, int],
) -> None:
    """One row more, or another one in its place, changes nobody else's codes."""
    before, after = rows[:place], rows[place:]
    # Most rows have one code; a row that is left out has none.
    start = sum(len(read([row], 1)) for row in before)

    def others(changed: list[tuple[str, Row]], own: list[tuple[str, Row]]) -> Any:
        end = start + len(read(own, 1))
        found = [read(changed, size) for size in sizes]
        assert found[0] == found[1]
        return found[0][:start] + found[0][end:]

    everybody = others(rows, [])
    assert others([*before, instead, *after], [instead]) == everybody
    assert others([*before, instead, *after[1:]], [instead]) == others(rows, after[:1])


CASES = given(
    rows=ROWS,
    place=st.integers(0, 8),
    instead=st.tuples(IDS, ROW),
    sizes=st.tuples(st.integers(1, 9), st.just(1000)),
)


@pytest.mark.parametrize("read", [from_csv, from_json, from_stray_csv])
@settings(max_examples=150, deadline=None)
@CASES
@example(
    rows=[("01000", {"ward": "01234", "pay": "1", "ill": "1"})] * 3,
    place=1,
    instead=("1000", {"ward": "x", "pay": "", "ill": '"'}),
    sizes=(2, 1000),
)
def test_a_row_is_read_by_itself(
    read: Any,
    rows: list[tuple[str, Row]],
    place: int,
    instead: tuple[str, Row],
    sizes: tuple[int, int],
) -> None:
    others_stay(read, rows, min(place, len(rows)), instead, sizes)
    alone = [code for row in rows for code in read([row], 1)]
    assert read(rows, sizes[0]) == alone


@pytest.mark.filterwarnings("ignore::langchain_dpicl.tabular.InferredTypeWarning")
@pytest.mark.parametrize("read", [from_pandas, from_pandas_chunks])
@pytest.mark.parametrize(
    ("everybody", "one"),
    [
        ({"ward": "01234"}, {"ward": "x"}),
        ({"ill": "TRUE"}, {"ill": "perhaps"}),
        ({"who": "01000"}, {"who": "p-1"}),
    ],
)
def test_a_reader_that_infers_types_fails_the_same_property(
    read: Any, everybody: dict[str, str], one: dict[str, str]
) -> None:
    row = {"ward": "x", "pay": "1", "ill": "True", "who": "p-2"} | everybody
    rows = [(row["who"], row)] * 3
    instead = ((row | one)["who"], row | one)
    others_stay(from_csv, rows, 1, instead, (2, 1000))
    others_stay(from_json, rows, 1, instead, (2, 1000))
    with pytest.raises(AssertionError):
        others_stay(read, rows, 1, instead, (2, 1000))


def test_inference_is_warned_of_where_it_can_be_seen() -> None:
    row = {"ward": "01234", "pay": "1", "ill": "1"}
    with pytest.warns(InferredTypeWarning, match="'ward' of the pandas frame"):
        from_pandas([("7", row)], 10)
