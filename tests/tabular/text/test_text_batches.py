"""Batch files: each reply goes to its own unit, by an id that tells nothing."""

from __future__ import annotations

import json
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.text_parts import (
    Reader,
    choose,
    complaint,
    complaints,
    complaints_schema,
    row,
    text_rows,
)

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.tabular import TextRows
from langchain_dpicl.tabular.text import batches

NOTHING = {"topic": "unknown", "mood": "unknown"}
ALL = [row(number) for number in range(12)]


def requests(**terms: Any) -> list[dict[str, Any]]:
    rows = TextRows(complaints(12), complaints_schema(), None, unit_key="who")
    return list(rows.requests(model="gpt-4o-mini", **terms))


def openai(asked: dict[str, Any]) -> dict[str, Any]:
    text = choose(asked["body"]["messages"][-1]["content"])
    message = {"role": "assistant", "content": text}
    body = {"choices": [{"index": 0, "message": message}]}
    response = {"status_code": 200, "body": body}
    return {"custom_id": asked["custom_id"], "response": response, "error": None}


def anthropic(asked: dict[str, Any]) -> dict[str, Any]:
    text = choose(asked["body"]["messages"][-1]["content"])
    message = {"content": [{"type": "thinking"}, {"type": "text", "text": text}]}
    result = {"type": "succeeded", "message": message}
    return {"custom_id": asked["custom_id"], "result": result}


def taken(lines: Any, **terms: Any) -> list[dict[str, Any]]:
    rows = TextRows.from_replies(
        complaints(12), complaints_schema(), lines, unit_key="who", **terms
    )
    return list(rows)


@pytest.mark.parametrize("answer", [openai, anthropic])
@pytest.mark.parametrize(
    "as_line", [json.dumps, dict, lambda x: json.dumps(x).encode()]
)
def test_replies_are_matched_by_their_ids_in_any_order(
    answer: Callable[[Any], Any], as_line: Callable[[Any], Any]
) -> None:
    lines = [as_line(answer(asked)) for asked in requests()]
    random.Random(1).shuffle(lines)
    assert taken(lines) == ALL


def test_twin_replies_matched_by_their_place_go_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = requests()
    lines = [openai(each) for each in asked][1:]
    assert taken(lines) == [NOTHING, *ALL[1:]]
    given = batches.replies_of

    def by_place(found: Any) -> Any:
        for each, (_, slot) in zip(asked, given(found), strict=False):
            yield each["custom_id"], slot

    monkeypatch.setattr(batches, "replies_of", by_place)
    assert taken(lines)[:2] == ALL[1:3]


def test_a_request_is_a_line_for_the_provider() -> None:
    first, *others = requests(temperature=0)
    json.dumps([first, *others])
    assert (first["method"], first["url"]) == ("POST", "/v1/chat/completions")
    assert first["body"].keys() == {"model", "temperature", "messages"}
    assert "Traveler 0 " in first["body"]["messages"][0]["content"]
    assert len({each["custom_id"] for each in [first, *others]}) == 12


def test_an_id_tells_neither_unit_nor_text() -> None:
    documents = [complaint(0), complaint(0)]
    documents[1].metadata["who"] = "person-001"
    ids = [
        each["custom_id"]
        for key in ("", "one", "two")
        for each in text_rows(documents).requests(key=key)
    ]
    assert len(set(ids)) == 6
    assert all(len(each) == 32 and set(each) <= set("0123456789abcdef") for each in ids)


def test_a_key_is_needed_where_one_was_given() -> None:
    lines = [openai(asked) for asked in requests(key="secret")]
    assert taken(lines, key="secret") == ALL
    with pytest.raises(InvalidParameterError, match="None of the replies belongs"):
        taken(lines)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{not JSON",
        "[]",
        "null",
        {"custom_id": 7},
        {"response": None},
        {"custom_id": "ID", "response": None, "error": {"code": "expired"}},
        {"custom_id": "ID", "response": {"status_code": 500, "body": {"error": "no"}}},
        {"custom_id": "ID", "response": {"body": {"choices": []}}},
        {
            "custom_id": "ID",
            "response": {"body": {"choices": [{"message": {"content": None}}]}},
        },
        {"custom_id": "ID", "result": {"type": "errored"}},
        {"custom_id": "somebody else's", "response": {"body": {"choices": []}}},
    ],
)
def test_a_reply_that_is_missing_or_failed_is_unknown(line: Any) -> None:
    asked = requests()
    lines: list[Any] = [openai(each) for each in asked]
    if isinstance(line, dict) and line.get("custom_id") == "ID":
        line = {**line, "custom_id": asked[3]["custom_id"]}
    lines[3] = line
    assert taken(lines) == [*ALL[:3], NOTHING, *ALL[4:]]


def test_of_a_reply_that_comes_twice_the_first_counts() -> None:
    asked = requests()
    lines = [openai(each) for each in asked]
    again = {**lines[5], "custom_id": lines[0]["custom_id"]}
    assert taken([*lines, again]) == ALL


def test_files_are_written_privately_and_read(tmp_path: Path) -> None:
    rows = text_rows(complaints(12))
    path = tmp_path / "private-requests.jsonl"
    rows.write_requests(path, model="m")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    asked = [json.loads(line) for line in path.read_text().splitlines()]
    assert asked == list(rows.requests(model="m"))
    output = tmp_path / "output.jsonl"
    output.write_text("".join(json.dumps(openai(each)) + "\n" for each in asked))
    assert taken(output) == ALL
    with pytest.raises(InvalidParameterError, match="is there already"):
        rows.write_requests(path)
    with pytest.raises(InvalidParameterError, match="'private-requests'"):
        rows.write_requests(tmp_path / "requests")
    with pytest.raises(InvalidParameterError, match="can't be read"):
        taken(tmp_path / "nothing.jsonl")
    with pytest.raises(InvalidParameterError, match="lines must be"):
        taken(None)


def test_only_what_was_not_read_is_requested() -> None:
    rows = text_rows(complaints(3), Reader())
    assert len(list(rows.requests())) == 3
    rows.read()
    assert list(rows.requests()) == []


def test_rows_out_of_replies_ask_nobody() -> None:
    rows = TextRows.from_replies(
        complaints(12),
        complaints_schema(),
        [openai(asked) for asked in requests()[:5]],
        unit_key="who",
    )
    assert "model=NoneType, read=True" in repr(rows)
    assert list(rows.read())[:5] == ALL[:5]


def test_a_body_that_json_can_not_hold_is_refused_before_any_record(
    tmp_path: Path,
) -> None:
    rows = TextRows(complaints(2), complaints_schema(), None, unit_key="who")
    path = tmp_path / "private-requests.jsonl"
    with pytest.raises(InvalidParameterError, match="body"):
        rows.write_requests(path, model=object())
    with pytest.raises(InvalidParameterError, match="body"):
        rows.requests(model=object())
    assert not path.exists()
