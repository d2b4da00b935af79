"""CSV files and JSON lines: what can't be read fails alone, or by a public rule."""

from __future__ import annotations

import csv
import gzip
import io
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from support.table_parts import account, people_schema

from langchain_dpicl.errors import InvalidParameterError, UnitError
from langchain_dpicl.tabular import (
    CSVRows,
    GDPTable,
    JSONRows,
)
from langchain_dpicl.tabular.rows import lines, read_chunks

CANARY = "Wilhelmina"
SAMPLE = 'who,job,note\n01000,clerk,"a, ""b""\nc"\n1000,nurse,\n'


def refused(rows: Any, match: str) -> InvalidParameterError:
    """Read rows to the refusal; neither it nor its frames show any."""
    with pytest.raises(InvalidParameterError, match=match) as caught:
        list(rows)
    found = caught.value
    assert CANARY not in str(found)
    assert found.__cause__ is None
    assert found.__context__ is None
    step = found.__traceback__
    assert step is not None
    while step := step.tb_next:
        assert CANARY not in repr(step.tb_frame.f_locals)
    return found


# Rows that can't be read.

BAD = {
    f"{CANARY},1,2": "more cells than columns",
    CANARY: "fewer cells than columns",
    f'"{CANARY},1': "quotes do not match",
    f'"{CANARY}"x,1': "quotes do not match",
    f"{CANARY}\0,1": "character of code 0",
    f"{CANARY}\udcff,1": "no text in this encoding",
    f"{CANARY}\rx,1": "carriage return",
    f"{CANARY * 20_000},1": r"csv\.field_size_limit",
}
JSON_BAD = {
    f'{{"who": "{CANARY}"': "no JSON object",
    f'["{CANARY}"]': "no JSON object",
    f'{{"who": "{CANARY}", "who": 1, "n": 1}}': "no JSON object",
    f'{{"who": "{CANARY}", "n": NaN}}': "no JSON object",
    f'{{"who": "{CANARY}", "n": {"9" * 50}}}': "no JSON object",
    f'{{"who": "{CANARY}", "n": {"[" * 100_000}': "no JSON object",
    f'{{"who": "{CANARY}\udcff", "n": 1}}': "no text in this encoding",
    f'{{"who": "{CANARY}\0", "n": 1}}': "character of code 0",
}


def encoded(text: str) -> io.BytesIO:
    return io.BytesIO(text.encode("utf-8", "surrogateescape"))


@pytest.mark.parametrize(
    ("kind", "bad", "match"),
    [
        *((CSVRows, bad, match) for bad, match in BAD.items()),
        *((JSONRows, bad, match) for bad, match in JSON_BAD.items()),
    ],
)
def test_a_bad_row_refuses_the_file_or_is_dropped_alone(
    kind: Any, bad: str, match: str
) -> None:
    limit = csv.field_size_limit()
    good = ["a,1", "b,2"] if kind is CSVRows else ['{"who": "a"}', '{"who": "b"}']
    alone = {"multiline": False} if kind is CSVRows else {}
    head = {"header": ["who", "n"]} if kind is CSVRows else {}
    text = "\n".join([good[0], bad, good[1], bad, ""])
    found = refused(kind(encoded(text), **head), "Row 1 .counted from 0.")
    refused(kind(encoded(text), **head, **alone), f"Row 1 .*{match}")
    assert "invalid='drop'" in str(found)
    rows = kind(encoded(text), **head, **alone, invalid="drop")
    assert [row["who"] for row in rows] == ["a", "b"]
    assert rows.dropped == 2
    list(rows)
    assert rows.dropped == 2
    # A limit of the whole process belongs to the application.
    assert csv.field_size_limit() == limit


def test_a_quote_that_is_not_closed_swallows_nobody() -> None:
    rows = [f"p{n},clerk" for n in range(50)]
    rows[3] = 'p3,"clerk'
    text = "\n".join(["who,job", *rows, ""])
    refused(CSVRows(io.StringIO(text)), "Row 3 .*quotes do not match")
    alone = CSVRows(io.StringIO(text), multiline=False, invalid="drop")
    assert [row["who"] for row in alone] == [f"p{n}" for n in range(50) if n != 3]
    # Two of them, of a writer that does not quote: one line a row, or it can't be seen.
    rows[40] = 'p40,"'
    text = "\n".join(["who,job", *rows, ""])
    assert len(list(CSVRows(io.StringIO(text)))) == 13
    alone = CSVRows(io.StringIO(text), multiline=False, invalid="drop")
    assert len(list(alone)) == 48


def test_a_giant_line_is_dropped_alone_and_never_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE", 1000)
    giant = CANARY * 200_000
    for text, kind, options in (
        (
            f"a,1\n{giant},1\nb,2\n",
            CSVRows,
            {"header": ["who", "n"], "multiline": False},
        ),
        (f'{{"who": "a"}}\n{{"who": "{giant}"}}\n{{"who": "b"}}\n', JSONRows, {}),
    ):
        data = text.encode()
        rows: Any = kind(io.BytesIO(data), invalid="drop", **options)
        tracemalloc.start()
        assert [row["who"] for row in rows] == ["a", "b"]
        assert tracemalloc.get_traced_memory()[1] < len(data) / 4
        tracemalloc.stop()
        refused(kind(io.BytesIO(data), **options), "line of more than 1000 characters")


def test_memory_is_that_of_a_chunk() -> None:
    class Endless(io.RawIOBase):
        left = 150_000

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            line = b"p1,clerk,some text that nobody needs\n"
            count = min(len(buffer) // len(line), self.left)
            self.left -= count
            buffer[: count * len(line)] = line * count
            return count * len(line)

    rows = CSVRows(Endless(), header=["who", "job", "note"])
    tracemalloc.start()
    count = 0
    for chunk in read_chunks(rows, ["who", "job", "note"], chunk_size=1000):
        count += chunk.size
        del chunk
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 150_000
    assert peak < 2**20


# Files and arguments that can't be used.


def test_columns_are_checked_before_rows_and_named_only_if_they_are_names() -> None:
    def check(text: str, match: str, **options: Any) -> None:
        rows = CSVRows(io.StringIO(text), **options)
        refused(read_chunks(rows, ["age", "job"]), match)

    check("age,town\n1,x\n", "The CSV file has no column 'job'")
    check("age,job,town\n1,x,y\n", "column 'town', unknown")
    check("age,job,age\n1,x,2\n", "'age' more than once")
    # A file without a header: what would be names are cells.
    check(f"37,{CANARY}\n52,nurse\n", "has no columns 'age', 'job'")
    refused(CSVRows(io.StringIO(f"{CANARY},{CANARY}\n")), "header=")
    refused(CSVRows(io.StringIO(f'age,"{CANARY}')), "names the columns")
    assert list(CSVRows(io.StringIO(""))) == []
    with pytest.raises(UnitError):
        GDPTable(CSVRows(io.StringIO("")), people_schema(), budget=account()).release()


@pytest.mark.parametrize("kind", [CSVRows, JSONRows])
def test_files_that_can_not_be_read(tmp_path: Path, kind: Any) -> None:
    refused(kind(tmp_path / "nowhere.csv"), "no such file")
    refused(kind(tmp_path), "no such file")
    text = SAMPLE if kind is CSVRows else '{"who": "x"}\n' * 9
    torn = gzip.compress(text.encode() * 500)[:-40]
    refused(kind(io.BytesIO(torn)), r"can't be read to its end \(EOFError\)|Row 2 ")
    spoiled = bytearray(gzip.compress(text.encode()))
    spoiled[-6] ^= 255
    refused(kind(io.BytesIO(bytes(spoiled))), "can't be read to its end")
    bad = f"{CANARY}\n".encode() * 9 + b"\xff"
    with io.TextIOWrapper(io.BytesIO(bad), encoding="utf-8") as file:
        refused(kind(file), r"can't be read to its end \(UnicodeDecodeError\)")
    closed = io.StringIO(text)
    closed.close()
    refused(kind(closed), "can't be opened")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"path_or_file": 3}, "a path or an open file, not int"),
        ({"path_or_file": [CANARY]}, "a path or an open file, not list"),
        ({"encoding": "klingon"}, "name of a text encoding"),
        ({"encoding": "hex"}, "name of a text encoding"),
        ({"encoding": None}, "name of a text encoding"),
        ({"dialect": "klingon"}, "dialect is excel"),
        ({"dialect": 3}, "can't be used"),
        ({"delimiter": ";;"}, "can't be used"),
        ({"quotechar": ""}, "can't be used"),
        ({"header": ["a", "a"]}, "each once"),
        ({"header": "ab"}, "must be texts"),
        ({"header": []}, "must be texts"),
        ({"header": [1]}, "must be texts"),
        ({"missing": "NA"}, "list of texts"),
        ({"missing": [None]}, "list of texts"),
        ({"invalid": "ignore"}, "'refuse' or 'drop'"),
        ({"invalid": "drop"}, "needs multiline=False"),
    ],
)
def test_wrong_arguments(options: dict[str, Any], match: str) -> None:
    given = {"path_or_file": io.StringIO(SAMPLE), **options}
    with pytest.raises(InvalidParameterError, match=match) as caught:
        CSVRows(**given)
    assert CANARY not in str(caught.value)
    if options.keys() <= {"path_or_file", "encoding", "invalid"} and options != {
        "invalid": "drop"
    }:
        with pytest.raises(InvalidParameterError, match=match):
            JSONRows(**given)


def test_a_line_of_json_needs_every_column() -> None:
    rows = JSONRows(io.StringIO('{"who": "a", "n": 1}\n\n{"who": "b"}\n'))
    with pytest.raises(InvalidParameterError, match=r"Row 1 .* has no column 'n'"):
        list(read_chunks(rows, ["who", "n"]))


def test_the_repr_shows_no_row(tmp_path: Path) -> None:
    assert repr(CSVRows(tmp_path / "x.csv")) == f"CSVRows('{tmp_path / 'x.csv'}')"
    assert repr(JSONRows(io.StringIO(CANARY))) == "JSONRows(StringIO)"
    for path in ("people.csv", b"people.csv"):
        with pytest.raises(InvalidParameterError, match="CSVRows, JSONRows"):
            read_chunks(path, ["age"])
