"""A draft of a language model: `draft.json` has its four replies to the line `about`.

It names, too, which of the topics mean those that the writers of `insurance_chats` had
in mind; three of these the draft does not list.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from langchain_core.language_models import FakeListChatModel

from langchain_dpicl.insights import Topics, draft_topics

DRAFT = json.loads(Path(__file__).with_name("draft.json").read_text("utf-8"))


@cache
def listed() -> Topics:
    """Return the draft, as it is read and merged."""
    model = FakeListChatModel(responses=DRAFT["replies"])
    return draft_topics(model, about=DRAFT["about"])


def test_the_draft_is_read_whole_and_merged() -> None:
    topics = listed()
    assert set(DRAFT["means"].values()) <= set(topics.names)
    assert len(topics.names) == 54  # Of 58, with four doubles.
    assert "Payment not received" not in topics.names
    groups = list(topics.tree)
    assert groups[:2] == ["Claims and reimbursement", "Coverage questions"]
    assert len(groups) == 8
    assert None not in topics.groups
