"""One format for three kinds of files: whatever is not of it is refused in words."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.ldp_parts import SCHEMA
from support.released_parts import released

from langchain_dpicl.common import file_format
from langchain_dpicl.common.file_format import Kind
from langchain_dpicl.released import ReleasedExamples
from langchain_dpicl.tabular import TableSchema

Saved = tuple[Kind, Any, Path]

MADE: dict[str, tuple[Kind, Any]] = {
    "examples": (file_format.EXAMPLES, released()),
    "schema": (file_format.SCHEMA, SCHEMA),
}
LOADERS = (ReleasedExamples, TableSchema)


@pytest.fixture(params=MADE)
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> Saved:
    """A kind, what reads it, and a file of it."""
    kind, made = MADE[request.param]
    made.save(tmp_path / "file.json")
    return kind, type(made).load, tmp_path / "file.json"


def test_a_file_says_what_it_is(saved: Saved) -> None:
    kind, load, path = saved
    content = json.loads(path.read_text(encoding="utf-8"))
    header = dict(list(content.items())[:3])
    assert header == {"format": "langchain-dpicl", "version": 1, "kind": kind.name}
    assert content.keys() - header.keys() - {"sha256"} == kind.fields.keys()
    assert ("sha256" in content) == kind.signed
    assert f"{load.__self__.__name__}.load" == kind.reader


def test_a_file_of_another_kind_says_who_reads_it(saved: Saved) -> None:
    kind, load, path = saved
    for other in LOADERS:
        if other is load.__self__:
            continue
        said = f"of kind '{kind.name}'. {load.__self__.__name__}.load reads it"
        with pytest.raises(Exception, match=said) as caught:
            other.load(path)
        assert "again" not in str(caught.value)


DEEP = b"[" * 200_000
MALFORMED: dict[str, bytes] = {
    "empty": b"",
    "blank": b" \n",
    "binary": bytes(range(256)) * 10,
    "gzip": b"\x1f\x8b\x08\x00",
    "an archive": b"PK\x03\x04",
    "an array": b"\x93NUMPY\x01\x00",
    "pickle": b"\x80\x04\x95\x00.",
    "utf-16": '{"format": "x"}'.encode("utf-16"),
    "latin-1": '{"format": "ä"}'.encode("latin-1"),
    "null": b"null",
    "a list": b"[]",
    "a string": b'"langchain-dpicl"',
    "no format": b"{}",
    "no version": b'{"format": "langchain-dpicl"}',
    "no kind": b'{"format": "langchain-dpicl", "version": 1}',
    "an odd kind": b'{"format": "langchain-dpicl", "version": 1, "kind": [{}]}',
    "true as a version": b'{"format": "langchain-dpicl", "version": true}',
    "deep lists": DEEP,
    "deep dicts": b'{"a":' * 200_000,
    "deep and closed": DEEP + b"]" * 200_000,
    "not a number": b'{"format": NaN}',
    "infinity": b'{"format": -Infinity}',
    "too large a float": b'{"format": 1e999}',
    "too long an integer": b'{"format": ' + b"9" * 1_000_000 + b"}",
    "twice": b'{"format": "x", "format": "langchain-dpicl"}',
    "a trailing comma": b'{"format": "x",}',
    "two values": b"{} {}",
    "a comment": b"// {}\n{}",
}


@pytest.mark.parametrize("malformed", MALFORMED)
def test_a_malformed_file_is_refused_in_words(saved: Saved, malformed: str) -> None:
    kind, load, path = saved
    path.write_bytes(MALFORMED[malformed])
    with pytest.raises(kind.error, match=r"file\.json") as error:
        load(path)
    assert error.value.__cause__ is error.value.__context__ is None
    assert len(str(error.value)) < 400


def test_every_field_is_there_once_and_of_its_form(saved: Saved) -> None:
    kind, load, path = saved
    content = json.loads(path.read_text(encoding="utf-8"))
    for name in kind.fields.keys() - kind.optional:
        less = {key: value for key, value in content.items() if key != name}
        for other in (less, {**content, name: 7}, {**content, name: None}):
            path.write_text(json.dumps(other), encoding="utf-8")
            with pytest.raises(kind.error, match=name):
                load(path)
        text = json.dumps(content)
        path.write_text(text.replace(f'"{name}": ', f'"{name}": 1, "{name}": ', 1))
        with pytest.raises(kind.error, match="twice"):
            load(path)
    path.write_text(json.dumps({**content, "guarantee": "none needed"}))
    with pytest.raises(kind.error, match="'guarantee'"):
        load(path)


@pytest.mark.parametrize("saved", ["examples"], indirect=True)
def test_what_was_changed_is_refused_whatever_it_is(saved: Saved) -> None:
    kind, load, path = saved
    content = json.loads(path.read_text(encoding="utf-8"))
    content["record"]["library"] += ".1"
    for sha256 in (content["sha256"], None, 7, "0" * 64, ""):
        path.write_text(json.dumps({**content, "sha256": sha256}), encoding="utf-8")
        with pytest.raises(kind.error, match="changed after it was saved"):
            load(path)
    del content["sha256"]
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(kind.error, match="sha256"):
        load(path)


def test_no_prefix_of_a_file_is_read(saved: Saved) -> None:
    kind, load, path = saved
    data = path.read_bytes().rstrip()
    for length in range(0, len(data), 31):
        path.write_bytes(data[:length])
        with pytest.raises(kind.error):
            load(path)


@pytest.mark.parametrize("name", ["schema", "a kind of its own"])
def test_a_later_version_asks_for_an_upgrade(saved: Saved, name: str) -> None:
    kind, load, path = saved
    later = {"format": "langchain-dpicl", "version": 2, "kind": name}
    path.write_text(json.dumps(later))
    with pytest.raises(kind.error, match=r"version 2.*Upgrade") as caught:
        load(path)
    assert "again" not in str(caught.value)


def test_what_is_not_a_file_is_refused(saved: Saved) -> None:
    kind, load, path = saved
    folder = path.parent
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to(folder / "loop")
    for name in ("", "pipe", "missing", "loop", "missing/x", "a\0b", "x" * 999):
        with pytest.raises(kind.error, match="can't be read"):
            load(f"{folder}/{name}")
    for wrong in (7, None):
        with pytest.raises(kind.error, match="can't be read"):
            load(wrong)


def test_a_huge_file_is_neither_written_nor_read(saved: Saved) -> None:
    kind, _, path = saved
    content = file_format.read(path, kind)
    size = path.stat().st_size
    file_format.write(path, content, replace(kind, most=size), overwrite=True)
    small = replace(kind, most=size - 1)
    with pytest.raises(kind.error, match=f"at most {size - 1}"):
        file_format.write(path.with_name("new"), content, small, overwrite=True)
    assert list(path.parent.iterdir()) == [path]
    with pytest.raises(kind.error, match="larger"):
        file_format.read(path, small)
