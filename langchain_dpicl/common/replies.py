"""A model's reply: its answer, tokens or figures, and a group's slot."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from langchain_core.messages import BaseMessage
from langchain_core.messages.ai import UsageMetadata

from langchain_dpicl.common.hidden import hidden_repr

_COUNTS = ("input_tokens", "output_tokens", "total_tokens")
_TAGS = ("<think>", "<thinking>", "[think]")
_THOUGHTS = re.compile(
    r"(?:\s*(?:<(think|thinking)>.*?(?:</\1>|\Z)|\[think\].*?(?:\[/think\]|\Z)))+\s*",
    re.DOTALL | re.IGNORECASE,
)
# A template that writes the opening tag into the prompt leaves the closing one alone.
_END_ALONE = re.compile(r"^[ \t]*</think>[ \t]*$\s*", re.MULTILINE | re.IGNORECASE)
_START = re.compile(r"<think>", re.IGNORECASE)


def answer_of(reply: Any) -> str:
    """Return the answer in a reply, without the thinking that stands before it.

    The reply is a message, of whose blocks the text counts, or a text. Reasoning models
    think in blocks of their own, or between `<think>` and `</think>` at the beginning
    of the text. Thinking that does not end has no answer after it. A text that mentions
    such a tag later on stays as it is.

    Example:
        >>> answer_of("<think>Cough or rash? Cough.</think>cough")
        'cough'
        >>> answer_of("<think>Cough or ra"), answer_of("The tag is <think>.")
        ('', 'The tag is <think>.')
    """
    text = str(reply.text) if isinstance(reply, BaseMessage) else str(reply)
    if thoughts := _THOUGHTS.match(text):
        return text[thoughts.end() :]
    end = _END_ALONE.search(text)
    if end and not _START.search(text, 0, end.start()):
        return text[end.end() :]
    return text


def usage_of(reply: Any) -> UsageMetadata | None:
    """Return a reply's three counts of tokens; None where they are not all there.

    What else a model or a cache writes there is left out: LangChain's global cache
    gives a repeated call the usage `{"total_cost": 0}`, which no message can hold.

    Example:
        >>> from langchain_core.messages import AIMessage
        >>> usage_of(AIMessage("Hello."))
        >>> counts = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
        >>> usage_of(AIMessage("Hello.", usage_metadata=counts)) == counts
        True
    """
    told = getattr(reply, "usage_metadata", None)
    if not isinstance(told, Mapping):
        return None
    counts = {name: told.get(name) for name in _COUNTS}
    if not all(type(count) is int and count >= 0 for count in counts.values()):
        return None
    return cast("UsageMetadata", counts)


Figures = tuple[float, ...]
"""Log-likelihoods of options, one each in their order; none where they can't be read.
"""

LEAST, MOST = -100.0, 100.0
"""What a missing or a smaller figure counts as, and the largest that can be read."""


def read_figures(reply: Any, options: int) -> Figures:
    """Return the figures of one prompt: a row of numbers, or a list of that one row.

    A reply of another shape can't be read, nor one with what is no number, or with no
    figure but `-inf`: no option follows from it.

    Example:
        >>> read_figures([[-0.5, float("-inf")]], 2)
        (-0.5, -100.0)
        >>> read_figures([-0.5], 2), read_figures([-0.5, float("nan")], 2)
        ((), ())
    """
    try:
        row = np.array(reply, np.float64)
    except (TypeError, ValueError):
        return ()
    if row.shape not in {(options,), (1, options)}:
        return ()
    if not (row <= MOST).all() or (row == -np.inf).all():
        return ()
    return tuple(np.maximum(row.ravel(), LEAST).tolist())


@dataclass(frozen=True, repr=False)
class Slot:
    """One group's answer, or None for *abstain*. Private: its repr shows nothing.

    A group abstains if it is empty, its call failed or was refused, or its answer is
    empty. Whether a call was made and raised (`failed`) is as private as the answer.
    In a chain only groups that had records have a slot, and a reply without an answer
    is `BLANK`: it can't be read.
    """

    text: str | None
    failed: bool = False

    def __repr__(self) -> str:
        return hidden_repr(self)


ABSTAIN = Slot(text=None)  # The slot of a group with nothing to say.
FAILED = Slot(text=None, failed=True)  # The slot of a group whose call raised.
BLANK = Slot(text="")  # The slot of a group with records whose reply has no answer.


def answered(text: object) -> Slot:
    """Return the slot for a model's reply; one without an answer abstains."""
    answer = answer_of(text) if isinstance(text, str) else ""
    return Slot(answer) if answer.strip() else ABSTAIN


class AnswerPieces:
    """Makes the pieces of an answer out of the pieces of a reply; see `answer_of`.

    What may be thinking is held back. A closing tag without an opening one comes too
    late to be known here.

    Example:
        >>> pieces = AnswerPieces()
        >>> [pieces.next(p) for p in ("<thi", "nk>Hm.</th", "ink> ", "No ", "cough")]
        ['', '', '', 'No ', 'cough']
        >>> pieces.rest()
        ''
    """

    def __init__(self) -> None:
        self._held = ""
        self._answering = False

    def next(self, piece: str) -> str:
        """Return what the next piece adds to the answer."""
        if self._answering:
            return piece
        self._held += piece
        begun = self._held.lstrip().lower()
        if any(tag.startswith(begun) for tag in _TAGS):
            return ""
        # Most pieces are thinking, and reading all of them again for each is slow.
        if begun.startswith(_TAGS) and "/think" not in begun:
            return ""
        answer = answer_of(self._held) if begun.startswith(_TAGS) else self._held
        self._answering = bool(answer) and not any(
            tag.startswith(answer.lower()) for tag in _TAGS
        )
        return answer if self._answering else ""

    def rest(self) -> str:
        """Return what was held back and is part of the answer after all."""
        return "" if self._answering else answer_of(self._held)
