"""Topics: a public list, from a person's hand or a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from langchain_dpicl.errors import InvalidParameterError
from langchain_dpicl.insights import Topics

TREE = {"money": ["refunds", "late fees"], "account": ["login"]}


def test_topics_come_back_from_their_file(tmp_path: Path) -> None:
    topics = Topics.of(TREE)
    assert topics.names == ("refunds", "late fees", "login")
    assert topics.groups == ("money", "money", "account")
    topics.save(tmp_path / "topics.json")
    assert Topics.load(tmp_path / "topics.json") == topics == Topics.of(topics)
    assert Topics.of(["a", "b"]).groups == (None, None)


def test_people_can_read_and_write_topics(tmp_path: Path) -> None:
    assert str(Topics.of(TREE)) == "money\n  refunds\n  late fees\naccount\n  login"
    assert (
        str(Topics.of({"": ["app"], "money": ["refunds"]})) == "app\nmoney\n  refunds"
    )
    head = {"format": "langchain-dpicl", "version": 1, "kind": "topics"}
    path = tmp_path / "topics.json"
    for topics in (["refunds", "login"], {"": ["refunds", "login"]}):
        path.write_text(json.dumps({**head, "topics": topics}))
        assert Topics.load(path) == Topics.of(["refunds", "login"])
    path.write_text(json.dumps({**head, "topics": "refunds"}))
    with pytest.raises(InvalidParameterError, match="must be Topics"):
        Topics.load(path)


def test_a_group_stands_together_and_has_a_name() -> None:
    with pytest.raises(InvalidParameterError, match="stand together"):
        Topics(names=("a", "b", "c"), groups=("x", None, "x"))
    with pytest.raises(InvalidParameterError, match="group's name"):
        Topics.of({" ": ["a"]})


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("login", "must be Topics"),
        (7, "must be Topics"),
        ([], "names"),
        (["login", " "], "can't be a topic"),
        (["login", "Other:"], "can't be a topic"),
        (["login", "other: fees"], "can't be a topic"),
        (["login", "None."], "can't be a topic"),
        (["login", "two\nlines"], "can't be a topic"),
        (["login", "word " * 30], "can't be a topic"),
        (["late fees", "Fee, late"], "can't be told apart"),
        ([7], "names"),
        ([f"topic {n}" for n in range(501)], "names"),
    ],
)
def test_what_is_no_list_of_topics_is_refused(given: Any, named: str) -> None:
    with pytest.raises(InvalidParameterError, match=named):
        Topics.of(given)
