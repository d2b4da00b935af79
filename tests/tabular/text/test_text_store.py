"""What was read is kept: after a cancellation, Ctrl-C, or in another process."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from support.text_parts import (
    AsyncReader,
    Reader,
    choose,
    complaints,
    complaints_schema,
    row,
    text_rows,
)

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular import CategoricalColumn

ALL = [row(number) for number in range(20)]


def stopping(stop: BaseException, after: int) -> Any:
    """Return a reply that stops the program after some calls, once."""
    asked: list[str] = []

    def reply(prompt: str) -> str:
        if "Traveler" in prompt:
            asked.append(prompt)
            if len(asked) == after:
                raise stop
        return choose(prompt)

    return reply


@pytest.mark.parametrize("kind", [Reader, AsyncReader])
@pytest.mark.parametrize("file", [None, "private.jsonl"])
def test_what_was_read_before_ctrl_c_is_not_asked_again(
    tmp_path: Path, kind: type[Reader], file: str | None
) -> None:
    model = kind(reply=stopping(KeyboardInterrupt(), 8))
    path = file and tmp_path / file
    rows = text_rows(complaints(20), model, max_concurrency=1, file=path)
    with pytest.raises(KeyboardInterrupt):
        rows.read()
    assert len(model.asked) == 8
    if path:
        rows = text_rows(complaints(20), model, file=path)
    assert list(rows) == ALL
    assert len(model.asked) == 8 + 13


async def test_what_was_read_before_a_cancellation_is_not_asked_again() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(prompt: str) -> str:
        if "Traveler 10 " in prompt:
            begun.set()
            assert go_on.wait(20)
        return choose(prompt)

    model = AsyncReader(reply=slow)
    rows = text_rows(complaints(20), model, max_concurrency=1)
    reading = asyncio.ensure_future(rows.aread())
    waiting = asyncio.ensure_future(rows.aread())
    assert await asyncio.to_thread(begun.wait, 20)
    for canceled in (waiting, reading):
        canceled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await canceled
    asked = len(model.asked)
    go_on.set()
    # The one in flight is kept, and no further one is made.
    await rows.aread()
    assert asked == 11
    assert list(rows) == ALL
    assert len(model.asked) == 20


def test_the_file_is_private_and_holds_neither_ids_nor_texts(tmp_path: Path) -> None:
    path = tmp_path / "new" / "private-readings.jsonl"
    before = os.umask(0)
    try:
        text_rows(complaints(3), file=path).read()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    header, *lines = map(json.loads, path.read_text().splitlines())
    assert header["kind"] == "private readings"
    assert len(lines) == 3
    assert "person" not in path.read_text()
    assert "Traveler" not in path.read_text()


def test_a_call_that_failed_is_asked_again_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "private.jsonl"

    def fail(prompt: str) -> str:
        if "Traveler 3 " in prompt:
            raise RuntimeError
        return choose(prompt)

    rows = text_rows(complaints(5), Reader(reply=fail), file=path)
    assert list(rows)[3] == {"topic": "unknown", "mood": "unknown"}
    model = Reader()
    assert list(text_rows(complaints(5), model, file=path)) == ALL[:5]
    assert len(model.asked) == 1


@pytest.mark.parametrize(
    "terms",
    [
        {
            "schema": complaints_schema(
                mood=CategoricalColumn(name="mood", values=["ab", "c"])
            )
        },
        {"prompt": "Fill {columns} from Traveler {records}"},
        {"model": Reader().bind(seed=3)},
        {"model": AsyncReader()},
    ],
)
def test_readings_of_another_schema_prompt_or_model_are_refused(
    tmp_path: Path, terms: dict[str, Any]
) -> None:
    path = tmp_path / "private.jsonl"
    text_rows(complaints(3), file=path).read()
    with pytest.raises(InvalidParameterError, match="no readings of this schema"):
        text_rows(complaints(3), **{"file": path, **terms})
    path.chmod(0o640)
    with pytest.raises(InvalidParameterError, match="chmod 600"):
        text_rows(complaints(3), file=path)


def test_a_line_that_is_cut_off_or_edited_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "private.jsonl"
    text_rows(complaints(4), file=path, max_concurrency=1).read()
    header, *lines = path.read_text().splitlines()
    edited = lines[1].replace("ticket price", "a pony")
    assert edited != lines[1]
    path.write_text("\n".join([header, lines[0], edited, "{not JSON", lines[3][:40]]))
    model = Reader()
    assert list(text_rows(complaints(4), model, file=path)) == ALL[:4]
    assert len(model.asked) == 3
    assert all(map(json.loads, path.read_text().splitlines()[-3:]))


def test_a_file_that_can_not_be_written_is_a_public_error(tmp_path: Path) -> None:
    folder = tmp_path / "private.jsonl"
    rows = text_rows(complaints(4), file=folder)
    folder.mkdir()
    with pytest.raises(InvalidParameterError, match="can't be written") as caught:
        rows.read()
    assert "Traveler" not in str(caught.value)


def test_the_trial_call_tells_nobody_who_is_new(tmp_path: Path) -> None:
    path = tmp_path / "private.jsonl"
    list(text_rows(complaints(5), file=path))
    public = []
    for count in (5, 6):
        model = Reader(reply=choose)
        list(text_rows(complaints(count), model, file=path))
        public.append([text for text in model._asked if "Traveler" not in text])
    assert public[0] == public[1]
    assert len(public[0]) == 1


def test_a_line_that_a_full_disk_cut_takes_no_other_with_it(tmp_path: Path) -> None:
    path = tmp_path / "private.jsonl"
    list(text_rows(complaints(3), file=path))
    path.write_bytes(path.read_bytes()[:-5])
    list(text_rows(complaints(4), file=path))
    model = Reader(reply=choose)
    assert list(text_rows(complaints(4), model, file=path)) == ALL[:4]
    assert not model.asked
