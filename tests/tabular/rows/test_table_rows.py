"""Rows of every kind become the same chunks, and what is no table is refused."""

from __future__ import annotations

import io
import weakref
from collections import ChainMap
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular.rows import Chunk, read_chunks

CANARY = "Wilhelmina"
ROWS = [{"age": 20 + i, "job": "clerk" if i % 2 else "nurse"} for i in range(11)]
AGES = [row["age"] for row in ROWS]
CSV = "age,job\n" + "".join(f"{row['age']},{row['job']}\n" for row in ROWS)

SOURCES: dict[str, Callable[[], Any]] = {
    "list": lambda: ROWS,
    "tuple": lambda: tuple(ROWS),
    "generator": lambda: (row for row in ROWS),
    "proxies": lambda: [MappingProxyType(row) for row in ROWS],
    "pandas": lambda: pd.DataFrame(ROWS),
    "pandas nullable": lambda: pd.DataFrame(ROWS).convert_dtypes(),
    "pandas category": lambda: pd.DataFrame(ROWS).astype({"job": "category"}),
    "pandas chunks": lambda: pd.read_csv(io.StringIO(CSV), chunksize=5),
    "pandas odd index": lambda: pd.DataFrame(ROWS, index=[7] * len(ROWS)),
    "polars": lambda: pl.DataFrame(ROWS),
    "polars category": lambda: pl.DataFrame(
        ROWS, schema_overrides={"job": pl.Categorical}
    ),
    "polars lazy": lambda: pl.DataFrame(ROWS).lazy(),
    "polars frames": lambda: iter([pl.DataFrame(ROWS[:7]), pl.DataFrame(ROWS[7:])]),
    "an empty frame first": lambda: [pd.DataFrame(ROWS)[:0], pd.DataFrame(ROWS)],
}


def read(data: Any, **options: Any) -> list[Chunk]:
    return list(read_chunks(data, ["age", "job"], **options))


def cells(chunks: list[Chunk], name: str) -> list[Any]:
    return [cell for chunk in chunks for cell in chunk.columns[name]]


def units(chunks: list[Chunk]) -> list[Any]:
    found = []
    for chunk in chunks:
        assert chunk.units is not None
        found += list(chunk.units)
    return found


@pytest.mark.parametrize("size", [1, 4, 11, 100])
@pytest.mark.parametrize("source", SOURCES)
def test_every_source_yields_the_same_columns(source: str, size: int) -> None:
    chunks = read(SOURCES[source](), chunk_size=size)
    assert cells(chunks, "age") == AGES
    assert cells(chunks, "job") == [row["job"] for row in ROWS]
    for chunk in chunks:
        assert 1 <= chunk.size <= size
        assert set(chunk.columns) == {"age", "job"}
        assert {len(column) for column in chunk.columns.values()} == {chunk.size}
        assert chunk.units is None


@pytest.mark.parametrize("source", SOURCES)
def test_the_unit_key_may_be_a_column_of_the_schema_or_not(source: str) -> None:
    both = read(SOURCES[source](), unit_key="age", chunk_size=4)
    assert units(both) == AGES
    assert cells(both, "age") == AGES
    [apart] = read_chunks(ROWS, ["job"], unit_key="age")
    assert units([apart]) == AGES
    assert set(apart.columns) == {"job"}


@pytest.mark.parametrize("source", SOURCES)
def test_a_column_that_the_schema_does_not_know(source: str) -> None:
    with pytest.raises(InvalidParameterError, match="column 'job', unknown") as caught:
        list(read_chunks(SOURCES[source](), ["age"]))
    assert "extra_columns='ignore'" in str(caught.value)
    chunks = list(read_chunks(SOURCES[source](), ["age"], extra_columns="ignore"))
    assert cells(chunks, "age") == AGES
    assert all(set(chunk.columns) == {"age"} for chunk in chunks)


@pytest.mark.parametrize("ignore", [False, True])
@pytest.mark.parametrize("source", SOURCES)
def test_a_column_that_is_missing(source: str, ignore: bool) -> None:
    extra = "ignore" if ignore else "refuse"
    with pytest.raises(InvalidParameterError, match="columns 'wage', 'town'"):
        list(
            read_chunks(
                SOURCES[source](),
                ["age", "job", "wage", "town"],
                extra_columns=extra,  # type: ignore[arg-type] # not a literal
            )
        )
    with pytest.raises(InvalidParameterError, match="no column 'person'"):
        read(SOURCES[source](), unit_key="person", extra_columns=extra)


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        ({"age": 1}, "Row 10 .* has no column 'job'"),
        ({"age": 1, "job": "x", "name": CANARY}, "Row 10 .* column 'name', unknown"),
        ({"age": 1, "job": "x", 7: CANARY}, "a int for a name"),
        ({"age": 1, "job": "x", None: [CANARY]}, "a NoneType for a name"),
        ([1, CANARY], "Row 10 .* is a list"),
        (pd.DataFrame([{"age": 1, "job": CANARY}]), "Row 10 .* is a DataFrame"),
        (CANARY, "Row 10 .* is a str"),
        (None, "Row 10 .* is a NoneType"),
    ],
)
@pytest.mark.parametrize("size", [3, 50])
def test_every_row_is_looked_at(bad: Any, match: str, size: int) -> None:
    rows = [*ROWS[:10], bad]
    with pytest.raises(InvalidParameterError, match=match) as caught:
        read(rows, chunk_size=size)
    assert CANARY not in str(caught.value)


def test_a_missing_value_is_no_missing_column() -> None:
    [chunk] = read([{"age": None, "job": float("nan")}])
    assert chunk.columns["age"] == [None]
    [chunk] = read(pl.DataFrame({"age": [2**53 + 1, None], "job": ["a", None]}))
    # As floats, these would be two other numbers.
    assert chunk.columns["age"] == [2**53 + 1, None]
    [chunk] = read(pd.DataFrame({"age": pd.array([1, None], "Int64"), "job": ["", ""]}))
    assert chunk.columns["age"][0] == 1
    assert chunk.columns["age"][1] is pd.NA


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame])
def test_frames_with_odd_names(kind: Any) -> None:
    if kind is pd.DataFrame:
        twice = pd.DataFrame([[1, "a", 2]], columns=["age", "job", "age"])
        with pytest.raises(InvalidParameterError, match="'age' more than once"):
            read(twice, extra_columns="ignore")
        numbered = pd.DataFrame([[1, "a", CANARY]], columns=["age", "job", 0])
        with pytest.raises(InvalidParameterError, match="a int for a name"):
            read(numbered)
    many = kind({f"{'very' * 40}{i}": [1] for i in range(9)} | {"age": [1], "job": [1]})
    with pytest.raises(InvalidParameterError, match="and 4 more, unknown") as caught:
        read(many)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("empty", [[], (), iter([]), pd.DataFrame(), [pd.DataFrame()]])
def test_a_table_without_rows(empty: Any) -> None:
    if hasattr(empty, "columns") or (isinstance(empty, list) and empty):
        # It has no columns either.
        with pytest.raises(InvalidParameterError, match="columns 'age', 'job'"):
            read(empty)
    else:
        assert read(empty) == []
    assert read(pd.DataFrame(ROWS)[:0]) == []
    assert read(pl.DataFrame(ROWS)[:0]) == []


@pytest.mark.parametrize(
    "foreign",
    [CANARY, CANARY.encode(), {"age": [1], "job": ["x"]}, 3, None, object()],
)
def test_what_is_no_table_is_refused_before_anything_is_read(foreign: Any) -> None:
    with pytest.raises(InvalidParameterError, match="iterable of mappings") as caught:
        read_chunks(foreign, ["age", "job"])
    assert CANARY not in str(caught.value)


@pytest.mark.parametrize(
    "foreign",
    [[[1, 2]], np.ones((2, 2)), pd.Series([1, 2]), {CANARY}, [pd.Series([1])]],
)
def test_iterables_of_something_else_are_refused(foreign: Any) -> None:
    with pytest.raises(InvalidParameterError, match="What can be read is") as caught:
        read(foreign)
    assert CANARY not in str(caught.value)


def test_frames_and_mappings_are_not_mixed() -> None:
    with pytest.raises(InvalidParameterError, match="After a frame there is a dict"):
        read([pd.DataFrame(ROWS), ROWS[0]])


@pytest.mark.parametrize(
    ("names", "options", "match"),
    [
        ([], {}, "names must be"),
        (["age", "age"], {}, "each of them once"),
        (["age", ""], {}, "not blank"),
        (["age", 3], {}, "not blank"),
        (["age"], {"unit_key": " "}, "not blank"),
        (["age"], {"unit_key": 3}, "not blank"),
        (["age"], {"extra_columns": "drop"}, "extra_columns must be"),
        (["age"], {"chunk_size": 0}, "chunk_size must be at least 1"),
        (["age"], {"chunk_size": 2.5}, "chunk_size must be an integer"),
    ],
)
def test_wrong_arguments(names: Any, options: Any, match: str) -> None:
    with pytest.raises(InvalidParameterError, match=match):
        read_chunks(ROWS, names, **options)


class Row(dict[str, Any]):
    """A row that can be watched."""


def watched(count: int, seen: list[weakref.ref[Any]], kind: Any) -> Iterator[Any]:
    for i in range(count):
        row = kind([(i, "x")], columns=["age", "job"]) if kind is pd.DataFrame else None
        item = Row(age=i, job="x") if row is None else row
        seen.append(weakref.ref(item))
        del row
        yield item
        del item


@pytest.mark.parametrize("kind", [dict, pd.DataFrame])
def test_a_chunk_that_was_read_is_forgotten(kind: Any) -> None:
    seen: list[weakref.ref[Any]] = []
    most = 0
    for chunk in read_chunks(watched(40, seen, kind), ["age", "job"], chunk_size=4):
        most = max(most, sum(ref() is not None for ref in seen))
        del chunk
    assert len(seen) == 40
    assert most <= 4


def test_an_error_of_the_callers_own_iterable_passes_through() -> None:
    def broken() -> Iterator[dict[str, Any]]:
        yield ROWS[0]
        raise OSError("the tape is torn")

    with pytest.raises(OSError, match="the tape is torn"):
        read(broken())


def test_a_lazy_frame_that_fails_quotes_no_cell() -> None:
    frame = pl.DataFrame({"age": [CANARY], "job": ["x"]}).lazy()
    with pytest.raises(InvalidParameterError, match="LazyFrame could not") as caught:
        read(frame.with_columns(pl.col("age").cast(pl.Int64)))
    assert CANARY not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_lazy_frame_of_an_older_polars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pl.LazyFrame, "collect_batches")
    with pytest.raises(InvalidParameterError, match=r"frame\.collect\(\)"):
        read(pl.DataFrame(ROWS).lazy())


def test_a_default_is_not_made_up_for_a_missing_column() -> None:
    class Generous(dict[str, Any]):
        def __missing__(self, key: str) -> str:
            return "made up"

    with pytest.raises(InvalidParameterError, match="no column 'job'"):
        read([Generous(age=1)])
    assert cells(read([ChainMap({"age": 1}, {"job": "x"})]), "job") == ["x"]
