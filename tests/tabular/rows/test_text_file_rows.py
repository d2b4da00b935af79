"""CSV files and JSON lines as rows: what is read, how often, and what is refused."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.table_parts import account, people, people_schema

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.few_shot.records import PrivateRecords, RecordFields
from langchain_dpicl.tabular import (
    CSVRows,
    GDPTable,
    JSONRows,
    LDPTable,
    NumericColumn,
)
from langchain_dpicl.tabular.rows import read_chunks
from langchain_dpicl.tabular.schema.cells import TextCells

SAMPLE = 'who,job,note\n01000,clerk,"a, ""b""\nc"\n1000,nurse,\n'
READ = [
    {"who": "01000", "job": "clerk", "note": 'a, "b"\nc'},
    {"who": "1000", "job": "nurse", "note": None},
]


class Stream(io.RawIOBase):
    """Bytes that come once, as from a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._data.readinto(buffer)


class OnlyRead:
    """The least that a binary file has."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def read(self, size: int = -1) -> bytes:
        return self._data.read(size)


def cells(data: Any, names: list[str], **options: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {name: [] for name in names}
    for chunk in read_chunks(data, names, **options):
        for name in names:
            found[name] += chunk.columns[name]
    return found


# How a file comes.


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "gb18030"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_compressed_encoded_marked(
    tmp_path: Path, compress: Callable[[bytes], bytes], encoding: str, ending: str
) -> None:
    text = SAMPLE.replace("\n", ending).replace("nurse", "Köchin")
    data = compress(text.encode(encoding))
    path = tmp_path / "people.csv"
    path.write_bytes(data)
    expected = [{**READ[0], "note": f'a, "b"{ending}c'}, {**READ[1], "job": "Köchin"}]
    name = "utf-8" if encoding == "utf-8-sig" else encoding
    for source in (path, str(path), io.BytesIO(data), Stream(data), OnlyRead(data)):
        assert list(CSVRows(source, encoding=name)) == expected  # type: ignore[arg-type]
    with path.open("rb") as file:
        assert list(CSVRows(file, encoding=name)) == expected
        assert not file.closed


def test_text_files_have_their_own_encoding(tmp_path: Path) -> None:
    assert list(CSVRows(io.StringIO("\ufeff" + SAMPLE))) == READ
    path = tmp_path / "people.csv"
    path.write_text(SAMPLE, encoding="cp500")
    with path.open(encoding="cp500", newline="") as file:
        assert list(CSVRows(file)) == READ
        assert not file.closed


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_a_byte_order_mark_before_a_row_is_no_text_wherever_the_row_stands(
    kind: str, encoding: str
) -> None:
    line = {"csv": "\ufeff01000,37\n", "json": '\ufeff{"who": "01000", "age": 37}\n'}
    data = (line[kind] * 3 + "\ufeff\n").encode(encoding)
    files = io.BytesIO(data), io.TextIOWrapper(io.BytesIO(data), encoding=encoding)
    for file in files:
        rows: list[Any] = (
            list(CSVRows(file, header=["who", "age"]))
            if kind == "csv"
            else list(JSONRows(file))
        )
        assert rows == [{"who": "01000", "age": rows[0]["age"]}] * 3


@pytest.mark.parametrize("kind", [CSVRows, JSONRows])
@pytest.mark.parametrize(
    "encoding", ["utf-16", "UTF-16LE", "utf-32", "U32", "utf-7", "iso2022_jp", "hz"]
)
def test_encodings_that_do_not_keep_lines_apart_are_refused(
    kind: Any, encoding: str
) -> None:
    for file, named in (
        (io.BytesIO(), encoding),
        (io.TextIOWrapper(io.BytesIO(), encoding=encoding), "utf-8"),
    ):
        with pytest.raises(InvalidParameterError, match="pass encoding='utf-8'"):
            kind(file, encoding=named)


def test_a_file_in_utf_16_that_is_read_as_utf_8_is_told_what_to_do() -> None:
    for encoding in ("utf-16", "utf-16-be"):
        with pytest.raises(InvalidParameterError, match="save it in UTF-8"):
            list(CSVRows(io.BytesIO(SAMPLE.encode(encoding))))


@pytest.mark.parametrize("kind", ["path", "bytes", "text", "gzip"])
def test_what_can_be_read_twice_is(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "people.csv"
    path.write_text(SAMPLE)
    source: Any = {
        "path": path,
        "bytes": io.BytesIO(b"a line before\n" + SAMPLE.encode()),
        "text": io.StringIO("a line before\n" + SAMPLE),
        "gzip": io.BytesIO(gzip.compress(SAMPLE.encode())),
    }[kind]
    if kind in ("bytes", "text"):
        source.readline()
    rows = CSVRows(source)
    assert not rows.come_once
    first = iter(rows)
    next(first)
    # Each pass begins where the file stood, also beside one that was not ended.
    assert [list(rows), list(rows)] == [READ, READ]


@pytest.mark.parametrize("kind", [CSVRows, JSONRows])
def test_what_comes_once_is_refused_the_second_time(kind: Any) -> None:
    stepped = io.StringIO(SAMPLE)
    for source in (Stream(b""), OnlyRead(b""), io.BufferedReader(Stream(b""))):
        rows = kind(source)
        assert rows.come_once
        assert list(rows) == []
        with pytest.raises(InvalidParameterError, match="comes only once"):
            list(rows)
    assert not kind(stepped).come_once


def schema_rows() -> tuple[str, str]:
    """A table of people as CSV and as JSON lines."""
    rows = people(60)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue(), "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize("kind", [CSVRows, JSONRows])
def test_a_table_of_reports_reads_twice_where_it_can(kind: Any) -> None:
    data = schema_rows()[kind is JSONRows].encode()
    for bad in (b"", b"{\n", b'"\n'):
        budget = account(epsilon=8.0)
        table = LDPTable(kind(io.BytesIO(data + bad)), people_schema(), budget=budget)
        if bad:
            with pytest.raises(InvalidParameterError, match="Row 60"):
                table.release()
        assert budget.spent().queries == 0
        if not bad:
            assert table.release().n_reports == 60
    # Rows that come once are checked after the charge, as those of an iterator.
    budget = account(epsilon=8.0)
    table = LDPTable(kind(Stream(data + b'"\n')), people_schema(), budget=budget)
    with pytest.raises(InvalidParameterError, match=r"Charge 1 .* can't be checked"):
        table.release()
    once = LDPTable(kind(Stream(data)), people_schema(), budget=account(epsilon=8.0))
    assert once.release().n_reports == 60


@pytest.mark.parametrize("kind", [CSVRows, JSONRows])
def test_noisy_statistics_of_a_file_are_those_of_its_rows(kind: Any) -> None:
    text = schema_rows()[kind is JSONRows]
    terms = {"group_by": [], "epsilon": 4.0}
    found = [
        GDPTable(data, people_schema(), budget=account(epsilon=4.0), **terms)  # type: ignore[arg-type]
        .release()
        .statistics.mean(0, "age")
        .value
        for data in (kind(io.StringIO(text)), people(60))
    ]
    assert found[0] == pytest.approx(found[1], abs=8)
    assert cells(kind(io.StringIO(text)), ["age", "pay", "job", "ill"])["job"] == [
        row["job"] for row in people(60)
    ]


def test_records_of_a_generation() -> None:
    text = "text,label,who\nI cough,ill,01000\nI run,well,1000\nI sleep,well,01000\n"
    rows = CSVRows(io.StringIO(text))
    objects = "".join(json.dumps(row) + "\n" for row in rows)

    def taken(records: Any) -> PrivateRecords:
        fields = RecordFields("text", "label", "who")
        return PrivateRecords.read(records, ["ill", "well"], fields)

    def units(records: Any) -> set[str]:
        by_label = taken(records).by_label.values()
        return {one.metadata["unit"] for found in by_label for one in found}

    for records in (rows, JSONRows(io.StringIO(objects))):
        assert taken(records).sizes == {"ill": 1, "well": 1}
        assert len(units(records)) == 2
    # With types inferred, two people are one, until somebody else has another id.
    assert len(units(pd.read_csv(io.StringIO(text)))) == 1
    assert len(units(pd.read_csv(io.StringIO(text + "I eat,well,p-1\n")))) == 3


# How a file is written.


class Semicolons(csv.Dialect):
    delimiter = ";"
    quotechar = "'"
    doublequote = False
    escapechar = "\\"
    skipinitialspace = True
    lineterminator = "\r\n"
    # `csv` itself would make numbers of what is not quoted.
    quoting = csv.QUOTE_NONNUMERIC


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("who,n\n01,1\n", {}),
        ("who\tn\n01\t1\n", {"dialect": "excel-tab"}),
        ("who;n\n01; '1'\n", {"dialect": Semicolons}),
        ("who;n\n01;1\n", {"dialect": Semicolons()}),
        ("who|n\n%01%|1\n", {"delimiter": "|", "quotechar": "%"}),
        ("01,1\n", {"header": ["who", "n"]}),
        ("\n\nwho,n\n\n01,1\n\n", {}),
        ("who,n\n01,1", {}),
        ('"who","n"\r\n"01","1"\r\n', {"dialect": csv.unix_dialect}),
    ],
)
@pytest.mark.parametrize("multiline", [True, False])
def test_dialects(text: str, options: dict[str, Any], multiline: bool) -> None:
    rows = CSVRows(io.StringIO(text), multiline=multiline, **options)
    assert list(rows) == [{"who": "01", "n": "1"}]


def test_cells_that_count_as_missing() -> None:
    text = "who,n\nNA,-\n 7 , - \nNAN,\n"
    rows = CSVRows(io.StringIO(text), missing=["NA", "-"])
    found = cells(rows, ["who", "n"])
    assert found == {"who": [None, " 7 ", "NAN"], "n": [None, None, ""]}
    assert [row["n"] for row in rows] == [None, None, None]
    column = NumericColumn(name="n", lower=0, upper=9, missing=3)
    [chunk] = read_chunks(rows, ["n", "who"])
    assert column.grid(chunk.columns["n"]).tolist() == column.grid([3] * 3).tolist()


NUMBERS = {
    "37": 37, "-2.50": -2.5, "+.5": 0.5, "5.": 5, "1e1": 10, " 007 ": 7, "1E-2": 0.01,
    "inf": 99, "-Infinity": -99, "": 42, " ": 42, "1e999": 99,
}  # fmt: skip


@pytest.mark.parametrize(
    "bad", ["1,5", "1_0", "٣", "0x1", "nan", "1e", ".", "-", "1 0", "True", "e1"]
)
def test_the_grammar_of_numbers(bad: str) -> None:
    column = NumericColumn(name="n", lower=-99, upper=99, missing=42)
    texts = list(NUMBERS)
    expected = column.grid(list(NUMBERS.values())).tolist()
    assert column.grid(TextCells(texts)).tolist() == expected
    assert column.grid(TextCells([*texts, None])).tolist()[:-1] == expected
    for company in ([], ["1"], texts):
        with pytest.raises(InvalidParameterError, match="not a number"):
            column.grid(TextCells([*company, bad]))
        # Text of other sources stays text.
        with pytest.raises(InvalidParameterError, match="not a number"):
            column.grid([*company, "1"])


@given(st.lists(st.text("0123456789.eE+-_ infaty٣", max_size=6) | st.none()))
def test_a_number_is_read_the_same_in_any_company(texts: list[str | None]) -> None:
    column = NumericColumn(name="n", lower=-99, upper=99, missing=42)

    def read(cells: list[str | None]) -> list[int] | None:
        try:
            return column.grid(TextCells(cells)).tolist()
        except InvalidParameterError:
            return None

    alone = [read([text]) for text in texts]
    expected = None if None in alone else [found[0] for found in alone if found]
    assert read(texts) == expected


def test_values_of_json_have_the_types_of_their_own_line() -> None:
    text = '{"n": 1.0}\n{"n": "1"}\n{"n": true}\n{"n": null}\n{"n": "01"}\n'
    assert cells(JSONRows(io.StringIO(text)), ["n"]) == {
        "n": [1.0, "1", True, None, "01"]
    }


@pytest.mark.parametrize("kind", [CSVRows, JSONRows])
def test_ids_are_text(kind: Any) -> None:
    ids = ["01000", "1000", " 1000 ", "1e3", "1000.0"]
    text = "who,n\n" + "".join(f"{unit},1\n" for unit in ids)
    if kind is JSONRows:
        text = "".join(json.dumps({"who": unit, "n": 1}) + "\n" for unit in ids)
    [chunk] = read_chunks(kind(io.StringIO(text)), ["n"], unit_key="who")
    assert chunk.units == ids
