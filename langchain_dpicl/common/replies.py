"""What of a model's reply is its answer: not what it thought before."""

from __future__ import annotations

import re
from typing import Any

from langchain_core.messages import BaseMessage

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
