"""The stand-in's way with a follow-up question: words of one take another's place."""

from __future__ import annotations

import re
from collections.abc import Sequence

MARKER = "as one standalone question"
"""What a system message says that asks for a question to be rewritten."""

_PLACE = re.compile(
    r"\b(on|of|for|with|in|to|from|by|about|after|take|takes)\s+(\w[\w-]*)",
    re.IGNORECASE,
)


def standalone(questions: Sequence[str]) -> str:
    """Return the last of a user's questions, made to stand alone.

    "And on metformin?" puts its words into the places that they have in the question
    before. Where there is no such place the question stays as it is.

    Args:
        questions: What the user has asked, the follow-up last.

    Example:
        >>> standalone(["What do patients on lisinopril report?", "And on metformin?"])
        'What do patients on metformin report?'
    """
    *before, last = questions
    if not before:
        return last
    earlier, replaced = before[-1], 0
    for word, thing in _PLACE.findall(last):
        place = re.compile(rf"\b({re.escape(word)})\s+\w[\w-]*", re.IGNORECASE)
        earlier, count = place.subn(rf"\1 {thing}", earlier, count=1)
        replaced += count
    return earlier if replaced else last
