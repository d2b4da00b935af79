r"""What a prompt shows before the place where the model goes on.

The last lines of a prompt, its cue ("Label: sports", "Text:"), stand before every
exemplar too, as templates repeat. Nothing else is needed to find the exemplars, and
any template will do.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from langchain_dpicl.common.slots import hidden_repr

_BLANK = re.compile(r"\n[ \t]*\n\s*")
_QUOTES = "\"'\u201c\u2018`"
_CLOSING = "\"'\u201d\u2019`"


class Shown(NamedTuple):
    """A prompt, taken apart."""

    frame: str  # The text before the first exemplar: the instruction.
    label: str  # What the cue's lines say of the text that is to come: its label.
    exemplars: tuple[str, ...]  # The exemplars, in the prompt's order.

    def __repr__(self) -> str:
        return hidden_repr(self)


def shown(prompt: str) -> Shown:
    r"""Take a prompt apart whose end waits for a text.

    Example:
        >>> tuple(shown("Write.\n\nLabel: a\nText: x y\n\nLabel: a\nText:"))
        ('Write.', 'a', ('x y',))
        >>> shown('Type: "Who"\nText: "An x."\n\nType: "Who"\nText: "').exemplars
        ('An x.',)
    """
    text = prompt.replace("\r\n", "\n").strip()
    block = _BLANK.split(text)[-1]
    head, _, cue = block.rpartition("\n")
    label = " ".join(line.partition(":")[2] or line for line in head.split("\n"))
    frame, *pieces = _split(text, block)
    if not pieces and head:
        frame, *pieces = _without_heads(_split(text, cue), head.count("\n") + 1)
    exemplars = (_unquoted(piece, cue) for piece in pieces)
    return Shown(frame.strip(), label.strip(), tuple(x for x in exemplars if x))


def _split(text: str, mark: str) -> list[str]:
    """Return what stands before, between and after lines that begin with the mark.

    The mark at the very end is where the model goes on: nothing stands after it. No
    regular expression of the mark: Python keeps those, and a prompt may be private.
    """
    first, *others = f"\n{text.removesuffix(mark)}".split(f"\n{mark}")
    return [first.removeprefix("\n"), *others]


def _without_heads(pieces: list[str], most: int) -> list[str]:
    """Take away the lines at the end of all pieces that lead to the next cue.

    They say the same of different texts: what stands before their colon is equal.
    """
    for _ in range(most):
        parts = [piece.rstrip().rpartition("\n") for piece in pieces]
        if len({line.partition(":")[0] for _, _, line in parts}) > 1:
            break
        pieces = [before for before, _, _ in parts]
    return pieces


def _unquoted(piece: str, cue: str) -> str:
    piece = piece.strip()
    if cue[-1:] and cue[-1] in _QUOTES:
        piece = piece.rstrip(_CLOSING)
    return piece
