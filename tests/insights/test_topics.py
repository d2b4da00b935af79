"""Topics: a public list, from a person's hand or a file."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("login", "must be Topics"),
        (7, "must be Topics"),
        ([], "names"),
        (["login", " "], "no word"),
        (["late fees", "Fee, late"], "can't be told apart"),
        ([7], "names"),
        ([f"topic {n}" for n in range(501)], "names"),
    ],
)
def test_what_is_no_list_of_topics_is_refused(given: Any, named: str) -> None:
    with pytest.raises(InvalidParameterError, match=named):
        Topics.of(given)
