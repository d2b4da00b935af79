"""JSON objects in a reply, also where the JSON is not quite JSON.

Read are single quotes, names without quotes, commas too many or missing, remarks around
and between, and objects that are cut off. The time is linear in the text; nothing
raises.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from langchain_dpicl.common.slots import hidden_repr

_TOKEN = re.compile(
    r"""\s+|//[^\n]*"""
    r"""|"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.|(?<=\w)'(?=\w))*)'|([\[\]{}:,])"""
    r"""|[^\s\[\]{}:,"']+(?:'\w+)*|["']""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\n", "b": "", "f": ""}
_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")
# Python's None is null; "none" in small letters may be a value.
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("null", "Null", "NULL", "None")),
    **dict.fromkeys(("true", "True"), True),
    **dict.fromkeys(("false", "False"), False),
}
_DEEPEST = 20


def objects_in(text: str) -> list[dict[str, Any]]:
    r"""Return the JSON objects of a text, in the order in which they end.

    An object within another one is in the list too. Of a name that comes twice in an
    object the first counts.

    Args:
        text: A reply.

    Example:
        >>> objects_in("Sure: {'drug': ['a', \"b\"], age: 54,} Bye!")
        [{'drug': ['a', 'b'], 'age': 54}]
        >>> objects_in('{"drug": "a", "side effect": "dry co')
        [{'drug': 'a', 'side effect': 'dry co'}]
    """
    return _divided(text)[0]


def prose_in(text: str) -> str:
    r"""Return a text without its JSON objects; what stands in braces alone stays.

    Args:
        text: A reply.

    Example:
        >>> prose_in('Here: {"note": "a headache clinic"} It is {late}.')
        'Here:   It is {late}.'
        >>> prose_in('{"note": "a headache cli')
        ' '
    """
    return _divided(text)[1]


def _divided(text: str) -> tuple[list[dict[str, Any]], str]:
    """Return the objects of a text, and the text without those that name something."""
    reader = _Reader()
    prose: list[str] = []
    place = 0
    while (begin := text.find("{", place)) >= 0:
        prose.append(text[place:begin])
        known = len(reader.objects)
        place = reader.read(text, begin)
        prose.append(" " if any(reader.objects[known:]) else text[begin:place])
    return reader.objects, "".join((*prose, text[place:]))


@dataclass(repr=False)
class _Open:
    """An object or list that has not ended. Private: its repr shows nothing."""

    sign: str
    names: dict[str, Any] = field(default_factory=dict)
    items: list[Any] = field(default_factory=list)
    key: str | None = None
    words: list[tuple[str, bool]] = field(default_factory=list)
    whole: list[Any] = field(default_factory=list)

    def __repr__(self) -> str:
        return hidden_repr(self)

    def keep(self) -> None:
        """Take what was read since the last comma as a value."""
        if self.whole:
            value = self.whole[0]
        elif not self.words:
            value = None
        elif len(self.words) == 1 and not self.words[0][1]:
            value = _typed(self.words[0][0])
        else:
            value = " ".join(word for word, _ in self.words)
        if self.sign == "[" and (self.whole or self.words):
            self.items.append(value)
        elif self.sign == "{" and self.key is not None:
            self.names.setdefault(self.key, value)
        self.key, self.words, self.whole = None, [], []

    def colon(self) -> None:
        """Take what was read since the last comma as a name."""
        if not self.words:
            return
        if self.key is None:
            self.key = " ".join(word for word, _ in self.words)
            self.words = []
        elif len(self.words) > 1 and self.words[-1][1]:
            # A comma was forgotten: the last text is the next name.
            name = self.words.pop()[0]
            self.keep()
            self.key = name
        else:
            self.words.append((":", False))


class _Reader:
    """Reads objects one after the other."""

    def __init__(self) -> None:
        self.objects: list[dict[str, Any]] = []

    def __repr__(self) -> str:
        return hidden_repr(self)

    def read(self, text: str, begin: int) -> int:
        """Read the object that begins at a place; return where it ends."""
        stack: list[_Open] = []
        for match in _TOKEN.finditer(text, begin):
            if match[3] is not None:
                self._sign(stack, match[3])
                if not stack:
                    return match.end()
            elif not _word(stack[-1].words, match, text):
                break
        while stack:
            self._close(stack)
        return len(text)

    def _sign(self, stack: list[_Open], sign: str) -> None:
        if sign in "[{":
            stack.append(_Open(sign))
            if len(stack) > _DEEPEST:
                stack.clear()
        elif sign == ":":
            stack[-1].colon()
        elif sign == ",":
            stack[-1].keep()
        else:
            self._close(stack)

    def _close(self, stack: list[_Open]) -> None:
        done = stack.pop()
        done.keep()
        value: Any = done.items
        if done.sign == "{":
            value = done.names
            self.objects.append(done.names)
        if stack:
            stack[-1].whole.append(value)


def _word(words: list[tuple[str, bool]], match: re.Match[str], text: str) -> bool:
    """Take a word or a string; return whether the text goes on behind it."""
    string = match[1] if match[1] is not None else match[2]
    if string is not None:
        words.append((_unescaped(string), True))
    elif match[0] in {'"', "'"}:
        words.append((text[match.end() :].strip(), True))
        return False
    elif match[0].strip() and not match[0].startswith("//"):
        words.append((match[0], False))
    return True


def _typed(word: str) -> Any:
    """Return what a word without quotes says: a number, a truth value, or itself."""
    if _NUMBER.fullmatch(word):
        return float(word) if "." in word else int(word)
    return _WORDS.get(word, word)


def _unescaped(text: str) -> str:
    def sign(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return _CONTROLS.get(match[2], match[2])

    return _ESCAPE.sub(sign, text)
