"""No frame of a refusal holds a record, an id or a reading, and no error has one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from support.canaries import look, marker
from support.frames import locals_of, private_locals
from support.table_parts import account
from support.text_parts import Reader, complaints_schema

from langchain_dpicl.errors import DPError
from langchain_dpicl.tabular import GDPTable, TextRows
from langchain_dpicl.tabular.text import rows as rows_module

GOOD = [
    Document(marker("document", n), metadata={"who": marker("unit", n)})
    for n in range(9)
]
LOST = Document(marker("document", 99))


def made(documents: Any, **terms: Any) -> TextRows:
    given = {"model": Reader(), "unit_key": "who", **terms}
    return TextRows(documents, complaints_schema(), **given)


def folder(path: Path) -> TextRows:
    rows = made(GOOD, file=path / "private")
    (path / "private").mkdir()
    return rows


def reply(text: str) -> str:
    return f'{{"topic": "{marker("answer", 1)}"}}'


REFUSED: dict[str, Callable[[Path], Any]] = {
    "a document without an id": lambda _: made([*GOOD, LOST]),
    "text instead of documents": lambda _: made([*GOOD, marker("document", 7)]),
    "documents instead of a schema": lambda _: TextRows(
        complaints_schema(),  # type: ignore[arg-type]
        GOOD,  # type: ignore[arg-type]
        Reader(),
        unit_key="who",
    ),
    "documents instead of a prompt": lambda _: made(GOOD, prompt=GOOD),
    "no model": lambda _: made(GOOD, model=None),
    "a folder": lambda path: folder(path).read(),
    "a table of another schema": lambda _: GDPTable(
        made(GOOD, model=Reader(reply=reply)), complaints_schema(), budget=account()
    ).release(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_no_frame_holds_anything_private(name: str, tmp_path: Path) -> None:
    with pytest.raises(DPError) as caught:
        REFUSED[name](tmp_path)
    assert not look(str(caught.value)).private
    assert locals_of(caught.value, __name__)
    assert private_locals(caught.value, __name__) == []


def test_twin_plain_arguments_are_in_the_frames(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = TextRows.__init__.__wrapped__  # type: ignore[attr-defined]
    monkeypatch.setattr(TextRows, "__init__", plain)
    monkeypatch.setattr(rows_module, "Hidden", lambda value: value)
    with pytest.raises(DPError) as caught:
        made([*GOOD, LOST])
    assert private_locals(caught.value, __name__)
