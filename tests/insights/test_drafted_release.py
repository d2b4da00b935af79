"""A release whose topics were drafted: what people have, and what no draft listed.

`draft.json` holds the four replies of a language model that was given the line `about`,
and which of its topics mean the ones that the writers of the conversations had in mind:
three of these it does not list.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from langchain_core.language_models import FakeListChatModel
from scripted import ScriptedModel
from support.insurance_chats import documents, people, text_of

from langchain_dpicl.insights import Topics, draft_topics, insights
from langchain_dpicl.mechanisms.random import SeededRandom, use

DRAFT = json.loads(Path(__file__).with_name("draft.json").read_text("utf-8"))
M = 2


@cache
def listed() -> Topics:
    """Return the draft, as it is read and merged."""
    model = FakeListChatModel(responses=DRAFT["replies"])
    return draft_topics(model, about=DRAFT["about"])


def named(person: dict[str, Any]) -> tuple[list[str], str | None]:
    """Return the drafted topics that a person has, and one that is not listed."""
    known = [DRAFT["means"][name] for name in person["yes"] if name in DRAFT["means"]]
    others = [name for name in person["yes"] if name not in DRAFT["means"]]
    return known, others[0] if others else None


def replying() -> ScriptedModel:
    """Return a model that names them."""
    replies = {}
    for person in people():
        known, other = named(person)
        lines = [*known, *([f"other: {other}"] if other else [])]
        replies[text_of(person)] = "\n".join(lines)

    def script(prompt: str) -> str:
        return next((said for text, said in replies.items() if text in prompt), "none")

    return ScriptedModel(script=script)


def test_the_draft_is_read_whole_and_merged() -> None:
    topics = listed()
    assert set(DRAFT["means"].values()) <= set(topics.names)
    assert len(topics.names) == 54  # Of 58, with four doubles.
    assert "Payment not received" not in topics.names
    groups = list(topics.tree)
    assert groups[:2] == ["Claims and reimbursement", "Coverage questions"]
    assert len(groups) == 8
    assert None not in topics.groups


def test_drafted_topics_come_out_and_the_rest_is_in_other() -> None:
    with use(SeededRandom(5)):
        found = insights(
            documents(),
            replying(),
            unit_key="user",
            topics=listed(),
            epsilon=3.0,
            delta=1e-6,
            ledger=":memory:",
            max_topics=M,
        )
    exact, others = Counter[str](), 0
    for known, other in map(named, people()):
        exact.update(known[: M - (other is not None)])
        others += other is not None
    told = {one.name: one for one in found.topics}
    assert {name for name, count in exact.items() if count >= 12} <= set(told)
    assert len(told) >= 15
    wrong = [
        one for one in told.values() if abs(one.count - exact[one.name]) > one.error
    ]
    assert len(wrong) <= 2
    assert others >= 15  # Three topics that were meant are in no draft.
    assert abs(found.other.count - others) <= found.other.error + 2
