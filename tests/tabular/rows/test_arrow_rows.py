"""`ArrowRows`: what other readers read of the same cells, and what it refuses."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.table_parts import CANARY, account, measured, people, people_schema

from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.tabular import (
    ArrowRows,
    GDPTable,
    InferredTypeWarning,
    LDPClient,
    LDPTable,
)
from langchain_dpicl.tabular.rows import read_chunks
from langchain_dpicl.tabular.rows.units import UnitDraw
from langchain_dpicl.tabular.schema import cells
from langchain_dpicl.tabular.schema.spelling import UnreadableError, index_of

INDEX = index_of(["1", "0.1", "x", "True", "2.50"])
TYPES = [
    (pa.string(), st.sampled_from(["x", " x ", "1.0", "", "zz", "01"])),
    (pa.large_string(), st.sampled_from(["x", "1"])),
    (pa.string_view(), st.sampled_from(["x", "1"])),
    (pa.int8(), st.integers(-2, 2)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.float64(), st.floats()),
    (pa.bool_(), st.booleans()),
    (pa.decimal128(5, 2), st.sampled_from([Decimal("2.50"), Decimal("1.00")])),
    (pa.null(), st.none()),
]
Make = Callable[[Path], Any]


def outcome(step: Callable[..., Any], *given: Any) -> Any:
    try:
        return step(*given).tolist()
    except (UnreadableError, UnitError) as error:
        return type(error)


@given(st.data())
def test_cells_mean_what_the_same_cells_mean_in_a_list(data: st.DataObject) -> None:
    kind, values = data.draw(st.sampled_from(TYPES))
    rows = data.draw(st.lists(st.none() | values, max_size=8))
    plain = pa.array(rows, kind)
    forms = [plain, pa.chunked_array([plain[:2], plain[2:]])]
    forms.append(pa.concat_arrays([plain, plain]).slice(len(rows)))
    if kind not in (pa.string_view(), pa.null()):
        forms.append(plain.dictionary_encode())
    for found in forms:
        assert outcome(cells.codes, found, INDEX) == outcome(cells.codes, rows, INDEX)
        np.testing.assert_equal(
            outcome(cells.numbers, found), outcome(cells.numbers, rows)
        )
        draw = UnitDraw(b"k" * 32, "person", 0.5)
        assert outcome(draw.digests, found, 0) == outcome(draw.digests, rows, 0)


def test_short_floats_are_spelled_as_they_were_written() -> None:
    assert cells.codes(pa.array([0.1, None], pa.float32()), INDEX).tolist() == [1, -1]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([0], pa.timestamp("ns")),
        pa.array([0], pa.duration("s")),
        pa.array([b"x"]),
        pa.array([[1]]),
        pa.array([{"a": 1}]),
    ],
    ids=lambda array: str(array.type),
)
def test_cells_of_other_types_are_no_categories_and_no_numbers(array: Any) -> None:
    assert cells.codes(array, INDEX).tolist() == [cells.UNREADABLE]
    with pytest.raises(UnreadableError):
        cells.numbers(array)
    with pytest.raises(UnitError, match="Row 5 "):
        UnitDraw(b"k" * 32, "person", 0.5).digests(array, 5)


def parquet(folder: Path) -> Path:
    """Two files, in row groups smaller and larger than a chunk."""
    pq.write_table(TABLE.slice(0, 70), folder / "a.parquet", row_group_size=9)
    pq.write_table(TABLE.slice(70), folder / "b.parquet", use_dictionary=False)
    return folder


def duck(folder: Path) -> Any:
    return duckdb.connect().sql(f"SELECT * FROM '{parquet(folder)}/*.parquet'")


def row_groups(whole: Any) -> Any:
    """A dataset whose fragments are parts of files."""
    parts = [
        part for file in whole.get_fragments() for part in file.split_by_row_group()
    ]
    return ds.FileSystemDataset(parts, whole.schema, whole.format)


def feather(folder: Path) -> Any:
    ds.write_dataset(TABLE, folder, format="feather")
    return ds.dataset(folder, format="feather")


TABLE = pa.Table.from_pylist(people(200))

SOURCES: dict[str, Make] = {
    "table": lambda _: TABLE,
    "batch": lambda _: TABLE.combine_chunks().to_batches()[0],
    "reader": lambda _: TABLE.to_reader(),
    "iterator": lambda _: iter(TABLE.to_batches(max_chunksize=7)),
    "folder": parquet,
    "path": lambda folder: str(parquet(folder) / "a.parquet"),
    "paths": lambda folder: sorted(parquet(folder).glob("*.parquet")),
    "dataset": lambda folder: ds.dataset(parquet(folder)),
    "row groups": lambda folder: row_groups(ds.dataset(parquet(folder))),
    "feather": feather,
    "union": lambda folder: ds.dataset(
        [ds.dataset(parquet(folder) / name) for name in ("a.parquet", "b.parquet")]
    ),
    "filtered reader": lambda folder: (
        ds.dataset(parquet(folder)).filter(pc.field("age") >= 0).scanner().to_reader()
    ),
    "duckdb": duck,
}


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_every_source_gives_the_tallies_of_the_rows_themselves(
    make: Make, tmp_path: Path
) -> None:
    rows = people(70 if make is SOURCES["path"] else 200)
    own, _ = measured(rows, people_schema(), account())
    data = ArrowRows(make(tmp_path))
    found, table = measured(data, people_schema(), account())
    for one, other in zip(own.tallies, found.tallies, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(table.sample(2)) == 2


@pytest.mark.parametrize("name", ["table", "folder", "dataset", "duckdb"])
def test_what_can_be_read_twice_is_checked_before_the_charge(
    name: str, tmp_path: Path
) -> None:
    data = ArrowRows(SOURCES[name](tmp_path))
    assert not data.come_once
    table = LDPTable(data, people_schema(), budget=account())
    assert table.release().n_reports == 200


def test_a_reader_comes_once() -> None:
    data = ArrowRows(TABLE.to_reader())
    assert data.come_once
    assert LDPTable(data, people_schema(), budget=account()).release().n_reports == 200
    with pytest.raises(InvalidParameterError, match="comes once"):
        next(read_chunks(data, people_schema().names))


def test_chunks_have_at_most_their_size(tmp_path: Path) -> None:
    for source in (TABLE, parquet(tmp_path)):
        chunks = list(read_chunks(ArrowRows(source), TABLE.column_names, chunk_size=30))
        assert max(chunk.size for chunk in chunks) <= 30
        assert sum(chunk.size for chunk in chunks) == 200


def test_ids_are_the_same_as_of_mappings() -> None:
    rows = [
        {**row, "person": f"p-{number // 3}"} for number, row in enumerate(people(60))
    ]
    of_arrow, _ = measured(
        ArrowRows(pa.Table.from_pylist(rows)),
        people_schema(),
        account(),
        unit_key="person",
        rows_per_unit=3,
    )
    own, _ = measured(
        rows, people_schema(), account(), unit_key="person", rows_per_unit=3
    )
    for one, other in zip(own.tallies, of_arrow.tallies, strict=True):
        np.testing.assert_array_equal(one, other)


def test_reports_out_of_arrow_are_counted() -> None:
    client = LDPClient(people_schema(), epsilon=4.0)
    reports = list(client.reports(people(80)))
    data = ArrowRows(pa.Table.from_pylist(reports))
    table = LDPTable.from_reports(data, people_schema(), epsilon=4.0)
    own = LDPTable.from_reports(reports, people_schema(), epsilon=4.0)
    assert table.standard_errors() == own.standard_errors()


def failing(_folder: Path) -> Any:
    def batches() -> Iterator[Any]:
        yield TABLE.to_batches()[0]
        raise ValueError(CANARY)

    return pa.RecordBatchReader.from_batches(TABLE.schema, batches())


def filtered(folder: Path) -> Any:
    return ds.dataset(folder).filter(pc.field("age") >= 0)


def mixed(_folder: Path) -> Any:
    """The second batch has another type."""
    text = TABLE.set_column(0, "age", TABLE["age"].cast("string"))
    return iter([TABLE.to_batches()[0], text.to_batches()[0]])


def csv_dataset(folder: Path) -> Any:
    (folder / "a.csv").write_text("age\n01\n")
    return ds.dataset(folder / "a.csv", format="csv")


def unlike(folder: Path) -> Any:
    """Arrow would read the second file's text as numbers."""
    pq.write_table(TABLE, folder / "a.parquet")
    text = TABLE.set_column(0, "age", TABLE["age"].cast("string"))
    pq.write_table(text, folder / "b.parquet")
    return ds.dataset(folder)


def lacking(folder: Path) -> Any:
    """Arrow would fill the second file's column with nothing."""
    pq.write_table(TABLE, folder / "a.parquet")
    pq.write_table(TABLE.drop_columns("pay"), folder / "b.parquet")
    return str(folder)


def test_twin_arrow_itself_reads_one_file_by_the_types_of_another(
    tmp_path: Path,
) -> None:
    (tmp_path / "unlike").mkdir()
    (tmp_path / "lacking").mkdir()
    cast = unlike(tmp_path / "unlike").to_table()["age"]
    filled = ds.dataset(lacking(tmp_path / "lacking")).to_table()["pay"]
    assert (str(cast.type), filled.null_count) == ("int64", 200)


def test_without_pyarrow_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InvalidParameterError, match=r"pip install pyarrow"):
        ArrowRows("visits")


def no_parquet(folder: Path) -> Any:
    (folder / "a.parquet").write_text(CANARY)
    return folder


def changed(**columns: Any) -> Make:
    def make(_folder: Path) -> Any:
        return pa.table({**TABLE.to_pydict(), **columns})

    return make


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (failing, "can't be read"),
        (no_parquet, "can't be read"),
        (lambda folder: folder / "nothing", "can't be read"),
        (lambda folder: filtered(parquet(folder)), "to_reader"),
        (csv_dataset, "CSVRows"),
        (lambda folder: ds.dataset([csv_dataset(folder)]), "CSVRows"),
        (mixed, "can't be read"),
        (lambda _: iter([CANARY]), "can't be read"),
        (unlike, "same types"),
        (lacking, "same types"),
        (changed(more=[CANARY] * 200), "more"),
        (lambda _: TABLE.drop_columns("pay"), "no column 'pay'"),
        (lambda _: TABLE.append_column("age", TABLE["age"]), "more than once"),
        (changed(job=[CANARY] * 200), "none of the declared values"),
        (changed(age=[CANARY] * 200), "not a number"),
        (changed(age=pa.nulls(200)), "missing"),
        (changed(job=[[CANARY]] * 200), "neither text"),
        (lambda _: 5, "not int"),
        (lambda _: None, "not NoneType"),
    ],
)
def test_what_is_refused_is_named_and_shows_no_cell(
    make: Make, message: str, tmp_path: Path
) -> None:
    budget = account()
    with pytest.raises(InvalidParameterError, match=message) as caught:
        GDPTable(ArrowRows(make(tmp_path)), people_schema(), budget=budget).release()
    shown = "".join(
        traceback.TracebackException.from_exception(
            caught.value, capture_locals=True
        ).format()
    )
    ours = shown[shown.find("langchain_dpicl") :]
    assert CANARY not in ours
    assert budget.spent().queries == 0


def test_a_missing_id_is_refused_by_its_place() -> None:
    rows = [
        {**row, "person": None if number == 4 else "p"}
        for number, row in enumerate(people(6))
    ]
    table = GDPTable(
        ArrowRows(pa.Table.from_pylist(rows)), people_schema(), budget=account(),
        unit_key="person",
    )  # fmt: skip
    with pytest.raises(UnitError, match=r"Row 4 .*NoneType"):
        table.release()


@pytest.mark.parametrize("values", [[0.0, 1.0], None])
def test_types_that_only_inference_gives_are_warned_of(values: Any) -> None:
    data = ArrowRows(pa.table({"ill": values or [0, 1]}))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        list(read_chunks(data, ["ill"], categories={"ill": ("0", "1")}))
    kinds = [warning.category for warning in caught]
    assert kinds == ([InferredTypeWarning] if values else [])


def test_a_repr_shows_the_kind_alone() -> None:
    assert repr(ArrowRows(pa.table({"job": [CANARY]}))) == "ArrowRows(Table)"
