"""Rows of tables: every source gives the same cells, and each cell is read alone."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support.table_parts import account

from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.tabular import (
    CategoricalColumn,
    GDPTable,
    LDPTable,
    NumericColumn,
    TableSchema,
    csv_rows,
)

PRIVATE = "Zebediah-1847"
JOBS = ["clerk", "0123", "123", "other"]
SCHEMA = TableSchema(
    label="job",
    columns=[
        NumericColumn(name="age", kind="integer", lower=0, upper=100, bins=[50]),
        CategoricalColumn(name="job", values=JOBS, other="other", missing="other"),
    ],
)
TEXT = "age,job,who\n30,0123,007\n70,123,7\n40,clerk,a\n"
ODD = TEXT + "20,n/a,x y\n"
"""One more person, whose id and job are no numbers."""


SOURCES: dict[str, Callable[[Path], Any]] = {
    "csv_rows": csv_rows,
    "pandas": lambda path: pd.read_csv(path, dtype=str),
    "polars": lambda path: pl.read_csv(path, infer_schema=False),
    "batches": lambda path: pa.Table.from_pandas(
        pd.read_csv(path, dtype=str)
    ).to_reader(1),
    "dictionaries": lambda path: pa.Table.from_pandas(
        pd.read_csv(path, dtype=str).astype("category")
    ),
    "duckdb": lambda path: duckdb.read_csv(str(path), all_varchar=True),
}


def counts(rows: Any, **terms: Any) -> dict[str, int]:
    table = GDPTable(
        rows,
        SCHEMA,
        budget=account(1e6),
        measure=["job", "age"],
        **{"unit_key": "who", **terms},
    )
    found = table.release().statistics.table("job")
    return dict(zip(JOBS, found.noisy.tolist(), strict=True))


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("text", [TEXT, ODD], ids=["plain", "one odd cell"])
def test_every_source_gives_the_same_cells(
    name: str, text: str, tmp_path: Path
) -> None:
    path = tmp_path / "people.csv"
    path.write_text(text)
    odd = int(text is ODD)
    # "007" and "7" are two people, with any others beside them.
    assert counts(SOURCES[name](path)) == {
        "clerk": 1,
        "0123": 1,
        "123": 1,
        "other": odd,
    }


def test_a_reader_that_guesses_types_is_refused_where_it_shows() -> None:
    guessed = pd.DataFrame({"age": [30, 40], "job": [123.0, None], "who": [7.0, None]})
    for rows in (guessed, pa.Table.from_pandas(guessed), guessed.to_dict("records")):
        with pytest.raises(InvalidParameterError, match=r"'job'.*dtype=str"):
            counts(rows)
        with pytest.raises(UnitError, match=r"'who'.*dtype=str"):
            counts(
                rows.drop_columns("job").append_column("job", pa.array(["a", "b"]))
                if isinstance(rows, pa.Table)
                else pd.DataFrame(rows).assign(job="clerk"),
                unit_key="who",
            )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("age,job\n30,clerk\n40\n", 3),
        ("age,job\n30,clerk,x\n", 2),
        (f'age,job\n30,"{PRIVATE}\n40,clerk\n', 2),
        (f'age,job\n30,"{PRIVATE}" x\n', 2),
        (f"age,job\n30,{PRIVATE}\r\rx\n", 4),
    ],
)
def test_a_line_that_is_no_row_is_refused_by_its_number(
    text: str, line: int, tmp_path: Path
) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes(text.encode())
    with pytest.raises(InvalidParameterError, match=f"line {line} ") as caught:
        counts(csv_rows(path))
    assert PRIVATE not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__cause__ is None


def test_files_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes("\ufeffage;job\r\n30;clerk\r\n\r\n70;'a, \"b\"'\r\n".encode())
    rows = list(csv_rows(path, delimiter=";"))
    assert rows[0] == {"age": "30", "job": "clerk"}
    assert len(rows) == 2
    path.write_bytes("age,job\n30,caf\xe9\n".encode("latin-1"))
    assert next(csv_rows(path, encoding="latin-1"))["job"] == "caf\xe9"
    for given in (tmp_path / "missing.csv", path):
        with pytest.raises(InvalidParameterError, match="CSV file"):
            list(csv_rows(given))
    with pytest.raises(InvalidParameterError, match="LookupError"):
        list(csv_rows(path, encoding="no such"))


@pytest.mark.parametrize("kind", [GDPTable, partial(LDPTable, invited=9)])
@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([{"age": 30}], "Row 0 .* has no column 'job'"),
        ([{"age": 30, "job": "clerk"}, {"age": 3, "job": "a", PRIVATE: 1}], "Row 1"),
        ([{"age": 30, "job": "clerk", 7: 1}], "with a int for a name"),
        (pa.table([[1], [2], ["a"]], names=["age", "age", "job"]), "more than once"),
        (pd.DataFrame({"age": [1]}), "The frame has no column 'job'"),
        ("a path", "is a str"),
        ({"age": [1], "job": ["a"]}, "is a dict"),
        ([1, 2], "Row 0 .* is a int"),
        (None, "is a NoneType"),
    ],
)
def test_what_is_no_table_of_the_schema(kind: Any, rows: Any, problem: str) -> None:
    budget = account()
    with pytest.raises(InvalidParameterError, match=problem):
        kind(rows, SCHEMA, budget=budget).release()
    assert budget.spent().queries == 0


def test_what_a_stream_says_is_not_told() -> None:
    def batches() -> Any:
        yield pa.record_batch({"age": [30], "job": ["clerk"]})
        raise RuntimeError(PRIVATE)

    schema = pa.schema([("age", pa.int64()), ("job", pa.string())])
    stream = pa.RecordBatchReader.from_batches(schema, batches())
    with pytest.raises(InvalidParameterError, match="Arrow stream failed") as caught:
        counts(stream, unit_key=None)
    assert PRIVATE not in "".join(traceback.format_exception(caught.value))
